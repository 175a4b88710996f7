"""From a model and a text to what decodes it fastest: what is made, kept, said, and refused."""

import shlex
import warnings
from pathlib import Path
from typing import Any

import fakes
import pandas as pd
import pytest

import fastdecode_lib
from fastdecode_lib import cli
from fastdecode_lib.drafts.finding import choice_file, measured_choice
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.training import speedup as module
from fastdecode_lib.training.draft_tables import default_path
from fastdecode_lib.translation import Session

TEXTS = [f"{text} {i}" for i, text in enumerate(fakes.own_sentences()["en"] * 2)]
ASKED: dict[str, Any] = {"source": "en", "target": "de", "minutes": 0.02, "max_length": 6}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_table_is_made_measured_kept_and_used_again(
    marian_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: dict[str, list[str]] = {}
    make_table, fastest = module.make_table, module.fastest
    monkeypatch.setattr(
        module, "make_table", lambda s, texts, **k: (seen.update(fitted=list(texts)), make_table(s, texts, **k))[1]
    )
    monkeypatch.setattr(
        module, "fastest", lambda m, texts, **k: (seen.update(measured=list(texts)), fastest(m, texts, **k))[1]
    )
    found = fastdecode_lib.speedup(str(marian_folder), [*TEXTS, " ", TEXTS[0]], **ASKED)
    assert seen["fitted"] and seen["measured"] and not set(seen["fitted"]) & set(seen["measured"])
    session = Session.of(fastdecode_lib.load(str(marian_folder)), "en", "de", "greedy")
    fingerprint = session.model.checkpoint.fingerprint
    assert DraftTable.load(default_path(session)).about["source"] == "en"
    assert (
        choice_file(fingerprint, ("en", "de"), 1).is_file() and not choice_file(fingerprint, ("en", "de"), 9).exists()
    )
    assert set(found.table.precision) == {"float32", "int8"} and found.table.lossless.all()
    assert measured_choice(fingerprint, ("en", "de"), 1) == (found.lossless["decoder"], found.lossless["projection"])
    assert any("a draft table of" in note for note in found.provenance["notes"])
    command, *_ = [line.strip() for line in str(found).splitlines() if line.startswith("  fastdecode")]
    file = tmp_path / "some.txt"
    file.write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    assert cli.main([*shlex.split(command)[1:-1], str(file), "--verify"]) == 0
    assert "3 of 3 outputs are greedy decoding's" in capsys.readouterr().err
    again = fastdecode_lib.speedup(str(marian_folder), [*TEXTS, " ", TEXTS[0]], **ASKED)
    assert any("is at hand" in note for note in again.provenance["notes"])


def test_more_text_holds_out_nothing_that_was_fitted(marian_folder: Path) -> None:
    session = Session.of(fastdecode_lib.load(str(marian_folder)), "en", "de", "greedy")
    fitted, held_out = module._split(session, TEXTS[:150])
    more, held_out_of_more = module._split(session, TEXTS[::-1])
    assert len(held_out) == (len(fitted) + len(held_out)) // 5 and not set(fitted) & set(held_out)
    assert not set(held_out_of_more) & set(fitted) and set(more) > set(fitted)


def test_a_table_that_may_have_seen_the_text_is_not_compared_on_it(marian_folder: Path) -> None:
    session = Session.of(fastdecode_lib.load(str(marian_folder)), "en", "de", "greedy")
    place = default_path(session)
    fitted, held_out = module._split(session, TEXTS)
    for texts, kept in ((TEXTS, True), (TEXTS[:9], False)):
        module.make_table(session, texts, least=1).save(place)
        notes: list[str] = []
        module._make_table(session, fitted, held_out, 1e6, notes.append, False)
        assert notes[0].startswith("the draft table at hand is kept: it was counted on") == kept, notes
    assert DraftTable.load(place).about["held_out_by"] == module.SPLIT


def test_what_speedup_chose_is_the_default(marian_folder: Path) -> None:
    from fastdecode_lib.store import write_table

    model = fastdecode_lib.load(str(marian_folder))
    file = choice_file(model.checkpoint.fingerprint, ("en", "de"), 1)
    write_table(file, [], {"lossless": {"float32": ["window:width=2,draft=pad", "quantised"]}})
    asked: dict[str, Any] = {"source": "en", "target": "de", "max_length": 30}
    settings = fastdecode_lib.translate(model, TEXTS[0], **asked).trace.settings
    assert (settings["decoder"], settings["projection"]) == ("window:width=2,draft=pad", "quantised")
    (several,) = fastdecode_lib.translate(model, TEXTS[:1], **asked)
    (single,) = fastdecode_lib.translate(model, TEXTS[:1], batch=1, **asked)
    assert several.trace.settings["decoder"] == "auto" and single.trace.settings["decoder"] == settings["decoder"]
    assert fastdecode_lib.translate(model, TEXTS[0], decoder="greedy", **asked).trace.settings["projection"] == "exact"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            ValueError, match="max_length must be at least 1, got 0"
        ):  # no word of the choice, which runs
            fastdecode_lib.translate(model, TEXTS[0], **asked | {"max_length": 0})
    write_table(file, [], {"lossless": {"float32": ["window:width=2,draft=head", "exact"]}})
    with pytest.warns(UserWarning, match="no longer runs, decoding as usual: .*needs a draft head"):
        settings = fastdecode_lib.translate(model, TEXTS[0], **asked).trace.settings
    assert settings["decoder"] == "auto"


