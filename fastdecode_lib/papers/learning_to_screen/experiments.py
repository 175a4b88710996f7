"""Paper 001, learning to screen the softmax: tables and figures, and what the learning adds."""

from dataclasses import replace

from fastdecode_lib.papers.experiment import Chart, Experiment
from fastdecode_lib.papers.learning_to_screen import outputs, tables

_AT_1 = Chart("speedup", "p_at_1", group="method", log_x=True, x_title="speedup over numpy", y_title="P@1")
_AT_5 = Chart("speedup", "p_at_5", group="method", log_x=True, x_title="speedup over numpy", y_title="P@5")
_ALL = (
    (outputs.figure1, "Figure 1: a sentence, its clusters and their words", None),
    (tables.table1, "Table 1: vocabulary and hidden sizes", None),
    (tables.table2, "Table 2: speedup, precision at 1 and at 5 of every method", None),
    (tables.figure2, "Figure 2: precision at 1 against speedup, large language model", _AT_1),
    (tables.figure3, "Figure 3: precision at 1 against speedup, small language model", _AT_1),
    (tables.figure4, "Figure 4: precision at 1 against speedup, translation", _AT_1),
    (outputs.table3, "Table 3: quality and speed of translations", None),
    (tables.table4, "Table 4: the number of clusters", None),
    (tables.figure5, "Figure 5: precision at 5 against speedup, large language model", _AT_5),
    (tables.figure6, "Figure 6: precision at 5 against speedup, small language model", _AT_5),
    (tables.figure7, "Figure 7: precision at 5 against speedup, translation", _AT_5),
    (tables.table5, "Table 5: learned screens beside spherical k-means", None),
    (outputs.table6, "Table 6: perplexity and speed", None),
    (
        tables.figure8,
        "Figure 8: speedup against the size of the vocabulary",
        Chart("vocabulary", "speedup", group="model", x_title="words", y_title="speedup over numpy"),
    ),
    (tables.figure9, "Figure 9: precision against speedup, the largest vocabulary", replace(_AT_1, from_zero=False)),
    (tables.table7, "Table 7: words of some clusters", None),
    (outputs.table8, "Table 8: translations beside those of the full projection", None),
    (
        tables.learning,
        "What the rounds add, in both readings of the loss",
        Chart("rounds", "p_at_1", group="reading", from_zero=False, y_title="P@1"),
    ),
    (tables.frontiers, "Every method at every setting", None),
)

EXPERIMENTS = tuple(
    Experiment("learning_to_screen", run.__name__, title, run, chart, traced=run is outputs.figure1)
    for run, title, chart in _ALL
)
