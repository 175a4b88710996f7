"""A shortlist of candidates for each sentence (Devlin, 2017, sec. 3); one file because projection and scorer share the lists."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from fastdecode_lib.core import Candidates, Model, Projection, Source
from fastdecode_lib.kernels.matrices import Matrix, scratch
from fastdecode_lib.kernels.top_k import SPAN, best_tokens, log_probabilities
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.projections.average import per_network
from fastdecode_lib.projections.queries import ban, best_first, check_width, checked_query, only_output
from fastdecode_lib.store import ModelFiles

FIRST_WORD = 3
"""The first id of a word, the most frequent one; lower ids are the end, the unknown word and the start."""
TOP = 20
"""Translations of each source word, by default."""
FREQUENT = 100
"""How many of the most frequent target tokens are in every list, by default."""


@dataclass(frozen=True)
class Lexical:
    """Candidates from a lexicon (Devlin, 2017): 20 translations of each source word, 100 frequent tokens; longer lists lose less.

    A sentence uses only some rows of the output matrix: those of the `top` best translations of each of its words, and those
    of the `always` active tokens. The paper takes the top 20 of word alignments, about 500 of 80,000 words. Ours: the 100 most
    frequent tokens are always active, too; ``frequent=0`` is the paper's list.

    Attributes
    ----------
    weight : torch tensor, numpy array (V, D) or packed matrix
    bias : torch tensor or numpy array (V,) or None
    lexicon : Lexicon
        At most `top` entries a word.
    always : int array, ascending
    """

    weight: Any
    bias: Any
    lexicon: Lexicon
    always: np.ndarray
    bound_lists: "WeakValueDictionary[bytes, _Shortlist]" = field(
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )
    """The lists of sentences that are bound now; a beam binds its sentences again whenever its rows change."""

    name, needs = "lexical", "lexicon"

    @classmethod
    def make(
        cls,
        model: Model,
        files: ModelFiles,
        *,
        top: int | None = None,
        frequent: int | None = None,
        file: str | None = None,
    ) -> Projection:
        """Candidate lists from the model's lexicon, from that of its draft table, or from a vmap file.

        Parameters
        ----------
        top : int, optional
            Translations of each source token; 20 by default, or all of a vmap file, as in CTranslate2.
        frequent : int, optional
            Most frequent tokens that are in every list; 100 by default. A vmap file has its own. With 1,000, 91 of
            100 sentences spread over the dev split (en-de) keep the bundled model's output; by default 71.
        file : str, optional
            A vmap file for the model's tokenizer.
        """
        lexicon, always = files.lexicon, None
        most_frequent = FREQUENT if frequent is None else frequent
        if file is not None:
            if files.tokenizer is None or frequent is not None:
                raise ValueError(
                    "A vmap file has its own frequent tokens, and needs the model's tokenizer: got frequent, or no tokenizer. Use "
                    "lexical:file=FILE with `translate`, without frequent."
                )
            pieces = files.tokenizer.pieces(range(model.outputs[0].vocabulary))
            sources = files.tokenizer.source_tokens(range(source_vocabulary(model)))
            lexicon, every_list = Lexicon.from_vmap(Path(file).expanduser(), sources, pieces)
            always = (*every_list, *files.end)
            top = max(1, int(np.diff(lexicon.offsets).max(initial=1))) if top is None else top
        elif lexicon is None and (table := files.table()) is not None:
            lexicon, by_frequency = table.lexicon, np.argsort(-table.ngrams.unigrams, kind="stable")
            always = (*by_frequency[: max(0, most_frequent)].tolist(), *files.end)
        if lexicon is None:
            raise ValueError(
                "The projection lexical needs a lexicon: got a model without one. Use a word-based model, such as sharp-s4, "
                "count the outputs of this one (fastdecode draft-table), or name its vmap file: lexical:file=FILE."
            )
        knobs = {"top": TOP if top is None else top, "frequent": most_frequent}
        return per_network(model, lambda part: cls.of(part, lexicon, always=always, **knobs))

    @classmethod
    def of(
        cls,
        model: Model,
        lexicon: Lexicon,
        *,
        top: int = TOP,
        frequent: int = FREQUENT,
        always: Sequence[int] | None = None,
    ) -> "Lexical":
        """The candidate lists of a model.

        Parameters
        ----------
        model : Model
            With one output, in torch or numpy.
        lexicon : Lexicon
            A lexicon of the model's own vocabularies.
        top : int
            Translations of each source word.
        frequent : int
            How many of the most frequent target words are in every list, in addition to the end and the unknown word.
        always : sequence of int, optional
            The ids that are in every list instead; for models of subwords, whose ids are not ordered by frequency.

        Raises
        ------
        ValueError
            If the lexicon is another vocabulary's, the model has several outputs, or a number is out of range.
        """
        vocabulary, source_words = only_output(model).vocabulary, lexicon.source_vocabulary
        for side, known, expected in (
            ("target", lexicon.vocabulary, vocabulary),
            ("source", source_words, source_vocabulary(model, source_words)),
        ):
            if known != expected:
                raise ValueError(
                    f"The lexicon is of another vocabulary: got one of {known} {side} words, the model has {expected}. Use the "
                    "lexicon saved with the model."
                )
        for name, value, least in (("top", top, 1), ("frequent", frequent, 0)):
            if value < least:
                raise ValueError(f"lexical needs {name} >= {least}, got {value}. Use lexical:top=20.")
        if always is None:
            words = np.arange(FIRST_WORD, min(FIRST_WORD + frequent, vocabulary))
            always = [*range(FIRST_WORD - 1), *words]
        always_active = np.unique(np.array(always, dtype=np.int64))
        return cls(model.outputs[0].weight, model.outputs[0].bias, lexicon.pruned(top), always_active)

    def candidates(self, source: np.ndarray) -> np.ndarray:
        """The active tokens of a sentence of source ids (S,), ascending."""
        return np.union1d(self.lexicon.candidates(source), self.always)

    def bind(self, source: Source | None) -> "LexicalScorer":
        """The lists of a batch of sources, and the rows of the output matrix that they need.

        Raises
        ------
        ValueError
            If there is no source, or one with ids the lexicon does not know.
        """
        if source is None:
            raise ValueError("Lexical needs source sentences: got none. Use another projection for a language model.")
        shortlists = tuple(self._shortlist(source.ids[row, :length]) for row, length in enumerate(source.lengths))
        return LexicalScorer(self, shortlists[:1] if len(set(map(id, shortlists))) == 1 else shortlists)

    def _shortlist(self, source: np.ndarray) -> "_Shortlist":
        source_words = self.lexicon.source_vocabulary
        if len(source) and not 0 <= source.min() <= source.max() < source_words:
            unknown = source[(source < 0) | (source >= source_words)][0]
            raise ValueError(
                f"The lexicon is of another vocabulary: got the source id {unknown}, it has {source_words} source words. Use the "
                "lexicon saved with the model."
            )
        key = source.astype(np.int64).tobytes()
        shortlist = self.bound_lists.get(key)
        if shortlist is None:
            ids = self.candidates(source)
            if not len(ids):
                raise ValueError(
                    f"The lexicon has no candidate for the source ids {source.tolist()}: got always=(). Give the end, at least."
                )
            shortlist = self.bound_lists[key] = _Shortlist(ids, *self._rows(ids))
        return shortlist

    def _rows(self, ids: np.ndarray) -> tuple[Any, Any]:
        """Weight and bias of the tokens `ids`; a packed matrix holds its own bias."""
        if isinstance(self.weight, Matrix):
            return self.weight.rows(ids), None
        index: Any = ids
        if not isinstance(self.weight, np.ndarray):
            import torch

            index = torch.from_numpy(ids).to(self.weight.device)
        return self.weight[index], None if self.bias is None else self.bias.reshape(-1)[index]

    @property
    def memory_bytes(self) -> int:
        """Bytes of the lexicon and the list of always active tokens; the output matrix is the model's."""
        arrays = (self.lexicon.offsets, self.lexicon.ids, self.lexicon.probabilities, self.always)
        return sum(array.nbytes for array in arrays)


