"""The Triton kernels against plain torch in Triton's interpreter, in a process of its own; and that they compile for GPUs.

The interpreter must be asked for before Triton is first imported, and would stay for all tests of the process.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded
import torch

from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.screen_torch import TorchScreenScorer
from fastdecode_lib.projections.screens import Screen

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
installed = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
FLOAT16 = {"rtol": 2e-3, "atol": 2e-3}


def kernels() -> Any:
    from fastdecode_lib.kernels import triton_gathered

    return triton_gathered


if INTERPRETED:
    # seed, V, D, N, k, type: with and without remainders of 16 rows, 64 tokens and 64 columns
    CASES = [
        (0, 200, 20, 1, 1, torch.float32),
        (1, 64, 64, 3, 3, torch.float32),
        (2, 70, 66, 2, 16, torch.float32),
        (3, 70, 9, 17, 1, torch.float32),
        (4, 130, 24, 3, 5, torch.float16),
        (5, 5, 3, 2, 5, torch.float32),
    ]

    def case(
        seed: int, vocabulary: int, width: int, rows: int, dtype: torch.dtype
    ) -> tuple[np.random.Generator, torch.Tensor, torch.Tensor, torch.Tensor]:
        """A weight (V, D), bias (V,) and hidden vectors (N, D); of every second seed whole numbers, whose scores tie."""
        random = np.random.default_rng(seed)
        if seed % 2:
            arrays = [random.integers(-2, 3, shape) for shape in ((vocabulary, width), vocabulary, (rows, width))]
        else:
            weight, bias = recorded.weight_of(random, vocabulary, width)
            arrays = [weight, bias, recorded.clumps(random, weight, rows)]
        weight, bias, hidden = (torch.from_numpy(np.asarray(array)).to(dtype) for array in arrays)
        bias[seed % vocabulary] = -torch.inf
        return random, weight, bias, hidden

    def random_lists(random: np.random.Generator, vocabulary: int) -> tuple[list[np.ndarray], Any]:
        """Lists, the third of which stands for all, as arrays and as the kernels take them."""
        sizes = [vocabulary // 3, 1, 0, vocabulary]
        sets = [np.sort(random.choice(vocabulary, size, replace=False)) for size in sizes]
        counts = torch.tensor(sizes, dtype=torch.int32)
        firsts = torch.cumsum(counts, 0, dtype=torch.int32) - counts
        members = torch.from_numpy(np.concatenate(sets).astype(np.int32))
        sets[2] = np.arange(vocabulary)
        return sets, kernels().Lists(firsts, counts, members, vocabulary)

    @pytest.mark.parametrize(("seed", "vocabulary", "width", "rows", "k", "dtype"), CASES)
    def test_kernels(seed: int, vocabulary: int, width: int, rows: int, k: int, dtype: torch.dtype) -> None:
        random, weight, bias, hidden = case(seed, vocabulary, width, rows, dtype)
        close = FLOAT16 if dtype is torch.float16 else CLOSE
        sets, lists = random_lists(random, vocabulary)
        own = torch.from_numpy(random.integers(0, 4, rows).astype(np.int32))
        every = hidden.float() @ weight.float().T + bias.float()
        assert kernels().nearest(hidden, weight, bias).tolist() == every.argmax(1).tolist()

        union = kernels().union(own, lists, vocabulary)
        together = np.unique(np.concatenate([sets[i] for i in own]))
        count = int(union.counts)
        assert union.members[:count].tolist() == together.tolist() and len(together) <= union.longest

        product = kernels().gathered_product(hidden, weight, bias, union.members[:count])
        np.testing.assert_allclose(product, every[:, together], **close)

        banned = random.integers(-1, vocabulary, (rows if seed % 3 else 1, 2))
        banned[0, 0] = int(every[0].argmax())
        copies = weight[lists.members.long()] if seed % 2 else None
        refused = torch.from_numpy(banned.astype(np.int32))
        for which, options in ((lists, {"own": own, "copies": copies}), (union, {})):
            found = kernels().gathered_top_k(hidden, weight, bias, k, which, banned=refused, normalise=True, **options)
            for row in range(rows):
                active = sets[own[row]] if options else together
                scores = every[row, active].numpy().astype(np.float64)
                np.testing.assert_allclose(found.log_normaliser[row], np.logaddexp.reduce(scores), **close)
                scores[np.isin(active, banned[row % len(banned)])] = -np.inf
                order = np.argsort(-scores, kind="stable")[:k]
                order = order[np.isfinite(scores[order])]
                assert found.ids[row].tolist() == [*active[order], *[-1] * (k - len(order))]
                np.testing.assert_allclose(found.scores[row, : len(order)], scores[order], **close)
                assert (found.scores[row, len(order) :] == -torch.inf).all()
        if seed == 2:
            plain = kernels().gathered_top_k(hidden, weight, bias, 2, lists)
            assert len(plain.log_normaliser) == 0 and np.isin(plain.ids, sets[0]).all()

    def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
        """Wherever it stands, and whether its list is its own or shared; on whole numbers, since numpy rounds as it likes."""
        random, weight, bias, hidden = case(7, 100, 40, 18, torch.float32)
        _, lists = random_lists(random, 100)
        own = torch.from_numpy(random.integers(0, 4, 18).astype(np.int32))
        together = kernels().gathered_top_k(hidden, weight, bias, 2, lists, own=own, normalise=True)
        for row in (0, 7, 17):
            one = hidden[row : row + 1], weight, bias, 2
            alone = kernels().gathered_top_k(*one, lists, own=own[row : row + 1], normalise=True)
            union = kernels().union(own[row : row + 1], lists, 100)
            shared = kernels().gathered_top_k(*one, union, normalise=True)
            for name in ("scores", "ids", "log_normaliser"):
                for found in (alone, shared):
                    assert torch.equal(getattr(found, name)[0], getattr(together, name)[row]), name

    def test_lists_longer_than_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the later stages take more than one round: with shorter spans, so as not to take long."""
        from triton.language import constexpr

        monkeypatch.setattr(kernels(), "SPAN", constexpr(32))
        weight, bias = torch.arange(150.0)[:, None] % 70, torch.zeros(150)
        found = kernels().gathered_top_k(torch.ones(1, 1), weight, bias, 15, kernels().Lists.whole(150, "cpu"))
        assert found.ids[0, :5].tolist() == [69, 139, 68, 138, 67]
        assert found.ids[0].tolist() == np.argsort(-weight[:, 0].numpy(), kind="stable")[:15].tolist()
        monkeypatch.setattr(kernels(), "SPAN", constexpr(2))
        sets = kernels().Lists(*(torch.tensor(a, dtype=torch.int32) for a in ([0, 3], [3, 1], [3, 7, 14, 10])), 3)
        union = kernels().union(torch.tensor([0, 1], dtype=torch.int32), sets, 15)
        assert union.members[: int(union.counts)].tolist() == [3, 7, 10, 14] and union.longest == 6

    def test_what_is_not_a_number_stays_in_range() -> None:
        hidden = torch.tensor([[torch.nan, 1.0], [torch.inf, torch.inf]])
        found = kernels().nearest(hidden, -torch.ones(3, 2), torch.zeros(3))
        assert ((found >= 0) & (found < 3)).all()

    @pytest.mark.parametrize("shared", [False, True])
    def test_the_scorer_is_the_one_of_torch(shared: bool) -> None:
        random, weight, bias, hidden = case(8, 130, 12, 5, torch.float32)
        sets: list[Any] = [random.choice(130, size, replace=False) for size in (40, 3, 90)] + [[]] * (not shared)
        points = recorded.clumps(random, weight.numpy(), len(sets))
        screen = Screen("clustered", points, ActiveSets.of(sets, 130))
        ours, theirs = (
            TorchScreenScorer(screen, weight, bias, shared=shared, kernels=k, copies=not shared)  # type: ignore[arg-type]
            for k in ("triton", "torch")
        )
        for k, kwargs in ((1, {}), (4, {"banned": np.array([1, 5]), "normalise": True}), (40, {})):
            found, wanted = (scorer.top_k(hidden, k, **kwargs) for scorer in (ours, theirs))
            for name in ("ids", "num_active", "cluster"):
                one, other = getattr(found, name), getattr(wanted, name)
                assert np.array_equal(one, other) and one.dtype == other.dtype, name
            np.testing.assert_allclose(found.scores, wanted.scores, **CLOSE)
            if kwargs:
                np.testing.assert_allclose(found.log_normaliser, wanted.log_normaliser, **CLOSE)
        some = np.tile(np.arange(130), (5, 1))
        np.testing.assert_allclose(ours.log_probs(hidden, some), theirs.log_probs(hidden, some), **CLOSE)

