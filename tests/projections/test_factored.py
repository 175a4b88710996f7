"""SVD-softmax and adaptive softmax: exact at full effort, proper probabilities, parity with PyTorch."""

import copy
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import active_tokens
from test_mips import best, log_sum, output_layer, recall, shapes, whole_numbers

from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.papers.shared.projection_runs import bytes_read
from fastdecode_lib.projections.factored import Adaptive, Svd, _cuts

seeds = st.integers(0, 2**31)


def random_adaptive(seed: int, vocabulary: int, width: int, tails: int) -> tuple[Adaptive, np.ndarray, np.ndarray]:
    """An adaptive layer with random weights, hidden vectors, and their log-probabilities as PyTorch has them."""
    random, torch_random = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    cuts = _cuts(int(random.integers(1, vocabulary - tails + 1)), tails, vocabulary)
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(width, vocabulary, cuts, div_value=1.5, head_bias=True)
    for parameter in layer.parameters():
        parameter.data.normal_(generator=torch_random)
    hidden = random.normal(size=(int(random.choice([1, 3, 40])), width)).astype(np.float32)
    arrays = {name: value.numpy() for name, value in layer.state_dict().items()}
    order = random.permutation(vocabulary)
    made = Adaptive(
        head_layer=Matrix.of(arrays["head.weight"], arrays["head.bias"]),
        down=tuple(Matrix.of(arrays[f"tail.{i}.0.weight"]) for i in range(tails)),
        up=tuple(Matrix.of(arrays[f"tail.{i}.1.weight"]) for i in range(tails)),
        order=order,
        visited=np.ones(tails, np.float32),
    )
    expected = np.empty((len(hidden), vocabulary))
    with torch.no_grad():
        expected[:, order] = layer.double().log_prob(torch.from_numpy(hidden).double()).numpy()
    return made, hidden, expected


# ----------------------------------------------------------------------------------------------------------------- svd


