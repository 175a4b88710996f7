"""For each law a broken implementation that it must catch: a law that cannot fail proves nothing."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_groups import beam_of, group_case, the_beam_is_algorithm_1

from fastdecode_lib import trace
from fastdecode_lib.core import Candidates, Hypothesis, Lane
from fastdecode_lib.decoding import double_token
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.jacobi import GaussSeidel, Jacobi
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.laws import cases as laws_cases
from fastdecode_lib.laws import decoders, models
from fastdecode_lib.models import compiled_transformer, transformer


def caught(law, *arguments, cases=60, numbers="float64", draw=laws_cases.random_case) -> bool:
    """Whether a law fails on at least one of some random cases."""
    for seed in range(cases):
        case = draw(seed, numbers=numbers)
        try:
            law(*(a(case) if callable(a) and not isinstance(a, type) else a for a in arguments), case)
        except laws_cases.LawBroken:
            return True
    return False


# ------------------------------------------------------------------------------------------------ broken decoders


@dataclass(frozen=True)
class StopsEarly(Jacobi):
    """Takes every block as solved after its first pass."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        found = []
        for row in range(len(source)):
            passes = super().iterate(model, projection, source.row(row), constraints, observe=observe)
            first = next(passes)
            yield first
            ends = np.flatnonzero(np.isin(first.tokens, constraints.end))
            length = ends[0] + 1 if len(ends) else len(first.tokens)
            found.append(Hypothesis(tuple(first.tokens[:length].tolist()), None, "end" if len(ends) else "length"))
        return tuple(found)


@dataclass(frozen=True)
class Wasteful(GaussSeidel):
    """Runs the network once more after each pass."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        class Twice:
            def __getattr__(self, name):
                return getattr(model, name)

            def step(self, state, tokens, visible=None):
                model.step(state, tokens, visible)
                state.truncate(state.lengths - tokens.shape[1])
                return model.step(state, tokens, visible)

        return (yield from super().iterate(Twice(), projection, source, constraints, observe=observe))


@dataclass(frozen=True)
class RoundTheCounter(Greedy):
    """Reaches for the network behind the counting proxy."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        inner = getattr(model, "inner", model)
        return (yield from super().iterate(inner, projection, source, constraints, observe=observe))


@dataclass(frozen=True)
class Unconstrained(Greedy):
    """Forgets every rule but the longest output."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        free = replace(constraints, banned=(), min_length=0, exact_length=None, forced_end=False)
        return (yield from super().iterate(model, projection, source, free, observe=observe))


@dataclass(frozen=True)
class LooksAtNeighbours(Greedy):
    """Ends every row where the first one ends."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        found = yield from super().iterate(model, projection, source, constraints, observe=observe)
        shortest = min(len(h.tokens) for h in found)
        return tuple(Hypothesis(h.tokens[:shortest], h.score, h.stop) for h in found)


@dataclass(frozen=True)
class Boastful(Jacobi):
    """Shows drafts as settled."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        passes = super().iterate(model, projection, source, constraints, observe=observe)
        while True:
            try:
                iteration = next(passes)
            except StopIteration as stop:
                return stop.value
            yield iteration._replace(status=("settled",) * len(iteration.status))


@dataclass(frozen=True)
class Shy(Greedy):
    """Ends sooner when it is observed."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        watched = replace(constraints, max_length=1, min_length=0, exact_length=None) if observe else constraints
        return (yield from super().iterate(model, projection, source, watched, observe=observe))


@dataclass(frozen=True)
class Lossy(Greedy):
    """Claims to be lossless and takes the second best token first."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        worse = replace(constraints, banned=(*constraints.banned, 3, 4, 5, 6))
        return (yield from super().iterate(model, projection, source, worse, observe=observe))


@dataclass(frozen=True)
class Timid(Window):
    """Looks at each draft in a pass of its own before it believes it."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        passes = super().iterate(model, projection, source, constraints, observe=observe)
        while True:
            try:
                iteration = next(passes)
            except StopIteration as stop:
                return stop.value
            yield iteration
            yield iteration._replace(call=iteration.call + 1)


@dataclass(frozen=True)
class Modest(Window):
    """Tells the slots it shows and not the positions it computed."""

    def iterate(self, model, projection, source, constraints, *, observe=False):
        passes = super().iterate(model, projection, source, constraints, observe=observe)
        while True:
            try:
                iteration = next(passes)
            except StopIteration as stop:
                return stop.value
            yield iteration._replace(positions=len(iteration.slots))


