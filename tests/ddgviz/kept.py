"""Traces of real runs, kept in `traces/`; `python tests/ddgviz/kept.py` makes them again."""

import json
from pathlib import Path
from typing import Any

import simulate

FOLDER = Path(__file__).parent / "traces"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))

GARDEN = "The children are playing in the garden behind the old house."
HAPPY = "How happy I am to see you again!"
BREAD = "My grandmother taught me how to bake bread."


def trace(name: str) -> dict[str, Any]:
    """A kept trace.

    `both_ends` closes its sentence in a pass of its own, `both_ends_even` beside the last token; `both_ends_beam` keeps four
    hypotheses, `masks` is Mask-Predict's, and `clustered` a window's over active sets.
    """
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def either(name: str) -> dict[str, Any]:
    """A kept trace, or a simulated one."""
    found: dict[str, Any] = trace(name) if name in NAMES else getattr(simulate, name)()
    return found


def runs() -> dict[str, Any]:
    """The runs of the kept traces, made again; Mask-Predict's comes from the committed result, as its model is not bundled."""
    from fastdecode_lib import load, translate
    from fastdecode_lib.papers.outcomes import committed

    both = {"model": load("bidirectional", device="cpu"), "source": "en", "target": "de"}
    small = {"model": load("tatoeba-small", device="cpu"), "source": "en", "target": "de"}
    return {
        "both_ends": translate(text=HAPPY, decoder="double_token", **both).trace,
        "both_ends_even": translate(text=GARDEN, decoder="double_token", **both).trace,
        "both_ends_beam": translate(text=GARDEN, decoder="double_token:size=4", **both).trace,
        "masks": committed("double_token_decoding.mask_predict").attrs["traces"]["mask_predict"],
        "clustered": translate(
            text=BREAD, decoder="window:width=5", projection="clustered", verify=True, **small
        ).trace,
    }


if __name__ == "__main__":
    import ddgviz

    for name, run in runs().items():
        ddgviz.save(run, FOLDER / f"{name}.json")
