"""Amer et al. (2022), vocabulary projection by clusters and active sets: its tables and figures, and how each is read."""

import pandas as pd

from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper, columns
from fastdecode_lib.papers.reading import beside_paper, measured_rows
from fastdecode_lib.papers.vocabulary_clusters import decoding, geometry, gpu, gpu_decoding, tables
from fastdecode_lib.papers.vocabulary_clusters.conclusion import CITATION, CONCLUSION, DIFFERENCES, SETUP
from fastdecode_lib.papers.vocabulary_clusters.printed import IDENTICAL, INCONSISTENCIES, TABLE_5


def by_direction(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction, the paper's values beside ours."""
    return beside_paper(frame.assign(name=frame["name"].str.removesuffix(", paper")), "name")


def projection_times(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction: the union of a batch, each row's own set, and the paper's two models."""
    ours = frame[frame["kind"] == "measured"].pivot(index="direction", columns="method")
    dense, m3 = (frame[frame["method"] == model].set_index("direction") for model in ("dense", "m3"))
    union = {f"union{end}": ours[f"speedup{end}", "union of the batch"] for end in ("", "_low", "_high")}
    own_sets = {f"own{end}": ours[f"speedup{end}", "each row's own"] for end in ("", "_low", "_high")}
    paper = {
        "paper_active": dense["paper_active"],
        "paper_speedup": dense["paper_speedup"],
        "paper_m3": m3["paper_speedup"],
    }
    rows = ours["active", "union of the batch"].rename("active").to_frame().assign(**union, **own_sets)
    return rows.join(pd.DataFrame(paper), how="outer").rename_axis("direction").reset_index()


def whole_decoding(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of clusters with the BLEU that they lose, the paper's Dense model in the row of *shared*."""
    frame = frame.assign(lost=frame["paper_bleu_exact"] - frame["paper_bleu"])
    ours, dense = frame[frame["kind"] == "measured"], frame[frame["method"] == "dense"]
    exact = ours[ours["method"] == "exact"].set_index(["direction", "protocol"])["bleu"]
    ours = ours[ours["method"] != "exact"].drop(columns=["lost", "paper_speedup"])
    ours = ours.join(exact.rename("exact"), on=["direction", "protocol"])
    ours = ours.assign(bleu_lost=ours["exact"] - ours["bleu"])
    paper = dense.assign(method="clustered, shared", paper_bleu_lost=dense["lost"], kind="paper")
    paper = paper[["direction", "protocol", "method", "paper_bleu_lost", "paper_speedup", "kind"]]
    rows = beside_paper(pd.concat([ours, paper], ignore_index=True), "direction", "protocol", "method")
    return rows.assign(how=rows["method"] + "; " + rows["protocol"])


def largest_sets(frame: pd.DataFrame) -> pd.DataFrame:
    """Active shares by the contexts that clusters are fitted on, the paper's in the same rows."""
    return beside_paper(frame.assign(group=frame["group"].str.removeprefix("paper: ")), "group", "clusters")


DECODED = columns(
    "direction",
    Column("how", "sets; protocol"),
    "identical",
    Column("bleu_lost", "BLEU lost", 1),
    Column("speedup", "speedup of all decoding"),
    Column("paper_bleu_lost", "paper: BLEU lost", 1),
    "paper_speedup",
)
DECODED_NOTE = (
    "*clustered* are 50 clusters with five labels, each row with its own set; *shared* is the union over the batch, as in the "
    f"paper, of whose Dense model the values are; {IDENTICAL:.0%} of its outputs were the same. *The paper's choice* "
    "are 1,300 clusters with one label, for which our contexts are too few."
)
EXPERIMENTS = (
    Experiment(tables.figure1, "Figure 1: clusters and active sets at work", traced=True, live=True, counted=True),
    Experiment(
        tables.table1,
        "Table 1: sentences of the two sets",
        columns(Column("name", "direction"), "set_1 set_2 paper_set_1 paper_set_2"),
        arrange=by_direction,
        counted=True,
    ),
    Experiment(
        tables.table2,
        "Table 2: active tokens and time of the projection",
        columns(
            "direction",
            Column("active", "active in the union", share=True),
            Column("union", "speedup, union of the batch"),
            Column("own", "speedup, each row's own"),
            "paper_active:%",
            Column("paper_speedup", "paper: Dense"),
            Column("paper_m3", "paper: M3"),
        ),
        arrange=projection_times,
        note="Ours are means over the steps of beam searches: 20 sentences with a beam of 2, 40 rows at first and "
        "fewer as they end; 50 clusters with five labels. The paper's are of a GPU. Scattering the scores over the vocabulary's "
        "width, as the paper does for its softmax, costs about a fifth of the speed.",
    ),
    Experiment(tables.table3, "Table 3: quality and speed on set 1", DECODED, whole_decoding, DECODED_NOTE),
    Experiment(tables.table4, "Table 4: quality and speed on set 2", DECODED, whole_decoding, DECODED_NOTE),
    Experiment(
        tables.table5,
        "Table 5: memory",
        columns(
            Column("name", "direction"),
            Column("output_megabytes", "output matrix, MB"),
            Column("sets_megabytes", "centroids and sets, MB"),
            Column("with_copies_megabytes", "with a copy of each set's rows, MB"),
        ),
        arrange=measured_rows,
        note="The paper's models grow with clusters from {} to {} GB (Dense) and from {} to {} GB (M3).".format(
            *TABLE_5["dense"], *TABLE_5["m3"]
        ),
        counted=True,
    ),
    Experiment(
        tables.table6,
        "Table 6: outputs rated side by side",
        columns(
            Column("name", "direction"),
            "segments differing identical paper_exact paper_clustered",
            Column("paper_mark", "paper: significance"),
        ),
        arrange=by_direction,
        note="We have no raters: ours are the outputs that a study would show them. The paper's are mean ratings of people, from 0 "
        "to 100. `ddgviz.rate` and `ratings.Study` make such a study of any two systems.",
        counted=True,
    ),
    Experiment(
        tables.figure2,
        "Figure 2: largest active share against the number of clusters",
        columns(Column("group", "contexts of"), "clusters largest_share mean_share paper_largest_share"),
        arrange=largest_sets,
        chart=Chart(
            "clusters",
            "largest_share",
            group="group",
            where={"kind": "measured"},
            log_x=True,
            y_title="largest active share",
        ),
        counted=True,
    ),
    Experiment(
        tables.figure3,
        "Figure 3: speedup against the number of clusters",
        columns(Column("name", "clusters and labels"), Column("speedup", "speedup of all decoding"), "identical"),
        note="German to English, a sentence at a time. No number of clusters is faster than another beyond chance: all score so "
        "few tokens that the rest of decoding is what is left. The more clusters, the smaller their sets, and up to 400 of them "
        "the more outputs change (of 60).",
        chart=Chart("clusters", "speedup", group="group", reference=1.0, log_x=True),
    ),
    Experiment(
        tables.figure4,
        "Figure 4: active share of every cluster",
        chart=Chart("cluster", "share", group="group", x_title="cluster, largest first", y_title="active share"),
        counted=True,
    ),
    Experiment(
        decoding.step_share,
        "What part of decoding the projection is",
        columns(
            Column("name", "protocol, projection"),
            Column("share", "share of the time"),
            Column("most", "speedup if it took no time"),
        ),
        note="English to German.",
    ),
    Experiment(
        decoding.end_to_end,
        "Every projection under every decoder",
        columns(
            "decoder",
            Column("method", "projection"),
            "setting",
            Column("identical", "same as exact"),
            Column("as_greedy", "same as greedy"),
            "bleu:1 speedup",
        ),
        note="English to German, 400 single test sentences, 60 of them timed; the window is 5 wide and recycles its tokens, the "
        "beam is 2 wide, in batches of 20. *Same as exact*: outputs that are the exact projection's under the same decoder; *same "
        "as greedy*: outputs that are greedy decoding's under the same projection, which is all of them by law where each row has "
        "its own set; of a beam, its own outputs without neighbours. Rare words, memory and speed over exact greedy "
        "decoding are in the raw file.",
    ),
    Experiment(
        tables.sharing,
        "What a union over the batch does to outputs",
        columns(
            "direction method",
            Column("together_as_alone", "same output together as alone", share=True),
            Column("otherwise_together_as_alone", "with other neighbours", share=True),
            "window_as_greedy:%",
        ),
        note="20 sentences together; with other neighbours, 7. The union is a batch's, or a pass's of the window.",
        counted=True,
    ),
    Experiment(
        geometry.zcode,
        "Time at the geometry of the paper's models",
        columns(Column("name", "geometry, method"), "microseconds", Column("speedup", "speedup over numpy")),
        note="A percentage is the active share of a cluster: 2% is that of the largest in the paper's figure 4 with one label, "
        "12.5% that of the largest of 400 in its figure 2. Unions of its batches (table 2) are 6.4% to 16.5%.",
    ),
    Experiment(
        gpu.gpu,
        "Time of the projection on a GPU, where the paper measures it",
        columns(
            Column("name", "geometry, hidden vectors of a call, system"),
            "active_share",
            Column("milliseconds", "ms a call"),
            Column("speedup", "speedup over all tokens"),
            Column("crossover", "none from", share=True),
        ),
        note="In float16, on an NVIDIA H200. *Shared* is one set for all vectors of a call, as in the paper; *none from* is the "
        "active share from which nothing is gained. Nothing is gained here: a call that scores all tokens reads the matrix at up "
        "to 2.5 TB a second; a screened one takes at least 0.33 ms whatever it reads, which is what starting its kernels takes.",
    ),
    Experiment(
        gpu_decoding.gpu_decoding,
        "Whole decoding on a GPU, at the vocabulary of the paper's model",
        columns(
            Column("name", "protocol, projection"),
            "active:%",
            Column("milliseconds", "ms a sentence"),
            Column("identical", "same as exact"),
            Column("speedup", "speedup of all decoding"),
        ),
        note="In float16, 250,000 tokens, 12 + 12 layers that are 1,024 wide: the bundled model grown to that size, and its own "
        "clusters, whose sets are filled up to the paper's shares with tokens that never win. The paper has 1.21 to 1.27 a "
        "sentence at a time and 1.10 to 1.16 in batches of 20.",
    ),
    Experiment(
        geometry.lossless,
        "The lossless projection against the exact one, bit for bit",
        columns(
            Column("name", "output matrix"),
            Column("vocabulary", "rows"),
            "width",
            Column("queries", "vectors"),
            Column("mismatches", "answers that differ"),
            Column("scored_again", "rows scored again, mean"),
            Column("scored_again_most", "most"),
        ),
        note="Vectors are recorded contexts, or lie between two of those, at random; `dense`'s are turned into the larger space.",
        counted=True,
    ),
)
PAPER = Paper(
    "vocabulary_clusters",
    "01_vocabulary_clusters",
    "vocabulary projection by clusters and active sets",
    EXPERIMENTS,
    CITATION,
    CONCLUSION,
    "figure3",
    SETUP,
    DIFFERENCES,
    INCONSISTENCIES,
)
