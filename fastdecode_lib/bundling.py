"""Put a trained checkpoint among the assets: tidy its files, score it on the test split, write its model card."""

import json
import math
import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints import quantised
from fastdecode_lib.corpus import Novels, Tatoeba, corpus_folder, join_pairs
from fastdecode_lib.language import load_language
from fastdecode_lib.measure import quality, signatures, versions
from fastdecode_lib.presets import LANGUAGE_TAGS, PRESETS, LanguagePreset, Preset, RecurrentPreset
from fastdecode_lib.store import atomic_file, atomic_folder, write_table
from fastdecode_lib.translation import Session, TranslationModel, load
from fastdecode_lib.words import UNKNOWN

JOINED_SEED = 0
"""Decides which test sentences are joined with which."""


def bundle(name: str, *, data: str | Path | None = None, folder: str | Path = "build/train") -> Path:
    """Score the best checkpoint of a preset and install it as a bundled model.

    Returns
    -------
    Path
        The folder among the assets.

    Raises
    ------
    ValueError
        If the name is unknown or nothing has been trained yet.
    """
    if name not in PRESETS:
        raise ValueError(f"Unknown model to bundle: got {name!r}. Use one of {', '.join(PRESETS)}.")
    best = Path(folder) / name / "best"
    if not (best / "config.json").is_file():
        raise ValueError(f"There is no trained checkpoint in {best}. Train one first: fastdecode train {name}")
    corpus = corpus_folder(data)
    preset: Any = PRESETS[name]
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "marian": (_copy_tidied, _translation_scores, _card),
        "recurrent": (_copy_quantised, _translation_scores, _recurrent_card),
        "language": (_copy_quantised, _language_scores, _language_card),
    }
    copy, scores, card = kinds[preset.kind]
    root = Path(str(resources.files("fastdecode_lib")))
    history = json.loads((best.parent / "history.json").read_text(encoding="utf-8"))
    seed = json.loads((best.parent / "run.json").read_text(encoding="utf-8"))["seed"]
    chosen = max(history, key=lambda entry: entry[preset.measure])
    with atomic_folder(root / "assets" / name) as target:
        copy(best, target, preset)
        rows, how = scores(str(target), corpus)
        (target / "README.md").write_text(card(preset, rows, chosen, seed), encoding="utf-8")
    about = {
        "command": f"fastdecode train {name} && fastdecode train {name} --bundle",
        "update": chosen["update"],
        "seed": seed,
        "versions": versions(),
        "dtype": "float32",
        **how,
    }
    write_table(root / "results" / f"{name}.scores.laptop.json", rows, about)
    with atomic_file(root / "results" / f"{name}.history.laptop.json") as temporary:
        temporary.write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
    return root / "assets" / name


