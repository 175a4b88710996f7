"""Every table and figure of the papers is made here."""

import pytest

from fastdecode_lib.papers.catalogue import experiments, papers
from fastdecode_lib.papers.experiment import Scale

PRINTED = {
    "000": ({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4}),
    "001": ({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
    "002": ({1, 2, 3, 4}, {1, 2, 3}),
    "003": ({1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 6}),
    "004": ({1, 2}, {1}),
}
"""Numbers of the tables and figures in each paper."""


@pytest.mark.parametrize("number", PRINTED)
def test_every_printed_table_and_figure_is_made_here(number):
    (paper,) = (paper for paper in papers() if paper.number == number)
    labels = [experiment.label for experiment in paper.experiments if experiment.label]
    tables, figures = PRINTED[number]
    assert sorted(labels) == sorted([*(f"Table {n}" for n in tables), *(f"Figure {n}" for n in figures)])


def test_experiments_are_named_after_their_function():
    for name, experiment in experiments().items():
        assert name == f"{experiment.stem}.{experiment.run.__name__}"


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
