"""Several tokens a step, and masked targets: folding, algorithm 1 against a plain reading of it, and its broken twin."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdecode_lib import registry
from fastdecode_lib.core import Candidates, Constraints, Source, drain
from fastdecode_lib.decoding.double_token import DoubleToken, best_groups
from fastdecode_lib.decoding.folding import folded, place, unfolded
from fastdecode_lib.decoding.mask_predict import MaskPredict
from fastdecode_lib.laws import cases, decoders
from fastdecode_lib.models.compiled_transformer import CompiledTransformer
from fastdecode_lib.models.transformer import Transformer

END = 0
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("both_ends", [False, True])
@pytest.mark.parametrize("group", [1, 2, 3, 4])
def test_unfolding_undoes_folding_for_every_length(group: int, both_ends: bool) -> None:
    for length in range(40):
        tokens = list(range(1, length + 1))
        slots = folded(tokens, END, group, both_ends)
        assert len(slots) == group * (length // group + 1), "the fewest steps that leave room for an end"
        assert slots[length:] == [END] * (len(slots) - length), "ends behind the tokens, and nowhere else"
        assert unfolded(slots[:length], both_ends) == tokens
        full = [*tokens, END]
        if both_ends:
            assert all(full[place(i, True)] == token for i, token in enumerate(slots[:length]))


def test_folding_is_the_papers() -> None:
    words = ["We", "will", "go", "to", "Tokyo", "."]
    assert folded(words, "EOD", 2, True) == ["We", ".", "will", "Tokyo", "go", "to", "EOD", "EOD"]
    assert folded(words[:5], "EOD", 2, True) == ["We", "Tokyo", "will", "to", "go", "EOD"], "the middle is on the left"
    assert folded([], END, 2, True) == [END, END]
    assert folded(words[:3], "EOD", 2, False) == ["We", "will", "go", "EOD"]
    with pytest.raises(ValueError, match="at least one token: got 0"):
        folded(words, "EOD", 0, True)


# ------------------------------------------------------------------------------------------------- algorithm 1


def plainly(
    model: Transformer, source: Source, rules: Constraints, size: int, penalty: float
) -> tuple[tuple[int, ...], float]:
    """Algorithm 1 read off the page for one sentence: everything computed anew at each step, nothing kept but hypotheses.

    Returns the best hypothesis and its score, the sum of log-probabilities over the length to the power of `penalty`.
    """
    group, output = model.tokens_per_step, model.outputs[0]
    beam: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, list[int]]] = []
    step = 0
    while len(done) < size and beam:
        candidates: list[tuple[float, int, list[int]]] = [(score, i, []) for i, (score, _) in enumerate(beam)]
        chances = []
        for _, slots in beam:
            state = model.start(model.encode(source), np.array([rules.prefix]), None)
            for first in range(0, len(slots), group):
                fed = [*rules.prefix, *slots][first : first + group]
                model.step(state, np.array([fed]))
            hidden = model.step(state, np.array([[*rules.prefix, *slots][-group:]]))[0]
            table = torch.log_softmax(hidden @ output.weight.T + output.bias, -1)
            for place_in_group in range(group):
                slot = step * group + place_in_group
                least = rules.exact_length - 1 if rules.exact_length else rules.min_length
                for banned in (*rules.banned, *(rules.end if slot < least else [])):
                    table[place_in_group, banned] = -np.inf
            table[:, END] = table[:, list(rules.end)].max(1).values  # of all ends the best stands for them
            table[:, list(rules.end[1:])] = -np.inf
            chances.append(table.numpy())
        for i in range(group):
            slot, grown = step * group + i, []
            for score, lane, tokens in candidates:
                last = slot >= rules.limit - (model.both_ends or rules.forced_end or rules.exact_length is not None)
                if END in tokens or last:
                    grown.append((score, lane, [*tokens, END]))
                else:
                    grown += [
                        (score + chances[lane][i, token], lane, [*tokens, token])
                        for token in range(output.vocabulary)
                        if np.isfinite(chances[lane][i, token])
                    ]
            candidates = sorted(grown, key=lambda c: -c[0])[: (i + 2) * size]
        step += 1
        over = [END in tokens or step * group >= rules.limit for _, _, tokens in candidates]
        for (score, lane, tokens), ended in list(zip(candidates, over, strict=True))[:size]:
            if ended:
                slots = [*beam[lane][1], *tokens]
                slots = slots[: slots.index(END) + 1] if END in slots else slots
                slots = slots[: rules.limit]
                done.append((score / len(slots) ** penalty, slots))
        beam = [
            (score, [*beam[lane][1], *tokens])
            for (score, lane, tokens), ended in zip(candidates, over, strict=True)
            if not ended
        ][:size]
    score, best = sorted(done, key=lambda d: -d[0])[0]
    inside = [token for token in best if token != END]
    return (*unfolded(inside, model.both_ends), *([END] if END in best else [])), score


def one_end(case: cases.Case) -> Constraints:
    """A case's rules with a single end, and outputs short enough to search plainly."""
    rules = case.constraints
    most = min(rules.max_length, 9)
    exact = rules.exact_length if rules.exact_length and rules.exact_length <= most else None
    return replace(rules, end=(END,), max_length=most, min_length=min(rules.min_length, most - 1), exact_length=exact)


