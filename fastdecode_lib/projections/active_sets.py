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
        """D."""
        ...

    @property
    def vocabulary(self) -> int:
        """V."""
        ...

    @property
    def top(self) -> int:
        """K."""
        ...

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model."""
        ...

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[Any]:
        """All rows in turn, each block with ``hidden`` (n, D) and ``labels`` (n, K)."""
        ...

    def sample(self, count: int, seed: int) -> Any:
        """Some of the rows, drawn at random."""
        ...


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
        inside = len(self.ids) == 0 or (self.ids.min() >= 0 and self.ids.max() < self.vocabulary)
        whole = len(self.offsets) >= 2 and self.offsets[0] == 0 and self.offsets[-1] == len(self.ids)
        if not whole or not inside:
            raise ValueError(
                f"Active sets do not fit: got offsets {self.offsets[:3]}...{self.offsets[-1:]} for {len(self.ids)} ids of a "
                f"vocabulary of {self.vocabulary}. Fit them again."
            )
        if (np.diff(self.offsets) < 0).any():
            raise ValueError(
                f"Offsets of active sets must not fall: got {self.offsets.tolist()[:9]}. Use ActiveSets.of."
            )
        wrong = np.flatnonzero(np.diff(self.keys) <= 0)
        if len(wrong):
            cluster = int(self.keys[wrong[0]] // self.vocabulary)
            raise ValueError(
                f"Active sets must be strictly ascending: got set {cluster} of {self[cluster].tolist()[:9]}. Use ActiveSets.of."
            )

    @classmethod
    def of(cls, sets: Iterable[Sequence[int] | np.ndarray], vocabulary: int) -> "ActiveSets":
        """The sets as given, in any order and with repetition."""
        kept = [np.unique(np.asarray(one, dtype=np.int64)) for one in sets]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in kept], dtype=np.int64)])
        return cls(offsets, np.concatenate([*kept, np.zeros(0, dtype=np.int64)]), vocabulary)

    @classmethod
    def of_keys(cls, keys: np.ndarray, clusters: int, vocabulary: int) -> "ActiveSets":
        """From distinct ascending keys ``cluster * V + token``."""
        offsets = np.searchsorted(keys, np.arange(clusters + 1, dtype=np.int64) * vocabulary)
        return cls(offsets.astype(np.int64), keys % vocabulary, vocabulary)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, cluster: int) -> np.ndarray:
        """The tokens of one set, ascending; all of the vocabulary where it is empty."""
        found = self.ids[self.offsets[cluster] : self.offsets[cluster + 1]]
        return found if len(found) else np.arange(self.vocabulary)

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
        """The sets with some tokens in every one of them; empty ones stay the whole vocabulary."""
        check_guards(self.vocabulary, tokens, 0)
        tokens = np.asarray(tokens, dtype=np.int64)
        filled = np.flatnonzero(np.diff(self.offsets))
        more = filled[:, None] * self.vocabulary + tokens[None]
        return ActiveSets.of_keys(np.union1d(self.keys, more), len(self), self.vocabulary)

    def at_least(self, size: int, ranking: np.ndarray) -> "ActiveSets":
        """The sets, those with fewer than `size` tokens filled up with the first of a ranking (V,) of all tokens."""
        check_guards(self.vocabulary, (), size)
        keys = [self.keys]
        for cluster in np.flatnonzero((np.diff(self.offsets) < size) & (np.diff(self.offsets) > 0)):
            own = self[int(cluster)]
            more = ranking[: size + len(own)]
            more = more[~np.isin(more, own)][: size - len(own)]
            keys.append(cluster * self.vocabulary + more)
        return ActiveSets.of_keys(np.unique(np.concatenate(keys)), len(self), self.vocabulary)


def check_guards(vocabulary: int, always: Sequence[int] | np.ndarray, at_least: int) -> None:
    """Refuse, before any work, tokens in every set and a least size of sets that a vocabulary does not have.

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
    """`count_labels` over all contexts, block by block, and how many contexts each cluster has.

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
        found, often = count_labels(assigned, block.labels[:, :top], clusters, contexts.vocabulary)
        keys, inverse = np.unique(np.concatenate([keys, found]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, often]), len(keys)).astype(np.int64)
    return keys, counts, members


def count_labels(
    assignment: np.ndarray, labels: np.ndarray, clusters: int, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of each token as a label, in each cluster.

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
    """All tokens (V,), the most frequent first, of equals the lowest id."""
    return np.argsort(-np.bincount(tokens, counts, vocabulary), kind="stable")
