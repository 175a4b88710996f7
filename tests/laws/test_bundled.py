"""The bundled model in float64 on the project's own sentences: lossless means greedy's tokens, single and joined."""

import csv
from pathlib import Path

import pytest

import fastdecode_lib
from fastdecode_lib import registry
from fastdecode_lib.text.corpus import join_pairs
from fastdecode_lib.translation import Session

SENTENCES = Path(__file__).parents[2] / "fastdecode_lib" / "text" / "sentences.tsv"
LOSSLESS = ("jacobi", "gauss_seidel:block=3", "gauss_seidel:block=5", "hybrid:block=3", "hybrid:block=4,length=6")


@pytest.fixture(scope="module")
def model():
    return fastdecode_lib.load("tatoeba-small", device="cpu", dtype="float64")


@pytest.fixture(scope="module")
def rows():
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize(
    "direction", [("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"), ("en", "es"), ("es", "en")]
)
def test_lossless_decoders_equal_greedy(model, rows, direction):
    source, target = direction
    pairs = [(row[source], row[target]) for row in rows]
    texts = [a for a, _ in pairs[::60]] + [a for a, _ in join_pairs(pairs, seed=1)[:1]]
    greedy = Session.of(model, source, target, max_length=100).decode(texts, batch=1)
    assert sum(h.stop == "end" for h in greedy) > len(texts) / 2
    for spec in LOSSLESS:
        assert registry.decoder(spec).lossless
        found = Session.of(model, source, target, spec, max_length=100).decode(texts, batch=1)
        assert [h.tokens for h in found] == [h.tokens for h in greedy], spec


def test_batches_equal_single_sentences(model, rows):
    texts = [row["en"] for row in rows[:12]]
    for spec in ("greedy", "beam:size=3"):
        session = Session.of(model, "en", "fr", spec, max_length=60)
        alone, together = session.decode(texts, batch=1), session.decode(texts, batch=6)
        assert [h.tokens for h in alone] == [h.tokens for h in together], spec