@dataclass(frozen=True)
class Trusting(Window):
    """Believes the first draft without looking at what the pass says of it."""

    def sentences(self, model, source, constraints):
        rows = super().sentences(model, source, constraints)
        for row in rows:
            take = row.take

            def believing(tokens, row=row, take=take):
                return take(np.array([row.tokens[1], *tokens[1:]]) if len(row.tokens) > 1 else tokens)

            row.take = believing
        return rows


def beside_another(case):
    """A window of two candidates, for `Modest`."""
    return Modest(4, "source|recycled/pad")


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (decoders.window_needs_no_more_passes, Timid(3, "pad")),
        (decoders.positions_are_counted, beside_another),
        (decoders.lossless_equals_greedy, Trusting(4, "recycled/pad")),
        (decoders.lossless_equals_greedy, Trusting(4, "model")),
        (decoders.lossless_equals_greedy, StopsEarly()),
        (decoders.lossless_equals_greedy, Lossy()),
        (decoders.batch_equals_single, LooksAtNeighbours()),
        (decoders.constraints_hold, Unconstrained()),
        (decoders.counter_sees_all, RoundTheCounter()),
        (decoders.settled_stays, Boastful()),
        (decoders.observing_changes_nothing, Shy()),
        (decoders.jacobi_passes_bounded, Wasteful()),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_decoder_law_catches(law, broken):
    assert caught(law, broken)


def test_trace_law_catches_a_lossy_reader(monkeypatch):
    def forgetful(data):
        return original(data)._replace(drafts=np.array(data["tokens"]))

    original = trace.iteration_from_dict
    monkeypatch.setattr(trace, "iteration_from_dict", forgetful)
    assert caught(decoders.trace_survives_json, Jacobi())


def test_beam_law_catches_another_search(monkeypatch):
    """A beam of one that takes the worst candidate."""
    original = Beam.iterate

    def iterate(self, model, projection, source, constraints, *, observe=False):
        class Reversed:
            def bind(self, source):
                return self

            def top_k(self, hidden, k, banned=None, normalise=False):
                found = projection.top_k(hidden, k, banned, normalise)
                return Candidates(
                    found.ids[:, ::-1], found.scores, found.num_active, found.log_normaliser, found.support
                )

        return original(self, model, Reversed(), source, constraints, observe=observe)

    monkeypatch.setattr(Beam, "iterate", iterate)
    assert caught(decoders.beam_one_equals_greedy)


# -------------------------------------------------------------------------------------------- broken algorithm 1


def length_penalty_without_the_end(monkeypatch):
    """Scores are divided by one token less than the hypothesis has."""
    original = double_token._Search._closed

    def closed(self, lane):
        found = original(self, lane)
        penalty = self.settings.length_penalty
        counted = max(1, len(found.tokens) - (self.end in found.tokens))
        return found._replace(score=found.score * len(found.tokens) ** penalty / counted**penalty)

    monkeypatch.setattr(double_token._Search, "_closed", closed)


def end_charged_once_more(monkeypatch):
    """Behind an end, the next one of a group costs its log-probability too, as the paper's text alone has it."""
    original = double_token.best_groups

    def best_groups(ids, chances, sums, end, size, forced):
        found = original(ids, chances, sums, end, size, forced)
        scores = found.scores.copy()
        for i, (lane, tokens) in enumerate(zip(found.lanes, found.tokens, strict=True)):
            again = np.flatnonzero((tokens[:-1] == end) & (forced[1:] < 0))[:1] + 1
            scores[i] += chances[lane, again][ids[lane, again] == end].sum()
        order = np.argsort(-scores, kind="stable")
        return double_token.Groups(found.lanes[order], found.tokens[order], scores[order])

    monkeypatch.setattr(double_token, "best_groups", best_groups)


def stops_at_one_finished_hypothesis(monkeypatch):
    """Takes the first hypothesis that ends, though the beam could do better."""
    original = double_token._Search.advance

    def advance(self, *arguments):
        original(self, *arguments)
        self.finished = self.finished or bool(self.done)

    monkeypatch.setattr(double_token._Search, "advance", advance)


