"""The runner: what it offers, that it does what was chosen, and that its code does the same."""

import copy
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakes
import pytest

from fastdecode_lib import load, registry, runners
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.runners import DECODERS, FEWEST, SETTINGS, WEIGHED_WIDTHS, Runner, runner, spec
from fastdecode_lib.trace import Trace

TEXTS = fakes.own_sentences()["en"][:6]
CHOSEN = {"from": "en", "to": "de", "decoder": "window", "width": 3}


@pytest.fixture
def run(marian: TranslationModel) -> Runner:
    return runner(marian)


def test_it_offers_what_the_model_and_the_registry_have(run: Runner) -> None:
    choices = run.choices()
    assert choices["from"] == ["en", "de", "fr", "es"] and set(choices["to"]) == {"en", "de", "fr", "es"}
    assert "en-de" in choices["directions"]
    assert choices["decoder"][:6] == ["window", "jacobi", "gauss_seidel", "hybrid", "greedy", "beam"]
    assert set(choices["decoder"]) == set(registry.fitting(run.model.network))
    assert choices["width"] == {"window": 3, "gauss_seidel": 3, "hybrid": 3, "beam": 5, "auto": 8}
    assert choices["projection"] == ["exact", "quantised"]
    assert choices["precision"] == ["float64", "float32", "int16", "int8"]
    assert choices["engine"] == ["auto", "compiled", "torch"]


def test_english_is_chosen_where_a_model_puts_no_direction_first(run: Runner) -> None:
    codes = ("af", "am", "de", "en")
    tokenizer = SimpleNamespace(ordered=False, directions=tuple((a, b) for a in codes for b in codes if a != b))
    choices = runner(replace(run.model, tokenizer=tokenizer)).choices()
    assert (choices["from"][0], choices["directions"][0]) == ("en", "en-de")


def test_what_the_registry_gains_is_offered(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.DECODERS, "new", registry.DECODERS["hybrid"])
    monkeypatch.setitem(registry.PROJECTIONS, "new", registry.projection_class("exact"))
    choices = run.choices()
    assert choices["decoder"][-1] == "new" and choices["width"]["new"] == 3
    assert choices["projection"] == ["exact", "quantised", "new"]


@pytest.mark.parametrize("name", [name for name in registry.DECODERS if name not in ("double_token", "mask_predict")])
def test_every_decoder_runs_at_every_width(run: Runner, name: str) -> None:
    for width in (None, 2) if name in run.choices()["width"] else (None,):
        settings = {"from": "en", "to": "de", "decoder": name} | ({"width": width} if width else {})
        start, *_, end = run.run(TEXTS[0], settings)
        assert start["settings"]["decoder"] == spec(name, width)
        assert (start["settings"]["projection"], start["settings"]["engine"]) == ("exact", "torch")
        assert end["event"] == "end" and isinstance(end["greedy"]["identical"], bool)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_a_copy_runs(run: Runner, copied: Any) -> None:
    *_, end = copied(run).run(TEXTS[0], CHOSEN)
    *_, expected = run.run(TEXTS[0], CHOSEN)
    assert end["hypotheses"] == expected["hypotheses"]


def test_the_usual_decoders() -> None:
    assert DECODERS == ("window:width=3", "jacobi", "gauss_seidel:block=3", "hybrid:block=3", "greedy", "beam:size=5")
    assert all(registry.decoder(one) for one in DECODERS)


def test_precision_is_that_of_the_model(run: Runner) -> None:
    outputs = {}
    for precision in ("float64", "float32"):
        start, first, *_ = run.run(TEXTS[0], CHOSEN | {"precision": precision})
        assert start["settings"]["dtype"] == precision and start["settings"]["model"] == run.model.name
        outputs[precision] = first["probabilities"]
    assert outputs["float64"] != outputs["float32"]
    assert outputs["float64"] == pytest.approx(outputs["float32"], rel=1e-4)
    assert run._model("auto", "float64") is run.model
    again = run._model("auto", "float32")
    assert again is run._model("auto", "float32") and (again.engine, again.dtype) == ("torch", "float32")


def test_the_engine_follows_the_precision(run: Runner) -> None:
    for chosen, engine in (
        ({"precision": "int8"}, "compiled"),
        ({"precision": "float32", "engine": "compiled"}, "compiled"),
        ({"precision": "float64"}, "torch"),
    ):
        start, *_ = run.run(TEXTS[0], CHOSEN | chosen)
        assert (start["settings"]["engine"], start["settings"]["dtype"]) == (engine, chosen["precision"])
    with pytest.raises(ValueError, match="The compiled engine does not compute in float64. Use engine torch, or auto."):
        list(run.run(TEXTS[0], CHOSEN | {"engine": "compiled", "precision": "float64"}))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"decoder": "jacoby"}, "Unknown decoder: got 'jacoby'. Did you mean 'jacobi'?"),
    ({"width": 0}, "The width of window is a whole number from 1 on: got 0. Example: 3."),
    ({"width": "4"}, "The width of window is a whole number from 1 on: got '4'. Example: 3."),
    ({"decoder": "jacobi", "width": 4}, "The decoder jacobi has no width: got width=4. Leave width out."),
    ({"projection": "cluster"}, "Unknown projection: got 'cluster'. Use one of exact, quantised."),
    ({"precision": "float8"}, "Unknown precision: got 'float8'. Did you mean 'float64'?"),
    ({"engine": "jax"}, "Unknown engine: got 'jax'. Use one of auto, compiled, torch."),
    ({"from": "xx"}, "Unknown source language: got 'xx'."),
    ({"colour": "red"}, f"Unknown setting: got 'colour'. Use one of {', '.join(SETTINGS)}."),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED)
