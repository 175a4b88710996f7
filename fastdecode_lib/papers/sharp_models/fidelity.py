"""Fidelity of the compiled engine's outputs: token for token against torch, and in 16 and 8 bits against 32."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fastdecode_lib.core import Hypothesis
from fastdecode_lib.loading import PRECISIONS, TranslationModel, load
from fastdecode_lib.measuring.comparing import largest_margin
from fastdecode_lib.measuring.quality import quality, same_share, signatures
from fastdecode_lib.papers.run import CorpusRun, ModelRun, Scale, experiment, table_of
from fastdecode_lib.papers.shared.rows import keyed
from fastdecode_lib.papers.sharp_models.engines import SMALL
from fastdecode_lib.text.corpus import DIRECTIONS, Pair, shuffled
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

NUMBERS = {Scale.TINY: 4, Scale.LAPTOP: 1000, Scale.PAPER: 100_000}
"""Sentences of a direction, at most."""


@experiment
def engines(run: ModelRun) -> pd.DataFrame:
    """The compiled engine in float32 against torch: sentences whose greedy outputs are equal token for token.

    ``largest_margin``: the largest margin between torch's two best tokens where an output first differs; 0 where none differs.
    It is tiny where outputs differ by rounding alone.
    """
    compiled, torch = _loaded(run.model, engine="compiled"), _loaded(run.model, engine="torch")
    rows = []
    for direction, set_name, pairs in _sets(compiled, run, ("own", "dev")):
        sessions = [Session.of(loaded, *direction, "greedy") for loaded in (compiled, torch)]
        texts = [text for text, _ in pairs]
        outputs = [_tokens(session.decode(texts, progress=run.progress)) for session in sessions]
        differ = [i for i, (a, b) in enumerate(zip(*outputs, strict=True)) if a != b]
        sources = [torch.encode([texts[i]], *direction) for i in differ]
        rows.append(
            {
                "name": "-".join(direction),
                "set": set_name,
                "sentences": len(texts),
                "tokens": sum(map(len, outputs[1])),
                "agreement": 1 - len(differ) / len(texts),
                "differ": len(differ),
                "largest_margin": largest_margin(sessions[1], sessions[0], sources),
            }
        )
    return table_of(rows, run, compiled, against="torch float32")


@experiment
def precisions(run: ModelRun) -> pd.DataFrame:
    """int16 and int8 against float32: the share of equal outputs, and the change of BLEU and chrF."""
    models = {precision: _loaded(run.model, engine="compiled", precision=precision) for precision in PRECISIONS}
    rows: list[dict[str, Any]] = []
    for direction, set_name, pairs in _sets(models["float32"], run, ("test",)):
        texts, references = [a for a, _ in pairs], [b for _, b in pairs]
        for precision, loaded in models.items():
            outputs = _tokens(Session.of(loaded, *direction, "greedy").decode(texts, progress=run.progress))
            bleu, chrf = quality(loaded.texts(texts, outputs), references)
            if precision == "float32":
                exact, exact_bleu, exact_chrf = outputs, bleu, chrf
            rows.append(
                {
                    **keyed(direction="-".join(direction), precision=precision),
                    "set": set_name,
                    "sentences": len(texts),
                    "agreement": same_share(outputs, exact),
                    "bleu": bleu,
                    "bleu_change": bleu - exact_bleu,
                    "chrf": chrf,
                    "chrf_change": chrf - exact_chrf,
                    "output_mb": loaded.exact.memory_bytes / 1e6,
                }
            )
    return table_of(rows, run, models["float32"], **signatures())


def _loaded(model: TranslationModel | None, **options: Any) -> TranslationModel:
    return load(model.name if model else SMALL, device="cpu", **options)


def _tokens(hypotheses: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.tokens for hypothesis in hypotheses]


def _sets(
    model: TranslationModel, run: CorpusRun, splits: Sequence[str]
) -> list[tuple[tuple[str, str], str, list[Pair]]]:
    """Direction, name and pairs of each split; the project's own sentences where the corpus is missing."""
    all_sets = []
    directions = [direction for direction in DIRECTIONS if direction in model.directions]
    for direction in directions[: 2 if run.tiny else None]:
        sets: dict[str, list[Pair]] = {}
        for split in splits:
            pairs, name = (own_pairs(*direction), "own") if split == "own" else run.pairs_or_own(*direction, split)
            pairs = pairs if name == "own" else shuffled(pairs, run.seed)
            sets[name] = pairs[: NUMBERS[run.scale]]
        all_sets += [(direction, name, pairs) for name, pairs in sets.items()]
    return all_sets
