"""Devlin, "Sharp models on dull hardware": its tables and figures, those of the compiled engine, and how each is read."""

import pandas as pd

from fastdecode_lib.papers.experiment import Chart, Citation, Column, Experiment, Paper, columns
from fastdecode_lib.papers.reading import pivoted
from fastdecode_lib.papers.sharp_models import engines, fidelity, ladder, quality
from fastdecode_lib.papers.sharp_models import printed as devlin_2017


def by_precision(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean of all directions."""
    means = frame.groupby("precision", sort=False)[["agreement", "bleu", "bleu_change", "chrf_change"]].mean()
    return means.reset_index()


def with_cited(frame: pd.DataFrame) -> pd.DataFrame:
    """All systems, those that the paper cites with their speed over its S1."""
    s1 = devlin_2017.TABLE_2["S1"][1]
    return frame.assign(paper_speed_over_s1=frame["paper_words_per_second"] / s1)


EXPERIMENTS = (
    Experiment(
        ladder.table1,
        "Table 1: speed after each optimisation",
        columns(
            Column("set", "model"), Column("name", "stage"), "words_per_second factor paper_factor agreement widest_gap"
        ),
        note="Outputs are compared with the baseline's, those of sharp-s4 on 966 sentences, those at the paper's sizes on 12 of "
        "random words; the gap is that of their log-probabilities a token where they differ, at most. The rows without values of "
        "the paper each change one thing: the first stage without rounding (packed weights, and the loops around them compiled), "
        "or all stages with something else in one place. The library is slow at products of six rows on this processor, so that "
        "the first stage gains most at the paper's sizes. Merged states gain nothing sure (in the paper 8%). At the paper's sizes "
        "the sentences have some 500 candidates; outputs are forced.",
    ),
    Experiment(
        quality.table2,
        "Table 2: quality and speed of the systems",
        columns(
            Column("name", "system"),
            "bleu",
            Column("bleu_p", "p against S1", 3),
            "paper_bleu:1",
            Column("speed_over_s1", "speed over S1"),
            Column("paper_speed_over_s1", "paper: speed over S1", 2),
            "distinct_states",
        ),
        arrange=with_cited,
        note="BLEU is of networks of a quarter of the paper's widths on everyday sentences, the paper's of newstest2014: compare "
        "systems within a column; p is that of a paired bootstrap. All systems had 2,400 updates of one recipe, S7 1,200, and all "
        "still gain; E1 and E2 are two and three S4 of different seeds. Speed is at the paper's geometry, with random weights. "
        "Merged states make it depend on how many states of a beam are distinct (here: of one sentence), which random weights "
        "decide, so that these ratios are rough. Below E2 are systems that the paper cites, with BLEU and speed as it gives them; "
        "Google's speed is of 44 cores.",
    ),
    Experiment(
        ladder.figure1,
        "Figure 1: products of a few rows, beside torch's library",
        arrange=pivoted("name", "batch", "speedup", "rows: ", batch=(1, 2, 3, 4, 6, 8)),
        note="Times the library's speed. The paper: 2 to 3 for its 16 bits at 2 to 8 rows. It prints neither the size of its "
        "matrix (ours is 3,072 x 1,024) nor values.",
        chart=Chart("batch", "speedup", x_title="rows", y_title="time of the library / time", reference=1.0),
    ),
    Experiment(quality.quality, "Quality of the trained systems", counted=True),
    Experiment(
        quality.learning,
        "How the systems learn",
        arrange=pivoted("system", "updates", "chrf", "chrF, "),
        note="chrF on dev after so many updates, greedy decoding; the last weights or their running average, whichever is better. "
        "The learning rate falls from update 720 on; the run of S7 failed soon after update 1,200.",
        chart=Chart("updates", "chrf", group="system", from_zero=False, x_title="updates", y_title="chrF, dev"),
        counted=True,
    ),
    Experiment(
        ladder.unique_states,
        "Shared states of a beam",
        columns("beam", Column("unique", "distinct states"), Column("paper_unique", "paper, about")),
        chart=Chart("beam", "unique", group="set", y_title="share of distinct states"),
        counted=True,
    ),
    Experiment(
        ladder.coverage,
        "Coverage and memory of tables of frequent words",
        columns(
            Column("words", "words of the table"),
            Column("source_coverage", "source tokens covered"),
            Column("target_coverage", "target tokens covered"),
            Column("paper_coverage", "paper, at least"),
            Column("megabytes", "MB at the paper's geometry"),
        ),
        note="Our vocabularies have 8,000 words altogether, of everyday text, so that the last row is all of them and what it does "
        "not cover is unknown; the paper's have 80,000, of news.",
        counted=True,
    ),
    Experiment(
        ladder.layers,
        "A fully-connected layer beside a recurrent one",
        columns(Column("name", "products of six rows"), "cost paper_cost"),
    ),
    Experiment(
        ladder.training_cost,
        "Forward and backward through S1, S4 and S7",
        columns(
            Column("name", "system"),
            "milliseconds",
            Column("time_over_s4", "time over S4's"),
            Column("paper_time_over_s4", "paper, roughly"),
        ),
        note="Ours: networks of a quarter of the paper's widths on a CPU; the paper's: training in full size on a GPU.",
    ),
    Experiment(
        fidelity.engines,
        "The compiled engine against torch, token for token",
        columns(
            Column("name", "direction"),
            "set",
            Column("sentences", "number"),
            Column("differ", "outputs that differ"),
            Column("largest_margin", "margin of the two best tokens there"),
        ),
        counted=True,
    ),
    Experiment(
        fidelity.precisions,
        "Outputs and quality in 16 and 8 bits",
        columns(
            "precision",
            Column("agreement", "same outputs as float32"),
            "bleu:2",
            Column("bleu_change", "change of BLEU", 2),
            Column("chrf_change", "change of chrF", 2),
        ),
        arrange=by_precision,
        note="Mean of six directions on the compiled engine, at most 1,000 sentences of the test split each. *Time of a step* has "
        "another share, of fewer and longer sentences that are not from the corpus.",
        counted=True,
    ),
    Experiment(
        engines.steps,
        "Time of a step and of a sentence on every engine",
        columns(
            "geometry system",
            Column("ms_per_step", "ms a step"),
            Column("ratio", "its time over the compiled engine's"),
            Column("agreement", "same outputs as compiled float32"),
        ),
        note="The ratio is with the compiled engine in the same precision: above 1, ours is faster. Same outputs of the bundled "
        "model are counted on 60 of our own sentences, English to German; the other shape has random weights and decodes random "
        "sources to a forced length.",
    ),
    Experiment(
        engines.pass_costs,
        "Cost of a pass against its width, every engine",
        arrange=pivoted("name", "width", "cost", "width "),
        note="In passes over one position.",
        chart=Chart("width", "cost", y_title="cost in passes of width 1", reference=1.0, log_x=True),
    ),
    Experiment(
        engines.throughput,
        "Sentences a second of many",
        columns(Column("name", "system"), "sentences_per_second batch threads", Column("ratio", "its time over ours")),
        note="1,000 sentences of the dev split in batches of like length, English to German, each system with its own best batch "
        "size. At these rates a million such sentences would take 20 minutes of one core in float32 and 8 in int8 (CTranslate2: "
        "26 and 13), and on more cores a share of that, as sentences are independent: `fastdecode evaluate --workers N`, or "
        "`--scheduler ADDRESS` for a dask cluster, decodes so.",
    ),
    Experiment(
        engines.start_up, "A fresh process until its first translation", columns(Column("name", "until"), "seconds")
    ),
)
PAPER = Paper(
    "sharp_models",
    "05_sharp_models",
    "sharp models on dull hardware",
    EXPERIMENTS,
    Citation(
        "Devlin",
        2017,
        "Sharp Models on Dull Hardware: Fast and Accurate Neural Machine Translation Decoding on the CPU",
        "https://doi.org/10.18653/v1/D17-1300",
    ),
    "figure1",
)