def test_a_head_is_trained_where_the_minutes_allow_it(marian_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from fastdecode_lib.training import draft_heads

    trained: list[tuple[int, int]] = []

    class Made:
        def __init__(self) -> None:
            self.about = {"seconds": 20.0}

        def save(self, path: Path) -> None:
            trained.append((-1, -1))

    def make_head(sessions: Any, texts: Any, recipe: Any, **_: Any) -> Made:
        trained.append((len(texts[0]), recipe.updates))
        return Made()

    monkeypatch.setattr(draft_heads, "make_head", make_head)
    monkeypatch.setattr(draft_heads, "RECIPE", replace(draft_heads.RECIPE, held_out=2))
    session = Session.of(fastdecode_lib.load(str(marian_folder)), "en", "de", "greedy")
    notes: list[str] = []
    module._make_head(session, TEXTS[:50], 10, notes.append, 0, False)
    assert trained == [(40, 2)] and notes == ["no draft head: training one takes about --minutes 125"]
    module._make_head(session, TEXTS[:50], 260, notes.append, 0, False)
    assert trained[2:] == [(50, 600), (-1, -1)] and "a draft head of 600 updates" in notes[-1]
    module._make_head(session, TEXTS[:30], 260, notes.append, 0, False)
    assert len(trained) == 4 and "it needs 40 sentences to learn from, 30 are left" in notes[-1]


def test_what_is_printed_calls_nothing_lossless_that_differs_from_float32(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = ("name", "decoder", "projection", "precision", "speedup", "speedup_low", "speedup_high", "unchanged")
    rows = [
        ("greedy + exact + int8", "greedy", "exact", "int8", 3.0, 2.9, 3.1, 0.8),
        ("greedy + exact + float32", "greedy", "exact", "float32", 1.0, 1.0, 1.0, 1.0),
    ]
    table = pd.DataFrame([dict(zip(names, row, strict=True)) | {"lossless": True, "note": ""} for row in rows])
    plain = {"decoder": "greedy", "projection": "exact", "precision": "float32"}
    record = {"source": "en", "target": "de", "batch": 1, "model": "m", "sentences": 10, "near": 0.95}
    monkeypatch.setattr(module, "speedup", lambda *a, **k: module.Speedup(table, plain, None, record, None))
    (tmp_path / "en.txt").write_text("One line.\n", encoding="utf-8")
    assert (
        cli.main(["speedup", "--model", "m", "--from", "en", "--to", "de", "--source", str(tmp_path / "en.txt")]) == 0
    )
    out = capsys.readouterr().out
    int8, float32 = (line for line in out.splitlines() if line.startswith("greedy + exact"))
    assert "False" in int8 and "True" in float32
    assert (
        "greedy + exact + int8 is 3.0 times as fast as greedy decoding and keeps 8 of 10 outputs, a share below 0.95 "
        "(--near)."
    ) in out
    brief = module.Speedup(table.assign(speedup_low=float("nan")), plain, None, record, None)
    assert "greedy + exact + int8, timed briefly, is 3.0 times" in str(brief)
    assert "the choice is among them" in out and "With next to no loss: nothing is faster" in out


def test_what_cannot_be_done_says_so(marian_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for texts, options, problem in (
        ("one text", {}, "needs many sentences: got one text"),
        (TEXTS[:9] * 9, {}, r"got \d different sentences with content that fit the model. Give at least 50"),
        (TEXTS, {"target": "xx"}, "Unknown target language: got 'xx'"),
        ([*TEXTS, 3], {}, f"Sentence {len(TEXTS) + 1} is no text: got int"),
        (TEXTS, {"near": 95}, "near is a share above 0, 1 at most: got 95"),
        (TEXTS, {"minutes": 0}, "minutes are a number above 0: got 0"),
        (TEXTS, {"minutes": float("inf")}, "minutes are a number above 0: got inf"),
        (TEXTS, {"batch": 0}, "batch must be a whole number from 1 on: got 0"),
    ):
        with pytest.raises(ValueError, match=problem):
            fastdecode_lib.speedup(str(marian_folder), texts, **ASKED | options)
    with pytest.raises(ValueError, match="A loaded translation model is needed: got 3"):
        fastdecode_lib.speedup(3, TEXTS, **ASKED)  # type: ignore[arg-type]
    (tmp_path / "few").write_text("One line.\n", encoding="utf-8")
    told = ["--model", str(marian_folder), "--from", "en", "--to", "de"]
    for wrong, problem in (
        ((), "required: --source"),
        (("--source", str(tmp_path / "few")), "Give at least 50"),
        (("--source", str(tmp_path / "few"), "--batch", "0"), "--batch must be at least 1"),
        (("--source", str(tmp_path / "few"), "--device", "cuda"), "--device"),
    ):
        assert cli.main(["speedup", *told, *wrong]) == 2
        assert problem in capsys.readouterr().err
