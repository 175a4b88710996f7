"""Put a trained checkpoint among the assets: tidy its files, score it on the test split, write its model card."""

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib import __version__, registry
from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.checkpoints.int8 import quantised
from fastdecode_lib.checkpoints.weights import BUNDLED, HERE, Record, find_weights, read_manifest
from fastdecode_lib.language_model import LanguageModel, load_language
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import quality, signatures
from fastdecode_lib.store import atomic_folder, read_json, write_table, write_text
from fastdecode_lib.text.corpus import Novels, Tatoeba, corpus_folder, join_pairs
from fastdecode_lib.text.words import UNKNOWN
from fastdecode_lib.training import cards
from fastdecode_lib.training.manifest import add
from fastdecode_lib.training.presets import (
    BEGUN_WITH,
    LANGUAGE_TAGS,
    PRESETS,
    RUN,
    GroupPreset,
    Preset,
    RecurrentPreset,
)
from fastdecode_lib.translation import Session

ROOT = Path(str(resources.files("fastdecode_lib")))
JOINED_SEED = 0
"""Seed of the test sentences that are joined."""


def bundle(
    name: str, *, data: str | Path | None = None, folder: str | Path = "build/train", keep: bool = False
) -> Path:
    """Score the best checkpoint of a preset and install it as a bundled model, with a record in the manifest of weights.

    Parameters
    ----------
    keep : bool
        Install into ``weights/`` instead, which is part of a checkout but not of an installed library.

    Returns
    -------
    Path
        The model's folder.

    Raises
    ------
    ValueError
        If the name is unknown or nothing has been trained yet.
    """
    if name not in PRESETS:
        raise ValueError(f"Unknown model to bundle: got {name!r}. Use one of {', '.join(PRESETS)}.")
    checkpoint = Path(folder) / name / "best"
    if not (checkpoint / "config.json").is_file():
        raise ValueError(f"There is no trained checkpoint in {checkpoint}. Train one first: fastdecode train {name}")
    preset: Any = PRESETS[name]
    kinds: dict[str, tuple[Any, Any]] = {
        "marian": (_copy_tidied, cards.marian_card),
        "recurrent": (_copy_quantised, cards.recurrent_card),
        "language": (_copy_quantised, cards.language_card),
        "group": (_copy_own, cards.group_card),
    }
    copy, card = kinds[preset.kind]
    history = read_json(checkpoint.parent / "history.json", list)
    run = read_json(checkpoint.parent / RUN)
    evaluation, seed = max(history, key=lambda entry: entry[preset.measure]), run["seed"]
    last = history[-1]["update"]
    command = _command(name, evaluation, seed, run.get(BEGUN_WITH), ROOT.parent / "weights", last)
    installed = (ROOT.parent / "weights" if keep else ROOT / "assets") / name
    with atomic_folder(installed) as target:
        copy(checkpoint, target, preset)
        rows, settings = _scores(preset, target, data)
        (target / "README.md").write_text(card(preset, rows, evaluation | {"command": command}), encoding="utf-8")
    made_by = f"{command} && fastdecode train {name} {'--keep' if keep else '--bundle'}"
    _write_scores(name, rows, {"command": made_by, "update": evaluation["update"], "seed": seed} | settings)
    write_text(ROOT / "results" / f"{name}.history.laptop.json", json.dumps(history, indent=1) + "\n")
    record = Record(
        name,
        find_checkpoint(installed).fingerprint,
        HERE if keep else BUNDLED,
        command,
        made_with=", ".join(filter(None, (__version__, run.get("device")))),
        seed=seed,
        updates=min(evaluation["planned"], last),
        hours=round(history[-1]["seconds"] / 3600, 2),
        scores={"dev": {preset.measure: evaluation[preset.measure]}, "test": rows},
    )
    add(record, ROOT.parent / "weights")
    return installed


