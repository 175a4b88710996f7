"""The table of the first notebook: decoders on the same sentences, the fastest lossless one first."""

import pandas as pd

from fastdecode_lib.measuring.comparing import compare
from fastdecode_lib.papers.experiment import Experiment, Paper
from fastdecode_lib.papers.run import Scale, ThreadedRun, experiment
from fastdecode_lib.text.sentences import SENTENCES

DECODERS = ("greedy", "window:width=3", "hybrid:block=3", "jacobi", "beam:size=5")


@experiment
def comparison(run: ThreadedRun) -> pd.DataFrame:
    """Agreement, passes, speedup and quality of decoders and of Hugging Face's `generate`; see `comparing.compare`.

    Decoders that agree with greedy decoding come first, the fastest at the top.
    """
    pairs = SENTENCES[:3] if run.tiny else SENTENCES
    frame = compare(
        run.loaded,
        [english for english, _ in pairs],
        source="en",
        target="de",
        references=[german for _, german in pairs],
        decoders=DECODERS,
        baselines=("hf",),
        runs={Scale.TINY: 6, Scale.LAPTOP: 9, Scale.PAPER: 25}[run.scale],
        threads=run.threads,
        seed=run.seed,
        progress=run.progress,
    )
    frame = frame.assign(differs=frame["agreement"] < 1).sort_values(["differs", "speedup"], ascending=[True, False])
    return frame.drop(columns="differs").reset_index(drop=True)


COMPARISON = Experiment(comparison, "Decoders on the same sentences", compares=True, live=True)
PAPER = Paper("start_here", "00_start_here", "Start here", (COMPARISON,))
