"""Kernels of drafts: expectation-maximisation of a lexicon, and the best next tokens of a sentence."""

from math import exp, log

import numpy as np
from numba import njit

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import place


@kernel
def expectation(links, source_lengths, target_lengths, probabilities, sharpness, counts):  # type: ignore[no-untyped-def]
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
def align(  # type: ignore[no-untyped-def]
    token, source, covered, aligned, reach, lexicon_offsets, lexicon_ids, lexicon_probabilities
):
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


@njit(nogil=True, error_model="numpy")
def _noted(token, number, scratch, touched):  # type: ignore[no-untyped-def]
    """Note a token to be scored, unless it is noted already; return the number of noted tokens."""
    if scratch[0, token] == 0:
        scratch[0, token] = 1
        touched[number] = token
        number += 1
    return number


@njit(nogil=True, error_model="numpy")
def _from_lexicon(source, covered, aligned, weights, lexicon, scratch, touched):  # type: ignore[no-untyped-def]
    """Note the translations of source tokens, with the sum of their probabilities by distance and cover in row 1."""
    offsets, ids, probabilities = lexicon
    reach, discount, number = weights[2], weights[3], 0
    for position in range(len(source)):
        share = exp(-abs(position - aligned - 1) / reach) * (1 - discount * min(1.0, covered[0, position]))
        if share < 1e-4:
            continue
        for entry in range(offsets[source[position]], offsets[source[position] + 1]):
            number = _noted(ids[entry], number, scratch, touched)
            scratch[1, ids[entry]] += share * probabilities[entry]
    return number


@njit(nogil=True, error_model="numpy")
def _from_counts(ids, counts, first, end, row, number, scratch, touched):  # type: ignore[no-untyped-def]
    """Note the tokens of n-gram entries from `first` to before `end`, with their counts in row `row`."""
    for entry in range(first, end):
        number = _noted(ids[entry], number, scratch, touched)
        scratch[row, ids[entry]] = counts[entry]
    return number


@njit(nogil=True, error_model="numpy")
def _from_head(words, logits, reach, number, scratch, touched):  # type: ignore[no-untyped-def]
    """Note the draft head's tokens whose logits are at most `reach` below its best."""
    highest = np.float32(-np.inf)
    for i in range(len(words)):
        highest = max(highest, logits[i])
    for i in range(len(words)):
        if logits[i] >= highest - reach:
            number = _noted(words[i], number, scratch, touched)
    return number


@njit(nogil=True, error_model="numpy")
def _highest(number, scratch, touched, weights, unigrams, totals, places, logits, log_normaliser):  # type: ignore[no-untyped-def]
    """The noted token with the highest sum of scores, the lowest id first; `scratch` is zero again after.

    `totals` has how often the bigram's and the trigram's context were counted. Most tokens have n-gram counts only: without a head
    the most probable of them is found before any logarithm is taken. With a head, tokens that it finds so improbable that no
    count or translation could make them the best are left out.
    """
    head_weight, enough = weights[7], -1e300
    if head_weight > 0:
        enough = _enough(number, scratch, touched, weights, unigrams, totals, places, logits, log_normaliser)
    best, chosen, highest, only_counted = -1e300, -1, -1.0, -1
    for index in range(number):
        token = touched[index]
        translated, score = scratch[1, token], 0.0
        if head_weight > 0:
            score = head_weight * _told(token, places, logits, log_normaliser, weights[9])
        if score >= enough:
            probability = _counted(token, scratch, weights, unigrams, totals)
            if head_weight == 0 and translated == 0:
                if probability > highest or (probability == highest and token < only_counted):
                    highest, only_counted = probability, token
            else:
                score += _log_sum(probability, translated, weights)
                if score > best or (score == best and token < chosen):
                    best, chosen = score, token
        scratch[0, token] = scratch[1, token] = scratch[2, token] = scratch[3, token] = 0
    if only_counted >= 0:
        score = _log_sum(highest, 0.0, weights)
        if score > best or (score == best and only_counted < chosen):
            chosen = only_counted
    return chosen


@njit(nogil=True, error_model="numpy")
def _enough(number, scratch, touched, weights, unigrams, totals, places, logits, log_normaliser):  # type: ignore[no-untyped-def]
    """The head's score below which no noted token is the best.

    With less, a token that has the highest translation and an n-gram probability of 1 would still be behind the token that the
    head finds best; the last term is for rounding.
    """
    leader, highest, most = -1, -1e300, 0.0
    for index in range(number):
        token = touched[index]
        told = _told(token, places, logits, log_normaliser, weights[9])
        if told > highest:
            leader, highest = token, told
        most = max(most, scratch[1, token])
    if leader < 0:
        return -1e300
    probability = _counted(leader, scratch, weights, unigrams, totals)
    score = weights[7] * highest + _log_sum(probability, scratch[1, leader], weights)
    return score - _log_sum(1.0, most, weights) - 1e-6


