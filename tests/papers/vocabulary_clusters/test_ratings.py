"""Human evaluation: pairs that differ, studies that survive, and tests that compare the systems."""

import csv
import itertools
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fastdecode_lib.papers.vocabulary_clusters.ratings import (
    Sample,
    Study,
    compare_scores,
    sample_pairs,
)

ROOT = Path(__file__).resolve().parents[3]
SYSTEMS = ("exact", "clustered")
HOSTILE = [
    "'); DROP TABLE ratings; --",
    "<script>alert(1)</script>",
    'a "quoted", text;\nof two lines\r\nand a \r return',
    "=HYPERLINK(1)",
    "nul \x00 bell \x07",
    "👩\u200d💻 مرحبا 東京 \u202e",
    "",
    " ",
    "NaN",
    "null",
]


def corpus(segments: int, every: int, name: str = "") -> tuple[list[str], list[str], list[str]]:
    """Sources and two outputs, which differ in each `every`-th segment."""
    sources = [f"{name} source {i}" for i in range(segments)]
    ours = [f"{name} output {i}" for i in range(segments)]
    return sources, ours, [text + "!" * (i % every == 0) for i, text in enumerate(ours)]


def drawn(count: int, direction: str = "", seed: int = 0) -> Sample:
    return sample_pairs(*corpus(4 * count, 2, direction), count, seed, direction=direction)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.create(tmp_path / "study.sqlite", drawn(12), SYSTEMS) as made:
        yield made


# ------------------------------------------------------------------------------------------------------------ sampling


def test_pairs_differ_and_are_what_they_were() -> None:
    for seed in range(100):
        generator = np.random.default_rng(seed)
        segments = int(generator.integers(2, 40))
        sources = [f"s{i}" for i in range(segments)]
        a, b = ([str(word) for word in generator.integers(0, 3, segments)] for _ in range(2))
        differing = sum(x != y for x, y in zip(a, b, strict=True))
        if not differing:
            continue
        count = int(generator.integers(1, differing + 1))
        sample = sample_pairs(sources, a, b, count, seed, references=a)
        assert sample == sample_pairs(sources, a, b, count, seed, references=a)
        assert (len(sample.pairs), sample.differing, sample.segments) == (count, differing, segments)
        assert sample.identical == pytest.approx(1 - differing / segments)
        numbers = [pair.segment for pair in sample.pairs]
        assert numbers == sorted(set(numbers))
        for pair in sample.pairs:
            i = pair.segment
            assert (pair.source, pair.output_a, pair.output_b, pair.reference) == (sources[i], a[i], b[i], a[i])
            assert pair.output_a != pair.output_b


def test_each_differing_segment_is_as_likely_as_the_others() -> None:
    texts = corpus(20, 2)
    counts = Counter(pair.segment for seed in range(1500) for pair in sample_pairs(*texts, 3, seed).pairs)
    assert sorted(counts) == list(range(0, 20, 2))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs_b": ["x", "y", "z"]}, r"compare outputs that differ, got 3 segments with identical.* report that"),
        ({"outputs_b": ["x"]}, r"one text of each kind, got \{'sources': 3.*'outputs_b': 1\}\. Pass lists"),
        ({"references": []}, r"one text of each kind, got .*'references': 0\}"),
        ({"count": 3}, r"from 1 to the 2 segments whose outputs differ, got 3\. Lower count"),
        ({"count": 0}, r"got 0\. Lower"),
        ({"sources": ["s", None, "t"]}, r"Texts are strings, got a NoneType in sources\. Decode"),
        ({"outputs_a": ["x", "\ud800", "z"]}, r"half a surrogate pair in outputs_a: '\\ud800'\. Mend"),
    ],
)
def test_samples_that_cannot_be_drawn(changes: dict[str, Any], message: str) -> None:
    given = {"sources": ["s", "t", "u"], "outputs_a": ["x", "y", "z"], "outputs_b": ["x", "Y", "Z"]}
    with pytest.raises(ValueError, match=message):
        sample_pairs(**{**given, "count": 1, "seed": 0, **changes})


