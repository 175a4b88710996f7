"""Experiments on combined methods: decoders with projections in every precision, and learned drafts."""

import pandas as pd

from fastdecode_lib.papers.combinations import cube, drafts, first_page, in_generate, never_slower
from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper, columns
from fastdecode_lib.papers.reading import pivoted

LEAST_AGREEMENT = 0.05
"""Least share of plain decoding's outputs that a combination in the table has."""


def fastest(frame: pd.DataFrame) -> pd.DataFrame:
    """The six fastest combinations of each model, and the three fastest lossless ones."""
    faster = frame[(frame["speedup"] > 1) & (frame["agreement"] >= LEAST_AGREEMENT)].sort_values(
        "speedup", ascending=False
    )
    lossless = faster[faster["lossless"].eq(True)]
    best = pd.concat([part.groupby("model", sort=False).head(n) for part, n in ((faster, 6), (lossless, 3))])
    order = {model: number for number, model in enumerate(frame["model"].unique())}
    best = best.drop_duplicates("name").sort_values("speedup", ascending=False)
    best = best.assign(combination=best["decoder"] + " + " + best["projection"] + " + " + best["precision"])
    return best.sort_values("model", key=lambda models: models.map(order), kind="stable")


def drafts_by_shape(frame: pd.DataFrame) -> pd.DataFrame:
    """The width that is predicted to be fastest, by shape, precision and projection, and draft."""
    rows = drafts.as_predicted(frame)
    return rows.assign(where=rows["shape"] + ", " + rows["precision"] + ", " + rows["projection"])


METHODS = columns("set decoder projection", Column("precision", "number format"), "agreement speedup bleu:2")

EXPERIMENTS = (
    Experiment(
        first_page.first_page,
        "The methods of the first page",
        METHODS,
        note="The bundled model, English to German, over greedy decoding with the exact projection in float32. Joined are two "
        "to four sentences at a time; the first page shows the single ones.",
    ),
    Experiment(
        first_page.second_processor,
        "The methods of the first page on another processor",
        METHODS,
        note="With a newer engine too, whose attention is faster. A window of three is 0.9 times as fast as greedy decoding on "
        "single sentences, and makes `quantised` slower; int8 gains more. `auto` decides while it decodes, and `fastdecode "
        "speedup` measures which to use.",
    ),
    Experiment(
        cube.cube,
        "Every decoder with every projection in every precision",
        columns("model combination lossless agreement speedup", Column("product", "product of parts", 2), "bleu:2"),
        arrange=fastest,
        note="The six fastest of each model and its three fastest that lose nothing. Others are refused, each for a stated "
        "reason, or keep fewer than 5% of plain decoding's outputs. Chen et al.'s baselines stand here untuned, `svd` "
        "with 256 tokens scored exactly and `row_clusters` with 8 of 256 clusters; *Every projection under every decoder* tunes "
        "them.",
    ),
    Experiment(
        drafts.drafts,
        "Tokens a pass of every draft",
        arrange=pivoted("draft", "set", "tokens_per_pass", width=5),
        note="A window of 5. All outputs of every width are greedy decoding's.",
        chart=Chart(
            "width",
            "tokens_per_pass",
            "draft",
            {"set": "joined"},
            1.0,
            x_title="width of the window",
            y_title="tokens a pass",
        ),
        counted=True,
    ),
    Experiment(
        never_slower.auto,
        "Drafting what pays: auto beside greedy decoding",
        columns(
            Column("precision", "number format"), "set batch speedup", Column("window", "a window of 3"), "identical"
        ),
        note="Over greedy decoding of the same model in the same number format, one thread. `auto` drafts where that pays and "
        "else decodes greedily; the window of 3 always drafts. Batches of 32 are two to a round here, so that what is tried "
        "in them weighs. On the second processor of the first page, where no width pays, `auto` is 0.97 to 0.98 times as fast "
        "as greedy decoding.",
        chart=Chart(
            "batch", "speedup", "set", {"precision": "float32"}, 1.0, log_x=True, x_title="sentences decoded together"
        ),
    ),
    Experiment(
        in_generate.in_generate,
        "Inside Hugging Face's `generate`, by batch size",
        columns(
            "set batch",
            Column("without", "greedy, our kernels"),
            Column("speedup", "hf.window()"),
            Column("head", "a window of 3 with the head"),
            "identical",
        ),
        note="Over `generate` of transformers alone, float32, one thread: `num_beams=1` with and without `custom_generate`. "
        "Greedy decoding on our kernels has no drafts; `hf.window()` takes the draft table that comes with the model and "
        "drafts where that pays; the last has the draft head as well.",
    ),
    Experiment(
        drafts.draft_time,
        "Drafts and the lossless projection in time, on the model as it is and grown to opus-mt's shape",
        columns(Column("where", "shape, precision, projection"), "set draft width predicted:2 speedup"),
        arrange=drafts_by_shape,
        note="Eight sentences of each kind, over the same model's greedy decoding in the same shape and precision. The width "
        "is the one predicted to be fastest from counted passes and measured costs of passes, without the time of drafting "
        "and with the exact projection, whatever stands in the row. Grown: the model with every feature twice, layers that "
        "add nothing and tokens that never win, which says the same at the cost of opus-mt's shape.",
        chart=Chart(
            "width",
            "speedup",
            "draft",
            {"shape": drafts.LARGE, "precision": "float32", "projection": "quantised", "set": "joined"},
            1.0,
            x_title="width of the window",
        ),
    ),
)
PAPER = Paper("combinations", "06_combinations", "Combinations", EXPERIMENTS, chart="draft_time")
