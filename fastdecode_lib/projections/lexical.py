"""A short candidate list for each sentence (Devlin, 2017, sec. 3); one file because projection and scorer share the lists."""

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
"""Ids of words begin here, the most frequent first; below stand the end, the unknown word and the start."""
TOP = 20
"""Translations of each source word, unless said otherwise."""
FREQUENT = 100
"""How many of the most frequent target tokens are in every list, unless said otherwise."""


@dataclass(frozen=True)
class Lexical:
    """Candidates of the source's words, the 20 likeliest of each, and the 100 most frequent tokens (Devlin, 2017).

    A sentence uses only their rows of the output matrix: those of the `top` best translations of each of its words and of the
    tokens that are `always` there. The paper has the top 20 of word alignments, about 500 of 80,000 words.

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
    remembered: "WeakValueDictionary[bytes, _Listed]" = field(
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )
    """The lists of sentences that are bound: a beam binds them anew at every step."""

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
        """Candidate lists by the model's lexicon, by that of its draft table, or by a vmap file.

        Parameters
        ----------
        top : int, optional
            Translations of each source token: 20, or all that a vmap file has, as CTranslate2 takes them.
        frequent : int, optional
            Most frequent tokens that are in every list: 100. A vmap file says itself which they are.
        file : str, optional
            A vmap file for the model's tokenizer.
        """
        lexicon, always = files.lexicon, None
        most_frequent = FREQUENT if frequent is None else frequent
        if file is not None:
            if files.tokenizer is None or frequent is not None:
                raise ValueError(
                    "A vmap file says which tokens are in every list, and needs the model's tokenizer: got frequent, or no "
                    "tokenizer. Use lexical:file=FILE by way of `translate`, without frequent."
                )
            pieces = files.tokenizer.pieces(range(model.outputs[0].vocabulary))
            sources = files.tokenizer.source_tokens(range(source_vocabulary(model)))
            lexicon, listed = Lexicon.from_vmap(Path(file).expanduser(), sources, pieces)
            always = (*listed, *files.end)
            top = max(1, int(np.diff(lexicon.offsets).max(initial=1))) if top is None else top
        elif lexicon is None and (table := files.table()) is not None:
            lexicon, likely = table.lexicon, np.argsort(-table.ngrams.unigrams, kind="stable")
            always = (*likely[: max(0, most_frequent)].tolist(), *files.end)
        if lexicon is None:
            raise ValueError(
                "The projection lexical needs a lexicon: got a model without one. Use a word-based model, such as sharp-s4, "
                "count what this one says (fastdecode draft-table), or name a vmap file of it: lexical:file=FILE."
            )
        numbers = {"top": TOP if top is None else top, "frequent": most_frequent}
        return per_network(model, lambda part: cls.of(part, lexicon, always=always, **numbers))

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
            Of the model's own vocabularies.
        top : int
            Translations of each source word.
        frequent : int
            The most frequent target words, which are in every list beside the end and the unknown word.
        always : sequence of int, optional
            The ids that are in every list instead, as a model of pieces needs it, whose ids do not go by frequency.

        Raises
        ------
        ValueError
            If the lexicon is another vocabulary's, the model has several outputs, or a number is out of range.
        """
        vocabulary = only_output(model).vocabulary
        if lexicon.vocabulary != vocabulary:
            raise ValueError(
                f"The lexicon is of another vocabulary: got one of {lexicon.vocabulary} target words, the model has "
                f"{vocabulary}. Use the lexicon saved with the model."
            )
        expected = source_vocabulary(model, lexicon.source_vocabulary)
        if lexicon.source_vocabulary != expected:
            raise ValueError(
                f"The lexicon is of another vocabulary: got one of {lexicon.source_vocabulary} source words, the model has "
                f"{expected}. Use the lexicon saved with the model."
            )
        for what, value, least in (("top", top, 1), ("frequent", frequent, 0)):
            if value < least:
                raise ValueError(f"lexical needs {what} >= {least}, got {value}. Use lexical:top=20.")
        if always is None:
            words = np.arange(FIRST_WORD, min(FIRST_WORD + frequent, vocabulary))
            always = [*range(FIRST_WORD - 1), *words]
        listed = np.unique(np.array(always, dtype=np.int64))
        return cls(model.outputs[0].weight, model.outputs[0].bias, lexicon.pruned(top), listed)

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
        listed = tuple(self._listed(source.ids[row, :length]) for row, length in enumerate(source.lengths))
        return LexicalScorer(self, listed[:1] if all(one is listed[0] for one in listed) else listed)

    def _listed(self, source: np.ndarray) -> "_Listed":
        known = self.lexicon.source_vocabulary
        if len(source) and not 0 <= source.min() <= source.max() < known:
            wrong = source[(source < 0) | (source >= known)][0]
            raise ValueError(
                f"The lexicon is of another vocabulary: got the source id {wrong}, it has {known} source words. Use the lexicon "
                "saved with the model."
            )
        key = source.astype(np.int64).tobytes()
        listed = self.remembered.get(key)
        if listed is None:
            ids = self.candidates(source)
            listed = self.remembered[key] = _Listed(ids, *self._rows(ids))
        return listed

    def _rows(self, ids: np.ndarray) -> tuple[Any, Any]:
        """Weight and bias of some tokens; a packed matrix holds its own bias."""
        if isinstance(self.weight, Matrix):
            return self.weight.rows(ids), None
        at: Any = ids
        if not isinstance(self.weight, np.ndarray):
            import torch

            at = torch.from_numpy(ids).to(self.weight.device)
        return self.weight[at], None if self.bias is None else self.bias.reshape(-1)[at]

    @property
    def memory_bytes(self) -> int:
        """Bytes of the lexicon and the list of tokens that are always there; the output matrix is the model's."""
        arrays = (self.lexicon.offsets, self.lexicon.ids, self.lexicon.probabilities, self.always)
        return sum(array.nbytes for array in arrays)


