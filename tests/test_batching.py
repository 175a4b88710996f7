"""Many sentences: their order, batches, threads, errors and Ctrl-C; and what the engines' options allow."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fakes
import numpy as np
import pytest

import fastdecode_lib
from fastdecode_lib import cli, translate
from fastdecode_lib.batching import cores, in_batches
from fastdecode_lib.core import Hypothesis
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.translation import Session

ENGLISH = [text for text in fakes.own_sentences()["en"] if len(text) < 50]
TEXTS = [*ENGLISH[:5], "", *ENGLISH[5:12], "  ", "\u200b", ENGLISH[3]]
LENGTHS = [3, 0, 9, 3, 1, 0, 7, 3]
Run = Callable[[np.ndarray, Callable[[], bool]], Sequence[Any]]


@pytest.fixture(scope="session", params=["float32", "int8"])
def compiled(request: pytest.FixtureRequest, marian_folder: Path) -> TranslationModel:
    return fastdecode_lib.load(str(marian_folder), engine="compiled", precision=request.param)


# ------------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_batches_are_of_like_length_and_results_in_order(batch: int, threads: int) -> None:
    seen: list[list[int]] = []

    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        assert not given_up()
        seen.append([LENGTHS[row] for row in rows])
        return [10 * int(row) for row in rows]

    found = in_batches(LENGTHS, run, batch=batch, threads=threads)
    assert found == [10 * row if length else None for row, length in enumerate(LENGTHS)]
    assert all(len(part) <= batch and part == sorted(part, reverse=True) for part in seen)
    assert sorted(chain(*seen)) == sorted(length for length in LENGTHS if length)
    if threads == 1:
        assert list(chain(*seen)) == sorted(filter(None, LENGTHS), reverse=True), "the longest first"


def test_no_rows_no_work() -> None:
    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        raise AssertionError("there is nothing to do")

    for threads in (1, 2):
        assert in_batches([], run, threads=threads) == []
        assert in_batches([0, 0], run, threads=threads) == [None, None]


@pytest.mark.parametrize("name", ["batch", "threads"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "2"])
def test_batch_and_threads_are_whole_numbers_from_one_on(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number from 1 on: got {value!r}. Example: {name}=4"):
        in_batches(LENGTHS, lambda rows, given_up: [], **{name: value})


def test_batches_are_small_enough_that_every_thread_has_one() -> None:
    def sizes(rows: int, **options: int) -> list[int]:
        seen: list[int] = []
        in_batches(np.ones(rows), lambda own, given_up: (seen.append(len(own)), list(own))[1], **options)
        return sorted(seen, reverse=True)

    assert sizes(60, threads=4) == [15] * 4 and sizes(60) == [60] and sizes(3, threads=4) == [1] * 3
    assert sizes(300, threads=2) == [64] * 4 + [44] and sizes(60, threads=4, batch=50) == [50, 10]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_batches_in_flight_than_threads(threads: int) -> None:
    running, most, lock = set(), [0], threading.Lock()

    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        with lock:
            running.add(rows[0])
            most[0] = max(most[0], len(running))
        with lock:
            running.remove(rows[0])
        return [0]

    in_batches(np.ones(50), run, batch=1, threads=threads)
    assert 1 <= most[0] <= threads


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_first_error_ends_everything(threads: int) -> None:
    begun: list[int] = []

    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        begun.append(int(rows[0]))
        if rows[0] == 2:
            raise RuntimeError("batch 2 is broken")
        return [0]

    with pytest.raises(RuntimeError, match="batch 2 is broken"):
        in_batches(np.ones(200), run, batch=1, threads=threads)
    assert len(begun) < 100


def test_an_error_has_the_other_threads_give_up() -> None:
    waiting = threading.Event()

    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        if rows[0] == 0:
            assert waiting.wait(30)
            raise RuntimeError("broken")
        waiting.set()
        while not given_up():
            threading.Event().wait(0.001)
        return []

    with pytest.raises(RuntimeError, match="broken"):
        in_batches([1, 1], run, batch=1, threads=2)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_was_done_before_an_interruption_is_kept(threads: int) -> None:
    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        if rows[0] == 6:
            raise KeyboardInterrupt
        return [int(row) for row in rows]

    found = in_batches(np.ones(40), run, batch=2, threads=threads)
    assert found[:4] == [0, 1, 2, 3] and found[6:8] == [None, None]
    assert all(value in (row, None) for row, value in enumerate(found)) and None in found[30:]


INTERRUPTED = """
import signal, threading, time
import numpy as np
from fastdecode_lib.batching import in_batches

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background

def ready():
    time.sleep(0.3)  # until the main thread waits
    print("in flight", flush=True)

together = threading.Barrier(3, action=ready)

def run(rows, given_up):
    row = int(rows[0])
    assert row < 3, "no batch is begun after Ctrl-C"
    together.wait()
    while not given_up():
        time.sleep(0.001)
    return [row] if row else []

