"""Scores of the next token, added up: n-grams and a lexicon of a draft table, and a draft head."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastdecode_lib.core import Output
from fastdecode_lib.drafts.head import HEADS, DraftHead, DraftHeadError
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.kernels.matrices import Matrix, Precision, padded, scratch

NGRAM, LEXICON, HEAD = "ngram", "lexicon", "head"
SCORES = (NGRAM, LEXICON, HEAD)

NGRAM_WEIGHT, LEXICON_WEIGHT, HEAD_WEIGHT = 1.0, 1.8, 6.0
REACH, DISCOUNT, FLOOR = 1.2, 0.8, 1e-3
BIGRAM_PRIOR, TRIGRAM_PRIOR = 5.0, 1.0
HEAD_REACH, HEAD_FLOOR = 6.0, -9.0
DOUBT = 0.05
"""Probability by a head that a draft token and all before it are right, below which it is not worth a position."""

Scratch = tuple[np.ndarray, np.ndarray]
"""Buffers that a kernel writes to and clears again: scores (4, V) and the tokens that have a score (V,)."""


class Scores:
    """The token with the highest sum of log-probabilities under a draft table's n-grams and lexicon and a draft head.

    The n-grams are interpolated with Dirichlet priors. The lexicon scores translations of the source tokens near the one that
    follows the previous token's source token, with a discount for source tokens that are translated already; the lexicon
    aligns the output so far with the source. The head has no score before the first pass; where it doubts, drafts end.

    Satisfies `sources.DraftSource`.
    """

    def __init__(
        self,
        name: str,
        table: DraftTable | None,
        source: np.ndarray,
        start: int,
        scratch: Scratch | None = None,
        head: "BoundHead | None" = None,
    ):
        from fastdecode_lib.kernels import drafts

        scores = name.split("+")
        if table is not None and LEXICON in scores:
            table.check_sources(source)
        self.name, self.start, self.source = name, start, source
        self.align, self.best_chain = drafts.align, drafts.best_chain
        self.weights = np.array([
            NGRAM_WEIGHT * (NGRAM in scores), LEXICON_WEIGHT * (LEXICON in scores), REACH, DISCOUNT, FLOOR,
            BIGRAM_PRIOR, TRIGRAM_PRIOR, 0.0, HEAD_REACH, HEAD_FLOOR,
        ])  # fmt: skip
        self.knows_lexicon, self.knows_table = LEXICON in scores, table is not None
        self.arrays = _NO_TABLE if table is None else _arrays(table)
        vocabulary = head.shape.tokens if table is None and head else table.vocabulary if table else 0
        self.scratch, self.touched = scratch or scratch_of(vocabulary)
        self.settled = _Reading(np.zeros((2, len(source))))
        self.ahead = self.settled.copy()
        self.head = HeadReading(head) if head else None
        self.sureness, self.settled_before = 1.0, 0
        """The head's probability that all draft tokens of the pass so far are right, and the pass: its settled tokens."""
        self.outputs = self.head.outputs if self.head else _NO_HEAD

    def begin(self, vectors: np.ndarray) -> None:
        """Take the source's vectors (S, E)."""
        if self.head:
            self.head.begin(vectors)

    def see(self, hidden: np.ndarray) -> None:
        """Take the hidden vector (D,) from which the last settled token was chosen."""
        if self.head:
            self.head.see(hidden)
            self.weights[7] = HEAD_WEIGHT

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Do nothing: `token` gets the output as an argument."""

    def token(self, before: list[int], settled: int) -> int:
        """The best token by all scores, -1 if none has any."""
        return next(iter(self.tokens(before, settled, 1)), -1)

    def tokens(self, before: list[int], settled: int, count: int) -> list[int]:
        """The best tokens by all scores, one behind the other; with a head's scores only the first, as each needs a step of it."""
        previous = before[-1] if before else self.start
        if not 0 <= previous < len(self.touched):
            return []
        if self.knows_lexicon:
            self.reading(before, settled)
        normaliser = 0.0
        if self.weights[7]:
            assert self.head is not None
            log_sum = self.head.read(before, settled)
            if log_sum is None:
                return []
            normaliser, count = log_sum, 1
        elif not self.knows_table:
            return []
        chain, before_previous = np.empty(count, dtype=np.int64), before[-2] if len(before) > 1 else self.start
        found = self.best_chain(
            previous, before_previous, self.source, self.ahead.covered, self.ahead.aligned, self.weights, *self.outputs,
            normaliser, self.scratch, self.touched, *self.arrays, chain,
        )  # fmt: skip
        tokens: list[int] = chain[:found].tolist()
        return [] if self.weights[7] and tokens and self._doubts(tokens[0], len(before), settled) else tokens

    def _doubts(self, token: int, place: int, settled: int) -> bool:
        """Whether the head doubts that this draft token and all before it in the pass are right."""
        assert self.head is not None
        if place == settled or settled != self.settled_before:
            self.sureness, self.settled_before = 1.0, settled
        self.sureness *= self.head.probability(token)
        return self.sureness < DOUBT

    def reading(self, before: list[int], settled: int) -> "_Reading":
        """The alignment of tokens `before`, of which the first `settled` are settled, with the source by the lexicon.

        `ahead` is `settled` itself until tokens that are not settled are read.
        """
        if len(self.ahead.tokens) <= settled or self.ahead.tokens != before[: len(self.ahead.tokens)]:
            self._read(self.settled, before[:settled])
            self.ahead = self.settled
        if len(before) > len(self.ahead.tokens):
            self.ahead = self.ahead.copy() if self.ahead is self.settled else self.ahead
            self._read(self.ahead, before)
        return self.ahead

    def _read(self, reading: "_Reading", before: list[int]) -> None:
        """Align the tokens that are new in `before`."""
        for token in before[len(reading.tokens) :]:
            reading.aligned = self.align(token, self.source, reading.covered, reading.aligned, REACH, *self.arrays[:3])
        reading.tokens = before.copy()