def finalises_beyond_the_first_w(monkeypatch):
    """Every group that ends finishes a hypothesis, however far down it stands."""
    original, groups = double_token._Search.advance, double_token.best_groups
    made = []

    def best_groups(*arguments):
        made.append(groups(*arguments))
        return made[-1]

    def advance(self, *arguments):
        before, size = self.live, self.settings.size
        original(self, *arguments)
        found = made[-1]
        for lane, tokens, score in list(zip(found.lanes, found.tokens.tolist(), found.scores, strict=True))[size:]:
            if self.end in tokens:
                self.done.append(self._closed(Lane(int(lane), (*before[lane].tokens, *tokens), float(score))))
        self.done = sorted(self.done, key=lambda lane: -lane.score)[:size]
        self.finished = not self.live or len(self.done) >= size

    monkeypatch.setattr(double_token, "best_groups", best_groups)
    monkeypatch.setattr(double_token._Search, "advance", advance)


@pytest.mark.parametrize(
    "broken",
    [
        length_penalty_without_the_end,
        end_charged_once_more,
        stops_at_one_finished_hypothesis,
        finalises_beyond_the_first_w,
    ],
    ids=lambda broken: broken.__name__,
)
def test_algorithm_1_law_catches(broken, monkeypatch):
    assert not caught(the_beam_is_algorithm_1, beam_of, cases=10, draw=group_case)
    broken(monkeypatch)
    assert caught(the_beam_is_algorithm_1, beam_of, draw=group_case)


# -------------------------------------------------------------------------------------------------- broken models


def test_wide_pass_law_catches_sight_of_the_future(monkeypatch):
    original = transformer._place

    def place(model, state, tokens, visible):
        return replace(original(model, state, tokens, visible), mask=None)

    monkeypatch.setattr(transformer, "_place", place)
    assert caught(models.wide_pass_equals_steps)


def test_truncate_law_catches_a_state_that_remembers(monkeypatch):
    monkeypatch.setattr(transformer.TransformerState, "truncate", lambda self, lengths: None)
    assert caught(models.truncate_forgets)


def test_keep_law_catches_the_wrong_slots(monkeypatch):
    original = transformer.TransformerState.keep
    monkeypatch.setattr(
        transformer.TransformerState,
        "keep",
        lambda self, slots: original(self, np.tile(np.arange(slots.shape[1]), (len(slots), 1))),
    )
    assert caught(models.kept_candidate_equals_stepped)


def test_mask_law_catches_a_leak(monkeypatch):
    """A soft mask: what should not be seen is seen a little."""
    original = torch.nn.functional.scaled_dot_product_attention

    def leaky(q, k, v, attn_mask=None, scale=None):
        biases = attn_mask is not None and attn_mask.dtype != torch.bool  # T5's, -inf for what is not seen
        soft = attn_mask.clamp(min=-30.0) if biases else attn_mask
        soft = torch.where(attn_mask, 0.0, -30.0).to(q.dtype) if attn_mask is not None and not biases else soft
        return original(q, k, v, attn_mask=soft, scale=scale)

    monkeypatch.setattr(transformer.functional, "scaled_dot_product_attention", leaky)
    assert caught(models.masked_slot_changes_nothing)


def of_t5(seed, numbers="float64"):
    return laws_cases.random_case(seed, "t5", numbers)


@pytest.mark.parametrize(
    ("law", "wrong"),
    [
        (models.wide_pass_equals_steps, lambda queries, keys: (queries - queries[..., :1], keys)),
        (models.kept_candidate_equals_stepped, lambda queries, keys: (queries, torch.arange(keys.shape[-1]))),
    ],
    ids=["counted from the start of a pass", "candidates one behind the other"],
)
def test_laws_catch_distances_counted_wrong(law, wrong, monkeypatch):
    original = transformer.RelativePositions.mask
    monkeypatch.setattr(
        transformer.RelativePositions,
        "mask",
        lambda self, queries, keys, seen: original(self, *wrong(queries, keys), seen),
    )
    assert caught(law, cases=4, draw=of_t5)


