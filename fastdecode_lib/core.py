"""The types that models, projections, decoders and pictures exchange; one file because these types name each other.

Sizes in shapes: B rows of a batch, S source length, P prefix length, W slots of one pass, N scored positions, D width of a
hidden vector, V vocabulary, K candidates. A *slot* is a position of the target, 0 being the first token after the
prefix. Ids, lengths and scores that a decoder sees are numpy arrays on the host; hidden vectors stay in the engine's own
arrays and only pass from model to projection.
"""

import importlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

Status = Literal["settled", "changed", "draft", "masked"]
Stop = Literal["end", "length", "interrupted"]
Kind = Literal["causal", "masked"]
R = TypeVar("R")
Y = TypeVar("Y")
Hidden = Any
"""Hidden vectors in the engine's own arrays (torch tensors or numpy), shape (..., D)."""
OUR_FAMILIES = "a Marian, mBART, M2M-100 or T5 model"
"""Models that fastdecode's own engines run, in batches and with trees of candidates, as messages name them."""


# ------------------------------------------------------------------------------------------------------------- models


@dataclass(frozen=True)
class Source:
    """A batch of source sentences as ids.

    Attributes
    ----------
    ids : int64 array (B, S)
        Padded on the right with any id; only the first ``lengths[b]`` of a row count.
    lengths : int64 array (B,)
    languages : (source, target) or None
        Direction of the batch, for projections that keep something per direction.
    """

    ids: np.ndarray
    lengths: np.ndarray
    languages: tuple[str, str] | None = None

    def row(self, index: int) -> "Source":
        """One sentence as a batch of its own, without padding."""
        length = int(self.lengths[index])
        return Source(self.ids[index : index + 1, :length], self.lengths[index : index + 1], self.languages)

    def rows(self, indices: np.ndarray) -> "Source":
        """The sentences at these indices, which may repeat."""
        return Source(self.ids[indices], self.lengths[indices], self.languages)

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Output:
    """The vocabulary projection a model was trained with: ``hidden @ weight.T + bias``.

    Attributes
    ----------
    weight : engine array (V, D)
    bias : engine array (V,) or None
    """

    weight: Any
    bias: Any = None

    @property
    def vocabulary(self) -> int:
        """V, the number of rows of the weight."""
        return int(self.weight.shape[0])


