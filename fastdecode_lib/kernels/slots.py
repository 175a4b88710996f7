"""Slots that a step feeds and keeps, counted, checked and given pages in one call: numpy would take as long as a small layer."""

from numba import njit

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy
from fastdecode_lib.kernels.matrices import floats_at

PAGE = 16
"""Slots of a page."""


@kernel
def count_fed(tokens, filled, vocabulary, group, counts):  # type: ignore[no-untyped-def]
    """Write the number of tokens of each row (B, W) to counts (B,); -1 feeds nothing.

    Returns
    -------
    int
        Slots of the longest row after the step; -1 if an id is outside the vocabulary, a -1 stands before a token, or a row has,
        or is fed, part of a group.
    """
    longest = 0
    for row in range(len(tokens)):
        count = 0
        for slot in range(tokens.shape[1]):
            token = tokens[row, slot]
            if token < -1 or token >= vocabulary or (token >= 0 and count < slot):
                return -1
            count += 1 if token >= 0 else 0
        if filled[row] % group != 0 or count % group != 0:
            return -1
        counts[row] = count
        longest = max(longest, filled[row] + count)
    return longest


@kernel
def count_kept(slots, filled, before_step, counts):  # type: ignore[no-untyped-def]
    """Write the number of slots of each row (B, n) that are kept to counts (B,); -1 keeps nothing.

    Returns
    -------
    int
        0 if each row keeps its first slots in order, 1 if one does not, -1 if a slot was not fed or a -1 stands before a slot.
    """
    moved = 0
    for row in range(len(slots)):
        count, fed = 0, filled[row] - before_step[row]
        for place in range(slots.shape[1]):
            slot = slots[row, place]
            if slot >= fed or (slot >= 0 and count < place):
                return -1
            if slot >= 0:
                count += 1
                moved = 1 if slot != place else moved
        counts[row] = count
    return moved


@kernel
def own_pages(starts, written, slots, pages, uses, keys, values):  # type: ignore[no-untyped-def]
    """Give each row pages that nobody else uses, from slot ``starts[row]`` to before `slots`; what is written there is copied.

    Parameters
    ----------
    starts, written : int64 arrays (B,)
        The first slot that may be written next, and the number of slots that have been written.
    slots : int
    pages : int64 array (B, C)
        The pages of each row, -1 where it has none yet; changed in place, as `uses` is.
    uses : int64 array (P,)
        How many rows have each page.
    keys, values : float32 arrays (L, P, heads, PAGE, size)

    Returns
    -------
    int
        How many pages more are needed than are free, if any; a call with more of them goes on.
    """
    free, missing = 0, 0
    for row in range(len(starts)):
        for column in range(starts[row] // PAGE, (slots + PAGE - 1) // PAGE):
            page = pages[row, column]
            if page >= 0 and uses[page] == 1:
                continue
            while free < len(uses) and uses[free] > 0:
                free += 1
            if free == len(uses):
                missing += 1
                continue
            if page >= 0:
                for cache in (keys, values):
                    _copy_slots(cache, page, free, min(written[row] - column * PAGE, PAGE))
                uses[page] -= 1
            pages[row, column], uses[free] = free, 1
    return missing


@njit(nogil=True, error_model="numpy")
def _copy_slots(cache, page, target, count):  # type: ignore[no-untyped-def]
    """Copy the first `count` slots of a page of a cache (L, P, heads, PAGE, size) to another page."""
    layers, _, heads, _, size = cache.shape
    if count <= 0:
        return
    for layer in range(layers):
        for head in range(heads):
            source = floats_at(cache[layer, page, head].ctypes.data, count * size)
            copy(source, count * size, floats_at(cache[layer, target, head].ctypes.data, count * size))
