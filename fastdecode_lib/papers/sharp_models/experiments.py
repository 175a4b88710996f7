"""Paper 004, "Sharp models on dull hardware": tables and figures, and what the compiled engine makes of a dull machine."""

from fastdecode_lib.papers.experiment import Chart, Experiment
from fastdecode_lib.papers.sharp_models import engines, fidelity, ladder, quality

_ALL = (
    (ladder.table1, "Table 1: speed after each optimisation", None),
    (quality.table2, "Table 2: quality and speed of the systems", None),
    (
        ladder.figure1,
        "Figure 1: products of a few rows, beside torch's library",
        Chart("batch", "speedup", y_title="time of the library / time", reference=1.0),
    ),
    (quality.quality, "Quality of the trained systems", None),
    (
        ladder.unique_states,
        "Shared states of a beam",
        Chart("beam", "unique", group="set", y_title="share of distinct states"),
    ),
    (ladder.coverage, "Coverage and memory of tables of frequent words", None),
    (ladder.layers, "A fully-connected layer beside a recurrent one", None),
    (ladder.training_cost, "Forward and backward through S1, S4 and S7", None),
    (fidelity.engines, "The compiled engine against torch, token for token", None),
    (fidelity.precisions, "Outputs and quality in 16 and 8 bits", None),
    (engines.steps, "Time of a step and of a sentence on every engine", None),
    (
        engines.pass_costs,
        "Cost of a pass against its width, every engine",
        Chart("width", "cost", y_title="cost in passes of width 1", reference=1.0, log_x=True),
    ),
    (engines.throughput, "Sentences a second of many", None),
    (engines.start_up, "A fresh process until its first translation", None),
)

EXPERIMENTS = tuple(Experiment("sharp_models", run.__name__, title, run, chart) for run, title, chart in _ALL)
