"""The best of all scores: a product with the output matrix, and the k best tokens that are not banned."""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import largest_of, log_sum
from fastdecode_lib.kernels.matrices import multiply

SPAN = 512
"""Scores of a span, whose largest is kept, so that the next best is found without reading all scores again."""


@njit(nogil=True, error_model="numpy")
def pick_row(scores, row, count, tops, ids, values):  # type: ignore[no-untyped-def]
    """Write the best of a row's scores to ids and values (k,), the lowest id first of equals; picked scores are overwritten."""
    spans = (count + SPAN - 1) // SPAN
    for span in range(spans):
        tops[span] = largest_of(scores, row, span * SPAN, min(span * SPAN + SPAN, count))
    for rank in range(len(ids)):
        best = 0
        for span in range(1, spans):
            if tops[span] > tops[best]:
                best = span
        if tops[best] == -np.inf:
            ids[rank], values[rank] = -1, -np.inf
            continue
        first, last = best * SPAN, min(best * SPAN + SPAN, count)
        found = first
        while scores[row, found] != tops[best]:
            found += 1
        ids[rank], values[rank] = found, tops[best]
        scores[row, found] = -np.inf
        tops[best] = largest_of(scores, row, first, last)


@kernel
def best_tokens(  # type: ignore[no-untyped-def]
    hidden, matrix, count, listed, banned, rounded, scores, tops, ids, values, log_normaliser
):
    """Score hidden (N, D) with an output matrix and pick the best tokens of each.

    Parameters
    ----------
    count : int
        V, the number of outputs.
    listed : int64 array (V,) or (0,)
        The token of each output, ascending; where it is empty, the outputs are the tokens.
    banned : int64 array (1 or N, M)
        Ids not to be picked, padded with -1; one row for all, or one for each.
    rounded, scores, tops : arrays
        Room for `R` rows at a time: from `matrices.scratch`, (R, padded V) and (V / SPAN,).
    ids, values : arrays (N, k)
        Results.
    log_normaliser : float64 array (N,) or (0,)
        Filled if it has room; banned tokens count.

    Returns
    -------
    bool
        Whether a row has no token.
    """
    together, empty = len(scores), False
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        multiply(hidden[first:], rows, matrix, rounded, scores)
        for row in range(rows):
            if len(log_normaliser):
                log_normaliser[first + row] = log_sum(scores, row, count)
            refused = banned[0 if len(banned) == 1 else first + row]
            for token in refused:
                if len(listed) == 0 and token >= 0:
                    scores[row, token] = -np.inf
                elif len(listed):
                    place = np.searchsorted(listed, token)
                    if place < count and listed[place] == token:
                        scores[row, place] = -np.inf
            pick_row(scores, row, count, tops, ids[first + row], values[first + row])
            if len(listed):
                for rank in range(ids.shape[1]):
                    place = ids[first + row, rank]
                    ids[first + row, rank] = listed[place] if place >= 0 else -1
            empty |= ids[first + row, 0] < 0
    return empty


@kernel
def log_probabilities(hidden, matrix, count, wanted, rounded, scores, found):  # type: ignore[no-untyped-def]
    """Log-probabilities `found` (N, M) of ids `wanted` (N, M) under hidden (N, D); the others as for `best_tokens`."""
    together = len(scores)
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        multiply(hidden[first:], rows, matrix, rounded, scores)
        for row in range(rows):
            normaliser = log_sum(scores, row, count)
            for i in range(wanted.shape[1]):
                found[first + row, i] = scores[row, wanted[first + row, i]] - normaliser


@kernel
def best_continuations(sums, scores, log_normaliser, ids, lanes, tokens, values):  # type: ignore[no-untyped-def]
    """The best continuations of all lanes of a beam; ties go to the earlier lane, then to the better token.

    Parameters
    ----------
    sums : float64 array (L,)
        Log-probability of each lane so far.
    scores, log_normaliser, ids : arrays (L, k), (L,), (L, k)
        Candidates of each lane, best first, -1 after the last; a lane that has NaN comes after all others.
    lanes, tokens, values : int64, int64, float64 arrays (most,)
        Filled with the lane, the token and the log-probability of each continuation.

    Returns
    -------
    int
        Number of continuations.
    """
    taken = np.zeros(len(sums), np.int64)
    for place in range(len(lanes)):
        best, highest = -1, -np.inf
        for lane in range(len(sums)):
            rank = taken[lane]
            if rank == ids.shape[1] or ids[lane, rank] < 0:
                continue
            value = sums[lane] + (scores[lane, rank] - log_normaliser[lane])
            if best < 0 or value > highest or (np.isnan(highest) and not np.isnan(value)):
                best, highest = lane, value
        if best < 0:
            return place
        lanes[place], tokens[place], values[place] = best, ids[best, taken[best]], highest
        taken[best] += 1
    return len(lanes)


@kernel
def best_groups(ids, log_probs, sums, end, size, forced, lanes, tokens, scores):  # type: ignore[no-untyped-def]
    """DOUBLETOPK of algorithm 1 of Imamura and Sumita (2020) for groups of n tokens; see `decoding.double_token.best_groups`.

    Parameters
    ----------
    ids, log_probs : int64 and float64 arrays (L, n, K)
        Candidates of every slot of each lane, best first; -1 for none.
    sums : float64 array (L,)
        Log-probability of each lane so far.
    end, size : int
        The token of an end, and W.
    forced : int64 array (n,)
        The token forced at a slot, or -1.
    lanes, tokens, scores : int64 (M,), int64 (M, n) and float64 (M,) arrays
        Filled with groups, best first; M is at least L and (n + 1)W.

    Returns
    -------
    int
        Number of groups.
    """
    count = len(sums)
    for lane in range(count):
        lanes[lane], scores[lane] = lane, sums[lane]
    parents, chosen, totals, ended = lanes.copy(), lanes.copy(), scores.copy(), np.zeros(len(lanes), np.bool_)
    for slot in range(len(forced)):
        grown = 0
        for closes in (False, True):  # where no lane has an allowed token, all of them end
            taken = np.zeros(count, np.int64)
            while grown < (slot + 2) * size:
                best, highest, token = -1, -np.inf, np.int64(-1)
                for i in range(count):
                    options, place = ids[lanes[i], slot], taken[i]
                    if closes or ended[i] or forced[slot] >= 0:
                        value = scores[i] if place == 0 else -np.inf
                        option = end if closes or ended[i] else forced[slot]
                    else:
                        added = log_probs[lanes[i], slot]
                        while place < len(options) and (options[place] < 0 or not np.isfinite(added[place])):
                            place += 1
                        taken[i] = place
                        value = scores[i] + added[place] if place < len(options) else -np.inf
                        option = options[place] if place < len(options) else np.int64(-1)
                    if np.isfinite(value) and value > highest:
                        best, highest, token = i, value, option
                if best < 0:
                    break
                parents[grown], chosen[grown], totals[grown] = best, token, highest
                taken[best] += 1
                grown += 1
            if grown > 0:
                break
        before, origins, closed = tokens[:count].copy(), lanes[:count].copy(), ended[:count].copy()
        for i in range(grown):
            parent = parents[i]
            lanes[i], scores[i] = origins[parent], totals[i]
            tokens[i, :slot], tokens[i, slot] = before[parent, :slot], chosen[i]
            ended[i] = closed[parent] or chosen[i] == end
        count = grown
    return count
