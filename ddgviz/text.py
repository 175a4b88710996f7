"""Text of tokens as drawn: hidden characters made visible, width estimated, long text elided."""

import re
from dataclasses import dataclass

WORD_START = "▁"
END = "‹end›"
ELLIPSIS = "…"

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_NO_WIDTH = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u200c\u200d\ufe00-\ufe0f]")
_WIDE = re.compile(
    "[\u1100-\u115e\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\U0001f300-\U0001faff"
    "\U00020000-\U0003fffd]"
)
_EM = (
    (" ijlI.,:;'|!()[]‹›’‘·", 0.3),
    ('ftr-/\\"“”{}*', 0.4),
    ("mwMW@%—", 0.92),
    ("⟨⟩", 0.4),
)
_WIDTHS = {character: em for characters, em in _EM for character in characters}


@dataclass(frozen=True, slots=True)
class Label:
    """A token as it is drawn: its visible text, and whether it continues the word to its left."""

    text: str
    continues: bool

    @property
    def ticked(self) -> bool:
        """Whether a tick says that it continues a word: a hyphen, an apostrophe or a bracket at its front says so itself."""
        return self.continues and self.text[:1].isalnum()


def visible(text: str, keep: str = "") -> str:
    """Replace control, bidirectional and zero-width characters by escapes such as ``⟨U+202E⟩``, but for those in `keep`.

    Joiners stay between two characters of emoji or of scripts beyond the European alphabets.
    """

    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        stays = character in keep or (character in _JOINERS and _joins(text, found.start()))
        return character if stays else f"⟨U+{ord(character):04X}⟩"

    return _HIDDEN.sub(escaped, text)


def _joins(text: str, place: int) -> bool:
    beside = text[place - 1 : place] + text[place + 1 : place + 2]
    return len(beside) == 2 and all(ord(character) >= 0x0590 and not _HIDDEN.match(character) for character in beside)


def label(piece: str, is_end: bool = False) -> Label:
    """Label of a piece of the vocabulary.

    Parameters
    ----------
    piece : str
        Text of the piece; a leading ``▁`` marks the start of a word.
    is_end : bool
        Whether it ends a sentence.
    """
    if is_end:
        return Label(END, False)
    if piece.startswith(WORD_START) and len(piece) > 1:
        return Label(visible(piece[1:]), False)
    if not piece:
        return Label("‹empty›", False)
    continues = not piece.startswith(WORD_START) and any(c.isalnum() for c in piece)
    return Label(visible(piece), continues)


def join(labels: list[Label]) -> str:
    """The labels as running text, with a space before each word but not before its continuations and punctuation."""
    text = ""
    for item in labels:
        text += item.text if glued(item) or not text else " " + item.text
    return text


def glued(item: Label) -> bool:
    """Whether no space stands before it."""
    return item.continues or not any(c.isalnum() for c in item.text)


def width(text: str, size: float, bold: bool = False) -> float:
    """Estimated width in pixels of `text` set in Noto Sans at `size`."""
    total = sum(_em(character) for character in text)
    return total * size * (1.06 if bold else 1.0)


def _em(character: str) -> float:
    code = ord(character)
    if code < 0x0300:
        return _WIDTHS.get(character, 0.66 if character.isupper() else 0.58)
    if character in _WIDTHS:
        return _WIDTHS[character]
    if _NO_WIDTH.match(character):
        return 0.0
    return 1.05 if _WIDE.match(character) else 0.64


def fit(text: str, room: float, size: float, bold: bool = False) -> str:
    """`text`, cut with an ellipsis where it is wider than `room`."""
    if width(text, size, bold) <= room:
        return text
    cut = ""
    for character in text:
        if width(cut + character + ELLIPSIS, size, bold) > room:
            break
        cut += character
    return cut.rstrip() + ELLIPSIS
