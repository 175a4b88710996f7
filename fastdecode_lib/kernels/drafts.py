"""Kernels of drafts: expectation-maximisation of a lexicon, a step of a draft head, and the best next token of a sentence."""

from math import exp, log

import numpy as np

from fastdecode_lib.kernels.attention import attend
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy, log_sum
from fastdecode_lib.kernels.matrices import multiply
from fastdecode_lib.kernels.recurrent import POLYNOMIAL, gru, tangent

ENTER, STATE, TOKEN, QUERY, INNER, OUTER, ROWS = range(7)
"""Indices of a draft head's matrices in the array that its kernels take."""

_NONE = np.zeros(0, dtype=np.bool_)


@kernel
def expectation(
    links: np.ndarray,
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    probabilities: np.ndarray,
    sharpness: float,
    counts: np.ndarray,
) -> None:
    """Add the expected counts of one pass over all sentences to `counts` (E,).

    `links` (sum of S * T) has the lexicon's entry for each target token and source token of a sentence.
    """
    first = 0
    weights = np.empty(source_lengths.max(), np.float64)
    for sentence in range(len(source_lengths)):
        sources, targets = source_lengths[sentence], target_lengths[sentence]
        for target in range(targets):
            total = 0.0
            for source in range(sources):
                distance = abs(target / targets - source / sources)
                weights[source] = probabilities[links[first + source]] * exp(-sharpness * distance)
                total += weights[source]
            for source in range(sources):
                counts[links[first + source]] += weights[source] / total
            first += sources


@kernel
def _find(keys: np.ndarray, low: int, high: int, key: int) -> int:
    """The index of `key` in the ascending ``keys[low:high]``, -1 if it is missing."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < end and keys[low] == key else -1


@kernel
def align(
    token: int,
    source: np.ndarray,
    covered: np.ndarray,
    aligned: int,
    reach: float,
    lexicon_offsets: np.ndarray,
    lexicon_ids: np.ndarray,
    lexicon_probabilities: np.ndarray,
) -> int:
    """Distribute a token of the output over the source tokens that it may translate; return the most probable one.

    `covered` (2, S) has the share of each source token that is translated, and room for new shares. `aligned` is the source
    token of the output's previous token; if the lexicon has no entry, the result is the one behind it, or the last.
    """
    total, best, found = 0.0, 0.0, -1
    for position in range(len(source)):
        share = 0.0
        for entry in range(lexicon_offsets[source[position]], lexicon_offsets[source[position] + 1]):
            if lexicon_ids[entry] == token:
                share = lexicon_probabilities[entry] * exp(-abs(position - aligned - 1) / (2 * reach))
                break
        covered[1, position] = share
        total += share
        if share > best:
            best, found = share, position
    if found < 0:
        return min(aligned + 1, len(source) - 1)
    for position in range(len(source)):
        covered[0, position] += covered[1, position] / total
    return found


@kernel
def head_enter(hidden, matrices, rounded, state):  # type: ignore[no-untyped-def]
    """A draft head's first state (1, ...) from the model's hidden vector (1, D)."""
    multiply(hidden, 1, matrices[ENTER], rounded, state)
    tangent(state[0], POLYNOMIAL)


@kernel
def head_step(token, state, width, words, embedding, matrices, keys, values, rounded, work, logits):  # type: ignore[no-untyped-def]
    """Feed a token to a draft head and score its vocabulary.

    Parameters
    ----------
    state : float32 array (1, ...)
        The first `width` entries are the state; replaced by the next one.
    words : int
        Size of the draft vocabulary.
    embedding : float32 array (V, E)
    matrices : int64 array (7, FIELDS)
        `matrices.Matrix.record` of each.
    keys, values : float32 arrays (heads, S, width / heads)
    rounded : int16 array (1, ...)
        From `matrices.scratch`, for the widest input.
    work : float32 array (4, ...)
        Room as wide as the widest result, or as the source is long.
    logits : float32 array (1, ...)
        Logits of the draft vocabulary.

    Returns
    -------
    float
        The logarithm of the sum of the logits' exponentials.
    """
    multiply(embedding[token : token + 1], 1, matrices[TOKEN], rounded, work[0:1])
    multiply(state, 1, matrices[STATE], rounded, work[1:2])
    gates = 3 * width
    gru(state[0, :width], work[1, :gates], work[0, :gates], work[2, :width], work[3, :gates], POLYNOMIAL)
    copy(work[2], width, state[0])
    multiply(state, 1, matrices[QUERY], rounded, work[0:1])
    attend(work[0], keys, values, keys.shape[1], _NONE, work[1], work[2, width:])
    multiply(work[2:3], 1, matrices[INNER], rounded, work[0:1])
    for i in range(work.shape[1]):
        work[0, i] = max(work[0, i], np.float32(0.0))
    multiply(work[0:1], 1, matrices[OUTER], rounded, work[1:2])
    multiply(work[1:2], 1, matrices[ROWS], rounded, logits)
    return log_sum(logits, 0, words)


@kernel
def _noted(token: int, number: int, scratch: np.ndarray, touched: np.ndarray) -> int:
    """Note a token to be scored, unless it is noted already; return the number of noted tokens."""
    if scratch[0, token] == 0:
        scratch[0, token] = 1
        touched[number] = token
        number += 1
    return number


@kernel
def _from_lexicon(
    source: np.ndarray,
    covered: np.ndarray,
    aligned: int,
    weights: np.ndarray,
    lexicon_offsets: np.ndarray,
    lexicon_ids: np.ndarray,
    lexicon_probabilities: np.ndarray,
    scratch: np.ndarray,
    touched: np.ndarray,
) -> int:
    """Note the translations of source tokens, with the sum of their probabilities by distance and cover in row 1."""
    reach, discount, number = weights[2], weights[3], 0
    for position in range(len(source)):
        share = exp(-abs(position - aligned - 1) / reach) * (1 - discount * min(1.0, covered[0, position]))
        if share < 1e-4:
            continue
        for entry in range(lexicon_offsets[source[position]], lexicon_offsets[source[position] + 1]):
            token = lexicon_ids[entry]
            number = _noted(token, number, scratch, touched)
            scratch[1, token] += share * lexicon_probabilities[entry]
    return number


@kernel
def _from_counts(
    ids: np.ndarray,
    counts: np.ndarray,
    first: int,
    end: int,
    row: int,
    number: int,
    scratch: np.ndarray,
    touched: np.ndarray,
) -> int:
    """Note the tokens of n-gram entries from `first` to before `end`, with their counts in row `row`."""
    for entry in range(first, end):
        number = _noted(ids[entry], number, scratch, touched)
        scratch[row, ids[entry]] = counts[entry]
    return number


@kernel
def _from_head(
    words: np.ndarray, logits: np.ndarray, reach: float, number: int, scratch: np.ndarray, touched: np.ndarray
) -> int:
    """Note the draft head's tokens whose logits are at most `reach` below its best."""
    highest = np.float32(-np.inf)
    for place in range(len(words)):
        highest = max(highest, logits[place])
    for place in range(len(words)):
        if logits[place] >= highest - reach:
            number = _noted(words[place], number, scratch, touched)
    return number


