"""Precision at both ends of outputs: Imamura and Sumita's table 3, on joined sentences and, where long enough, single ones."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.measuring.counting import count
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding.quality import BOTH, L2R, MOST, systems_table
from fastdecode_lib.papers.double_token_decoding.systems import BEAM, LONG, SINGLE, SYSTEMS, each, pairs_of, session_of
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment
from fastdecode_lib.papers.shared.rows import gap

LEAST = {Scale.TINY: 1, Scale.LAPTOP: 100, Scale.PAPER: 100}
"""Sentences that are long enough, below which a row of table 3 is left out."""


@experiment
def table3(run: CorpusRun) -> pd.DataFrame:
    """Table 3: the share of 1-grams and 4-grams that are right among all, the first and the last words of the outputs.

    Words as sacrebleu's 13a tokeniser cuts them; an n-gram is right if the reference has it, as often at most. The paper
    looks at sentences of over 30 tokens, which Tatoeba lacks: ours are five to eight sentences joined, whose right end is a
    fresh sentence, and single ones as far as they reach. A row about one end is of the ``sentences`` whose reference is twice
    as long at least, so that the other end is not in it; where they are too few, it says so instead. ``difference`` is
    bidirectional minus single-token L2R in points, with a 95% interval over sentences; ``against_left``, in rows of the right end,
    by how much it is higher there than in as many first words of the same sentences, which a model that is worse as a whole
    leaves standing.
    """
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from tqdm.auto import tqdm

    cut = Tokenizer13a()
    found = each((L2R, BOTH), run.scale, lambda name, model: session_of(model, SYSTEMS[name].decoder))
    gaps = [missing for missing in found.values() if isinstance(missing, NoResult)]
    rows: list[dict[str, Any]] = []
    for which in (LONG, SINGLE):
        pairs = pairs_of(which, run, MOST[run.scale])
        references = [cut(b).split() for _, b in pairs]
        outputs = {}
        if not gaps:
            for name, session in tqdm(found.items(), desc=which, unit="system", disable=not run.progress):
                outputs[name] = [cut(text).split() for text in count(session, [a for a, _ in pairs])["text"]]
        at_left: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        for place, (end, number) in enumerate(imamura_2020.ENDS):
            long = [i for i, reference in enumerate(references) if len(reference) >= 2 * number]
            for size in (1, 4):
                row: dict[str, Any] = {
                    "name": f"{which}, {end}{f' {number}' if number else ''}, {size}-gram",
                    "set": which,
                    "end": end,
                    "words": number or None,
                    "n": size,
                    "sentences": len(long),
                }
                if gaps:
                    row |= gap(gaps[0])
                elif len(long) < LEAST[run.scale]:
                    reach = f"only {len(long)} have" if long else "none has"
                    row |= gap(f"Of {which} sentences {reach} {2 * number} words")
                else:
                    rights = {
                        name: np.array([_right(said[i], references[i], end, number, size) for i in long])
                        for name, said in outputs.items()
                    }
                    row |= difference(rights[L2R], rights[BOTH], run.seed)
                    if end == "left":
                        at_left[number, size] = rights
                    if end == "right":
                        row |= _against(at_left[number, size], rights, run.seed)
                for printed, values in imamura_2020.TABLE_3.items():
                    first, second = values[place][0:2] if size == 1 else values[place][2:4]
                    row |= {
                        f"paper_single_{printed}": first,
                        f"paper_bidirectional_{printed}": second,
                        f"paper_difference_{printed}": second - first,
                    }
                rows.append(row)
    models = [session.model for session in found.values() if not isinstance(session, NoResult)]
    return systems_table(rows, run, models, beam=BEAM)


def _right(words: Sequence[str], reference: Sequence[str], end: str, number: int, size: int) -> tuple[int, int]:
    """Number of correct n-grams, and of all n-grams, at one end of an output."""
    part = words if end == "all" else words[:number] if end == "left" else words[max(0, len(words) - number) :]

    def grams(of: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(tuple(of[i : i + size]) for i in range(len(of) - size + 1))

    said = grams(part)
    return (said & grams(reference)).total(), said.total()


def difference(first: np.ndarray, second: np.ndarray, seed: int) -> dict[str, float]:
    """Percent right of two systems, (N, 2) right and all, and their difference with its paired bootstrap interval."""
    low, high = _interval(_share(_resampled(second, seed)) - _share(_resampled(first, seed)))
    one, two = float(_share(first.sum(0))), float(_share(second.sum(0)))
    return {
        "single": one,
        "bidirectional": two,
        "difference": two - one,
        "difference_low": low,
        "difference_high": high,
    }


def _against(left: dict[str, np.ndarray], right: dict[str, np.ndarray], seed: int) -> dict[str, float]:
    """The `difference` at the right end minus that at the left end of the same sentences, with its interval."""

    def gained(of: Callable[[np.ndarray], np.ndarray]) -> Any:
        at_right, at_left = (_share(of(end[BOTH])) - _share(of(end[L2R])) for end in (right, left))
        return at_right - at_left

    low, high = _interval(gained(lambda counts: _resampled(counts, seed)))
    return {
        "against_left": round(float(gained(lambda counts: counts.sum(0))), 9),
        "against_left_low": low,
        "against_left_high": high,
    }


def _share(counts: np.ndarray) -> Any:
    """Percent right of counts (..., 2), right and all."""
    return 100 * counts[..., 0] / np.maximum(counts[..., 1], 1)


def _resampled(counts: np.ndarray, seed: int, samples: int = 1_000) -> np.ndarray:
    """Sums (samples, 2) over sentences drawn with replacement from counts (N, 2): the same ones for any counts of N sentences."""
    chosen = np.random.default_rng(seed).integers(0, len(counts), (samples, len(counts)))
    drawn: np.ndarray = counts[chosen].sum(1)
    return drawn


def _interval(values: np.ndarray) -> tuple[float, float]:
    """The middle 95%."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
