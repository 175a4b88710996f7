"""The fastest way to decode a model, from the model and text alone; one file because one run makes, measures and saves it."""

import hashlib
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.batching import check_counts
from fastdecode_lib.checkpoints.hub import bundled
from fastdecode_lib.checkpoints.transformer import FAMILIES
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.finding import choice_file, find_head, speedups_folder
from fastdecode_lib.drafts.finding import default_path as head_path
from fastdecode_lib.drafts.head import FORMAT as HEAD_FORMAT
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.loading import TranslationModel, check_loaded, load
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import stopwatch
from fastdecode_lib.measuring.speedups import enough, fastest, seconds_each, undecided
from fastdecode_lib.store import read_note, write_table
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.tokenizers import InTransformers, check_texts
from fastdecode_lib.training.draft_tables import default_path, fitting, make_table
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

Say = Callable[[str], None]
"""Takes a note on what was made."""
LEAST = 50
"""Fewest sentences: a fifth of them is for measuring, the others are for the draft table."""
MEASURED, HELD_OUT = 200, 1_000
"""Sentences for measuring, and held-out ones in all, at most; on those that are not measured, outputs alone are compared."""
HELD_OUT_BELOW = 51
"""First byte of the hashes of held-out sentences: a fifth of all."""
SPLIT = "own hash"
"""How they are chosen, noted in tables and heads that have not seen them."""
TABLE, HEAD, MEASURING, COMPARING = 0.25, 0.4, 0.3, 0.05
"""Shares of the minutes for table, head, measurements and further outputs."""
LEAST_MEASURED, ROUNDS = 20, 140
"""Sentences for measuring, at least, and about how often all of them are decoded."""
HEAD_SENTENCES, HEAD_UPDATES = 6_000, 300
"""Sentences that a draft head is trained on at most, and its fewest updates: with fewer it drafts no better than a table."""


