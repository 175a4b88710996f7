"""Killed commands: killed at any moment, run again to the end, a command leaves what it leaves undisturbed, and nothing else."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from soak.workshop import COMMANDS, Command, Outcome, command, contents


def cases(
    before: dict[str, Path], ready: Path, place: Path, seconds: dict[str, float], seed: int
) -> Iterator[tuple[str, str, Outcome]]:
    """Kill commands up to three times each and run them again, without end: command, when, and what came of it.

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
        moments = []
        for _ in range(int(random.integers(1, 4))):
            moments.append(float(random.uniform(0, seconds[chosen.name])))
            command(place, chosen, kill_after=moments[-1])
        yield chosen.name, " ".join(f"{moment:.2f}" for moment in moments), _again(chosen, place, ready)


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
