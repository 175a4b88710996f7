"""The table over `generate`: a row for every cell, and `generate`'s own outputs in all of them."""

from fastdecode_lib.papers.combinations import in_generate as module
from fastdecode_lib.papers.run import CorpusRun, Scale


def test_every_cell_has_a_row_and_generates_own_outputs() -> None:
    frame = module.in_generate(CorpusRun(Scale.TINY))
    assert list(frame["batch"]) == list(module.BATCHES[Scale.TINY]) and (frame["identical"] == 1).all()
    assert frame[["without", "speedup", "head"]].gt(0).all(axis=None)
    assert not frame[["without", "speedup"]].eq(frame["head"], axis=0).any(axis=None), "three systems were timed"
