"""Greedy decoding's own loop, from the start or after passes of another decoder."""

from collections.abc import Callable, Generator, Sequence
from time import perf_counter

import numpy as np

from fastdecode_lib.core import Constraints, Iteration, Model, State, Status
from fastdecode_lib.decoding.choosing import Choice

TIMED = 4
"""Of so many passes one is timed, and never the first, which finds code and weights out of the caches."""
NO_DRAFT = np.full(1, -1)
"""The drafts of a pass without drafts."""
NO_DRAFT.setflags(write=False)
_NO_ORIGIN = ("",)
_SETTLED: tuple[Status, ...] = ("settled",)


class Single:
    """Greedy decoding's own loop: one token of every row in a pass, from any state.

    Parameters
    ----------
    outputs : list of list of int
        The tokens of each row so far, which the loop appends to.
    timed : callable, optional
        Called now and then with the number of rows and the seconds of a pass.
    """

    def __init__(
        self,
        outputs: list[list[int]],
        model: Model,
        chooser: Callable[..., Choice],
        constraints: Constraints,
        first_row: int,
        timed: Callable[[int, float], None] | None = None,
    ):
        self.outputs, self.model, self.chooser = outputs, model, chooser
        self.constraints, self.first_row, self.timed = constraints, first_row, timed

    def __call__(self, rows: Sequence[int], state: State, call: int, clock: float) -> Generator[Iteration, None, int]:
        """Decode these rows to their ends; return the number of the next pass."""
        constraints, alive, first = self.constraints, np.array(rows), call
        outputs = [self.outputs[row] for row in rows]
        last = np.array([[output[-1] if output else constraints.prefix[-1]] for output in outputs])
        while True:
            hidden = self.model.step(state, last)
            slots = np.array([len(output) for output in outputs])
            choice = self.chooser(hidden[:, 0], slots, alive, ())
            tokens = choice.tokens.tolist()
            seconds = perf_counter() - clock
            if self.timed is not None and (call - first) % TIMED == 1:
                self.timed(len(alive), seconds)
            row_seconds = seconds / len(alive)
            for row, output, token, slot, chosen, (probability, margin, active, cluster) in zip(
                alive.tolist(), outputs, tokens, slots[:, None], choice.tokens[:, None], choice.singles(), strict=True
            ):
                output.append(token)
                yield Iteration(
                    self.first_row + row, call, slot, NO_DRAFT, _NO_ORIGIN, chosen, _SETTLED, probability, margin, active, cluster,
                    seconds=row_seconds,
                )  # fmt: skip
            clock = perf_counter()
            call += 1
            survivors = [
                i
                for i, (output, token) in enumerate(zip(outputs, tokens, strict=True))
                if token not in constraints.end and len(output) < constraints.limit
            ]
            last = choice.tokens[:, None]
            if not survivors:
                return call
            if len(survivors) < len(alive):
                indices = np.array(survivors)
                alive, outputs, last = alive[indices], [outputs[i] for i in survivors], last[indices]
                state = state.select(indices)
