"""Slots that a step feeds and keeps, counted, checked and copied in one call: numpy would take as long as a small layer."""

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy
from fastdecode_lib.kernels.matrices import floats_at


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
def copy_slots(cache, rows, used, copied):  # type: ignore[no-untyped-def]
    """Copy the first `used` slots of these rows (n,) of a cache (L, B, heads, C, size) to another one of n rows."""
    layers, _, heads, _, size = cache.shape
    for layer in range(layers):
        for row in range(len(rows)):
            for head in range(heads):
                source = floats_at(cache[layer, rows[row], head].ctypes.data, used * size)
                copy(source, used * size, floats_at(copied[layer, row, head].ctypes.data, used * size))
