"""Two decodings of a sentence, one above the other, and where their outputs differ."""

import difflib
from collections.abc import Sequence
from itertools import count
from typing import Any

import ipywidgets

from ddgviz.plain import Plain
from ddgviz.text import ELLIPSIS, join
from ddgviz.trace import TraceModel
from ddgviz.widget import Picture, still

QUOTED = 32
Step = tuple[str, int, int, int, int]


class Comparison(ipywidgets.VBox):
    """Two pictures that share the token under the cursor and the pass shown.

    Attributes
    ----------
    a, b : Picture
        The pictures; the same positions of their outputs are joined by `Picture.match`.
    agreement : float or None
        Share of positions matched, of those of the longer output; None while a run is not at its end.
    """

    def __init__(self, a: Any = None, b: Any = None) -> None:
        self.a, self.b = Picture(a), Picture(b)
        self.a.group = self.b.group = f"ddgviz-{self.a.model_id}"
        self.agreement: float | None = None
        self._verdict = Plain("verdict")
        self._names = Plain("name", "A"), Plain("name", "B")
        self._names[1].layout = self.b.layout  # they come and go together
        super().__init__([self._verdict, self._names[0], self.a, self._names[1], self.b])
        self.match()

    @property
    def verdict(self) -> str:
        """The comparison in a sentence."""
        return str(self._verdict.value)

    def match(self) -> None:
        """Compare the outputs as they are now drawn."""
        one, two = self.a.model, self.b.model
        steps = _steps(one, two) if one.complete and two.complete else []
        pairs = [(i, j) for tag, i, end, j, _ in steps if tag == "equal" for i, j in zip(range(i, end), count(j))]
        self.a.match = _positions(dict(pairs), len(one.tokens)) if steps else []
        self.b.match = _positions({j: i for i, j in pairs}, len(two.tokens)) if steps else []
        self.agreement = len(pairs) / max(len(one.tokens), len(two.tokens)) if steps else None
        self._verdict.value = _verdict(one, two, steps, len(pairs))

    def reset(self, two: bool) -> None:
        """Get ready for new runs: of two decoders, the second out of sight until it begins, or of one, drawn alone."""
        self.a.match = self.b.match = []
        self.agreement, self._verdict.value = None, ""
        for name in self._names:
            name.layout.display = None if two else "none"
        self.b.layout.visibility = "hidden"

    def __repr__(self) -> str:
        return f"Comparison({self.a!r}, {self.b!r}, agreement={self.agreement})"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any] | None:
        data = with_pictures(super()._repr_mimebundle_(**kwargs), self)
        return data and data | {"text/plain": repr(self)}


def with_pictures(data: dict[str, Any] | None, comparison: Comparison) -> dict[str, Any] | None:
    """A widget's representations, and for where no widget can run the decodings that it shows as pictures."""
    models = [picture.model for picture in (comparison.a, comparison.b)]
    drawn = [still(model)["text/html"] for model in models if model.rows and model.columns]
    return data | {"text/html": "<br>".join(drawn)} if data and drawn else data


def _steps(one: TraceModel, two: TraceModel) -> Sequence[Step]:
    """How the one output becomes the other; tokens of different models are compared by what is written."""
    models = [trace.header["settings"].get("model") for trace in (one, two)]
    same = models[0] == models[1] and bool(models[0])
    outputs = [[token if same else trace.label(token) for token in trace.tokens] for trace in (one, two)]
    return difflib.SequenceMatcher[object](None, outputs[0], outputs[1], autojunk=False).get_opcodes()


def _source(trace: TraceModel) -> object:
    return trace.header["source"].get("text")


def _positions(pairs: dict[int, int], length: int) -> list[int]:
    return [pairs.get(position, -1) for position in range(length)]


def _verdict(one: TraceModel, two: TraceModel, steps: Sequence[Step], matched: int) -> str:
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


def compare(a: Any, b: Any) -> Comparison:
    """Draw two decodings of a sentence one above the other.

    Parameters
    ----------
    a, b : TraceModel, dict, JSON text, path, or object with ``to_dict()``

    Returns
    -------
    Comparison
        Shown where it is the last value of a notebook cell.
    """
    return Comparison(a, b)
