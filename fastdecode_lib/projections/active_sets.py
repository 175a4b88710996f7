"""Sets of active tokens, one for each cluster of hidden vectors: the heart of Amer et al. (2022) and Chen et al. (2019)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fastdecode_lib.kernels.ids import checked


class Recorded(Protocol):
    """Recorded contexts, as `contexts.shards.Contexts` reads them: hidden vectors with their K best tokens."""

    @property
    def width(self) -> int:
        """D, the length of a hidden vector."""

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""

    @property
    def top(self) -> int:
        """K, the number of labels recorded for each context."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model that was recorded."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[Any]:
        """All contexts in order, as blocks with ``hidden`` (n, D) and ``labels`` (n, K)."""

    def sample(self, count: int, seed: int) -> Any:
        """`count` of the contexts, drawn at random."""


def sampled(contexts: Recorded, most: int, seed: int) -> np.ndarray:
    """Hidden vectors (n, D) of all contexts, or of `most` drawn at random, float32."""
    chosen = contexts if len(contexts) <= most else contexts.sample(most, seed)
    return np.concatenate([np.zeros((0, contexts.width), np.float32), *(block.hidden for block in chosen.blocks())])


@dataclass(frozen=True)
class ActiveSets:
    """The tokens that are scored in each of r clusters.

    Attributes
    ----------
    offsets : int64 array (r + 1,)
        Set t is ``ids[offsets[t] : offsets[t + 1]]``.
    ids : int64 array
        Ascending within each set, each token once.
    vocabulary : int
        V. An empty set stands for the whole vocabulary.
    """

    offsets: np.ndarray
    ids: np.ndarray
    vocabulary: int

    def __post_init__(self) -> None:
        ids_fit = len(self.ids) == 0 or (self.ids.min() >= 0 and self.ids.max() < self.vocabulary)
        offsets_fit = len(self.offsets) >= 2 and self.offsets[0] == 0 and self.offsets[-1] == len(self.ids)
        if not offsets_fit or not ids_fit:
            raise ValueError(
                f"Active sets do not fit: got offsets {self.offsets[:3]}...{self.offsets[-1:]} for {len(self.ids)} ids of a "
                f"vocabulary of {self.vocabulary}. Fit them again."
            )
        if (np.diff(self.offsets) < 0).any():
            raise ValueError(
                f"Offsets of active sets must not fall: got {self.offsets.tolist()[:9]}. Use ActiveSets.of."
            )
        unsorted = np.flatnonzero(np.diff(self.keys) <= 0)
        if len(unsorted):
            cluster = int(self.keys[unsorted[0]] // self.vocabulary)
            raise ValueError(
                f"Active sets must be strictly ascending: got set {cluster} of {self[cluster].tolist()[:9]}. Use ActiveSets.of."
            )

    @classmethod
    def of(cls, sets: Iterable[Sequence[int] | np.ndarray], vocabulary: int) -> "ActiveSets":
        """From any sequences of tokens, which may be unsorted and repeat tokens."""
        sorted_sets = [np.unique(np.asarray(tokens, dtype=np.int64)) for tokens in sets]
        offsets = np.concatenate([[0], np.cumsum([len(tokens) for tokens in sorted_sets], dtype=np.int64)])
        return cls(offsets, np.concatenate([*sorted_sets, np.zeros(0, dtype=np.int64)]), vocabulary)

    @classmethod
    def of_keys(cls, keys: np.ndarray, clusters: int, vocabulary: int) -> "ActiveSets":
        """From distinct ascending keys ``cluster * V + token``."""
        offsets = np.searchsorted(keys, np.arange(clusters + 1, dtype=np.int64) * vocabulary)
        return cls(offsets.astype(np.int64), keys % vocabulary, vocabulary)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, cluster: int) -> np.ndarray:
        """The tokens of one set, ascending; the whole vocabulary if the set is empty."""
        tokens = self.ids[self.offsets[cluster] : self.offsets[cluster + 1]]
        return tokens if len(tokens) else np.arange(self.vocabulary)

    @property
    def sizes(self) -> np.ndarray:
        """Tokens scored in each cluster, int64 (r,)."""
        stored = np.diff(self.offsets)
        return np.where(stored > 0, stored, self.vocabulary)

    @property
    def keys(self) -> np.ndarray:
        """Ascending ``cluster * V + token``, int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets)) * self.vocabulary + self.ids

    def with_always(self, tokens: Sequence[int] | np.ndarray) -> "ActiveSets":
        """The sets with `tokens` added to each; empty sets stay empty and stand for the whole vocabulary."""
        check_guards(self.vocabulary, tokens, 0)
        tokens = np.asarray(tokens, dtype=np.int64)
        filled = np.flatnonzero(np.diff(self.offsets))
        added_keys = filled[:, None] * self.vocabulary + tokens[None]
        return ActiveSets.of_keys(np.union1d(self.keys, added_keys), len(self), self.vocabulary)

    def at_least(self, size: int, ranking: np.ndarray) -> "ActiveSets":
        """The sets, where sets of fewer than `size` tokens are filled up with the first tokens of a ranking (V,)."""
        check_guards(self.vocabulary, (), size)
        keys = [self.keys]
        for cluster in np.flatnonzero((np.diff(self.offsets) < size) & (np.diff(self.offsets) > 0)):
            active = self[int(cluster)]
            added = ranking[: size + len(active)]
            added = added[~np.isin(added, active)][: size - len(active)]
            keys.append(cluster * self.vocabulary + added)
        return ActiveSets.of_keys(np.unique(np.concatenate(keys)), len(self), self.vocabulary)


def check_guards(vocabulary: int, always: Sequence[int] | np.ndarray, at_least: int) -> None:
    """Check tokens that are active in every cluster and a least size of sets against the vocabulary.

    Raises
    ------
    ValueError
        If a token or the size is outside the vocabulary.
    """
    checked("tokens that are always active", np.asarray(always, dtype=np.int64), 0, vocabulary)
    if not 0 <= at_least <= vocabulary:
        raise ValueError(f"at_least must be from 0 to the vocabulary's {vocabulary}, got {at_least}. Lower it.")


def count_all(
    assign: Callable[[np.ndarray], np.ndarray], contexts: Recorded, top: int, clusters: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys and counts of `count_labels` over all contexts, block by block, and the number of contexts in each cluster.

    Parameters
    ----------
    assign : callable
        Clusters (N,) of hidden vectors (N, D).
    top : int
        Labels of each context that count.
    """
    keys, counts, members = (np.zeros(n, dtype=np.int64) for n in (0, 0, clusters))
    for block in contexts.blocks():
        assigned = assign(block.hidden)
        members += np.bincount(assigned, minlength=clusters)
        block_keys, block_counts = count_labels(assigned, block.labels[:, :top], clusters, contexts.vocabulary)
        keys, inverse = np.unique(np.concatenate([keys, block_keys]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, block_counts]), len(keys)).astype(np.int64)
    return keys, counts, members


def count_labels(
    assignment: np.ndarray, labels: np.ndarray, clusters: int, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count how often each token is a label in each cluster.

    Parameters
    ----------
    assignment : int array (N,)
        Cluster of each context.
    labels : int array (N, K)
    clusters, vocabulary : int

    Returns
    -------
    tuple of int64 arrays (M,)
        Ascending keys ``cluster * V + token`` that occur, and their counts.
    """
    if len(assignment) != len(labels) or (len(assignment) and assignment.max() >= clusters):
        raise ValueError(
            f"Assignment and labels do not fit: got {len(assignment)} and {len(labels)} rows for {clusters} clusters. Assign "
            "the contexts that the labels belong to."
        )
    keys, counts = np.unique(assignment[:, None].astype(np.int64) * vocabulary + labels, return_counts=True)
    return keys, counts


def ranking(tokens: np.ndarray, counts: np.ndarray, vocabulary: int) -> np.ndarray:
    """All tokens (V,), the most frequent first; among equally frequent ones, the lowest id first."""
    return np.argsort(-np.bincount(tokens, counts, vocabulary), kind="stable")
