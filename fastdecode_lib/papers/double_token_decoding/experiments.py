"""Imamura and Sumita, double-token bidirectional decoding: its tables and figures and further ones, and how each is read."""

from functools import partial

import pandas as pd

from fastdecode_lib.papers.double_token_decoding import ends, gpu, junction, profile, quality, speed
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding.systems import SINGLE
from fastdecode_lib.papers.experiment import Chart, Citation, Column, Experiment, Paper, columns, rows_where
from fastdecode_lib.papers.reading import measured_rows, pivoted

LEARNED_EVERY = 1_000
"""Updates between two columns of the table of learning curves."""


def learned(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each system, a column for each 1,000 updates and for the ends of runs."""
    rows = frame[frame["kind"] == "measured"].sort_values("updates")
    last = rows.groupby("system")["updates"].transform("max")
    rows = rows[(rows["updates"] % LEARNED_EVERY == 0) | (rows["updates"] == last)]
    rows = rows.astype({"updates": int})
    return pivoted("system", "updates", "chrf", "chrF, ")(rows)


def with_marks(bleu: pd.Series, marks: pd.Series, digits: int) -> pd.Series:
    """BLEU as text, with its marks of significant differences."""
    return (bleu.map(f"{{:.{digits}f}} ".format, na_action="ignore") + marks.fillna("")).str.rstrip()


def beside_every_set(frame: pd.DataFrame) -> pd.DataFrame:
    """Our rows with the paper's values of its first set, and a row for each of its other sets."""

    def papers_of(rows: pd.DataFrame, corpus: str) -> dict[str, pd.Series]:
        bleu = with_marks(rows[f"paper_bleu_{corpus}"], rows[f"paper_marks_{corpus}"], 2)
        return {"paper_bleu": bleu, "paper_ratio": rows[f"paper_ratio_{corpus}"]}

    first, *others = SETS
    ours = frame.assign(bleu=with_marks(frame["bleu"], frame["marks"], 1), **papers_of(frame, first))
    systems = frame[(frame["set"] == SINGLE) & frame["paper_bleu_wmt_base"].notna()]
    papers = [
        systems[["system"]].assign(set=f"paper: {SETS[corpus]}", **papers_of(systems, corpus)) for corpus in others
    ]
    return pd.concat([ours.drop(columns=["bleu_low", "bleu_high"]), *papers], ignore_index=True)


def by_vocabulary(frame: pd.DataFrame) -> pd.DataFrame:
    """Our ratios, and the paper's of both corpora in the same rows."""
    ours = measured_rows(frame)
    for corpus in ("wmt", "aspec"):
        printed = frame[frame["group"] == f"paper, {corpus}"].set_index("vocabulary")["paper_speedup"]
        ours = ours.assign(**{f"paper_{corpus}": ours["vocabulary"].map(printed)})
    return ours


RATIO = "speed over single-token L2R"
SPEEDUP = Column("speedup", "ratio")
SETS = imamura_2020.NAMES
SYSTEM_COLUMNS = columns(
    "system set bleu",
    Column("token_ratio", "ratio, one at a time"),
    Column("token_ratio_batch_32", "ratio, batches of 32"),
    Column("paper_bleu", "paper: BLEU"),
    Column("paper_ratio", "paper: ratio", 2),
)
SYSTEMS_NOTE = """\
ratio: of tokens a second over single-token L2R, as in the paper, whose batches have 32 sentences sorted by length, on a V100. The
paper's values in our rows are of WMT-14 and Transformer base. † and ‡: BLEU differs from single-token L2R's or R2L's by more than
chance (ours: paired bootstrap over sentences, 5%). Updates of the best checkpoint: 2,800, Mask-Predict 3,000. The paper's tokens a
second by single-token L2R: {}.""".format(
    ", ".join(
        f"{cell[1]:,} ({label})"
        for cell, label in zip(imamura_2020.TABLE_2["single_token_l2r"], SETS.values(), strict=True)
    )
)
EXPERIMENTS = (
    Experiment(quality.figure1, "Figure 1: which slots see each other", live=True, counted=True),
    Experiment(quality.figure2, "Figure 2: a sentence from both ends", traced=True, live=True, counted=True),
    Experiment(quality.mask_predict, "Mask-Predict: all tokens at once", traced=True, counted=True),
    Experiment(quality.table1, "Table 1: settings", columns("name ours paper"), counted=True),
    Experiment(
        quality.table2,
        "Table 2: quality and speed of every system",
        SYSTEM_COLUMNS,
        arrange=beside_every_set,
        note=SYSTEMS_NOTE,
    ),
    Experiment(
        quality.learning,
        "How the systems learn",
        arrange=learned,
        note="chrF on dev after so many updates, plainest decoder; the last weights or their running average, whichever is better.",
        chart=Chart("updates", "chrf", group="system", from_zero=False, x_title="updates", y_title="chrF, dev"),
    ),
    Experiment(
        quality.recipes,
        "What training costs: two recipes",
        columns(
            "system updates",
            Column("chrf", "chrF, dev"),
            "processor_minutes:0",
            Column("muon_share", "updates, Muon / AdamW", share=True, digits=0),
            Column("muon_processor_share", "time, Muon / AdamW", share=True, digits=0),
        ),
        arrange=measured_rows,
        note="Single-token L2R, batches of 3,000 tokens in the same order, a core each, begun at once and beside other jobs. With "
        "Muon the rates fall to zero after 1,500 updates; with AdamW alone, at its former rate of 0.001, they fall with the "
        "inverse square root of the update, so that the run could go on (its updates from 3,300 on were made a day later). "
        "Processor minutes are the updates times a run's median cost of one. The last two columns: updates and processor time "
        "with which the recipe with Muon first comes to a row's chrF, over those of AdamW alone. AdamW's peak rate beside Muon "
        "was chosen on dev by runs of 400 updates on that machine and day: chrF 36.2 at 0.0015, 42.7 at 0.003, 44.3 at 0.005 with "
        "Muon's at 0.02; as much (44.4) at 0.008 with Muon's at 0.014; less with Muon's at 0.01 (43.1 at 0.005) or 0.03 (36.0 at "
        "0.003). The systems above were trained before that, at 0.02 and 0.0015.",
        chart=Chart("updates", "chrf", group="system", from_zero=False, x_title="updates", y_title="chrF, dev"),
    ),
    Experiment(
        speed.figure3,
        "Figure 3: speed ratio against beam width",
        columns(Column("name", "model"), "beam", SPEEDUP),
        arrange=measured_rows,
        note="The paper reports 1.13 to 1.55 at a beam of 10 (here 1.14 in a run on another day); all number formats and engines "
        "here are further down this page (*Where the time of one and two tokens a step goes*). What both systems share, encoder, "
        "layers and choice of tokens, gains no more.",
        chart=Chart("beam", "speedup", group="name", reference=1.0, x_title="beam width", y_title=RATIO),
    ),
    Experiment(
        ends.table3,
        "Table 3: how much of the outputs' ends is right",
        columns(
            Column("name", "n-grams"),
            Column("single", "single-token L2R, %", 1),
            Column("bidirectional", "bidirectional, %", 1),
            "difference",
            Column("against_left", "against the left end"),
            Column("paper_difference_wmt", "paper: WMT", 1),
            Column("paper_difference_aspec", "paper: ASPEC", 1),
        ),
        note="Rows about one end are of sentences whose reference is twice as long at least; against the left end: by how much "
        "the difference is higher than in as many first words of the same sentences.",
        counted=True,
    ),
    Experiment(
        junction.junction,
        "Where both halves meet",
        columns(
            Column("name", "sentences: measure"),
            Column("single", "single-token L2R", 2),
            "bidirectional:2 difference:2",
        ),
        note="A pair of neighbouring tokens is right if the reference has it; loss: nats a token of the references.",
        counted=True,
    ),
    Experiment(
        speed.table4,
        "Table 4: speed against the size of the vocabulary",
        columns(
            "vocabulary",
            Column("pieces", "pieces there are"),
            Column("tokens", "tokens a sentence", 1),
            SPEEDUP,
            Column("paper_wmt", "paper: ratio, WMT"),
            Column("paper_aspec", "paper: ratio, ASPEC"),
        ),
        arrange=by_vocabulary,
        note="Where our text does not have so many pieces, the model has the vocabulary asked for, and sentences the length "
        "that the pieces there are give.",
        chart=Chart("vocabulary", "speedup", group="group", reference=1.0, log_x=True, y_title=RATIO),
    ),
    Experiment(
        speed.sizes,
        "Section 5.2.1: speed against the size of the model",
        columns(
            Column("name", "model, system"),
            "layers tokens_per_second",
            SPEEDUP,
            Column("paper_speedup_wmt", "paper: WMT"),
            Column("paper_speedup_aspec", "paper: ASPEC"),
        ),
        note="Beam 10, one sentence at a time. The plain rival, a token a step by one decoder layer below an encoder twice as "
        "deep, is faster than two tokens a step at every size.",
    ),
    Experiment(
        speed.rows,
        "The ratio against the number of rows in a pass",
        columns(Column("size", "model"), "rows", SPEEDUP),
        note="Greedy. One pass over two tokens computes what two passes compute, but reads the weights once; with many rows "
        "the reading is shared anyway.",
        chart=Chart("rows", "speedup", group="size", reference=1.0, log_x=True, x_title="rows", y_title=RATIO),
    ),
    Experiment(
        profile.profile,
        "Where the time of one and two tokens a step goes, in every number format",
        columns(
            Column("size", "model"),
            "batch engine numbers milliseconds",
            SPEEDUP,
            Column("products", "ratio of encoder, layers, choice"),
        ),
        arrange=partial(rows_where, where={"system": "bidirectional"}),
        note="Beam 10, random weights, forced lengths; milliseconds of one decoding by two tokens a step, ratio over one token a "
        "step. The last column is the ratio of encoder, layers and choice of tokens alone, watched in runs of their "
        "own: it leaves out copies of caches, as the beam moves, and the search. Milliseconds of every part are in the raw file.",
    ),
    Experiment(
        speed.tokens_per_step,
        "More tokens a step: speed and quality",
        columns(
            "tokens_a_step",
            Column("passes", "passes for 30 tokens"),
            Column("speedup_beam_1", "ratio, greedy"),
            Column("speedup_beam_10", "ratio, beam 10"),
            "bleu chrf updates",
        ),
        note="Speed with random weights at base geometry, quality of our trained systems on single sentences at a beam of 10.",
    ),
    Experiment(
        quality.screened,
        "Several tokens a step with a screened vocabulary",
        columns("system projection beam bleu identical", SPEEDUP),
        note="300 joined sentences, 64 of them timed. A screen takes from both systems, so that their ratio does not rise with "
        "it, and falls at a beam of 1.",
    ),
    Experiment(
        profile.screened_vocabulary,
        "A screened vocabulary where vocabularies are large",
        columns(
            "vocabulary beam projection system", SPEEDUP, Column("over_exact", "over single-token, full vocabulary", 2)
        ),
        note="Base geometry, random weights, forced lengths; sets of 4.5% of the vocabulary. ratio: over single-token decoding "
        "with the same projection. A screen leaves the ratio as it is at a beam of 10, and lowers it at a beam of 1.",
        chart=Chart(
            "vocabulary",
            "speedup",
            group="group",
            where={"system": "bidirectional"},
            reference=1.0,
            log_x=True,
            y_title=RATIO,
        ),
    ),
    Experiment(
        gpu.gpu,
        "Speed of every system on a GPU",
        columns(
            Column("name", "system, decoder"),
            Column("tokens_per_second", "tokens a second", 0),
            Column("token_ratio", "ratio of tokens a second"),
            "speedup",
            Column("as_float32", "same as float32"),
            Column("paper_ratio_wmt_base", "paper: WMT, base"),
            Column("paper_ratio_aspec_base", "paper: ASPEC, base"),
        ),
        arrange=measured_rows,
        note="In float16, in batches of 32 sorted by length, over single-token L2R by the same width of beam in the same run; 128 "
        "of our own sentences.",
    ),
    Experiment(
        gpu.gpu_beams,
        "Speed ratio against beam width on a GPU",
        columns("batch beam", Column("tokens_per_second", "tokens a second", 0), SPEEDUP),
        note="In float16, base geometry, random weights, forced lengths of 30 tokens.",
        chart=Chart("beam", "speedup", group="group", reference=1.0, x_title="beam width", y_title=RATIO),
    ),
    Experiment(
        quality.lossless,
        "The bidirectional output as a draft that single-token L2R verifies",
        columns(
            Column("name", "decoder"),
            Column("identical", "greedy's outputs"),
            "passes",
            Column("draft_passes", "passes of the draft"),
            "tokens_per_pass",
            SPEEDUP,
        ),
        note="The output is single-token L2R's own.",
    ),
)
PAPER = Paper(
    "double_token_decoding",
    "03_double_token_decoding",
    "double-token bidirectional decoding",
    EXPERIMENTS,
    Citation(
        "Imamura and Sumita",
        2020,
        "Transformer-based Double-token Bidirectional Autoregressive Decoding in Neural Machine Translation",
        "https://doi.org/10.18653/v1/2020.wat-1.3",
    ),
    "figure3",
)
