"""Fidelity of the compiled engine's outputs: token for token against torch, and in 16 and 8 bits against 32."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.core import Hypothesis
from fastdecode_lib.loading import PRECISIONS, TranslationModel, load
from fastdecode_lib.measuring.comparing import largest_margin
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import quality, signatures
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.shared.rows import with_provenance
from fastdecode_lib.papers.sharp_models.engines import SMALL
from fastdecode_lib.text.corpus import DIRECTIONS, CorpusNotFound, Pair, Tatoeba, corpus_folder
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = {Scale.TINY: 4, Scale.LAPTOP: 1000, Scale.PAPER: 100_000}
"""Sentences of a direction, at most."""


def engines(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    data: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> "pd.DataFrame":
    """The compiled engine in float32 against torch: sentences whose greedy outputs are equal token for token.

    ``largest_margin``: how far apart torch's two best tokens stand where an output first differs, at most; 0 where none does.
    Rounding alone makes it tiny.
    """
    ours, torch = _loaded(model, engine="compiled"), _loaded(model, engine="torch")
    rows = []
    for direction, which, pairs in _sets(ours, scale, data, ("own", "dev"), seed):
        sessions = [Session.of(loaded, *direction, "greedy") for loaded in (ours, torch)]
        texts = [text for text, _ in pairs]
        outputs = [_tokens(session.decode(texts, progress=progress)) for session in sessions]
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
    return with_provenance(rows, provenance(ours, seed=seed) | {"against": "torch float32"})


def precisions(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    data: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> "pd.DataFrame":
    """int16 and int8 against float32: outputs that are equal, and how BLEU and chrF change."""
    models = {precision: _loaded(model, engine="compiled", precision=precision) for precision in PRECISIONS}
    rows: list[dict[str, Any]] = []
    first = models["float32"]
    for direction, which, pairs in _sets(first, scale, data, ("test",), seed):
        texts, references = [a for a, _ in pairs], [b for _, b in pairs]
        for precision, loaded in models.items():
            found = _tokens(Session.of(loaded, *direction, "greedy").decode(texts, progress=progress))
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
                    "agreement": float(np.mean([a == b for a, b in zip(found, exact, strict=True)])),
                    "bleu": bleu,
                    "bleu_change": bleu - exact_bleu,
                    "chrf": chrf,
                    "chrf_change": chrf - exact_chrf,
                    "output_mb": loaded.exact.memory_bytes / 1e6,
                }
            )
    return with_provenance(rows, provenance(first, seed=seed) | signatures())


def _loaded(model: TranslationModel | None, **options: Any) -> TranslationModel:
    return load(model.name if model else SMALL, device="cpu", **options)


def _tokens(found: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.tokens for hypothesis in found]


def _sets(
    model: TranslationModel, scale: Scale, data: str | None, wanted: Sequence[str], seed: int
) -> list[tuple[tuple[str, str], str, list[Pair]]]:
    """Direction, name and pairs of each set wanted; the project's own sentences where the corpus is not there."""
    found = []
    directions = [direction for direction in DIRECTIONS if direction in model.directions]
    for direction in directions[: 2 if scale is Scale.TINY else None]:
        sets: dict[str, list[Pair]] = {}
        for which in wanted:
            if which != "own" and scale is not Scale.TINY:
                try:
                    pairs = Tatoeba(corpus_folder(data)).pairs(which, *direction)
                except CorpusNotFound:
                    which = "own"
                else:
                    order = np.random.default_rng(seed).permutation(len(pairs))  # the file is sorted by length
                    sets[which] = [pairs[i] for i in order[: NUMBERS[scale]]]
                    continue
            sets["own"] = own_pairs(*direction)[: NUMBERS[scale]]
        found += [(direction, which, pairs) for which, pairs in sets.items()]
    return found
