"""Evaluation: the same rows for any number of workers, after a stop and after a kill, and what it refuses."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakes
import pytest

from fastdecode_lib import cli, load
from fastdecode_lib.contexts.feeding import Translations
from fastdecode_lib.contexts.fitting import fit_screens
from fastdecode_lib.contexts.recording import record
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.head import FILE as DRAFT_HEAD
from fastdecode_lib.measuring import evaluation
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.evaluation import evaluate
from fastdecode_lib.projections.screens import save_screens
from fastdecode_lib.translation import Session

TEXTS = fakes.own_sentences()["en"][:40]
REFERENCES = fakes.own_sentences()["de"][:40]
CHOSEN: dict[str, Any] = {
    "references": REFERENCES,
    "source": "en",
    "target": "de",
    "decoders": ("greedy", "window:width=4", "gauss_seidel"),
    "projections": ("exact", "clustered"),
    "settings": {"device": "cpu"},
    "chunk": 7,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    return evaluate("tatoeba-small", TEXTS, folder=folder, **CHOSEN), folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.json")}


def test_rows_are_what_counting_gives(whole: Any) -> None:
    table, folder = whole
    assert list(table["name"][:3]) == ["greedy + exact", "greedy + clustered", "window:width=4 + exact"]
    exact = table[table["projection"] == "exact"]
    assert (exact["agreement"] == 1).all() and (exact["bleu"] == exact["bleu"].iloc[0]).all()
    assert table.set_index("name").loc["window:width=4 + exact", "tokens_per_pass"] > 1.2
    session = Session.of(load("tatoeba-small", device="cpu"), "en", "de", "window:width=4")
    expected = count(session, TEXTS)
    found = table.attrs["sentences"]["window:width=4 + exact"]
    for column in evaluation.COLUMNS:
        assert [str(value) for value in found[column]] == [
            str(list(value) if column == "ids" else value) for value in expected[column]
        ]
    assert len(files(folder)) == 6 * 6


def test_one_name_stands_for_a_list_of_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"source": "en", "target": "de", "folder": tmp_path, "max_length": 8}
    table = evaluate("tatoeba-small", TEXTS[0], decoders="greedy", projections="exact", references="Ja.", **options)
    assert table["name"].tolist() == ["greedy + exact"] and table["sentences"].tolist() == [1]


def test_a_second_run_decodes_nothing(whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table, folder = whole
    monkeypatch.setattr(evaluation.Job, "__call__", lambda *_: pytest.fail("it is there already"))
    again = evaluate("tatoeba-small", TEXTS, folder=folder, **CHOSEN)
    assert again.to_dict("records") == table.to_dict("records")


def test_a_damaged_chunk_is_made_again(whole: Any, tmp_path: Path) -> None:
    table, folder = whole
    copy = tmp_path / "copy"
    for name, content in files(folder).items():
        path = copy / table.attrs["provenance"]["fingerprint"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    damaged = sorted(copy.rglob("*.json"))[:4]
    damaged[0].write_bytes(b"{")
    damaged[1].write_text(json.dumps({"rows": []}))
    damaged[2].write_text(json.dumps({"rows": [{"tokens": 1}] * 7}))
    damaged[3].unlink()
    assert evaluate("tatoeba-small", TEXTS, folder=copy, **CHOSEN).to_dict("records") == table.to_dict("records")
    assert files(copy) == files(folder)


def test_workers_make_the_same_files(whole: Any, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    table, folder = whole
    found = evaluate("tatoeba-small", TEXTS, folder=tmp_path, workers=2, **CHOSEN)
    assert found.to_dict("records") == table.to_dict("records") and files(tmp_path) == files(folder)


KILLS = int(os.environ.get("FASTDECODE_KILLS", "2"))
"""Set to 50 for the long form of the test below."""


def test_killed_at_random_moments_nothing_is_lost(whole: Any, tmp_path: Path) -> None:
    table, folder = whole
    paths = [str(parent) for parent in Path(__file__).parents[:3]]
    code = (
        f"import sys; sys.path[:0] = {paths}; import test_evaluation as t; "
        f"t.evaluate('tatoeba-small', t.TEXTS, folder={str(tmp_path)!r}, **t.CHOSEN)"
    )
    moments = random.Random(7)
    for _ in range(KILLS):
        running = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        before = len(files(tmp_path))
        deadline = time.monotonic() + 60
        while len(files(tmp_path)) == before and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(moments.random() * 0.15)
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        kept = files(tmp_path)
        assert all(files(folder)[name] == content for name, content in kept.items()), "what is kept is whole"
        assert len(kept) >= before
    assert evaluate("tatoeba-small", TEXTS, folder=tmp_path, **CHOSEN).to_dict("records") == table.to_dict("records")
    assert files(tmp_path) == files(folder)


def test_another_setting_is_another_file(whole: Any, tmp_path: Path) -> None:
    _, folder = whole
    few = {"source": "en", "target": "de", "settings": {"device": "cpu"}, "folder": tmp_path}
    evaluate("tatoeba-small", TEXTS[:5], **few)
    evaluate("tatoeba-small", TEXTS[:5], **few, max_length=6)
    evaluate("tatoeba-small", TEXTS[:6], **few)
    evaluate("tatoeba-small", TEXTS[:5], **few | {"settings": {"device": "cpu", "precision": "int8"}})
    assert len(files(tmp_path)) == 4 and not set(files(tmp_path)) & set(files(folder))


def test_another_default_or_engine_is_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    tatoeba = load("tatoeba-small", device="cpu")
    job = evaluation.Job("tatoeba-small", (), ("en", "de"))
    methods = ("window", "row_clusters"), ("window", "exact")
    keys = lambda model: [evaluation._key(job, method, ["A train."], model) for method in methods]  # noqa: E731
    before, options = keys(tatoeba), evaluation.registry.options
    assert not set(keys(replace(tatoeba, device="cuda:0"))) & set(before)
    assert keys(replace(tatoeba, device="cuda:1")) == keys(replace(tatoeba, device="cuda:0"))
    changed = lambda kind: {n: p.replace(default=7) if n == "clusters" else p for n, p in options(kind).items()}  # noqa: E731
    monkeypatch.setattr(evaluation.registry, "options", changed)
    assert [one == other for one, other in zip(keys(tatoeba), before, strict=True)] == [False, True]


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs sentences, and a reference for each or none: got 0 and none"):
        evaluate("tatoeba-small", [], folder=tmp_path)
    with pytest.raises(ValueError, match="got 2 and 1. Correct the files"):
        evaluate("tatoeba-small", ["a", "b"], references=["c"], folder=tmp_path)
    with pytest.raises(ValueError, match="Unknown decoder"):
        evaluate("tatoeba-small", ["a"], decoders=("greedi",), folder=tmp_path)
    with pytest.raises(ValueError, match="Leave out\none|Leave out one"):
        evaluate("tatoeba-small", ["a"], workers=1, scheduler="tcp://nowhere:1", folder=tmp_path)
    with pytest.raises(ValueError, match="at least one sentence: got chunk=0"):
        evaluate("tatoeba-small", ["a"], chunk=0, folder=tmp_path)
    with pytest.raises(TypeError, match=r"by name: got Window\(.*window:width=3, for example"):
        evaluate("tatoeba-small", ["a"], decoders=Window(3), folder=tmp_path)
    with pytest.raises(ValueError, match="Evaluation needs sentences"):
        evaluate("tatoeba-small", None, folder=tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, lines in (("en", TEXTS[:5]), ("de", REFERENCES[:5])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ["evaluate", "--source", str(tmp_path / "en"), "--reference", str(tmp_path / "de"), "--from", "en"]
    arguments += ["--to", "de", "--decoder", "greedy", "--decoder", "window:width=3", "--device", "cpu"]
    arguments += ["--folder", str(tmp_path / "kept"), "--json", str(tmp_path / "table.json")]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "window:width=3 + exact" in said and "tokens_per_pass" in said
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["agreement"] for row in rows] == [1.0, 1.0]


def test_what_is_fitted_anew_is_decoded_anew(tmp_path: Path) -> None:
    sets = tmp_path / "sets"
    sets.mkdir()
    (sets / "one").write_bytes(b"1")
    first = evaluation._files_hash(tmp_path, "none", ("clustered:clusters=5,file=" + str(sets),))
    (sets / "one").write_bytes(b"2")
    assert evaluation._files_hash(tmp_path, "none", ("clustered:clusters=5,file=" + str(sets),)) != first
    plain = evaluation._files_hash(tmp_path, "none", (None, "exact"))
    (tmp_path / DRAFT_HEAD).write_bytes(b"a head")
    assert evaluation._files_hash(tmp_path, "none", (None, "exact")) != plain


def test_other_rules_are_other_rows(broken_marian: Path, tmp_path: Path) -> None:
    few = {"source": "en", "target": "de", "settings": {"device": "cpu"}, "folder": tmp_path / "kept"}
    tokens = evaluate(str(broken_marian), TEXTS[:3], decoders=("greedy",), **few)["tokens"][0]
    fakes.change_json(broken_marian / "generation_config.json", max_length=5)
    assert evaluate(str(broken_marian), TEXTS[:3], decoders=("greedy",), **few)["tokens"][0] < tokens


def test_a_sentence_that_is_too_long_is_named(tmp_path: Path) -> None:
    texts = [*TEXTS, *TEXTS, "word " * 600]
    with pytest.raises(ValueError, match="sentence 81 has"):
        evaluate("tatoeba-small", texts, source="en", target="de", settings={"device": "cpu"}, folder=tmp_path)
    assert not list(tmp_path.rglob("*.json")), "nothing was decoded"


def test_screens_fitted_anew_are_used_in_the_same_process(tmp_path: Path) -> None:
    """A session in memory is of the files as they were; one of the files as they are must take its place."""
    model = load("tatoeba-small", device="cpu")
    spec, kept = f"clustered:file={tmp_path / 'sets'}", []
    for number, texts in enumerate((TEXTS[30:32], TEXTS[:20])):
        contexts = record(Translations(model), {"en-de": texts}, tmp_path / f"contexts-{number}")
        save_screens(fit_screens(contexts, "clustered", clusters=2), tmp_path / "sets")
        few = {"source": "en", "target": "de", "settings": {"device": "cpu"}, "folder": tmp_path / "kept"}
        table = evaluate("tatoeba-small", TEXTS[:4], decoders=("greedy",), projections=(spec,), **few)
        now = count(Session.of(load("tatoeba-small", device="cpu"), "en", "de", "greedy", spec), TEXTS[:4])
        kept.append([list(ids) for ids in now["ids"]])
        assert table.attrs["sentences"][table["name"][0]]["ids"].tolist() == kept[-1]
    assert kept[0] != kept[1]


def test_one_way_is_decoded_once(tmp_path: Path) -> None:
    few = {"source": "en", "target": "de", "settings": {"device": "cpu"}, "folder": tmp_path}
    table = evaluate("tatoeba-small", TEXTS[:3], decoders=(None, "greedy"), **few)
    assert list(table["name"]) == ["greedy + exact"]
