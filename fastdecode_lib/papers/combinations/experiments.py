"""What several papers give together: decoders with projections in every precision, and drafts that are learned."""

from fastdecode_lib.papers.combinations import cube, drafts
from fastdecode_lib.papers.experiment import Chart, Experiment

EXPERIMENTS = (
    Experiment("combinations", "cube", "Every decoder with every projection in every precision", cube.cube),
    Experiment(
        "combinations",
        "drafts",
        "Tokens a pass of draft heads and of models trained for parallel decoding",
        drafts.drafts,
        Chart("width", "tokens_per_pass", "draft", {"model": "untouched", "set": "joined"}, 1.0, x_title="width of the window",
              y_title="tokens a pass"),
    ),
    Experiment("combinations", "tuned", "What training for parallel decoding does to quality", drafts.tuned),
    Experiment(
        "combinations",
        "draft_time",
        "Learned drafts in time, on the models as they are and grown to opus-mt's shape",
        drafts.draft_time,
        Chart("width", "speedup", "draft", {"model": "untouched", "shape": drafts.LARGE, "precision": "int8", "set": "joined"}, 1.0,
              x_title="width of the window"),
    ),
)  # fmt: skip