@dataclass(frozen=True)
class Speedup:
    """Result of `speedup`.

    Attributes
    ----------
    table : DataFrame
        As `measuring.speedups.fastest` gives it.
    lossless : dict
        ``decoder, projection, precision`` of the fastest combination whose outputs are greedy decoding's in float32.
    near : dict or None
        Those of a faster one whose outputs nearly all are, with 95% confidence; None if there is none.
    provenance : dict
        How it was measured, and notes on the table and head that were made.
    in_transformers : InTransformers or None
        How the direction is passed to transformers; None where `generate` does not run the model.
    file : Path or None
        Where the lossless choice is kept, which `translate` and `hf.window` use from then on; None if its times are too noisy.
    """

    table: "pd.DataFrame" = field(repr=False)
    lossless: dict[str, str]
    near: dict[str, str] | None
    provenance: dict[str, Any] = field(repr=False)
    in_transformers: InTransformers | None = field(repr=False)
    file: Path | None = None

    def __str__(self) -> str:
        paragraphs = [self._described("Without any loss", self.lossless)]
        if self.near is None:
            paragraphs.append(f"With next to no loss: {self._with_more_loss()}")
        else:
            paragraphs.append(self._described("With next to no loss", self.near))
        noisy = self.table["note"].str.contains("noisy").any()
        if self.file is None and noisy:
            paragraphs.append(
                "This machine is too noisy now, and the choice was not stored: `translate` and `hf.window` decode as before. Run "
                "it again when the machine is idle, or with more --minutes."
            )
        elif noisy:
            paragraphs.append("Some times are noisy: when the machine is idle, another choice may prove faster.")
        if self.file is not None:
            paragraphs.append(
                "Without another decoder or projection, `translate` and `hf.window` use the choice without loss from now on. "
                f"Delete {self.file} to go back."
            )
        return "\n\n".join(paragraphs)

    def _with_more_loss(self) -> str:
        """What is faster than the lossless combination, but not sure to keep enough outputs."""
        near = self.provenance["near"]
        lossless = self._row(self.lossless)
        faster = self.table[(self.table["unchanged_low"] < near) & (self.table["speedup"] > lossless.speedup)]
        if faster.empty:
            return "nothing is faster than that."
        row = faster.iloc[0]
        briefly = "" if row.speedup_low == row.speedup_low else ", timed briefly,"
        return (
            f"nothing faster is sure to keep a share of {near} of the outputs (--near). {row['name']}{briefly} is "
            f"{row.speedup:.1f} times as fast as greedy decoding, with {_unchanged(row)}.{self._too_few(row)}"
        )

    def _too_few(self, row: Any) -> str:
        """How many outputs would show that a combination keeps enough of them, if they may."""
        number = enough(round(row.unchanged * row.sentences), row.sentences, self.provenance["near"], HELD_OUT)
        if number is None:
            return ""
        remedy = (
            f": give {5 * number} sentences in all"
            if number > self.provenance["held_out"]
            else ", which takes more --minutes"
        )
        return f" These are too few to tell: it takes about {number} held-out sentences{remedy}."

    def _row(self, combination: dict[str, str]) -> Any:
        return self.table.set_index(["decoder", "projection", "precision"], drop=False).loc[tuple(combination.values())]

    def _described(self, heading: str, combination: dict[str, str]) -> str:
        row = self._row(combination)
        interval = f" ({row.speedup_low:.2f} to {row.speedup_high:.2f})" if row.speedup_low == row.speedup_low else ""
        return (
            f"{heading}: {row['name']}, {row.speedup:.2f} times greedy decoding{interval}, {_unchanged(row)}.\n"
            + "\n".join(self.lines(combination))
        )

    def lines(self, choice: dict[str, str]) -> list[str]:
        """Ways to use a combination: on the command line, from Python, and inside `generate` if possible."""
        record, precision = self.provenance, choice["precision"]
        direction = "".join(
            f" --{name} {record[key]}" for name, key in (("from", "source"), ("to", "target")) if record[key]
        )
        rounded = "" if precision == "float32" else precision
        command = (
            f"fastdecode translate --model {shlex.quote(record['model'])}{direction}"
            + f" --precision {rounded}" * bool(rounded)
        )
        command += (
            f" --decoder {choice['decoder']} --projection {choice['projection']} --batch {record['batch']} --file FILE"
        )
        languages = "".join(f", {key}={record[key]!r}" for key in ("source", "target") if record[key])
        loading = f"model = fastdecode_lib.load({record['model']!r}" + f", precision={rounded!r}" * bool(rounded) + ")"
        call = (
            f"fastdecode_lib.translate(model, sentences{languages}, decoder={choice['decoder']!r}, "
            f"projection={choice['projection']!r}, batch={record['batch']})"
        )
        lines = [command, "", "import fastdecode_lib", loading, call]
        if choice == self.lossless and self.in_transformers is not None:
            lines += ["", *self._lines_of_generate(self.in_transformers)]
        return [f"  {line}".rstrip() for line in lines]

    def _lines_of_generate(self, direction: InTransformers) -> list[str]:
        """The lossless combination inside `generate`, with the direction as transformers expects it."""
        batch, name = self.provenance["batch"], self.provenance["model"]
        place = repr(str(bundled().get(name, name)))
        language = f", src_lang={direction.source!r}" if direction.source else ""
        texts = "sentences[0]" if batch == 1 else f"sentences[:{batch}]"
        if direction.front:
            texts = (
                f"{direction.front!r} + {texts}" if batch == 1 else f"[{direction.front!r} + text for text in {texts}]"
            )
        padding = "" if batch == 1 else ", padding=True"
        first = f", forced_bos_token_id=tokenizer.convert_tokens_to_ids({direction.first!r})" if direction.first else ""
        longest = f", max_new_tokens={direction.longest}" if direction.longest else ""
        return [
            "import fastdecode_lib.hf",
            f"from transformers import AutoModelForSeq2SeqLM, {direction.kind}",
            f"module = AutoModelForSeq2SeqLM.from_pretrained({place})",
            f"tokenizer = {direction.kind}.from_pretrained({place}{language})",
            f"inputs = tokenizer({texts}, return_tensors='pt'{padding})",
            f"module.generate(**inputs, num_beams=1{first}{longest}, custom_generate=fastdecode_lib.hf.window())",
        ]


def _unchanged(row: Any) -> str:
    """How many outputs of a combination are unchanged; of one that may change some, also the share that surely is."""
    surely = "" if row.lossless and row.precision == "float32" else f", at least {int(100 * row.unchanged_low)}%"
    return f"{round(row.unchanged * row.sentences)} of {row.sentences} outputs unchanged{surely}"


