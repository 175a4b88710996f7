"""Text in, text and trace out."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import fakes
import numpy as np
import pytest

import fastdecode_lib.hf
from fastdecode_lib import compare, load, registry, translate
from fastdecode_lib.core import Constraints, Model, Projection
from fastdecode_lib.decoding.jacobi import GaussSeidel
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.sources import FILE_OPTIONS, Draft
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.runners import events as run_events
from fastdecode_lib.store import ModelFiles
from fastdecode_lib.text.languages import UnknownLanguage
from fastdecode_lib.trace import Trace
from fastdecode_lib.training import draft_tables
from fastdecode_lib.translation import SESSIONS, Session, Translation

TEXTS = fakes.own_sentences()["en"][:6]
DECODERS = ("greedy", "beam:size=3", "jacobi", "gauss_seidel:block=3", "hybrid:block=3,length=5")
LOSSLESS = tuple(name for name in DECODERS if not name.startswith("beam"))
EMPTY = ("", " ", "\t \n", "\u3000\u00a0", "\u200b", "\u200b \ufeff\u200b", "\u2060"[:0] + "\r\n")


@pytest.fixture
def no_model_calls(marian: TranslationModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*_: object, **__: object) -> None:
        raise AssertionError("the model was called")

    for name in ("encode", "start", "step"):
        monkeypatch.setattr(marian.network, name, called)


# ---------------------------------------------------------------------------------------------------------- translate


@pytest.mark.parametrize("name", DECODERS)
def test_translate(marian: TranslationModel, name: str) -> None:
    result = translate(marian, TEXTS[0], source="en", target="de", decoder=name, verify=True)
    assert isinstance(result, Translation)
    assert result.source == TEXTS[0] and str(result) == result.text == result.trace.target["text"]
    assert result.text == marian.tokenizer.decode(result.tokens)
    trace = result.trace
    assert trace.source == {
        "text": TEXTS[0],
        "language": "en",
        "pieces": marian.tokenizer.source_tokens(marian.encode([TEXTS[0]], "en", "de").ids[0]),
    }
    assert trace.source["pieces"][0] == ">>deu<<" and trace.source["pieces"][-1] == "</s>"
    assert trace.settings == {
        "model": marian.name, "decoder": name, "projection": "exact", "engine": "torch", "dtype": "float64",
        "vocabulary": marian.network.outputs[0].vocabulary,
        "device": "cpu",
    }  # fmt: skip
    greedy = translate(marian, TEXTS[0], source="en", target="de", verify=True)
    assert trace.greedy is not None and trace.greedy["calls"] == len(greedy.tokens) == greedy.trace.calls
    assert trace.greedy["identical"] == (result.tokens == greedy.tokens)
    if name in LOSSLESS:
        assert trace.greedy["identical"] and result.tokens == greedy.tokens
    used = {t for i in trace.iterations for t in (*i.tokens.tolist(), *i.drafts.tolist()) if t >= 0}
    assert used <= trace.pieces.keys()
    assert trace.pieces == {i: marian.tokenizer.pieces([i])[0] for i in trace.pieces}


def test_the_target_language_reaches_the_model(marian: TranslationModel) -> None:
    german, french = (translate(marian, TEXTS[1], source="en", target=code) for code in ("de", "fr"))
    assert german.trace.source["pieces"][0] == ">>deu<<" and french.trace.source["pieces"][0] == ">>fra<<"
    assert german.tokens != french.tokens


def test_a_forced_language_stands_in_the_prefix(multilingual: Callable[[str], Path]) -> None:
    model = fastdecode_lib.load(str(multilingual("mbart50")), device="cpu", dtype="float64")
    german, french = (model.constraints(code).prefix for code in ("de", "fr"))
    assert len(german) == 2 and german[0] == french[0] and german[1] != french[1]
    one = translate(model, TEXTS[1], source="en", target="de", decoder="jacobi", verify=True)
    other = translate(model, TEXTS[1], source="en_XX", target="de_DE", decoder="greedy")
    assert one.tokens == other.tokens and one.trace.greedy is not None and one.trace.greedy["identical"]
    assert other.trace.source["language"] == "en" and other.trace.target["language"] == "de"


def test_several_texts_in_order(marian: TranslationModel) -> None:
    texts = [TEXTS[2], "", TEXTS[0]]
    results = translate(marian, texts, source="en", target="de")
    assert [r.source for r in results] == texts
    assert [r.tokens for r in results] == [translate(marian, t, source="en", target="de").tokens for t in texts]
    assert translate(marian, [], source="en", target="de") == []


def test_without_observation_no_probabilities(marian: TranslationModel) -> None:
    seen = translate(marian, TEXTS[0], decoder="jacobi")
    bare = translate(marian, TEXTS[0], decoder="jacobi", observe=False)
    assert all(i.probabilities is not None for i in seen.trace.iterations)
    assert all(i.probabilities is None for i in bare.trace.iterations)
    assert seen.tokens == bare.tokens


def test_objects_in_place_of_names(marian: TranslationModel) -> None:
    projection = registry.projection("exact", marian.network)
    result = translate(marian, TEXTS[0], decoder=GaussSeidel(block=5), projection=projection)
    assert result.trace.settings["decoder"] == "gauss_seidel:block=5"
    assert result.trace.settings["projection"] == "exact"
    assert result.tokens == translate(marian, TEXTS[0]).tokens
    assert registry.describe(GaussSeidel()) == "gauss_seidel"


@pytest.mark.parametrize("text", EMPTY)
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.usefixtures("no_model_calls")
def test_text_without_content(marian: TranslationModel, text: str, name: str) -> None:
    result = translate(marian, text, source="en", target="de", decoder=name, verify=True)
    assert (result.source, result.text, result.tokens) == (text, "", ())
    assert result.trace.iterations == [] and result.trace.source["pieces"] == []
    assert Trace.from_json(result.trace.to_json()).to_json() == result.trace.to_json()
    session = Session.of(marian, "en", "de", name)
    assert [h.tokens for h in session.decode([text, text])] == [(), ()]


# -------------------------------------------------------------------------------------------------------------- decode


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "double_token",
            "double_token needs a causal model of several tokens a step, got a causal model of one token a step",
        ),
        ("mask_predict", "mask_predict needs a masked model, got a causal model of one token a step"),
        ("window:draft=model", "needs a model that drafts, got none"),
        ("window:draft=lexicon", "needs a draft table, got none"),
    ],
)
@pytest.mark.usefixtures("no_model_calls")
def test_a_decoder_that_does_not_fit_is_refused_before_any_work(marian: TranslationModel, spec: str, said: str) -> None:
    """Also where others would decode first."""
    with pytest.raises(ValueError, match=said):
        Session.of(marian, "en", "de", spec)
    with pytest.raises(ValueError, match=said):
        compare(marian, TEXTS, source="en", target="de", decoders=("greedy", spec), runs=1, progress=False)


def test_decode_keeps_the_order(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de")
    texts = [TEXTS[3], "", "Yes.", "\u200b", TEXTS[1], TEXTS[0], "  "]
    expected = [translate(marian, text, source="en", target="de").tokens for text in texts]
    for batch in (1, 2, 32):
        assert [h.tokens for h in session.decode(texts, batch=batch)] == expected
    assert session.decode([]) == []


def test_counted_counts(marian: TranslationModel) -> None:
    counted = Counted(marian.network)
    source = marian.encode(TEXTS[:2], "en", "de")
    encoded = counted.encode(source)
    state = counted.start(encoded, np.array([[5, 6, 7], [5, 6, 7]]))
    counted.step(state, np.array([[7, 8], [7, -1]]))
    counted.step(state, np.array([[9], [-1]]))
    usage = counted.usage
    assert (usage.encoder_calls, usage.passes, usage.positions, usage.rows) == (1, 3, 4 + 3 + 1, 2 + 2 + 1)
    assert counted.max_target == marian.network.max_target
    total = usage + usage
    assert (total.encoder_calls, total.passes, total.positions, total.rows) == (2, 6, 16, 10)


# -------------------------------------------------------------------------------------------------------------- events


@pytest.mark.parametrize("name", DECODERS)
def test_events_are_the_trace_in_pieces(marian: TranslationModel, name: str) -> None:
    session = Session.of(marian, "en", "de", name)
    events = list(run_events(session, TEXTS[4], verify=True))
    json.dumps(events, allow_nan=False)
    assert [e["event"] for e in events] == ["start", *["iteration"] * (len(events) - 2), "end"]
    start, *iterations, end = events
    assert start.keys() == {"event", "format", "version", "source", "target", "settings", "end"}
    assert start["format"] == "fastdecode-trace" and start["version"] == 1 and start["target"]["language"] == "de"
    assert end.keys() == {"event", "target", "pieces", "hypotheses", "greedy", "edges"}
    seen: dict[str, str] = {}
    for number, event in enumerate(iterations):
        assert event["call"] == number
        assert not event["pieces"].keys() & seen.keys(), "only ids not seen before"
        seen |= event["pieces"]
        lanes = [token for lane in event["lanes"] or () for token in lane["tokens"]]
        assert {str(t) for t in (*event["tokens"], *event["drafts"], *lanes) if t >= 0} <= seen.keys()
        widths = {len(event[k]) for k in ("slots", "drafts", "origins", "tokens", "status")}
        assert len(widths) == 1 and event["slots"] == sorted(event["slots"])
    assert end["pieces"] == seen
    trace = translate(marian, TEXTS[4], source="en", target="de", decoder=name, verify=True).trace
    assert end["hypotheses"] == trace.to_dict()["hypotheses"] and end["greedy"] == trace.greedy
    assert [i["tokens"] for i in iterations] == [i.tokens.tolist() for i in trace.iterations]


@pytest.mark.parametrize("name", ["greedy", "jacobi", "gauss_seidel:block=3", "beam:size=3"])
@pytest.mark.parametrize("after", [1, 3])
def test_stopping(marian: TranslationModel, name: str, after: int) -> None:
    session = Session.of(marian, "en", "de", name)
    whole = session.translate(TEXTS[4])
    assert whole.trace.calls > after
    running, passes = run_events(session, TEXTS[4], verify=True, stop=lambda: len(events) >= after), 0
    events: list[dict[str, Any]] = []
    while True:
        try:
            event = next(running)
        except StopIteration as end:
            trace: Trace = end.value
            break
        if event["event"] == "iteration":
            events.append(event)
            passes += 1
    assert event["event"] == "end" and passes == after == trace.calls
    (hypothesis,) = trace.hypotheses
    assert hypothesis.stop == "interrupted" and trace.greedy is None
    assert hypothesis.tokens == whole.tokens[: len(hypothesis.tokens)]
    assert len(hypothesis.tokens) >= (0 if name.startswith("beam") else after)
    assert trace.target["text"] == marian.tokenizer.decode(hypothesis.tokens)
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()


def test_stopping_after_the_last_pass_changes_nothing(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de", max_length=4)
    (*_, end) = run_events(session, TEXTS[4])
    assert end["hypotheses"][0]["tokens"] == list(session.translate(TEXTS[4]).tokens)


# --------------------------------------------------------------------------------------------------------------- trace


@pytest.mark.parametrize("name", DECODERS)
def test_a_trace_survives_json(marian: TranslationModel, name: str) -> None:
    trace = translate(marian, TEXTS[5], source="en", target="fr", decoder=name, verify=True).trace
    text = trace.to_json()
    again = Trace.from_json(text)
    assert again.to_json() == text and again.tokens == trace.tokens and again.calls == trace.calls
    assert again.pieces == trace.pieces and again.greedy == trace.greedy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, r'Not a decoding trace: expected "format": "fastdecode-trace", got \'other\'. See docs'),
        ({"version": 9}, "has version 9, this fastdecode reads version 1. Update"),
        ({"iterations": [{}]}, "The trace is damaged: KeyError.*Record it again"),
        ({"hypotheses": 5}, "The trace is damaged.*Record it again"),
        ({"pieces": []}, "The trace is damaged.*Record it again"),
    ],
)
def test_damaged_traces(marian: TranslationModel, change: dict[str, object], message: str) -> None:
    good = translate(marian, TEXTS[0]).trace.to_dict()
    with pytest.raises(ValueError, match=message):
        Trace.from_dict(good | change)


@pytest.mark.parametrize(
    "decoder", ["greedy", "jacobi", "gauss_seidel:block=3", "window:width=3", "auto", "beam:size=2"]
)
def test_an_end_that_was_forced_at_the_longest_length_is_told_from_the_models_own(decoder: str) -> None:
    model, text = load("tatoeba-small", device="cpu"), "The bus is late."
    whole = translate(model, text, source="en", target="de", decoder=decoder)
    cut = translate(model, text, source="en", target="de", decoder=decoder, max_length=4)
    assert (whole.trace.hypotheses[0].stop, cut.trace.hypotheses[0].stop) == ("end", "length")
    assert whole.tokens[-1] == cut.tokens[-1] and len(cut.tokens) == 4


def test_a_trace_cut_short(marian: TranslationModel) -> None:
    text = translate(marian, TEXTS[0]).trace.to_json()
    with pytest.raises(ValueError, match="not JSON.*It may be cut short; record it again"):
        Trace.from_json(text[:-20])
    with pytest.raises(ValueError, match="Not a decoding trace.*got 'list'"):
        Trace.from_json("[]")


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"source": "eng_", "target": "dd"},
            r"Unknown target language: got 'dd'\. Did you mean 'de'\? This model knows",
        ),
        ({"source": "enn"}, r"Unknown source language: got 'enn'\. Did you mean 'en'\?"),
        ({"source": "de", "target": "fr"}, r"does not translate de-fr\. It knows en-de, de-en"),
    ],
)
def test_unknown_languages(marian: TranslationModel, options: dict[str, str], message: str) -> None:
    with pytest.raises(UnknownLanguage, match=message):
        translate(marian, "a", **options)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gredy", r"Unknown decoder: got 'gredy'\. Did you mean 'greedy'\? Known: greedy, beam, jacobi"),
        ("zzz", r"Unknown decoder: got 'zzz'\. Use one of greedy, beam"),
        ("", r"Unknown decoder: got ''\. Use one of greedy"),
        ("gauss_seidel:blok=3", r"Unknown option of gauss_seidel: got 'blok'\. Did you mean 'block'\?"),
        ("greedy:block=3", r"Unknown option of greedy: got 'block'\. greedy has no options"),
        ("beam:block=3", r"Unknown option of beam: got 'block'\. Use one of size, length_penalty"),
        ("gauss_seidel:block=three", r"gauss_seidel: block must be a whole number, got 'three'\. Example: 3"),
        ("gauss_seidel:block=2.5", r"gauss_seidel: block must be a whole number, got '2.5'\. Example: 3"),
        ("beam:length_penalty=x", r"beam: length_penalty must be a number, got 'x'\. Example: 1.2"),
        ("gauss_seidel:block", r"An option is written key=value: got 'block' in 'gauss_seidel:block'\. Example"),
        ("gauss_seidel:block=", r"An option is written key=value: got 'block='"),
        ("gauss_seidel:block=0", r"gauss_seidel needs block >= 1, got 0\. Use block=1 for plain greedy decoding"),
        ("hybrid:block=-2", r"hybrid needs block >= 1, got -2\. Use block=1"),
        ("hybrid:length=-1", r"hybrid needs length >= 0, got -1\. Leave it out"),
        ("jacobi:oracle_length=0", r"jacobi needs oracle_length >= 1, got 0\. Leave it out"),
        ("jacobi:ratio=-1", r"jacobi needs ratio >= 0 and extra >= 0, not both 0: got ratio=-1.0, extra=5\. The guess"),
        ("jacobi:ratio=0,extra=0", r"not both 0: got ratio=0.0, extra=0"),
        ("jacobi:ratio=nan", r"got ratio=nan"),
        ("hybrid:ratio=inf", r"got ratio=inf"),
        ("beam:size=0", r"beam needs size >= 1, got 0\. Use size=1 for greedy decoding"),
        ("beam:length_penalty=inf", r"beam needs length_penalty from -100 to 100, got inf\. 1\.0 divides"),
        ("beam:length_penalty=nan", r"beam needs length_penalty from -100 to 100, got nan"),
    ],
)
def test_decoders_that_cannot_be(marian: TranslationModel, spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translate(marian, "a", decoder=spec)


def test_none_as_a_value() -> None:
    assert registry.decoder("jacobi:oracle_length=none") == registry.decoder(" jacobi ")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("exakt", r"Unknown projection: got 'exakt'\. Did you mean 'exact'\?"),
        ("exact:top=3", r"The projection exact has no options: got top\. Use 'exact' alone"),
    ],
)
def test_projections_that_cannot_be(marian: TranslationModel, spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translate(marian, "a", projection=spec)


def test_what_is_fitted_on_float_weights_says_so_to_bytes() -> None:
    with pytest.raises(ValueError, match="The projection svd is fitted on float weights: got an output matrix in int8"):
        translate(load("tatoeba-small", device="cpu", precision="int8"), "a", projection="svd")


def test_a_beam_is_no_wider_than_the_vocabulary(marian: TranslationModel) -> None:
    known = marian.network.outputs[0].vocabulary
    with pytest.raises(ValueError, match=rf"at most the vocabulary, {known}: got {known + 1}\. Use beam:size=5"):
        translate(marian, "a", decoder=f"beam:size={known + 1}")


def test_a_source_that_is_too_long(marian: TranslationModel) -> None:
    text = "house " * fakes.POSITIONS
    message = rf"The source is too long: sentence 1 has \d+ tokens, {marian.name} allows {fakes.POSITIONS}\. Split it"
    with pytest.raises(ValueError, match=message):
        translate(marian, text)
    with pytest.raises(ValueError, match=r"sentence 2 has \d+ tokens"):
        marian.encode(["a", text], "en", "de")
    with pytest.raises(ValueError, match="too long"):
        marian.network.encode(marian.tokenizer.encode([text], "en", "de"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bad \udcff byte", r"Sentence 1 is no valid Unicode: got 'bad \\udcff byte'\. Decode the bytes"),
        ("\ud83d", "Sentence 1 is no valid Unicode"),
    ],
)
def test_half_a_character(marian: TranslationModel, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translate(marian, text)
    with pytest.raises(ValueError, match=message):
        Session.of(marian, "en", "de").decode([text])


def test_what_is_no_text(marian: TranslationModel) -> None:
    with pytest.raises(ValueError, match=r"Sentence 1 is no text: got int\. Give a string"):
        translate(marian, [5])  # type: ignore[list-item]
    for text, kind in ((5, "int"), (None, "NoneType"), (b"Hello.", "bytes")):
        with pytest.raises(
            ValueError, match=rf"The text is no string: got {kind}\. Give a string, or a list of strings"
        ):
            translate(marian, text)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"A loaded translation model is needed: got 'Hello\.'\. Use"):
        translate("Hello.", marian)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"A target language is a string: got 3\. Pass one of"):
        translate(marian, "Hello.", target=3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="Sentence 2 is no text: got NoneType"):
        marian.encode(["a", None], "en", "de")  # type: ignore[list-item]


def test_the_longest_source_and_the_longest_output(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de", max_length=fakes.POSITIONS)
    text = next(
        "x" * n
        for n in range(fakes.POSITIONS, 0, -1)
        if marian.tokenizer.encode(["x" * n], "en", "de").lengths[0] <= 64
    )
    for name in LOSSLESS:
        session = Session.of(marian, "en", "de", name, max_length=fakes.POSITIONS, exact_length=fakes.POSITIONS)
        assert len(session.translate(text).tokens) == fakes.POSITIONS


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_length": 65}, r"max_length is too long: got 65, .*holds 64 tokens\. Lower max_length"),
        ({"max_length": 0}, r"max_length must be at least 1, got 0\. Leave room"),
        ({"min_length": 24}, r"min_length must be from 0 to max_length - 1 = 22, got 24\. Lower min_length"),
        ({"min_length": -1}, r"min_length must be from 0"),
        ({"exact_length": 30}, r"exact_length must be from 1 to max_length = 23, got 30\. Raise max_length"),
    ],
)
def test_limits_that_cannot_be(marian: TranslationModel, limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translate(marian, "a", **limits)


def test_constraints_need_a_start_and_an_end() -> None:
    with pytest.raises(ValueError, match=r"need a start symbol and an end symbol: got prefix=\(\), end=\(0,\)\. Take"):
        Constraints(prefix=(), end=(0,), max_length=3)


def test_a_session_that_took_work_is_made_once() -> None:
    """The same again, as long as the files beside the model are the same; a copy of the model has none."""
    model = load("tatoeba-small", device="cpu")
    first = Session.of(model, "en", "de", "window", "clustered")
    assert Session.of(model, "en", "de", "window", "clustered") is first
    assert Session.of(model, "en", "de", "window", "clustered", max_length=9) is not first
    assert Session.of(model, "en", "fr", "window", "clustered") is not first
    assert "sessions" not in copy.deepcopy(model).__dict__
    for width in range(2, 7):
        Session.of(model, "en", "de", f"window:width={width}")
    assert len(model.sessions) == SESSIONS
    assert Session.of(model, "en", "de", "window", "clustered") is not first


def test_a_new_table_makes_a_new_session(
    marian: TranslationModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = Session.of(marian, "en", "de", "window:width=4", max_length=12)
    assert Session.of(marian, "en", "de", "window:width=4", max_length=12) is first
    table = draft_tables.make_table(first, TEXTS, least=1, folder=tmp_path / "work")
    table.save(draft_tables.default_path(first))
    again: Any = Session.of(marian, "en", "de", "window:width=4", max_length=12)
    assert again is not first and again.decoder.drafts.table is not None


Style = Literal["a", "b"] | None


@pytest.mark.parametrize("hint", [str, str | None, Path | None])
def test_what_names_a_file_is_read_again(hint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever its option is called, a file may hold something else the next time."""

    class Listed:
        name, needs = "listed", "nothing"

        @classmethod
        def make(
            cls, network: Model, files: ModelFiles, *, words: hint = None, most: int = 5, style: Style = None
        ) -> Projection:
            read.append(Path(words).read_text(encoding="utf-8") if words else "")
            return CompiledExact.make(network, files)

    read: list[str] = []
    monkeypatch.setitem(registry.PROJECTIONS, "listed", Listed)
    model = load("tatoeba-small", device="cpu")
    for text in ("one", "two"):
        (tmp_path / "words").write_text(text, encoding="utf-8")
        Session.of(model, "en", "de", "greedy", f"listed:words={tmp_path / 'words'}")
        Session.of(model, "en", "de", "greedy", "listed:most=3,style=a")
    assert read == ["one", "", "two"]