def several_ends(case: cases.Case) -> Constraints:
    """The same with as many ends as the case has."""
    return replace(one_end(case), end=case.constraints.end)


def group_case(seed: int, numbers: str = "float64") -> cases.Case:
    """A case for several tokens a step; in two of three, ends are likely."""
    case = cases.random_case(seed, numbers=numbers, fits="double_token")
    case.model.outputs[0].bias[..., END] += 2.0 * (seed % 3)
    return case


def beam_of(case: cases.Case) -> DoubleToken:
    """A beam with random settings."""
    return DoubleToken(int(case.random.integers(2, 5)), length_penalty=float(case.random.choice([0.0, 0.8, 1.5])))


def the_beam_is_algorithm_1(decoder: DoubleToken, case: cases.Case) -> None:
    """Every row has the tokens and the score of the plain reading."""
    rules = several_ends(case)
    for row in range(len(case.source)):
        source = case.source.row(row)
        (found,) = drain(decoder.iterate(case.model, case.projection, source, rules))
        tokens, score = plainly(case.model, source, rules, decoder.size, decoder.length_penalty)
        assert found.score is not None
        if found.tokens != tokens or not np.isclose(found.score, score):
            raise cases.LawBroken(f"{decoder}, case {case.seed}, row {row}: {found} against {tokens} with {score}.")


@settings(max_examples=50)
@given(seeds)
def test_the_beam_is_algorithm_1(seed: int) -> None:
    case = group_case(seed)
    the_beam_is_algorithm_1(beam_of(case), case)


@settings(max_examples=60)
@given(seeds)
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    """The best token of each slot, everything computed anew at each step; behind an end nothing but ends."""
    case = cases.random_case(seed, fits="double_token")
    rules, model, output = one_end(case), case.model, case.model.outputs[0]
    for row in range(len(case.source)):
        source, slots = case.source.row(row), list[int]()
        while END not in slots and len(slots) < rules.limit:
            state = model.start(model.encode(source), np.array([rules.prefix]), None)
            for first in range(0, len(slots) + model.tokens_per_step, model.tokens_per_step):
                hidden = model.step(state, np.array([[*rules.prefix, *slots][first : first + model.tokens_per_step]]))[
                    0
                ]
            table = hidden @ output.weight.T + output.bias
            for i in range(model.tokens_per_step):
                slot, scores = len(slots), table[i].clone()
                scores[
                    [*rules.banned, *([END] if slot < (rules.exact_length or rules.min_length + 1) - 1 else [])]
                ] = -np.inf
                forced = slot == rules.limit - 1 and (
                    model.both_ends or rules.forced_end or rules.exact_length is not None
                )
                slots.append(END if forced or END in slots or slot >= rules.limit else int(scores.argmax()))
        (found,) = drain(DoubleToken().iterate(model, case.projection, source, rules))
        ended = END in slots[: rules.limit]
        inside = slots[: slots.index(END)] if ended else slots[: rules.limit]
        assert found.tokens == (*unfolded(inside, model.both_ends), *([END] if ended else [])), (seed, row)


def test_algorithm_1_at_a_width_of_one_is_greedy_but_for_ends() -> None:
    """Of two tokens a step: where no end is among the two best on the left, its first pair is greedy's."""
    agreed = 0
    for seed in range(300):
        ids, chances, sums, _, group = random_group(seed)
        ids, chances, sums = ids[:1], chances[:1], sums[:1]
        best = best_groups(ids, chances, sums, END, 1, np.full(group, -1)).tokens[0]
        if group == 2 and END not in ids[0, 0, :2]:
            assert (best == ids[0, :, 0]).all()
            agreed += 1
    assert agreed > 30


