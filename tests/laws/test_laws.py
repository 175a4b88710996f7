"""Every law on random cases: models of the three families, every decoder of the registry with random settings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdecode_lib import checks, registry
from fastdecode_lib.checkpoints import FAMILIES

CASES = 24
MANY = 60
"""For what the project promises above all: lossless, alone and in a batch."""
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("law", checks.MODEL_LAWS, ids=lambda law: law.__name__)
def test_model_law(law, family):
    @settings(max_examples=CASES // 2)
    @given(seeds)
    def holds(seed):
        law(checks.random_case(seed, family))

    holds()


@pytest.mark.parametrize("law", checks.GROUP_LAWS, ids=lambda law: law.__name__)
def test_model_law_of_groups(law):
    @settings(max_examples=CASES)
    @given(seeds)
    def holds(seed):
        law(checks.random_case(seed, fits="double_token"))

    holds()


@pytest.mark.parametrize("name", registry.DECODERS)
@pytest.mark.parametrize("law", checks.DECODER_LAWS, ids=lambda law: law.__name__)
def test_decoder_law(law, name):
    promised = law in (checks.lossless_equals_greedy, checks.batch_equals_single, checks.window_needs_no_more_passes)

    @settings(max_examples=MANY if promised and registry.DECODERS[name].lossless else CASES)
    @given(seeds)
    def holds(seed):
        case = checks.random_case(seed, fits=name)
        law(checks.random_decoder(name, case.random), case)

    holds()


@pytest.mark.parametrize("draft", checks.DRAFTS + checks.HEAD_DRAFTS)
def test_every_draft_is_lossless(draft):
    @settings(max_examples=MANY)
    @given(seeds)
    def holds(seed):
        window = checks.random_window(checks.random_case(seed).random, draft)
        checks.lossless_equals_greedy(window, checks.random_case(seed))

    holds()


def test_cases_are_varied():
    """Laws over cases that are all alike would prove little."""
    cases = [checks.random_case(seed) for seed in range(200)]
    outputs = [h for case in cases for h in checks.decode(checks.Greedy(), case)]
    assert {h.stop for h in outputs} == {"end", "length"}
    assert len({h.tokens for h in outputs}) > len(outputs) / 2
    assert max(len(h.tokens) for h in outputs) >= 15
    assert {case.model.architecture.family for case in cases} == set(FAMILIES)
    depend = [len({tuple(h.tokens) for h in checks.decode(checks.Greedy(), case)}) > 1 for case in cases]
    assert sum(depend) > 60, "outputs should depend on the source"


def test_every_decoder_has_random_settings():
    random = checks.random_case(0).random
    for name in registry.DECODERS:
        drawn = {repr(checks.random_decoder(name, random)) for _ in range(30)}
        assert len(drawn) > 3 or name == "greedy"
