"""Two decodings of a sentence, one above the other, and where their outputs differ."""

from typing import Any

import ipywidgets

from ddgviz.address import representation
from ddgviz.plain import Plain
from ddgviz.schema import check_boxes
from ddgviz.verdict import judge
from ddgviz.widget import Picture, still


class Comparison(ipywidgets.VBox):
    """Two pictures that share the token under the cursor and the pass shown.

    Attributes
    ----------
    a, b : Picture
        The pictures; the same positions of their outputs are joined by `Picture.match`.
    agreement : float or None
        Number of matched positions over the length of the longer output; None until both runs have ended.
    """

    def __init__(self, a: Any = None, b: Any = None) -> None:
        self.a, self.b = Picture(a), Picture(b)
        self.agreement: float | None = None
        self._verdict = Plain("verdict")
        self._names = Plain("name", "A"), Plain("name", "B")
        self._names[1].layout = self.b.layout  # shown and hidden together
        super().__init__([self._verdict, self._names[0], self.a, self._names[1], self.b])
        self._join(two=True)
        self.match()

    @property
    def verdict(self) -> str:
        """The comparison in a sentence."""
        return str(self._verdict.value)

    def match(self, *, timed: bool = True) -> None:
        """Compare the outputs that are drawn now, and their times if `timed`."""
        verdict = judge(self.a.model, self.b.model, timed=timed)
        self.a.match, self.b.match = verdict.matches
        self.agreement, self._verdict.value = verdict.agreement, verdict.text

    def reset(self, two: bool) -> None:
        """Prepare for new runs: of two decoders, the second empty and hidden until it begins, or of one alone."""
        self.a.match = self.b.match = []
        self.agreement, self._verdict.value = None, ""
        for name in self._names:
            name.layout.display = None if two else "none"
        self.b.layout.visibility = "hidden"
        self.b.clear()
        self._join(two)

    def close(self) -> None:
        """Remove both pictures too."""
        self.a.close()
        self.b.close()
        super().close()

    def _join(self, two: bool) -> None:
        """Let two pictures share a player and a legend, in less height, so that both are in view; draw one as usual."""
        self.a.group = self.b.group = f"ddgviz-{self.a.model_id}" if two else ""
        for picture, name in ((self.a, "ddg-upper"), (self.b, "ddg-lower")):
            picture.add_class(name) if two else picture.remove_class(name)

    def __repr__(self) -> str:
        return f"Comparison({self.a!r}, {self.b!r}, agreement={self.agreement})"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any] | None:
        data = with_pictures(super()._repr_mimebundle_(**kwargs), self)
        return data and data | {"text/plain": repr(self)}


def with_pictures(data: dict[str, Any] | None, comparison: Comparison) -> dict[str, Any] | None:
    """A widget's representations, with its decodings as still pictures for pages without widgets."""
    models = [picture.model for picture in (comparison.a, comparison.b) if picture.model.rows and picture.model.columns]
    if not data or not models:
        return data
    drawn = "<br>".join(still(model)["text/html"] for model in models)
    return data | {"text/html": drawn} | representation(comparison if len(models) > 1 else models[0])


def compare(a: Any, b: Any) -> Comparison:
    """Draw two decodings of a sentence one above the other.

    Parameters
    ----------
    a, b : TraceModel, dict, JSON text, path, or object with ``to_dict()``

    Returns
    -------
    Comparison
        Shown where it is the last value of a notebook cell.

    Raises
    ------
    ValueError
        If a trace is damaged, or in a marimo notebook.
    """
    check_boxes("A comparison")
    return Comparison(a, b)
