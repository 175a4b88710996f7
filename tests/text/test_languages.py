"""Directions are completed and checked; languages go by codes and by names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fastdecode_lib import load
from fastdecode_lib.text.languages import NAMES, UnknownLanguage, check_direction, from_english, known_as, short_code

KNOWN = (("en", "de"), ("de", "en"), ("en", "fr"))


def test_a_direction_is_completed() -> None:
    assert check_direction(KNOWN, "en", "de") == ("en", "de")
    assert check_direction(KNOWN, None, None) == ("en", "de")
    assert check_direction(KNOWN, "de", None) == ("de", "en")
    assert check_direction(KNOWN, None, "fr") == ("en", "fr")
    assert check_direction(KNOWN, "eng_Latn", "de_DE") == ("en", "de")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("eng", "xx", r"Unknown target language: got 'xx'\. This model knows de, en, fr\."),
        ("e", None, r"Unknown source language: got 'e'\. Did you mean 'en'\? This model knows en, de\."),
        ("fr", "en", r"Unknown source language: got 'fr'\..* This model knows en, de\."),
        ("de", "fra", r"This model does not translate de-fr\. It knows en-de, de-en, en-fr\."),
        ("en", "dd", r"Unknown target language: got 'dd'\. Did you mean 'de'\?"),
        ("en", "", r"Unknown target language: got ''\."),
    ],
)
def test_unknown_directions(source: str, target: str | None, message: str) -> None:
    with pytest.raises(UnknownLanguage, match=message):
        check_direction(KNOWN, source, target)


def test_what_is_left_open_is_refused_where_no_direction_comes_first() -> None:
    assert check_direction(KNOWN, "de", None, ordered=False) == ("de", "en")
    assert check_direction(KNOWN, None, "fr", ordered=False) == ("en", "fr")
    with pytest.raises(UnknownLanguage, match=r"several target languages: got none\. Pass one of de, fr\."):
        check_direction(KNOWN, "en", None, ordered=False)
    with pytest.raises(UnknownLanguage, match=r"several source languages: got none\. Pass one of en, fr\."):
        check_direction([("en", "de"), ("fr", "de")], None, "de", ordered=False)


def test_a_message_does_not_list_thousands_of_pairs() -> None:
    codes = [a + b for a in "abcdefghijklmnop" for b in "abcdefghijklmnop"]
    with pytest.raises(UnknownLanguage, match="and 65160 more") as caught:
        check_direction([(a, b) for a in codes for b in codes if a != b], "aa", "aa")
    assert len(str(caught.value)) < 2000


def test_short_codes() -> None:
    assert [short_code(c) for c in ("de", "de_DE", "deu_Latn", "deu", "ast", "zho_Hans")] == [
        "de", "de", "de", "de", "ast", "zh",
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["en", "EN", "En", "eng", "ENG", "english", "English", "en-US", "en_GB", "eng_Latn"])
def test_a_language_goes_by_any_of_its_codes_and_by_its_name(asked: str) -> None:
    assert known_as(asked, "source", ["af", "en", "ns"]) == "en"
    assert check_direction([("any", "de")], asked, "German") == ("en", "de")


def test_a_script_that_the_model_tells_apart_is_asked_for() -> None:
    scripts = ["zho_Hans", "zho_Hant", "en"]
    assert known_as("ZHO-hant", "target", scripts) == "zho_Hant"
    with pytest.raises(UnknownLanguage, match="languages of this model are 'Chinese'. Say which: zho_Hans, zho_Hant"):
        known_as("Chinese", "target", scripts)


def test_every_name_is_a_way_to_its_code() -> None:
    pairs = [pair.split() for pair in NAMES.split(",")]
    assert len(pairs) > 40 and all(short_code(name) == short_code(name.upper()) == code for code, name in pairs)


def test_what_a_reader_of_english_expects_comes_first() -> None:
    codes = ("af", "am", "de", "en", "fr")
    directions = [(a, b) for a in codes for b in codes if a != b]
    assert from_english(directions)[:4] == [("en", "de"), ("en", "fr"), ("en", "af"), ("en", "am")]
    assert from_english([("de", "fr"), ("de", "en")])[0] == ("de", "en")
    assert sorted(from_english(directions)) == sorted(directions)


@pytest.mark.parametrize(
    ("kind", "asked", "fine"),
    [
        ("nllb", "deu_Latn", True),
        ("nllb", "de", True),
        ("nllb", "deu_Cyrl", False),
        ("nllb", "zho_Hant", True),
        ("m2m", "zh", True),
        ("m2m", "zh_Hant", True),
        ("m2m", "zh-TW", True),
        ("mbart50", "zh_CN", True),
        ("mbart50", "zh-TW", False),
        ("mbart50", "de-AT", True),
    ],
)
def test_another_script_is_not_taken_for_the_one_asked_for(
    multilingual: Callable[[str], Path], kind: str, asked: str, fine: bool
) -> None:
    model = load(str(multilingual(kind)), device="cpu")
    if fine:
        assert model.direction("en", asked)[1] in model.tokenizer.codes
    else:
        with pytest.raises(UnknownLanguage, match=f"{asked}"):
            model.direction("en", asked)