def scratch_of(vocabulary: int) -> Scratch:
    """Buffers of `kernels.drafts.best_chain`, which clears them after use: one set is enough for a batch."""
    return np.zeros((4, vocabulary), dtype=np.float32), np.zeros(vocabulary, dtype=np.int64)


def _arrays(table: DraftTable) -> tuple[np.ndarray, ...]:
    """The arrays of a table in the order of the kernel's arguments, the lexicon first."""
    n, x = table.ngrams, table.lexicon
    return (
        x.offsets, x.ids, x.probabilities, n.unigrams, n.bigram_offsets, n.bigram_ids, n.bigram_counts, n.bigram_totals,
        n.context_offsets, n.contexts, n.trigram_offsets, n.trigram_ids, n.trigram_counts, n.trigram_totals,
    )  # fmt: skip


_IDS, _NUMBERS = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
_NO_TABLE = (
    _IDS, _IDS, _NUMBERS, _NUMBERS, _IDS, _IDS, _NUMBERS, _NUMBERS, _IDS, _IDS, _IDS, _IDS, _NUMBERS, _NUMBERS,
)  # fmt: skip
_NO_HEAD = (_IDS, _IDS, _NUMBERS)


@dataclass
class _Reading:
    """An output's tokens so far and their alignment with the source; for `covered` see `kernels.drafts.align`."""

    covered: np.ndarray
    aligned: int = -1
    tokens: list[int] = field(default_factory=list)

    def copy(self) -> "_Reading":
        """A copy that can be extended independently."""
        return _Reading(self.covered.copy(), self.aligned, self.tokens)


# ------------------------------------------------------------------------------------------------------- draft heads


