"""Precision at both ends of outputs: Imamura and Sumita's table 3, on joined sentences and on single ones that are long enough."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.measuring.counting import count
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding.quality import MOST, systems_table
from fastdecode_lib.papers.double_token_decoding.systems import (
    BEAM,
    BOTH,
    L2R,
    LONG,
    SINGLE,
    SYSTEMS,
    model_of,
    pairs_of,
    session_of,
)
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment, gap
from fastdecode_lib.papers.shared.rows import bootstrapped

LEAST = {Scale.TINY: 1, Scale.LAPTOP: 100, Scale.PAPER: 100}
"""Least number of sentences that are long enough for a row of table 3; with fewer, the row is a gap."""


@experiment
def table3(run: CorpusRun) -> pd.DataFrame:
    """Table 3: the share of correct 1-grams and 4-grams among all, the first and the last words of the outputs.

    Words are those of sacrebleu's 13a tokeniser; an n-gram is correct if the reference has it, at most as often as there.
    The paper takes sentences of over 30 tokens, which Tatoeba lacks: ours are five to eight sentences joined, whose right end is a
    new sentence, and single ones. A row about one end has the ``sentences`` whose reference is at least twice as long, so that the
    ends do not overlap; with too few of them, the row is a gap. ``difference`` is bidirectional minus single-token L2R in points,
    with a 95% interval over sentences. ``against_left``, in rows of the right end, is the difference there minus the difference in
    as many first words of the same sentences, so that a model that is worse everywhere has no advantage or disadvantage.
    """
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenizer = Tokenizer13a()
    models = {name: model_of(SYSTEMS[name].preset, run.scale) for name in (L2R, BOTH)}
    rows: list[dict[str, Any]] = []
    for set_name in (LONG, SINGLE):
        pairs = pairs_of(set_name, run, MOST[run.scale])
        references = [tokenizer(b).split() for _, b in pairs]
        outputs = {}
        for name, model in run.bar(models.items(), desc=set_name, unit="system"):
            session = session_of(model, SYSTEMS[name].decoder)
            outputs[name] = [tokenizer(text).split() for text in count(session, [a for a, _ in pairs])["text"]]
        left_counts: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        for column, (end, number) in enumerate(imamura_2020.ENDS):
            long = [i for i, reference in enumerate(references) if len(reference) >= 2 * number]
            for size in (1, 4):
                row: dict[str, Any] = {
                    "name": f"{set_name}, {end}{f' {number}' if number else ''}, {size}-gram",
                    "set": set_name,
                    "end": end,
                    "words": number or None,
                    "n": size,
                    "sentences": len(long),
                }
                if len(long) < LEAST[run.scale]:
                    subject = f"only {len(long)} have" if long else "none has"
                    row |= gap(f"Of {set_name} sentences {subject} {2 * number} words")
                else:
                    counts = {
                        name: np.array([_correct(words[i], references[i], end, number, size) for i in long])
                        for name, words in outputs.items()
                    }
                    row |= difference(counts[L2R], counts[BOTH], run.seed)
                    if end == "left":
                        left_counts[number, size] = counts
                    if end == "right":
                        row |= _against(left_counts[number, size], counts, run.seed)
                for corpus, values in imamura_2020.TABLE_3.items():
                    single, bidirectional = values[column][0:2] if size == 1 else values[column][2:4]
                    row |= {
                        f"paper_single_{corpus}": single,
                        f"paper_bidirectional_{corpus}": bidirectional,
                        f"paper_difference_{corpus}": bidirectional - single,
                    }
                rows.append(row)
    return systems_table(rows, run, list(models.values()), beam=BEAM)


def _correct(words: Sequence[str], reference: Sequence[str], end: str, number: int, size: int) -> tuple[int, int]:
    """Number of correct n-grams, and of all n-grams, at one end of an output."""
    part = words if end == "all" else words[:number] if end == "left" else words[max(0, len(words) - number) :]

    def ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(tuple(words[i : i + size]) for i in range(len(words) - size + 1))

    output_ngrams = ngrams(part)
    return (output_ngrams & ngrams(reference)).total(), output_ngrams.total()


def difference(first: np.ndarray, second: np.ndarray, seed: int) -> dict[str, float]:
    """Percent correct of two systems, from counts (N, 2) of correct and all, and the difference with its bootstrap interval."""
    shares = {"single": float(_share(first.sum(0))), "bidirectional": float(_share(second.sum(0)))}
    return shares | bootstrapped(
        "difference", lambda total: _share(total(second)) - _share(total(first)), len(first), seed
    )


def _against(left: dict[str, np.ndarray], right: dict[str, np.ndarray], seed: int) -> dict[str, float]:
    """The `difference` at the right end minus that at the left end of the same sentences, with its interval."""

    def advantage(total: Callable[[np.ndarray], np.ndarray]) -> Any:
        at_right, at_left = (_share(total(end[BOTH])) - _share(total(end[L2R])) for end in (right, left))
        return at_right - at_left

    row = bootstrapped("against_left", advantage, len(right[BOTH]), seed)
    return row | {"against_left": round(row["against_left"], 9)}


def _share(counts: np.ndarray) -> Any:
    """Percent correct from counts (..., 2) of correct and all."""
    return 100 * counts[..., 0] / np.maximum(counts[..., 1], 1)
