"""Amer et al. (2022), vocabulary projection by clusters and active sets: its tables and figures, and how each is read."""

import pandas as pd

from fastdecode_lib.papers.experiment import Chart, Citation, Column, Experiment, Paper, columns
from fastdecode_lib.papers.reading import beside_paper, measured_rows
from fastdecode_lib.papers.vocabulary_clusters import decoding, geometry, gpu, gpu_decoding, tables
from fastdecode_lib.papers.vocabulary_clusters.printed import FIGURE_3, FIGURE_4, IDENTICAL, TABLE_5


def by_direction(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction, the paper's values beside ours."""
    return beside_paper(frame.assign(name=frame["name"].str.removesuffix(", paper")), "name")


SETS = {
    "union of the batch": "union of 50 clusters",
    "each row's own": "own sets of 50 clusters",
    "union, the paper's choice": "union of 1,300 clusters",
}


def projection_times(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction and kind of sets; the paper's models are beside its own choice, the union of 1,300 clusters."""
    dense, m3 = (frame[frame["method"] == model] for model in ("dense", "m3"))
    of_m3 = m3.set_index("direction")[["paper_active", "paper_speedup"]].add_suffix("_m3")
    paper = dense.assign(method="union, the paper's choice").join(of_m3, on="direction")
    rows = beside_paper(pd.concat([frame[frame["method"].isin(SETS)], paper]), "direction", "method")
    return rows.assign(name=rows["direction"] + ", " + rows["method"].map(SETS))


def whole_decoding(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of clusters with the BLEU that they lose, the paper's BLEU and speedups as text in the rows of *shared*."""
    ours, paper = frame[frame["kind"] == "measured"], frame[frame["kind"] == "paper"]
    exact = ours[ours["method"] == "exact"].set_index(["direction", "protocol"])["bleu"]
    ours = ours[ours["method"] != "exact"].join(exact.rename("exact"), on=["direction", "protocol"])
    cells = zip(paper["paper_bleu_exact"], paper["paper_bleu"], paper["paper_speedup"], strict=True)
    texts = [f"{a:.2f} to {b:.2f}" + (f", {gain:.2f} times" if gain == gain else "") for a, b, gain in cells]
    by_model = paper.assign(text=texts).pivot(index=["direction", "protocol"], columns="method", values="text")
    beside = by_model.add_prefix("paper_").reset_index().assign(method="clustered, shared", kind="paper")
    rows = beside_paper(pd.concat([ours, beside], ignore_index=True), "direction", "protocol", "method")
    names = rows["direction"] + "; " + rows["method"] + "; " + rows["protocol"]
    return rows.assign(name=names, bleu_lost=rows["exact"] - rows["bleu"])


def largest_sets(frame: pd.DataFrame) -> pd.DataFrame:
    """Active shares by the contexts that clusters are fitted on, the paper's in the same rows."""
    return beside_paper(frame.assign(group=frame["group"].str.removeprefix("paper: ")), "group", "clusters")


DECODED = columns(
    Column("name", "direction; sets; protocol"),
    "identical bleu:1",
    Column("bleu_lost", "BLEU lost", 1),
    Column("speedup", "speedup of all decoding"),
    Column("paper_dense", "paper: Dense, BLEU and speedup"),
    Column("paper_m3", "paper: M3"),
)
DECODED_NOTE = (
    "*clustered* are 50 clusters with five labels, each row with its own set; *shared* is the union over the batch, as in the "
    f"paper, whose BLEU without and with clusters stands beside it; {IDENTICAL:.0%} of M3's outputs were the same. One gain of M3 "
    "in table 3 is not legible in our copy. *The paper's choice* are 1,300 clusters with one label, each row with its own set; our "
    "contexts are too few for them."
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
            Column("name", "direction, sets"),
            "active:% speedup",
            Column("paper_active", "paper: Dense, active", share=True),
            Column("paper_speedup", "paper: Dense, speedup"),
            Column("paper_active_m3", "paper: M3, active", share=True),
            Column("paper_speedup_m3", "paper: M3, speedup"),
        ),
        arrange=projection_times,
        note="Ours are means over the steps of beam searches: 20 sentences with a beam of 2, 40 rows at first and "
        "fewer as they end. 50 clusters have five labels, 1,300 have one, as in the paper, whose times are of a GPU. "
        "Scattering the scores over the vocabulary's width, as the paper does for its softmax, costs about a fifth of the speed.",
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
        note="German to English with one label; the paper's is Italian to English.",
        counted=True,
    ),
    Experiment(
        tables.figure3,
        "Figure 3: speedup against the number of clusters",
        columns(Column("name", "clusters and labels"), Column("speedup", "speedup of all decoding"), "identical"),
        note="German to English, a sentence at a time. With five labels 25 clusters are slower than 100 and more; else no number "
        "is faster than another with as many labels beyond chance: all score so few tokens that the rest of decoding is left. The "
        "more clusters, the smaller their sets, and as many or more outputs change (of 60). The paper's fastest are "
        f"{FIGURE_3[0]:,} clusters with K = {FIGURE_3[1]}, Italian to English.",
        chart=Chart("clusters", "speedup", group="group", reference=1.0, log_x=True),
    ),
    Experiment(
        tables.figure4,
        "Figure 4: active share of every cluster",
        note="50 clusters, German to English; the largest have 13, 19 and 22% of the tokens with K = 1, 3 and 5. The paper has "
        "1,300, Italian to English, and names those of cluster 0: {:.0f}, {:.0f} and {:.0f}%.".format(
            *FIGURE_4.values()
        ),
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
        note="English to German. In the paper the projection is, by its gains and times, some 30% of the time for one sentence and "
        "14 to 26% in its batches (Dense), 7 to 13% in M3.",
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
        "decoding are in the raw file. FGD has up to 64 links here and not the end among its candidates (table 3 of Chen et al.): "
        "to be made again.",
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
        note="A percentage is the active share of a cluster: 2% is that of cluster 0 in the paper's figure 4 with one label, 12.5% "
        "that of the largest of 400 in its figure 2. Unions of its batches (table 2) are 6.4% to 16.5%. M3's number of clusters "
        "is not printed: 1,300, as of Dense.",
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
    Citation(
        "Amer et al.",
        2022,
        "Fast Vocabulary Projection Method via Clustering for Multilingual Machine Translation on GPU",
        "https://arxiv.org/abs/2208.06874",
    ),
    "figure3",
)
