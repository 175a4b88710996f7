"""Speed at Imamura and Sumita's geometries: random weights, outputs of a forced length, single- and double-token in turns.

In both systems the end is forbidden before that length, and free of cost there, so that the weights do not matter. One thread of
a CPU, the compiled engine. Two tokens in one pass save one reading of the weights, but no arithmetic, so that the gain shrinks as
more rows share the reading.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.measuring.quality import signatures
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding.quality import systems_table
from fastdecode_lib.papers.double_token_decoding.systems import (
    BEAM,
    DIRECTION,
    GEOMETRIES,
    decoder_of,
    forced_pair,
    geometry_of,
    model_of,
    pairs_of,
    session_of,
    updates_of,
)
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, table_of
from fastdecode_lib.papers.shared.rows import keyed, quality_of

RUNS = {Scale.TINY: 3, Scale.LAPTOP: 25, Scale.PAPER: 25}
BEAMS = {Scale.TINY: (1, 2), Scale.LAPTOP: (1, 2, 3, 5, 10, 20), Scale.PAPER: (1, 2, 3, 4, 5, 7, 10, 15, 20)}
ROWS = {Scale.TINY: (1, 3), Scale.LAPTOP: (1, 2, 4, 8, 16, 32, 64), Scale.PAPER: (1, 2, 4, 8, 16, 32, 64, 128, 256)}


@experiment
def figure3(run: Run) -> pd.DataFrame:
    """Figure 3: the bidirectional model's speed over single-token L2R against the beam width, one sentence at a time.

    The paper's curves are a picture without values; the ratios of its table 2, at a width of 10, are the only points in print.
    """
    rows = []
    for beam in run.bar(BEAMS[run.scale], unit="width"):
        _, bidirectional = forced_pair(geometry_of("base", run), beam, 1, RUNS[run.scale], run.seed)
        rows.append({"name": "base, batch 1", "beam": beam, **bidirectional})
    for column, corpus in enumerate(imamura_2020.SETS):
        ratio = imamura_2020.printed_ratio("bidirectional", column)
        rows.append(
            {"name": f"paper: {imamura_2020.NAMES[corpus]}", "beam": BEAM, "paper_speedup": ratio, "kind": "paper"}
        )
    return table_of(rows, run, engine="compiled", precision="float32")


@experiment
def sizes(run: Run) -> pd.DataFrame:
    """Section 5.2.1: the ratio at Transformer base and big, and at our trained models' size, at a beam of 10.

    A third system is a simple faster decoder: one decoder layer, an encoder twice as deep, one token a step.
    """
    rows = []
    for name in run.bar(GEOMETRIES, unit="size"):
        geometry = geometry_of(name, run)
        systems = ("single_token_l2r", "bidirectional", "shallow_l2r")
        measured = forced_pair(geometry, BEAM, 1, RUNS[run.scale], run.seed, shallow=True)
        for system, values in zip(systems, measured, strict=True):
            row = {
                **keyed(size=name, system=system),
                "width": geometry.width,
                "vocabulary": geometry.vocabulary,
                "tokens": geometry.tokens,
                **values,
            }
            for column, corpus in enumerate(imamura_2020.SETS):
                if corpus.endswith(name) and system in imamura_2020.TABLE_2:
                    row[f"paper_speedup_{corpus.split('_')[0]}"] = imamura_2020.printed_ratio(system, column)
            rows.append(row)
    return table_of(rows, run, engine="compiled", precision="float32")


@experiment
def rows(run: Run) -> pd.DataFrame:
    """The ratio against the rows of a pass, which are sentences in a batch, decoded greedily."""
    table = []
    for name, number in run.bar([(n, r) for n in ("base", "ours") for r in ROWS[run.scale]]):
        _, bidirectional = forced_pair(geometry_of(name, run), 1, number, RUNS[run.scale], run.seed)
        table.append({"name": f"{name}, {number} rows", "size": name, "rows": number, **bidirectional})
    return table_of(table, run, engine="compiled", precision="float32")


@experiment
def table4(run: CorpusRun) -> pd.DataFrame:
    """Table 4: the ratio against the vocabulary, at base geometry and a beam of 10.

    A larger vocabulary makes shorter sentences. The forced lengths are the mean lengths of joined test sentences by a SentencePiece
    model of each size, trained on the training split, to the nearest even number (``forced``). With the end they are an odd number
    of slots, of which two tokens a step waste one, at every size as in the other tables of forced lengths. ``pieces`` is the
    number of pieces that the text yields, where it yields fewer than the size.
    """
    from fastdecode_lib.training.multi_token import SPECIAL
    from fastdecode_lib.training.pieces import load_pieces, trained_pieces

    training = list(dict.fromkeys(text for pair in run.pairs(*DIRECTION, "train") for text in pair))
    targets = [b for _, b in pairs_of("joined", run, 10**9)]
    rows = []
    vocabularies = (300, 500) if run.tiny else tuple(imamura_2020.TABLE_4)
    printed = [*zip(vocabularies, imamura_2020.TABLE_4.items(), strict=False)]
    for size, (vocabulary, corpora) in run.bar(printed, unit="vocabulary"):
        pieces = load_pieces(trained_pieces(training, size, seed=1, hard_vocab_limit=False, **SPECIAL))
        length = float(np.mean([len(row) for row in pieces.encode(targets)]))
        sized = replace(geometry_of("base", run), vocabulary=size, tokens=2 * max(1, round(length / 2)))
        single, bidirectional = forced_pair(sized, BEAM, 1, RUNS[run.scale], run.seed)
        rows.append(
            {
                "name": f"{size:,}",
                "vocabulary": size,
                "group": "ours",
                "pieces": len(pieces),
                "tokens": length,
                "forced": sized.tokens,
                "single_tokens_per_second": single["tokens_per_second"],
                **bidirectional,
            }
        )
        for corpus, (tokens, single_speed, speed) in zip(("wmt", "aspec"), corpora, strict=True):
            rows.append(
                {
                    "name": f"{vocabulary:,}, paper {corpus}",
                    "vocabulary": vocabulary,
                    "group": f"paper, {corpus}",
                    "paper_tokens": tokens,
                    "paper_single_tokens_per_second": single_speed,
                    "paper_tokens_per_second": speed,
                    "paper_speedup": speed / single_speed,
                    "kind": "paper",
                }
            )
    return table_of(rows, run, engine="compiled", precision="float32")


STEPS = {1: "single-l2r", 2: "bidirectional", 3: "triple", 4: "quadruple"}
"""Tokens a step from both ends -> the preset trained for it."""


@experiment
def tokens_per_step(run: CorpusRun) -> pd.DataFrame:
    """More tokens a step: speed at base geometry (beam 1 and 10), and the quality of trained models."""
    speeds = {
        beam: forced_pair(geometry_of("base", run), beam, 1, RUNS[run.scale], run.seed, (2, 3, 4)) for beam in (1, BEAM)
    }
    pairs = pairs_of("single", run, 4 if run.tiny else 10**9)
    table, models = [], []
    for index, (number, preset) in enumerate(run.bar(STEPS.items(), unit="model")):
        row: dict[str, Any] = {"name": f"{number} a step", "tokens_a_step": number}
        for beam, measured in speeds.items():
            values = measured[index]
            row |= {f"speedup_beam_{beam}{end}": values[f"speedup{end}"] for end in ("", "_low", "_high")}
            row |= {f"{key}_beam_{beam}": values[key] for key in ("seconds", "baseline_seconds")}
        row["passes"] = speeds[1][index]["passes"]
        try:
            model = model_of(preset, run.scale)
            models.append(model)
            outputs = session_of(model, decoder_of(number)).decode([a for a, _ in pairs], threads=1)
            translations = model.texts([a for a, _ in pairs], [h.tokens for h in outputs])
            row |= quality_of(translations, [b for _, b in pairs])
            row["updates"] = None if run.tiny else updates_of(preset)
        except NoResult as missing:
            row["gap"] = str(missing)
        table.append(row)
    return systems_table(table, run, models, **signatures())