# --------------------------------------------------------------------------------------------------------------- study


def test_each_rater_has_an_order_and_balanced_sides(tmp_path: Path) -> None:
    sample = drawn(30)
    with Study.create(tmp_path / "study.sqlite", sample, SYSTEMS) as study:
        seen = {}
        for rater in ("anna", "ben", "cleo"):
            pairs = [study.pair_at(rater, place) for place in range(study.total)]
            assert sorted(pair["source"] for pair in pairs) == sorted(pair.source for pair in sample.pairs)
            assert sum(pair["left"].endswith("!") for pair in pairs) == 15
            assert all(
                {pair["left"], pair["right"]} == {o, o + "!"} for pair in pairs for o in [pair["left"].rstrip("!")]
            )
            assert all(set(pair) == {"source", "reference", "left", "right", "scores", "comment"} for pair in pairs)
            seen[rater] = [(pair["source"], pair["left"]) for pair in pairs]
    assert len({tuple(order) for order in seen.values()}) == 3
    with Study.create(tmp_path / "again.sqlite", sample, SYSTEMS) as again:
        assert [again.pair_at("anna", place)["left"] for place in range(30)] == [left for _, left in seen["anna"]]
    with Study.create(tmp_path / "other.sqlite", sample, SYSTEMS, seed=1) as other:
        assert [other.pair_at("anna", place)["left"] for place in range(30)] != [left for _, left in seen["anna"]]


def test_a_study_does_what_a_dictionary_would(tmp_path: Path) -> None:
    """Random ratings, replacements and reopenings; in the end every score stands with the output it was given to."""
    for seed in range(3):
        generator = np.random.default_rng(seed)
        path = tmp_path / f"{seed}.sqlite"
        study = Study.create(path, drawn(6, seed=seed), SYSTEMS, seed)
        expected: dict[tuple[str, str], tuple[float, str]] = {}
        rated: dict[str, set[int]] = {"anna": set(), "ben": set()}
        for _ in range(25):
            if generator.random() < 0.2:
                study.close()
                study = Study(path)
            rater, place = str(generator.choice(list(rated))), int(generator.integers(6))
            left, right = generator.uniform(0, 100, 2).tolist()
            study.rate(rater, place, left, right, f"{left:.3f}")
            pair = study.pair_at(rater, place)
            assert (pair["scores"], pair["comment"]) == ([left, right], f"{left:.3f}")
            expected[rater, pair["left"]] = left, pair["comment"]
            expected[rater, pair["right"]] = right, pair["comment"]
            rated[rater].add(place)
            assert study.progress(rater) == (len(rated[rater]), 6)
            assert study.next_place(rater) == min(set(range(6)) - rated[rater], default=None)
        found = {}
        for row in study.ratings().to_dict("records"):
            for letter in "ab":
                found[row["rater"], row[f"output_{letter}"]] = row[f"score_{letter}"], row["comment"]
            assert row["left"] in SYSTEMS
        assert found == expected
        study.close()


KILLED = """
import sys
from fastdecode_lib.papers.vocabulary_clusters.ratings import Study
study = Study(sys.argv[1])
for count in range(100_000):
    place = count % study.total
    study.rate("anna", place, count % 101, 100 - count % 101, str(count))
    print(count, flush=True)
"""