def test_a_text_is_a_file_where_no_other_text_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listed:
        name, needs = "listed", "nothing"

        @classmethod
        def make(
            cls,
            network: Model,
            files: ModelFiles,
            *,
            needed: str,
            place: Path,
            near: Path = Path("x"),
            style: str = "plain",
        ) -> Projection:
            return CompiledExact.make(network, files)

    monkeypatch.setitem(registry.PROJECTIONS, "listed", Listed)
    fixed = {name: registry.is_fixed(f"listed:{name}=x") for name in ("needed", "place", "near", "style")}
    assert fixed == {"needed": False, "place": False, "near": False, "style": True}


def test_a_window_refuses_files_that_nothing_reads() -> None:
    for made in (Window.of, fastdecode_lib.hf.window):
        for wrong, hint in (
            ("tabel", "Did you mean 'table'"),
            ("widht", "Did you mean 'width'"),
            ("written", "Its options"),
        ):
            with pytest.raises(TypeError, match=rf"no such option: got '{wrong}'. {hint}"):
                made(**{wrong: None})
    with pytest.raises(TypeError, match=r"got the call of generate itself. Write custom_generate=hf.window\(\)"):
        fastdecode_lib.hf.window(SimpleNamespace(generate=None), None, attention_mask=None)


def test_a_translation_says_whether_it_is_greedy_decodings() -> None:
    model = fastdecode_lib.load("tatoeba-small")
    plain, checked = (
        fastdecode_lib.translate(model, "Thank you.", source="en", target="de", verify=verify)
        for verify in (False, True)
    )
    assert plain.identical is None and checked.identical is True and plain.passes == plain.trace.calls
    assert repr(checked) == f"Translation({checked.text!r}, {checked.trace.summary})"
    assert len(repr(checked.trace)) < 100


