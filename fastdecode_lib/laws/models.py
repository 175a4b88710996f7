"""The laws of models: a pass over several slots equals single steps, and caches forget, keep and select as asked."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastdecode_lib.laws.cases import Case, LawBroken
from fastdecode_lib.laws.decoders import beam_one_equals_greedy


def _fresh(case: Case) -> tuple[Any, np.ndarray, int]:
    """A started state, some random tokens (B, 7) to feed, and the number of rows; groups for tokens, where there are."""
    rows, group = len(case.source), case.model.tokens_per_step
    prefix = np.tile(np.array(case.constraints.prefix), (rows, 1))
    state = case.model.start(case.model.encode(case.source), prefix, 30)
    tokens = case.random.integers(0, case.model.outputs[0].vocabulary, size=(rows, 7 * group))
    return state, tokens, rows


def _array(hidden: Any) -> np.ndarray:
    return np.asarray(hidden.cpu() if hasattr(hidden, "cpu") else hidden)


def _check_close(what: str, case: Case, found: np.ndarray, expected: np.ndarray) -> None:
    error = float(np.abs(found - expected).max(initial=0.0))
    if not error <= case.tolerance:
        raise LawBroken(f"{what}, case {case.seed}: hidden vectors differ by {error:.2e}, more than {case.tolerance}.")


def wide_pass_equals_steps(case: Case) -> None:
    """One pass over w slots gives what w single steps give; w groups what w steps give."""
    state, tokens, _ = _fresh(case)
    wide = _array(case.model.step(state, tokens))
    state, _, _ = _fresh(case)
    group = case.model.tokens_per_step
    starts = range(0, tokens.shape[1], group)
    steps = np.concatenate([_array(case.model.step(state, tokens[:, i : i + group])) for i in starts], 1)
    _check_close("A wide pass differs from single steps", case, wide, steps)


def truncate_forgets(case: Case) -> None:
    """After truncation a step gives what it gives had the forgotten slots never been fed."""
    state, tokens, _ = _fresh(case)
    three = 3 * case.model.tokens_per_step
    case.model.step(state, tokens[:, :three])
    lengths = state.lengths
    case.model.step(state, tokens[:, three : 2 * three])
    state.truncate(lengths)
    if (state.lengths != lengths).any():
        raise LawBroken(f"truncate left lengths {state.lengths}, case {case.seed}, instead of {lengths}.")
    found = _array(case.model.step(state, tokens[:, 2 * three :]))
    state, _, _ = _fresh(case)
    case.model.step(state, tokens[:, :three])
    _check_close("A truncated state remembers", case, found, _array(case.model.step(state, tokens[:, 2 * three :])))


def kept_candidate_equals_stepped(case: Case) -> None:
    """A tree of two candidates fed at once: keeping one equals having fed it alone."""
    state, tokens, rows = _fresh(case)
    case.model.step(state, tokens[:, :1])
    visible = np.zeros((rows, 4, 4), dtype=bool)
    for first in (0, 2):
        visible[:, first, first] = visible[:, first + 1, first] = visible[:, first + 1, first + 1] = True
    tree = _array(case.model.step(state, tokens[:, 1:5], visible))
    state.keep(np.tile(np.array([2, 3]), (rows, 1)))
    after = _array(case.model.step(state, tokens[:, 6:]))
    state, _, _ = _fresh(case)
    case.model.step(state, tokens[:, :1])
    alone = _array(case.model.step(state, tokens[:, 3:5]))
    _check_close("A candidate beside another differs from the candidate alone", case, tree[:, 2:], alone)
    _check_close(
        "A kept candidate differs from a stepped one", case, after, _array(case.model.step(state, tokens[:, 6:]))
    )


def masked_slot_changes_nothing(case: Case) -> None:
    """A slot that others do not see changes no bit of them."""
    results = []
    for other in (0, 1):
        state, tokens, rows = _fresh(case)
        tokens[:, 1] = (tokens[:, 1] + other) % case.model.outputs[0].vocabulary
        visible = np.tile(np.tril(np.ones((4, 4), dtype=bool)), (rows, 1, 1))
        visible[:, 2:, 1] = False
        results.append(_array(case.model.step(state, tokens[:, :4], visible))[:, [0, 2, 3]])
    if not (results[0] == results[1]).all():
        raise LawBroken(f"A slot that is masked out changes others, case {case.seed}.")


def ragged_equals_single(case: Case) -> None:
    """Rows of different length in one state, fed with different numbers of slots, come out as they do alone."""
    state, tokens, rows = _fresh(case)
    group = case.model.tokens_per_step
    counts = case.random.integers(1, 4, size=(2, rows)) * group
    fed = [np.where(np.arange(4 * group) < counts[i][:, None], tokens[:, : 4 * group], -1) for i in (0, 1)]
    together = [_array(case.model.step(state, f)) for f in fed]
    for row in range(rows):
        single = replace(case, source=case.source.row(row))
        state, _, _ = _fresh(single)
        for part, hidden in zip(fed, together, strict=True):
            own = part[row : row + 1, part[row] >= 0]
            alone = _array(case.model.step(state, own))
            _check_close("A ragged row differs from a single one", case, hidden[row : row + 1, : own.shape[1]], alone)


def selected_rows_are_independent(case: Case) -> None:
    """Selected rows continue as copies, and stepping them leaves the original as it was."""
    state, tokens, rows = _fresh(case)
    two, three = 2 * case.model.tokens_per_step, 3 * case.model.tokens_per_step
    case.model.step(state, tokens[:, :two])
    order = case.random.integers(0, rows, size=rows + 2)
    chosen = state.select(order)
    found = _array(case.model.step(chosen, tokens[order, two:three]))
    original = _array(case.model.step(state, tokens[:, two:three]))
    _check_close("A selected row differs from its original", case, found, original[order])


GROUP_LAWS: tuple[Callable[[Case], None], ...] = (
    wide_pass_equals_steps,
    truncate_forgets,
    ragged_equals_single,
    selected_rows_are_independent,
)
"""Laws that also hold for models of several tokens a step."""
MODEL_LAWS: tuple[Callable[[Case], None], ...] = (
    *GROUP_LAWS,
    kept_candidate_equals_stepped,
    masked_slot_changes_nothing,
    beam_one_equals_greedy,
)