class State(Protocol):
    """The decoder's memory of the slots it has been fed, one cache per row."""

    @property
    def lengths(self) -> np.ndarray:
        """Slots fed so far in each row, int64 (B,), prefix included."""
        ...

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` (B,) slots; in place, O(1)."""
        ...

    def keep(self, slots: np.ndarray) -> None:
        """Keep these of the last step's slots (B, n), in this order, and forget the others; -1 pads a row."""
        ...

    def select(self, rows: np.ndarray) -> "State":
        """A state whose rows are copies of `rows` (with repetition), independent of this one; the source is shared."""
        ...


@runtime_checkable
class Model(Protocol):
    """A network that turns a source and a target prefix into hidden vectors."""

    kind: Kind
    tokens_per_step: int
    """1, or n for a model that emits n tokens at once, a group, which see each other's inputs."""
    both_ends: bool
    """Whether slots are by turns from the left and the right end of the sentence; see `decoding.folding`."""
    supports: frozenset[str]
    """Abilities: ``"ragged"`` (rows of different length in one state), ``"tree"`` (`visible` masks)."""
    outputs: tuple[Output, ...]
    max_source: int
    """Longest source, in tokens."""
    max_target: int
    """Most slots a state can hold, prefix included."""

    def encode(self, source: Source) -> Any:
        """Run the encoder over a batch; only the same model reads the result, whose `rows` are B."""
        ...

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """A state fed with all but the last of the prefix ids (B, P); the first step feeds the last one, or the last group.

        `capacity` is the most slots, prefix included, that it will hold; the model's `max_target` otherwise.
        """
        ...

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Hidden:
        """Feed tokens (B, W) as the next slots and return their hidden vectors (B, W, D).

        A token of -1 at the end of a row feeds nothing there. Slots are causal among themselves, or see each other as
        `visible` (B, W, W) says: ``visible[b, i, j]`` lets slot i attend to slot j. Earlier slots are always visible.
        With `visible`, a slot's position in the sentence is the number of slots it sees, itself included.
        """
        ...


@runtime_checkable
class Vectors(Protocol):
    """Interface of models whose source a draft head can attend to; beside `Model`."""

    def source_vectors(self, encoded: Any) -> list[np.ndarray]:
        """For each sentence its source's vectors (S, E), float32 on the host."""
        ...


@runtime_checkable
class MaskedModel(Model, Protocol):
    """A network that fills in a whole target at once, every slot seeing every other."""

    def length_log_probs(self, encoded: Any) -> np.ndarray:
        """Log-probabilities (B, L) of the lengths 1 to L, ends not counted."""
        ...

    def refine(self, encoded: Any, tokens: np.ndarray, rows: np.ndarray) -> Hidden:
        """Hidden vectors (N, T, D) of targets (N, T), -1 behind their lengths, each for one of the sources by `rows` (N,)."""
        ...


# -------------------------------------------------------------------------------------------------------- projections


class Candidates(NamedTuple):
    """The best tokens of N positions, best first; equal scores in order of id, lowest first.

    Attributes
    ----------
    ids : int64 array (N, K)
        -1 where fewer than K tokens are active.
    scores : float array (N, K)
        Raw scores (logits); -inf where the id is -1.
    log_normaliser : float array (N,) or None
        ``scores - log_normaliser`` are log-probabilities over `support`. None unless asked for.
    support : "vocabulary" or "active"
        What the normaliser runs over.
    num_active : int array (N,)
        How many tokens were scored.
    cluster : int array (N,) or None
    """

    ids: np.ndarray
    scores: np.ndarray
    num_active: np.ndarray
    log_normaliser: np.ndarray | None = None
    support: Literal["vocabulary", "active"] = "vocabulary"
    cluster: np.ndarray | None = None


class Scorer(Protocol):
    """A projection bound to a batch of sources."""

    def top_k(self, hidden: Hidden, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden vectors (N, D).

        `banned` holds ids that must not be chosen: (M,) for every position, or (N, M) padded with -1.
        """
        ...

    def log_probs(self, hidden: Hidden, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of given ids (N, M) under hidden vectors (N, D)."""
        ...


class Projection(Protocol):
    """A way from hidden vectors to candidate tokens."""

    def bind(self, source: Source | None) -> Scorer:
        """The scorer for these sources; most projections return themselves."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the projection's own arrays."""
        ...


class OfAnySource:
    """Base of projections that do not depend on the sources decoded, and so score by themselves."""

    def bind(self, source: Source | None) -> Self:
        """Itself."""
        return self


# ----------------------------------------------------------------------------------------------------------- decoding


@dataclass(frozen=True)
class Constraints:
    """Rules that every slot of an output must obey, in tokens after the prefix, the end included.

    Attributes
    ----------
    prefix : tuple of int
        Fed before slot 0: the start symbol and, where the model wants it, the target language.
    end : tuple of int
        Ids that end a sentence; the first one is used where the end is forced.
    max_length : int
        Most tokens, the end included.
    padding : int
        Id that fills a slot before it has a token.
    banned : tuple of int
        Never chosen, at any slot.
    forced_end : bool
        The slot before `max_length` is the end, whatever the model says.
    min_length : int
        No end among the first `min_length` tokens.
    exact_length : int or None
        The end stands at exactly this slot count; for timing with random weights.
    """

    prefix: tuple[int, ...]
    end: tuple[int, ...]
    max_length: int
    padding: int = 0
    banned: tuple[int, ...] = ()
    forced_end: bool = False
    min_length: int = 0
    exact_length: int | None = None

    def __post_init__(self) -> None:
        if not self.prefix or not self.end:
            raise ValueError(
                f"Constraints need a start symbol and an end symbol: got prefix={self.prefix}, end={self.end}. "
                "Take them from the checkpoint with `model.constraints()`."
            )
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}. Leave room for one token.")
        if not 0 <= self.min_length < max(self.max_length, 1):
            raise ValueError(
                f"min_length must be from 0 to max_length - 1 = {self.max_length - 1}, got {self.min_length}. "
                "Lower min_length or raise max_length."
            )
        if self.exact_length is not None and not 1 <= self.exact_length <= self.max_length:
            raise ValueError(
                f"exact_length must be from 1 to max_length = {self.max_length}, got {self.exact_length}. "
                "Raise max_length or shorten exact_length."
            )

    @property
    def _forces_end(self) -> bool:
        return self.forced_end or self.exact_length is not None

    @cached_property
    def _always_banned(self) -> np.ndarray:
        return np.array(self.banned, dtype=np.int64)

    @property
    def limit(self) -> int:
        """The number of tokens after which decoding stops in any case."""
        return self.exact_length or self.max_length

    def reason(self, tokens: Sequence[int]) -> Stop:
        """Why an output stopped: ``"length"`` also where its end was forced at the longest length."""
        cut = self.forced_end and self.exact_length is None and len(tokens) == self.max_length
        return "end" if tokens and tokens[-1] in self.end and not cut else "length"

    def may_force(self, slots: np.ndarray) -> bool:
        """Whether the end is forced at one of these slots (N,)."""
        return self._forces_end and max(slots.tolist(), default=-1) >= self.limit - 1

    def forced(self, slots: np.ndarray) -> np.ndarray:
        """The id forced at each slot, -1 where the model is free; same shape as `slots`."""
        return np.where((slots == self.limit - 1) & self._forces_end, self.end[0], -1)

    def forbidden(self, slots: np.ndarray) -> np.ndarray | None:
        """The ids that must not be chosen: (M,) when the same at all slots (N,), else (N, M) padded with -1."""
        always = self._always_banned
        least = self.exact_length - 1 if self.exact_length else self.min_length
        no_end = slots < least
        if least == 0 or not no_end.any():
            return always if len(always) else None
        end = np.array(self.end, dtype=np.int64)
        if no_end.all():
            return np.concatenate([always, end])
        per_slot = np.where(no_end[:, None], end, -1)
        return np.concatenate([np.broadcast_to(always, (len(slots), len(always))), per_slot], axis=1)


class Lane(NamedTuple):
    """One hypothesis of a beam after a pass: which lane it grew from, its tokens and its score.

    The score is the cumulative log-probability, divided by the length to the power of the length penalty once finished.
    """

    parent: int
    tokens: tuple[int, ...]
    score: float
    finished: bool = False


class Iteration(NamedTuple):
    """Effect of one pass of the decoder network on one row.

    Attributes
    ----------
    row : int
        Sentence within the batch.
    call : int
        Number of the pass, from 0; the rows of a batch share it.
    slots : int64 array (W,)
        Target positions this pass computed; below 0, counted from the end (-1 is the last), where decoding grows from both.
    drafts : int64 array (W,)
        Draft token of each slot before the pass; -1 where there was none.
    origins : tuple of str, W long
        Where each draft came from (``"pad"``, ``"recycled"``, ...); empty where there was none.
    tokens : int64 array (W,)
        The token that the pass predicts at each slot.
    status : tuple of str, W long
        ``settled``: known to equal greedy's token; ``changed``: differs from its draft; ``draft``: unsettled and equal to
        its draft, or not yet confirmed; ``masked``: to be predicted again.
    probabilities, margins : float array (W,) or None
        Probability of the token, and its logit minus the runner-up's. Only when asked for.
    num_active, cluster : int array (W,) or None
        How many tokens the projection scored, and the cluster it picked.
    lanes : tuple of Lane or None
        Hypotheses of a beam, best first.
    sources : int64 array (W,) or None
        Position of the source token that each draft came from; -1 for none. Only for drafts that come from the source.
    positions : int
        Target positions the pass computed for this row: W (the default is 1), or more where several candidates were computed side
        by side.
    seconds : float
        Time the decoder spent on this pass.
    """

    row: int
    call: int
    slots: np.ndarray
    drafts: np.ndarray
    origins: tuple[str, ...]
    tokens: np.ndarray
    status: tuple[Status, ...]
    probabilities: np.ndarray | None = None
    margins: np.ndarray | None = None
    num_active: np.ndarray | None = None
    cluster: np.ndarray | None = None
    lanes: tuple[Lane, ...] | None = None
    sources: np.ndarray | None = None
    positions: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Hypothesis:
    """A finished output of one row: its tokens with the end (where it has one), its score and why it stopped.

    The score is a beam's (see `Lane`); decoders that keep no score have none.
    """

    tokens: tuple[int, ...]
    score: float | None
    stop: Stop


Passes = Generator[Iteration, None, tuple[Hypothesis, ...]]
"""A decoder at work: an `Iteration` for every pass and row, and at the end a `Hypothesis` for every row."""


class Decoder(Protocol):
    """A way from candidates to tokens; a frozen dataclass of its settings.

    Attributes
    ----------
    name : str
        In the registry.
    accepts : frozenset
        Kinds of model it can drive.
    lossless : bool
        Whether its output is greedy decoding's, token for token. The compiled engine keeps this to the last bit, ties
        included. In torch the sums of a product depend on its shape: where the two best scores lie within its rounding
        of each other, a pass over several rows may choose otherwise than a pass over one, as a batch may than a sentence
        alone.
    """

    name: ClassVar[str]
    accepts: ClassVar[frozenset[Kind]]
    lossless: ClassVar[bool]

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """Yield one `Iteration` per pass and row; return one `Hypothesis` per row.

        With `observe`, iterations carry probabilities and margins, which cost a sum over the vocabulary.
        """
        ...


@dataclass
class Usage:
    """Cost of decoding, counted at the model.

    Attributes
    ----------
    encoder_calls, passes : int
        Calls of the encoder and of the decoder network.
    positions : int
        Target positions computed, summed over rows and passes, the prefix's included.
    rows : int
        Rows, summed over passes.
    """

    encoder_calls: int = 0
    passes: int = 0
    positions: int = 0
    rows: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.encoder_calls + other.encoder_calls,
            self.passes + other.passes,
            self.positions + other.positions,
            self.rows + other.rows,
        )


# -------------------------------------------------------------------------------------------------------- measurement


@dataclass(frozen=True)
class Measurement:
    """One system measured over one set of sources.

    Attributes
    ----------
    name : str
        The decoder exactly as typed, or the baseline's name.
    seconds : float array (runs,)
        Raw time of each round over all sources, warm-up excluded.
    outputs : tuple of tuple
        Output for every source: tokens, the end left out; of several sentences a tuple of tokens for each.
    usage : Usage or None
        None for a baseline that does not count.
    """

    name: str
    seconds: np.ndarray
    outputs: tuple[tuple[Any, ...], ...]
    usage: Usage | None = None

    def agreement(self, other: "Measurement") -> float:
        """Share of outputs that are another system's."""
        return float(np.mean([a == b for a, b in zip(self.outputs, other.outputs, strict=True)]))


def drain(running: Generator[Any, None, R], stop: Callable[[], bool] = lambda: False, stopped: Any = None) -> R:
    """Run a generator, such as a decoder's, to its end and return what it returns; `stopped` once `stop` says so."""
    while not stop():
        try:
            next(running)
        except StopIteration as end:
            return end.value
    running.close()
    return stopped


def collected(running: Generator[Y, None, R]) -> tuple[list[Y], R]:
    """Everything that a generator yields, such as a decoder's iterations, and what it returns."""
    yielded = []
    while True:
        try:
            yielded.append(next(running))
        except StopIteration as end:
            return yielded, end.value


# ------------------------------------------------------------------------------------------------ optional dependencies


class MissingExtra(ImportError, ValueError):
    """A package is missing that an extra of fastdecode installs."""


def optional(module: str, extra: str) -> Any:
    """Import a package that is installed with an extra.

    Raises
    ------
    MissingExtra
        If it is not installed, naming the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"This needs the package {error.name}, which is not installed. Install it with: pip install 'fastdecode[{extra}]'"
        ) from error
