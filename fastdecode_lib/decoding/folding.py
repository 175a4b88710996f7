"""The order in which a model emits several tokens a step: folding into groups, and back (Imamura and Sumita, section 3).

A model of n tokens a step emits groups of n slots. In order from one end, slot i is token i; from both ends, slots are by
turns the next token from the left and the next from the right, so that the middle comes last. Ends follow the tokens, at
least one and as many as fill the last group: a sentence of m tokens takes ``m // n + 1`` steps.
"""

from collections.abc import Sequence
from typing import TypeVar

Token = TypeVar("Token")
"""An id, or a word."""


def folded(tokens: Sequence[Token], end: Token, tokens_per_step: int, both_ends: bool) -> list[Token]:
    """The slots that a model should emit for a sentence, ends included.

    Examples
    --------
    >>> folded([1, 2, 3, 4, 5], end=0, tokens_per_step=2, both_ends=True)
    [1, 5, 2, 4, 3, 0]
    >>> folded([1, 2, 3, 4], end=0, tokens_per_step=2, both_ends=False)
    [1, 2, 3, 4, 0, 0]
    """
    if tokens_per_step < 1:
        raise ValueError(f"A step emits at least one token: got {tokens_per_step}. Imamura and Sumita have 2.")
    slots = [*tokens]
    if both_ends:
        left, right = slots[: (len(slots) + 1) // 2], slots[(len(slots) + 1) // 2 :]
        slots[0::2], slots[1::2] = left, right[::-1]
    return slots + [end] * (tokens_per_step - len(slots) % tokens_per_step)


def unfolded(slots: Sequence[Token], both_ends: bool) -> list[Token]:
    """The tokens of any number of first slots, without ends, in the order of the sentence.

    Examples
    --------
    >>> unfolded([1, 5, 2, 4, 3], both_ends=True)
    [1, 2, 3, 4, 5]
    """
    return [*slots[0::2], *slots[1::2][::-1]] if both_ends else [*slots]


def place(slot: int, both_ends: bool) -> int:
    """The place of a slot in the output; below 0 counted from the right: -1 is the end, -2 the token before it."""
    if not both_ends:
        return slot
    return -2 - slot // 2 if slot % 2 else slot // 2
