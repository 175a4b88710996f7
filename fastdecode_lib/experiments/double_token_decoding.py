"""Paper 002, double-token bidirectional decoding: its tables and figures, each with the paper's values beside ours, and beyond."""

from fastdecode_lib.experiments import Chart, Experiment
from fastdecode_lib.experiments.group_ends import table3
from fastdecode_lib.experiments.group_profile import profile, screened_vocabulary
from fastdecode_lib.experiments.group_quality import (
    distilled,
    figure1,
    figure2,
    learning,
    lossless,
    mask_predict,
    screened,
    table1,
    table2,
)
from fastdecode_lib.experiments.group_speed import figure3, rows, sizes, table4, tokens_per_step

_RATIO = "speed over single-token L2R"
_ALL = (
    (table1, "Table 1: settings", None),
    (table2, "Table 2: quality and speed of every system", None),
    (
        learning,
        "How the systems learn",
        Chart("updates", "chrf", group="system", from_zero=False, x_title="updates", y_title="chrF, dev"),
    ),
    (distilled, "Distilled: systems that learned from single-token L2R's translations", None),
    (
        figure3,
        "Figure 3: speed ratio against beam width",
        Chart("beam", "speedup", group="name", reference=1.0, x_title="beam width", y_title=_RATIO),
    ),
    (table3, "Table 3: how much of the outputs' ends is right", None),
    (
        table4,
        "Table 4: speed against the size of the vocabulary",
        Chart("vocabulary", "speedup", group="group", reference=1.0, log_x=True, y_title=_RATIO),
    ),
    (sizes, "Section 5.2.1: speed against the size of the model", None),
    (
        rows,
        "The ratio against the number of rows in a pass",
        Chart("rows", "speedup", group="size", reference=1.0, log_x=True, x_title="rows", y_title=_RATIO),
    ),
    (profile, "Where the time of one and two tokens a step goes, in every number format", None),
    (tokens_per_step, "More tokens a step: speed and quality", None),
    (screened, "Several tokens a step with a screened vocabulary", None),
    (
        screened_vocabulary,
        "A screened vocabulary where vocabularies are large",
        Chart(
            "vocabulary",
            "speedup",
            group="group",
            where={"system": "bidirectional"},
            reference=1.0,
            log_x=True,
            y_title=_RATIO,
        ),
    ),
    (lossless, "The bidirectional output as a draft that single-token L2R verifies", None),
)

EXPERIMENTS = (
    Experiment("double_token_decoding", "figure1", "Figure 1: which slots see each other", figure1, live=True),
    Experiment(
        "double_token_decoding", "figure2", "Figure 2: a sentence from both ends", figure2, traced=True, live=True
    ),
    Experiment("double_token_decoding", "mask_predict", "Mask-Predict: all tokens at once", mask_predict, traced=True),
    *(Experiment("double_token_decoding", run.__name__, title, run, chart) for run, title, chart in _ALL),
)
