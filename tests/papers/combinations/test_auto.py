"""The table of `auto` beside greedy decoding: a row for every cell, and outputs that are greedy decoding's."""

import numpy as np
import pytest

from fastdecode_lib.core import Measurement
from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.papers.combinations import auto as module
from fastdecode_lib.papers.run import CorpusRun, Scale


def test_every_cell_has_a_row_and_greedy_decodings_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRECISIONS", PRECISIONS[:1])
    frame = module.auto(CorpusRun(Scale.TINY))
    assert list(frame["batch"]) == list(module.BATCHES[Scale.TINY])
    assert (frame["identical"] == 1).all() and frame[["speedup", "window"]].gt(0).all(axis=None)
    assert frame["width"].between(1, 8).all()


def test_rows_of_a_joined_output() -> None:
    measurement = Measurement("a", np.ones(1), ((1, 2, -1, -1, 3, -1),))
    assert module._rows(measurement) == [(1, 2), (), (3,)]