def test_a_kill_loses_at_most_the_rating_in_progress(study: Study) -> None:
    for kill in range(3):
        command = [sys.executable, "-c", KILLED, str(study.path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(20 + 7 * kill):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().split()]
        process.wait()
        with Study(study.path) as reopened:
            rows = reopened.ratings().to_dict("records")
        newest = max(int(row["comment"]) for row in rows)
        assert 0 <= newest - (said[-1] if said else 19 + 7 * kill) <= 1
        assert sorted(int(row["comment"]) for row in rows) == list(range(newest - 11, newest + 1))
        assert all(
            {row["score_a"], row["score_b"]} == {n % 101, 100 - n % 101} for row in rows for n in [int(row["comment"])]
        )


def test_raters_may_work_at_the_same_time(study: Study) -> None:
    others = [study, Study(study.path)]
    raters = [f"rater {number}" for number in range(4)]

    def work(number: int) -> None:
        for place in range(study.total):
            others[number % 2].rate(raters[number], place, number, 100 - number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    others[1].close()
    assert [study.progress(rater) for rater in raters] == [(12, 12)] * 4
    assert set(study.ratings()["score_a"]) <= {0, 1, 2, 3, 97, 98, 99, 100}


def test_making_a_study_again_goes_on_with_it(study: Study) -> None:
    study.rate("anna", 0, 10, 20)
    with Study.create(study.path, drawn(12), SYSTEMS) as again:
        assert again.progress("anna") == (1, 12)
    others: list[Callable[[], Study]] = [
        lambda: Study.create(study.path, drawn(12, seed=5), SYSTEMS),
        lambda: Study.create(study.path, drawn(12), ("exact", "svd")),
        lambda: Study.create(study.path, drawn(12), SYSTEMS, seed=1),
    ]
    for other in others:
        with pytest.raises(
            ValueError, match=r"must hold the study of these pairs, .* got another one\. Open it with Study"
        ):
            other()
    assert study.progress("anna") == (1, 12)


@pytest.mark.parametrize("kind", ["text", "empty", "database", "version", "damaged", "missing"])
def test_other_files_are_refused_and_left_alone(kind: str, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    study.close()
    content = study.path.read_bytes()
    texts = {"text": b"some notes of mine" * 100, "empty": b"", "damaged": content[:8192] + bytes(len(content) - 8192)}
    if kind in texts:
        path.write_bytes(texts[kind])
    elif kind != "missing":
        path.write_bytes(content if kind == "version" else b"")
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 7" if kind == "version" else "CREATE TABLE mine (notes)")
        database.close()
    got = {
        "version": r"version 7",
        "missing": "there is none",
        "database": "another kind of file",
        "empty": "another kind",
    }
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(ValueError, match=got.get(kind, r"must be a study of version 1, got .+\. Restore it")):
        Study(path)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_new_study_does_not_take_up_an_old_journal(tmp_path: Path) -> None:
    (tmp_path / "study.sqlite-wal").write_bytes(b"ratings of yesterday")
    with pytest.raises(
        ValueError, match=r"fresh path, got .*study\.sqlite with a journal left over\. Delete .*-wal first"
    ):
        Study.create(tmp_path / "study.sqlite", drawn(2), SYSTEMS)
    assert [path.name for path in tmp_path.iterdir()] == ["study.sqlite-wal"]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda study: study.rate("anna", 12, 1, 1), r"Places are from 0 to 11, got 12\. Ask next_place"),
        (lambda study: study.pair_at("anna", -1), "got -1"),
        (lambda study: study.pair_at("anna", "0"), "got '0'"),
        (lambda study: study.rate("anna", 0, 101, 1), r"a number from 0 to 100, got 101\. Rate both"),
        (lambda study: study.rate("anna", 0, 1, float("nan")), "got nan"),
        (lambda study: study.rate("anna", 0, 1, None), "got None"),
        (lambda study: study.rate("anna", 0, True, 1), "got True"),
        (lambda study: study.rate("anna", 0, 1, 1, "\ud800"), "half a surrogate pair in comment"),
        (lambda study: study.progress(" anna"), r"a name without spaces at its ends, got ' anna'\. Example"),
        (lambda study: study.progress(""), "got ''"),
        (lambda study: study.progress("an\nna"), "without spaces"),
        (lambda study: study.table(), r"A comparison needs ratings, got none in .*\. Rate pairs"),
        (lambda study: study.export("ratings.xls"), r"as \.csv or \.json, got 'ratings\.xls'\. Choose"),
    ],
)
def test_what_a_study_refuses(act: Callable[[Study], object], message: str, study: Study) -> None:
    with pytest.raises(ValueError, match=message):
        act(study)
    assert study.ratings().empty


