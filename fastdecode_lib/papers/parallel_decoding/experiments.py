"""Santilli et al. (2023), parallel decoding: its tables and figures and further ones, and how each is read."""

import pandas as pd

from fastdecode_lib.papers.experiment import Chart, Citation, Column, Experiment, Paper, columns
from fastdecode_lib.papers.parallel_decoding import costs, gpu, tables
from fastdecode_lib.papers.parallel_decoding.printed import BEAM, GREEDY, HGJ3, PGJ3, PJ, TABLE_1, TABLE_4, mean
from fastdecode_lib.papers.parallel_decoding.runs import WINDOW
from fastdecode_lib.papers.reading import measured_rows, pivoted


def printed_cells(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """The paper's values, once each: those of what we measure, too, stand in our rows."""
    values = [name for name in frame if name.startswith("paper_")]
    return frame.dropna(subset=values, how="all").drop_duplicates(list(keys))[[*keys, *values]]


def mean_of_directions(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean of our rows over all directions, with the sentences of each, and of the paper's over its own."""
    keys = ["name", "set", "protocol"]
    ours = frame[frame["kind"] == "measured"].groupby(keys, sort=False).mean(numeric_only=True)
    ours = ours[[name for name in ours if not name.startswith("paper_") and not name.endswith(("_low", "_high"))]]
    printed = printed_cells(frame, "name", "direction").groupby("name").mean(numeric_only=True)
    rows = ours.reset_index().join(printed, on="name")
    counts = rows["sentences"].map("{:,.0f} ".format)
    return rows.assign(sentences=counts + rows["set"] + ", " + rows["protocol"])


def honest(frame: pd.DataFrame) -> pd.DataFrame:
    """Our joined sentences under the honest protocol."""
    return frame[(frame["set"] == "joined") & (frame["protocol"] == "honest")]


def by_direction(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction: passes and speed of the decoders on joined sentences, ours and the paper's."""
    parts = []
    for rows, prefix in ((honest(frame), ""), (printed_cells(frame, "name", "direction"), "paper_")):
        passes, speed = (rows[prefix + column].map("{:.2f}".format) for column in ("calls_ratio", "speedup"))
        cells = rows.assign(cell=passes + "; " + speed)
        parts.append(cells.pivot(index="direction", columns="name", values="cell").add_prefix(prefix))
    return parts[0].join(parts[1], how="outer").reset_index()


def bleu_by_direction(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction: BLEU of the decoders on joined sentences, ours and the paper's."""
    ours = honest(frame).pivot(index="direction", columns="name", values="bleu")
    printed = printed_cells(frame, "name", "direction")
    printed = printed.pivot(index="direction", columns="name", values="paper_mbart_bleu").add_prefix("paper_")
    return ours.join(printed, how="outer").reset_index()


def passes_of_examples(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each example: greedy decoding's translation, and the passes of every decoder."""
    passes = frame.pivot(index="example", columns="name", values="calls")
    return frame[frame["name"] == GREEDY].drop(columns="name").join(passes, on="example")


def costs_of_decoders(frame: pd.DataFrame) -> pd.DataFrame:
    """Joined sentences under the honest protocol, then all values of the paper in the same columns."""
    printed = printed_cells(frame, "name")
    printed.columns = [name.removeprefix("paper_") for name in printed]
    if "architecture" in printed:
        needs = printed[["architecture", "loss", "distillation"]].agg("; ".join, axis=1)
        printed = printed.assign(needs=needs.str.lower())
    ours = honest(frame).assign(inference_flops=frame["total_flops"], whose="ours", needs="no; no; no")
    return pd.concat([ours, printed.assign(whose="the paper")], ignore_index=True)


SHORT = {PJ: "PJ", PGJ3: "PGJ", HGJ3: "HGJ"}
WHOSE = (("", ""), ("paper_", "paper: "))
OUR_SET = "500 joined sentences"
PAPER_SET = f"the {TABLE_4['WMT 14 De-En']:,} sentences of WMT-14"
MBART_NOTE = "The paper's mBART-50 on a GPU is {} times as fast, at {:.1f} BLEU.".format(
    ", ".join(f"{mean(TABLE_1, name, 'paper_mbart_speedup'):.2f} ({short})" for name, short in SHORT.items()),
    mean(TABLE_1, GREEDY, "paper_mbart_bleu"),
)
EXPERIMENTS = (
    Experiment(
        tables.table1,
        "Table 1: speed and BLEU of the decoders",
        columns(
            Column("name", "decoder"),
            Column("sentences", "sentences, protocol"),
            "agreement bleu:1 paper_bleu:1 speedup:2 paper_speedup:2",
        ),
        arrange=mean_of_directions,
        note="Mean of six directions, with the sentences of each; the paper's of OPUS-MT, four directions (English with German "
        "and Romanian). BLEU of different sentences does not compare: that of `hf`, transformers, is of the few on which it is "
        f"timed, where all its outputs are greedy decoding's. {MBART_NOTE} In float32 the lossless decoders agree with greedy on "
        "all 3,000 joined and all 3,000 single sentences.",
    ),
    Experiment(
        tables.table2,
        "Table 2: speed and passes over languages",
        columns(
            "direction",
            *(
                Column(f"{whose}{name}", f"{heading}{short}")
                for whose, heading in WHOSE
                for name, short in SHORT.items()
            ),
        ),
        arrange=by_direction,
        note="Times fewer passes, then times as fast as greedy decoding: ours of joined sentences, protocol *honest*; the paper's "
        "of mBART-50 on a GPU, passes as its authors' code counts them (Table 6).",
    ),
    Experiment(
        tables.table3,
        "Table 3: training and inference cost against other methods",
        columns(
            Column("name", "method"),
            Column("whose", "measured by"),
            Column("needs", "new architecture, loss, distillation"),
            "speedup:2 bleu:1",
            Column("total_flops", "FLOPs in all"),
            Column("flops_per_speedup", "FLOPs over speedup"),
        ),
        arrange=costs_of_decoders,
        note=f"English to German. Ours: {OUR_SET}; nothing is trained for our decoders. The paper's: HGJ with OPUS-MT, and what it "
        f"collects of non-autoregressive models, for {PAPER_SET}; FLOPs in all are of training and inference.",
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
            Column("inference_flops", "FLOPs of inference"),
            Column("total_flops", "FLOPs in all"),
        ),
        arrange=costs_of_decoders,
        note=f"Inference, English to German: ours of {OUR_SET}, the paper's of {PAPER_SET}.",
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
        note="Mean of six directions, with the sentences of each; the paper's of OPUS-MT, four directions. *As the paper counts* "
        "leaves out one pass a sentence for PJ and PGJ, as the authors' code does.",
    ),
    Experiment(
        tables.table7,
        "Table 7: BLEU over languages",
        columns(
            "direction",
            Column(GREEDY, "greedy, PJ, PGJ, HGJ", 2),
            Column(BEAM, "beam of 5", 2),
            Column(f"paper_{GREEDY}", "paper: greedy", 2),
            Column(f"paper_{PJ}", "paper: PJ", 2),
            Column(f"paper_{PGJ3}", "paper: PGJ, HGJ", 2),
            Column(f"paper_{BEAM}", "paper: beam of 5", 2),
        ),
        arrange=bleu_by_direction,
        note="Ours of joined sentences; the paper's of mBART-50.",
    ),
    Experiment(
        tables.examples,
        "Example translations",
        columns(
            Column("source", "sentence"),
            Column("output", "translation by greedy, PJ, PGJ, HGJ, window"),
            Column(GREEDY, "passes: greedy"),
            Column(PJ, "PJ"),
            Column(PGJ3, "PGJ"),
            Column(HGJ3, "HGJ"),
            Column(WINDOW, "window"),
        ),
        arrange=passes_of_examples,
        note="Blocks of three, a window of five.",
        counted=True,
    ),
    Experiment(tables.figure1, "Figure 1: sequential and parallel decoding", traced=True, live=True, counted=True),
    Experiment(tables.figure2, "Figure 2: PJ, PGJ and HGJ", traced=True, live=True, counted=True),
    Experiment(
        costs.figure3,
        "Figure 3: speedup against cores",
        note="Calculated: for an engine whose cores share the positions of a pass. Ours gives a sentence to one core.",
        chart=Chart("cores", "speedup", reference=1.0, log_x=True),
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
    Citation(
        "Santilli et al.",
        2023,
        "Accelerating Transformer Inference for Translation via Parallel Decoding",
        "https://arxiv.org/abs/2305.10427",
    ),
    "drafts",
)
