"""Paper 000, vocabulary projection by clusters and active sets: tables and figures, and what a union over the batch does."""

from fastdecode_lib.experiments import Chart, Experiment
from fastdecode_lib.experiments.cluster_tables import (
    figure1,
    figure2,
    figure3,
    figure4,
    rating_power,
    sharing,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
)
from fastdecode_lib.experiments.geometry_runs import lossless, zcode
from fastdecode_lib.experiments.gpu_projection import gpu
from fastdecode_lib.experiments.projection_decoding import end_to_end, step_share

_ALL = (
    (table1, "Table 1: sentences of the two sets", None),
    (table2, "Table 2: active tokens and time of the projection", None),
    (table3, "Table 3: quality and speed on set 1", None),
    (table4, "Table 4: quality and speed on set 2", None),
    (table5, "Table 5: memory", None),
    (table6, "Table 6: outputs rated side by side, here by programs", None),
    (
        figure2,
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
        figure3,
        "Figure 3: speedup against the number of clusters",
        Chart("clusters", "speedup", group="group", reference=1.0, log_x=True),
    ),
    (
        figure4,
        "Figure 4: active share of every cluster",
        Chart("cluster", "share", group="group", x_title="cluster, largest first", y_title="active share"),
    ),
    (step_share, "What part of decoding the projection is", None),
    (end_to_end, "Every projection under every decoder", None),
    (sharing, "What a union over the batch does to outputs", None),
    (rating_power, "What the two tests of table 6 find", None),
    (zcode, "Time at the geometry of the paper's models", None),
    (gpu, "Time of the projection on a GPU, where the paper measures it", None),
    (lossless, "The lossless projection against the exact one, bit for bit", None),
)

EXPERIMENTS = (
    Experiment(
        "vocabulary_clusters", "figure1", "Figure 1: clusters and active sets at work", figure1, traced=True, live=True
    ),
    *(Experiment("vocabulary_clusters", run.__name__, title, run, chart) for run, title, chart in _ALL),
)
