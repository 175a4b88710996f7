"""Two decoders on the same sentence against the clock: tokens appear at the times when they were settled."""

from typing import Any

import anywidget
import traitlets

from ddgviz import words
from ddgviz.assets import script, styles
from ddgviz.schema import fail
from ddgviz.text import END, glued
from ddgviz.trace import TraceModel, read
from ddgviz.verdict import judge, milliseconds


class Race(anywidget.AnyWidget):
    """Two runs against one clock.

    Attributes
    ----------
    race : dict
        ``title``, the sentence; ``runners``, each with ``name``, ``seconds`` and ``tokens``, which have ``text`` and ``at``,
        the second at which the pass that settled them ended; and ``verdict``.
    """

    _esm = script("race")
    _css = styles() + styles("race")
    race = traitlets.Dict().tag(sync=True)

    def __repr__(self) -> str:
        return f"Race({self.race.get('verdict', '')!r})"


def race(a: Any, b: Any) -> Race:
    """Let two decodings of a sentence run side by side at their measured pace, or slowed down.

    A pass's tokens appear when the pass has ended, by the ``seconds`` of the trace. For fair times, translate the sentence once
    before, so that everything is loaded, and with ``observe=False``, so that no time goes into probabilities.

    Parameters
    ----------
    a, b : anything that `read` takes
        Finished runs of the same sentence.

    Returns
    -------
    Race
        Shown where it is the last value of a notebook cell; `ddgviz.save` makes a page of it.

    Raises
    ------
    ValueError
        If a time is unknown, a run was stopped, or the sentences differ.
    """
    a, b = read(a), read(b)
    if words.title(a) != words.title(b):
        titles = [words.title(a), words.title(b)]
        raise fail("Both run on the same sentence", titles, "Translate one sentence twice.")
    runners = [_runner(model) for model in (a, b)]
    return Race(race={"title": words.title(a), "runners": runners, "verdict": _verdict(a, b, runners)})


def _runner(model: TraceModel) -> dict[str, Any]:
    """A run as tokens with the times at which they appear."""
    seconds = model.seconds
    if seconds is None or not model.complete:
        wrong = "A race needs runs to their end, with the time of every pass"
        raise fail(wrong, repr(model.header["settings"].get("decoder")), "Record the trace anew with fastdecode.")
    ends, clock = [], 0.0
    for row in model.to_dict()["iterations"]:
        clock += row["seconds"]
        ends.append(clock)
    settled = {model.column(slot): row for slot, (row, _) in model.settled.items()}
    labels = [model.label(token) for token in model.tokens]
    tokens = [
        {"text": ("" if glued(label) or not position else " ") + label.text, "at": ends[settled.get(position, -1)]}
        for position, label in enumerate(labels)
        if label.text != END
    ]
    return {"name": words.decoder(model.header["settings"].get("decoder", "")), "seconds": seconds, "tokens": tokens}


def _verdict(a: TraceModel, b: TraceModel, runners: list[dict[str, Any]]) -> str:
    """The faster decoder, both times, and whether the outputs are the same; a ratio would need more than one run."""
    fast, slow = sorted(runners, key=lambda runner: runner["seconds"])
    name = fast["name"][:1].upper() + fast["name"][1:]
    output = "same output" if judge(a, b).agreement == 1 else "another output"
    times = f"{milliseconds(fast['seconds'])} against {milliseconds(slow['seconds'])}"
    return f"{name} came first: {times} in one run each, {output}."
