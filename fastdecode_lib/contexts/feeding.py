"""Sources of contexts: networks and their inputs; one file because each kind of input needs its own kind of network."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.batching import BATCH, in_batches
from fastdecode_lib.checkpoints.hub import bundled
from fastdecode_lib.contexts.shards import ContextsError
from fastdecode_lib.core import Model, Projection, Source
from fastdecode_lib.decoding.folding import folded
from fastdecode_lib.decoding.passes import row_batches
from fastdecode_lib.language_model import LanguageModel
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.text.tokenizers import padded
from fastdecode_lib.text.words import START
from fastdecode_lib.translation import Session

ROWS = 256
"""Hidden vectors scored together for their labels; the scores of a whole batch may not fit into memory."""

Item = tuple[Any, ...]
"""An input sentence; items with the same first entry count as the same sentence."""


@dataclass(frozen=True)
class Fed:
    """Sentences to feed to a network, one for each row: a source, a prefix fed before slot 0, and whole outputs with their end.

    An empty output gives no context.
    """

    source: Source
    prefix: tuple[int, ...]
    outputs: Sequence[Sequence[int]]


def hidden_and_labels(network: Model, exact: Projection, fed: Fed, top: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The hidden vector and the best tokens of each slot, with whole outputs fed in one pass for each batch.

    On the compiled engine both are bitwise those of a decoder that generates the same tokens one at a time, because a slot's
    result does not depend on the other slots of its pass; on the torch engine the last bits may differ.

    Returns
    -------
    list
        For each output of T tokens, hidden float32 (T, D) and ids int32 (T, K) of slots 0 to T - 1.
    """

    def run(rows: np.ndarray, stopped: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        vectors_and_labels: list[tuple[np.ndarray, np.ndarray]] = []
        for first, source in row_batches(network, fed.source.rows(rows)):
            outputs = [fed.outputs[row] for row in rows[first : first + len(source)]]
            ends = np.cumsum([len(ids) for ids in outputs])
            group = network.tokens_per_step
            tokens = padded([(*fed.prefix[-group:], *ids[:-group]) for ids in outputs], -1).ids
            prefix = np.tile(np.array(fed.prefix, dtype=np.int64), (len(outputs), 1))
            state = network.start(network.encode(source), prefix, len(fed.prefix) - group + tokens.shape[1])
            hidden = network.step(state, tokens)[np.nonzero(tokens >= 0)]
            on_host = hidden.float().cpu() if hasattr(hidden, "cpu") else hidden
            scorer, vectors = exact.bind(source), np.asarray(on_host, dtype=np.float32)
            if np.isfinite(vectors).all():
                labels = [scorer.top_k(hidden[start : start + ROWS], top).ids for start in range(0, len(hidden), ROWS)]
                best = np.concatenate(labels).astype(np.int32)
            else:  # the recording refuses these vectors with an error that says where they are
                best = np.zeros((len(vectors), top), dtype=np.int32)
            vectors_and_labels += zip(np.split(vectors, ends[:-1]), np.split(best, ends[:-1]), strict=True)
        return vectors_and_labels

    lengths = [len(ids) for ids in fed.outputs]
    recorded = in_batches(lengths, run, batch=BATCH)
    width, no_labels = width_of(network), np.zeros((0, top), dtype=np.int32)
    if any(length and pair is None for length, pair in zip(lengths, recorded, strict=True)):
        raise KeyboardInterrupt
    return [(np.zeros((0, width), dtype=np.float32), no_labels) if pair is None else pair for pair in recorded]


def width_of(network: Model) -> int:
    """D, the length of a hidden vector; for an ensemble, the sum over its networks."""
    return sum(int(output.weight.shape[1]) for output in network.outputs)


@dataclass(frozen=True)
class _TextFeeder:
    """Base of the feeders of a translation model; pickling stores the model's name, and unpickling loads the model again."""

    model: TranslationModel

    @property
    def network(self) -> Model:
        """The model's."""
        return self.model.network

    @property
    def exact(self) -> Projection:
        """The model's."""
        return self.model.exact

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def settings(self) -> dict[str, Any]:
        """The model's fingerprint, that of its tokenizer and rules, engine, dtype and device."""
        model, checkpoint = self.model, self.model.checkpoint
        of_files = {"fingerprint": checkpoint.fingerprint, "tokenizer and rules": checkpoint.text_fingerprint}
        return of_files | {"engine": model.engine, "dtype": model.dtype, "device": model.device}

    def __post_init__(self) -> None:
        if self.network.kind != "causal":
            raise ContextsError(
                f"Contexts are recorded of causal models: got {self.model.name}, a {self.network.kind} model, whose slots see "
                "later slots. Record another model."
            )

    def fed(self, direction: str, items: Sequence[Item]) -> Fed:
        """Sources and outputs; a sentence that is empty or too long for the model has an empty output."""
        session = self._session(direction)
        batch = self.model.tokenizer.encode([*(item[0] for item in items), ""], session.source, session.target)
        lengths, empty = batch.lengths[:-1], batch.lengths[-1]
        fits = (lengths > empty) & (lengths <= self.network.max_source)
        source = batch.rows(np.arange(len(items)))
        outputs, end = self._outputs(session, source, fits, items), session.constraints.end[0]
        return Fed(source, session.constraints.prefix, [_output_slots(self.network, ids, end) for ids in outputs])

    def _session(self, direction: str) -> Session:
        """A session of the model in a direction; subclasses add options."""
        return Session.of(self.model, *self._languages(direction))

    def _outputs(
        self, session: Session, source: Source, fits: np.ndarray, items: Sequence[Item]
    ) -> Sequence[Sequence[int]]:
        """Ids for each item, no ids if it does not fit."""
        raise NotImplementedError

    def _languages(self, direction: str) -> tuple[str | None, str | None]:
        if not self.model.directions:
            return None, None
        source, _, target = direction.partition("-")
        return self.model.direction(source, target)

    def __reduce__(self) -> Any:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[1:]}
        return _reloaded, (type(self), _address(self.model), self.model.checkpoint.fingerprint, options)