def speedup(
    model: str | TranslationModel,
    sentences: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    minutes: float = 5.0,
    batch: int = 1,
    threads: int = 1,
    near: float = 0.95,
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> Speedup:
    """Find the fastest way to decode text like these sentences, with the same output and with almost the same.

    A draft table is counted on the model's own translations of the sentences. If the minutes allow it and sentences are decoded
    singly, a draft head is trained. Then combinations of decoder, projection and precision are timed on held-out sentences.
    Table, head and choice are kept in the user's cache and used again by later calls; `translate` and `hf.window` use the
    lossless choice by default. A choice whose times are noisy is not kept.

    Parameters
    ----------
    model : str or TranslationModel
        A loaded model, or a name or folder for `load`.
    sentences : sequence of str
        Unlabelled text like that to be translated, some thousand sentences if possible.
    minutes : float
        Approximate time limit. Half an hour is enough for a head.
    batch, threads : int
        Sentences decoded together, 1 for single ones, and batches that run at a time.
    near : float
        Share of outputs that must be unchanged, with 95% confidence, for the almost lossless choice.

    Raises
    ------
    ValueError
        If there are too few sentences, or the model cannot be decoded greedily in that direction.
    """
    if not isinstance(model, str):
        check_loaded(model)
    check_counts(batch=batch, threads=threads)
    if not 0 < near <= 1:
        raise ValueError(f"near is a share above 0, 1 at most: got {near}. Leave it out for 0.95.")
    if not 0 < minutes < float("inf"):
        raise ValueError(f"minutes are a number above 0: got {minutes}. Half an hour is enough for a head.")
    models = _models(model if isinstance(model, str) else str(model.checkpoint.folder), model)
    plain = Session.of(next(iter(models.values())), source, target, "greedy", **limits)
    fitted, measured, others = _split(plain, sentences)
    notes: list[str] = []

    def announce(note: str) -> None:
        if progress:
            print(f"fastdecode: {note}", file=sys.stderr)

    def say(note: str) -> None:
        notes.append(note)
        announce(note)

    def make_drafts(session: Session) -> None:
        limit = TABLE * 60 * minutes / seconds_each(session, measured[:64], 64, threads)
        _make_table(session, fitted, measured, limit, say, progress)
        if batch == 1:
            _make_head(session, fitted, minutes, say, seed, progress)

    spent, _ = stopwatch(make_drafts, [plain])
    each = seconds_each(plain, measured[: max(16, batch)], batch, threads)
    sample, more = _samples(measured, others, 60 * minutes / each)
    shared = {"batch": batch, "threads": threads, "near": near, "seed": seed, "progress": progress, **limits}
    shared |= {"more": more, "seconds": 60 * minutes - spent - 2 * each * len(more), "say": announce}
    table, chosen = fastest(models, sample, source=plain.source, target=plain.target, **shared)
    combinations = {
        row["name"]: {key: row[key] for key in ("decoder", "projection", "precision")}
        for row in table.to_dict("records")
    }
    by_precision = {p: [combinations[str(chosen[p])][key] for key in ("decoder", "projection")] for p in models}
    record = provenance(plain.model, threads=threads, seed=seed) | {
        "source": plain.source, "target": plain.target, "batch": batch, "near": near, "sentences": len(sample),
        "held_out": len(measured) + len(others), "family": plain.model.checkpoint.family, "notes": notes,
        "lossless": by_precision,
    }  # fmt: skip
    noisy, file = undecided(table, chosen), None
    if next(iter(models)) not in noisy:
        file = choice_file(plain.model.checkpoint.fingerprint, (plain.source, plain.target), batch)
        kept = {precision: choice for precision, choice in by_precision.items() if precision not in noisy}
        write_table(file, table.to_dict("records"), record | {"lossless": kept})
    lossless, nearest = combinations[str(chosen[next(iter(models))])], combinations.get(str(chosen["near"]))
    direction = direction_in_generate(plain.model, plain.source, plain.target)
    return Speedup(table, lossless, nearest, record, direction, file)


def direction_in_generate(model: TranslationModel, source: str | None, target: str | None) -> InTransformers | None:
    """How a direction is passed to transformers for a model that `hf.window` runs; None for others."""
    if model.checkpoint.family not in FAMILIES:
        return None
    tokenizer: Any = model.tokenizer
    rules, longest = model.checkpoint.rules, model.network.max_target
    asked = rules.get("max_new_tokens") or (rules.get("max_length") or 0) - 1
    return replace(tokenizer.in_transformers(source, target), longest=longest if asked > longest else None)


def _models(name: str, model: str | TranslationModel) -> dict[str, TranslationModel]:
    """The model in the precisions to try: float32, and int8 if the compiled engine runs it."""
    float32 = load(name, device="cpu")
    if isinstance(model, TranslationModel):
        float32 = replace(float32, name=model.name)
    if float32.engine != "compiled":
        return {"float32": float32}
    return {"float32": float32, "int8": replace(load(name, precision="int8"), name=float32.name)}


def _split(session: Session, sentences: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """The sentences that drafts are fitted on, the held-out ones for measuring, and the other held-out ones; no text is in two."""
    if isinstance(sentences, str):
        raise ValueError(f"speedup needs many sentences: got one text, {sentences[:40]!r}. Give a list of them.")
    check_texts(sentences)
    texts = list(dict.fromkeys(fitting(session, sentences)))
    # each by its own hash, so that no run, on whatever text, holds out what another was fitted on
    hashes = {text: hashlib.sha256(text.encode()).digest() for text in texts}
    held_out = sorted((text for text in texts if hashes[text][0] < HELD_OUT_BELOW), key=hashes.__getitem__)
    if len(texts) < LEAST or len(held_out) < LEAST // 10:
        raise ValueError(
            f"speedup needs text like that to be translated: got {len(texts)} different sentences with content that fit the "
            f"model. Give at least {LEAST}, better some thousand."
        )
    measured = set(held_out[:MEASURED])
    fitted = [text for text in texts if hashes[text][0] >= HELD_OUT_BELOW]
    return fitted, [text for text in texts if text in measured], held_out[MEASURED:HELD_OUT]


def _samples(measured: Sequence[str], others: Sequence[str], decoded: float) -> tuple[list[str], list[str]]:
    """The sentences to time, and others whose outputs alone are compared, if so many can be decoded in the time there is."""
    timed = spread_over(measured, max(LEAST_MEASURED, int(MEASURING * decoded / ROUNDS)))
    more = [text for text in (*measured, *others) if text not in timed]
    return timed, spread_over(more, int(COMPARING * decoded / 2))  # by two combinations


def _make_table(
    session: Session, fitted: Sequence[str], held_out: Sequence[str], limit: float, say: Say, progress: bool
) -> None:
    """Count a draft table of as many sentences as there is time for; save it if it drafts better than the present one.

    One that was made elsewhere may have been counted on the held-out sentences: then the table of more sentences is taken.
    """
    number = 2 ** max(8, int(np.log2(max(limit, 1))))  # a power, so that a rerun finds its translations
    texts = spread_over(fitted, number)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    fingerprint = session.model.checkpoint.fingerprint
    present = session.model.files(session.source, session.target, session.constraints.end, lambda name: None).table()
    if present is not None and present.about.get("text") == digest:
        say("the draft table of this text is at hand")
        return
    min_count = 3 if len(texts) >= 1_000 else 2
    folder = speedups_folder(fingerprint) / "translations"
    new_table = make_table(session, texts, least=min_count, folder=folder, progress=progress)
    new_table = replace(new_table, about=new_table.about | {"text": digest, "held_out_by": SPLIT})
    if present is not None and present.about.get("held_out_by") != SPLIT:
        seen, ours = int(present.about.get("sentences", 0)), int(new_table.about["sentences"])
        if seen >= ours:
            say(
                f"the draft table at hand is kept: it was counted on {seen} sentences, a new one on {ours} of yours. If yours are "
                "among them, it looks better here than on other text"
            )
            return
        present = None

    def passes(table: Any) -> int:
        windowed = replace(session, decoder=Window(4, Draft("ngram+lexicon", table, resolved=True)))
        return int(count(windowed, held_out)["passes"].sum())

    ours, theirs = passes(new_table), passes(present) if present is not None else None
    if theirs is not None and theirs <= ours:
        say(
            f"the draft table at hand is kept: {theirs} passes with it on held-out sentences, {ours} with one counted on "
            f"{len(texts)} of yours"
        )
        return
    new_table.save(default_path(session))
    say(f"a draft table of {len(texts)} sentences: {default_path(session)}")


def _make_head(session: Session, fitted: Sequence[str], minutes: float, say: Say, seed: int, progress: bool) -> None:
    """Train a draft head if there is none and the minutes are enough for one."""
    from fastdecode_lib.training.draft_heads import RECIPE, make_head

    model = session.model
    fingerprint = model.checkpoint.fingerprint
    if model.engine != "compiled":
        return
    if (place := find_head(model.checkpoint.folder, fingerprint)) is not None:
        if read_note(place, HEAD_FORMAT).get("about", {}).get("held_out_by") != SPLIT:
            say(
                "a draft head is at hand. If your sentences are among those that it learned from, it looks better here than on "
                "other text"
            )
        return
    texts = spread_over(fitted, HEAD_SENTENCES)
    if len(texts) < 20 * RECIPE.held_out:
        say(f"no draft head: it needs {20 * RECIPE.held_out} sentences to learn from, {len(texts)} are left")
        return
    folder = speedups_folder(fingerprint) / "head"

    def trained(part: Sequence[str], updates: int, place: Path) -> Any:
        recipe = replace(RECIPE, updates=updates)
        return make_head([session], [part], recipe, folder=place, seed=seed, progress=progress)

    seconds = float(trained(texts[: 20 * RECIPE.held_out], 2, folder / "trial").about["seconds"]) / 2
    updates = int(HEAD * 60 * minutes / seconds) // HEAD_UPDATES * HEAD_UPDATES  # in steps, so that a rerun goes on
    if updates < HEAD_UPDATES:
        needed = HEAD_UPDATES * seconds / HEAD / 60
        say(f"no draft head: training one takes about --minutes {np.ceil(needed):.0f}")
        return
    updates = min(updates, RECIPE.updates)
    head = trained(texts, updates, folder)
    head.about["held_out_by"] = SPLIT
    head.save(head_path(fingerprint))
    say(f"a draft head of {updates} updates: {head_path(fingerprint)}")
