"""Draft tables: n-gram counts and a lexicon of a model's own translations, which predict tokens without a network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.store import atomic_file, note_of, read_tensors

FORMAT, VERSION = "fastdecode-draft-table", 1
AGAIN = "Make it again with `fastdecode draft-table`."
CODES = 8
"""Counts and probabilities are stored as bytes, this many steps for each factor of two."""


class DraftTableError(ValueError):
    """A draft table cannot be used: it is damaged, or made for another vocabulary."""


@dataclass(frozen=True)
class NGrams:
    """Counts of target tokens behind one and behind two previous tokens.

    Attributes
    ----------
    unigrams : float32 array (V,)
        Probability of each token.
    bigram_offsets : int64 array (V + 1,)
        Offsets of the bigrams behind each token; see `contexts.shards`.
    bigram_ids, bigram_counts : (E2,)
    bigram_totals : float32 array (V,)
        Number of times that each token occurred before another, rare bigrams included.
    context_offsets : int64 array (V + 1,)
    contexts : int64 array (C,)
        The token before the previous one, ascending for each previous token.
    trigram_offsets : int64 array (C + 1,)
    trigram_ids, trigram_counts : (E3,)
    trigram_totals : float32 array (C,)
    """

    unigrams: np.ndarray
    bigram_offsets: np.ndarray
    bigram_ids: np.ndarray
    bigram_counts: np.ndarray
    bigram_totals: np.ndarray
    context_offsets: np.ndarray
    contexts: np.ndarray
    trigram_offsets: np.ndarray
    trigram_ids: np.ndarray
    trigram_counts: np.ndarray
    trigram_totals: np.ndarray

    @classmethod
    def count(cls, sentences: Sequence[np.ndarray], *, vocabulary: int, start: int, least: int = 2) -> "NGrams":
        """Count sentences of ids, each behind two start symbols; n-grams seen less than `least` times are left out.

        Raises
        ------
        ValueError
            If there are no tokens, or an id or the start symbol is outside the vocabulary.
        """
        checked("target tokens", np.array([start]), 0, vocabulary)
        tokens = checked("target tokens", np.concatenate(sentences), 0, vocabulary)
        if not len(tokens):
            raise ValueError("N-grams are counted on sentences: got no token. Give at least one.")
        lengths = np.array([len(ids) for ids in sentences])
        position = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        previous = np.where(position >= 1, np.roll(tokens, 1), start)
        before_previous = np.where(position >= 2, np.roll(tokens, 2), start)

        keys, counts = np.unique(previous * vocabulary + tokens, return_counts=True)
        totals = np.bincount(previous, minlength=vocabulary)
        frequent = counts >= least
        offsets = np.searchsorted(keys[frequent] // vocabulary, np.arange(vocabulary + 1))

        pairs, pair_counts = np.unique(previous * vocabulary + before_previous, return_counts=True)
        pair_of = np.searchsorted(pairs, previous * vocabulary + before_previous)
        triples, triple_counts = np.unique(pair_of * vocabulary + tokens, return_counts=True)
        frequent_triples = triple_counts >= least
        kept_pairs, first = np.unique(triples[frequent_triples] // vocabulary, return_index=True)
        contexts = pairs[kept_pairs]
        return cls(
            unigrams=(np.bincount(tokens, minlength=vocabulary) / len(tokens)).astype(np.float32),
            bigram_offsets=offsets.astype(np.int64),
            bigram_ids=keys[frequent] % vocabulary,
            bigram_counts=counts[frequent].astype(np.float32),
            bigram_totals=totals.astype(np.float32),
            context_offsets=np.searchsorted(contexts // vocabulary, np.arange(vocabulary + 1)).astype(np.int64),
            contexts=contexts % vocabulary,
            trigram_offsets=np.append(first, int(frequent_triples.sum())).astype(np.int64),
            trigram_ids=triples[frequent_triples] % vocabulary,
            trigram_counts=triple_counts[frequent_triples].astype(np.float32),
            trigram_totals=pair_counts[kept_pairs].astype(np.float32),
        )


@dataclass(frozen=True)
class DraftTable:
    """N-grams and a lexicon counted on a model's translations of unlabelled text, for one direction.

    Attributes
    ----------
    ngrams : NGrams
    lexicon : Lexicon
    about : dict
        ``fingerprint`` of the model, ``source`` and ``target`` language, ``sentences`` and ``tokens`` counted, and how.
    """

    ngrams: NGrams
    lexicon: Lexicon
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, x, size = self.ngrams, self.lexicon, self.lexicon.vocabulary
        tables = {
            "lexicon": (x.offsets, x.source_vocabulary, x.ids, (x.probabilities,)),
            "bigrams": (n.bigram_offsets, size, n.bigram_ids, (n.bigram_counts,)),
            "contexts": (n.context_offsets, size, n.contexts, (n.trigram_totals,)),
            "trigrams": (n.trigram_offsets, len(n.contexts), n.trigram_ids, (n.trigram_counts,)),
        }
        problems = [
            name
            for name, values in (("unigrams", n.unigrams), ("bigram_totals", n.bigram_totals))
            if len(values) != size
        ]
        for name, (offsets, number, ids, columns) in tables.items():
            rising = len(offsets) == number + 1 and offsets[0] == 0 and (np.diff(offsets) >= 0).all()
            consistent = rising and offsets[-1] == len(ids) and all(len(values) == len(ids) for values in columns)
            if not consistent or (len(ids) and not 0 <= ids.min() <= ids.max() < size):
                problems.append(name)
        if problems:
            raise DraftTableError(
                f"The parts of a draft table do not fit each other: got {', '.join(problems)} of another size than {size} target "
                "tokens ask for. Count n-grams and lexicon of the same sentences, with `DraftTable.count`."
            )

    @property
    def vocabulary(self) -> int:
        """Size of the target vocabulary."""
        return self.lexicon.vocabulary

    @classmethod
    def count(
        cls,
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        *,
        source_vocabulary: int,
        vocabulary: int,
        start: int,
        about: dict[str, Any] | None = None,
        least: int = 2,
        translations: int = 8,
    ) -> "DraftTable":
        """Count sentence pairs of ids: n-grams seen `least` times, `translations` of each source token."""
        lexicon = Lexicon.fit(sources, targets, source_vocabulary=source_vocabulary, vocabulary=vocabulary)
        ngrams = NGrams.count(targets, vocabulary=vocabulary, start=start, least=least)
        counted = {"sentences": len(targets), "tokens": int(sum(map(len, targets)))}
        return cls(ngrams, lexicon.pruned(translations, least=0.01), (about or {}) | counted)

    def check_vocabulary(self, vocabulary: int) -> None:
        """Refuse a model with another vocabulary.

        Raises
        ------
        DraftTableError
        """
        if vocabulary != self.vocabulary:
            raise DraftTableError(
                f"The draft table is of another vocabulary: it knows {self.vocabulary} target tokens, the model has "
                f"{vocabulary}. Make one for this model with `fastdecode draft-table`."
            )

    def check_sources(self, ids: np.ndarray) -> None:
        """Refuse source tokens (N,) that the lexicon does not know.

        Raises
        ------
        DraftTableError
        """
        outside = ids[(ids < 0) | (ids >= self.lexicon.source_vocabulary)]
        if len(outside):
            raise DraftTableError(
                f"The draft table is of another vocabulary: it knows {self.lexicon.source_vocabulary} source tokens, got the id "
                f"{outside[0]}. Make one for this model with `fastdecode draft-table`."
            )

    # -- on disk

    def save(self, path: str | Path) -> None:
        """Write a safetensors file of bytes and short integers."""
        from safetensors.numpy import save_file

        n, x = self.ngrams, self.lexicon
        narrow = np.uint16 if max(self.vocabulary, x.source_vocabulary) <= 1 << 16 else np.int32
        tensors = {
            "lexicon.numbers": _narrow(np.diff(x.offsets)),
            "lexicon.ids": x.ids.astype(narrow),
            "lexicon.codes": _encode(1 / np.maximum(x.probabilities, 1e-9)),
            "unigram.codes": _encode(1 / np.maximum(n.unigrams, 1e-9)),
            "bigram.numbers": _narrow(np.diff(n.bigram_offsets)),
            "bigram.ids": n.bigram_ids.astype(narrow),
            "bigram.codes": _encode(n.bigram_counts),
            "bigram.total_codes": _encode(np.maximum(n.bigram_totals, 1)),
            "context.numbers": _narrow(np.diff(n.context_offsets)),
            "context.ids": n.contexts.astype(narrow),
            "context.total_codes": _encode(n.trigram_totals),
            "trigram.numbers": _narrow(np.diff(n.trigram_offsets)),
            "trigram.ids": n.trigram_ids.astype(narrow),
            "trigram.codes": _encode(n.trigram_counts),
        }
        header = {"version": VERSION, "vocabulary": self.vocabulary, "about": self.about}
        with atomic_file(path) as temporary:
            save_file(tensors, temporary, metadata={FORMAT: json.dumps(header, sort_keys=True)})

    @classmethod
    def load(cls, path: str | Path) -> "DraftTable":
        """Read what `save` wrote.

        Raises
        ------
        DraftTableError
            If the file is missing, damaged or no draft table.
        """
        tensors, metadata = read_tensors(path, DraftTableError, AGAIN)
        header = note_of(metadata, FORMAT)
        if header.get("version") != VERSION:
            raise DraftTableError(
                f"Not a draft table of version {VERSION}: {path} says version {header.get('version')!r}. {AGAIN}"
            )
        try:
            return cls._of_tensors(tensors, int(header["vocabulary"]), dict(header["about"]))
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise DraftTableError(f"The draft table is damaged: {path}: {error!r}. {AGAIN}") from error

    @classmethod
    def _of_tensors(cls, tensors: dict[str, np.ndarray], vocabulary: int, about: dict[str, Any]) -> "DraftTable":
        for name, values in tensors.items():
            if values.ndim != 1:
                raise ValueError(f"{name} of one dimension is needed, got the shape {values.shape}")
        ids = {name: tensors[f"{name}.ids"].astype(np.int64) for name in ("lexicon", "bigram", "context", "trigram")}
        offsets = {name: _offsets(tensors[f"{name}.numbers"], len(ids[name])) for name in ids}
        decoded = {
            name: np.exp2(codes.astype(np.float32) / CODES) for name, codes in tensors.items() if name.endswith("codes")
        }
        ngrams = NGrams(
            unigrams=1 / decoded["unigram.codes"],
            bigram_offsets=offsets["bigram"],
            bigram_ids=ids["bigram"],
            bigram_counts=decoded["bigram.codes"],
            bigram_totals=decoded["bigram.total_codes"],
            context_offsets=offsets["context"],
            contexts=ids["context"],
            trigram_offsets=offsets["trigram"],
            trigram_ids=ids["trigram"],
            trigram_counts=decoded["trigram.codes"],
            trigram_totals=decoded["context.total_codes"],
        )
        return cls(ngrams, Lexicon(offsets["lexicon"], ids["lexicon"], 1 / decoded["lexicon.codes"], vocabulary), about)


def _encode(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(CODES * np.log2(values)), 0, 255).astype(np.uint8)


def _narrow(numbers: np.ndarray) -> np.ndarray:
    """The integers in the smallest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _offsets(numbers: np.ndarray, total: int) -> np.ndarray:
    offsets = np.concatenate([[0], np.cumsum(numbers, dtype=np.int64)])
    if offsets[-1] != total or (np.diff(offsets) < 0).any():
        raise ValueError(f"{total} entries, numbered as {offsets[-1]}")
    return offsets