@pytest.mark.parametrize("wrong", ["", "tatoeba-small", "The train is late.", 3])
def test_what_is_no_loaded_model_is_refused_everywhere(wrong: Any) -> None:
    for call in (
        lambda: fastdecode_lib.translate(wrong, "The train is late."),
        lambda: fastdecode_lib.runner(wrong),
        lambda: fastdecode_lib.compare(wrong, ["The train is late."]),
    ):
        with pytest.raises(ValueError, match=rf"A loaded translation model is needed: got {wrong!r}. Use "):
            call()


@pytest.mark.parametrize("counts", [{"batch": 0}, {"threads": "two"}, {"batch": True}])
def test_numbers_of_sentences_and_threads_are_checked_for_one_sentence_too(counts: dict[str, Any]) -> None:
    model = fastdecode_lib.load("tatoeba-small")
    for text in ("Thank you.", ["Thank you."]):
        with pytest.raises(ValueError, match="must be a whole number from 1 on: got"):
            fastdecode_lib.translate(model, text, source="en", target="de", **counts)


@pytest.mark.parametrize("option", FILE_OPTIONS)
def test_what_is_no_file_of_a_draft_is_refused(option: str, marian: TranslationModel) -> None:
    written = {"table": "ngram", "model": "model", "head": "head"}[option]
    draft: Any = Draft(written, **{option: 5})
    with pytest.raises(ValueError, match="needs a"):
        draft.check(marian.network)


@pytest.mark.parametrize("option", FILE_OPTIONS)
def test_every_file_of_a_window_is_read_again(option: str) -> None:
    assert option in registry.options(Window) and registry.is_fixed("window:width=3")
    assert not registry.is_fixed(f"window:width=3,{option}=x") and not registry.is_fixed(f"auto:{option}=x")


def test_tags_in_front_of_all_texts_name_their_target(marian: TranslationModel) -> None:
    named = translate(marian, ["Hello.", "Thanks."], source="en", target="fr")
    typed = translate(marian, [">>fra<< Hello.", ">>fra<< Thanks."])
    assert (
        [t.tokens for t in typed]
        == [t.tokens for t in named]
        != [t.tokens for t in translate(marian, ["Hello.", "Thanks."])]
    )
    assert translate(marian, ">>fra<< Hello.").tokens == named[0].tokens
