"""The table of the first notebook: decoders on the same sentences, the fastest that loses nothing first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.comparing import compare
from fastdecode_lib.papers.experiment import Experiment, Paper, Scale
from fastdecode_lib.text.sentences import SENTENCES

if TYPE_CHECKING:
    import pandas as pd

DECODERS = ("greedy", "window:width=3", "hybrid:block=3", "jacobi", "beam:size=5")


def comparison(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    decoders: Sequence[str] = DECODERS,
    baselines: Sequence[str] = ("hf",),
    threads: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> "pd.DataFrame":
    """Agreement, passes, positions, speedup and quality of decoders and baselines; see `comparing.compare`.

    Decoders that agree with greedy decoding come first, the fastest at the top.
    """
    chosen = SENTENCES[:3] if scale is Scale.TINY else SENTENCES
    frame = compare(
        model or load(),
        [english for english, _ in chosen],
        source="en",
        target="de",
        references=[german for _, german in chosen],
        decoders=decoders,
        baselines=baselines,
        runs={Scale.TINY: 3, Scale.LAPTOP: 7, Scale.PAPER: 25}[scale],
        threads=threads,
        seed=seed,
        progress=progress,
    )
    frame = frame.assign(differs=frame["agreement"] < 1).sort_values(["differs", "speedup"], ascending=[True, False])
    return frame.drop(columns="differs").reset_index(drop=True)


COMPARISON = Experiment(
    "start_here", "comparison", "Decoders on the same sentences", comparison, compares=True, live=True
)
PAPER = Paper("start_here", "00_start_here", "Start here", (COMPARISON,))