def source_vocabulary(model: Any, otherwise: int | None = None) -> int:
    """Number of source ids of a model; if it does not say, `otherwise`, or the number of target ids."""
    otherwise = model.outputs[0].vocabulary if otherwise is None else otherwise
    return int(getattr(getattr(model, "architecture", None), "source_vocabulary", otherwise))


@dataclass(frozen=True)
class _Shortlist:
    """A sentence's candidates (K,), ascending, with their rows (K, D) of weight and bias."""

    ids: np.ndarray
    weight: Any
    bias: Any


@dataclass(frozen=True)
class LexicalScorer:
    """`Lexical` bound to sources: all hidden vectors belong to one sentence, or each to a sentence of its own."""

    projection: Lexical
    shortlists: tuple[_Shortlist, ...]

    def lists(self, rows: int) -> np.ndarray:
        """The active ids of `rows` hidden vectors, ascending, (N, K) padded with -1."""
        longest = max(len(shortlist.ids) for shortlist in self.shortlists)
        ids = np.full((len(self.shortlists), longest), -1, dtype=np.int64)
        for row, shortlist in enumerate(self.shortlists):
            ids[row, : len(shortlist.ids)] = shortlist.ids
        return ids if len(ids) == rows else np.broadcast_to(ids, (rows, longest))

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best active tokens of hidden (N, D); the normaliser runs over the active ones, banned ones included."""
        self._check(hidden)
        if isinstance(self.projection.weight, Matrix):
            return self._top_k_packed(np.ascontiguousarray(hidden, dtype=np.float32), k, banned, normalise)
        ids, scores = self.lists(len(hidden)), self._scores(hidden)
        log_normaliser = _log_sum(scores) if normalise else None
        if banned is not None:
            ban(scores, ids, banned)
        best, chosen = best_first(scores, ids, k)
        return Candidates(chosen, best, (ids >= 0).sum(1), log_normaliser, "active")

    def _top_k_packed(self, hidden: np.ndarray, k: int, banned: np.ndarray | None, normalise: bool) -> Candidates:
        """`top_k` on the compiled engine, one call for adjacent rows with the same list."""
        rows = len(hidden)
        banned_ids = checked_query(k, banned, rows, self.projection.lexicon.vocabulary)
        ids, best = np.empty((rows, k), np.int64), np.empty((rows, k), np.float32)
        active, log_normaliser = np.empty(rows, np.int64), np.empty(rows if normalise else 0)
        for shortlist, block in self._blocks(rows):
            matrix, size, count = shortlist.weight, len(shortlist.ids), block.stop - block.start
            best_tokens(
                hidden[block], matrix.record, size, shortlist.ids, banned_ids if len(banned_ids) == 1 else banned_ids[block],
                scratch(count, matrix.shape[1]), np.empty((count, matrix.outputs), np.float32),
                np.empty(-(-size // SPAN), np.float32), ids[block], best[block], log_normaliser[block],
            )  # fmt: skip
            active[block] = size
        return Candidates(ids, best, active, log_normaliser if normalise else None, "active")

    def _blocks(self, rows: int) -> Iterator[tuple[_Shortlist, slice]]:
        """Each list with its adjacent rows."""
        if len(self.shortlists) == 1:
            if rows:
                yield self.shortlists[0], slice(0, rows)
            return
        first = 0
        for _, group in groupby(self.shortlists, key=id):
            neighbours = list(group)
            yield neighbours[0], slice(first, first + len(neighbours))
            first += len(neighbours)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M) among the active tokens; minus infinity for others."""
        self._check(hidden)
        if isinstance(self.projection.weight, Matrix):
            return self._log_probs_packed(np.ascontiguousarray(hidden, dtype=np.float32), ids)
        scores = self._scores(hidden)
        log_probs = np.full(ids.shape, -np.inf, dtype=scores.dtype)
        normalised = scores - _log_sum(scores)[:, None]
        for row, (candidates, row_ids) in enumerate(zip(self.lists(len(hidden)), ids, strict=True)):
            listed = candidates[candidates >= 0]
            place = np.minimum(np.searchsorted(listed, row_ids), len(listed) - 1)
            log_probs[row] = np.where(listed[place] == row_ids, normalised[row, place], -np.inf)
        return log_probs

    def _log_probs_packed(self, hidden: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """`log_probs` on the compiled engine."""
        log_probs = np.full(ids.shape, -np.inf, np.float32)
        for shortlist, block in self._blocks(len(hidden)):
            matrix, size = shortlist.weight, len(shortlist.ids)
            places = np.minimum(np.searchsorted(shortlist.ids, ids[block]), size - 1)
            block_log_probs = np.empty(places.shape, np.float32)
            log_probabilities(
                hidden[block], matrix.record, size, places, scratch(len(places), matrix.shape[1]),
                np.empty((len(places), matrix.outputs), np.float32), block_log_probs,
            )  # fmt: skip
            log_probs[block] = np.where(shortlist.ids[places] == ids[block], block_log_probs, -np.inf)
        return log_probs

    def _check(self, hidden: Any) -> None:
        check_width(hidden, self.projection.weight.shape[1])
        if len(self.shortlists) not in (1, len(hidden)):
            raise ValueError(
                f"Hidden vectors and sources do not fit: got {len(hidden)} for {len(self.shortlists)} sentences. Bind one "
                "source, or as many as there are vectors."
            )

    def _scores(self, hidden: Any) -> np.ndarray:
        """Scores (N, K) in the order of the lists, padded with -inf; float32 at least."""
        if len(self.shortlists) == 1:
            return _product(self.shortlists[0], hidden)
        parts = [_product(shortlist, hidden[row : row + 1]) for row, shortlist in enumerate(self.shortlists)]
        scores = np.full((len(parts), max(part.shape[1] for part in parts)), -np.inf, dtype=parts[0].dtype)
        for row, part in enumerate(parts):
            scores[row, : part.shape[1]] = part[0]
        return scores


def _product(shortlist: _Shortlist, hidden: Any) -> np.ndarray:
    """Scores (N, K) of one sentence's candidates, on the host."""
    scores = hidden @ shortlist.weight.T
    if shortlist.bias is not None:
        scores = scores + shortlist.bias
    if isinstance(scores, np.ndarray):
        return scores
    return (scores.double() if scores.element_size() > 4 else scores.float()).detach().cpu().numpy()


def _log_sum(scores: np.ndarray) -> np.ndarray:
    highest = scores.max(1, keepdims=True)
    total: np.ndarray = np.log(np.exp(scores - highest).sum(1)) + highest[:, 0]
    return total
