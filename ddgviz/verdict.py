"""Two decodings of a sentence: where their outputs differ, and their times."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from ddgviz.text import ELLIPSIS, join
from ddgviz.trace import TraceModel, read

QUOTED = 32
CLEAR = 2.0
"""Least ratio of two times that is told: of 132 pairs of runs with equal settings, 1 in 100 differed by more than 1.6."""
Step = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of comparing two decodings.

    Attributes
    ----------
    text : str
        A sentence or two; empty while one of them runs.
    matches : (list of int, list of int)
        For each position of an output, the position of the same token in the other one; -1 for none; empty if not compared.
    agreement : float or None
        Number of matched positions over the length of the longer output; None if not compared.
    """

    text: str
    matches: tuple[list[int], list[int]]
    agreement: float | None


def judge(a: TraceModel, b: TraceModel, *, timed: bool = True) -> Verdict:
    """Compare two decodings, A and B; `timed` adds the times of these runs if they differ clearly."""
    if not (_has_output(a) and _has_output(b)):
        return Verdict(_stopped(a, b), ([], []), None)
    steps = _steps(a, b)
    pairs = [(i, j) for tag, i, end, j, _ in steps if tag == "equal" for i, j in zip(range(i, end), count(j))]
    longest = max(len(a.tokens), len(b.tokens))
    matches = _positions(dict(pairs), len(a.tokens)), _positions({j: i for i, j in pairs}, len(b.tokens))
    timed = timed and _source(a) == _source(b) and a.header["settings"] != b.header["settings"]
    times = pace(a.seconds, b.seconds) if timed else ""
    text = " ".join(filter(None, (_sentence(a, b, steps, len(pairs)), times)))
    return Verdict(text, matches, len(pairs) / longest if longest else 1.0)


def pair_of(trace: Any) -> tuple[TraceModel, TraceModel] | None:
    """The two traces of a comparison, an object with ``a`` and ``b``; None for anything else."""
    if not (hasattr(trace, "a") and hasattr(trace, "b")):
        return None
    a, b = (read(getattr(side, "model", side)) for side in (trace.a, trace.b))
    return a, b


def pace(a: float | None, b: float | None) -> str:
    """Times of A and B as a sentence; empty if a time is unknown, or if they may differ by chance.

    Ratios are for `fastdecode compare`: the first run of all, which compiles and fills caches, took up to 19 times as long.
    """
    if not (a and b and max(a, b) >= CLEAR * min(a, b)):
        return ""
    return f"In this one run A took {milliseconds(a)} and B {milliseconds(b)}; a first run takes longer."


def milliseconds(seconds: float) -> str:
    """A time in milliseconds: ``7.3 ms``, ``46 ms``, ``2,310 ms``."""
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:,.0f} ms"


def _steps(a: TraceModel, b: TraceModel) -> Sequence[Step]:
    """Edits from one output to the other; tokens of different models are compared by their text."""
    models = [trace.header["settings"].get("model") for trace in (a, b)]
    same_model = models[0] == models[1] and bool(models[0])
    outputs = [[token if same_model else trace.label(token) for token in trace.tokens] for trace in (a, b)]
    return difflib.SequenceMatcher[object](None, outputs[0], outputs[1], autojunk=False).get_opcodes()


def _has_output(trace: TraceModel) -> bool:
    """Whether a run came to its end; a source without content needs no pass and no hypothesis."""
    return trace.complete or (trace.finished and not trace.rows)


def _source(trace: TraceModel) -> object:
    return trace.header["source"].get("text")


def _positions(pairs: dict[int, int], length: int) -> list[int]:
    return [pairs.get(position, -1) for position in range(length)]


def _stopped(a: TraceModel, b: TraceModel) -> str:
    """Why outputs are not compared; nothing while a decoding runs."""
    if not (a.finished and b.finished):
        return ""
    stopped = "B was" if _has_output(a) else "A was" if _has_output(b) else "Both were"
    return f"{stopped} stopped, so the outputs are not compared."


def _sentence(a: TraceModel, b: TraceModel, steps: Sequence[Step], matched: int) -> str:
    aside = "" if _source(a) == _source(b) else " They translate different sentences."
    different = next((step for step in steps if step[0] != "equal"), None)
    if different is None:
        return f"Same output: A in {a.rows} {'pass' if a.rows == 1 else 'passes'}, B in {b.rows}.{aside}"
    longest = max(len(a.tokens), len(b.tokens))
    _, i, i_end, j, j_end = different
    difference = f"{_quoted(a, i, i_end)} in A, {_quoted(b, j, j_end)} in B"
    return (
        f"Outputs differ at {longest - matched} of {longest} positions, first at position {i + 1}: {difference}.{aside}"
    )


def _quoted(trace: TraceModel, start: int, stop: int) -> str:
    text = join([trace.label(token) for token in trace.tokens[start:stop]])
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + ELLIPSIS}”" if text else "nothing"