def score_again(name: str, *, data: str | Path | None = None) -> list[dict[str, Any]]:
    """Score the shipped weights of a preset on the test split again; the result keeps how they were trained.

    Raises
    ------
    ValueError
        If the preset is unknown, if its weights are neither bundled nor in ``weights/``, or if scores have changed.
    """
    if name not in PRESETS:
        raise ValueError(f"Unknown model to score: got {name!r}. {registry.nearest(name, PRESETS)}")
    shipped = ROOT / "assets" / name if name in bundled() else find_weights(name)
    if shipped is None:
        raise ValueError(
            f"Shipped weights are scored: got {name}, which is neither bundled nor in weights/. Train it, then: fastdecode train "
            f"{name} --keep"
        )
    rows, settings = _scores(PRESETS[name], shipped, data)
    earlier = read_json(_scores_file(name))
    for row, before in zip(rows, earlier["rows"], strict=True):
        if moved := [key for key, value in before.items() if isinstance(value, float) and abs(row[key] - value) > 5e-3]:
            raise ValueError(
                f"The scores of {name} are not those of its card and manifest: got {moved[0]} {row[moved[0]]:.3f}, they say "
                f"{before[moved[0]]:.3f}. Install the versions that the result names, or train and bundle again."
            )
    trained = {key: earlier["provenance"][key] for key in ("command", "update", "seed")}
    again = f" && fastdecode train {name} --score"
    _write_scores(name, rows, trained | {"command": trained["command"].removesuffix(again) + again} | settings)
    return rows


def _scores(preset: Any, folder: Path, data: str | Path | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Scores of a checkpoint on the test split, and their settings."""
    corpus = corpus_folder(data)
    if preset.kind == "language":
        return _language_scores(load_language(str(folder)), Novels(corpus)), {}
    model = load(str(folder))
    settings = {"decoder": registry.usual(model.network), "joined_seed": JOINED_SEED, **signatures()}
    return score(model, Tatoeba(corpus)), settings


def _write_scores(name: str, rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Write a result of scores, with how they and the weights were made."""
    write_table(_scores_file(name), rows, provenance() | {"dtype": "float32"} | about)


def _scores_file(name: str) -> Path:
    return ROOT / "results" / f"{name}.scores.laptop.json"


def _command(name: str, evaluation: dict[str, Any], seed: int, base: str | None, folder: Path, last: int) -> str:
    """Command that trains a model to its last evaluation; a base, given by its fingerprint, is named as in the manifest."""
    names = {record.fingerprint: record.name for record in read_manifest(folder)}
    begin = "" if base is None else f" --begin-with {names.get(base, base)}"
    stop = f" --stop-at {last}" if last < evaluation["planned"] else ""
    return f"fastdecode train {name} --updates {evaluation['planned']} --seed {seed}{begin}{stop}"


def _copy_tidied(checkpoint: Path, target: Path, preset: Preset) -> None:
    for file in checkpoint.iterdir():
        if file.suffix in {".json", ".safetensors", ".spm"}:
            shutil.copyfile(file, target / file.name)
    settings_file = target / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    for local_setting in ("is_local", "local_files_only"):
        settings.pop(local_setting, None)
    settings["model_max_length"] = preset.max_positions
    settings_file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    note = {"directions": preset.directions, "tags": LANGUAGE_TAGS}
    (target / "fastdecode.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def _copy_own(checkpoint: Path, target: Path, preset: GroupPreset) -> None:
    for name in ("config.json", "fastdecode.json", "source.spm", "model.safetensors"):
        shutil.copyfile(checkpoint / name, target / name)


def _copy_quantised(checkpoint: Path, target: Path, preset: RecurrentPreset) -> None:
    from safetensors.numpy import load_file, save_file

    for name in ("config.json", "vocabulary.json", "lexicon.safetensors"):
        if (checkpoint / name).exists():
            shutil.copyfile(checkpoint / name, target / name)
    save_file(quantised(load_file(checkpoint / "model.safetensors")), target / "model.safetensors")


def _language_scores(model: LanguageModel, corpus: Novels) -> list[dict[str, Any]]:
    """Perplexity of the dev and test splits, and the share of their words that the vocabulary lacks."""
    rows = []
    for split in ("dev", "test"):
        texts = [t for t in corpus.sentences(split) if len(model.text.words(t)) < model.network.max_target]
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
    return rows


def score(model: TranslationModel, corpus: Tatoeba) -> list[dict[str, Any]]:
    """BLEU and chrF of the usual decoder on the test split, for each direction, on single and on joined sentences."""
    rows = []
    for source, target in model.directions:
        session = Session.of(model, source, target)
        single = corpus.pairs("test", source, target)
        for kind, pairs in (("single", single), ("joined", join_pairs(single, seed=JOINED_SEED))):
            hypotheses = session.decode([a for a, _ in pairs])
            texts = model.texts([a for a, _ in pairs], [h.tokens for h in hypotheses])
            bleu, chrf = quality(texts, [b for _, b in pairs], target)
            ended = sum(h.stop == "end" and len(h.tokens) < session.constraints.limit for h in hypotheses)
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
