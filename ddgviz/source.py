"""The source sentence as words, and the word that each of the source's pieces is a part of."""

from functools import lru_cache
from typing import Any

from ddgviz.text import WORD_START, label, visible
from ddgviz.trace import TraceModel

SLACK = 3
"""Characters that may lie between two pieces of a text, beside those of pieces that were not found."""
WIDE = 0x2E80
"""Scripts from here on, such as Chinese, are written without spaces: there a piece stands for a word."""

_SAID = {"source": "copied from", "prompt": "copied from"}


def said(origin: str) -> str:
    """The words between a draft of this origin and its source word: ``by the lexicon, a translation of``."""
    return _SAID.get(origin, "by the lexicon, a translation of" if "lexicon" in origin.split("+") else "from")


def source_words(text: str, pieces: Any) -> tuple[list[str], list[int]]:
    """A text in parts, and the part that each piece belongs to.

    Parameters
    ----------
    text : str
        The source on one line, as it is drawn.
    pieces : list of str
        The source as the model saw it.

    Returns
    -------
    list of str
        Words and what stands between them; joined, they are `text`.
    list of int
        For each piece the index of its word, -1 for a piece that the text does not show, such as a tag or the end.
    """
    return _words(text, tuple(piece if isinstance(piece, str) else "" for piece in pieces or ()))


@lru_cache(maxsize=16)
def _words(text: str, pieces: tuple[str, ...]) -> tuple[list[str], list[int]]:
    spans = _spans(text, pieces)
    words: list[str] = []
    of, covered = [], 0
    for index, span in enumerate(spans):
        if span is None:
            of.append(-1)
            continue
        start, end = span
        joins = start == covered and words and _joins(text, start) and any(word >= 0 for word in of[index - 1 : index])
        if joins:
            words[-1] += text[start:end]
        else:
            words += [text[covered:start], text[start:end]] if start > covered else [text[start:end]]
        of.append(len(words) - 1)
        covered = end
    return ([*words, text[covered:]] if covered < len(text) else words), of


def _joins(text: str, place: int) -> bool:
    """Whether the characters around a place are of one word."""
    return all(character.isalnum() and ord(character) < WIDE for character in text[place - 1 : place + 1])


def _spans(text: str, pieces: tuple[str, ...]) -> list[tuple[int, int] | None]:
    """Start and end of each piece in the text, in order; None for a piece that is not found near the one before."""
    low = text.lower() if len(text.lower()) == len(text) else text
    spans: list[tuple[int, int] | None] = []
    covered, missed = 0, 0
    for piece in pieces:
        shown = visible(piece.replace(WORD_START, " ").strip())
        place = -1
        for form, searched in ((shown, text), (shown.lower(), low)):
            if place < 0 and form:
                place = searched.find(form, covered, covered + missed + SLACK + len(form))
        if place < 0:
            missed += len(label(piece).text) + 1
            spans.append(None)
            continue
        covered, missed = place + len(shown), 0
        spans.append((place, covered))
    return spans


def spoken_source(model: TraceModel, title: str) -> dict[str, Any]:
    """For a view: ``parts`` and ``of`` from `source_words`, and ``said``, the result of `said` for each origin."""
    parts, of = source_words(title, model.header["source"].get("pieces"))
    return {"parts": parts, "of": of, "said": {origin: said(origin) for origin in sorted(model.origins) if origin}}


def origin_of(model: TraceModel, title: str, origin: str, place: int) -> str:
    """Where a draft came from: ``by the lexicon, a translation of “sister”``; empty if the text does not show it."""
    parts, of = source_words(title, model.header["source"].get("pieces"))
    return f"{said(origin)} “{parts[of[place]]}”" if place >= 0 and of[place] >= 0 else ""
