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
from fastdecode_lib.measuring import speedups
from fastdecode_lib.training import speedup as module
from fastdecode_lib.training.draft_tables import default_path
from fastdecode_lib.translation import Session

PLAIN = {"decoder": "greedy", "projection": "exact", "precision": "float32"}
RECORD = {"source": "en", "target": "de", "batch": 1, "model": "m", "sentences": 10, "held_out": 10, "near": 0.95}
TEXTS = [f"{text} {i}" for i, text in enumerate(fakes.own_sentences()["en"] * 2)]
ASKED: dict[str, Any] = {"source": "en", "target": "de", "minutes": 0.02, "max_length": 6}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made_up(kept: int, number: int) -> pd.DataFrame:
    """A table in which int8 is three times as fast and keeps so many outputs."""
    names = ("name", "decoder", "projection", "precision", "speedup", "speedup_low", "speedup_high", "unchanged")
    rows = [
        ("greedy + exact + int8", "greedy", "exact", "int8", 3.0, 2.9, 3.1, kept / number, number),
        ("greedy + exact + float32", "greedy", "exact", "float32", 1.0, 1.0, 1.0, 1.0, 10),
    ]
    table = pd.DataFrame([dict(zip((*names, "sentences"), row, strict=True)) for row in rows])
    lows = [speedups.surely(round(row.unchanged * row.sentences), row.sentences) for row in table.itertuples()]
    return table.assign(lossless=True, note="", unchanged_low=lows)