@pytest.mark.parametrize("law", [models.wide_pass_equals_steps, models.ragged_equals_single])
def test_laws_catch_distances_counted_wrong_by_the_compiled_engine(law, monkeypatch):
    """The nearest token counts as one further in a pass of several slots."""
    original = compiled_transformer.CompiledTransformer.step

    def step(self, state, tokens, visible=None):
        right = self.decoder.biases
        self.decoder.biases = np.roll(right, tokens.shape[1] > 1, axis=1)
        try:
            return original(self, state, tokens, visible)
        finally:
            self.decoder.biases = right

    monkeypatch.setattr(compiled_transformer.CompiledTransformer, "step", step)
    assert caught(law, cases=4, numbers="float32", draw=of_t5)


def test_ragged_law_catches_rows_at_the_wrong_place(monkeypatch):
    original = transformer._place

    def place(model, state, tokens, visible):
        found = original(model, state, tokens, visible)
        return found if found.rows is None else replace(found, positions=found.positions * 0 + found.positions[:1])

    monkeypatch.setattr(transformer, "_place", place)
    assert caught(models.ragged_equals_single)


def test_select_law_catches_shared_caches(monkeypatch):
    original = transformer.TransformerState.select

    def select(self, rows):
        state = original(self, rows)
        state.keys = [k[torch.zeros(len(rows), dtype=torch.long)] for k in self.keys]
        return state

    monkeypatch.setattr(transformer.TransformerState, "select", select)
    assert caught(models.selected_rows_are_independent)


# ------------------------------------------------------------------------------------------------- broken kernels


@pytest.fixture
def one_scale_for_all_rows(monkeypatch):
    """Hidden vectors rounded to 8 bits by the largest entry of the whole pass, as dynamic quantisation per tensor does."""
    original = compiled_transformer.CompiledTransformer.step

    def step(self, state, tokens, visible=None):
        hidden = original(self, state, tokens, visible)
        scale = np.abs(hidden).max() / 127
        return np.rint(hidden / scale) * scale

    monkeypatch.setattr(compiled_transformer.CompiledTransformer, "step", step)


@pytest.fixture
def another_order_beside_others(monkeypatch):
    """Passes of several positions that differ from single ones by the last bit, as blocked sums do."""
    original = compiled_transformer.CompiledTransformer.step

    def step(self, state, tokens, visible=None):
        hidden = original(self, state, tokens, visible)
        return hidden if tokens.size == 1 else np.nextafter(hidden, np.float32(np.inf))

    monkeypatch.setattr(compiled_transformer.CompiledTransformer, "step", step)


@pytest.mark.parametrize("numbers", PRECISIONS)
@pytest.mark.parametrize(
    "law", [models.wide_pass_equals_steps, models.ragged_equals_single, models.kept_candidate_equals_stepped]
)
@pytest.mark.usefixtures("one_scale_for_all_rows")
def test_model_laws_catch_rows_that_depend_on_their_neighbours(law, numbers):
    assert caught(law, numbers=numbers)


@pytest.mark.parametrize("law", [decoders.lossless_equals_greedy, decoders.batch_equals_single])
@pytest.mark.usefixtures("one_scale_for_all_rows")
def test_decoder_laws_catch_rows_that_depend_on_their_neighbours(law):
    assert caught(law, GaussSeidel(block=4), numbers="int8")


@pytest.mark.parametrize("law", [models.wide_pass_equals_steps, models.ragged_equals_single])
@pytest.mark.usefixtures("another_order_beside_others")
def test_model_laws_catch_the_last_bit(law):
    assert caught(law, numbers="float32")


def test_keep_law_catches_the_wrong_slots_of_the_compiled_engine(monkeypatch):
    original = compiled_transformer.CompiledState.keep
    monkeypatch.setattr(
        compiled_transformer.CompiledState, "keep", lambda self, slots: original(self, slots - slots[:, :1])
    )
    assert caught(models.kept_candidate_equals_stepped, numbers="float32")


def test_select_law_catches_a_state_that_is_not_copied(monkeypatch):
    original = compiled_transformer.CompiledState.select
    monkeypatch.setattr(
        compiled_transformer.CompiledState, "select", lambda self, rows: original(self, np.zeros_like(rows))
    )
    assert caught(models.selected_rows_are_independent, numbers="float32")


def test_every_law_has_a_twin():
    """The names of the laws that the tests above break."""
    source = Path(__file__).read_text(encoding="utf-8")
    for law in (*models.MODEL_LAWS, *decoders.DECODER_LAWS):
        assert re.search(rf"\(\w+\.{law.__name__}[,)]", source), law.__name__
