"""Every table and figure of the papers is made here."""

import pytest

from fastdecode_lib.papers.catalogue import experiments, papers
from fastdecode_lib.papers.experiment import Scale

PRINTED = {
    "vocabulary_clusters": ({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4}),
    "learning_to_screen": ({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
    "double_token_decoding": ({1, 2, 3, 4}, {1, 2, 3}),
    "parallel_decoding": ({1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 6}),
    "sharp_models": ({1, 2}, {1}),
}
"""Numbers of the tables and figures in each paper."""


@pytest.mark.parametrize("stem", PRINTED)
def test_every_printed_table_and_figure_is_made_here(stem):
    (paper,) = (paper for paper in papers() if paper.stem == stem)
    labels = [experiment.label for experiment in paper.experiments if experiment.label]
    tables, figures = PRINTED[stem]
    assert sorted(labels) == sorted([*(f"Table {n}" for n in tables), *(f"Figure {n}" for n in figures)])


def test_experiments_are_named_after_their_paper_and_function():
    assert len(experiments()) == sum(len(paper.experiments) for paper in papers())
    for paper in papers():
        assert {experiment.stem for experiment in paper.experiments} == {paper.stem}


def test_comparison_of_the_first_notebook():
    """No value of ours is missing; lossless rows agree with greedy, and so have its quality."""
    frame = experiments()["start_here.comparison"].run(Scale.TINY)
    assert not frame[frame.name != "hf"].drop(columns="note").isna().any(axis=None)
    assert frame.speedup[frame.agreement == 1].is_monotonic_decreasing and frame.name.iloc[-1] == "beam:size=5"
    rows = frame.set_index("name")
    assert {"hf", "window:width=3"} <= set(rows.index)
    lossless = rows.drop("beam:size=5")
    assert (lossless.agreement == 1).all()
    assert lossless.bleu.nunique() == lossless.chrf.nunique() == 1
    ours = rows.drop("hf")
    assert (ours.positions >= ours.calls).all()
    assert (rows.speedup_low <= rows.speedup).all() and (rows.speedup <= rows.speedup_high).all()


def test_papers_are_named_by_authors_and_year_with_a_link():
    cited = {paper.stem: paper.citation for paper in papers() if paper.stem in PRINTED}
    for citation in cited.values():
        assert citation.link.startswith(("https://arxiv.org/abs/", "https://doi.org/10.")), citation.name
    assert cited["sharp_models"].name == "Devlin (2017)"
