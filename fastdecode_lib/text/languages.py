"""Languages and directions: codes of two and three letters, English names, and the directions of a model."""

import difflib
import re
from collections.abc import Sequence

Direction = tuple[str, str]

# Marian's tags have three letters, users type two.
THREE_LETTERS = {
    "ar": "ara", "bg": "bul", "ca": "cat", "cs": "ces", "da": "dan", "de": "deu", "el": "ell", "en": "eng", "es": "spa",
    "et": "est", "fi": "fin", "fr": "fra", "he": "heb", "hi": "hin", "hr": "hrv", "hu": "hun", "id": "ind", "it": "ita",
    "ja": "jpn", "ko": "kor", "lt": "lit", "lv": "lav", "nl": "nld", "no": "nor", "pl": "pol", "pt": "por", "ro": "ron",
    "ru": "rus", "sk": "slk", "sl": "slv", "sv": "swe", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "zho",
}  # fmt: skip
TWO_LETTERS = {three: two for two, three in THREE_LETTERS.items()}
NAMES = """
ar Arabic, bg Bulgarian, ca Catalan, cs Czech, da Danish, de German, el Greek, en English, es Spanish, et Estonian,
fa Persian, fi Finnish, fr French, ga Irish, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, id Indonesian,
is Icelandic, it Italian, ja Japanese, ko Korean, lt Lithuanian, lv Latvian, mt Maltese, nb Norwegian, nl Dutch,
pl Polish, pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovenian, sr Serbian, sv Swedish, sw Swahili,
th Thai, tr Turkish, uk Ukrainian, ur Urdu, vi Vietnamese, zh Chinese
"""
_CODES = {name.lower(): code for code, name in (pair.split() for pair in NAMES.split(","))}
USUAL_TARGETS = ("de", "fr", "es", "zh")
"""Default targets of English for models with many languages: the first of these that the model has."""


class UnknownLanguage(ValueError):
    """A direction the model does not translate."""


def check_direction(
    directions: Sequence[Direction], source: str | None, target: str | None, *, ordered: bool = True
) -> Direction:
    """Complete and check a direction; a missing language is filled in if only one choice remains.

    Parameters
    ----------
    directions : sequence of (source, target)
    source, target : str, optional
        Codes or English names, in upper or lower case: ``de``, ``DE``, ``deu``, ``de-DE``, ``German``.
    ordered : bool
        Whether the first of several choices is taken; if not, several choices raise an error.

    Raises
    ------
    UnknownLanguage
        If the model does not translate in that direction, or several choices remain.
    """
    for side, language in (("source", source), ("target", target)):
        if not isinstance(language, str | None):
            known = listed(list(dict.fromkeys(pair[side == "target"] for pair in directions)))
            raise UnknownLanguage(f"A {side} language is a string: got {language!r}. Pass one of {known}.")
    directions = [(short_code(source) if source else a, b) if a == "any" else (a, b) for a, b in directions]
    source = known_as(source, "source", list(dict.fromkeys(a for a, _ in directions)))
    target = known_as(target, "target", list(dict.fromkeys(b for _, b in directions)))
    matching = [d for d in directions if source in (None, d[0]) and target in (None, d[1])]
    if not matching:
        known_pairs = [f"{a}-{b}" for a, b in directions]
        raise UnknownLanguage(f"This model does not translate {source}-{target}. It knows {listed(known_pairs)}.")
    if not ordered:
        for side, chosen, languages in (
            ("target", target, list(dict.fromkeys(b for _, b in matching))),
            ("source", source, list(dict.fromkeys(a for a, _ in matching))),
        ):
            if chosen is None and len(languages) > 1:
                raise UnknownLanguage(
                    f"This model has several {side} languages: got none. Pass one of {listed(languages)}."
                )
    return matching[0]


def short_code(language: str) -> str:
    """The code with two letters if there is one: ``de`` for ``DE``, ``de_DE``, ``de-AT``, ``deu_Latn``, ``deu``, ``German``."""
    lower = language.strip().lower()
    head = re.split("[_-]", lower)[0]
    return TWO_LETTERS.get(head, _CODES.get(lower, head))


def known_as(code: str | None, which: str, known: Sequence[str]) -> str | None:
    """The language's code among the `known` ones.

    Raises
    ------
    UnknownLanguage
        If none of them fits, or several scripts of the language do.
    """
    if code is None or code in known:
        return code
    exact = [language for language in known if language.lower() == code.strip().lower().replace("-", "_")]
    if matching := exact or [language for language in known if language == short_code(code)]:
        return matching[0]
    candidates = [language for language in known if short_code(code) == short_code(language)]
    if len(candidates) == 1 and variant(code) is None:
        return candidates[0]
    if candidates:
        raise UnknownLanguage(f"Several {which} languages of this model are {code!r}. Say which: {listed(candidates)}.")
    similar = difflib.get_close_matches(code, known, n=1, cutoff=0.3)
    hint = f" Did you mean {similar[0]!r}?" if similar else ""
    raise UnknownLanguage(f"Unknown {which} language: got {code!r}.{hint} This model knows {listed(known)}.")


def variant(code: str) -> str | None:
    """The script in ``zho_Hans``, or the region in ``zh-TW``; the regions of other languages share a script."""
    head, _, tail = code.strip().replace("-", "_").partition("_")
    return tail.title() if len(tail) == 4 or (tail and short_code(head) == "zh") else None


def from_english(directions: Sequence[Direction]) -> list[Direction]:
    """The directions of a model without an order of its own, those from and to English first."""

    def rank(direction: Direction) -> tuple[bool, bool, int]:
        source, target = direction
        usual = USUAL_TARGETS.index(target) if target in USUAL_TARGETS else len(USUAL_TARGETS)
        return source != "en", target != "en", usual

    return sorted(directions, key=rank)


def listed(names: Sequence[str], most: int = 120) -> str:
    """Names for a message; names beyond the first `most` are only counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
