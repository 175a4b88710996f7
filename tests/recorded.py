"""Contexts in memory, for tests: hidden vectors that lie in clumps, with the labels of a random output matrix."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.projections.exact_compiled import CompiledExact


@dataclass(frozen=True)
class InMemory:
    hidden: np.ndarray
    labels: np.ndarray
    vocabulary: int
    fingerprint: str = "made up"

    @property
    def width(self) -> int:
        return int(self.hidden.shape[1])

    @property
    def top(self) -> int:
        return int(self.labels.shape[1])

    def __len__(self) -> int:
        return len(self.hidden)

    def blocks(self, size: int = 100) -> Iterator[Any]:
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            yield SimpleNamespace(hidden=self.hidden[rows], labels=self.labels[rows])

    def sample(self, count: int, seed: int) -> "InMemory":
        rows = np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))
        return InMemory(self.hidden[rows], self.labels[rows], self.vocabulary)


def weight_of(random: np.random.Generator, vocabulary: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A weight (V, D) of low rank with noise, and a bias (V,) that falls as Zipf's law does."""
    low = random.normal(size=(vocabulary, 6)) @ random.normal(size=(6, width)) / 3
    weight = low + random.normal(size=(vocabulary, width)) * 0.2
    return weight.astype(np.float32), (-np.log(np.arange(vocabulary) + 2) / 2).astype(np.float32)


def clumps(random: np.random.Generator, weight: np.ndarray, count: int) -> np.ndarray:
    """Hidden vectors (N, D) around some rows of the weight."""
    near = weight[random.integers(0, min(12, len(weight)), count)]
    return (near + random.normal(size=near.shape) * 0.3).astype(np.float32)


def case(seed: int, *, vocabulary: int = 130, width: int = 20, count: int = 300) -> tuple[Matrix, InMemory]:
    """An output matrix, and contexts with their five best tokens."""
    random = np.random.default_rng(seed)
    weight, bias = weight_of(random, vocabulary, width)
    matrix, hidden = Matrix.of(weight, bias), clumps(random, weight, count)
    labels = CompiledExact(matrix).top_k(hidden, 5).ids.astype(np.int32)
    return matrix, InMemory(hidden, labels, vocabulary)


def active_tokens(projection: Any, hidden: Any) -> list[np.ndarray]:
    """The ascending ids that a projection scores for each hidden vector."""
    ids, _ = projection.active_scores(hidden)
    return [row[row >= 0] for row in ids]
