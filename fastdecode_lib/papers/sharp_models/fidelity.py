"""Fidelity of the compiled engine's outputs: token for token against torch, and in 16 and 8 bits against 32."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Hypothesis
from fastdecode_lib.loading import PRECISIONS, TranslationModel, load
from fastdecode_lib.measuring.comparing import largest_margin
from fastdecode_lib.measuring.quality import quality, same_share, signatures
from fastdecode_lib.papers.run import CorpusRun, ModelRun, Scale, experiment
from fastdecode_lib.papers.shared.rows import table_of
from fastdecode_lib.papers.sharp_models.engines import SMALL
from fastdecode_lib.text.corpus import DIRECTIONS, Pair
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

NUMBERS = {Scale.TINY: 4, Scale.LAPTOP: 1000, Scale.PAPER: 100_000}
"""Sentences of a direction, at most."""


@experiment
def engines(run: ModelRun) -> pd.DataFrame:
    """The compiled engine in float32 against torch: sentences whose greedy outputs are equal token for token.

    ``largest_margin``: how far apart torch's two best tokens stand where an output first differs, at most; 0 where none does.
    Rounding alone makes it tiny.
    """
    ours, torch = _loaded(run.model, engine="compiled"), _loaded(run.model, engine="torch")
    rows = []
    for direction, which, pairs in _sets(ours, run, ("own", "dev")):
        sessions = [Session.of(loaded, *direction, "greedy") for loaded in (ours, torch)]
        texts = [text for text, _ in pairs]
        outputs = [_tokens(session.decode(texts, progress=run.progress)) for session in sessions]
        differ = [i for i, (a, b) in enumerate(zip(*outputs, strict=True)) if a != b]
        sources = [torch.encode([texts[i]], *direction) for i in differ]
        rows.append(
            {
                "name": "-".join(direction),
                "set": which,
                "sentences": len(texts),
                "tokens": sum(map(len, outputs[1])),
                "agreement": 1 - len(differ) / len(texts),
                "differ": len(differ),
                "largest_margin": largest_margin(sessions[1], sessions[0], sources),
            }
        )
    return table_of(rows, run, ours, against="torch float32")


@experiment
def precisions(run: ModelRun) -> pd.DataFrame:
    """int16 and int8 against float32: outputs that are equal, and how BLEU and chrF change."""
    models = {precision: _loaded(run.model, engine="compiled", precision=precision) for precision in PRECISIONS}
    rows: list[dict[str, Any]] = []
    first = models["float32"]
    for direction, which, pairs in _sets(first, run, ("test",)):
        texts, references = [a for a, _ in pairs], [b for _, b in pairs]
        for precision, loaded in models.items():
            found = _tokens(Session.of(loaded, *direction, "greedy").decode(texts, progress=run.progress))
            bleu, chrf = quality(loaded.texts(texts, found), references)
            if precision == "float32":
                exact, exact_bleu, exact_chrf = found, bleu, chrf
            rows.append(
                {
                    "name": f"{'-'.join(direction)}, {precision}",
                    "direction": "-".join(direction),
                    "precision": precision,
                    "set": which,
                    "sentences": len(texts),
                    "agreement": same_share(found, exact),
                    "bleu": bleu,
                    "bleu_change": bleu - exact_bleu,
                    "chrf": chrf,
                    "chrf_change": chrf - exact_chrf,
                    "output_mb": loaded.exact.memory_bytes / 1e6,
                }
            )
    return table_of(rows, run, first, **signatures())


def _loaded(model: TranslationModel | None, **options: Any) -> TranslationModel:
    return load(model.name if model else SMALL, device="cpu", **options)


def _tokens(found: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.tokens for hypothesis in found]


def _sets(
    model: TranslationModel, run: CorpusRun, wanted: Sequence[str]
) -> list[tuple[tuple[str, str], str, list[Pair]]]:
    """Direction, name and pairs of each set wanted; the project's own sentences where the corpus is not there."""
    found = []
    directions = [direction for direction in DIRECTIONS if direction in model.directions]
    for direction in directions[: 2 if run.tiny else None]:
        sets: dict[str, list[Pair]] = {}
        for which in wanted:
            own = (own_pairs(*direction), "own")
            pairs, name = own if which == "own" else run.pairs_or_own(*direction, which)
            if name != "own":  # the file is sorted by length
                pairs = [pairs[i] for i in np.random.default_rng(run.seed).permutation(len(pairs))]
            sets[name] = pairs[: NUMBERS[run.scale]]
        found += [(direction, which, pairs) for which, pairs in sets.items()]
    return found