@dataclass(frozen=True)
class Translations(_TextFeeder):
    """Outputs that a translation model generates for unlabelled texts, as in Amer et al. (2022).

    By default with the simplest decoder of the model and the checkpoint's own limit of output tokens.
    """

    decoder: registry.Spec | None = None
    max_length: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the model, and the decoder."""
        spec = self.decoder if self.decoder is not None else registry.usual(self.network)
        decoder = registry.describe(registry.decoder(spec))
        return {**super().settings, "decoder": decoder, "max_length": self.max_length}

    def items(self, direction: str, inputs: Sequence[str]) -> list[Item]:
        """The texts."""
        self._session(direction)
        _check_inputs("a text", inputs, lambda text: isinstance(text, str))
        return [(text,) for text in inputs]

    def _session(self, direction: str) -> Session:
        return Session.of(self.model, *self._languages(direction), self.decoder, max_length=self.max_length)

    def _outputs(
        self, session: Session, source: Source, fits: np.ndarray, items: Sequence[Item]
    ) -> Sequence[Sequence[int]]:
        hypotheses = session.decode_ids(source, np.where(fits, source.lengths, 0), batch=BATCH, threads=1)
        return [hypothesis.tokens for hypothesis in hypotheses]


@dataclass(frozen=True)
class References(_TextFeeder):
    """Teacher forcing: inputs are pairs of a text and its reference, which is fed to the model."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the model, and no decoder."""
        return {**super().settings, "decoder": None}

    def items(self, direction: str, inputs: Sequence[tuple[str, str]]) -> list[Item]:
        """The pairs."""
        self._session(direction)

        def is_pair(pair: Any) -> bool:
            return not isinstance(pair, str) and len(pair) == 2 and all(isinstance(text, str) for text in pair)

        _check_inputs("a pair of texts", inputs, is_pair)
        return [(text, reference) for text, reference in inputs]

    def _outputs(
        self, session: Session, source: Source, fits: np.ndarray, items: Sequence[Item]
    ) -> Sequence[Sequence[int]]:
        rules = session.constraints
        ids = self.model.tokenizer.output_ids([reference for _, reference in items])
        fits = fits & np.array([0 < len(row) < rules.max_length for row in ids])
        return [(*row, rules.end[0]) if fit else () for row, fit in zip(ids, fits, strict=True)]


