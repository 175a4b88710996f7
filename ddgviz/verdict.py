"""Two decodings of a sentence: where their outputs differ, and which of them was faster."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from ddgviz.text import ELLIPSIS, join
from ddgviz.trace import TraceModel, read

QUOTED = 32
Step = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of comparing two decodings.

    Attributes
    ----------
    text : str
        A sentence or two; empty while one of them runs.
    matches : (list of int, list of int)
        Position in the other output of the same token, for each position of one; -1 for none; empty when not compared.
    agreement : float or None
        Share of positions matched, of those of the longer output; None where they are not compared.
    """

    text: str
    matches: tuple[list[int], list[int]]
    agreement: float | None


def judge(one: TraceModel, two: TraceModel) -> Verdict:
    """Compare two decodings, A and B."""
    steps = _steps(one, two) if one.complete and two.complete else []
    if not steps:
        return Verdict(_sentence(one, two, steps, 0), ([], []), None)
    pairs = [(i, j) for tag, i, end, j, _ in steps if tag == "equal" for i, j in zip(range(i, end), count(j))]
    longest = max(len(one.tokens), len(two.tokens))
    matches = _positions(dict(pairs), len(one.tokens)), _positions({j: i for i, j in pairs}, len(two.tokens))
    times = pace(one.seconds, two.seconds) if _source(one) == _source(two) else ""
    text = " ".join(filter(None, (_sentence(one, two, steps, len(pairs)), times)))
    return Verdict(text, matches, len(pairs) / longest)


def pair_of(given: Any) -> tuple[TraceModel, TraceModel] | None:
    """The two traces of a comparison, an object with ``a`` and ``b``; None for anything else."""
    if not (hasattr(given, "a") and hasattr(given, "b")):
        return None
    one, two = (read(getattr(side, "model", side)) for side in (given.a, given.b))
    return one, two


def pace(one: float | None, two: float | None) -> str:
    """Times of A and B as a sentence; empty if a time is unknown.

    A ratio is left to `fastdecode compare`: of two decodings in a row the first also warms the caches.
    """
    return f"In one run each A took {milliseconds(one)} and B {milliseconds(two)}." if one and two else ""


def milliseconds(seconds: float) -> str:
    """A time with two digits that count: ``7.3 ms``, ``46 ms``, ``2,310 ms``."""
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:,.0f} ms"


def _steps(one: TraceModel, two: TraceModel) -> Sequence[Step]:
    """Edits from one output to the other; tokens of different models are compared by their text."""
    models = [trace.header["settings"].get("model") for trace in (one, two)]
    same = models[0] == models[1] and bool(models[0])
    outputs = [[token if same else trace.label(token) for token in trace.tokens] for trace in (one, two)]
    return difflib.SequenceMatcher[object](None, outputs[0], outputs[1], autojunk=False).get_opcodes()


def _source(trace: TraceModel) -> object:
    return trace.header["source"].get("text")


def _positions(pairs: dict[int, int], length: int) -> list[int]:
    return [pairs.get(position, -1) for position in range(length)]


def _sentence(one: TraceModel, two: TraceModel, steps: Sequence[Step], matched: int) -> str:
    if not (one.finished and two.finished):
        return ""
    if not steps:
        stopped = "B was" if one.complete else "A was" if two.complete else "Both were"
        return f"{stopped} stopped, so the outputs are not compared."
    aside = "" if _source(one) == _source(two) else " They translate different sentences."
    different = next((step for step in steps if step[0] != "equal"), None)
    if different is None:
        return f"Same output: A in {_passes(one)}, B in {two.rows}.{aside}"
    longest = max(len(one.tokens), len(two.tokens))
    _, i, i_end, j, j_end = different
    said = f"{_quoted(one, i, i_end)} in A, {_quoted(two, j, j_end)} in B"
    return f"Outputs differ at {longest - matched} of {longest} positions, first at position {i + 1}: {said}.{aside}"


def _passes(trace: TraceModel) -> str:
    return f"{trace.rows} pass" if trace.rows == 1 else f"{trace.rows} passes"


def _quoted(trace: TraceModel, start: int, stop: int) -> str:
    text = join([trace.label(token) for token in trace.tokens[start:stop]])
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + ELLIPSIS}”" if text else "nothing"
