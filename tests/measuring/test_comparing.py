"""The referee: turns are fair, warm-up does not count, and nothing is left changed."""

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import sacrebleu
import torch

from fastdecode_lib import compare, load
from fastdecode_lib.core import Constraints, Measurement, Source, Usage
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring import comparing
from fastdecode_lib.measuring.baselines import baseline, until_end
from fastdecode_lib.measuring.comparing import COLUMNS, decoder_system
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import quality, signatures
from fastdecode_lib.measuring.referee import TURN, System, measure, median_interval, noisy, ratio_of
from fastdecode_lib.translation import Session

SOURCES = [Source(np.array([[i, i + 1]]), np.array([2])) for i in (3, 5, 7)]


def logging_system(name: str, log: list[str]) -> System:
    def decode(source: Source) -> tuple[int, ...]:
        log.append(name)
        return (int(source.ids[0, 0]),)

    return System(name, decode)


def test_systems_run_in_turn() -> None:
    log: list[str] = []
    found = measure([logging_system("A", log), logging_system("B", log)], SOURCES, runs=3, warm_up=2)
    rounds = ["".join(log[start : start + 6]) for start in range(0, 30, 6)]
    assert set(rounds) == {"AAABBB", "BBBAAA"}, "either goes first"
    assert [m.name for m in found] == ["A", "B"]
    assert all(m.seconds.shape == (3,) and (m.seconds > 0).all() for m in found)
    assert found[0].outputs == ((3,), (5,), (7,))
    assert found[0].usage is None


def test_turns_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn takes `TURN` on average; a machine whose speed drifts changes neither ratio nor interval much."""
    clock, log = [0.0], []

    def system(name: str, cost: float) -> System:
        def decode(source: Source) -> tuple[int, ...]:
            log.append(name)
            clock[0] += cost * (1.5 + np.sin(clock[0] / 3))
            return (int(source.ids[0, 0]),)

        return System(name, decode)

    monkeypatch.setattr("fastdecode_lib.measuring.referee.perf_counter", lambda: clock[0])
    sources = [Source(np.array([[i]]), np.array([1])) for i in range(120)]
    slow, fast = measure([system("A", 0.05), system("B", 0.005)], sources, runs=11)
    first, last = ("".join(part) for part in (log[:240], log[-240:]))
    assert first in ("A" * 120 + "B" * 120, "B" * 120 + "A" * 120), "the warm-up finds out how many turns there are"
    turns = [len(turn) for turn in re.findall("A+|B+", last)]
    assert len(turns) > 15 and max(turns) <= 2 * min(turns) + 2, (
        "turns are alike; the same system may have two in a row"
    )
    assert 0.5 * TURN < 1.5 * (0.05 + 0.005) / 2 * np.median(turns) < 2.5 * TURN
    expected = tuple((i,) for i in range(120))
    assert all(len(m.seconds) == 11 and m.outputs == expected for m in (slow, fast))
    speedup = ratio_of("speedup", slow.seconds, fast.seconds)
    assert speedup["speedup"] == pytest.approx(10, rel=0.05) and not noisy(*speedup.values())
    assert np.ptp(slow.seconds) > 0.1 * np.median(slow.seconds), "its times alone vary"


def test_turns_of_the_fastest_system_are_not_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes a thousandth of another's time still decodes for a while at a time; one of another process as well."""
    clock, parts = [0.0], []

    def decode(_: Source) -> tuple[int, ...]:
        clock[0] += 1
        return ()

    def timed(part: Any) -> tuple[float, tuple[tuple[int, ...], ...]]:
        parts.append(len(part))
        return 0.001 * len(part), tuple((len(parts),) for _ in part)

    monkeypatch.setattr("fastdecode_lib.measuring.referee.perf_counter", lambda: clock[0])
    _, fast = measure([System("A", decode), System("B", decode, timed=timed)], SOURCES * 20, runs=2)
    assert parts == [60, 30, 30, 30, 30] and fast.seconds == pytest.approx([0.06, 0.06])
    assert fast.outputs == ((4,),) * 30 + ((5,),) * 30, "the outputs of the last round"


def test_warm_up_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], [0]

    def decode(_: Source) -> tuple[int, ...]:
        calls[0] += 1
        clock[0] += 100.0 if calls[0] <= 2 else 1.0
        return ()

    monkeypatch.setattr("fastdecode_lib.measuring.referee.perf_counter", lambda: clock[0])
    (found,) = measure([System("slow start", decode)], SOURCES[:1], runs=4, warm_up=2)
    assert found.seconds.tolist() == [1.0] * 4


