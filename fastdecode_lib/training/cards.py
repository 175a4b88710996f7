"""Model cards of the bundled models: what they are, how they were trained, what they reach."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fastdecode_lib.measuring.quality import signatures
from fastdecode_lib.training.presets import GroupPreset, LanguagePreset, Preset, Recipe, RecurrentPreset

Rows = Sequence[dict[str, Any]]
TATOEBA = "sentence pairs from [tatoeba.org](https://tatoeba.org) by way of manythings.org/anki, CC BY 2.0 FR; single pairs, and "
NARROW = "Matrices are stored as int8 with a scale for each row and computed in float32."


def _card(
    preset: Recipe,
    languages: Sequence[str],
    introduction: Sequence[str],
    training: Sequence[str],
    scores: Sequence[str],
    task: str = "translation",
    library: str = "",
) -> str:
    """A card: introduction, a list about the training, and a table of scores with its heading and notes."""
    front = ["license: apache-2.0", f"language: [{', '.join(languages)}]", f"pipeline_tag: {task}"]
    front += [f"library_name: {library}"] if library else []
    paragraphs = [
        "\n".join(["---", *front, "---"]),
        f"# {preset.name}",
        *introduction,
        "## Training",
        "\n".join(f"- {line}" for line in training),
        *scores,
    ]
    return "\n\n".join(paragraphs) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown whose first column is text."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _quality(rows: Rows) -> list[str]:
    """The scores of single and joined sentences, and how they were computed."""
    cells = ([row["sentences"], str(row["count"]), f"{row['bleu']:.1f}", f"{row['chrf']:.1f}"] for row in rows)
    return [_table(["sentences", "count", "BLEU", "chrF"], cells), *_signatures()]


def _signatures() -> list[str]:
    return [f"{ {'bleu': 'BLEU', 'chrf': 'chrF'}[name] }: `{signature}`" for name, signature in signatures().items()]


def _checkpoint(preset: Recipe, entry: dict[str, Any], unit: str, score: str, planned: bool = True) -> str:
    """The checkpoint's run and update, and the score that chose it."""
    of = f" of {entry['planned']:,}" if planned else ""
    average = "the running average of the weights" if entry["averaged"] else "the last weights"
    return (
        f"Command: `{entry['command']}`. This checkpoint: update {entry['update']:,}{of} (batches of "
        f"at most {preset.tokens_per_update:,} padded {unit}), {average}, chosen by {score}."
    )


def marian_card(preset: Preset, rows: Rows, entry: dict[str, Any]) -> str:
    """Card of a Marian-shaped model of several directions."""
    by_direction = {(row["name"], row["sentences"]): row for row in rows}
    cells = (
        [f"{a}-{b}"]
        + [f"{by_direction[f'{a}-{b}', kind][name]:.1f}" for kind in ("single", "joined") for name in ("bleu", "chrf")]
        for a, b in preset.directions
    )
    return _card(
        preset,
        sorted({code for pair in preset.directions for code in pair}),
        [
            f"A small Marian-shaped transformer ({preset.encoder_layers} encoder and {preset.decoder_layers} decoder layers, "
            f"d={preset.width}, joint SentencePiece vocabulary of {preset.vocabulary:,}) that translates between English and "
            "German, French and Spanish. It exists to show and test decoding methods, not to compete on quality: it knows "
            "short everyday sentences, and two to four of them joined.",
            "The target language is named by a tag in front of the source: `>>deu<< The train is late.` Weights are stored in "
            "float16 and computed in float32.",
        ],
        [
            f"Data: {TATOEBA}{preset.joined_share:g} times as many joined two to four at a time. Dev and test sentences are "
            "held out by a hash of the English side over all languages.",
            _checkpoint(preset, entry, "target tokens", f"mean dev chrF ({entry['dev_chrf']:.1f})", planned=False),
            f"bfloat16 autocast; {_recipe(preset)}.",
        ],
        [
            "## Scores on the test split (greedy, float32)",
            _table(["direction", "single: BLEU", "chrF", "joined: BLEU", "chrF"], cells),
            "Draft tables (`draft-tables/`) are n-gram counts and a lexicon of the model's own translations of joined training "
            "sources; the sliding window guesses from them. They hold for these weights only: "
            "`fastdecode draft-table --data DIR --sentences 16000 --out FOLDER` makes them (English to German with 32000). The "
            "draft head (`draft-head.safetensors`, int8) is a small network that guesses the tokens behind the one just verified, "
            "trained on the model's own translations with the model frozen: `fastdecode draft-head --data DIR --sentences 8000 "
            "--updates 450 --begin-with HEAD --out FOLDER/draft-head.safetensors`, where HEAD is what 900 of "
            "2,400 planned updates of the same command made, begun with the head before in the project's history.",
            *_signatures(),
        ],
        library="transformers",
    )