def source_vocabulary(model: Any, otherwise: int | None = None) -> int:
    """Number of source ids that a model knows; where it does not say, `otherwise`, or the target's."""
    otherwise = model.outputs[0].vocabulary if otherwise is None else otherwise
    return int(getattr(getattr(model, "architecture", None), "source_vocabulary", otherwise))


@dataclass(frozen=True)
class _Listed:
    """A sentence's candidates (K,), ascending, with their rows (K, D) of weight and bias."""

    ids: np.ndarray
    weight: Any
    bias: Any


@dataclass(frozen=True)
class LexicalScorer:
    """`Lexical` bound to sources: hidden vectors are those of the one sentence, or one for each of several."""

    projection: Lexical
    sentences: tuple[_Listed, ...]

    def lists(self, rows: int) -> np.ndarray:
        """The active ids of `rows` hidden vectors, ascending, (N, K) padded with -1."""
        longest = max(len(sentence.ids) for sentence in self.sentences)
        ids = np.full((len(self.sentences), longest), -1, dtype=np.int64)
        for row, sentence in enumerate(self.sentences):
            ids[row, : len(sentence.ids)] = sentence.ids
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
        """`top_k` on the compiled engine, one call for neighbouring rows of the same sentence."""
        rows = len(hidden)
        refused = checked_query(k, banned, rows, self.projection.lexicon.vocabulary)
        ids, best = np.empty((rows, k), np.int64), np.empty((rows, k), np.float32)
        active, log_normaliser = np.empty(rows, np.int64), np.empty(rows if normalise else 0)
        for listed, own in self._neighbours(rows):
            matrix, known, number = listed.weight, len(listed.ids), own.stop - own.start
            best_tokens(
                hidden[own], matrix.record, known, listed.ids, refused if len(refused) == 1 else refused[own],
                scratch(number, matrix.shape[1]), np.empty((number, matrix.outputs), np.float32),
                np.empty(-(-known // SPAN), np.float32), ids[own], best[own], log_normaliser[own],
            )  # fmt: skip
            active[own] = known
        return Candidates(ids, best, active, log_normaliser if normalise else None, "active")

    def _neighbours(self, rows: int) -> Iterator[tuple[_Listed, slice]]:
        """Each list, with the rows that stand side by side and have it."""
        if len(self.sentences) == 1:
            yield from [(self.sentences[0], slice(0, rows))] * (rows > 0)
            return
        first = 0
        for _, group in groupby(self.sentences, key=id):
            same = list(group)
            yield same[0], slice(first, first + len(same))
            first += len(same)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M) among the active tokens; minus infinity for others."""
        self._check(hidden)
        if isinstance(self.projection.weight, Matrix):
            return self._log_probs_packed(np.ascontiguousarray(hidden, dtype=np.float32), ids)
        scores = self._scores(hidden)
        found = np.full(ids.shape, -np.inf, dtype=scores.dtype)
        normalised = scores - _log_sum(scores)[:, None]
        for row, (own, wanted) in enumerate(zip(self.lists(len(hidden)), ids, strict=True)):
            active = own[own >= 0]
            place = np.minimum(np.searchsorted(active, wanted), len(active) - 1)
            found[row] = np.where(active[place] == wanted, normalised[row, place], -np.inf)
        return found

    def _log_probs_packed(self, hidden: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """`log_probs` on the compiled engine."""
        found = np.full(ids.shape, -np.inf, np.float32)
        for listed, own in self._neighbours(len(hidden)):
            matrix, known = listed.weight, len(listed.ids)
            places = np.minimum(np.searchsorted(listed.ids, ids[own]), known - 1)
            scored = np.empty(places.shape, np.float32)
            log_probabilities(
                hidden[own], matrix.record, known, places, scratch(len(places), matrix.shape[1]),
                np.empty((len(places), matrix.outputs), np.float32), scored,
            )  # fmt: skip
            found[own] = np.where(listed.ids[places] == ids[own], scored, -np.inf)
        return found

    def _check(self, hidden: Any) -> None:
        check_width(hidden, self.projection.weight.shape[1])
        if len(self.sentences) not in (1, len(hidden)):
            raise ValueError(
                f"Hidden vectors and sources do not fit: got {len(hidden)} for {len(self.sentences)} sentences. Bind one "
                "source, or as many as there are vectors."
            )

    def _scores(self, hidden: Any) -> np.ndarray:
        """Raw scores (N, K) in the order of the lists, -inf at their ends; float32 at least."""
        self._check(hidden)
        if len(self.sentences) == 1:
            return _product(self.sentences[0], hidden)
        parts = [_product(sentence, hidden[row : row + 1]) for row, sentence in enumerate(self.sentences)]
        scores = np.full((len(parts), max(part.shape[1] for part in parts)), -np.inf, dtype=parts[0].dtype)
        for row, part in enumerate(parts):
            scores[row, : part.shape[1]] = part[0]
        return scores


def _product(sentence: _Listed, hidden: Any) -> np.ndarray:
    """Scores (N, K) of one sentence's candidates, on the host."""
    scores = hidden @ sentence.weight.T
    if sentence.bias is not None:
        scores = scores + sentence.bias
    if isinstance(scores, np.ndarray):
        return scores
    return (
        scores.detach().double().cpu().numpy() if scores.element_size() > 4 else scores.detach().float().cpu().numpy()
    )


def _log_sum(scores: np.ndarray) -> np.ndarray:
    highest = scores.max(1, keepdims=True)
    total: np.ndarray = np.log(np.exp(scores - highest).sum(1)) + highest[:, 0]
    return total