@pytest.mark.parametrize(
    ("samples", "systems", "seed", "message"),
    [
        ([], SYSTEMS, 0, r"one sample of each direction, got \[\]"),
        ([drawn(2), drawn(2)], SYSTEMS, 0, r"got \['', ''\]\. Name them in sample_pairs"),
        (drawn(2), ("exact", "exact"), 0, r"compares two systems, got \('exact', 'exact'\)\. Give each a name"),
        (drawn(2), ("exact", ""), 0, "compares two systems"),
        (drawn(2), SYSTEMS, -1, r"whole number from 0 on, got -1\. Example"),
    ],
)
def test_studies_that_cannot_be_made(samples: Any, systems: Any, seed: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Study.create(tmp_path / "study.sqlite", samples, systems, seed)
    assert list(tmp_path.iterdir()) == []


def test_texts_are_data(tmp_path: Path) -> None:
    texts = HOSTILE
    sample = sample_pairs(texts, texts, [text + "'" for text in texts], len(texts), 0, references=texts[::-1])
    with Study.create(tmp_path / "study.sqlite", sample, ("<b>exact</b>", "'clustered'")) as study:
        for place, comment in enumerate(texts):
            study.rate("O'Hara <i>", place, place, 100 - place, comment)
        study.export(tmp_path / "ratings.csv")
        study.export(tmp_path / "ratings.json")
        frame = study.ratings()
    with (tmp_path / "ratings.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    content = json.loads((tmp_path / "ratings.json").read_text(encoding="utf-8"))
    assert content["provenance"]["systems"] == ["<b>exact</b>", "'clustered'"]
    assert content["provenance"]["samples"] == {"": {"segments": len(texts), "differing": len(texts)}}
    assert list(rows[0]) == list(content["rows"][0]) == list(frame.columns)
    for place, (row, told) in enumerate(zip(rows, content["rows"], strict=True)):
        pair = sample.pairs[told["pair"]]
        wanted = {
            "source": pair.source,
            "reference": pair.reference,
            "output_a": pair.output_a,
            "output_b": pair.output_b,
        }
        wanted |= {
            "comment": texts[place],
            "rater": "O'Hara <i>",
            "system_a": "<b>exact</b>",
            "system_b": "'clustered'",
        }
        assert wanted.items() <= row.items() and wanted.items() <= told.items()
        left, right = ("score_a", "score_b") if told["left"] == "<b>exact</b>" else ("score_b", "score_a")
        assert (told[left], told[right]) == (place, 100 - place)
        assert float(row[left]) == place


# ---------------------------------------------------------------------------------------------------------- statistics


def rate_by_script(study: Study, rater: str, score: Callable[[str, str], float]) -> None:
    """Rate every pair through the same door as people, as blind: a score of each output from its source and itself."""
    while (place := study.next_place(rater)) is not None:
        pair = study.pair_at(rater, place)
        study.rate(rater, place, *(score(pair["source"], pair[side]) for side in ("left", "right")))


def likes_the_mark(source: str, output: str) -> float:
    """Ten points for the exclamation mark, and a difficulty that both outputs share."""
    return 60 + int(source.split()[-1]) % 17 + 10 * output.endswith("!")


def test_the_table_is_computed_on_pairs(tmp_path: Path) -> None:
    samples = [drawn(20, "en-de"), drawn(10, "de-en")]
    noise = np.random.default_rng(0)
    with Study.create(tmp_path / "study.sqlite", samples, SYSTEMS) as study:
        for name in ("one", "two"):
            rate_by_script(
                study, name, lambda *texts: float(np.clip(likes_the_mark(*texts) + noise.normal(0, 4), 0, 100))
            )
        table, frame = study.table().set_index("name"), study.ratings()
    assert list(table.index) == ["en-de", "de-en", "all"] and set(table["raters"]) == {2}
    assert list(table["pairs"]) == [20, 10, 30] and list(table["ratings"]) == [40, 20, 60]
    assert set(table["identical"]) == {0.5}
    means = frame.groupby("pair")[["score_a", "score_b"]].mean()
    row = table.loc["all"]
    assert row["rank_sum"] == pytest.approx(stats.ranksums(means["score_a"], means["score_b"]).pvalue)
    assert row["signed_rank"] == pytest.approx(stats.wilcoxon(means["score_b"] - means["score_a"]).pvalue)
    assert row["difference"] == pytest.approx(10, abs=2)
    assert row["signed_rank_mark"] == "***"


def test_every_score_stands_with_its_output(study: Study) -> None:
    """A study that mixed up sides would be noticed here."""
    scores = {
        text: float(number)
        for number, text in enumerate(t for pair in drawn(12).pairs for t in (pair.output_a, pair.output_b))
    }
    rate_by_script(study, "anna", lambda source, output: scores[output])
    for row in study.ratings().to_dict("records"):
        assert (row["score_a"], row["score_b"]) == (scores[row["output_a"]], scores[row["output_b"]])
    broken = study.ratings().assign(score_a=study.ratings()["score_b"])
    assert any(row["score_a"] != scores[row["output_a"]] for row in broken.to_dict("records"))


def test_one_direction_is_one_row(study: Study) -> None:
    study.rate("anna", 3, 50, 50)
    (row,) = study.table().to_dict("records")
    assert (row["name"], row["ratings"], row["rank_sum"], row["signed_rank"]) == ("all", 1, 1.0, 1.0)
    assert row["rank_sum_mark"] == row["signed_rank_mark"] == ""


def test_comparing_scores_is_symmetric_and_scipys() -> None:
    for seed in range(40):
        generator = np.random.default_rng(seed)
        size = int(generator.integers(2, 80))
        shared = generator.normal(70, 10, size)
        a, b = (np.round(shared + generator.normal(0, 4, size)) for _ in range(2))
        row, back = compare_scores(a, b), compare_scores(b, a)
        assert row["difference"] == pytest.approx(-back["difference"])
        assert row["rank_sum"] == pytest.approx(back["rank_sum"]) == pytest.approx(stats.ranksums(a, b).pvalue)
        assert row["signed_rank"] == pytest.approx(back["signed_rank"])
        if (a != b).any():
            exact = size <= 50 and len(set(abs(a - b)) - {0}) == size
            wanted = stats.wilcoxon(a - b, method="exact" if exact else "asymptotic").pvalue
            assert row["signed_rank"] == pytest.approx(wanted)
        order = generator.permutation(size)
        assert compare_scores(a[order], b[order]) == pytest.approx(row)
        for test in ("rank_sum", "signed_rank"):
            assert len(row[f"{test}_mark"]) == sum(row[test] < level for level in (0.05, 0.01, 0.001))


def test_the_paired_test_is_exact_for_few_pairs() -> None:
    """Of all ways to give signs to the ranks, how many are at least as far from an equal share."""
    for seed in range(10):
        difference = np.random.default_rng(seed).normal(1, 2, 7)
        ranks = stats.rankdata(np.abs(difference))
        sums = np.array([np.dot(ranks, signs) for signs in itertools.product((-1, 1), repeat=7)])
        extreme = np.abs(sums) >= abs(np.dot(ranks, np.sign(difference)))
        assert compare_scores(np.zeros(7), difference)["signed_rank"] == pytest.approx(extreme.mean())


def test_rounding_of_means_breaks_no_ties() -> None:
    a = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0]) / 3
    b = a + np.array([1, -1, 1, 1, -1, 1]) / 3
    assert compare_scores(a, b)["signed_rank"] == compare_scores(3 * a, 3 * b)["signed_rank"]


@pytest.mark.parametrize("scores", [([], []), ([1.0], [1.0, 2.0]), ([1.0], [math.nan]), ([[1.0]], [[2.0]])])
def test_scores_that_cannot_be_compared(scores: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"on the same pairs, got scores of shape .*\. Pass one finite score"):
        compare_scores(*scores)
