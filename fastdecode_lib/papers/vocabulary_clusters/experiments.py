"""Paper 000, vocabulary projection by clusters and active sets: tables and figures, and what a union over the batch does."""

from fastdecode_lib.papers.experiment import Chart, Experiment
from fastdecode_lib.papers.vocabulary_clusters import decoding, geometry, gpu, tables

_ALL = (
    (tables.table1, "Table 1: sentences of the two sets", None),
    (tables.table2, "Table 2: active tokens and time of the projection", None),
    (tables.table3, "Table 3: quality and speed on set 1", None),
    (tables.table4, "Table 4: quality and speed on set 2", None),
    (tables.table5, "Table 5: memory", None),
    (tables.table6, "Table 6: outputs rated side by side, here by programs", None),
    (
        tables.figure2,
        "Figure 2: largest active share against the number of clusters",
        Chart(
            "clusters",
            "largest_share",
            group="group",
            where={"kind": "measured"},
            log_x=True,
            y_title="largest active share",
        ),
    ),
    (
        tables.figure3,
        "Figure 3: speedup against the number of clusters",
        Chart("clusters", "speedup", group="group", reference=1.0, log_x=True),
    ),
    (
        tables.figure4,
        "Figure 4: active share of every cluster",
        Chart("cluster", "share", group="group", x_title="cluster, largest first", y_title="active share"),
    ),
    (decoding.step_share, "What part of decoding the projection is", None),
    (decoding.end_to_end, "Every projection under every decoder", None),
    (tables.sharing, "What a union over the batch does to outputs", None),
    (tables.rating_power, "What the two tests of table 6 find", None),
    (geometry.zcode, "Time at the geometry of the paper's models", None),
    (gpu.gpu, "Time of the projection on a GPU, where the paper measures it", None),
    (geometry.lossless, "The lossless projection against the exact one, bit for bit", None),
)

EXPERIMENTS = (
    Experiment(
        "vocabulary_clusters",
        "figure1",
        "Figure 1: clusters and active sets at work",
        tables.figure1,
        traced=True,
        live=True,
    ),
    *(Experiment("vocabulary_clusters", run.__name__, title, run, chart) for run, title, chart in _ALL),
)
