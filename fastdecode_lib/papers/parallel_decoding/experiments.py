"""Paper 003, parallel decoding: tables and figures, and what it left open."""

from fastdecode_lib.papers.experiment import Chart, Experiment
from fastdecode_lib.papers.parallel_decoding import costs, tables

_ALL = (
    (tables.table1, "Table 1: speed and BLEU of the decoders", None),
    (tables.table2, "Table 2: speed and passes over languages", None),
    (tables.table3, "Table 3: training and inference cost against other methods", None),
    (tables.table4, "Table 4: sizes of the test sets", None),
    (tables.table5, "Table 5: FLOPs of other models", None),
    (tables.table6, "Table 6: time and passes", None),
    (tables.table7, "Table 7: BLEU over languages", None),
    (tables.examples, "Example translations", None),
    (tables.figure1, "Figure 1: sequential and parallel decoding", None),
    (tables.figure2, "Figure 2: PJ, PGJ and HGJ", None),
    (costs.figure3, "Figure 3: speedup against cores", Chart("cores", "speedup", reference=1.0, log_x=True)),
    (tables.figure4, "Figure 4: dependency graph and passes of one sentence", None),
    (tables.figure6, "Figure 6: further dependency graphs", None),
    (
        costs.cost,
        "Cost of a pass against its width",
        Chart("width", "cost", y_title="cost in passes of width 1", reference=1.0),
    ),
    (tables.vocabulary, "Vocabulary size against word-internal pieces and passes", None),
    (
        costs.batch,
        "Speedup against batch size",
        Chart("batch", "speedup", x_title="batch size", reference=1.0, log_x=True),
    ),
    (
        tables.drafts,
        "Tokens per pass of every draft",
        Chart("width", "tokens_per_pass", "draft", where={"set": "joined"}, reference=1.0),
    ),
    (
        tables.dependencies,
        "Which tokens depend on which",
        Chart("distance", "share", "variant", where={"direction": "all"}, y_title="share of choices that change"),
    ),
)

_LIVE = (tables.figure1, tables.figure2, tables.figure4, tables.figure6)
EXPERIMENTS = tuple(
    Experiment("parallel_decoding", run.__name__, title, run, chart, traced=run in _LIVE, live=run in _LIVE)
    for run, title, chart in _ALL
)
