"""The table of `auto` beside greedy decoding: a row for every cell, and outputs that are greedy decoding's."""

import pytest

from fastdecode_lib.decoding.auto import WIDTHS
from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.papers.combinations import never_slower as module
from fastdecode_lib.papers.run import CorpusRun, Scale


def test_every_cell_has_a_row_and_greedy_decodings_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRECISIONS", PRECISIONS[:1])
    frame = module.auto(CorpusRun(Scale.TINY))
    assert list(frame["batch"]) == list(module.BATCHES[Scale.TINY])
    assert (frame["identical"] == 1).all() and frame[["speedup", "window"]].gt(0).all(axis=None)
    assert set(frame["width"]) <= set(WIDTHS)
