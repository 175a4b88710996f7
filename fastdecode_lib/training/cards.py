"""Model cards of the bundled models: what they are, how they were trained, what they reach."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastdecode_lib.measuring.quality import signatures
from fastdecode_lib.training.presets import GroupPreset, LanguagePreset, Preset, Recipe, RecurrentPreset


def marian_card(preset: Preset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    """Of a Marian-shaped model of several directions."""
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
        f"(batches of at most {preset.tokens_per_update:,} padded target tokens), {_weights(chosen)}, chosen by mean dev chrF "
        f"({chosen['dev_chrf']:.1f}).",
        f"- bfloat16 autocast; {_recipe(preset)}.",
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
        "`fastdecode draft-table --data DIR --sentences 32000 --out FOLDER` makes them. The draft head (`draft-head.safetensors`, "
        "int8) is a small network that guesses the tokens behind the one just verified, trained on the model's own translations "
        "with the model frozen: `fastdecode draft-head --data DIR --seed 1 --updates 1600 --out FOLDER/draft-head.safetensors`.",
        "",
        *(f"{ {'bleu': 'BLEU', 'chrf': 'chrF'}[name] }: `{signature}`" for name, signature in signatures().items()),
    ]
    return "\n\n".join(["\n".join(lines[:-5]), lines[-4], *lines[-2:]]) + "\n"


def recurrent_card(preset: RecurrentPreset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    """Of a word-based recurrent model of paper 004."""
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
        f"{chosen['planned']:,} (batches of at most {preset.tokens_per_update:,} padded target tokens), {_weights(chosen)}, "
        f"chosen by dev chrF ({chosen['dev_chrf']:.1f}).",
        f"- float32; {_recipe(preset)}; weights clipped to [-1, 1], relus to [0, 10].",
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


def group_card(preset: GroupPreset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    """Of a system of paper 002."""
    ((source, target),) = preset.directions
    number = {1: "one token", 2: "two tokens", 3: "three tokens", 4: "four tokens"}[preset.tokens_per_step]
    way = {
        "left_to_right": "from left to right",
        "right_to_left": "from right to left",
        "both_ends": "from both ends of the sentence towards its middle",
    }[preset.order]
    does = f"puts out {number} a step, {way}"
    if preset.masked:
        does = "fills in a whole target at once, again and again (Mask-Predict)"
    lines = [
        "---",
        "license: apache-2.0",
        f"language: [{source}, {target}]",
        "pipeline_tag: translation",
        "---",
        "",
        f"# {preset.name}",
        "",
        f"A small transformer, {source} to {target}, that {does}, trained as those of paper 002 (Imamura and Sumita, 2020): "
        f"Marian's shape, {preset.encoder_layers} encoder and {preset.decoder_layers} decoder layers, d={preset.width}, "
        f"{preset.feed_forward} in the feed-forward blocks, a joint SentencePiece vocabulary of {preset.vocabulary:,}, learned "
        "positions of the decoder. It exists to show and measure decoding methods, not to compete on quality.",
        "",
        "Matrices are stored as int8 with a scale for each row and computed in float32. Transformers does not load it; "
        f"`fastdecode_lib.load({preset.name!r})` does.",
        "",
        "## Training",
        "",
        "- Data: sentence pairs from [tatoeba.org](https://tatoeba.org) by way of manythings.org/anki, CC BY 2.0 FR; single "
        f"pairs, and {preset.joined_share:g} times as many joined two to eight at a time.",
        f"- Command: `fastdecode train {preset.name}`, seed {seed}. This checkpoint: update {chosen['update']:,} of "
        f"{chosen['planned']:,} (batches of at most {preset.tokens_per_update:,} padded target tokens), {_weights(chosen)}, "
        f"chosen by dev chrF ({chosen['dev_chrf']:.1f}).",
        f"- float32 (bfloat16 where the hardware has it); {_recipe(preset)}.",
        *([f"- Targets: the translations by {preset.teacher}, not the references."] if preset.teacher else []),
        *([f"- Before the first update: {preset.stacked_from}, its layers copied."] if preset.stacked_from else []),
        "",
        "## Scores on the test split (the plainest decoder, float32)",
        "",
        "| sentences | count | BLEU | chrF |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {row['sentences']} | {row['count']} | {row['bleu']:.1f} | {row['chrf']:.1f} |" for row in rows),
        "",
        *(f"{ {'bleu': 'BLEU', 'chrf': 'chrF'}[name] }: `{signature}`\n" for name, signature in signatures().items()),
    ]
    return "\n".join(lines)


def language_card(preset: LanguagePreset, rows: Sequence[dict[str, Any]], chosen: dict[str, Any], seed: int) -> str:
    """Of a word-based language model of paper 001."""
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
        f"- Command: `fastdecode train {preset.name}`, seed {seed}. This checkpoint: update {chosen['update']:,} of "
        f"{chosen['planned']:,} (batches of at most {preset.tokens_per_update:,} padded words), {_weights(chosen)}, "
        f"chosen by dev perplexity ({math.exp(-chosen['dev_log_probability']):.1f}).",
        f"- float32; {_recipe(preset)}.",
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


def _recipe(preset: Recipe) -> str:
    """The optimiser, its rates and what is smoothed or dropped."""
    decay = f"constant for {preset.constant:.0%} of the run, then linear to zero"
    return (
        f"Muon on the matrices of layers, peak rate {preset.matrix_rate:g}, AdamW on the rest, {preset.peak_rate:g}, after "
        f"{preset.warm_up:,} updates, {decay}; label smoothing {preset.label_smoothing:g}, dropout {preset.dropout:g}"
    )


def _weights(chosen: Mapping[str, Any]) -> str:
    return "the running average of the weights" if chosen["averaged"] else "the last weights"
