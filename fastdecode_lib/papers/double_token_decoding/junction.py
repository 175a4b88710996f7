"""The middle of outputs, where both halves meet: what bidirectional decoding loses there, and the loss of each half."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.decoding.folding import folded, place
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.papers.double_token_decoding.ends import difference
from fastdecode_lib.papers.double_token_decoding.quality import MOST, systems_table
from fastdecode_lib.papers.double_token_decoding.systems import (
    BEAM,
    BOTH,
    DIRECTION,
    JOINED,
    L2R,
    LONG,
    SINGLE,
    SYSTEMS,
    model_of,
    pairs_of,
    session_of,
)
from fastdecode_lib.papers.run import CorpusRun, experiment
from fastdecode_lib.text.corpus import Pair

SHORTEST = 4
"""Tokens of the shortest output whose middle is scored."""
LONGEST_REPEAT = 3
MEASURES = (
    "right pairs across the middle, %",
    "right pairs elsewhere, %",
    "outputs that repeat themselves across the middle, %",
    "loss of the left half",
    "loss of the right half",
)


@experiment
def junction(run: CorpusRun) -> pd.DataFrame:
    """What bidirectional decoding loses where its halves meet, compared with single-token L2R at the middle of its own outputs.

    A pair of neighbouring tokens is right if the reference has it. An output repeats itself across the middle if the same one to
    three tokens are on both sides of it. The loss is the negative log-likelihood of the references in nats a token, of each half's
    tokens without the end, given the tokens that the model sees: L2R all tokens before, bidirectional the outer ones of both
    halves. ``difference`` is bidirectional minus single-token L2R, with a 95% interval over sentences.
    """
    models = {name: model_of(SYSTEMS[name].preset, run.scale) for name in (L2R, BOTH)}
    sessions = {name: session_of(model, SYSTEMS[name].decoder) for name, model in models.items()}
    rows: list[dict[str, Any]] = []
    for set_name in (SINGLE, JOINED, LONG):
        pairs = pairs_of(set_name, run, MOST[run.scale])
        counts = {name: _counts(session, pairs, run.progress) for name, session in sessions.items()}
        for number, measure in enumerate(MEASURES):
            row: dict[str, Any] = {"name": f"{set_name}: {measure}", "set": set_name, "measure": measure}
            values = difference(counts[L2R][number], counts[BOTH][number], run.seed)
            divisor = 1 if measure.endswith("%") else 100  # `difference` gives percent
            rows.append(row | {"sentences": len(pairs)} | {name: value / divisor for name, value in values.items()})
    return systems_table(rows, run, list(models.values()), beam=BEAM)


def _counts(session: Any, pairs: Sequence[Pair], progress: bool) -> np.ndarray:
    """For every measure and sentence the count, and the total: (measures, N, 2)."""
    references = session.model.tokenizer.output_ids([b for _, b in pairs])
    table = count(session, [a for a, _ in pairs], progress=progress)
    end = session.constraints.end
    middles = [
        middle([token for token in ids if token not in end], reference)
        for ids, reference in zip(table["ids"], references, strict=True)
    ]
    weight = session.model.network.outputs[0].weight.unpacked()
    losses = [
        half_losses(session.model, weight, a, reference) for (a, _), reference in zip(pairs, references, strict=True)
    ]
    return np.concatenate([np.array(middles), np.array(losses)], 1).transpose(1, 0, 2)


def middle(tokens: Sequence[int], reference: Sequence[int]) -> list[tuple[int, int]]:
    """Right pairs across the middle, right pairs elsewhere, and repetitions across the middle, each with its total.

    Examples
    --------
    >>> middle([5, 6, 7, 7, 8, 9], [5, 6, 7, 8, 9])
    [(0, 1), (3, 4), (1, 1)]
    """
    reference_pairs = set(pairwise(reference))
    pairs = list(pairwise(tokens))
    if len(tokens) < SHORTEST:
        return [(0, 0), (sum(pair in reference_pairs for pair in pairs), len(pairs)), (0, 0)]
    half = (len(tokens) + 1) // 2
    across = pairs.pop(half - 1)
    repeated = any(
        list(tokens[half - size : half]) == list(tokens[half : half + size]) for size in range(1, LONGEST_REPEAT + 1)
    )
    return [
        (int(across in reference_pairs), 1),
        (sum(pair in reference_pairs for pair in pairs), len(pairs)),
        (int(repeated), 1),
    ]


def half_losses(
    model: TranslationModel, weight: np.ndarray, text: str, reference: Sequence[int]
) -> list[tuple[float, int]]:
    """Negative log-likelihood of a reference's left and right half, each with its number of tokens.

    `weight` is the model's output matrix (V, D).
    """
    network: Any = model.network
    constraints = model.constraints(DIRECTION[1])
    group = network.tokens_per_step
    slots = folded(list(reference), constraints.end[0], group, network.both_ends)
    prefix = np.array([constraints.prefix])
    state = network.start(network.encode(model.encode([text], *DIRECTION)), prefix, prefix.shape[1] + len(slots))
    fed = np.array([[*constraints.prefix[-group:], *slots[:-group]]])
    scores = network.step(state, fed)[0] @ weight.T + network.outputs[0].weight.bias[: len(weight)]
    losses = np.logaddexp.reduce(scores.astype(np.float64), 1) - scores[np.arange(len(slots)), slots]
    half = (len(reference) + 1) // 2
    sides: tuple[list[int], list[int]] = ([], [])
    for number, token in enumerate(slots):
        position = place(number, network.both_ends)
        if token != constraints.end[0]:
            sides[(position if position >= 0 else len(reference) + 1 + position) >= half].append(number)
    return [(float(losses[side].sum()), len(side)) for side in sides]
