"""Santilli et al. (2023), parallel decoding: its tables and figures and further ones, and how each is read."""

import pandas as pd

from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper, columns
from fastdecode_lib.papers.parallel_decoding import costs, gpu, tables
from fastdecode_lib.papers.parallel_decoding.conclusion import CITATION, CONCLUSION, DIFFERENCES, SETUP
from fastdecode_lib.papers.parallel_decoding.printed import TABLE_4
from fastdecode_lib.papers.reading import measured_rows, pivoted


def mean_of_directions(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean of our rows over all directions, and of the paper's over its own."""
    keys = ["name", "set", "protocol"]
    ours = frame[frame["kind"] == "measured"].groupby(keys, sort=False).mean(numeric_only=True)
    ours = ours[[name for name in ours if not name.startswith("paper_") and not name.endswith(("_low", "_high"))]]
    printed = frame[frame["kind"] == "paper"].groupby("name").mean(numeric_only=True)
    printed = printed[[name for name in printed if name.startswith("paper_")]]
    rows = ours.reset_index().join(printed, on="name")
    return rows.assign(sentences=rows["set"] + ", " + rows["protocol"])


def speedups(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction: speedups of the decoders on joined sentences, ours and the paper's."""
    ours = frame[(frame["set"] == "joined") & (frame["protocol"] == "honest")]
    ours = ours.pivot(index="direction", columns="name", values="speedup")
    printed = frame[frame["kind"] == "paper"].pivot(index="direction", columns="name", values="paper_speedup")
    return ours.join(printed.add_prefix("paper_"), how="outer").reset_index()


def costs_of_decoders(frame: pd.DataFrame) -> pd.DataFrame:
    """Joined sentences under the honest protocol, then the paper's values for other systems, in the same columns."""
    rows = frame[(frame["set"] != "single") & (frame["protocol"] != "paper")]
    printed = {
        "speedup": "paper_speedup",
        "bleu": "paper_bleu",
        "train_flops": "paper_train_flops",
        "flops_per_sentence": "paper_inference_flops",
        "total_flops": "paper_total_flops",
    }
    for ours, paper in printed.items():
        if paper in rows and ours in rows:
            rows = rows.assign(**{ours: rows[ours].where(rows["kind"] != "paper", rows[paper])})
    return rows.assign(whose=rows["kind"].map({"paper": "the paper"}).fillna("ours"))


EXPERIMENTS = (
    Experiment(
        tables.table1,
        "Table 1: speed and BLEU of the decoders",
        columns(
            Column("name", "decoder"),
            Column("sentences", "sentences, protocol"),
            "calls_ratio:2 agreement bleu:1 speedup:2 paper_speedup:2",
        ),
        arrange=mean_of_directions,
        note="Mean of six directions; the paper's of OPUS-MT, two directions. In float32 the lossless decoders agree with greedy "
        "on all 3,000 joined and all 3,000 single sentences.",
    ),
    Experiment(
        tables.table2,
        "Table 2: speed and passes over languages",
        columns(
            "direction",
            Column("jacobi", "PJ"),
            Column("gauss_seidel:block=3", "PGJ"),
            Column("hybrid:block=3", "HGJ"),
            Column("window:width=5", "window"),
            Column("paper_jacobi", "paper: PJ"),
            Column("paper_gauss_seidel:block=3", "paper: PGJ"),
        ),
        arrange=speedups,
        note="Speedups over greedy decoding: ours of joined sentences, protocol *honest*; the paper's of mBART-50.",
    ),
    Experiment(
        tables.table3,
        "Table 3: training and inference cost against other methods",
        columns(
            Column("name", "method"),
            Column("whose", "measured by"),
            "speedup bleu:1",
            Column("train_flops", "FLOPs of training"),
            Column("total_flops", "FLOPs in all"),
        ),
        arrange=costs_of_decoders,
        note="Ours: joined sentences, English to German; nothing is trained for our decoders. The paper's rows are "
        "what it collects of non-autoregressive models.",
    ),
    Experiment(
        tables.table4,
        "Table 4: sizes of the test sets",
        columns(
            Column("name", "test set"),
            Column("set", "kind"),
            "sentences",
            Column("source_tokens", "tokens of a source", 1),
        ),
        arrange=measured_rows,
        note=f"The paper's test sets have {min(TABLE_4.values()):,} to {max(TABLE_4.values()):,} sentences.",
        counted=True,
    ),
    Experiment(
        tables.table5,
        "Table 5: FLOPs of other models",
        columns(
            Column("name", "model or decoder"),
            Column("whose", "counted by"),
            Column("train_flops", "FLOPs of training"),
            Column("flops_per_sentence", "FLOPs of inference"),
            Column("total_flops", "FLOPs in all"),
        ),
        arrange=costs_of_decoders,
    ),
    Experiment(
        tables.table6,
        "Table 6: time and passes",
        columns(
            Column("name", "decoder"),
            Column("sentences", "sentences, protocol"),
            "calls_ratio:2",
            Column("calls_ratio_as_paper_counts", "as the paper counts", 2),
            "paper_calls_ratio:2 speedup:2 paper_speedup:2",
        ),
        arrange=mean_of_directions,
        note="Mean of six directions. *As the paper counts* leaves out one pass a sentence for PJ and PGJ, as the authors' code "
        "does.",
    ),
    Experiment(tables.table7, "Table 7: BLEU over languages"),
    Experiment(tables.examples, "Example translations", counted=True),
    Experiment(tables.figure1, "Figure 1: sequential and parallel decoding", traced=True, live=True, counted=True),
    Experiment(tables.figure2, "Figure 2: PJ, PGJ and HGJ", traced=True, live=True, counted=True),
    Experiment(
        costs.figure3, "Figure 3: speedup against cores", chart=Chart("cores", "speedup", reference=1.0, log_x=True)
    ),
    Experiment(
        tables.figure4, "Figure 4: dependency graph and passes of one sentence", traced=True, live=True, counted=True
    ),
    Experiment(tables.figure6, "Figure 6: further dependency graphs", traced=True, live=True, counted=True),
    Experiment(
        costs.cost,
        "Cost of a pass against its width",
        arrange=pivoted("name", "width", "cost", "width ", width=(2, 3, 4, 5, 8, 16)),
        note="In passes over one position, network and projection. A decoder pays where its tokens a pass exceed this, less what "
        "it does itself. The compiled engine's stand under Devlin (2017).",
        chart=Chart("width", "cost", y_title="cost in passes of width 1", reference=1.0),
    ),
    Experiment(
        gpu.gpu_passes,
        "Cost of a pass on a GPU, without and with CUDA graphs",
        columns(
            Column("name", "shape, kernels, positions"),
            Column("milliseconds", "ms a pass"),
            Column("cost", "in passes over one position"),
            Column("gain", "gain by graphs"),
        ),
        note="In float16, random weights, one sentence; decoder and projection. *Plain* calls every kernel, *graphs* replay a "
        "recorded pass.",
        chart=Chart("width", "cost", group="group", y_title="cost in passes over one position", reference=1.0),
    ),
    Experiment(
        gpu.gpu,
        "Whole decoding on a GPU, without and with CUDA graphs",
        columns(
            Column("name", "model, kernels, decoder"),
            Column("passes", "passes a sentence", 1),
            Column("milliseconds", "ms a sentence"),
            Column("identical", "same as greedy"),
            "speedup",
            Column("over_plain", "over plain greedy"),
        ),
        note="In float16, own sentences, English to German, one at a time; speedups are over greedy decoding of the same kind, "
        "*plain* or *graphs*. *mBART's shape* is the bundled model grown to 12 + 12 layers that are 1,024 wide and 250,000 "
        "tokens: it has the bundled model's outputs and passes.",
    ),
    Experiment(
        tables.vocabulary,
        "Vocabulary size against word-internal pieces and passes",
        columns(
            "name vocabulary",
            Column("internal_share", "word-internal", share=True),
            Column("pieces_per_word", "pieces a word", 2),
            "calls_ratio",
        ),
        arrange=measured_rows,
        note="The paper has 1.05 times fewer passes with OPUS-MT's 58,000 pieces, 1.10 with mBART-50's 250,000 (PGJ).",
        counted=True,
    ),
    Experiment(
        costs.batch,
        "Speedup against batch size",
        arrange=pivoted("name", "batch", "speedup", "batch "),
        note="Over greedy decoding in batches of the same size, joined sentences.",
        chart=Chart("batch", "speedup", x_title="batch size", reference=1.0, log_x=True),
    ),
    Experiment(
        tables.drafts,
        "Tokens per pass of every draft",
        arrange=pivoted("draft", ["set", "width"], "tokens_per_pass", width=(3, 5)),
        note="By set of sentences and width; the mean of six directions on 20 test sentences each, and of three directions on 20 "
        "own technical sentences. Every output is greedy decoding's.",
        chart=Chart("width", "tokens_per_pass", "draft", where={"set": "joined"}, reference=1.0),
        counted=True,
    ),
    Experiment(
        tables.dependencies,
        "Which tokens depend on which",
        arrange=pivoted(["measure", "group"], "variant", "share", direction="all"),
        note="*changed*: share of choices that change when the token at that distance is replaced by padding or by its "
        "runner-up; *independent*: choices that stay without the token before. Joined test sentences of six directions. "
        "Controls, with padding: the same effects on shuffled positions, and the network with its weights in random order.",
        chart=Chart(
            "distance",
            "share",
            "variant",
            where={"direction": "all", "measure": "changed"},
            y_title="share of choices that change",
            names={"runner_up": "runner-up", "random_weights": "weights in random order"},
        ),
        counted=True,
    ),
)
PAPER = Paper(
    "parallel_decoding",
    "04_parallel_decoding",
    "parallel decoding (PJ, PGJ, HGJ) and DDGviz",
    EXPERIMENTS,
    CITATION,
    CONCLUSION,
    "drafts",
    SETUP,
    DIFFERENCES,
)
