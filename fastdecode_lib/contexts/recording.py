"""Recording contexts: one pass over all inputs; one file because stopping, resuming and parallel work all depend on the shards.

Sentences are divided into shards, and each shard is made by itself, always in the same way. The files are therefore the same
for any number of workers, and a recording that was stopped goes on after its finished shards.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.contexts.feeding import Feeder, Item, hidden_and_labels, width_of
from fastdecode_lib.contexts.shards import (
    FORMAT,
    NOTE,
    VERSION,
    Contexts,
    ContextsError,
    Shard,
    key_of,
    read_note,
    shard_folder,
    write_shard,
)
from fastdecode_lib.store import recover, write_text
from fastdecode_lib.workers import check_workers, over


def record(
    feeder: Feeder,
    inputs: Mapping[str, Sequence[Any]],
    out: str | Path,
    *,
    top: int = 5,
    most: int | None = None,
    float16: bool = False,
    seed: int | None = 0,
    sentences_per_shard: int = 250,
    workers: int | None = None,
    scheduler: str | None = None,
    verify: bool = False,
    wait: bool = False,
    progress: bool = False,
) -> Contexts:
    """Record the contexts of a model on text, or go on with a recording that was stopped.

    Parameters
    ----------
    feeder : Feeder
        `Translations(model)`, `References(model)`, or `IdRows` for a language model.
    inputs : mapping of direction to inputs
        ``{"en-de": texts}``; pairs of texts for `References`, rows of ids under any name for `IdRows`.
    out : path
        A new folder, or that of a recording with the same settings.
    top : int
        K, labels of a row.
    most : int, optional
        Largest number of rows. Shards alternate between directions and are used in order until this number is reached.
    float16 : bool
        Store hidden vectors in float16; labels are those of the vectors before rounding.
    seed : int or None
        Sentences are taken in a random order, so that `most` rows are a sample; None leaves them in the given order.
    sentences_per_shard : int
        Sentences that are processed together, kept in memory, and lost if the recording is interrupted.
    workers, scheduler
        Number of processes, or the address of a dask scheduler whose workers share the file system. The files are the same as
        without workers; on the torch engine, if it uses one thread.
    verify : bool
        Compare existing shards with their checksums, not only their sizes; damaged ones are made again.
    wait : bool
        Wait for another process that is recording in the folder, and then reuse its work, instead of raising an error.
    progress : bool
        Show a progress bar.

    Raises
    ------
    ContextsError
        If the folder holds something else, a hidden vector is not finite, or no sentence gives a context.
    ValueError
        If an option or an input is wrong.
    """
    from tqdm.auto import tqdm

    check_workers(workers, scheduler)
    _check_arguments(feeder, inputs, top, most, sentences_per_shard)
    items = {direction: feeder.items(direction, sentences) for direction, sentences in inputs.items()}
    settings = _settings(feeder, items, top, most, float16, seed, sentences_per_shard)
    folder, key = Path(out).resolve(), key_of(settings)
    parts = _parts(items, sentences_per_shard, seed)
    job = Job(feeder, folder, key, tuple(items), top, settings["hidden"])
    with _locked_folder(folder, feeder.name, settings, wait):
        finished = {
            part.number: shard for part in parts if (shard := _finished_shard(folder, part.number, key, verify))
        }
        missing = (part for part in parts if part.number not in finished)
        shards: list[Shard] = []
        rows: list[int] = []
        with (
            closing(over(job.make, missing, workers=workers, scheduler=scheduler)) as new_shards,
            tqdm(desc="recording", unit=" contexts", unit_scale=True, disable=not progress) as bar,
        ):
            for part in parts:
                if part.number not in finished:
                    next(new_shards)
                shards.append(finished.get(part.number) or _new_shard(folder, part.number, key))
                rows.append(shards[-1].rows if most is None else min(shards[-1].rows, most - sum(rows)))
                if progress:
                    bar.initial += rows[-1] if part.number in finished else 0
                    _update_bar(bar, shards, rows, len(parts), most)
                if sum(rows) == most:
                    break
        _finish(folder, feeder.name, settings, shards, rows)
    return Contexts.open(folder)


@dataclass(frozen=True)
class Part:
    """The sentences of one shard: its number, their direction (an index), their numbers in the input, and themselves."""

    number: int
    direction: int
    sentences: np.ndarray
    items: list[Item]


@dataclass(frozen=True)
class Job:
    """What all shards of a recording have in common."""

    feeder: Feeder
    folder: Path
    key: str
    directions: tuple[str, ...]
    top: int
    dtype: str

    def make(self, part: Part) -> None:
        """Record the contexts of the sentences of a part and write them as a shard."""
        feeder, direction = self.feeder, self.directions[part.direction]
        fed = feeder.fed(direction, part.items)
        vectors_and_labels = hidden_and_labels(feeder.network, feeder.exact, fed, self.top)
        lengths = [len(ids) for ids in fed.outputs]
        steps = [np.arange(length, dtype=np.int32) for length in lengths]
        places = np.empty((sum(lengths), 3), dtype=np.int32)
        places[:, 0] = part.direction
        places[:, 1] = np.repeat(part.sentences, lengths)
        places[:, 2] = np.concatenate(steps)
        with np.errstate(over="ignore"):
            hidden = np.concatenate([vectors for vectors, _ in vectors_and_labels]).astype(self.dtype)
        if not np.isfinite(hidden).all():
            _, sentence, step = places[int(np.argmin(np.isfinite(hidden).all(1)))]
            raise ContextsError(
                f"A hidden vector is not finite as {self.dtype}: got one of {direction}, sentence {sentence + 1}, step {step + 1}. "
                "Compute and record in float32."
            )
        arrays = {
            "hidden": hidden,
            "labels": np.concatenate([labels for _, labels in vectors_and_labels]),
            "gold": np.fromiter(chain.from_iterable(fed.outputs), dtype=np.int32, count=len(places)),
            "where": places,
        }
        write_shard(shard_folder(self.folder, part.number), self.key, arrays, lengths.count(0))


# ------------------------------------------------------------------------------------------------------------- shards


def _parts(items: Mapping[str, list[Item]], size: int, seed: int | None) -> list[Part]:
    """All sentences in parts of one direction each; the directions alternate."""
    shards: list[list[tuple[int, np.ndarray, list[Item]]]] = []
    for direction, group in enumerate(items.values()):
        first_numbers: dict[Any, int] = {}
        sentences = np.array([first_numbers.setdefault(item[0], i) for i, item in enumerate(group)])
        order = np.arange(len(group))
        if seed is not None:
            order = np.random.default_rng((seed, direction)).permutation(len(group))
        cuts = [order[start : start + size] for start in range(0, len(group), size)]
        shards.append([(direction, sentences[cut], [group[i] for i in cut]) for cut in cuts])
    interleaved = [shard for turn in zip_longest(*shards) for shard in turn if shard is not None]
    return [Part(number, *shard) for number, shard in enumerate(interleaved)]


def _finished_shard(folder: Path, number: int, key: str, verify: bool) -> Shard | None:
    """A shard of an earlier run, if it is there and not damaged."""
    try:
        shard = Shard.open(shard_folder(folder, number), key)
        if verify:
            shard.verify()
    except ContextsError:
        return None
    return shard


def _new_shard(folder: Path, number: int, key: str) -> Shard:
    """A shard that has just been made."""
    try:
        return Shard.open(shard_folder(folder, number), key)
    except ContextsError as error:
        raise ContextsError(
            f"A shard was made and is not here: {error} If workers run on other machines, name a folder that all of them "
            "share."
        ) from error


def _update_bar(bar: Any, shards: Sequence[Shard], rows: Sequence[int], parts: int, most: int | None) -> None:
    """Show the rows so far, the estimated total, and their size on disk."""
    bar.total = min(most or np.inf, round(sum(rows) * parts / len(rows)))
    size = bar.format_sizeof(sum(shard.bytes for shard in shards), "B", 1024)
    bar.set_postfix_str(f"{len(shards)} of up to {parts} shards, {size}", refresh=False)
    bar.update(rows[-1])


# ------------------------------------------------------------------------------------------------------------- folder


def _check_arguments(feeder: Any, inputs: Any, top: int, most: int | None, sentences_per_shard: int) -> None:
    """Check the arguments of `record`."""
    if not callable(getattr(feeder, "fed", None)):
        raise ValueError(f"record needs to know what to feed: got {feeder!r}. For a model, give Translations(model).")
    if not isinstance(inputs, Mapping):
        raise ValueError(f"Inputs are given by direction: got a {type(inputs).__name__}. Example: {{'en-de': texts}}.")
    numbers = {"top": top, "most": 1 if most is None else most, "sentences_per_shard": sentences_per_shard}
    for name, value in numbers.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number from 1 on: got {value!r}. Example: {name}=5.")
    vocabulary = feeder.network.outputs[0].vocabulary
    if top > vocabulary:
        raise ValueError(f"top is at most the vocabulary's size, {vocabulary}: got {top}. Lower top.")


def _settings(
    feeder: Feeder,
    items: Mapping[str, list[Item]],
    top: int,
    most: int | None,
    float16: bool,
    seed: int | None,
    sentences_per_shard: int,
) -> dict[str, Any]:
    """Everything that determines the files."""
    digest = hashlib.sha256()
    for group in items.values():
        digest.update(json.dumps(group).encode())
    settings = {
        **feeder.settings,
        "width": width_of(feeder.network),
        "vocabulary": feeder.network.outputs[0].vocabulary,
        "hidden": "float16" if float16 else "float32",
        "top": top,
        "most": most,
        "seed": seed,
        "sentences_per_shard": sentences_per_shard,
        "directions": list(items),
        "sentences": [len(group) for group in items.values()],
        "inputs": digest.hexdigest(),
    }
    return dict(json.loads(json.dumps(settings)))


@contextmanager
def _locked_folder(folder: Path, model: str, settings: dict[str, Any], wait: bool) -> Iterator[None]:
    """Lock the folder of a new recording, or of one with the same settings, for this process, and remove temporary files."""
    folder.mkdir(parents=True, exist_ok=True)
    own_prefixes = ("lock", f".{NOTE}.", "shard-", ".shard-")
    if not (folder / NOTE).exists():
        foreign = [path.name for path in folder.iterdir() if not path.name.startswith((*own_prefixes, NOTE))]
        if foreign:
            raise ContextsError(
                f"A recording needs a folder of its own: got {folder}, which holds {foreign[0]!r} and no {NOTE}. Name a new one."
            )
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise ContextsError(f"Another recording is running in {folder}. Wait for it, or stop it first.") from error
        resumed = (folder / NOTE).exists()
        if resumed:
            _check_settings(folder, settings)
        recover(folder)
        if not resumed:
            _write_note(folder, model, settings, None, 0)
        yield


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Check that a recording was started with the same settings."""
    noted = read_note(folder).get("settings")
    recorded = noted if isinstance(noted, dict) else {}
    for name in sorted(settings.keys() | recorded.keys()):
        got, has = settings.get(name), recorded.get(name)
        if got != has:
            different = "other text than it has" if name == "inputs" else f"{name} {got!r}, it has {has!r}"
            raise ContextsError(
                f"The recording in {folder} was begun with other settings: got {different}. Give the same again, or another "
                "folder."
            )


def _finish(folder: Path, model: str, settings: dict[str, Any], shards: Sequence[Shard], rows: Sequence[int]) -> None:
    """Write which shards make up the table, and remove all others."""
    left_out = sum(shard.left_out for shard in shards)
    if not sum(rows):
        (folder / NOTE).unlink()  # so that other sentences can be recorded here
        raise ContextsError(
            f"There is nothing to record: got {sum(settings['sentences'])} sentences, none with content that fits the model. Give "
            "others."
        )
    for extra in set(folder.glob("shard-*")) - {shard.folder for shard in shards}:
        shutil.rmtree(extra)
    recover(folder)
    _write_note(folder, model, settings, list(rows), left_out)


def _write_note(folder: Path, model: str, settings: dict[str, Any], rows: list[int] | None, left_out: int) -> None:
    note = {
        "format": FORMAT,
        "version": VERSION,
        "model": model,
        "settings": settings,
        "shards": rows,
        "left_out": left_out,
    }
    write_text(folder / NOTE, json.dumps(note, indent=1) + "\n")
