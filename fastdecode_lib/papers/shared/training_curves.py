"""How the systems of a paper learned: their scores on the dev split during training."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastdecode_lib.papers.outcomes import NoResult, untrained
from fastdecode_lib.papers.run import gap
from fastdecode_lib.training.presets import PRESETS, Recipe


def history_of(preset: str) -> list[dict[str, Any]]:
    """Evaluations during a system's training: of its run here, or the committed ones.

    Raises
    ------
    NoResult
        If there are none.
    """
    best = PRESETS[preset].trained()
    committed: Any = resources.files("fastdecode_lib") / "results" / f"{preset}.history.laptop.json"
    path = best.parent / "history.json" if best else committed
    if not path.is_file():
        raise untrained(preset)
    history: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return history


def training_curves(presets: Mapping[str, Recipe]) -> list[dict[str, Any]]:
    """A row for each evaluation of each preset's training."""
    rows: list[dict[str, Any]] = []
    for preset, recipe in presets.items():
        try:
            history = history_of(preset)
        except NoResult as missing:
            rows.append({"name": preset, "system": preset, "updates": None, **gap(missing)})
            continue
        for entry in history:
            row = {"name": f"{preset}, {entry['update']:,}", "system": preset}
            row |= {"updates": entry["update"], "chrf": entry[recipe.measure], "minutes": entry["seconds"] / 60}
            rows.append(row | {"processor_minutes": entry["processor_seconds"] / 60})
    return rows