@njit(nogil=True, error_model="numpy")
def _told(token, places, logits, log_normaliser, floor):  # type: ignore[no-untyped-def]
    """A token's log-probability by the head, at least its floor."""
    return max(logits[places[token]] - log_normaliser, floor) if places[token] >= 0 else floor


@njit(nogil=True, error_model="numpy")
def _counted(token, scratch, weights, unigrams, totals):  # type: ignore[no-untyped-def]
    """A noted token's probability by the n-grams, 0 without them."""
    if weights[0] == 0:
        return 0.0
    probability = (scratch[2, token] + weights[5] * unigrams[token]) / (totals[0] + weights[5])
    return (scratch[3, token] + weights[6] * probability) / (totals[1] + weights[6])


@njit(nogil=True, error_model="numpy")
def _log_sum(probability, translated, weights):  # type: ignore[no-untyped-def]
    """The weighted logarithms of an n-gram probability and a lexicon's, of those whose weight is not 0."""
    score = weights[0] * log(probability + 1e-12) if weights[0] > 0 else 0.0
    return score + (weights[1] * log(translated + weights[4]) if weights[1] > 0 else 0.0)


@njit(nogil=True, error_model="numpy")
def _best_token(  # type: ignore[no-untyped-def]
    previous, before_previous, source, covered, aligned, weights, words, places, logits, log_normaliser, scratch, touched, lexicon,
    unigrams, bigrams, trigrams,
):  # fmt: skip
    bigram_offsets, bigram_ids, bigram_counts, bigram_totals = bigrams
    context_offsets, contexts, trigram_offsets, trigram_ids, trigram_counts, trigram_totals = trigrams
    number, context = 0, -1
    if weights[1] > 0:
        number = _from_lexicon(source, covered, aligned, weights, lexicon, scratch, touched)
    if weights[0] > 0:
        first, end = bigram_offsets[previous], bigram_offsets[previous + 1]
        number = _from_counts(bigram_ids, bigram_counts, first, end, 2, number, scratch, touched)
        first, end = context_offsets[previous], context_offsets[previous + 1]
        context = place(contexts, first, end - first, before_previous)
        if context >= 0:
            context += first
            first, end = trigram_offsets[context], trigram_offsets[context + 1]
            number = _from_counts(trigram_ids, trigram_counts, first, end, 3, number, scratch, touched)
    if weights[7] > 0:
        number = _from_head(words, logits, weights[8], number, scratch, touched)
    totals = bigram_totals[previous], trigram_totals[context] if context >= 0 else np.float32(0.0)
    return _highest(number, scratch, touched, weights, unigrams, totals, places, logits, log_normaliser)


@kernel
def best_chain(  # type: ignore[no-untyped-def]
    previous, before_previous, source, covered, aligned, weights, words, places, logits, log_normaliser, scratch, touched,
    lexicon_offsets, lexicon_ids, lexicon_probabilities, unigrams, bigram_offsets, bigram_ids, bigram_counts, bigram_totals,
    context_offsets, contexts, trigram_offsets, trigram_ids, trigram_counts, trigram_totals, chain,
):  # fmt: skip
    """Fill `chain` with tokens of which each has the highest sum of scores behind the two before it, the lowest id first.

    Parameters
    ----------
    covered, aligned
        As for `align`, for the tokens before the chain; unchanged.
    weights : float64 array (10,)
        The weights of the n-grams and of the lexicon (0 for none), the reach in source tokens, the discount of covered source
        tokens, the floor of the lexicon, the prior counts of bigrams and trigrams; the weight of the draft head (0 for none), the
        distance from its best logit within which tokens are scored, and its floor as a logarithm.
    words, places, logits, log_normaliser
        The head's: (W,), (V,) with -1 for other tokens, (W,), number. They are those of the first token of the chain.
    scratch : float32 array (4, V)
        Zero before and after.

    Returns
    -------
    int
        Number of tokens; the first one for which no token has a score ends the chain.
    """
    lexicon = lexicon_offsets, lexicon_ids, lexicon_probabilities
    bigrams = bigram_offsets, bigram_ids, bigram_counts, bigram_totals
    trigrams = context_offsets, contexts, trigram_offsets, trigram_ids, trigram_counts, trigram_totals
    shares = covered.copy()
    for slot in range(len(chain)):
        token = _best_token(
            previous, before_previous, source, shares, aligned, weights, words, places, logits, log_normaliser, scratch,
            touched, lexicon, unigrams, bigrams, trigrams,
        )  # fmt: skip
        if token < 0:
            return slot
        chain[slot] = token
        if weights[1] > 0:
            aligned = align(
                token, source, shares, aligned, weights[2], lexicon_offsets, lexicon_ids, lexicon_probabilities
            )
        previous, before_previous = token, previous
    return len(chain)