class BoundHead:
    """A draft head with its model's output rows, packed for the kernels.

    Parameters
    ----------
    head : DraftHead
    output : Output
        The model's output, whose rows of the draft vocabulary give the logits.
    target : str or None
        Target language.
    precision : str
        Of the products, whatever the model's is: rounding may change a draft, never the output, and with int8 a step takes
        0.4 of the time.

    Raises
    ------
    DraftHeadError
        If the head is another model's, or was not trained for this language.
    """

    def __init__(self, head: DraftHead, output: Output, target: str | None, precision: Precision = "int8"):
        words = head.vocabulary_of(target)
        if words is None:
            raise DraftHeadError(
                f"The draft head was not trained for this target language: it knows {', '.join(head.vocabularies)}, got {target}. "
                "Train it for all directions with `fastdecode draft-head`."
            )
        head.check_fits(int(output.weight.shape[1]), output.vocabulary)
        self.head, self.shape, self.words, self.target = head, head.shape, words, target
        self.places = np.full(self.shape.tokens, -1, dtype=np.int64)
        self.places[words] = np.arange(len(words))
        self.embedding = np.ascontiguousarray(head.tensors["embedding"])
        names = ("enter", "state", "token", "query", "inner", "outer")
        self.packed = [*(self._matrix(name, precision) for name in names), _rows(output, words, precision)]
        self.matrices = np.stack([matrix.record for matrix in self.packed])
        self.key, self.value = self._matrix("key", "float32"), self._matrix("value", "float32")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the records, which hold addresses of arrays: a copy has its own arrays."""
        self.__dict__.update(state)
        self.matrices = np.stack([matrix.record for matrix in self.packed])

    def _matrix(self, name: str, precision: Precision) -> Matrix:
        tensors = self.head.tensors
        return Matrix.of(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), precision, name=name)


def _rows(output: Output, words: np.ndarray, precision: Precision) -> Matrix:
    """These rows of a model's output in a precision."""
    if isinstance(output.weight, Matrix):
        rows = output.weight.rows(words)
        return rows if rows.precision == precision else Matrix.of(rows.unpacked(), rows.bias[: len(words)], precision)
    weight, bias = (
        None if array is None else array.reshape(output.vocabulary, -1)[words].float().cpu().numpy()
        for array in (output.weight.detach(), None if output.bias is None else output.bias.detach())
    )
    assert weight is not None
    return Matrix.of(weight, bias, precision)


class HeadReading:
    """The state of a draft head within a sentence."""

    def __init__(self, head: BoundHead):
        from fastdecode_lib.kernels import draft_head

        self.bound, self.kernels = head, draft_head
        shape = head.shape
        self.widest = max(3 * shape.width, shape.inner, shape.hidden, shape.embedding)
        self.rounded = scratch(1, self.widest)
        self.initial_state = np.zeros((1, padded(shape.width)), dtype=np.float32)
        self.state = self.initial_state.copy()
        self.logits = np.zeros((1, padded(len(head.words))), dtype=np.float32)
        self.outputs = (head.words, head.places, self.logits[0])
        self.fed: list[int] = []
        self.normaliser = 0.0

    def begin(self, vectors: np.ndarray) -> None:
        """Take the source's vectors (S, E)."""
        if vectors.shape[1] != self.bound.shape.source:
            raise DraftHeadError(
                f"The draft head is of another model: it knows source vectors of {self.bound.shape.source}, the model's have "
                f"{vectors.shape[1]}. Train one for this model with `fastdecode draft-head`."
            )
        sides = []
        for matrix in (self.bound.key, self.bound.value):
            projected = matrix(vectors).reshape(len(vectors), HEADS, -1)
            sides.append(np.ascontiguousarray(projected.transpose(1, 0, 2)))
        self.keys, self.values = sides
        self.work = np.zeros((4, padded(max(self.widest, len(vectors)))), dtype=np.float32)
        self.offsets = np.zeros(padded(len(vectors)), dtype=np.int64)

    def see(self, hidden: np.ndarray) -> None:
        """Take the hidden vector (D,) from which the last settled token was chosen."""
        self.kernels.head_enter(hidden[None], self.bound.matrices, self.rounded, self.initial_state)
        self.fed = []

    def probability(self, token: int) -> float:
        """Probability of a token behind those that were read; 0 for one outside the draft vocabulary."""
        place = self.bound.places[token]
        return float(np.exp(self.logits[0, place] - self.normaliser)) if place >= 0 else 0.0

    def read(self, before: list[int], settled: int) -> float | None:
        """Feed the tokens that were not fed yet, from the last settled one on; return the logarithm of the logits' normaliser.

        None if one of the tokens is not in the model's vocabulary.
        """
        if len(self.fed) < settled or self.fed != before[: len(self.fed)]:
            self.state[:] = self.initial_state
            self.fed = before[: settled - 1]
        for token in before[len(self.fed) :]:
            if not 0 <= token < self.bound.shape.tokens:
                return None
            self.normaliser = self.kernels.head_step(
                token, self.state, self.bound.shape.width, len(self.bound.words), self.bound.embedding, self.bound.matrices,
                self.keys, self.values, self.rounded, self.work, self.offsets, self.logits,
            )  # fmt: skip
        self.fed = before.copy()
        return self.normaliser