print(in_batches(np.ones(9), run, batch=1, threads=3))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals there reach a process otherwise")
def test_ctrl_c_reaches_all_threads_and_keeps_what_was_as_good_as_done() -> None:
    """Of three batches in flight the first gives up, the others had their last pass behind them."""
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "in flight\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == f"{[None, 1, 2, *[None] * 6]}\n"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_progress_bar_counts_sentences(threads: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(rows: np.ndarray, given_up: Callable[[], bool]) -> list[int]:
        return [1] * len(rows)

    in_batches(LENGTHS, run, batch=4, threads=threads)
    assert capsys.readouterr().err == ""
    in_batches(LENGTHS, run, batch=4, threads=threads, progress=True)
    assert " 6/6 " in capsys.readouterr().err and cores() >= 1
    moved: list[int] = []
    in_batches(LENGTHS, run, batch=4, threads=threads, progress=SimpleNamespace(update=moved.append))  # type: ignore[arg-type]
    assert sorted(moved) == [2, 4], "a bar of the caller's moves with every batch"


# ----------------------------------------------------------------------------------------------------------- sentences


def told(result: fastdecode_lib.translation.Translation) -> dict[str, Any]:
    """Everything in a trace but the times."""
    trace = result.trace.to_dict()
    return trace | {"iterations": [i | {"seconds": 0} for i in trace["iterations"]]}


@pytest.mark.parametrize("decoder", ["greedy", "beam:size=3", "jacobi", "window:width=4,draft=recycled/pad"])
def test_traces_of_many_are_those_of_each_alone(compiled: TranslationModel, decoder: str) -> None:
    """Bit for bit on the compiled engine: every probability is in the trace."""
    options: dict[str, Any] = {"source": "en", "target": "de", "decoder": decoder, "verify": True}
    alone = [translate(compiled, text, **options) for text in TEXTS]
    for batch, threads in ((1, 1), (3, 1), (16, 2), (2, 3)):
        together = translate(compiled, TEXTS, batch=batch, threads=threads, **options)
        assert [told(a) for a in together] == [told(a) for a in alone], (batch, threads)
    assert [bool(a.tokens) for a in alone] == [bool(text.strip(" \u200b")) for text in TEXTS]


def test_torch_gives_the_same_tokens_in_any_batch(marian: TranslationModel) -> None:
    alone = [translate(marian, text, source="en", target="de").tokens for text in TEXTS]
    for batch, threads in ((1, 2), (5, 1), (16, 2)):
        together = translate(marian, TEXTS, source="en", target="de", batch=batch, threads=threads)
        assert [a.tokens for a in together] == alone


def test_many_are_decoded_as_they_are_translated(compiled: TranslationModel) -> None:
    session = Session.of(compiled, "en", "de", "jacobi")
    wanted = [a.tokens for a in session.translate_all(TEXTS, threads=2)]
    for batch, threads in ((1, None), (4, 2), (16, 1)):
        found = session.decode(TEXTS, batch=batch, threads=threads)
        assert [h.tokens for h in found] == wanted
        assert [h.stop for h, text in zip(found, TEXTS, strict=True) if not text.strip(" \u200b")] == ["end"] * 3


