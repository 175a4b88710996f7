"""Every table and figure of the papers is made here."""

import pytest

from fastdecode_lib.papers.catalogue import INVENTORY, PAPERS, experiments
from fastdecode_lib.papers.experiment import Scale

PRINTED = {
    "000": ({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4}),
    "001": ({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
    "002": ({1, 2, 3, 4}, {1, 2, 3}),
    "003": ({1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 6}),
    "004": ({1, 2}, {1}),
}
"""Numbers of the tables and figures in each paper."""


@pytest.mark.parametrize("paper", PAPERS)
def test_inventory_is_complete(paper):
    labels = [entry.label for entry in INVENTORY if entry.paper == paper]
    tables, figures = PRINTED[paper]
    assert sorted(labels) == sorted([*(f"Table {n}" for n in tables), *(f"Figure {n}" for n in figures)])


@pytest.mark.parametrize("entry", INVENTORY, ids=lambda entry: f"{entry.paper}-{entry.label}")
def test_entry_is_made_here(entry):
    assert entry.experiment in experiments()


def test_comparison_of_the_first_notebook():
    """No value of ours is missing; lossless rows agree with greedy, and so have its quality."""
    frame = experiments()["start_here.comparison"].run(Scale.TINY)
    assert not frame.drop(columns="note").isna().any(axis=None)
    rows = frame.set_index("name")
    lossless = rows.drop("beam:size=5")
    assert (lossless.agreement == 1).all()
    assert lossless.bleu.nunique() == lossless.chrf.nunique() == 1
    assert (rows.positions >= rows.calls).all()
    assert (rows.speedup_low <= rows.speedup).all() and (rows.speedup <= rows.speedup_high).all()
