"""What several papers give together: decoders with projections in every precision, and drafts that are learned."""

from typing import TYPE_CHECKING

from fastdecode_lib.papers.combinations import cube, drafts
from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper, columns
from fastdecode_lib.papers.reading import pivoted

if TYPE_CHECKING:
    import pandas as pd

STEM = "combinations"
INTRODUCTION = """\
Every decoder with every projection that comes with three of the bundled translation models, in every precision; what is fitted
first (Chen et al.'s learned screens, adaptive softmax) or installed (ScaNN) is not among them. And what is trained for it: drafts
and models tuned for parallel decoding, English to German. One thread, one sentence at a time, all systems of a table in turns
in one process, medians with 95% intervals over rounds; tokens a pass are greedy decoding's passes for each pass, on test
sentences. Every output marked the same was compared token for token. The notebook `06_combinations` shows the tables with what
they mean."""
LOST = 0.05
"""Share of plain decoding's outputs below which a combination is not taken for a way of decoding."""


def fastest(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The six fastest combinations of each model, and the three fastest that lose nothing."""
    import pandas as pd

    faster = frame[(frame["speedup"] > 1) & (frame["agreement"] >= LOST)].sort_values("speedup", ascending=False)
    lossless = faster[faster["lossless"].eq(True)]
    best = pd.concat([part.groupby("model", sort=False).head(n) for part, n in ((faster, 6), (lossless, 3))])
    order = {model: number for number, model in enumerate(frame["model"].unique())}
    best = best.drop_duplicates("name").sort_values("speedup", ascending=False)
    return best.sort_values("model", key=lambda models: models.map(order), kind="stable")


def window_of_five(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Tokens a pass at a width of 5, by model and draft."""
    return pivoted(["model", "draft"], "set", "tokens_per_pass")(frame[frame["width"] == 5])


EXPERIMENTS = (
    Experiment(
        STEM,
        "cube",
        "Every decoder with every projection in every precision",
        cube.cube,
        columns(
            "model decoder projection precision lossless",
            Column("agreement", "same outputs"),
            Column("passes", "passes", 1),
            "speedup",
            Column("product", "product of parts", 2),
            Column("predicted", "predicted", 2),
            Column("bleu", "BLEU", 2),
            "noisy",
        ),
        arrange=fastest,
        note="The six fastest of each model and its three fastest that lose nothing. Others are refused, each for a stated reason, "
        "or keep fewer than 5% of plain decoding's outputs. Chen et al.'s baselines stand here with the knobs that they come with; "
        "`vocabulary_clusters.end_to_end` tunes them. Combined speedups are smaller than the product of the parts. Rows of "
        "`bidirectional` are of an earlier training of that model. Mask-Predict was not at hand for this run; table 2 of Imamura "
        "and Sumita has it.",
    ),
    Experiment(
        STEM,
        "drafts",
        "Tokens a pass of draft heads and of models trained for parallel decoding",
        drafts.drafts,
        arrange=window_of_five,
        note="A window of 5. All outputs of every width are the same model's greedy ones.",
        chart=Chart(
            "width",
            "tokens_per_pass",
            "draft",
            {"model": "untouched", "set": "joined"},
            1.0,
            x_title="width of the window",
            y_title="tokens a pass",
        ),
        counted=True,
    ),
    Experiment(
        STEM,
        "tuned",
        "What training for parallel decoding does to quality",
        drafts.tuned,
        columns("model set bleu", Column("bleu_p", "p"), "chrf", Column("not_ended", "not ended")),
        note="p: how likely the distance in BLEU to the untouched model is by chance (paired bootstrap).",
        counted=True,
    ),
    Experiment(
        STEM,
        "draft_time",
        "Learned drafts in time, on the models as they are and grown to opus-mt's shape",
        drafts.draft_time,
        columns(
            "model shape precision set draft width",
            Column("tokens_per_pass", "tokens a pass", 2),
            Column("cost", "cost of a pass", 2),
            Column("predicted", "predicted", 2),
            "speedup identical",
        ),
        arrange=drafts.as_predicted,
        note="Eight sentences of each kind, over the same model's greedy decoding in the same shape and precision. The width is "
        "the one predicted to be fastest from counted passes and measured costs of passes, without the time of drafting. Grown: "
        "the model with every feature twice, layers that add nothing and tokens that never win, which says the same at the cost "
        "of opus-mt's shape. The model tuned together is an earlier checkpoint than the one of the two tables above.",
        chart=Chart(
            "width",
            "speedup",
            "draft",
            {"model": "untouched", "shape": drafts.LARGE, "precision": "int8", "set": "joined"},
            1.0,
            x_title="width of the window",
        ),
    ),
)
PAPER = Paper(STEM, "", "Combinations", EXPERIMENTS, INTRODUCTION)
