"""Paper 002, double-token bidirectional decoding: its tables and figures, each with the paper's values beside ours, and beyond."""

from fastdecode_lib.papers.double_token_decoding import ends, profile, quality, speed
from fastdecode_lib.papers.experiment import Chart, Experiment

_RATIO = "speed over single-token L2R"
_ALL = (
    (quality.table1, "Table 1: settings", None),
    (quality.table2, "Table 2: quality and speed of every system", None),
    (
        quality.learning,
        "How the systems learn",
        Chart("updates", "chrf", group="system", from_zero=False, x_title="updates", y_title="chrF, dev"),
    ),
    (quality.distilled, "Distilled: systems that learned from single-token L2R's translations", None),
    (
        speed.figure3,
        "Figure 3: speed ratio against beam width",
        Chart("beam", "speedup", group="name", reference=1.0, x_title="beam width", y_title=_RATIO),
    ),
    (ends.table3, "Table 3: how much of the outputs' ends is right", None),
    (
        speed.table4,
        "Table 4: speed against the size of the vocabulary",
        Chart("vocabulary", "speedup", group="group", reference=1.0, log_x=True, y_title=_RATIO),
    ),
    (speed.sizes, "Section 5.2.1: speed against the size of the model", None),
    (
        speed.rows,
        "The ratio against the number of rows in a pass",
        Chart("rows", "speedup", group="size", reference=1.0, log_x=True, x_title="rows", y_title=_RATIO),
    ),
    (profile.profile, "Where the time of one and two tokens a step goes, in every number format", None),
    (speed.tokens_per_step, "More tokens a step: speed and quality", None),
    (quality.screened, "Several tokens a step with a screened vocabulary", None),
    (
        profile.screened_vocabulary,
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
    (quality.lossless, "The bidirectional output as a draft that single-token L2R verifies", None),
)

EXPERIMENTS = (
    Experiment("double_token_decoding", "figure1", "Figure 1: which slots see each other", quality.figure1, live=True),
    Experiment(
        "double_token_decoding",
        "figure2",
        "Figure 2: a sentence from both ends",
        quality.figure2,
        traced=True,
        live=True,
    ),
    Experiment(
        "double_token_decoding", "mask_predict", "Mask-Predict: all tokens at once", quality.mask_predict, traced=True
    ),
    *(Experiment("double_token_decoding", run.__name__, title, run, chart) for run, title, chart in _ALL),
)