def test_the_device_is_waited_for_before_each_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def clock() -> float:
        log.append("clock")
        return float(len(log))

    monkeypatch.setattr("fastdecode_lib.measuring.referee.perf_counter", clock)
    monkeypatch.setattr("fastdecode_lib.measuring.referee.synchroniser", lambda device: lambda: log.append(device))
    measure([logging_system("A", log)], SOURCES[:1], runs=1, warm_up=0, device="wait")
    assert log == ["wait", "clock", "A", "wait", "clock"]


def test_counting_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def slow(*_: object) -> Any:
        clock[0] += 1000.0
        return Usage(passes=2)

    monkeypatch.setattr("fastdecode_lib.measuring.referee.perf_counter", lambda: clock[0])
    (found,) = measure([System("A", lambda _: (1, 2), slow)], SOURCES, runs=2)
    assert found.seconds.tolist() == [0.0, 0.0] and found.usage == Usage(passes=6)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_leaves_threads_and_garbage_collection_as_they_were(fails: bool) -> None:
    seen: list[tuple[int, bool, bool]] = []

    def decode(_: Source) -> tuple[int, ...]:
        seen.append((torch.get_num_threads(), gc.isenabled(), gc.get_freeze_count() > 0))
        if fails:
            raise RuntimeError("broken")
        return ()

    before = torch.get_num_threads()
    gc.unfreeze()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for enabled in (True, False):
                (gc.enable if enabled else gc.disable)()
                seen.clear()
                if fails:
                    with pytest.raises(RuntimeError):
                        measure([System("A", decode)], SOURCES, runs=1, threads=3 - threads)
                else:
                    measure([System("A", decode)], SOURCES, runs=1, threads=3 - threads)
                assert set(seen) == {(3 - threads, False, True)}
                assert torch.get_num_threads() == threads and gc.isenabled() == enabled
                assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
        gc.freeze()
        torch.set_num_threads(before)


def test_runs_must_be_some() -> None:
    with pytest.raises(ValueError, match=r"A measurement needs runs >= 1, got 0\. Use runs=9"):
        measure([], SOURCES, runs=0)


def test_the_interval_of_a_median() -> None:
    assert np.isnan(median_interval(np.arange(5.0))).all(), "five values have no interval of 95%"
    assert median_interval(np.array([3.0, 1, 2, 6, 5, 4])) == (1, 6)
    assert median_interval(np.arange(1.0, 16)) == (4, 12)


@pytest.mark.parametrize("rounds", [6, 7, 9, 11, 15, 25])
def test_the_interval_has_the_median_as_often_as_it_says(rounds: int) -> None:
    samples = np.exp(np.random.default_rng(rounds).normal(size=(2_000, rounds)) ** 3)
    low, high = np.array([median_interval(sample) for sample in samples]).T
    assert 0.94 < ((low <= 1) & (high >= 1)).mean() < 0.995


def test_ratios_keep_rounds_together() -> None:
    """A machine that is slow in some rounds is slow for both: their ratio does not vary."""
    rounds = np.array([1.0, 3.0, 1.0, 7.0, 2.0, 1.0])
    assert ratio_of("x", 2 * rounds, rounds) == {"x": 2.0, "x_low": 2.0, "x_high": 2.0}
    with pytest.raises(ValueError, match="Both need the same rounds: got 6 and 4 times"):
        ratio_of("x", rounds, rounds[:4])


def test_languages_without_spaces_have_their_own_tokenizer_of_bleu() -> None:
    reference, output = "我们明天早上去学校。", "我们明天早上去公园。"
    spaced, right = quality([output], [reference])[0], quality([output], [reference], "zh")[0]
    assert spaced < 1 and right == pytest.approx(sacrebleu.corpus_bleu([output], [[reference]], tokenize="zh").score)
    assert right > 50
    assert quality(["私は学生です。"], ["私は学生です。"], "ja")[0] == pytest.approx(100)
    for language, tokenizer in (
        ("zh", "zh"),
        ("zho_Hans", "zh"),
        ("zh_CN", "zh"),
        ("jpn", "char"),
        ("de", "13a"),
        (None, "13a"),
    ):
        assert f"tok:{tokenizer}|" in signatures(language=language)["bleu"]


