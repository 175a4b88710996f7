"""How the systems of a paper learned: their scores on the dev split during training."""

from collections.abc import Mapping
from importlib import resources
from itertools import pairwise
from statistics import median
from typing import Any

from fastdecode_lib.papers.outcomes import NoResult, untrained
from fastdecode_lib.papers.run import gap
from fastdecode_lib.store import read_json
from fastdecode_lib.training.presets import PRESETS, Recipe


def history_of(preset: str) -> list[dict[str, Any]]:
    """Evaluations during a system's training: of its run here, or the committed ones.

    Raises
    ------
    NoResult
        If there are none.
    """
    best = PRESETS[preset].trained()
    history: list[dict[str, Any]] = read_json(best.parent / "history.json", list) if best else committed_history(preset)
    if not history:
        raise untrained(preset)
    return history


def committed_history(preset: str) -> list[dict[str, Any]]:
    """Evaluations during the training of the weights that are shipped; an empty list if none are committed."""
    path: Any = resources.files("fastdecode_lib") / "results" / f"{preset}.history.laptop.json"
    history: list[dict[str, Any]] = read_json(path, list) if path.is_file() else []
    return history


def training_curves(presets: Mapping[str, Recipe]) -> list[dict[str, Any]]:
    """A row for each evaluation of each preset's training.

    ``processor_minutes`` are the updates so far times the run's typical cost of one: the median over the stretches between its
    evaluations, since what else the machine does changes it.
    """
    rows: list[dict[str, Any]] = []
    for preset, recipe in presets.items():
        try:
            history = history_of(preset)
        except NoResult as missing:
            rows.append({"name": preset, "system": preset, "updates": None, **gap(missing)})
            continue
        start = {"update": 0, "processor_seconds": 0.0}
        cost = median(
            (later["processor_seconds"] - earlier["processor_seconds"]) / (later["update"] - earlier["update"])
            for earlier, later in pairwise([start, *history])
            if later["update"] > earlier["update"]
        )
        for entry in history:
            row = {"name": f"{preset}, {entry['update']:,}", "system": preset}
            row |= {"updates": entry["update"], "chrf": entry[recipe.measure], "minutes": entry["seconds"] / 60}
            rows.append(row | {"processor_minutes": entry["update"] * cost / 60})
    return rows
