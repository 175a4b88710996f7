"""The laws of models: a pass over several slots equals single steps, and caches truncate, keep and select correctly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastdecode_lib.laws.cases import Case, LawBroken
from fastdecode_lib.laws.decoders import beam_one_equals_greedy


def _fresh(case: Case) -> tuple[Any, np.ndarray, int]:
    """A new state, random tokens (B, 7) to feed, and the number of rows; 7 groups for models of several tokens a step."""
    rows, group = len(case.source), case.model.tokens_per_step
    prefix = np.tile(np.array(case.constraints.prefix), (rows, 1))
    state = case.model.start(case.model.encode(case.source), prefix, 30)
    tokens = case.random.integers(0, case.model.outputs[0].vocabulary, size=(rows, 7 * group))
    return state, tokens, rows


def _step(case: Case, state: Any, tokens: np.ndarray, *visible: np.ndarray) -> np.ndarray:
    """Hidden vectors of one pass, on the host."""
    hidden: Any = case.model.step(state, tokens, *visible)
    return np.asarray(hidden.cpu() if hasattr(hidden, "cpu") else hidden)


def _check_close(claim: str, case: Case, actual: np.ndarray, expected: np.ndarray) -> None:
    error = float(np.abs(actual - expected).max(initial=0.0))
    if not error <= case.tolerance:
        raise LawBroken(f"{claim}, case {case.seed}: hidden vectors differ by {error:.2e}, more than {case.tolerance}.")


def wide_pass_equals_steps(case: Case) -> None:
    """One pass over w slots or groups gives the same as w single steps."""
    state, tokens, _ = _fresh(case)
    wide = _step(case, state, tokens)
    state, _, _ = _fresh(case)
    group = case.model.tokens_per_step
    starts = range(0, tokens.shape[1], group)
    steps = np.concatenate([_step(case, state, tokens[:, i : i + group]) for i in starts], 1)
    _check_close("A wide pass differs from single steps", case, wide, steps)


def truncate_forgets(case: Case) -> None:
    """After truncation, a step gives the same as if the removed slots had never been fed."""
    state, tokens, _ = _fresh(case)
    three = 3 * case.model.tokens_per_step
    case.model.step(state, tokens[:, :three])
    lengths = state.lengths
    case.model.step(state, tokens[:, three : 2 * three])
    state.truncate(lengths)
    if (state.lengths != lengths).any():
        raise LawBroken(f"truncate left lengths {state.lengths}, case {case.seed}, instead of {lengths}.")
    truncated = _step(case, state, tokens[:, 2 * three :])
    state, _, _ = _fresh(case)
    case.model.step(state, tokens[:, :three])
    _check_close("A truncated state remembers", case, truncated, _step(case, state, tokens[:, 2 * three :]))


def kept_candidate_equals_stepped(case: Case) -> None:
    """A tree of two candidates fed in one pass: keeping one gives the same as feeding it alone."""
    state, tokens, rows = _fresh(case)
    case.model.step(state, tokens[:, :1])
    visible = np.zeros((rows, 4, 4), dtype=bool)
    for first in (0, 2):
        visible[:, first, first] = visible[:, first + 1, first] = visible[:, first + 1, first + 1] = True
    tree = _step(case, state, tokens[:, 1:5], visible)
    state.keep(np.tile(np.array([2, 3]), (rows, 1)))
    kept = _step(case, state, tokens[:, 6:])
    state, _, _ = _fresh(case)
    case.model.step(state, tokens[:, :1])
    single = _step(case, state, tokens[:, 3:5])
    _check_close("A candidate beside another differs from the candidate alone", case, tree[:, 2:], single)
    _check_close("A kept candidate differs from a stepped one", case, kept, _step(case, state, tokens[:, 6:]))


def masked_slot_changes_nothing(case: Case) -> None:
    """A slot that is invisible to others changes no bit of them."""
    results = []
    for change in (0, 1):
        state, tokens, rows = _fresh(case)
        tokens[:, 1] = (tokens[:, 1] + change) % case.model.outputs[0].vocabulary
        visible = np.tile(np.tril(np.ones((4, 4), dtype=bool)), (rows, 1, 1))
        visible[:, 2:, 1] = False
        results.append(_step(case, state, tokens[:, :4], visible)[:, [0, 2, 3]])
    if not (results[0] == results[1]).all():
        raise LawBroken(f"A slot that is masked out changes others, case {case.seed}.")


def ragged_equals_single(case: Case) -> None:
    """Rows of different length in one state, fed with different numbers of slots, give the same as alone."""
    state, tokens, rows = _fresh(case)
    group = case.model.tokens_per_step
    counts = case.random.integers(1, 4, size=(2, rows)) * group
    passes = [np.where(np.arange(4 * group) < counts[i][:, None], tokens[:, : 4 * group], -1) for i in (0, 1)]
    batched = [_step(case, state, batch_tokens) for batch_tokens in passes]
    for row in range(rows):
        single = replace(case, source=case.source.row(row))
        state, _, _ = _fresh(single)
        for batch_tokens, hidden in zip(passes, batched, strict=True):
            own = batch_tokens[row : row + 1, batch_tokens[row] >= 0]
            alone = _step(case, state, own)
            _check_close("A ragged row differs from a single one", case, hidden[row : row + 1, : own.shape[1]], alone)


def selected_rows_are_independent(case: Case) -> None:
    """Selected rows continue as copies, and stepping them does not change the original."""
    state, tokens, rows = _fresh(case)
    two, three = 2 * case.model.tokens_per_step, 3 * case.model.tokens_per_step
    case.model.step(state, tokens[:, :two])
    order = case.random.integers(0, rows, size=rows + 2)
    selected = state.select(order)
    continued = _step(case, selected, tokens[order, two:three])
    original = _step(case, state, tokens[:, two:three])
    _check_close("A selected row differs from its original", case, continued, original[order])


GROUP_LAWS: tuple[Callable[[Case], None], ...] = (
    wide_pass_equals_steps,
    truncate_forgets,
    ragged_equals_single,
    selected_rows_are_independent,
)
"""Laws that also hold for models with several tokens a step."""
MODEL_LAWS: tuple[Callable[[Case], None], ...] = (
    *GROUP_LAWS,
    kept_candidate_equals_stepped,
    masked_slot_changes_nothing,
    beam_one_equals_greedy,
)