else:

    @installed
    def test_kernels_in_the_interpreter() -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
        environment = os.environ | {"TRITON_INTERPRET": "1"}
        done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout + done.stderr
        assert not kernels().INTERPRETED

    POINTERS = {
        **dict.fromkeys(("own", "firsts", "counts", "members", "banned", "ids", "tallies"), "*i32"),
        **dict.fromkeys(("tops", "sums", "scores", "log_normaliser"), "*fp32"),
        **{"keys": "*i64", "seen": "*i8"},
    }

    @installed
    @pytest.mark.parametrize(("architecture", "kind"), [(80, "fp16"), (90, "fp32")])
    def test_kernels_compile_for_gpus(
        architecture: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where there is none: to machine code, for sets of their own and for a union."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        types = POINTERS | dict.fromkeys(("hidden", "weight", "copies", "bias"), f"*{kind}")
        union = {"own": None, "copies": None, "banned": None, "NORMALISE": False}
        made = kernels()
        for name, constants in (
            ("_best_of_tiles", {"NORMALISE": True}),
            ("_best_of_tiles", union),
            ("_best_of_all", {"NORMALISE": True}),
            ("_product", {}),
            ("_mark", {}),
            ("_tally", {}),
            ("_compact", {}),
        ):
            kernel = getattr(made, name)
            own = types | ({"count": "*i32"} if name == "_compact" else {})
            signature = {n: "constexpr" if n in constants else own.get(n, "i32") for n in kernel.arg_names}
            source = ASTSource(kernel, signature, {(kernel.arg_names.index(n),): v for n, v in constants.items()})
            compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
            assert compiled.asm["cubin"]
            assert name != "_best_of_tiles" or kind != "fp16" or "mma.sync" in compiled.asm["ptx"]

    def test_what_cannot_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
        weight = torch.ones(5, 2)
        screen = Screen("screened", np.ones((1, 2), np.float32), ActiveSets.of([[0]], 5))
        assert TorchScreenScorer(screen, weight).kernels == "torch"
        with pytest.raises(ValueError, match="add up in float32: got a weight in torch.float64. Use kernels='torch'"):
            TorchScreenScorer(screen, weight.double(), kernels="triton")
        if importlib.util.find_spec("triton"):
            with pytest.raises(ValueError, match="run on CUDA devices: got a weight on cpu. Use kernels='torch'"):
                TorchScreenScorer(screen, weight, kernels="triton")
        monkeypatch.setattr("fastdecode_lib.projections.screen_torch.find_spec", lambda name: None)
        with pytest.raises(ValueError, match="need Triton: it is not installed. pip install triton"):
            TorchScreenScorer(screen, weight, kernels="triton")
