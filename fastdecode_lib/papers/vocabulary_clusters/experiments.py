"""Amer et al. (2022), vocabulary projection by clusters and active sets: its tables and figures, and how each is read."""

from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper, columns
from fastdecode_lib.papers.vocabulary_clusters import decoding, geometry, gpu, tables
from fastdecode_lib.papers.vocabulary_clusters.printed import INCONSISTENCIES

STEM = "vocabulary_clusters"
INTRODUCTION = """\
The bundled multilingual model. Contexts are its own greedy decoding of sentences of the training split, a million in all: 156,870
to 188,499 of each direction, which a direction's clusters are made on. Baselines' settings are chosen on its 13,730 contexts from
English to German of the dev split. Sentences are those of the test split, single (set 1) and joined two to four at a time (set 2).
The paper's models, sentences and raters cannot be had. One thread, systems in turn, 95% intervals; speedups are over our own exact
kernel in float32 unless a table says otherwise. The notebook `01_vocabulary_clusters` shows the tables with what they mean."""

DECODED = columns(
    "direction method protocol bleu chrf identical",
    Column("speedup", "speedup of all decoding"),
    Column("paper_bleu_exact", "paper: BLEU, exact"),
    Column("paper_bleu", "paper: BLEU, clusters"),
    "paper_speedup",
)
DECODED_NOTE = (
    "Rows of `dense` and `m3` are the paper's two models; 92% of their outputs were the same. The paper's own choice are 1,300 "
    "clusters with one label, for which our contexts are too few."
)
EXPERIMENTS = (
    Experiment(
        STEM,
        "figure1",
        "Figure 1: clusters and active sets at work",
        tables.figure1,
        traced=True,
        live=True,
        counted=True,
    ),
    Experiment(
        STEM,
        "table1",
        "Table 1: sentences of the two sets",
        tables.table1,
        columns(Column("name", "direction"), "set_1 set_2 paper_set_1 paper_set_2"),
        counted=True,
    ),
    Experiment(
        STEM,
        "table2",
        "Table 2: active tokens and time of the projection",
        tables.table2,
        columns(
            "direction method clusters",
            Column("rows", "rows a step"),
            Column("active", share=True),
            "microseconds speedup",
            Column("paper_active", share=True),
            "paper_microseconds paper_speedup",
        ),
        note="Ours are means over the steps of beam searches. 20 sentences with a beam of 2 are 40 rows at first, fewer as they "
        "end. The paper's choice are 1,300 clusters with one label; scattered are the scores of a union over the vocabulary's "
        "width, where the paper takes its softmax. Rows of `dense` and `m3` are the paper's, on a GPU.",
    ),
    Experiment(STEM, "table3", "Table 3: quality and speed on set 1", tables.table3, DECODED, note=DECODED_NOTE),
    Experiment(STEM, "table4", "Table 4: quality and speed on set 2", tables.table4, DECODED, note=DECODED_NOTE),
    Experiment(
        STEM,
        "table5",
        "Table 5: memory",
        tables.table5,
        columns(
            Column("name", "direction or model"),
            Column("output_megabytes", "output matrix, MB"),
            Column("sets_megabytes", "centroids and sets, MB"),
            Column("with_copies_megabytes", "with a copy of each set's rows, MB"),
            Column("paper_gigabytes", "paper: model, GB"),
            Column("paper_gigabytes_with", "paper: with clusters, GB"),
        ),
        counted=True,
    ),
    Experiment(
        STEM,
        "table6",
        "Table 6: outputs rated side by side",
        tables.table6,
        columns(
            Column("name", "direction"),
            "segments differing identical paper_exact paper_clustered",
            Column("paper_mark", "paper: significance"),
        ),
        note="We have no raters: ours are the outputs that a study would show them. The paper's are mean ratings of people, from 0 "
        "to 100. `ddgviz.rate` and `ratings.Study` make such a study of any two systems.",
        counted=True,
    ),
    Experiment(
        STEM,
        "figure2",
        "Figure 2: largest active share against the number of clusters",
        tables.figure2,
        columns(Column("group", "contexts of"), "clusters largest_share mean_share paper_largest_share"),
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
        STEM,
        "figure3",
        "Figure 3: speedup against the number of clusters",
        tables.figure3,
        columns(Column("name", "clusters and labels"), Column("speedup", "speedup of all decoding"), "identical"),
        note="German to English, a sentence at a time. No number of clusters is faster than another beyond chance: all score so "
        "few tokens that the rest of decoding is what is left. The more clusters, the smaller their sets, and up to 400 of them "
        "the more outputs change (of 60).",
        chart=Chart("clusters", "speedup", group="group", reference=1.0, log_x=True),
    ),
    Experiment(
        STEM,
        "figure4",
        "Figure 4: active share of every cluster",
        tables.figure4,
        chart=Chart("cluster", "share", group="group", x_title="cluster, largest first", y_title="active share"),
        counted=True,
    ),
    Experiment(
        STEM,
        "step_share",
        "What part of decoding the projection is",
        decoding.step_share,
        columns(
            Column("name", "protocol, projection"),
            Column("share", "share of the time"),
            Column("most", "speedup if it took no time"),
        ),
        note="English to German.",
    ),
    Experiment(
        STEM,
        "end_to_end",
        "Every projection under every decoder",
        decoding.end_to_end,
        columns(
            "decoder",
            Column("method", "projection"),
            "setting bleu chrf",
            Column("identical", "same as exact"),
            Column("as_greedy", "same as greedy"),
            Column("rare_recall", "rare words found", share=True),
            "speedup",
            Column("over_greedy", "over exact greedy"),
            "megabytes",
        ),
        note="English to German, 400 single test sentences, 60 of them timed; the window is 5 wide and recycles its tokens, the "
        "beam is 2 wide, in batches of 20. *Same as exact*: outputs that are the exact projection's under the same decoder; *same "
        "as greedy*: outputs that are greedy decoding's under the same projection, which is all of them by law where each row has "
        "its own set; of a beam, its own outputs without neighbours. *Rare words* are those of the references that training has "
        "at most 20 times.",
    ),
    Experiment(
        STEM,
        "sharing",
        "What a union over the batch does to outputs",
        tables.sharing,
        columns(
            "direction method",
            Column("together_as_alone", "same output together as alone", share=True),
            Column("otherwise_together_as_alone", "with other neighbours", share=True),
            Column("window_as_greedy", "window as greedy", share=True),
        ),
        note="20 sentences together; with other neighbours, 7. The union is a batch's, or a pass's of the window.",
        counted=True,
    ),
    Experiment(
        STEM,
        "zcode",
        "Time at the geometry of the paper's models",
        geometry.zcode,
        columns(Column("name", "geometry, method"), "microseconds", Column("speedup", "speedup over numpy")),
        note="A percentage is the active share of a cluster: 2% is that of the largest in the paper's figure 4 with one label, "
        "12.5% that of the largest of 400 in its figure 2. Unions of its batches (table 2) are 6.4% to 16.5%.",
    ),
    Experiment(
        STEM,
        "gpu",
        "Time of the projection on a GPU, where the paper measures it",
        gpu.gpu,
        columns(
            Column("name", "geometry, hidden vectors of a call, system"),
            "active_share",
            Column("milliseconds", "ms a call"),
            Column("speedup", "speedup over all tokens"),
            Column("crossover", "none from", share=True),
        ),
        note="In float16. *Shared* is one set for all vectors of a call, as in the paper; *none from* is the active share from "
        "which nothing is gained.",
    ),
    Experiment(
        STEM,
        "lossless",
        "The lossless projection against the exact one, bit for bit",
        geometry.lossless,
        columns(
            Column("name", "output matrix"),
            Column("vocabulary", "rows"),
            "width",
            Column("queries", "vectors"),
            "recorded",
            Column("mixed", "between two"),
            Column("mismatches", "answers that differ"),
            Column("scored_again", "rows scored again, mean"),
            Column("scored_again_most", "most"),
        ),
        note="Vectors are recorded contexts, or lie between two of those, at random; `dense`'s are turned into the larger space.",
        counted=True,
    ),
)
PAPER = Paper(
    STEM, "000", "vocabulary projection by clusters and active sets", EXPERIMENTS, INTRODUCTION, INCONSISTENCIES
)
