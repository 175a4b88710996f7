"""Which target tokens translate a source token: IBM model 1, and CTranslate2's vmap files.

The expectation-maximisation is IBM model 1 (Brown et al., 1993) with the fixed prior of fast_align (Dyer et al., 2013) that
favours links near the diagonal, which keeps the sentences of a paragraph apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.store import write_text

SHARPNESS = 8.0
"""How fast the prior falls off the diagonal; 0 is plain IBM model 1."""


@dataclass(frozen=True)
class Lexicon:
    """For each source token the target tokens that translate it, best first.

    Attributes
    ----------
    offsets : int64 array (source vocabulary + 1,)
        The entries of source token s are ``offsets[s]`` to ``offsets[s + 1]``.
    ids : int64 array (E,)
    probabilities : float32 array (E,)
        p(target token | source token).
    vocabulary : int
        Size of the target vocabulary.
    """

    offsets: np.ndarray
    ids: np.ndarray
    probabilities: np.ndarray
    vocabulary: int

    @property
    def source_vocabulary(self) -> int:
        """Number of source tokens."""
        return len(self.offsets) - 1

    @property
    def owners(self) -> np.ndarray:
        """The source token of each entry, (E,)."""
        return np.repeat(np.arange(self.source_vocabulary), np.diff(self.offsets))

    @classmethod
    def of_entries(
        cls, sources: np.ndarray, ids: np.ndarray, probabilities: np.ndarray, source_vocabulary: int, vocabulary: int
    ) -> "Lexicon":
        """A lexicon of unordered entries."""
        order = np.lexsort((ids, -probabilities, sources))
        offsets = np.searchsorted(sources[order], np.arange(source_vocabulary + 1)).astype(np.int64)
        return cls(offsets, ids[order].astype(np.int64), probabilities[order].astype(np.float32), vocabulary)

    @classmethod
    def fit(
        cls,
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        *,
        source_vocabulary: int,
        vocabulary: int,
        iterations: int = 10,
        sharpness: float = SHARPNESS,
    ) -> "Lexicon":
        """IBM model 1 of sentence pairs of ids, by expectation-maximisation; memory grows with the sum of S * T.

        Raises
        ------
        ValueError
            If there are no pairs, the two sides differ in number, or an id is outside its vocabulary.
        """
        from fastdecode_lib.kernels.drafts import expectation

        if not sources or len(sources) != len(targets):
            raise ValueError(
                f"A lexicon needs sentence pairs: got {len(sources)} sources and {len(targets)} targets. Give one target for "
                "each source, at least one."
            )
        checked("source tokens", np.concatenate(sources), 0, source_vocabulary)
        checked("target tokens", np.concatenate(targets), 0, vocabulary)
        keys_by_pair = [
            np.add.outer(t.astype(np.int64), s.astype(np.int64) * vocabulary).ravel()
            for s, t in zip(sources, targets, strict=True)
        ]
        entries = np.unique(np.concatenate([np.unique(chunk) for chunk in _chunks(keys_by_pair)]))
        links = np.concatenate([np.searchsorted(entries, chunk).astype(np.int32) for chunk in _chunks(keys_by_pair)])
        source_lengths, target_lengths = (np.array([len(ids) for ids in side]) for side in (sources, targets))
        owners = entries // vocabulary
        probabilities = np.ones(len(entries))
        for _ in range(iterations):
            counts = np.zeros(len(entries))
            expectation(links, source_lengths, target_lengths, probabilities, sharpness, counts)
            probabilities = counts / np.bincount(owners, counts)[owners]
        return cls.of_entries(owners, entries % vocabulary, probabilities, source_vocabulary, vocabulary)

    def pruned(self, most: int, least: float = 0.0) -> "Lexicon":
        """At most `most` entries for each source token, none of a probability below `least`."""
        rank = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        keep = (rank < most) & (self.probabilities >= least)
        return Lexicon.of_entries(
            self.owners[keep], self.ids[keep], self.probabilities[keep], self.source_vocabulary, self.vocabulary
        )

    def candidates(self, source: np.ndarray) -> np.ndarray:
        """The target tokens that translate any of the source tokens (S,), ascending."""
        translations = [self.ids[self.offsets[token] : self.offsets[token + 1]] for token in np.unique(source)]
        return np.unique(np.concatenate(translations)) if translations else np.zeros(0, dtype=np.int64)

    # -- CTranslate2's vocabulary maps

    def to_vmap(
        self, path: str | Path, source_pieces: Sequence[str], pieces: Sequence[str], always: Sequence[int] = ()
    ) -> None:
        """Write a vmap file: a source token, a tab, its target tokens; an empty source for the tokens of `always`."""
        lines = ["\t" + " ".join(pieces[i] for i in always)] if always else []
        for token in np.flatnonzero(np.diff(self.offsets)).tolist():
            ids = self.ids[self.offsets[token] : self.offsets[token + 1]]
            lines.append(f"{source_pieces[token]}\t{' '.join(pieces[i] for i in ids)}")
        write_text(path, "".join(f"{line}\n" for line in lines))

    @classmethod
    def from_vmap(
        cls, path: str | Path, source_pieces: Sequence[str], pieces: Sequence[str]
    ) -> tuple["Lexicon", tuple[int, ...]]:
        """The lexicon of a vmap file, its probabilities falling with the order, and the tokens that every shortlist has.

        The targets of a phrase of several source tokens are added to its last token.

        Raises
        ------
        ValueError
            If a line has no tab or names a token that the vocabulary lacks.
        """
        source_ids = {piece: i for i, piece in enumerate(source_pieces)}
        ids = {piece: i for i, piece in enumerate(pieces)}
        always: tuple[int, ...] = ()
        weights: dict[tuple[int, int], float] = {}
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8.") from error
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            key, tab, values = line.partition("\t")
            if not tab:
                raise ValueError(
                    f"{path}, line {number}: a vmap line is source tokens, a tab, target tokens; got {line!r}. Correct the line."
                )
            words = values.split(" ") if values else []
            unknown = [word for word in words if word not in ids] + [
                w for w in key.split(" ")[-1:] if key and w not in source_ids
            ]
            if unknown:
                raise ValueError(
                    f"{path}, line {number}: the model's vocabulary lacks {unknown[0]!r}. Use the vmap file made for this model."
                )
            if not key:
                always = tuple(ids[word] for word in words)
                continue
            for rank, word in enumerate(words):
                entry = (source_ids[key.split(" ")[-1]], ids[word])
                weights[entry] = max(weights.get(entry, 0.0), 1 / (rank + 1))
        sources, targets = (np.array([entry[i] for entry in weights], dtype=np.int64) for i in (0, 1))
        scores = np.array(list(weights.values()))
        totals = np.bincount(sources, scores, minlength=len(source_pieces))
        return cls.of_entries(sources, targets, scores / totals[sources], len(source_pieces), len(pieces)), always


def _chunks(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays, 512 at a time, joined."""
    return [np.concatenate(arrays[start : start + 512]) for start in range(0, len(arrays), 512)]
