"""Output layers of smaller products: a preview of all scores with exact ones for the best, or a head with tails."""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy, log_sum
from fastdecode_lib.kernels.listed import best_places, pick, product, score, spread


@kernel
def best_previewed(  # type: ignore[no-untyped-def]
    hidden, basis, preview, full, turned, previews, stored, room, asked, results
):
    """SVD-softmax (Shim et al. 2017, algorithm 1): score all tokens roughly, the best of them exactly.

    Parameters
    ----------
    basis, preview : int64 arrays
        `Matrix.record` of the first `window` singular directions (window, D) and of the weight in terms of them (V, window),
        with the bias.
    full : int
        Rows scored exactly.
    turned, previews : arrays
        Room for `R` rows at a time: (R, padded window) and (R, padded V).
    stored, room, asked, results
        As for `listed`; normaliser and log-probabilities are over the vocabulary, with rough scores where there are no exact ones.
    """
    weight, bias, _ = stored
    x, places, scores, _ = room
    banned, wanted = asked
    ids, values, active, log_normaliser, found, active_ids, active_scores = results
    vocabulary, together = len(weight), len(previews)
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        product(hidden[first:], rows, basis, turned)
        product(turned, rows, preview, previews)
        for i in range(rows):
            row = first + i
            best_places(previews[i], vocabulary, full, places, scores[0])
            spread(hidden[row], x)
            score(x, weight, bias, places, full, scores[0])
            active[row] = full
            pick(scores[0], places, full, banned[0 if len(banned) == 1 else row], ids[row], values[row], 0)
            if len(active_ids):
                copy(places, full, active_ids[row])
                copy(scores[0], full, active_scores[row])
            if len(log_normaliser) or wanted.shape[1]:
                for place in range(full):
                    previews[i, places[place]] = scores[0, place]
                normaliser = log_sum(previews, i, vocabulary)
                if len(log_normaliser):
                    log_normaliser[row] = normaliser
                for j in range(wanted.shape[1]):
                    found[row, j] = previews[i, wanted[row, j]] - normaliser


@njit(nogil=True, error_model="numpy")
def _is_asked(wanted, ranks, first, last):  # type: ignore[no-untyped-def]
    """Whether one of these tokens has a rank from `first` to before `last`."""
    found = False
    for token in wanted:
        found = found or first <= ranks[token] < last
    return found


@kernel
def best_adaptive(  # type: ignore[no-untyped-def]
    hidden, head, down, up, starts, order, ranks, heads, few, inner, tails, chosen, opened, asked, results
):
    """Adaptive softmax (Grave et al. 2017): a tail is computed only for rows whose result it may change.

    Parameters
    ----------
    head : int64 array
        `Matrix.record` of the frequent tokens and, behind them, of the T tails.
    down, up : int64 arrays (T, FIELDS)
        Records of the two factors of each tail.
    starts : int64 array (T + 1,)
        Rank of the first token of each tail, and V.
    order, ranks : int64 arrays (V,)
        Tokens from frequent to rare, and the place of each in this order.
    heads, few, inner, tails, chosen : arrays
        Room for `R` rows at a time: (R, padded head + T), (R, D), (R, padded widest factor), (R, padded longest tail) and int64
        (2, R).
    opened : int64 array (T,)
        The number of rows that needed each tail is added here.
    asked, results
        As for `listed`; scores are log-probabilities over the vocabulary, so that the normaliser is 0.
    """
    banned, wanted = asked
    ids, values, active, log_normaliser, found, _, _ = results
    frequent, together = starts[0], len(heads)
    chosen, filled = chosen[0], chosen[1]
    log_normaliser[:] = 0.0
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        product(hidden[first:], rows, head, heads)
        for i in range(rows):
            row, normaliser = first + i, log_sum(heads, i, frequent + len(down))
            refused = banned[0 if len(banned) == 1 else row]
            for j in range(frequent + len(down)):
                heads[i, j] = heads[i, j] - normaliser
            filled[i] = pick(heads[i], order, frequent, refused, ids[row], values[row], 0)
            active[row] = frequent
            for j in range(wanted.shape[1]):
                if ranks[wanted[row, j]] < frequent:
                    found[row, j] = heads[i, ranks[wanted[row, j]]]
        for tail in range(len(down)):
            start, size, needed = starts[tail], starts[tail + 1] - starts[tail], 0
            for i in range(rows):
                row, k = first + i, ids.shape[1]
                hopeful = k > 0 and (filled[i] < k or heads[i, frequent + tail] >= values[row, k - 1])
                if hopeful or _is_asked(wanted[row], ranks, start, start + size):
                    copy(hidden[row], hidden.shape[1], few[needed])
                    chosen[needed] = i
                    needed += 1
            opened[tail] += needed
            product(few, needed, down[tail], inner)
            product(inner, needed, up[tail], tails)
            for n in range(needed):
                i, row = chosen[n], first + chosen[n]
                chance, normaliser = np.float64(heads[i, frequent + tail]), log_sum(tails, n, size)
                for j in range(size):
                    tails[n, j] = chance + min(0.0, tails[n, j] - normaliser)
                refused = banned[0 if len(banned) == 1 else row]
                filled[i] = pick(tails[n], order[start:], size, refused, ids[row], values[row], filled[i])
                active[row] += size
                for j in range(wanted.shape[1]):
                    if start <= ranks[wanted[row, j]] < start + size:
                        found[row, j] = tails[n, ranks[wanted[row, j]] - start]
