"""A blind rating of two outputs side by side, in a notebook or on a page of Voilà (Amer et al., 2022, section 3.4)."""

import re
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from ddgviz.schema import fail
from ddgviz.text import visible
from ddgviz.theme import DARK, FONT, LIGHT

_HERE = Path(__file__).parent
_ONE_BY_ONE = r"\u2e80-\ua4cf\uf900-\ufaff\uff00-\uffef\U00020000-\U0003fffd"
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u205e"
_WORD = re.compile(rf"(?:[{_ONE_BY_ONE}]|[^\s{_PUNCTUATION}{_ONE_BY_ONE}]+|.)\s*", re.DOTALL)
"""A word, a mark of punctuation or a character of a script without spaces, and the space after it."""

Segments = list[tuple[str, bool]]
"""A text in segments, each with whether it differs from the other text."""


class Study(Protocol):
    """Interface of a study; ``fastdecode_lib.papers.vocabulary_clusters.ratings.Study`` satisfies it.

    Places count from 0 in a rater's own order.
    """

    def progress(self, rater: str) -> tuple[int, int]:
        """Number of rated pairs, and of all pairs."""
        ...

    def next_place(self, rater: str) -> int | None:
        """The first place that is not rated; None when all are."""
        ...

    def pair_at(self, rater: str, place: int) -> dict[str, Any]:
        """``source``, ``reference`` (or None), ``left``, ``right``, ``scores`` (left and right, or None), ``comment``."""
        ...

    def rate(self, rater: str, place: int, left: float, right: float, comment: str) -> None:
        """Save scores from 0 to 100, in place of earlier ones."""
        ...


def _styles() -> str:
    """Styles, light or dark as JupyterLab, Voilà or else the reader's system is."""
    return f"""
.ddg-rating{{--ddg-font:{FONT};{LIGHT.variables}}}
[data-jp-theme-light="false"] .ddg-rating{{{DARK.variables}}}
@media (prefers-color-scheme:dark){{body:not([data-jp-theme-light]) .ddg-rating{{{DARK.variables}}}}}
{(_HERE / "rating.css").read_text(encoding="utf-8")}"""


class Rating(anywidget.AnyWidget):
    """Pairs of outputs, one after the other, for one rater; the study keeps each rating at once.

    Attributes
    ----------
    page : dict
        Content of the page: texts, earlier scores, progress and, after an error, a ``notice``. It does not contain which
        system wrote which output.
    """

    _esm = (_HERE / "rating.js").read_text(encoding="utf-8")
    _css = _styles()
    page = traitlets.Dict().tag(sync=True)

    def __init__(self, study: Study, rater: str) -> None:
        super().__init__()
        self.study, self.rater = study, rater
        self._open(study.next_place(rater))
        self.on_msg(self._hear)

    def _hear(self, _: Any, content: dict[str, Any], __: Any) -> None:
        """Save the scores of a page, or open another page; errors are shown on the page."""
        place: Any = content.get("place")
        try:
            if content.get("k") == "save":
                self.study.rate(self.rater, place, content["left"], content["right"], content["comment"])
                self._open(place + 1 if place + 1 < self.page["total"] else self.study.next_place(self.rater))
            elif content.get("k") == "open":
                self._open(place)
        except Exception as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            self.page = self.page | {"turn": self.page["turn"] + 1, "notice": visible(f"{kind}{error}")}

    def _open(self, place: int | None) -> None:
        """Show the pair at a place, or that all pairs are rated."""
        rated, total = self.study.progress(self.rater)
        content = {"place": total, "source": ""} if place is None else {"place": place}
        if place is not None:
            pair = self.study.pair_at(self.rater, place)
            texts = {name: visible(pair[name] or "", keep="\n") for name in ("source", "reference", "left", "right")}
            left, right = differences(texts["left"], texts["right"])
            content |= texts | {"left": left, "right": right, "scores": pair["scores"], "comment": pair["comment"]}
        turn = self.page.get("turn", 0) + 1
        self.page = {"turn": turn, "rated": rated, "total": total, "notice": ""} | content

    def __repr__(self) -> str:
        return f"Rating({self.rater!r}, {self.page['rated']} of {self.page['total']} rated)"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle and (bundle[0] | {"text/plain": repr(self)}, bundle[1])


def differences(one: str, two: str) -> tuple[Segments, Segments]:
    """Both texts in segments by words, with their differences marked; spaces count only if nothing else differs."""
    pieces = [_WORD.findall(text) for text in (one, two)]
    words = [[piece.rstrip() for piece in pieces_of_text] for pieces_of_text in pieces]
    a, b = pieces if words[0] == words[1] else words
    left: Segments = []
    right: Segments = []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        left += _segments(pieces[0][i:i_end], tag != "equal")
        right += _segments(pieces[1][j:j_end], tag != "equal")
    return left, right


def _segments(pieces: list[str], differ: bool) -> Segments:
    """The pieces as one segment; a differing one ends before its trailing space."""
    text = "".join(pieces)
    end = len(text.rstrip()) if differ else 0
    return [segment for segment in ((text[:end], True), (text[end:], False)) if segment[0]]


def rate(study: Study, rater: str) -> Rating:
    """Rate a study's pairs, blind, from the first unrated one: sides are drawn for each rater, and no system is named.

    Parameters
    ----------
    study : Study
        Study such as ``fastdecode_lib.papers.vocabulary_clusters.ratings.Study``.
    rater : str
        Who rates; raters see the pairs in orders of their own.

    Returns
    -------
    Rating
        Shown where it is the last value of a notebook cell.

    Raises
    ------
    ValueError
        If `study` lacks these methods.
    """
    if not all(callable(getattr(study, name, None)) for name in ("progress", "next_place", "pair_at", "rate")):
        expected = "A rating asks a study: an object with progress(), next_place(), pair_at() and rate()"
        raise fail(
            expected,
            type(study).__name__,
            "Make one with fastdecode_lib.papers.vocabulary_clusters.ratings.Study.create().",
        )
    return Rating(study, rater)
