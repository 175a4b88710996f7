"""Decoding that drafts what pays: what it learns, what it chooses, and that its output is greedy decoding's."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fastdecode_lib import registry
from fastdecode_lib.core import drain
from fastdecode_lib.decoding.auto import (
    BURST,
    ENOUGH,
    LONGEST,
    RARELY,
    SHORTEST,
    STEADY,
    WIDTHS,
    Auto,
    Experience,
    Probes,
    Times,
)
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.decoding.window import WindowRow
from fastdecode_lib.drafts.sources import Draft, LateDrafter
from fastdecode_lib.drafts.table import DraftTable, DraftTableError
from fastdecode_lib.laws import cases
from fastdecode_lib.loading import load
from fastdecode_lib.translation import Session, translate


def experienced(seconds=lambda positions: 1.0 + 0.05 * positions, right=3, drafted=7, rows=(1, 8)):
    """Experience with passes of every width, of which so many drafts were right."""
    known = Experience()
    for number in rows:
        for width in WIDTHS:
            for _ in range(ENOUGH):
                known.seconds.add(number * width, seconds(number * width))
    for _ in range(50):
        known.learn(drafted, right)
    return known


def test_wide_windows_where_positions_cost_nothing_and_drafts_are_right():
    known = experienced(lambda positions: 1.0, right=7)
    assert known.best(1) == known.best(8) == max(WIDTHS)
    assert known.speedup(1, 8) == pytest.approx(8, rel=0.05)


def test_as_wide_as_drafts_are_right():
    known = experienced(lambda positions: 1.0 + 0.1 * positions, right=2)
    assert known.expected_tokens(3) == pytest.approx(3, rel=0.02)
    assert known.best(1) == 3


def test_nothing_is_drafted_where_a_pass_costs_what_it_settles():
    assert experienced(lambda positions: float(positions)).best(8) == 1
    assert experienced(right=0).best(1) == 1
    assert experienced(right=0).greedy(1)


def test_greedy_decodings_own_loop_is_what_drafting_must_beat():
    known = experienced(lambda positions: 1.0 + 0.1 * positions, right=1)
    assert known.best(1) > 1
    for _ in range(ENOUGH):
        known.greedy_seconds.add(1, 0.5)
    known.passes += STEADY
    assert known.best(1) == 1


def test_one_sentence_and_a_batch_are_told_apart():
    known = experienced(lambda positions: max(4.0, positions), right=2)
    assert known.best(1) > 1 == known.best(8)


def test_what_drafting_takes_counts():
    known = experienced(right=1)
    assert known.best(1) == 2
    for _ in range(ENOUGH):
        known.drafting.add(2.0)
    known.widths = {}
    assert known.best(1) == 1
    prepared = experienced(right=1)
    prepared.count_output(4)
    for _ in range(ENOUGH):
        prepared.preparing.add(10.0)
    assert prepared.best(1) == 1


def test_first_single_passes_then_pairs_are_timed():
    known = Experience()
    assert not known.greedy(1)
    for _ in range(ENOUGH):
        assert known.width(1) == 1
        known.seconds.add(1, 1.0)
    for _ in range(BURST):
        assert known.width(1) == 2
        known.seconds.add(2, 1.1)
    assert known.seconds.known(2) and known.best(1) > 1


def test_probes_last_a_while_and_less_in_batches():
    """The first passes of another width are slow, since they find nothing in the caches."""
    for rows, passes in ((1, BURST), (2, BURST // 2), (8, 2), (32, 1)):
        known = experienced(right=0, rows=(rows,))
        widths = [known.width(rows) for _ in range(2 * SHORTEST)]
        assert widths.count(2) == passes and widths[widths.index(2) :][:passes] == [2] * passes


def test_widths_that_gain_about_the_same_do_not_take_turns():
    for first, second in ((3, 4), (4, 3)):
        known = experienced()
        gains = {1: 1.0, first: 1.30, second: 1.29}
        known.speedup = lambda rows, width, gains=gains: gains.get(width, 0.9)  # type: ignore[method-assign,misc]
        assert known.best(1) == first
        for gain, expected in ((1.32, first), (1.40, second)):
            gains[second] = gain
            known.passes += STEADY
            assert known.best(1) == expected
        gains |= {first: 1.05, second: 1.02}
        known.passes += STEADY
        assert known.best(1) == first, "a width that no longer pays is not kept"


def test_what_batches_take_says_nothing_of_single_sentences():
    known = experienced(right=7, rows=(32,))
    assert known.width(32) > 1
    for rows in (*range(1, 8), 32) * ENOUGH:  # the last sentences of large batches
        known.greedy_seconds.add(rows, 1.0)
    assert [known.width(1) for _ in range(3)] == [1, 1, 1] and not known.greedy(1)


def test_where_no_source_has_drafts_it_decodes_greedily():
    """Drafts that are asked for and not there are never timed: it must not ask for ever."""
    case = cases.random_case(7)
    auto = Auto(draft="recycled")
    for _ in range(40):
        cases.decode(auto, case)
    assert auto.experience.verified[0] > 0 == auto.experience.accepted[0]
    probes = auto.experience.sizes[len(case.source).bit_length()]
    assert auto.experience.greedy(len(case.source)) or probes.due or probes.lasts
    assert auto.experience.best(len(case.source)) == 1


def test_probes_begin_at_every_place_of_a_batch():
    known, places = experienced(right=0), set()
    for _ in range(60):
        while known.greedy(8):
            known.decoded(8, 9)
        probing = False
        for place in range(9):
            wide = known.width(8, place) > 1
            places |= {place} if wide and not probing else set()
            probing = wide
    assert places == set(range(8))


@pytest.mark.parametrize("passes", [1, 4, 5])
def test_short_sentences_are_probed_too(passes):
    """Where a probe's place lies behind the end of a sentence, it begins all the same, and greedy decoding's loop comes back."""
    known, wide, drafting = experienced(right=0), 0, 0
    for _ in range(4_000 // passes):
        if known.greedy(1):
            known.decoded(1, passes)
            continue
        widths = [known.width(1, place) for place in range(passes)]
        wide, drafting = wide + sum(width > 1 for width in widths), drafting + passes
    assert wide >= 5 * BURST and drafting < 600


def test_rows_of_unlike_best_widths_are_probed_as_seldom():
    known = experienced(lambda positions: max(2.0, positions - 1), right=2, rows=(2, 3))
    known.speedup = lambda rows, width: 1.5 if width == rows else 1.0  # type: ignore[method-assign]
    widths = [(known.width(rows), rows) for _ in range(2_000) for rows in (2, 3)]
    assert sum(width != rows for width, rows in widths) < 0.04 * len(widths)


def test_widths_stay_within_the_limit():
    known = experienced(lambda positions: 1.0, right=7)
    assert known.best(1, 4) == 4
    assert {known.width(1, most=4) for _ in range(200)} <= {1, 2, 3, 4}
    assert {experienced().width(1, most=1) for _ in range(50)} == {1}
    with pytest.raises(ValueError, match="auto needs width <= 32, got 33"):
        Auto(width=33)


def test_experience_is_of_one_model():
    auto = Auto(draft="recycled/pad")
    resolved = auto.with_draft(auto.drafts)
    assert resolved == auto.with_draft(auto.drafts) and resolved.experience is not auto.experience


def test_tables_of_other_vocabularies_are_refused_before_the_first_pass():
    case = cases.random_case(1)
    foreign = DraftTable.count([np.array([0, 1])], [np.array([3, 4])], source_vocabulary=2, vocabulary=13, start=2)
    with pytest.raises(DraftTableError, match="knows 2 source tokens, got the id"):
        Auto(draft=Draft("ngram+lexicon", foreign)).sentences(case.model, case.source, case.constraints)


def test_threads_share_what_they_learn():
    case = cases.random_case(4)
    auto = Auto(draft="recycled/pad")
    expected = cases.decode(Greedy(), case)
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda _: cases.decode(auto, case), range(64)))
    assert all([h.tokens for h in output] == [h.tokens for h in expected] for output in outputs)
    assert auto.experience.passes >= 64 and auto.experience.seconds.known(len(case.source))


def test_probes_become_rare_and_come_back_when_the_choice_changes():
    known = experienced(right=2)
    widths = [known.width(1) for _ in range(8 * LONGEST)]
    best = known.best(1)
    probes = [i for i, width in enumerate(widths) if width != best]
    gaps = np.diff([i for i in probes if i - 1 not in probes])
    assert len(gaps) >= 8 and gaps[0] <= 2 * SHORTEST + BURST and gaps[-1] == LONGEST + BURST
    for _ in range(2_000):
        known.learn(7, 0)
    known.widths = {}
    later = [known.width(1) for _ in range(2 * LONGEST)]
    assert known.best(1) == 1 and 4 * BURST <= len(later) - later.count(1) <= 8 * BURST


def test_drafting_begins_again_once_another_probe_confirms_that_it_pays():
    probes = Probes()
    probes.number, probes.next_probe = 3, 10 * LONGEST
    assert not probes.confirms(4, True) and not probes.confirms(4, True) and probes.next_probe == SHORTEST
    probes.number += 1
    assert not probes.confirms(5, False) and not probes.confirms(6, True), "the promise of another number of rows"
    assert probes.confirms(4, True) and not probes.confirms(4, True)
    assert not probes.confirms(4, False) and probes.promised == {6: 4}


def test_batches_of_similar_sizes_that_disagree_keep_their_choices(monkeypatch):
    known = experienced(rows=(4, 7))
    monkeypatch.setattr(
        known, "speedup", lambda rows, width: 1.5 if (rows, width) == (4, 2) else 0.9 + 0.1 * (width == 1)
    )
    widths = {4: [], 7: []}
    for _ in range(400):
        for rows in (*[4] * 20, *[7] * 20):
            widths[rows].append(known.width(rows))
    assert np.mean(np.array(widths[4][2_000:]) > 1) > 0.95 and np.mean(np.array(widths[7][2_000:]) > 1) < 0.05


def test_probes_are_rarest_where_drafting_is_hopeless():
    for seconds, longest in (
        (lambda positions: float(positions), RARELY),
        (lambda positions: 1 + 0.1 * positions, LONGEST),
    ):
        known = experienced(seconds, right=0, rows=(1,))
        for _ in range(40 * LONGEST):
            known.width(1)
        assert known.sizes[1].period == longest


def test_what_is_hopeless_is_seldom_tried_from_the_start():
    for rows in (1, 4, 8, 32):
        known = experienced(lambda positions: float(positions), right=0, rows=(rows,))
        widths = [known.width(rows) for _ in range(RARELY)]
        assert 0 < sum(width > 1 for width in widths) <= max(1, BURST // rows)


def test_large_batches_begin_with_greedy_decodings_own_loop():
    known = Experience()
    assert known.greedy(32) and not known.greedy(1)
    for _ in range(ENOUGH):
        known.greedy_seconds.add(32, 1.0)
        known.decoded(32, SHORTEST)
    assert not known.greedy(32) and known.width(32) == 2


def test_times_ignore_what_was_disturbed():
    times = Times()
    assert times.value == 0 and not times.known
    for seconds in (1.0, 50.0, 1.1, 1.2, 30.0, 1.0, 1.1, 2.0):
        times.add(seconds)
    assert times.value <= 1.1 and times.known


@pytest.mark.parametrize("seed", range(12))
def test_output_is_greedy_decodings_while_it_learns(seed):
    case = cases.random_case(seed)
    auto = cases.drafted(Auto(draft="recycled/pad"), case)
    greedy = cases.decode(Greedy(), case)
    for _ in range(4):
        assert [h.tokens for h in cases.decode(auto, case)] == [h.tokens for h in greedy]
    assert auto.experience.passes > 0


def test_drafts_are_prepared_when_first_needed():
    case = cases.random_case(3)
    auto = Auto(draft="recycled/pad")
    sentences = auto.sentences(case.model, case.source, case.constraints)
    assert all(isinstance(sentence.drafter, LateDrafter) for sentence in sentences)
    first = sentences[0]
    assert not first.widen(1) and not first.drafter.prepared
    assert first.widen(3) and first.drafter.prepared
    assert not first.widen(2)
    assert len(first.feed().tokens) <= 2


def test_greedy_decodings_own_loop_where_nothing_pays(monkeypatch):
    case = cases.random_case(5)
    auto = Auto(draft="recycled/pad")
    monkeypatch.setattr(Experience, "greedy", lambda *_: True)
    monkeypatch.setattr(WindowRow, "feed", lambda *_: pytest.fail("drafts"))
    monkeypatch.setattr(Auto, "bind", lambda *_: pytest.fail("prepares drafts"))
    hypotheses = drain(auto.iterate(case.model, case.projection, case.source, case.constraints))
    assert auto.experience.passes == max(len(h.tokens) for h in hypotheses)


def test_from_any_pass_on_the_rest_is_greedy_decodings_own_loop(monkeypatch):
    """Drafts for two passes, then none: rows stand at unlike places when the other loop takes over."""
    for number in range(20):
        case = cases.random_case(number)
        auto, expected = Auto(draft="recycled/pad"), cases.decode(Greedy(), case)
        asked = iter([False, False])
        monkeypatch.setattr(Experience, "greedy", lambda *_, asked=asked: next(asked, True))
        monkeypatch.setattr(Experience, "width", lambda *_: 4)
        iterations = auto.iterate(case.model, case.projection, case.source, case.constraints)
        assert [h.tokens for h in drain(iterations)] == [h.tokens for h in expected]
        assert auto.experience.outputs > 0


def test_batches_choose_no_width_that_was_not_timed():
    """What two slots take for eight rows is not guessed from one slot each: a batch pays for it."""
    for rows, width in ((8, 1), (1, 2)):
        known = Experience()
        for _ in range(ENOUGH):
            known.seconds.add(rows, 1.0)
        assert known.best(rows) == width


def test_it_can_be_typed():
    auto = registry.decoder("auto:width=4,draft=recycled")
    assert isinstance(auto, Auto) and (auto.width, auto.draft) == (4, "recycled")
    assert registry.describe(auto) == "auto:width=4,draft=recycled"
    assert auto.experience is not registry.decoder("auto").experience
    with pytest.raises(ValueError, match="auto needs width >= 1, got 0"):
        registry.decoder("auto:width=0")


def test_outputs_alone_are_decoded_with_quantised_in_float32() -> None:
    cases_of_choice: list[tuple[dict[str, Any], tuple[str, str]]] = [
        ({"observe": False}, ("auto", "quantised")),
        ({"observe": True}, ("auto", "exact")),
        ({"observe": False, "projection": "exact"}, ("auto", "exact")),
        ({"observe": False, "decoder": "greedy"}, ("greedy", "exact")),
    ]
    model, small = (load("tatoeba-small", precision=precision) for precision in ("float32", "int8"))
    for options, chosen in cases_of_choice:
        session = Session.usual(model, "en", "de", single=True, **options)
        assert (session.decoder_name, session.projection_name) == chosen
    assert Session.usual(small, "en", "de", single=True, observe=False).projection_name == "exact"
    texts = ["The train is late.", "My sister has been learning to play the piano for two years."]
    plain = translate(model, texts, source="en", target="de", decoder="greedy")
    assert [t.tokens for t in translate(model, texts, source="en", target="de", observe=False)] == [
        t.tokens for t in plain
    ]
