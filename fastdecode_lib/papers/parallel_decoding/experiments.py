"""Santilli et al. (2023), parallel decoding: its tables and figures and what it left open, and how each is read."""

from typing import TYPE_CHECKING

from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper, columns
from fastdecode_lib.papers.parallel_decoding import costs, tables
from fastdecode_lib.papers.reading import pivoted, with_paper_values

if TYPE_CHECKING:
    import pandas as pd

STEM = "parallel_decoding"
INTRODUCTION = """\
The bundled model on the torch engine in float32, six directions, test sentences single and joined two to four at a time. One thread
of a shared virtual machine: times are ratios of runs that took turns, and vary by a tenth from run to run; passes do not. Passes
saved are greedy decoding's passes over the method's, on 500 sentences a direction and set (100 under the protocol *paper*, which
tells PJ and PGJ the length of the answer); speedups over our greedy loop are of 40 single and 10 joined sentences a direction. The
notebook `04_parallel_decoding` shows the tables with what they mean."""


def mean_of_directions(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The mean of our rows over all directions."""
    ours = frame[frame["kind"] == "measured"].groupby(["name", "set", "protocol"], sort=False).mean(numeric_only=True)
    return ours[[name for name in ours if not name.endswith(("_low", "_high"))]].reset_index()


def speedups(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Speedups by direction, the paper's beside them."""
    return with_paper_values(frame, "speedup")


def costs_of_decoders(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Joined sentences under the honest protocol, and the paper's rows."""
    return frame[(frame["set"] != "single") & (frame["protocol"] != "paper")]


def whole_dependencies(frame: "pd.DataFrame") -> "pd.DataFrame":
    """All directions together, a column for each replacement or control."""
    return pivoted(["measure", "group"], "variant", "share")(frame[frame["direction"] == "all"])


DECODERS = columns(
    Column("name", "decoder"),
    "set protocol",
    Column("calls_ratio", "passes saved", 2),
    Column("calls_ratio_as_paper_counts", "as the paper counts", 2),
    Column("speedup", "speedup", 2),
    "agreement",
    Column("bleu", "BLEU", 2),
    Column("chrf", "chrF", 2),
)
EXPERIMENTS = (
    Experiment(
        STEM,
        "table1",
        "Table 1: speed and BLEU of the decoders",
        tables.table1,
        DECODERS,
        arrange=mean_of_directions,
        note="Mean of six directions. In float32 the lossless decoders agree with greedy on 2,999 of 3,000 joined and on all 3,000 "
        "single sentences; where they do not, the two best tokens are 1e-6 apart. The paper reports 1.34 to 1.38 times the speed "
        "for PGJ and HGJ with blocks of 3 on 16 cores.",
    ),
    Experiment(STEM, "table2", "Table 2: speed and passes over languages", tables.table2, arrange=speedups),
    Experiment(
        STEM,
        "table3",
        "Table 3: training and inference cost against other methods",
        tables.table3,
        columns(
            Column("name", "method"),
            "speedup bleu",
            Column("train_flops", "FLOPs of training"),
            Column("total_flops", "FLOPs of training and inference"),
            Column("flops_per_speedup", "FLOPs for each speedup"),
            "paper_architecture paper_loss paper_distillation paper_speedup paper_bleu",
            Column("paper_train_flops", "paper: FLOPs of training"),
            Column("paper_total_flops", "paper: FLOPs in all"),
            Column("paper_flops_per_speedup", "paper: FLOPs for each speedup"),
        ),
        arrange=costs_of_decoders,
        note="Joined sentences, English to German; nothing is trained for our decoders.",
    ),
    Experiment(
        STEM,
        "table4",
        "Table 4: sizes of the test sets",
        tables.table4,
        columns(
            Column("name", "test set"),
            Column("set", "kind"),
            "sentences",
            Column("source_tokens", "tokens of a source", 1),
            "paper_sentences",
        ),
        counted=True,
    ),
    Experiment(
        STEM,
        "table5",
        "Table 5: FLOPs of other models",
        tables.table5,
        columns(
            Column("name", "model or decoder"),
            Column("train_flops", "FLOPs of training"),
            Column("flops_per_sentence", "FLOPs of a sentence"),
            Column("total_flops", "FLOPs in all"),
            Column("paper_train_flops", "paper: FLOPs of training"),
            Column("paper_inference_flops", "paper: FLOPs of inference"),
            Column("paper_total_flops", "paper: FLOPs in all"),
        ),
        arrange=costs_of_decoders,
    ),
    Experiment(
        STEM,
        "table6",
        "Table 6: time and passes",
        tables.table6,
        DECODERS,
        arrange=mean_of_directions,
        note="Mean of six directions. *As the paper counts* leaves out one pass a sentence for PJ and PGJ, as the authors' code "
        "does; the paper reports 1.03 to 1.11 times fewer iterations.",
    ),
    Experiment(STEM, "table7", "Table 7: BLEU over languages", tables.table7),
    Experiment(STEM, "examples", "Example translations", tables.examples, counted=True),
    Experiment(
        STEM,
        "figure1",
        "Figure 1: sequential and parallel decoding",
        tables.figure1,
        traced=True,
        live=True,
        counted=True,
    ),
    Experiment(STEM, "figure2", "Figure 2: PJ, PGJ and HGJ", tables.figure2, traced=True, live=True, counted=True),
    Experiment(
        STEM,
        "figure3",
        "Figure 3: speedup against cores",
        costs.figure3,
        chart=Chart("cores", "speedup", reference=1.0, log_x=True),
    ),
    Experiment(
        STEM,
        "figure4",
        "Figure 4: dependency graph and passes of one sentence",
        tables.figure4,
        traced=True,
        live=True,
        counted=True,
    ),
    Experiment(
        STEM, "figure6", "Figure 6: further dependency graphs", tables.figure6, traced=True, live=True, counted=True
    ),
    Experiment(
        STEM,
        "cost",
        "Cost of a pass against its width",
        costs.cost,
        arrange=pivoted("name", "width", "cost", "width "),
        note="In passes over one position, network and projection. A decoder pays where its tokens a pass exceed this, less what "
        "it does itself. The compiled engine's stand under Devlin (2017).",
        chart=Chart("width", "cost", y_title="cost in passes of width 1", reference=1.0),
    ),
    Experiment(
        STEM,
        "vocabulary",
        "Vocabulary size against word-internal pieces and passes",
        tables.vocabulary,
        columns(
            "name vocabulary",
            Column("internal_share", "word-internal", share=True),
            Column("pieces_per_word", "pieces a word", 2),
            "calls_ratio parameters paper_calls_ratio",
        ),
        counted=True,
    ),
    Experiment(
        STEM,
        "batch",
        "Speedup against batch size",
        costs.batch,
        arrange=pivoted("name", "batch", "speedup", "batch "),
        note="Over greedy decoding in batches of the same size, joined sentences.",
        chart=Chart("batch", "speedup", x_title="batch size", reference=1.0, log_x=True),
    ),
    Experiment(
        STEM,
        "drafts",
        "Tokens per pass of every draft",
        tables.drafts,
        arrange=pivoted("draft", ["set", "width"], "tokens_per_pass"),
        note="By set of sentences and width; the mean of six directions on 20 test sentences each, and of three directions on 20 "
        "own technical sentences. Every output is greedy decoding's.",
        chart=Chart("width", "tokens_per_pass", "draft", where={"set": "joined"}, reference=1.0),
        counted=True,
    ),
    Experiment(
        STEM,
        "dependencies",
        "Which tokens depend on which",
        tables.dependencies,
        arrange=whole_dependencies,
        note="*changed*: share of choices that change when the token at that distance is replaced by padding or by its "
        "runner-up; *independent*: choices that stay without the token before. Joined test sentences of six directions. "
        "Controls, with padding: the same effects on shuffled positions, and the network with its weights in random order.",
        chart=Chart("distance", "share", "variant", where={"direction": "all"}, y_title="share of choices that change"),
        counted=True,
    ),
)
PAPER = Paper(STEM, "003", "parallel decoding (PJ, PGJ, HGJ) and DDGviz", EXPERIMENTS, INTRODUCTION)