def test_a_table_is_made_measured_kept_and_used_again(
    marian_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: dict[str, list[str]] = {}
    make_table, fastest = module.make_table, module.fastest
    monkeypatch.setattr(
        module, "make_table", lambda s, texts, **k: (seen.update(fitted=list(texts)), make_table(s, texts, **k))[1]
    )
    monkeypatch.setattr(
        module,
        "fastest",
        lambda m, texts, **k: (seen.update(measured=list(texts), more=k["more"]), fastest(m, texts, **k))[1],
    )
    monkeypatch.setattr(speedups, "noisy", lambda *_: False)
    monkeypatch.setattr(module, "LEAST_MEASURED", 9)
    monkeypatch.setattr(module, "COMPARING", 1e6)
    found = fastdecode_lib.speedup(str(marian_folder), [*TEXTS, " ", TEXTS[0]], **ASKED)
    assert seen["fitted"] and seen["measured"] and not set(seen["fitted"]) & {*seen["measured"], *seen["more"]}
    assert len(seen["measured"]) == 9 and len({*seen["measured"], *seen["more"]}) == found.provenance["held_out"]
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


def test_no_text_holds_out_what_was_fitted_of_another(marian_folder: Path) -> None:
    session = Session.of(fastdecode_lib.load(str(marian_folder)), "en", "de", "greedy")
    splits = [module._split(session, texts) for texts in (TEXTS, TEXTS[:150], TEXTS[::-2], TEXTS[100:])]
    fitted, held_out = (set().union(*(part[which] for part in splits)) for which in (0, 1))
    assert not fitted & held_out and 0.1 < len(held_out) / len(held_out | fitted) < 0.3


def test_a_table_that_may_have_seen_the_text_is_not_compared_on_it(marian_folder: Path) -> None:
    session = Session.of(fastdecode_lib.load(str(marian_folder)), "en", "de", "greedy")
    place = default_path(session)
    fitted, held_out, _ = module._split(session, TEXTS)
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
    table = made_up(kept=8, number=10)
    monkeypatch.setattr(module, "speedup", lambda *a, **k: module.Speedup(table, PLAIN, None, RECORD, None))
    (tmp_path / "en.txt").write_text("One line.\n", encoding="utf-8")
    assert (
        cli.main(["speedup", "--model", "m", "--from", "en", "--to", "de", "--source", str(tmp_path / "en.txt")]) == 0
    )
    out = capsys.readouterr().out
    int8, float32 = (line for line in out.splitlines() if line.startswith("greedy + exact"))
    assert "False" in int8 and "True" in float32
    assert (
        "With next to no loss: nothing faster is sure to keep a share of 0.95 of the outputs (--near). greedy + exact + int8 is "
        "3.0 times as fast as greedy decoding, with 8 of 10 outputs unchanged, at least 49%.\n"
    ) in out
    brief = module.Speedup(table.assign(speedup_low=float("nan")), PLAIN, None, RECORD, None)
    assert "greedy + exact + int8, timed briefly, is 3.0 times" in str(brief)
    assert "unchanged_low is the share that is unchanged with 95% confidence" in out
    assert "the choice is among them" in out and "noisy" not in out
    slow = module.Speedup(table.assign(speedup=1.0), PLAIN, None, RECORD, None)
    assert "With next to no loss: nothing is faster than that." in str(slow)


def test_too_few_sentences_show_no_small_loss() -> None:
    def said(kept: int, number: int, held_out: int = 20, near: dict[str, str] | None = None) -> str:
        return str(module.Speedup(made_up(kept, number), PLAIN, near, RECORD | {"held_out": held_out}, None))

    assert (
        "with 20 of 20 outputs unchanged, at least 86%. These are too few to tell: it takes about 59 held-out sentences: give "
        "295 sentences in all."
    ) in said(20, 20)
    assert "it takes about 59 held-out sentences, which takes more --minutes." in said(20, 20, held_out=200)
    assert "too few" not in said(955, 1_000) and "too few" not in said(18, 20)
    assert (
        "With next to no loss: greedy + exact + int8, 3.00 times greedy decoding (2.90 to 3.10), 200 of 202 outputs "
        in (chosen := said(200, 202, near=PLAIN | {"precision": "int8"}))
    )
    assert "200 of 202 outputs unchanged, at least 96%.\n" in chosen and "10 of 10 outputs unchanged.\n" in chosen


def test_further_outputs_take_a_share_of_the_minutes() -> None:
    measured, others = ([f"{letter} {i}" for i in range(n)] for letter, n in (("a", 200), ("b", 800)))
    for decoded in (1e9, 20_000, 2_000, 10):
        timed, more = module._samples(measured, others, decoded)
        assert max(20, int(0.3 * decoded / 140)) >= len(timed) >= 20 and set(timed) <= set(measured)
        assert not set(timed) & set(more) and len(more) == min(1_000 - len(timed), int(0.05 * decoded / 2))


def test_a_noisy_choice_is_not_stored(marian_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedups, "noisy", lambda *_: True)
    found = fastdecode_lib.speedup(str(marian_folder), TEXTS, **ASKED)
    fingerprint = fastdecode_lib.load(str(marian_folder)).checkpoint.fingerprint
    assert found.file is None and not choice_file(fingerprint, ("en", "de"), 1).exists()
    assert "the choice was not stored: `translate` and `hf.window` decode as before. Run it again when" in str(found)
    assert "from now on" not in str(found)
    stored = module.Speedup(found.table, found.lossless, None, found.provenance, None, Path("choice.json"))
    assert "Some times are noisy" in str(stored) and "Delete choice.json to go back" in str(stored)


def test_further_rounds_end_with_the_minutes(marian_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    fastest = module.fastest
    monkeypatch.setattr(module, "fastest", lambda m, texts, **k: (given.update(k), fastest(m, texts, **k))[1])
    monkeypatch.setattr(module, "stopwatch", lambda make, sessions: (make(sessions[0]), (0.4, ()))[1])
    fastdecode_lib.speedup(str(marian_folder), TEXTS, **ASKED)
    assert 0 < given["seconds"] <= 60 * ASKED["minutes"] - 0.4


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
        ((), "required: --source/--file"),
        (("--file", str(tmp_path / "few")), "Give at least 50"),
        (("--source", str(tmp_path / "few")), "Give at least 50"),
        (("--source", str(tmp_path / "few"), "--batch", "0"), "--batch must be at least 1"),
        (("--source", str(tmp_path / "few"), "--device", "cuda"), "--device"),
    ):
        assert cli.main(["speedup", *told, *wrong]) == 2
        assert problem in capsys.readouterr().err