@dataclass(frozen=True)
class IdRows:
    """Any causal network on rows of ids, such as a language model on its training text; each id of a row gives one context.

    The network has empty sources; `exact` is its full vocabulary projection, `prefix` is fed before the first id of a row, and
    `fingerprint` is that of its weights.
    """

    network: Model
    exact: Projection
    prefix: tuple[int, ...]
    fingerprint: str
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """The network's fingerprint, the prefix, and dtype and device unless they are float32 and CPU."""
        weight: Any = self.network.outputs[0].weight
        # A packed matrix has a precision, a tensor or an array has a dtype.
        dtype = getattr(weight, "precision", None) or str(weight.dtype).removeprefix("torch.")
        settings = {"dtype": dtype, "device": str(getattr(weight, "device", "cpu"))}
        unusual = {name: value for name, value in settings.items() if value not in ("float32", "cpu")}
        return {"fingerprint": self.fingerprint, "prefix": list(self.prefix), "decoder": None, **unusual}

    def items(self, direction: str, inputs: Sequence[Sequence[int]]) -> list[Item]:
        """The rows, as tuples of int."""
        vocabulary = self.network.outputs[0].vocabulary

        def in_vocabulary(ids: Any) -> bool:
            return np.ndim(ids) == 1 and all(type(i) is int and 0 <= i < vocabulary for i in np.asarray(ids).tolist())

        _check_inputs(f"ids from 0 to {vocabulary - 1}", inputs, in_vocabulary)
        return [(tuple(np.asarray(ids).tolist()),) for ids in inputs]

    def fed(self, direction: str, items: Sequence[Item]) -> Fed:
        """The rows with empty sources; a row that is too long for the network has an empty output."""
        max_ids = self.network.max_target - len(self.prefix) + 1
        no_sources = padded([()] * len(items), 0)
        return Fed(no_sources, self.prefix, [ids if len(ids) <= max_ids else () for (ids,) in items])


Feeder = Translations | References | IdRows
"""A network, its full projection, and a way from inputs to outputs; it is pickled for workers."""


def language_rows(model: LanguageModel) -> IdRows:
    """The feeder of a language model: its inputs are rows of ids from ``text.encode``, fed after the start symbol."""
    return IdRows(model.network, model.exact, (START,), model.checkpoint.fingerprint, model.name)


def _check_inputs(kind: str, inputs: Sequence[Any], is_valid: Callable[[Any], bool]) -> None:
    """Check that all inputs are of a kind; the error names the first that is not."""
    for number, value in enumerate(inputs, 1):
        try:
            valid = is_valid(value)
        except TypeError:
            valid = False
        if not valid:
            raise ValueError(f"Sentence {number} must be {kind}: got {str(value)[:60]!r}. Correct it, or leave it out.")


def _output_slots(network: Model, tokens: Sequence[int], end: int) -> Sequence[int]:
    """An output in the order in which the network generates it: folded if it has several tokens a step."""
    if network.tokens_per_step == 1 or not tokens:
        return tokens
    return folded([token for token in tokens if token != end], end, network.tokens_per_step, network.both_ends)


def _address(model: TranslationModel) -> dict[str, str]:
    """Arguments with which `load` finds a model again from any working folder."""
    folder = Path(model.name).expanduser()
    name = str(folder.resolve()) if folder.is_dir() and model.name not in bundled() else model.name
    if model.engine == "compiled":
        return {"name": name, "engine": "compiled", "precision": model.dtype}
    return {"name": name, "engine": "torch", "dtype": model.dtype, "device": model.device}


def _reloaded(
    kind: type[_TextFeeder], address: Mapping[str, str], fingerprint: str, options: Mapping[str, Any]
) -> _TextFeeder:
    model = load(**address)
    if model.checkpoint.fingerprint != fingerprint:
        raise ContextsError(
            f"A worker finds other weights under {address['name']!r}: got {model.checkpoint.fingerprint}, not {fingerprint}. Give "
            "the folder of the checkpoint, where every worker can read it."
        )
    return kind(model, **options)
