"""Every law on random cases: models of the three families, every decoder of the registry with random settings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.transformer import FAMILIES
from fastdecode_lib.core import drain
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.laws import cases as laws_cases
from fastdecode_lib.laws import decoders, models

CASES = 24
MANY = 60
"""For what the project promises above all: lossless, alone and in a batch."""
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("law", models.MODEL_LAWS, ids=lambda law: law.__name__)
def test_model_law(law, family):
    @settings(max_examples=CASES // 2)
    @given(seeds)
    def holds(seed):
        law(laws_cases.random_case(seed, family))

    holds()


@pytest.mark.parametrize("law", models.GROUP_LAWS, ids=lambda law: law.__name__)
def test_model_law_of_groups(law):
    @settings(max_examples=CASES)
    @given(seeds)
    def holds(seed):
        law(laws_cases.random_case(seed, fits="double_token"))

    holds()


@pytest.mark.parametrize("name", registry.DECODERS)
@pytest.mark.parametrize("law", decoders.DECODER_LAWS, ids=lambda law: law.__name__)
def test_decoder_law(law, name):
    promised = law in (
        decoders.lossless_equals_greedy,
        decoders.batch_equals_single,
        decoders.window_needs_no_more_passes,
    )

    @settings(max_examples=MANY if promised and registry.DECODERS[name].lossless else CASES)
    @given(seeds)
    def holds(seed):
        case = laws_cases.random_case(seed, fits=name)
        law(laws_cases.random_decoder(name, case.random), case)

    holds()


@pytest.mark.parametrize("numbers", laws_cases.NUMBERS)
@pytest.mark.parametrize("name", [name for name, decoder in registry.DECODERS.items() if decoder.lossless])
def test_equal_scores_are_decided_alike_but_for_the_rounding_of_torch(name, numbers):
    @settings(max_examples=CASES)
    @given(seeds)
    def holds(seed):
        case = laws_cases.random_case(seed, numbers=numbers, fits=name, ties=True)
        decoder = laws_cases.random_decoder(name, case.random)
        decoders.lossless_equals_greedy(decoder, case)
        decoders.batch_equals_single(decoder, case)

    holds()


def test_ties_are_drawn_and_nothing_else_is_put_down_to_rounding():
    margins = []
    for seed in range(60):
        case = laws_cases.random_case(seed, ties=True)
        iterations, (output, *_) = decoders.run_through(Greedy(), case, observe=True)
        margins += [iteration.margins[0] for iteration in iterations]
        other = (*output.tokens[:-1], output.tokens[-1] + 1)
        last = [i for i in iterations if i.row == 0][-1].margins[0]
        assert decoders._rounding_decides(case, 0, output.tokens, other) == (last <= decoders.ROUNDING)
    assert 0.2 < np.mean(np.array(margins) <= decoders.ROUNDING) < 0.98


@pytest.mark.parametrize("name", registry.DECODERS)
def test_a_batch_without_sentences_is_refused(name):
    case = laws_cases.random_case(1, fits=name)
    decoder = laws_cases.random_decoder(name, case.random)
    nothing = case.source.rows(np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match="A batch without sentences cannot be decoded: got no rows. Leave it out"):
        drain(decoder.iterate(case.model, case.projection, nothing, case.constraints))


@pytest.mark.parametrize("draft", laws_cases.DRAFTS + laws_cases.HEAD_DRAFTS + laws_cases.MODEL_DRAFTS)
def test_every_draft_is_lossless(draft):
    @settings(max_examples=MANY)
    @given(seeds)
    def holds(seed):
        window = laws_cases.random_window(laws_cases.random_case(seed).random, draft)
        decoders.lossless_equals_greedy(window, laws_cases.random_case(seed))

    holds()


@pytest.mark.parametrize("draft", laws_cases.MODEL_DRAFTS)
@pytest.mark.parametrize("law", decoders.DECODER_LAWS, ids=lambda law: law.__name__)
def test_decoder_law_where_another_model_drafts(law, draft):
    """The lossless mode of Imamura and Sumita's models: one puts out a draft of the whole sentence, and a window verifies it."""

    @settings(max_examples=CASES // 2)
    @given(seeds)
    def holds(seed):
        case = laws_cases.random_case(seed)
        law(laws_cases.random_window(case.random, draft), case)

    holds()


def test_what_another_model_drafts_is_half_right():
    shares = []
    for seed in range(100):
        case = laws_cases.random_case(seed)
        for greedy, draft in zip(
            laws_cases.decode(Greedy(), case), laws_cases.half_right(case, case.source), strict=True
        ):
            pairs = zip(greedy.tokens, draft, strict=False)
            shares.append(np.mean([a == b for a, b in pairs]) if draft else 0.0)
    assert 0.3 < np.mean(shares) < 0.8 and min(shares) == 0 and shares.count(1) > 10


def test_cases_are_varied():
    """Laws over cases that are all alike would prove little."""
    cases = [laws_cases.random_case(seed) for seed in range(200)]
    outputs = [h for case in cases for h in laws_cases.decode(Greedy(), case)]
    assert {h.stop for h in outputs} == {"end", "length"}
    assert len({h.tokens for h in outputs}) > len(outputs) / 2
    assert max(len(h.tokens) for h in outputs) >= 15
    assert {case.model.architecture.family for case in cases} == set(FAMILIES)
    depend = [len({tuple(h.tokens) for h in laws_cases.decode(Greedy(), case)}) > 1 for case in cases]
    assert sum(depend) > 60, "outputs should depend on the source"


def test_every_decoder_has_random_settings():
    random = laws_cases.random_case(0).random
    for name in registry.DECODERS:
        drawn = {repr(laws_cases.random_decoder(name, random)) for _ in range(30)}
        assert len(drawn) > 3 or name == "greedy"