@settings(max_examples=40)
@given(seeds, st.integers(1, 70), st.booleans())
def test_a_full_view_is_exact(seed: int, k: int, banning: bool) -> None:
    vocabulary, width, rows = shapes(seed)
    weight, bias, hidden = whole_numbers(seed, vocabulary, width, rows)
    projection = Svd.fit(weight, bias, window=int(np.random.default_rng(seed).integers(1, width + 1)), full=vocabulary)
    scores = hidden @ weight.T + bias
    banned = np.array([vocabulary // 2]) if banning else None
    open_scores = scores.copy()
    open_scores[:, [] if banned is None else banned] = -np.inf
    found = projection.bind(None).top_k(hidden, k, banned, normalise=True)
    ids, values = best(open_scores, k)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, values)
    np.testing.assert_array_equal(found.num_active, vocabulary)
    assert found.support == "vocabulary" and found.log_normaliser is not None
    np.testing.assert_allclose(found.log_normaliser, log_sum(scores.astype(np.float64)), rtol=1e-5, atol=1e-5)


@settings(max_examples=40)
@given(seeds, st.integers(1, 12))
def test_the_best_of_the_preview_are_scored_exactly(seed: int, k: int) -> None:
    vocabulary, width, rows = shapes(seed)
    weight, bias, draw = output_layer(seed, vocabulary, width)
    random, hidden = np.random.default_rng(seed), draw(rows)
    window, full = int(random.integers(1, width + 1)), int(random.integers(1, vocabulary + 1))
    projection = Svd.fit(weight, bias, window=window, full=full)
    scores = hidden.astype(np.float64) @ weight.T + bias
    basis = projection.basis[:window].astype(np.float64)
    preview = (hidden @ basis.T) @ (weight @ basis.T).T + bias
    listed = projection.active_scores(hidden)
    assert listed.ids.shape == (rows, full)
    mixed = preview.copy()
    for row, own in enumerate(listed.ids):
        left_out = np.delete(preview[row], own)
        assert preview[row, own].min() >= left_out.max(initial=-np.inf) - 1e-4
        mixed[row, own] = scores[row, own]
    np.testing.assert_allclose(listed.scores, np.take_along_axis(scores, listed.ids, 1), rtol=1e-4, atol=1e-4)
    found = projection.top_k(hidden, k, normalise=True)
    inside = np.full(scores.shape, -np.inf)
    np.put_along_axis(inside, listed.ids, listed.scores, 1)
    np.testing.assert_array_equal(found.ids, best(inside, k)[0])
    np.testing.assert_array_equal(found.num_active, full)
    assert found.log_normaliser is not None
    np.testing.assert_allclose(found.log_normaliser, log_sum(mixed), rtol=1e-4, atol=1e-4)
    log_probs = projection.log_probs(hidden, np.tile(np.arange(vocabulary), (rows, 1)))
    np.testing.assert_allclose(log_probs, mixed - log_sum(mixed)[:, None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.exp(log_probs.astype(np.float64)).sum(1), 1, atol=1e-4)


@settings(max_examples=20)
@given(seeds)
def test_equal_previews_keep_the_lowest_ids(seed: int) -> None:
    vocabulary = 40
    weight = np.repeat(np.random.default_rng(seed).integers(-2, 3, size=(4, 6)), 10, axis=0)
    full = int(np.random.default_rng(seed).integers(1, vocabulary))
    hidden = np.random.default_rng(seed).integers(-2, 3, size=(5, 6)).astype(np.float32)
    projection = Svd.fit(weight, window=3, full=full)
    for own in active_tokens(projection, hidden):
        for first in range(0, vocabulary, 10):
            part = own[(own >= first) & (own < first + 10)]
            np.testing.assert_array_equal(part, np.arange(first, first + len(part)))


def test_svd_finds_more_with_more_effort() -> None:
    weight, bias, draw = output_layer(7, 600, 40)
    hidden = draw(200)
    exact, _ = best(hidden.astype(np.float64) @ weight.T + bias, 5)
    projection = Svd.fit(weight, bias, window=4, full=20)
    windows = [replace(projection, window=window) for window in (1, 3, 6, 40)]
    fulls = [replace(projection, full=full) for full in (5, 20, 80, 600)]
    for made in (windows, fulls):
        found = [recall(one, hidden, exact) for one in made]
        assert found == sorted(found) and found[0] < found[-1] and found[-1] == 1, found
        costs = [(bytes_read(one, one.full), one.memory_bytes) for one in made]
        assert costs == sorted(costs) and costs[0] < costs[-1]


# ------------------------------------------------------------------------------------------------------------ adaptive


@settings(max_examples=60)
@given(seeds, st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_adaptive_is_pytorchs_and_finds_its_best_tokens(seed: int, k: int, tails: int, banning: bool) -> None:
    vocabulary, width = int(np.random.default_rng(seed).integers(5, 60)), 17
    projection, hidden, expected = random_adaptive(seed, vocabulary, width, tails)
    everything = np.tile(np.arange(vocabulary), (len(hidden), 1))
    log_probs = projection.log_probs(hidden, everything)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.exp(log_probs.astype(np.float64)).sum(1), 1, atol=1e-4)
    banned = np.array([0, vocabulary // 2]) if banning else None
    open_scores = log_probs.copy()
    open_scores[:, [] if banned is None else banned] = -np.inf
    found = projection.bind(None).top_k(hidden, k, banned, normalise=True)
    ids, values = best(open_scores, k)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, values)
    np.testing.assert_array_equal(found.log_normaliser, 0)
    assert found.support == "vocabulary"
    assert (found.num_active >= projection.head).all() and (found.num_active <= vocabulary).all()
    one = np.random.default_rng(seed).integers(0, vocabulary, size=(len(hidden), 1))
    np.testing.assert_array_equal(projection.log_probs(hidden, one), np.take_along_axis(log_probs, one, 1))


def test_a_tail_that_cannot_win_stays_closed() -> None:
    head = np.zeros((4, 16))
    projection = Adaptive(
        head_layer=Matrix.of(head, np.array([3.0, 1.0, 2.0, -9.0])),
        down=(Matrix.of(np.eye(2, 16)),),
        up=(Matrix.of(np.ones((5, 2))),),
        order=np.array([7, 6, 5, 0, 1, 2, 3, 4]),
        visited=np.array([0.5], np.float32),
    )
    hidden = np.ones((2, 16), np.float32)
    for k, active in ((1, 3), (3, 3), (4, 8)):
        found = projection.top_k(hidden, k)
        np.testing.assert_array_equal(found.num_active, active)
        np.testing.assert_array_equal(found.ids[0], [7, 5, 6, 0][:k])
    np.testing.assert_array_equal(projection.top_k(hidden, 3, np.array([5])).num_active, 8)
    assert projection.head == 3 and projection.vocabulary == 8
    opened = projection.down[0].memory_bytes + projection.up[0].memory_bytes
    assert projection.bytes_per_query == round(projection.head_layer.memory_bytes + opened / 2)


def contexts(seed: int = 0, count: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Hidden vectors, counts of the tokens drawn from their softmax, and the output layer."""
    weight, bias, draw = output_layer(seed, 80, 16)
    hidden = draw(count)
    noise = np.random.default_rng(seed).gumbel(size=(count, 80))
    labels = (hidden @ weight.T + bias + noise).argmax(1)
    return hidden, np.bincount(labels, minlength=80), weight, bias


def test_order_within_head_and_tails_is_the_output_layers() -> None:
    """With tails as wide as the layer only their share of the whole is not exact."""
    hidden, counts, weight, bias = contexts()
    derived = Adaptive.fit(hidden, counts, weight, bias, head=20, tails=1, factor=1)
    np.testing.assert_array_equal(derived.order, np.argsort(-counts, kind="stable"))
    scores = hidden @ weight.T + bias
    exact = scores - np.logaddexp.reduce(scores, 1, keepdims=True)
    found = derived.log_probs(hidden, np.broadcast_to(np.arange(80), (len(hidden), 80)))
    np.testing.assert_allclose(np.exp(found).sum(1), 1, rtol=1e-4)
    for tokens in (derived.order[:20], derived.order[20:]):
        apart = (found - exact)[:, tokens]
        np.testing.assert_allclose(apart, apart[:, :1].repeat(len(tokens), 1), atol=1e-3)
    assert (derived.top_k(hidden, 1).ids[:, 0] == scores.argmax(1)).mean() > 0.9
    opened = derived.top_k(hidden[::2], 1).num_active > 20
    assert derived.visited.max() > 0
    assert abs(derived.visited.max() - opened.mean()) < 0.1
    without_bias = Adaptive.fit(hidden, counts, weight, head=20, tails=1, factor=1)
    assert not np.allclose(without_bias.log_probs(hidden, np.zeros((len(hidden), 1), int)), found[:, :1])


def test_tails_grow_longer_and_narrower() -> None:
    hidden, counts, weight, bias = contexts(count=600)
    small, large = (
        Adaptive.fit(torch.from_numpy(hidden), counts, weight, bias, head=head, factor=2) for head in (5, 60)
    )
    assert small.head == 5 and large.head == 60 and [up.shape[0] for up in small.up] == [15, 60]
    assert [down.shape for down in small.down] == [(8, 16), (4, 16)]
    assert _cuts(1, 3, 4) == [1, 2, 3] and _cuts(97, 3, 100) == [97, 98, 99]


# ---------------------------------------------------------------------------------------------------------------- both


def some_svd(seed: int) -> tuple[Any, np.ndarray]:
    weight, bias, draw = output_layer(seed, 90, 50)
    return Svd.fit(weight, bias, window=5, full=9), draw(37)


def some_adaptive(seed: int) -> tuple[Any, np.ndarray]:
    projection, hidden, _ = random_adaptive(seed, 90, 50, 2)
    return projection, np.concatenate([hidden] * 37)[:37] + np.arange(37, dtype=np.float32)[:, None] / 50


both = pytest.mark.parametrize("make", [some_svd, some_adaptive])


@both
@settings(max_examples=8)
@given(seeds)
def test_a_row_knows_nothing_of_its_batch(make: Callable[[int], tuple[Any, np.ndarray]], seed: int) -> None:
    projection, hidden = make(seed)
    order = np.random.default_rng(seed).permutation(len(hidden))
    wanted = np.random.default_rng(seed).integers(0, 90, size=(len(hidden), 3))
    together, shuffled = (projection.top_k(rows, 6, normalise=True) for rows in (hidden, hidden[order]))
    log_probs = projection.log_probs(hidden, wanted)
    for field in ("ids", "scores", "num_active", "log_normaliser"):
        np.testing.assert_array_equal(getattr(together, field)[order], getattr(shuffled, field))
    for row in range(len(hidden)):
        alone = projection.top_k(hidden[row : row + 1], 6, normalise=True)
        for field in ("ids", "scores", "num_active", "log_normaliser"):
            np.testing.assert_array_equal(getattr(together, field)[row], getattr(alone, field)[0])
        np.testing.assert_array_equal(
            log_probs[row], projection.log_probs(hidden[row : row + 1], wanted[row : row + 1])[0]
        )


def test_a_saved_adaptive_softmax_and_copies_are_the_same(tmp_path: Path) -> None:
    projection, hidden = some_adaptive(3)
    replace(projection, fingerprint="abc").save(tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["projection.json", "projection.safetensors"]
    again = Adaptive.load(tmp_path / "kept")
    assert again.fingerprint == "abc" and again.memory_bytes == projection.memory_bytes
    first = projection.top_k(hidden, 7, normalise=True)
    for other in (again, copy.deepcopy(projection), replace(again, fingerprint="")):
        found = other.top_k(hidden, 7, normalise=True)
        for field in ("ids", "scores", "num_active", "log_normaliser"):
            np.testing.assert_array_equal(getattr(found, field), getattr(first, field))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    with pytest.raises(ValueError, match="projection.json is not readable JSON: No such file.* Fit and save it again"):
        Adaptive.load(tmp_path)
    folder = tmp_path / "kept"
    some_adaptive(1)[0].save(folder)
    about, file = folder / "projection.json", folder / "projection.safetensors"
    content, whole = json.loads(about.read_text()), load_file(file)
    about.write_text(json.dumps(content | {"name": "svd"}))
    with pytest.raises(ValueError, match=r"holds another projection: got .*svd.* expected .*adaptive"):
        Adaptive.load(folder)
    about.write_text(json.dumps({name: value for name, value in content.items() if name != "knobs"}))
    with pytest.raises(ValueError, match="is no saved projection: it lacks 'knobs'"):
        Adaptive.load(folder)
    about.write_text(json.dumps(content))
    save_file(whole | {"order": whole["order"] + 1}, file)
    with pytest.raises(ValueError, match="Unknown id among the tokens by frequency: got 90"):
        Adaptive.load(folder)
    save_file({name: values for name, values in whole.items() if name != "order"}, file)
    with pytest.raises(ValueError, match=r"is damaged: got KeyError.*order.*Fit and save it again"):
        Adaptive.load(folder)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        Adaptive.load(folder)


@both
def test_threads_do_not_meet(make: Callable[[int], tuple[Any, np.ndarray]]) -> None:
    projection, hidden = make(4)
    expected = projection.top_k(hidden, 5)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: projection.top_k(hidden, 5), range(60)):
            np.testing.assert_array_equal(expected.ids, found.ids)
            np.testing.assert_array_equal(expected.scores, found.scores)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"window": 0}, "svd needs window from 1 to 16, got 0. Choose"),
        ({"window": 17}, "svd needs window from 1 to 16, got 17"),
        ({"full": 0}, "svd needs full from 1 to 40, got 0"),
        ({"full": 41}, "svd needs full from 1 to 40, got 41"),
    ],
)
def test_knobs_of_svd_out_of_range_are_refused(knobs: dict[str, int], message: str) -> None:
    weight, bias, _ = output_layer(1, 40, 16)
    with pytest.raises(ValueError, match=message):
        Svd.fit(weight, bias, **({"window": 4, "full": 4} | knobs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"head": 0}, "adaptive needs head from 1 to 79, got 0"),
        ({"head": 80}, "adaptive needs head from 1 to 79, got 80"),
        ({"tails": 0}, "adaptive needs tails from 1 to 60, got 0"),
        ({"factor": 0.5}, r"needs factor >= 1, got 0\.5"),
        ({"counts": np.ones(79, int)}, r"counts 80 tokens: got counts \(79,\)"),
        (
            {"weight": np.ones((80, 15))},
            r"contexts \(N, 15\) for an output layer of \(80, 15\): got \(100, 16\)\. Give those",
        ),
        ({"tails": 3}, "narrows 16 columns by 4 for each tail: got 3 tails, the last without a column. Use fewer"),
        ({"head": 79, "counts": np.eye(80, dtype=int)[0], "tails": 1}, "got 1 counted. Count more"),
        ({"contexts": np.full((100, 16), np.nan)}, "Contexts must be finite: got NaN"),
    ],
)
def test_bad_contexts_of_adaptive_are_refused(knobs: dict[str, Any], message: str) -> None:
    hidden, counts, weight, bias = contexts(count=100)
    given = {"contexts": hidden, "counts": counts, "weight": weight, "bias": bias, "head": 20} | knobs
    with pytest.raises(ValueError, match=message):
        Adaptive.fit(**given)


def test_bad_questions_are_refused() -> None:
    projection, hidden, _ = random_adaptive(1, 30, 17, 2)
    with pytest.raises(ValueError, match=r"hidden vectors of width 17, got \(\d+, 16\)"):
        projection.top_k(hidden[:, :16], 1)
    with pytest.raises(ValueError, match="needs k from 1, got 0"):
        projection.top_k(hidden, 0)
    with pytest.raises(ValueError, match=r"computes on the CPU: got a tensor on meta"):
        projection.log_probs(torch.empty(1, 17, device="meta"), np.zeros((1, 1), int))
    with pytest.raises(ValueError, match=r"parts of adaptive do not fit: got 29 tokens for 30 outputs"):
        replace(projection, order=projection.order[:-1])
