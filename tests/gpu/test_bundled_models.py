"""Bundled models on a CUDA device: what is lossless says what greedy decoding says, in float64; float16 is counted."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import fakes
import pytest

from fastdecode_lib import load
from fastdecode_lib.translation import Session

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
TEXTS = [text for text in fakes.own_sentences()["en"] if len(text.split()) < 20][:24]
LOSSLESS = (
    "jacobi",
    "gauss_seidel:block=3",
    "hybrid:block=3",
    "window:width=5",
    "window:width=5,draft=recycled/pad",
    "window:width=4,draft=ngram+lexicon",
    "window:width=4,draft=ngram+lexicon+head",
    "window:width=4,candidates=2,draft=ngram+lexicon|recycled|pool",
    "auto",
)
PLAIN = ("jacobi", "gauss_seidel:block=3", "hybrid:block=3", "window:width=5,draft=recycled/pad")
DIRECTIONS = {"tatoeba-small": ("en", "de"), "single-l2r": ("en", "de"), "sharp-s4": ("en", "fr")}
CASES = [*(("tatoeba-small", decoder) for decoder in LOSSLESS)]
CASES += [(name, decoder) for name in ("single-l2r", "sharp-s4") for decoder in PLAIN]
BEAMS = [("tatoeba-small", "beam:size=4"), ("single-l2r", "beam:size=10,early_stopping=true")]
BEAMS += [
    ("bidirectional", "double_token:size=1"),
    ("bidirectional", "double_token:size=10"),
    ("sharp-s4", "beam:size=3"),
]


@cache
def model_on(name: str, device: str, dtype: str = "float64") -> Any:
    return load(name, device=device, dtype=dtype, engine="torch")


@cache
def outputs(name: str, device: str, decoder: str, dtype: str = "float64") -> tuple[Any, ...]:
    """Tokens of all sentences, decoded in batches of 8."""
    session = Session.of(model_on(name, device, dtype), *DIRECTIONS.get(name, ("en", "de")), decoder)
    return tuple(hypothesis.tokens for hypothesis in session.decode(TEXTS, batch=8))


@pytest.mark.parametrize("name", DIRECTIONS)
def test_greedy_decoding_says_what_it_says_on_the_cpu(name: str) -> None:
    assert outputs(name, DEVICE, "greedy") == outputs(name, "cpu", "greedy")


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_what_is_lossless_equals_greedy(name: str, decoder: str) -> None:
    assert outputs(name, DEVICE, decoder) == outputs(name, DEVICE, "greedy")


@pytest.mark.parametrize("decoder", PLAIN)
def test_a_sentence_alone_says_what_it_says_in_a_batch(decoder: str) -> None:
    session = Session.of(model_on("tatoeba-small", DEVICE), "en", "de", decoder)
    alone = [session.decode([text])[0].tokens for text in TEXTS[:6]]
    assert alone == list(outputs("tatoeba-small", DEVICE, "greedy")[:6])


@pytest.mark.parametrize(("name", "decoder"), BEAMS)
def test_beams_say_what_they_say_on_the_cpu(name: str, decoder: str) -> None:
    assert outputs(name, DEVICE, decoder) == outputs(name, "cpu", decoder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_agreement_of_short_formats_is_counted(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not asserted: two tokens may be nearer than such a number can tell. ``FASTDECODE_AGREEMENT`` names a file for the counts."""
    found: dict[str, float] = {}
    for name, decoder in [*((n, "greedy") for n in DIRECTIONS), ("tatoeba-small", "jacobi"), *BEAMS]:
        wanted = outputs(name, DEVICE, decoder)
        said = outputs(name, DEVICE, decoder, dtype)
        found[f"{name}, {decoder}, {dtype}"] = sum(a == b for a, b in zip(said, wanted, strict=True)) / len(wanted)
    with capsys.disabled():
        print(json.dumps(found))
    if file := os.environ.get("FASTDECODE_AGREEMENT"):
        path = Path(file)
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        path.write_text(json.dumps(before | found, indent=1), encoding="utf-8")
    assert all(share > 0.5 for share in found.values())
