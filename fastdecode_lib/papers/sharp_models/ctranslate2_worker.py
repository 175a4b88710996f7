"""CTranslate2 in another process: environment variables choose its backend, once for a process."""

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastdecode_lib.core import Constraints, Source
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.baselines import ctranslate2_limits, until_end
from fastdecode_lib.measuring.referee import System, stopwatch

BACKENDS: Mapping[str, Mapping[str, str]] = {
    "onednn": {"CT2_USE_MKL": "0"},
    "mkl": {"CT2_USE_MKL": "1"},
    "mkl, packed": {"CT2_USE_MKL": "1", "CT2_USE_EXPERIMENTAL_PACKED_GEMM": "1"},
}
"""Backends in its wheels for x86; other wheels have one backend, and ignore these."""


class NotComputed(ValueError):
    """CTranslate2 does not compute in this precision with this backend."""


class Worker:
    """A translator in another process: a converted model (`baselines.converted`) on one of `BACKENDS`, in a precision.

    `threads` sentences or batches are in flight (``inter_threads``); each is computed by one thread.

    Raises
    ------
    NotComputed
        If the backend lacks the precision.
    """

    def __init__(
        self,
        model: TranslationModel,
        constraints: Constraints,
        folder: Path,
        compute_type: str,
        backend: str,
        threads: int = 1,
    ):
        self.backend, self.constraints, self.compute_type = backend, constraints, compute_type
        self.names = model.tokenizer.source_tokens(range(model.checkpoint.architecture.source_vocabulary))
        pieces = model.tokenizer.pieces(range(model.network.outputs[0].vocabulary))
        self.ids = {piece: i for i, piece in enumerate(pieces)}
        self.limits = ctranslate2_limits(constraints)
        context = multiprocessing.get_context("spawn")  # a fork would inherit loaded libraries with their backend
        self.pipe, worker_end = context.Pipe()
        options = (str(folder), compute_type, threads, dict(BACKENDS[backend]))
        self.process = context.Process(target=_serve, args=(worker_end, *options), daemon=True)
        self.process.start()
        worker_end.close()
        if problem := self.pipe.recv():
            self.close()
            raise NotComputed(problem)

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join()

    def one_by_one(self, sources: Sequence[Source]) -> tuple[float, tuple[tuple[int, ...], ...]]:
        """Seconds of the translator's calls for the sentences, one after another, and the output ids."""
        return self._call([[self._tokens(source, 0)] for source in sources], {})

    def seconds_of_two_tokens(self, source: Source) -> float:
        """Seconds for the first two tokens of a sentence, after a warm-up: enough to recognise a slow backend."""
        calls, options = [[self._tokens(source, 0)]], {"min_decoding_length": 0, "max_decoding_length": 2}
        self._call(calls, options)
        return self._call(calls, options)[0]

    def in_batches(self, source: Source, batch: int) -> tuple[float, tuple[tuple[int, ...], ...]]:
        """Seconds for all sentences in one call, which sorts them by length and splits them into batches."""
        return self._call([[self._tokens(source, row) for row in range(len(source))]], {"max_batch_size": batch})

    def system(self, name: str) -> System:
        """One sentence at a time, for `referee.measure`."""
        return System(name, lambda source: self.one_by_one([source])[1][0], timed=self.one_by_one)

    def _tokens(self, source: Source, row: int) -> list[str]:
        return [self.names[i] for i in source.ids[row, : source.lengths[row]]]

    def _call(
        self, calls: list[list[list[str]]], options: Mapping[str, Any]
    ) -> tuple[float, tuple[tuple[int, ...], ...]]:
        self.pipe.send((calls, {"beam_size": 1, **self.limits, **options}))
        seconds, outputs = self.pipe.recv()
        return seconds, tuple(until_end([self.ids[piece] for piece in output], self.constraints) for output in outputs)


def _serve(pipe: Any, folder: str, compute_type: str, threads: int, environment: Mapping[str, str]) -> None:
    """Answer calls until the other end is closed."""
    import gc
    import os

    os.environ.update(environment)
    import ctranslate2

    try:
        translator = ctranslate2.Translator(
            folder, compute_type=compute_type, inter_threads=threads, intra_threads=1, max_queued_batches=-1
        )
    except (ValueError, RuntimeError) as error:
        pipe.send(str(error))
        return
    pipe.send(None)
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        try:
            calls, options = pipe.recv()
        except EOFError:
            return
        translate: Callable[[list[list[str]]], Any] = lambda tokens: translator.translate_batch(tokens, **options)  # noqa: E731, B023
        seconds, outputs = stopwatch(translate, calls)
        tokens = [result.hypotheses[0] for results in outputs for result in results]
        gc.collect()
        pipe.send((seconds, tokens))
