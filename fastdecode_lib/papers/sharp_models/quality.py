"""Quality of Devlin's systems at a quarter of their widths: the BLEU column of table 2."""

from contextlib import suppress
from typing import Any

import pandas as pd

from fastdecode_lib.checkpoints.recurrent import SYSTEMS
from fastdecode_lib.measuring.quality import paired_quality, signatures
from fastdecode_lib.models.compiled_recurrent import FASTEST
from fastdecode_lib.models.ensemble import Ensemble
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.run import CorpusRun, Run, experiment, table_of
from fastdecode_lib.papers.shared.rows import paper_rows
from fastdecode_lib.papers.shared.training_curves import training_curves
from fastdecode_lib.papers.sharp_models import printed as devlin_2017
from fastdecode_lib.papers.sharp_models.ladder import ENSEMBLES, GEOMETRIES, Trained, best_of_beam, speeds
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.training.presets import PRESETS, place_of

NAMES = {**{f"sharp-{name.lower()}": name for name in SYSTEMS}, "sharp-s4-2": "S4, seed 2", "sharp-s4-3": "S4, seed 3"}
"""Names in the table by preset."""
MEMBERS = ("sharp-s4", "sharp-s4-2", "sharp-s4-3")
"""Networks of the ensembles; a smaller ensemble has the first of them."""


@experiment
def quality(run: CorpusRun, *, folder: str = "build/train") -> pd.DataFrame:
    """BLEU and chrF of every system that is trained, with 95% intervals and paired bootstrap tests against S1.

    A system is looked up in `folder`, where ``fastdecode train`` writes it, and then among the bundled models; the row of an
    untrained one has the command that trains it in the column ``gap``. The decoder is the paper's: beam 6, delta 3.0, shortlists
    of 20 translations a word; unknown words are replaced through the attention.
    """
    geometry = GEOMETRIES[run.scale]
    places = {preset: place_of(preset, folder) for preset in NAMES}
    trained = {preset: Trained.find(place) for preset, place in places.items() if place is not None}
    pairs, split = run.pairs_or_own("en", "fr")
    pairs = spread_over(pairs, geometry.held_out) if run.tiny else pairs
    systems = {NAMES[preset]: [preset] for preset in NAMES} | {
        name: list(MEMBERS[:number]) for name, number in ENSEMBLES.items()
    }
    outputs = {}
    for name, members in run.bar(systems.items(), unit="system"):
        if all(member in trained for member in members):
            outputs[name] = _translated([trained[member] for member in members], [a for a, _ in pairs])
    samples = 100 if run.tiny else 1_000
    scores = paired_quality(outputs, [b for _, b in pairs], "S1", run.seed, samples)
    rows = []
    for name, members in systems.items():
        missing = [member for member in members if member not in trained]
        gap = f"not trained: fastdecode train {' '.join(missing)} --data DIR" if missing else None
        printed = devlin_2017.TABLE_2[name][0] if name in devlin_2017.TABLE_2 else None
        rows.append({"name": name, **scores.get(name, {}), "paper_bleu": printed, "gap": gap})
    return table_of(
        rows,
        run,
        **signatures(),
        sentences=len(pairs),
        set=f"{split} sentences",
        beam=6,
        delta=3.0,
        fingerprints={preset: system.checkpoint.fingerprint for preset, system in trained.items()},
    )


@experiment
def learning(run: Run) -> pd.DataFrame:
    """Learning curves: chrF on the dev split against updates, single sentences and joined ones, by greedy decoding."""
    rows = training_curves({preset: PRESETS[preset] for preset in NAMES})
    return table_of([row | {"system": NAMES[row["system"]]} for row in rows], run)


@experiment
def table2(run: CorpusRun) -> pd.DataFrame:
    """Table 2: quality of the trained systems at a quarter of the paper's widths, and speed at its geometry.

    Quality comes from the committed result of `quality` where this machine has not trained the systems.
    """
    speed, scores = speeds(run), quality(run)
    if not run.tiny and scores["gap"].notna().any():
        with suppress(NoResult):
            scores = committed("sharp_models.quality")
    frame = scores[scores["name"].isin(devlin_2017.TABLE_2)].merge(speed.drop(columns="kind"), on="name", how="left")
    frame["kind"] = "measured"
    cited = paper_rows(devlin_2017.CITED, "paper_bleu", "paper_words_per_second")
    frame = pd.concat([frame, pd.DataFrame(cited)], ignore_index=True)
    frame.attrs["provenance"] = speed.attrs["provenance"] | {"quality": scores.attrs["provenance"]}
    return frame


def _translated(members: list[Trained], sources: list[str]) -> list[str]:
    """Translations by one network or by an ensemble, with the paper's decoder and all speed-ups in float32."""
    first = members[0]
    networks = [member.network(FASTEST) for member in members]
    network: Any = Ensemble(networks) if len(members) > 1 else networks[0]
    projection = first.projection(network)
    batches = (first.text.encode([source], *first.text.direction) for source in sources)
    outputs = [best_of_beam(network, projection, batch, first.constraints).tokens for batch in batches]
    return first.text.texts(network, sources, outputs)
