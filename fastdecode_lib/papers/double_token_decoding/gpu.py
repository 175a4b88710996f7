"""Single- and double-token decoding on a GPU in float16, in batches of 32 as Imamura and Sumita (2020) decode (table 2, figure 3).

Trained systems translate our own sentences, so that a machine with a GPU needs no corpus; models with random weights at base
geometry decode to a forced length, as in `speed.figure3`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas as pd

from fastdecode_lib.core import Source
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import rows_of
from fastdecode_lib.measuring.provenance import device_name
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import System
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding.systems import (
    BEAM,
    DIRECTION,
    SYSTEMS,
    Geometry,
    decoder_of,
    fingerprints,
    forced_system,
    geometry_of,
    model_of,
    models_of,
    random_source,
    session_of,
    speed_columns,
    timing_columns,
)
from fastdecode_lib.papers.run import DeviceRun, Scale, experiment, gap, table_of
from fastdecode_lib.papers.shared.batches import batches, decoded, session_system
from fastdecode_lib.papers.shared.random_models import random_network
from fastdecode_lib.papers.shared.rows import median
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.sentences import own_pairs

BATCH = {Scale.TINY: 3, Scale.LAPTOP: 32, Scale.PAPER: 32}
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 128, Scale.PAPER: 128}
RUNS = {Scale.TINY: 2, Scale.LAPTOP: 9, Scale.PAPER: 9}
BEAMS = {Scale.TINY: (1, 2), Scale.LAPTOP: (1, 5, 10), Scale.PAPER: (1, 2, 3, 5, 10, 20)}


@experiment
def gpu(run: DeviceRun) -> pd.DataFrame:
    """Table 2's speed on a GPU: every trained system, by greedy decoding and at a beam of 10, in batches of 32.

    ``token_ratio`` is tokens a second over single-token L2R's in the same run, systems in turns; ``speedup`` the ratio of times
    for the same sentences. ``as_float32`` is the share of outputs that are the same in float32 on the same device.
    """
    models, reasons = models_of(run.scale, device=run.device, engine="torch", dtype=run.dtype)
    gaps = [{"name": name, "system": name, **gap(missing)} for name, missing in reasons.items()]
    beam = 2 if run.tiny else BEAM
    with_beam = {name: model for name, model in models.items() if _decoder(name, 1) != _decoder(name, beam)}
    rows = [*_translated(with_beam, 1, run), *_translated(models, beam, run), *gaps]
    facts = {"dtype": run.dtype, "batch": BATCH[run.scale], "fingerprints": fingerprints(list(models.values()))}
    return table_of(rows, run, next(iter(models.values()), None), **facts)


def _translated(models: dict[str, TranslationModel], beam: int, run: DeviceRun) -> Iterator[dict[str, Any]]:
    """A row for each system."""
    texts = spread_over([text for text, _ in own_pairs(*DIRECTION)], SENTENCES[run.scale])
    decoders = {name: _decoder(name, beam) for name in models}
    systems, float32_outputs = [], {}
    parts: list[Source] = []
    for name, model in models.items():
        parts = parts or batches(model, texts, DIRECTION, BATCH[run.scale], by_length=True)
        systems.append(_system(name, model, decoders[name]))
        float32_model = model_of(SYSTEMS[name].preset, run.scale, device=run.device, engine="torch")
        float32_system = _system(name, float32_model, decoders[name])
        float32_outputs[name] = decoded(float32_system, parts)
    timings = run.measure(systems, parts, runs=RUNS[run.scale])
    ends = next(iter(models.values())).constraints().end if models else ()
    speeds = speed_columns(timings, ends)
    for m in timings:
        outputs = rows_of(m.outputs)
        row: dict[str, Any] = {
            "name": f"{m.name}, {decoders[m.name]}",
            "system": m.name,
            "beam": beam,
            "sentences": len(outputs),
            "as_float32": same_share(outputs, float32_outputs[m.name]),
            **speeds[m.name],
        }
        if beam == BEAM and m.name in imamura_2020.TABLE_2:
            row["paper_ratio_wmt_base"] = imamura_2020.printed_ratio(m.name, 0)
            row["paper_ratio_aspec_base"] = imamura_2020.printed_ratio(m.name, 1)
        yield row


def _decoder(system: str, beam: int) -> str:
    """A system's decoder at a beam width; Mask-Predict has no beam."""
    decoder = SYSTEMS[system].decoder
    if decoder.startswith("mask_predict"):
        return decoder
    return decoder_of(2 if decoder.startswith("double_token") else 1, beam)


def _system(name: str, model: TranslationModel, decoder: str) -> System:
    return session_system(name, session_of(model, decoder))


@experiment
def gpu_beams(run: DeviceRun) -> pd.DataFrame:
    """Figure 3 on a GPU: two tokens a step over one against the beam width, random weights at base geometry, forced lengths.

    At batch sizes of 1 and 32.
    """
    geometry, rows = geometry_of("base", run), []
    for batch in (1, BATCH[run.scale]):
        for beam in BEAMS[run.scale]:
            systems = [
                forced_system(f"{group} a step", _network(geometry, group, run), beam, geometry.tokens)
                for group in (1, 2)
            ]
            source = random_source(geometry, batch, run.seed)
            single_token, double_token = run.measure(systems, [source], runs=RUNS[run.scale])
            rows.append(
                {
                    "name": f"batch {batch}, beam {beam}",
                    "batch": batch,
                    "group": f"batch {batch}",
                    "beam": beam,
                    "tokens_per_second": batch * geometry.tokens / median(double_token),
                    **timing_columns(single_token, double_token),
                }
            )
    return table_of(rows, run, engine="torch", dtype=run.dtype, device=device_name(run.device))


@cache
def _network(geometry: Geometry, group: int, run: DeviceRun) -> Any:
    return random_network(geometry.shape(group), run.seed, run.device, run.dtype)