@dataclass(frozen=True)
class Interrupted(Greedy):
    """Ctrl-C comes at the third pass over a certain sentence."""

    words: int = 0
    error: type[BaseException] = KeyboardInterrupt
    name: ClassVar[str] = "interrupted"

    def iterate(self, model: Any, projection: Any, source: Any, constraints: Any, *, observe: bool = False) -> Any:
        passes = super().iterate(model, projection, source, constraints, observe=observe)
        for number in range(10**6):
            if number == 2 and self.words in source.lengths:
                raise self.error
            try:
                yield next(passes)
            except StopIteration as end:
                return end.value


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupted_sentences_say_so_and_the_others_are_whole(compiled: TranslationModel, threads: int) -> None:
    lengths = compiled.encode(TEXTS, "en", "de").lengths
    middle = int(np.sort(lengths)[len(TEXTS) // 2])
    session = Session.of(compiled, "en", "de", Interrupted(words=middle))
    wanted = Session.of(compiled, "en", "de").decode(TEXTS)
    with pytest.raises(KeyboardInterrupt):
        session.decode(TEXTS, batch=1, threads=threads)
    found = session.decode(TEXTS, batch=1, threads=threads, keep_done=True)
    traced = session.translate_all(TEXTS, batch=1, threads=threads)
    for row, text in enumerate(TEXTS):
        for hypothesis in (found[row], *traced[row].trace.hypotheses):
            if not text.strip(" \u200b"):
                assert hypothesis == Hypothesis((), None, "end")
            elif hypothesis.stop == "interrupted":
                assert hypothesis.tokens == () and (lengths[row] <= middle or threads == 2)
            else:
                assert hypothesis.tokens == wanted[row].tokens
    stopped = int(np.flatnonzero(lengths == middle)[0])
    assert found[stopped].stop == traced[stopped].trace.hypotheses[0].stop == "interrupted"
    assert any(h.tokens for h in found) and any(t.tokens for t in traced)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_decoder_is_raised(compiled: TranslationModel, threads: int) -> None:
    longest = int(compiled.encode(TEXTS, "en", "de").lengths.max())
    session = Session.of(compiled, "en", "de", Interrupted(words=longest, error=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        session.decode(TEXTS, batch=2, threads=threads)
    with pytest.raises(ZeroDivisionError):
        session.translate_all(TEXTS, batch=2, threads=threads)


def test_a_sentence_that_is_too_long_is_named(compiled: TranslationModel) -> None:
    with pytest.raises(
        ValueError, match="The source is too long: sentence 2 has .* allows 64. Split it into sentences"
    ):
        translate(compiled, ["a", "a b c " * 50])


# -------------------------------------------------------------------------------------------------------- command line


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_translate_a_file_on_every_engine(
    capsys: pytest.CaptureFixture[str], marian_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(ENGLISH[:6]) + "\n\n", encoding="utf-8")
    options = ("translate", "--file", file, "--model", marian_folder, "--from", "en", "--to", "de", "--device", "cpu")
    most = min(2, os.cpu_count() or 1)
    outputs = {}
    for engine in ("auto", "torch", "compiled"):
        for threads in (1, most):
            status, out, _ = run(capsys, *options, "--engine", engine, "--threads", threads)
            assert status == 0 and out.count("\n") == 7 and out.endswith("\n\n")
            outputs[engine, threads] = out
    assert len(set(outputs.values())) == 1
    for precision in ("int8", "int16"):
        status, out, _ = run(capsys, *options, "--precision", precision, "--threads", most)
        assert status == 0 and out.count("\n") == 7
        assert out == run(capsys, *options, "--precision", precision, "--engine", "compiled", "--threads", 1)[1]


def test_an_interrupted_file_says_how_much_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, marian_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text(f"{ENGLISH[0]}\n\n{ENGLISH[1]}\n", encoding="utf-8")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Greedy, "iterate", interrupt)
    options = ("--model", marian_folder, "--device", "cpu", "--decoder", "greedy")
    status, out, err = run(capsys, "translate", "--file", file, *options)
    assert (status, out) == (130, "\n\n\n") and err == "fastdecode: interrupted, 2 of 3 lines not translated\n"


UMT5 = '{"model_type": "umt5", "vocab_size": 9, "is_encoder_decoder": true}'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float64", "precision": "int8"}, "dtype belongs to the torch engine, precision to the compiled one: got"),
        ({"engine": "torch", "precision": "int8"}, "The torch engine has no precision int8: leave it out, or use engine="),
        ({"engine": "compiled", "dtype": "float16"}, "The compiled engine has no dtype float16: leave it out, or use eng"),
        ({"engine": "compiled", "device": "cuda"}, "compiled engine runs on the CPU: got device='cuda'. Use engine='torch'"),
        ({"precision": "int16", "device": "cuda:1"}, "compiled engine runs on the CPU: got device='cuda:1'. Use engine="),
        ({"engine": "numba"}, "Unknown engine: got 'numba'. Use one of auto, torch, compiled"),
        ({"precision": "int4"}, "Unknown precision: got 'int4'. Use one of float32, int16, int8"),
        ({"dtype": "int8"}, "Unknown dtype: got 'int8'. Use one of float64, float32"),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other(
    options: dict[str, str], message: str, marian_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=message):
        fastdecode_lib.load(str(marian_folder), **options)
    typed = [part for name, value in options.items() for part in (f"--{name}", value)]
    status, out, err = run(capsys, "translate", "a", "--model", marian_folder, *typed)
    assert (status, out) == (2, "") and err.startswith("fastdecode: ") and err.count("\n") == 1


@pytest.mark.parametrize("options", [{"engine": "compiled"}, {"precision": "int8"}], ids=str)
def test_the_compiled_engine_does_not_run_every_model(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(UMT5, encoding="utf-8")
    with pytest.raises(
        ValueError, match="engine runs marian, mbart, m2m_100, t5, mt5.* got a umt5 model. Use engine='torch'"
    ):
        fastdecode_lib.load(str(tmp_path), **options)


def test_numbers_of_the_other_engine_choose_it(marian_folder: Path) -> None:
    engines = {}
    for options in ({}, {"dtype": "float64"}, {"precision": "int8"}, {"engine": "torch"}):
        model = fastdecode_lib.load(str(marian_folder), device="cpu", **options)
        engines[str(options)] = (model.engine, model.dtype, model.device)
    assert list(engines.values()) == [
        ("compiled", "float32", "cpu"),
        ("torch", "float64", "cpu"),
        ("compiled", "int8", "cpu"),
        ("torch", "float32", "cpu"),
    ]


def test_texts_may_come_one_by_one(compiled: TranslationModel) -> None:
    one_by_one = translate(compiled, (text for text in TEXTS[:3]), source="en", target="de")
    assert [found.text for found in one_by_one] == [
        found.text for found in translate(compiled, TEXTS[:3], source="en", target="de")
    ]


def test_all_sentences_that_are_too_long_are_named(compiled: TranslationModel) -> None:
    long = "the " * 400
    with pytest.raises(ValueError, match=r"sentence 2 has \d+ tokens, sentence 4 has \d+ tokens, .* allows"):
        translate(compiled, ["The dog.", long, "", long], source="en", target="de")