def test_unknown_values_are_refused(run: Runner, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        list(run.run(TEXTS[0], settings))
    assert str(caught.value).startswith(said)


def test_its_code_does_the_same(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    import ddgviz

    text = 'She said: "It\'s\\n late." \u2028'
    settings = {"from": "de", "to": "en", "decoder": "gauss_seidel", "width": 4, "precision": "float64"}
    other = settings | {"decoder": "window", "width": 2}
    (*_, end) = run.run(text, settings)
    assert end["event"] == "end" and end["greedy"]["identical"] is True
    shown: list[Any] = []
    monkeypatch.setattr(ddgviz, "show", shown.append, raising=False)
    monkeypatch.setattr(ddgviz, "compare", lambda *both: shown.extend(both), raising=False)
    exec(compile(run.code(settings | {"text": text}), "code", "exec"), {})
    exec(compile(run.code(settings | {"text": text, "against": other}), "code", "exec"), {})
    traces: list[Trace] = [result.trace for result in shown]
    assert [trace.settings["decoder"] for trace in traces] == [
        "gauss_seidel:block=4",
        "gauss_seidel:block=4",
        "window:width=2",
    ]
    for trace in traces:
        assert trace.source["text"] == text and trace.settings["dtype"] == "float64"
        assert (trace.source["language"], trace.target["language"]) == ("de", "en")
        assert [list(h.tokens) for h in trace.hypotheses] == [h["tokens"] for h in end["hypotheses"]]
    compile(run.code({}), "code", "exec")


def test_it_stops_when_asked(run: Runner) -> None:
    events = list(run.run(TEXTS[4], {"from": "en", "to": "de"}, stop=lambda: True))
    assert [e["event"] for e in events] == ["start", "iteration", "end"]
    assert events[-1]["hypotheses"][0]["stop"] == "interrupted"
    assert events[0]["settings"]["decoder"] == "window:width=3"


def test_widths_and_projections_are_weighed_in_turns() -> None:
    run, told = runner(load("tatoeba-small", device="cpu")), []
    rows = run.weigh(TEXTS[0], told=told.append)
    projections = run.choices()["projection"]
    assert projections == ["exact", "quantised", "clustered", "screened", "lexical"]
    assert [(row["projection"], row["width"]) for row in rows] == [(p, w) for p in projections for w in WEIGHED_WIDTHS]
    assert told[-1] == 1 and told == sorted(told) and len(told) > FEWEST
    first = rows[0]
    assert (first["decoder"], first["projection"], first["speedup"], first["kept"]) == ("greedy", "exact", 1, 1)
    assert all(row["kept"] == 1 for row in rows if row["projection"] in ("exact", "quantised"))
    assert {row["projection"] for row in rows if row["clusters"]} == {"clustered", "screened"}
    passes = {row["width"]: row["passes"] for row in rows if row["projection"] == "exact"}
    assert passes[1] >= passes[2] >= passes[8]
    for row in rows[:: len(WEIGHED_WIDTHS)]:
        start, *_, _ = run.run(TEXTS[0], row["settings"])
        assert start["settings"]["projection"] == row["projection"]
        assert (start["source"]["language"], start["target"]["language"]) == ("en", "de")
    assert run.weigh(TEXTS[0], stop=lambda: True) == []
    with pytest.raises(ValueError, match="A sentence with content is needed: got ' '"):
        run.weigh(" ")


def test_a_direction_is_weighed_with_the_projections_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the bundled model that lost what belongs to one direction."""
    monkeypatch.setattr(runners, "FEWEST", 1)
    monkeypatch.setattr(runners, "SECONDS", 1e-9)
    bundled = load("tatoeba-small", device="cpu").checkpoint.folder
    folder = Path(shutil.copytree(bundled, tmp_path / "model"))
    (folder / "draft-tables" / "en-fr.safetensors").unlink()
    index = folder / "projections" / "screened" / "screens.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    del content["parts"]["en-fr"]
    index.write_text(json.dumps(content), encoding="utf-8")
    run = runner(load(str(folder), device="cpu"))
    assert run.choices()["projection"] == ["exact", "quantised", "clustered", "screened", "lexical"]
    offered = {
        to: list(dict.fromkeys(row["projection"] for row in run.weigh("A train.", {"from": "en", "to": to})))
        for to in ("fr", "es")
    }
    assert offered == {
        "fr": ["exact", "quantised", "clustered"],
        "es": ["exact", "quantised", "clustered", "screened", "lexical"],
    }
    with pytest.raises(ValueError, match="does not translate de-fr"):
        run.weigh("Ein Zug.", {"from": "de", "to": "fr"})
