"""Commands killed, interrupted, without room, not allowed to write or run twice at once, and then run again to the end.

Each leaves what it leaves undisturbed. Nothing else stays, and what an interrupted or a refused command says is one sentence.
"""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from soak import disks
from soak.workshop import COMMANDS, Command, Outcome, begin, command, contents, finish, prepare


def cases(
    before: dict[str, Path], ready: Path, place: Path, seconds: dict[str, float], seed: int
) -> Iterator[tuple[str, str, Outcome]]:
    """Disturb commands up to three times each and run them again, without end: command, how, and what came of it.

    Parameters
    ----------
    before : dict of command name to Path
        The folder as it was before the command.
    ready : Path
        As all commands leave it.
    seconds : dict of command name to float
        That each takes.
    """
    random = np.random.default_rng((seed, 2))
    while True:
        chosen = COMMANDS[int(random.integers(len(COMMANDS)))]
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(before[chosen.name], place)
        told, fault = [], None
        for _ in range(int(random.integers(1, 4))):
            how, outcome = _disturbed(chosen, place, seconds[chosen.name], random)
            told.append(how)
            if outcome.kind not in DISTURBED:
                fault = outcome
        yield chosen.name, ", ".join(told), fault or _again(chosen, place, ready)


DISTURBED = {"done", "killed", "interrupted", "refused"}
"""How a command may end that is disturbed."""


def _disturbed(chosen: Command, place: Path, seconds: float, random: np.random.Generator) -> tuple[str, Outcome]:
    """Run a command and disturb it: how, and what came of it."""
    ways = ["killed", "interrupted", "full", "twice"] + (["small disk", "read-only"] if disks.available() else [])
    how, moment = str(random.choice(ways)), float(random.uniform(0, seconds))
    if how in ("full", "small disk", "read-only"):
        size = int(2 ** random.uniform(6, 20))
        return how if how == "read-only" else f"{how} at {size:,}", without_room(chosen, place, how, size)
    first = begin(place, chosen.work)
    if how == "twice":
        outcomes = [finish(begin(place, chosen.work)), finish(first)]
        return how, max(outcomes, key=lambda outcome: outcome.kind not in DISTURBED)
    return f"{how} at {moment:.2f}", finish(first, moment, signal.SIGKILL if how == "killed" else signal.SIGINT)


def without_room(chosen: Command, place: Path, how: str, size: int = 0) -> Outcome:
    """Run a command that can write files of so many bytes, on a disk of so many, or none at all."""
    if how == "full":
        child = begin(place, chosen.work, largest_file=size)
    elif how == "read-only":
        child = begin(place, partial(_watched, chosen, place, how), disk=disks.make_read_only)
    else:
        child = begin(place, partial(_watched, chosen, place, how), disk=partial(disks.make_small, room=size))
    outcome = finish(child)
    # What the system says comes from wherever the file was written.
    told = any(reason in outcome.message for reason in ("File too large", "No space left", "Read-only file system"))
    return Outcome("refused") if told and outcome.kind in ("foreign", "refused") else outcome


def all_without_room(folder: str) -> None:
    """Run every command in a folder that cannot be written and on a disk without a byte left; print what came of each as JSON."""
    prepare(Path(folder) / "ready")
    _, before, _ = made(Path(folder))
    outcomes = {
        f"{each.name}, {how}": without_room(each, before[each.name], how)
        for each in COMMANDS
        for how in ("read-only", "small disk")
    }
    print(json.dumps({name: f"{o.kind} {o.message}".strip() if o.message else o.kind for name, o in outcomes.items()}))


def _watched(chosen: Command, place: Path, how: str) -> int:
    """Run a command on a disk that only this process sees, and look at what it left there: the exit status."""
    before = contents(place, (".",))
    status = chosen.work()
    if how == "read-only":  # what a killed command left there cannot be deleted either
        if contents(place, (".",)) != before:
            raise AssertionError("a file that cannot be written has changed")
        return status
    if left := [path.name for path in place.rglob(".*") if path.suffix in (".part", ".old")]:
        raise AssertionError(f"left behind: {', '.join(left)}")
    if how == "small disk" and status:
        disks.grow(place)
        if chosen.work():
            raise AssertionError("it fails with room, too, after it failed without")
    return status


def _again(chosen: Command, place: Path, ready: Path) -> Outcome:
    outcome = command(place, chosen)
    if outcome.kind != "done":
        return outcome
    found, expected = contents(place, chosen.writes), contents(ready, chosen.writes)
    different = sorted(name for name in found.keys() | expected.keys() if found.get(name, "") != expected.get(name, ""))
    left = [path.name for path in place.rglob(".*") if path.suffix in (".part", ".old")]
    if different or left:
        return Outcome("different" if different else "left", ", ".join(different or left))
    return outcome


def made(folder: Path) -> tuple[Path, dict[str, Path], dict[str, float]]:
    """Run every command once: the folder that comes of it, as it was before each, and the seconds each took."""
    ready, before, seconds = folder / "ready", {}, {}
    for each in COMMANDS:
        before[each.name] = folder / f"before-{each.name}"
        shutil.copytree(ready, before[each.name])
        began = time.monotonic()
        outcome = command(ready, each)
        seconds[each.name] = time.monotonic() - began
        if outcome.kind != "done":
            raise RuntimeError(f"{each.name} cannot be done at all: {outcome}")
    return ready, before, seconds