def random_group(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    random = np.random.default_rng(seed)
    size, group, vocabulary = int(random.integers(1, 5)), int(random.integers(2, 5)), 30
    lanes = int(random.integers(1, size + 1))
    logits = random.normal(size=(lanes, group, vocabulary)) * 2
    logits[..., END] += random.choice([0.0, 3.0, 6.0])  # an end that is likely everywhere
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    ids = np.argsort(-chances, axis=-1, kind="stable")
    return ids, np.take_along_axis(chances, ids, -1), random.normal(size=lanes), size, group


def unfinished(seed: int, end: int) -> tuple[int, int]:
    """How many groups go on, of W that must."""
    ids, chances, sums, size, group = random_group(seed)
    found = best_groups(ids, chances, sums, end, size, np.full(group, -1))
    assert len(found.tokens) == (group + 1) * size and (np.diff(found.scores) <= 0).all()
    return int((found.tokens != END).all(1).sum()), size


def test_a_beams_worth_of_groups_always_goes_on() -> None:
    for seed in range(500):
        number, size = unfinished(seed, END)
        assert number >= size, seed


def test_without_the_forced_end_too_few_may_go_on() -> None:
    """The broken twin: an end like any other token, as the paper's text alone has it."""
    assert any(number < size for number, size in (unfinished(seed, -5) for seed in range(500)))


def test_groups_are_the_best_where_nothing_is_cut() -> None:
    """With a beam as wide as the vocabulary squared, every pair is seen and in order."""
    for seed in range(50):
        random = np.random.default_rng(seed)
        vocabulary = 5
        logits = random.normal(size=(1, 2, vocabulary))
        chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        ids = np.argsort(-chances, axis=-1, kind="stable")
        found = best_groups(ids, np.take_along_axis(chances, ids, -1), np.zeros(1), END, vocabulary**2, np.full(2, -1))
        every = {(a, b): chances[0, 0, a] + chances[0, 1, b] for a, b in itertools.product(range(1, 5), range(5))}
        every[END, END] = chances[0, 0, END]
        assert [tuple(t) for t in found.tokens.tolist()] == sorted(every, key=lambda pair: -every[pair])


def sorted_groups(ids, chances, sums, end, size, forced):
    """Algorithm 1's groups by sorting all continuations of every group at every slot."""
    groups = [(lane, (), score) for lane, score in enumerate(sums.tolist())]
    for slot, fixed in enumerate(forced.tolist()):
        grown = []
        for lane, tokens, score in groups:
            if end in tokens or fixed >= 0:
                options = [(end if end in tokens else fixed, 0.0)]
            else:
                options = list(zip(ids[lane, slot].tolist(), chances[lane, slot].tolist(), strict=True))
            grown += [(lane, (*tokens, token), score + chance) for token, chance in options if token >= 0]
        grown = [group for group in grown if np.isfinite(group[2])]
        grown = grown or [(lane, (*tokens, end), score) for lane, tokens, score in groups if np.isfinite(score)]
        groups = sorted(grown, key=lambda group: -group[2])[: (slot + 2) * size]
    return groups


@pytest.mark.parametrize("block", range(5))
def test_groups_are_those_of_a_sort(block: int) -> None:
    """With equal scores, candidates that are not there, lanes that are lost, forced tokens and slots without any."""
    for seed in range(block * 200, block * 200 + 200):
        random = np.random.default_rng(seed)
        ids, chances, sums, size, group = random_group(seed)
        kept = int(random.integers(1, ids.shape[2] + 1))
        ids, chances = ids[..., :kept].copy(), chances[..., :kept].copy()
        if seed % 2:
            chances, sums = np.round(chances), np.round(sums)
        missing = random.random(ids.shape) < random.choice([0.0, 0.3, 1.0], p=[0.5, 0.4, 0.1])
        ids[missing] = -1
        chances[missing | (random.random(ids.shape) < 0.05)] = random.choice([-np.inf, np.nan])
        sums[random.random(len(sums)) < 0.1] = -np.inf
        forced = np.where(random.random(group) < 0.2, random.integers(0, 30, group), -1)
        found = best_groups(ids, chances, sums, END, size, forced)
        expected = sorted_groups(ids, chances, sums, END, size, forced)
        assert found.lanes.tolist() == [lane for lane, _, _ in expected], seed
        assert [tuple(tokens) for tokens in found.tokens.tolist()] == [tokens for _, tokens, _ in expected], seed
        assert found.scores.tolist() == [score for _, _, score in expected], seed


# ---------------------------------------------------------------------------------------------------- mask-predict


def test_mask_predict_is_its_description() -> None:
    """One sentence, one length at a time, step by step, in float64."""
    for seed in range(40):
        case = cases.random_case(seed, fits="mask_predict")
        rules = Constraints((2,), (END,), 12, 1, (1,))
        decoder = MaskPredict(iterations=1 + seed % 5, lengths=1 + seed % 3)
        source = case.source.row(0)
        (found,) = drain(decoder.iterate(case.model, case.projection, source, rules))
        encoded = case.model.encode(source)
        scores = case.model.length_log_probs(encoded)[0]
        assert np.isclose(np.exp(scores).sum(), 1)
        best: tuple[float, list[int]] = (-np.inf, [])
        for length in sorted(range(1, 12), key=lambda n: -scores[n - 1])[: decoder.lengths]:
            tokens, chances, masked = [1] * length, np.zeros(length), set(range(length))
            for call in range(decoder.iterations):
                fed = [1 if i in masked else token for i, token in enumerate(tokens)]
                hidden = case.model.refine(encoded, np.array([fed]), np.zeros(1, dtype=np.int64))[0]
                output = case.model.outputs[0]
                table = torch.log_softmax(hidden @ output.weight.T + output.bias, -1).numpy()
                table[:, [END, 1]] = -np.inf
                for i in masked:
                    tokens[i], chances[i] = int(table[i].argmax()), table[i].max()
                count = max(1, length * (decoder.iterations - call - 1) // decoder.iterations)
                masked = set(sorted(range(length), key=lambda i: chances[i])[:count])
            best = max(best, (chances.mean(), tokens), key=lambda b: b[0])
        assert found.tokens == (*best[1], END), seed
        assert np.isclose(found.score, best[0])


class Blind:
    """A projection that finds no token in every other row it is asked for, as a table of hashes may."""

    def __init__(self, inner: Any):
        self.inner, self.name, self.memory_bytes = inner, "blind", 0

    def bind(self, source: Source | None) -> "Blind":
        return self

    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        found = self.inner.bind(None).top_k(hidden, k, banned, normalise=normalise)
        found.ids[1::2], found.scores[1::2] = -1, -np.inf
        if found.log_normaliser is not None:
            found.log_normaliser[1::2] = -np.inf
        return found


@pytest.mark.parametrize("size", [1, 3])
def test_a_group_of_which_a_slot_finds_nothing_ends_there(size: int) -> None:
    """Greedy and in a beam: what was found before it in the group stays, and is not had for nothing."""
    for seed in range(20):
        case = cases.random_case(seed, fits="double_token")
        rules = Constraints(case.constraints.prefix, (END,), 12, 1, (1, END))
        blind: Any = Blind(case.projection)
        (found,) = drain(DoubleToken(size).iterate(case.model, blind, case.source.row(0), rules))
        (plain,) = drain(DoubleToken(size).iterate(case.model, case.projection, case.source.row(0), rules))
        assert found.tokens[-1] == END and 2 <= len(found.tokens) <= len(plain.tokens), (seed, found)
        if size == 1:
            assert found.tokens[0] == plain.tokens[0] and len(found.tokens) == 2
        else:
            assert found.score is not None and found.score < 0


def test_a_slot_at_which_nothing_is_found_stays_masked() -> None:
    for seed in range(20):
        case = cases.random_case(seed, fits="mask_predict")
        rules = Constraints((2,), (END,), 12, 1, (1,))
        for found in drain(MaskPredict(3, 2).iterate(case.model, Blind(case.projection), case.source, rules)):  # type: ignore[arg-type]
            assert min(found.tokens) >= 0 and found.tokens[-1] == END
            assert found.score == -np.inf or 1 not in found.tokens, "1 is the mask"


@pytest.mark.parametrize("numbers", ["float64", "float32"])
def test_a_masked_slot_sees_every_other(numbers: str) -> None:
    case = cases.random_case(3, fits="mask_predict", numbers=numbers)
    encoded = case.model.encode(case.source.row(0))
    rows = np.zeros(1, dtype=np.int64)
    plain, changed = (np.asarray(case.model.refine(encoded, np.array([[4, 5, last]]), rows)) for last in (6, 7))
    assert (plain != changed).any(-1).all()


# ------------------------------------------------------------------------------------------------------ bad input


@settings(max_examples=60)
@given(seeds)
def test_no_slot_of_a_trace_lies_outside_the_output(seed: int) -> None:
    """Also where a beam's best open hypothesis is longer than the output: ends are likely here."""
    case = cases.random_case(seed, fits="double_token")
    case.model.outputs[0].bias[..., END] += 2.0
    decoder = DoubleToken(int(case.random.integers(1, 5)))
    iterations, outputs = decoders.run_through(decoder, case)
    for iteration in iterations:
        length = len(outputs[iteration.row].tokens)
        columns = [slot if slot >= 0 else slot + length for slot in iteration.slots.tolist()]
        assert columns == sorted(set(columns)) and all(0 <= column < length for column in columns), (seed, columns)


def test_an_end_that_is_forced_is_shown_as_certain() -> None:
    """Also where the rules do not force it, but the model grows from both ends."""
    shown = 0
    for seed in range(60):
        case = cases.random_case(seed, fits="double_token")
        rules = replace(one_end(case), forced_end=False, exact_length=None)
        iterations, outputs = decoders.run_through(DoubleToken(), replace(case, constraints=rules), observe=True)
        for iteration in iterations:
            assert iteration.probabilities is not None and iteration.margins is not None
            full = len(outputs[iteration.row].tokens) == rules.limit
            for slot, probability, margin in zip(
                iteration.slots, iteration.probabilities, iteration.margins, strict=True
            ):
                forced = case.model.both_ends and full and slot == -1
                assert (probability == 1 and margin == np.inf) == forced, (seed, slot)
                shown += forced
    assert shown > 10


@pytest.mark.parametrize("name", registry.DECODERS)
@pytest.mark.parametrize("kind", ["greedy", "double_token", "mask_predict"])
def test_a_decoder_that_does_not_fit_is_refused_before_any_work(name: str, kind: str) -> None:
    case = cases.random_case(1, fits=kind)

    class NoWork:
        def __getattr__(self, attribute: str) -> object:
            if attribute in ("encode", "start", "step", "refine"):
                raise AssertionError(f"{attribute} was called")
            return getattr(case.model, attribute)

    decoder = registry.decoder(name)
    if name in registry.fitting(case.model):
        assert drain(decoder.iterate(case.model, case.projection, case.source, case.constraints))
        return
    wanted = {"double_token": "bidirectional", "mask_predict": r"mask-predict \(fastdecode train mask-predict\)"}.get(
        name, "tatoeba-small"
    )
    said = rf"{name} needs a .*, got a .*\. Use .* this model, or a model that fits, such as {wanted}\."
    with pytest.raises(ValueError, match=said):
        drain(decoder.iterate(NoWork(), case.projection, case.source, case.constraints))


def test_another_number_of_tokens_a_step_is_refused() -> None:
    case = cases.random_case(1, fits="double_token")
    wrong = DoubleToken(tokens=case.model.tokens_per_step + 1)
    with pytest.raises(
        ValueError, match=f"trained for {case.model.tokens_per_step} tokens a step: got tokens={wrong.tokens}"
    ):
        drain(wrong.iterate(case.model, case.projection, case.source, case.constraints))


def test_lengths_beyond_what_is_allowed_are_refused() -> None:
    case = cases.random_case(1, fits="mask_predict")
    rules = Constraints((2,), (END,), 60, 1, exact_length=60)
    with pytest.raises(
        ValueError,
        match="a length from 1 to 40 tokens beside the end: got max_length=60, min_length=0, exact_length=60",
    ):
        drain(MaskPredict().iterate(case.model, case.projection, case.source, rules))
    with pytest.raises(ValueError, match="got max_length=1, min_length=0, exact_length=None"):
        drain(MaskPredict().iterate(case.model, case.projection, case.source, Constraints((2,), (END,), 1)))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("double_token:size=0", "size >= 1, got 0"),
        ("double_token:tokens=1", "tokens >= 2, got 1"),
        ("double_token:length_penalty=1000", "from -100 to 100, got 1000"),
        ("mask_predict:iterations=0", "iterations >= 1, got 0"),
        ("mask_predict:lengths=0", "lengths >= 1, got 0"),
    ],
)
def test_wrong_options_are_refused(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        registry.decoder(spec)


@pytest.mark.parametrize("compiled", [False, True])
def test_part_of_a_group_is_refused(compiled: bool) -> None:
    shape = cases.tiny_architecture("fastdecode_transformer", tokens_per_step=2, order="both_ends")
    tensors = cases.random_tensors(shape, 1)
    model = (
        CompiledTransformer(shape, {name: t.numpy() for name, t in tensors.items()})
        if compiled
        else Transformer(shape, tensors)
    )
    memory = model.encode(Source(np.array([[4, 5]]), np.array([2])))
    state = model.start(memory, np.array([[2, 2]]))
    with pytest.raises(ValueError, match="is fed whole groups: got \\[1\\] tokens behind \\[0\\]"):
        model.step(state, np.array([[2]]))