def _copy_tidied(best: Path, target: Path, preset: Preset) -> None:
    for file in best.iterdir():
        if file.suffix in {".json", ".safetensors", ".spm"}:
            shutil.copyfile(file, target / file.name)
    settings_file = target / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    for passing in ("is_local", "local_files_only"):
        settings.pop(passing, None)
    settings["model_max_length"] = preset.max_positions
    settings_file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    note = {"directions": preset.directions, "tags": LANGUAGE_TAGS}
    (target / "fastdecode.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def _copy_quantised(best: Path, target: Path, preset: RecurrentPreset) -> None:
    from safetensors.numpy import load_file, save_file

    for name in ("config.json", "vocabulary.json", "lexicon.safetensors"):
        if (best / name).exists():
            shutil.copyfile(best / name, target / name)
    save_file(quantised(load_file(best / "model.safetensors")), target / "model.safetensors")


def _translation_scores(folder: str, corpus: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return score(load(folder), Tatoeba(corpus)), {"decoder": "greedy", "joined_seed": JOINED_SEED, **signatures()}


def _language_scores(folder: str, corpus: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Perplexity of the dev and test splits, and the share of their words that the vocabulary lacks."""
    model, rows = load_language(folder), []
    for split in ("dev", "test"):
        texts = Novels(corpus).sentences(split)
        texts = [t for t in texts if len(model.text.words(t)) < model.network.max_target]
        ids = np.concatenate(model.text.encode(texts))
        rows.append(
            {
                "name": split,
                "count": len(texts),
                "words": len(ids),
                "unknown": float((ids == UNKNOWN).mean()),
                "perplexity": model.perplexity(texts),
            }
        )
    return rows, {}


def score(model: TranslationModel, corpus: Tatoeba) -> list[dict[str, Any]]:
    """BLEU and chrF of greedy decoding on the test split: a row per direction, single sentences and joined ones."""
    rows = []
    for source, target in model.directions:
        session = Session.of(model, source, target)
        single = corpus.pairs("test", source, target)
        for kind, pairs in (("single", single), ("joined", join_pairs(single, seed=JOINED_SEED))):
            found = session.decode([a for a, _ in pairs])
            bleu, chrf = quality(model.texts([a for a, _ in pairs], [h.tokens for h in found]), [b for _, b in pairs])
            ended = sum(h.stop == "end" and len(h.tokens) < session.constraints.limit for h in found)
            rows.append(
                {
                    "name": f"{source}-{target}",
                    "sentences": kind,
                    "count": len(pairs),
                    "bleu": bleu,
                    "chrf": chrf,
                    "ended": ended,
                }
            )
    return rows


def _card(preset: Preset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    languages = sorted({code for pair in preset.directions for code in pair})
    by_direction = {(row["name"], row["sentences"]): row for row in rows}
    lines = [
        "---",
        "license: apache-2.0",
        "language: [" + ", ".join(languages) + "]",
        "pipeline_tag: translation",
        "library_name: transformers",
        "---",
        "",
        f"# {preset.name}",
        "",
        f"A small Marian-shaped transformer ({preset.encoder_layers} encoder and {preset.decoder_layers} decoder layers, "
        f"d={preset.width}, joint SentencePiece vocabulary of {preset.vocabulary:,}) that translates between English and "
        "German, French and Spanish. It exists to show and test decoding methods, not to compete on quality: it knows "
        "short everyday sentences, and two to four of them joined.",
        "",
        "The target language is named by a tag in front of the source: `>>deu<< The train is late.` Weights are stored in "
        "float16 and computed in float32.",
        "",
        "## Training",
        "",
        f"- Data: sentence pairs from [tatoeba.org](https://tatoeba.org) by way of manythings.org/anki, CC BY 2.0 FR; "
        f"single pairs, and {preset.joined_share:g} times as many joined two to four at a time. Dev and test sentences are "
        "held out by a hash of the English side over all languages.",
        f"- Command: `fastdecode train {preset.name}`, seed {seed}. This checkpoint: update {chosen['update']:,} "
        f"(batches of at most {preset.tokens_per_update:,} padded target tokens), the running average of the weights, chosen by "
        f"mean dev chrF ({chosen['dev_chrf']:.1f}).",
        f"- bfloat16 autocast, AdamW, peak rate {preset.peak_rate:g} after {preset.warm_up:,} updates, then inverse square "
        f"root; label smoothing {preset.label_smoothing:g}.",
        "",
        "## Scores on the test split (greedy, float32)",
        "",
        "| direction | single: BLEU | chrF | joined: BLEU | chrF |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for source, target in preset.directions:
        cells = [
            f"{by_direction[f'{source}-{target}', kind][metric]:.1f}"
            for kind in ("single", "joined")
            for metric in ("bleu", "chrf")
        ]
        lines.append(f"| {source}-{target} | {' | '.join(cells)} |")
    lines += [
        "",
        "Draft tables (`draft-tables/`) are n-gram counts and a lexicon of the model's own translations of joined training "
        "sources; the sliding window guesses from them. They hold for these weights only: "
        "`fastdecode draft-table --data DIR --sentences 32000 --out FOLDER` makes them.",
        "",
        *(f"{ {'bleu': 'BLEU', 'chrf': 'chrF'}[name] }: `{signature}`" for name, signature in signatures().items()),
    ]
    return "\n\n".join(["\n".join(lines[:-5]), lines[-4], *lines[-2:]]) + "\n"


def _recurrent_card(preset: RecurrentPreset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    shape = preset.shape
    ((source, target),) = preset.directions
    above = {"none": "nothing above", "tanh": "a tanh layer on top", "recurrent": f"a {shape.cell.upper()} on top"}[
        shape.top
    ]
    lines = [
        "---",
        "license: apache-2.0",
        f"language: [{source}, {target}]",
        "pipeline_tag: translation",
        "---",
        "",
        f"# {preset.name}",
        "",
        f"A word-based attentional recurrent model, {source} to {target}, of the shape of paper 004's table 2 (Devlin, 2017) "
        f"at a quarter of its widths: {shape.source_layers} {shape.cell.upper()} layers of the source, "
        f"{shape.bidirectional_layers} of them bidirectional, {shape.source_width} a direction; an attentional "
        f"{shape.cell.upper()} of {shape.width}, {shape.extra_layers} further recurrent and {shape.fc_layers} fully-connected "
        f"layers, {above}; {shape.vocabulary:,} words a side. It exists to measure decoding methods, not to compete on quality.",
        "",
        "Matrices are stored as int8 with a scale for each row and computed in float32. `lexicon.safetensors` holds the "
        f"{preset.translations} best translations of each source word by IBM model 1.",
        "",
        "## Training",
        "",
        "- Data: sentence pairs from [tatoeba.org](https://tatoeba.org) by way of manythings.org/anki, CC BY 2.0 FR; single "
        f"pairs, and {preset.joined_share:g} times as many joined two to four at a time.",
        f"- Command: `fastdecode train {preset.name}`, seed {seed}. This checkpoint: update {chosen['update']:,} of "
        f"{preset.max_updates:,} (batches of at most {preset.tokens_per_update:,} padded target tokens), the running average of "
        f"the weights, chosen by dev chrF ({chosen['dev_chrf']:.1f}).",
        f"- float32, AdamW, peak rate {preset.peak_rate:g} after {preset.warm_up:,} updates, then inverse square root; label "
        f"smoothing {preset.label_smoothing:g}; weights clipped to [-1, 1], relus to [0, 10].",
        "",
        "## Scores on the test split (greedy, float32, unknown words replaced)",
        "",
        "| sentences | count | BLEU | chrF |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {row['sentences']} | {row['count']} | {row['bleu']:.1f} | {row['chrf']:.1f} |" for row in rows),
        "",
        *(f"{ {'bleu': 'BLEU', 'chrf': 'chrF'}[name] }: `{signature}`\n" for name, signature in signatures().items()),
    ]
    return "\n".join(lines)


def _language_card(preset: LanguagePreset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    shape = preset.shape
    lines = [
        "---",
        "license: apache-2.0",
        "language: [en]",
        "pipeline_tag: text-generation",
        "---",
        "",
        f"# {preset.name}",
        "",
        f"A word-based language model: {shape.layers} LSTM layers of {shape.width}, {shape.vocabulary:,} words"
        f"{', lower-cased' if preset.lower else ''}, an output matrix of its own with a bias. It has the geometry of a language "
        "model of paper 001's table 1, and exists to measure vocabulary projections, not to write.",
        "",
        "Matrices are stored as int8 with a scale for each row and computed in float32.",
        "",
        "## Training",
        "",
        "- Data: sentences of 97 English novels published from 1832 to 1928 (public domain), each read from its beginning.",
        f"- Command: `fastdecode train {preset.name}`, seed {seed}. This checkpoint: update {chosen['update']:,} of at most "
        f"{preset.max_updates:,} (batches of at most {preset.tokens_per_update:,} padded words), the running average of the "
        f"weights, chosen by dev perplexity ({math.exp(-chosen['dev_log_probability']):.1f}).",
        f"- float32, AdamW, peak rate {preset.peak_rate:g} after {preset.warm_up:,} updates, then inverse square root.",
        "",
        "## Perplexity, ends of sentences included",
        "",
        "| split | sentences | words | unknown | perplexity |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {row['name']} | {row['count']:,} | {row['words']:,} | {row['unknown']:.1%} | {row['perplexity']:.1f} |"
            for row in rows
        ),
        "",
    ]
    return "\n".join(lines)
