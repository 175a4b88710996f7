"""The table of the first notebook: six decoders on the same sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.comparing import compare
from fastdecode_lib.papers.experiment import Experiment, Scale

if TYPE_CHECKING:
    import pandas as pd

DECODERS = ("greedy", "beam:size=5", "jacobi", "gauss_seidel:block=3", "hybrid:block=3", "window:width=5")

SENTENCES = (
    ("The train to the coast leaves at half past nine.", "Der Zug an die Küste fährt um halb zehn ab."),
    ("Can you tell me where the library is?", "Können Sie mir sagen, wo die Bibliothek ist?"),
    ("We forgot to close the window before the storm.", "Wir haben vergessen, vor dem Sturm das Fenster zu schließen."),
    ("My sister has been learning to play the piano for two years.", "Meine Schwester lernt seit zwei Jahren Klavier."),
    ("If it rains tomorrow, we will stay at home and read.", "Wenn es morgen regnet, bleiben wir zu Hause und lesen."),
    ("Nobody knew why the old clock had stopped.", "Niemand wusste, warum die alte Uhr stehen geblieben war."),
    ("Please put the bread on the table and call the children.",
     "Bitte stell das Brot auf den Tisch und ruf die Kinder."),
    ("He sold his car because he wants to ride his bicycle to work.",
     "Er hat sein Auto verkauft, weil er mit dem Fahrrad zur Arbeit fahren will."),
)  # fmt: skip
"""English and German, written for this table; the notebook runs where the tests' sentences are not installed."""


def comparison(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    decoders: Sequence[str] = DECODERS,
    baselines: Sequence[str] = (),
    threads: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> "pd.DataFrame":
    """Agreement, passes, positions, speedup and quality of six decoders; see `comparing.compare`."""
    chosen = SENTENCES[:3] if scale is Scale.TINY else SENTENCES
    return compare(
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


EXPERIMENTS = (
    Experiment("start_here", "comparison", "Six decoders on the same sentences", comparison, compares=True, live=True),
)