def recurrent_card(preset: RecurrentPreset, rows: Rows, entry: dict[str, Any]) -> str:
    """Card of a word-based recurrent model of Devlin (2017)."""
    shape, ((source, target),) = preset.shape, preset.directions
    cell = shape.cell.upper()
    above = {"none": "nothing above", "tanh": "a tanh layer on top", "recurrent": f"a {cell} on top"}[shape.top]
    return _card(
        preset,
        (source, target),
        [
            f"A word-based attentional recurrent model, {source} to {target}, of a shape in table 2 of Devlin (2017) "
            f"at a quarter of its widths: {shape.source_layers} {cell} layers of the source, {shape.bidirectional_layers} of "
            f"them bidirectional, {shape.source_width} a direction; an attentional {cell} of {shape.width}, "
            f"{shape.extra_layers} further recurrent and {shape.fc_layers} fully-connected layers, {above}; "
            f"{shape.vocabulary:,} words a side. It exists to measure decoding methods, not to compete on quality.",
            f"{NARROW} `lexicon.safetensors` holds the {preset.translations} best translations of each source word by IBM model 1.",
        ],
        [
            f"Data: {TATOEBA}{preset.joined_share:g} times as many joined two to four at a time.",
            _checkpoint(preset, entry, "target tokens", f"dev chrF ({entry['dev_chrf']:.1f})"),
            "float32 (on a GPU TF32 in most recurrent layers, bfloat16 in the output's products); "
            f"{_recipe(preset)}; weights clipped to [-1, 1], relus to [0, 10].",
        ],
        ["## Scores on the test split (greedy, float32, unknown words replaced)", *_quality(rows)],
    )


def group_card(preset: GroupPreset, rows: Rows, entry: dict[str, Any]) -> str:
    """Card of a system of Imamura and Sumita (2020)."""
    number = {1: "one token", 2: "two tokens", 3: "three tokens", 4: "four tokens"}[preset.tokens_per_step]
    direction = {
        "left_to_right": "from left to right",
        "right_to_left": "from right to left",
        "both_ends": "from both ends of the sentence towards its middle",
    }[preset.order]
    does = f"puts out {number} a step, {direction}"
    if preset.masked:
        does = "fills in a whole target at once, again and again (Mask-Predict)"
    ((source, target),) = preset.directions
    return _card(
        preset,
        (source, target),
        [
            f"A small transformer, {source} to {target}, that {does}, trained like those of Imamura and Sumita (2020): "
            f"Marian's shape, {preset.encoder_layers} encoder and {preset.decoder_layers} decoder layers, d={preset.width}, "
            f"{preset.feed_forward} in the feed-forward blocks, a joint SentencePiece vocabulary of {preset.vocabulary:,}, "
            "learned positions of the decoder. It exists to show and measure decoding methods, not to compete on quality.",
            f"{NARROW} Transformers does not load it; `fastdecode_lib.load({preset.name!r})` does.",
        ],
        [
            f"Data: {TATOEBA}{preset.joined_share:g} times as many joined two to eight at a time.",
            _checkpoint(preset, entry, "target tokens", f"dev chrF ({entry['dev_chrf']:.1f})"),
            f"float32 (bfloat16 where the hardware has it); {_recipe(preset)}.",
            *([f"Targets: the translations by {preset.teacher}, not the references."] if preset.teacher else []),
        ],
        ["## Scores on the test split (the plainest decoder, float32)", *_quality(rows)],
    )


def language_card(preset: LanguagePreset, rows: Rows, entry: dict[str, Any]) -> str:
    """Card of a word-based language model of Chen et al. (2019)."""
    shape, perplexity = preset.shape, math.exp(-entry["dev_log_probability"])
    cells = (
        [row["name"], f"{row['count']:,}", f"{row['words']:,}", f"{row['unknown']:.1%}", f"{row['perplexity']:.1f}"]
        for row in rows
    )
    return _card(
        preset,
        ("en",),
        [
            f"A word-based language model: {shape.layers} LSTM layers of {shape.width}, {shape.vocabulary:,} words"
            f"{', lower-cased' if preset.lower else ''}, an output matrix of its own with a bias. It has the geometry of a "
            "language model in table 1 of Chen et al. (2019), and exists to measure vocabulary projections, not to write.",
            NARROW,
        ],
        [
            "Data: sentences of 97 English novels published from 1832 to 1928 (public domain), each read from its beginning.",
            _checkpoint(preset, entry, "words", f"dev perplexity ({perplexity:.1f})"),
            f"float32; {_recipe(preset)}.",
        ],
        [
            "## Perplexity, ends of sentences included",
            _table(["split", "sentences", "words", "unknown", "perplexity"], cells),
        ],
        task="text-generation",
    )


def _recipe(preset: Recipe) -> str:
    """The optimiser, its rates and what is smoothed or dropped."""
    if preset.optimiser == "adamw":
        return (
            f"AdamW, peak rate {preset.peak_rate:g} after {preset.warm_up:,} updates, then inverse square root; label smoothing "
            f"{preset.label_smoothing:g}, dropout {preset.dropout:g}"
        )
    decay = f"constant for {preset.constant:.0%} of the run, then linear to zero"
    return (
        f"Muon on the matrices of layers, peak rate {preset.matrix_rate:g}, AdamW on the rest, {preset.peak_rate:g}, after "
        f"{preset.warm_up:,} updates, {decay}; label smoothing {preset.label_smoothing:g}, dropout {preset.dropout:g}"
    )