def test_quality_and_signatures() -> None:
    texts = fakes.own_sentences()["de"][:5]
    assert quality(texts, texts) == (pytest.approx(100), pytest.approx(100))
    assert max(quality(["x"] * 5, texts)) < 10
    assert signatures(False) == {}
    assert all("version:" in signature for signature in signatures().values())


def test_provenance_says_how(marian: TranslationModel) -> None:
    about = provenance(marian, threads=2, seed=7)
    assert about["fingerprint"] == marian.checkpoint.fingerprint and about["dtype"] == "float64"
    assert (about["threads"], about["seed"], about["engine"], about["device"]) == (2, 7, "torch", "cpu")
    assert {"torch", "transformers", "numpy", "sacrebleu"} <= about["versions"].keys()
    assert about["cpu"] and about["cores"] and isinstance(about["cpu_flags"], list)


def test_compare(marian: TranslationModel) -> None:
    sentences, references = ([*fakes.own_sentences()[code][:2], ""] for code in ("en", "de"))
    frame = compare(
        marian, sentences, source="en", target="de", references=references, runs=2, progress=False,
        decoders=("jacobi", "greedy", "gauss_seidel:block=2", "jacobi"), baselines=("hf",),
    )  # fmt: skip
    assert tuple(frame.columns) == (*COLUMNS, "note")
    assert list(frame["name"]) == ["greedy", "jacobi", "gauss_seidel:block=2", "hf"]
    assert (frame["agreement"] == 1.0).all()
    greedy = frame.iloc[0]
    tokens = [len(Session.of(marian, "en", "de").translate(text).tokens) for text in sentences[:2]]
    assert greedy["calls"] == greedy["positions"] == sum(tokens) and greedy["speedup"] == 1.0
    assert frame["chrf"].nunique() == 1
    assert np.isnan(frame.iloc[3]["calls"]) and np.isnan(frame.iloc[3]["positions"])
    assert frame.attrs["provenance"]["sentences"] == 2 and len(frame.attrs["seconds"]["hf"]) == 2


@pytest.mark.parametrize("kind", ["mbart50", "nllb"])
def test_models_of_many_languages_are_compared_in_the_one_that_is_named(
    kind: str, multilingual: Callable[[str], Path]
) -> None:
    model = load(str(multilingual(kind)), device="cpu")
    settings: dict[str, Any] = {"decoders": ("jacobi",), "runs": 1, "progress": False, "max_length": 6}
    with pytest.raises(ValueError, match="several target languages: got none. Pass one of"):
        compare(model, ["Hello."], **settings)
    frame = compare(model, ["Hello."], source="en", target="de", **settings)
    assert list(frame["name"]) == ["jacobi"] and (frame["agreement"] == 1).all()


def test_a_ratio_is_noisy_if_its_interval_is_wide() -> None:
    quiet, loud, brief = (np.array(times) for times in ([1.0, 1.0, 1.01] * 2, [1.0, 1.3, 1.7] * 2, [1.0, 2.0]))
    ratios = [
        ratio_of("x", a, b) for a, b in ((quiet, quiet), (loud, quiet), (quiet, loud), (loud, loud), (brief, brief))
    ]
    assert [bool(noisy(*ratio.values())) for ratio in ratios] == [False, True, True, False, False]


