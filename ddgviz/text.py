"""Text of tokens as drawn: hidden characters made visible, width estimated, long text elided."""

import re
from dataclasses import dataclass

WORD_START = "▁"
END = "‹end›"
ELLIPSIS = "…"

_HIDDEN = (
    (0x0000, 0x001F),
    (0x007F, 0x009F),
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xD800, 0xDFFF),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
_ANY_HIDDEN = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in _HIDDEN) + "]")
_JOINERS = (0x200C, 0x200D)
_NO_WIDTH = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x064B, 0x065F), (0x200C, 0x200D), (0xFE00, 0xFE0F))
_WIDE = (
    (0x1100, 0x115E),
    (0x2E80, 0xA4CF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE4F),
    (0xFF00, 0xFF60),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x3FFFD),
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


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= code <= high for low, high in ranges)


def visible(text: str, keep: str = "") -> str:
    """Replace control, bidirectional and zero-width characters by escapes such as ``⟨U+202E⟩``, but for those in `keep`.

    Joiners stay between two characters of emoji or of scripts beyond the European alphabets.
    """
    if not _ANY_HIDDEN.search(text):
        return text
    codes = [ord(character) for character in text]
    characters = []
    for index, code in enumerate(codes):
        if not _within(code, _HIDDEN) or text[index] in keep or _joins(codes, index):
            characters.append(text[index])
        else:
            characters.append(f"⟨U+{code:04X}⟩")
    return "".join(characters)


def _joins(codes: list[int], index: int) -> bool:
    if codes[index] not in _JOINERS or index == 0 or index + 1 == len(codes):
        return False
    return all(code >= 0x0590 and not _within(code, _HIDDEN) for code in (codes[index - 1], codes[index + 1]))


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
    if _within(code, _NO_WIDTH):
        return 0.0
    return 1.05 if _within(code, _WIDE) else 0.64


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
