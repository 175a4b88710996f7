"""Quality of Devlin's systems at a quarter of their widths: the BLEU column of table 2."""

from typing import Any

import pandas as pd

from fastdecode_lib.checkpoints.recurrent import SYSTEMS
from fastdecode_lib.core import Projection, drain
from fastdecode_lib.measuring.quality import paired_quality, signatures
from fastdecode_lib.models.compiled_recurrent import FASTEST
from fastdecode_lib.models.ensemble import Ensemble
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.run import CorpusRun, experiment
from fastdecode_lib.papers.shared.rows import table_of
from fastdecode_lib.papers.sharp_models import printed as devlin_2017
from fastdecode_lib.papers.sharp_models.ladder import BEAM, ENSEMBLES, GEOMETRIES, Trained, speeds
from fastdecode_lib.projections.average import Average
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.training.presets import PRESETS, place_of

NAMES = {**{f"sharp-{name.lower()}": name for name in SYSTEMS}, "sharp-s4-2": "S4, seed 2", "sharp-s4-3": "S4, seed 3"}
"""Names in the table by preset."""
MEMBERS = ("sharp-s4", "sharp-s4-2", "sharp-s4-3")
"""Networks of the ensembles, of which each takes the first so many."""


@experiment
def quality(run: CorpusRun, *, folder: str = "build/train") -> pd.DataFrame:
    """BLEU and chrF of every system that is trained, with 95% intervals and paired bootstrap tests against S1.

    A system is looked for in `folder`, where ``fastdecode train`` leaves it, and then among the bundled models; one that is
    found nowhere is named in the column ``gap`` with the command that trains it. Decoder as in the paper: beam 6, delta
    3.0, candidate lists of 20 translations a word; unknown words are replaced by way of the attention.
    """
    from tqdm.auto import tqdm

    geometry = GEOMETRIES[run.scale]
    found = {preset: trained for preset in NAMES if (trained := _find(preset, folder)) is not None}
    pairs, where = run.pairs_or_own("en", "fr")
    pairs = spread_over(pairs, geometry.held_out) if run.tiny else pairs
    teams = {NAMES[preset]: [preset] for preset in NAMES} | {
        name: list(MEMBERS[:number]) for name, number in ENSEMBLES.items()
    }
    outputs = {}
    for name, members in tqdm(teams.items(), unit="system", disable=not run.progress):
        if all(member in found for member in members):
            outputs[name] = _translated([found[member] for member in members], [a for a, _ in pairs])
    samples = 100 if run.tiny else 1_000
    scores = paired_quality(outputs, [b for _, b in pairs], "S1", run.seed, samples)
    rows = []
    for name, members in teams.items():
        missing = [member for member in members if member not in found]
        gap = f"not trained: fastdecode train {' '.join(missing)} --data DIR" if missing else None
        printed = devlin_2017.TABLE_2.get(name, (None, None))
        rows.append({"name": name, **scores.get(name, {}), "paper_bleu": printed[0], "gap": gap})
    return table_of(
        rows,
        run,
        **signatures(),
        sentences=len(pairs),
        set=f"{where} sentences",
        beam=6,
        delta=3.0,
        fingerprints={preset: trained.checkpoint.fingerprint for preset, trained in found.items()},
        updates={preset: PRESETS[preset].updates for preset in found},
    )


@experiment
def table2(run: CorpusRun) -> pd.DataFrame:
    """Table 2: quality of the trained systems at a quarter of the paper's widths, and speed at its geometry.

    Quality comes from the committed result of `quality` where this machine has not trained the systems.
    """
    fast = speeds(run)
    here = quality(run)
    scoring = here.attrs["provenance"]
    if not run.tiny and here["gap"].notna().any():
        try:
            here = committed("sharp_models.quality")
            scoring = here.attrs["provenance"]
        except NoResult:
            pass
    frame = here[here["name"].isin(devlin_2017.TABLE_2)].merge(fast.drop(columns="kind"), on="name", how="left")
    frame["kind"] = "measured"
    cited = [
        {"name": name, "paper_bleu": bleu, "paper_words_per_second": speed, "kind": "paper"}
        for name, (bleu, speed) in devlin_2017.CITED.items()
    ]
    frame = pd.concat([frame, pd.DataFrame(cited)], ignore_index=True)
    frame.attrs["provenance"] = fast.attrs["provenance"] | {"quality": scoring}
    return frame


def _find(preset: str, folder: str) -> Trained | None:
    """A trained preset; None where there is none."""
    place = place_of(preset, folder)
    return None if place is None else Trained.find(place)


def _translated(team: list[Trained], sources: list[str]) -> list[str]:
    """Translations by one network or by an ensemble, with the paper's decoder and all speed-ups in float32."""
    first = team[0]
    networks = [trained.network(FASTEST) for trained in team]
    network: Any = networks[0]
    projection: Projection = first.projection(networks[0])
    if len(team) > 1:
        network = Ensemble(networks)
        projection = Average.over(network, tuple(first.projection(part) for part in networks))
    found = []
    for source in sources:
        batch = first.text.encode([source], *first.text.direction)
        (best,) = drain(BEAM.iterate(network, projection, batch, first.constraints))
        found.append(best.tokens)
    return first.text.texts(network, sources, found)