@kernel
def _highest(
    number: int,
    scratch: np.ndarray,
    touched: np.ndarray,
    weights: np.ndarray,
    unigrams: np.ndarray,
    bigram_total: float,
    trigram_total: float,
    places: np.ndarray,
    logits: np.ndarray,
    log_normaliser: float,
) -> int:
    """The noted token with the highest sum of scores, the lowest id first; `scratch` is zero again after."""
    ngram_weight, lexicon_weight, floor = weights[0], weights[1], weights[4]
    bigram_prior, trigram_prior, head_weight, head_floor = weights[5], weights[6], weights[7], weights[9]
    best, chosen = -1e300, -1
    for index in range(number):
        token = touched[index]
        score = 0.0
        if ngram_weight > 0:
            probability = unigrams[token]
            probability = (scratch[2, token] + bigram_prior * probability) / (bigram_total + bigram_prior)
            probability = (scratch[3, token] + trigram_prior * probability) / (trigram_total + trigram_prior)
            score += ngram_weight * log(probability + 1e-12)
        if lexicon_weight > 0:
            score += lexicon_weight * log(scratch[1, token] + floor)
        if head_weight > 0:
            told = logits[places[token]] - log_normaliser if places[token] >= 0 else head_floor
            score += head_weight * max(told, head_floor)
        if score > best or (score == best and token < chosen):
            best, chosen = score, token
        scratch[0, token] = scratch[1, token] = scratch[2, token] = scratch[3, token] = 0
    return chosen


@kernel
def best_token(
    previous: int,
    before_previous: int,
    source: np.ndarray,
    covered: np.ndarray,
    aligned: int,
    weights: np.ndarray,
    words: np.ndarray,
    places: np.ndarray,
    logits: np.ndarray,
    log_normaliser: float,
    scratch: np.ndarray,
    touched: np.ndarray,
    lexicon_offsets: np.ndarray,
    lexicon_ids: np.ndarray,
    lexicon_probabilities: np.ndarray,
    unigrams: np.ndarray,
    bigram_offsets: np.ndarray,
    bigram_ids: np.ndarray,
    bigram_counts: np.ndarray,
    bigram_totals: np.ndarray,
    context_offsets: np.ndarray,
    contexts: np.ndarray,
    trigram_offsets: np.ndarray,
    trigram_ids: np.ndarray,
    trigram_counts: np.ndarray,
    trigram_totals: np.ndarray,
) -> int:
    """The token with the highest sum of scores behind two previous ones, the lowest id first; -1 if no token has a score.

    `weights` has: the weights of the n-grams and of the lexicon (0 for none), the reach in source tokens, the discount of covered
    source tokens, the floor of the lexicon, the prior counts of bigrams and trigrams; the weight of the draft head (0 for none),
    the distance from its best logit within which tokens are scored, and its floor as a logarithm. `words` (W,), `places` (V,),
    -1 for other tokens, `logits` (W,) and `log_normaliser` are the head's. `scratch` (4, V) is zero before and after.
    """
    number, context = 0, -1
    if weights[1] > 0:
        number = _from_lexicon(
            source, covered, aligned, weights, lexicon_offsets, lexicon_ids, lexicon_probabilities, scratch, touched
        )
    if weights[0] > 0:
        first, end = bigram_offsets[previous], bigram_offsets[previous + 1]
        number = _from_counts(bigram_ids, bigram_counts, first, end, 2, number, scratch, touched)
        context = _find(contexts, context_offsets[previous], context_offsets[previous + 1], before_previous)
        if context >= 0:
            first, end = trigram_offsets[context], trigram_offsets[context + 1]
            number = _from_counts(trigram_ids, trigram_counts, first, end, 3, number, scratch, touched)
    if weights[7] > 0:
        number = _from_head(words, logits, weights[8], number, scratch, touched)
    trigram_total = trigram_totals[context] if context >= 0 else 0.0
    bigram_total = bigram_totals[previous]
    return _highest(
        number, scratch, touched, weights, unigrams, bigram_total, trigram_total, places, logits, log_normaliser
    )