def test_a_margin_is_noted_in_the_row_it_belongs_to(marian: TranslationModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def changed(systems: Any, sources: Any, **_: Any) -> list[Measurement]:
        """All systems have one output, those with a projection another."""
        return [Measurement(s.name, np.ones(6), tuple((int("+" in s.name),) for _ in sources)) for s in systems]

    monkeypatch.setattr(comparing, "measure", changed)
    monkeypatch.setattr(comparing, "largest_margin", lambda _, other, __: asked.append(other.projection_name) or 0.5)
    limits: dict[str, Any] = {"source": "en", "target": "de", "progress": False}
    frame = compare(
        marian,
        "Hello.",
        decoders="window:width=3",
        projections=["exact", "quantised", "svd:full=40,window=4"],
        **limits,
    )
    notes = dict(zip(frame["name"], frame["note"], strict=True))
    assert asked == ["quantised"] and {name: note for name, note in notes.items() if note} == {
        "window:width=3+quantised": "differs where the top-2 margin is at most 5.0e-01"
    }


def test_a_lossy_system_shows(marian: TranslationModel) -> None:
    beam = decoder_system(Session.of(marian, "en", "de", "beam:size=4"))
    greedy = decoder_system(Session.of(marian, "en", "de"))
    sources = [marian.encode([text], "en", "de") for text in fakes.own_sentences()["en"][:6]]
    assert beam.name == "beam:size=4"
    assert [beam.decode(s) for s in sources] != [greedy.decode(s) for s in sources]
    assert beam.count is not None and beam.count(sources[0]).positions > beam.count(sources[0]).passes


def test_references_that_do_not_match(marian: TranslationModel) -> None:
    message = (
        r"Each sentence needs one reference: got 2 sentences and 1 references\. Check that the files have the same"
    )
    with pytest.raises(ValueError, match=message):
        compare(marian, ["a", "b"], references=["c"])
    with pytest.raises(ValueError, match=r"nothing to compare on: got no sentence with content\. Give at least one"):
        compare(marian, ["", " \u200b"])
    with pytest.raises(ValueError, match=r"Sentence 2 is no text: got int\. Give a string"):
        compare(marian, ["Hello.", 1])  # type: ignore[list-item]


def test_one_name_stands_for_a_list_of_one(marian: TranslationModel) -> None:
    limits: dict[str, Any] = {"source": "en", "target": "de", "runs": 1, "progress": False, "max_length": 8}
    several = compare(marian, ["Hello."], decoders=["jacobi"], projections=["quantised"], baselines=["hf"], **limits)
    one = compare(marian, "Hello.", decoders="jacobi", projections="quantised", baselines="hf", **limits)
    assert one["name"].tolist() == several["name"].tolist() == ["jacobi+quantised", "hf"]
    session = Session.of(marian, "en", "de", max_length=8)
    assert [h.tokens for h in session.decode("Hello.")] == [session.translate("Hello.").tokens]
    assert [t.tokens for t in session.translate_all("Hello.")] == [session.translate("Hello.").tokens]


def test_plain_greedy_decoding_has_a_row_only_if_it_was_asked_for(marian: TranslationModel) -> None:
    limits: dict[str, Any] = {"runs": 1, "progress": False, "max_length": 8}
    frame = compare(marian, "Hello.", decoders=["greedy"], projections=["quantised"], **limits)
    assert frame.name.tolist() == ["greedy+quantised"]
    frame = compare(marian, "Hello.", decoders=["greedy"], baselines=["hf", "hf"], **limits)
    assert frame.name.tolist() == ["greedy", "hf"], "a baseline named twice is timed once"


def test_unknown_baseline(marian: TranslationModel) -> None:
    with pytest.raises(ValueError, match=r"Unknown baseline: got 'hff'\. Use one of hf, ctranslate2"):
        compare(marian, ["a"], baselines=("hff",))


def test_huggingface_baseline_obeys_the_constraints(marian: TranslationModel) -> None:
    for limits in ({"max_length": 5}, {"min_length": 9}, {"max_length": 1}):
        session = Session.of(marian, "en", "de", **limits)
        decode = baseline("hf", marian, session.constraints, 1)
        for text in fakes.own_sentences()["en"][:3]:
            (ours,) = session.decode([text])
            source = marian.encode([text], "en", "de")
            assert decode(source) == until_end(list(ours.tokens), session.constraints)


def test_until_end() -> None:
    rules = Constraints(prefix=(1,), end=(0, 9), max_length=5)
    assert until_end([3, 4, 9, 5], rules) == (3, 4)
    assert until_end(np.array([3, 4]), rules) == (3, 4)
    assert until_end([], rules) == ()


def test_a_baseline_that_does_not_run_the_model_says_so() -> None:
    model = load("sharp-s4")
    for name in ("hf", "ctranslate2"):
        with pytest.raises(ValueError, match=r"fastdecode_recurrent model.*Leave (it|out)"):
            compare(model, ["Hello."], baselines=[name], runs=1, progress=False)


def test_a_converter_that_fails_is_said(
    multilingual: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = load(str(multilingual("m2m")), device="cpu")  # more rows than tokens
    with pytest.raises(ValueError, match=r"CTranslate2 .* cannot convert .*vocabulary.*Leave the baseline out"):
        baseline("ctranslate2", model, model.constraints("de"), 1)


def test_ctranslate2_counts_a_forced_language(
    multilingual: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = load(str(multilingual("nllb")), device="cpu")
    session = Session.of(model, "en", "de", max_length=7)
    decode = baseline("ctranslate2", model, session.constraints, 1)
    for text in ("a b", "b a c", "c"):
        (ours,) = session.decode([text])
        assert decode(model.encode([text], "en", "de")) == until_end(list(ours.tokens), session.constraints)
