"""Beam search against Hugging Face on the bundled model in float64: own sentences in all six directions."""

import csv
from pathlib import Path

import pytest

import fastdecode_lib
from fastdecode_lib.checks import beam_equals_huggingface

SENTENCES = Path(__file__).parents[1] / "sentences" / "sentences.tsv"


@pytest.fixture(scope="module")
def model():
    return fastdecode_lib.load("tatoeba-small", device="cpu", dtype="float64")


@pytest.mark.parametrize(
    ("source", "target"), [("en", x) for x in ("de", "fr", "es")] + [(x, "en") for x in ("de", "fr", "es")]
)
def test_beam_equals_huggingface(model, source, target):
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sentences = [row[source] for row in rows[:100]]
    assert len(sentences) == 100
    assert beam_equals_huggingface(model, sentences, source, target) == []
