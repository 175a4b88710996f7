"""The bundled model against transformers: beam search token for token in float64, and a plain script's text."""

import csv
from pathlib import Path

import pytest

import fastdecode_lib
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.laws.decoders import beam_equals_huggingface

SENTENCES = Path(__file__).parents[2] / "fastdecode_lib" / "text" / "sentences.tsv"
DIRECTIONS = [("en", x) for x in ("de", "fr", "es")] + [(x, "en") for x in ("de", "fr", "es")]


@pytest.fixture(scope="module")
def rows():
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def model():
    return fastdecode_lib.load("tatoeba-small", device="cpu", dtype="float64")


@pytest.mark.parametrize(("source", "target"), DIRECTIONS)
def test_beam_equals_huggingface(model, rows, source, target):
    sentences = [row[source] for row in rows[::10]]
    assert len(sentences) > 12
    assert beam_equals_huggingface(model, sentences, source, target) == []


def test_plain_transformers_script_gives_the_same_text(rows):
    """What somebody writes who has the folder and not this library."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = find_checkpoint("tatoeba-small").folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    module = AutoModelForSeq2SeqLM.from_pretrained(folder)
    ours = fastdecode_lib.load("tatoeba-small", device="cpu")
    tags = {"de": ">>deu<<", "fr": ">>fra<<", "es": ">>spa<<"}
    for row in rows[:12]:
        for target, tag in tags.items():
            inputs = tokenizer(f"{tag} {row['en']}", return_tensors="pt")
            (text,) = tokenizer.batch_decode(module.generate(**inputs), skip_special_tokens=True)
            assert text == fastdecode_lib.translate(ours, row["en"], source="en", target=target).text
