"""Translation of text, with traces; one file because all ways to translate go through one session."""

import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.batching import check_counts, cores, in_batches, several
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.core import Constraints, Decoder, Hypothesis, Iteration, Passes, Projection, Source, drain
from fastdecode_lib.decoding.auto import Auto
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.choosing import check_fits
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.finding import has_choices, measured_choice, places_of
from fastdecode_lib.drafts.places import source_places
from fastdecode_lib.drafts.sources import Outputs
from fastdecode_lib.loading import TranslationModel, check_loaded, load
from fastdecode_lib.store import times
from fastdecode_lib.trace import Trace

if TYPE_CHECKING:
    from tqdm import tqdm

SESSIONS = 4
"""Sessions of a model that are kept for later calls."""
SHOWN = 64
"""Tokens of an active set that a trace names."""


@dataclass(frozen=True)
class Translation:
    """A translated sentence.

    Attributes
    ----------
    source, text : str
    tokens : tuple of int
        The output's ids, the end included.
    trace : Trace
    """

    source: str
    text: str
    tokens: tuple[int, ...]
    trace: Trace

    @property
    def passes(self) -> int:
        """Passes of the decoder network."""
        return self.trace.calls

    @property
    def identical(self) -> bool | None:
        """Whether greedy decoding gives the same tokens; None where it was not compared.

        That is without ``verify=True``, of empty text, and after Ctrl-C.
        """
        return None if self.trace.greedy is None else bool(self.trace.greedy["identical"])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Translation({self.text!r}, {self.trace.summary})"


@overload
def translate(
    model: TranslationModel,
    text: str,
    *,
    source: str | None = ...,
    target: str | None = ...,
    decoder: registry.Spec | None = ...,
    projection: str | Projection | None = ...,
    verify: bool = ...,
    observe: bool = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    progress: bool = ...,
    **limits: Any,
) -> Translation: ...
@overload
def translate(
    model: TranslationModel,
    text: Iterable[str],
    *,
    source: str | None = ...,
    target: str | None = ...,
    decoder: registry.Spec | None = ...,
    projection: str | Projection | None = ...,
    verify: bool = ...,
    observe: bool = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    progress: bool = ...,
    **limits: Any,
) -> list[Translation]: ...
def translate(
    model: TranslationModel,
    text: str | Iterable[str],
    *,
    source: str | None = None,
    target: str | None = None,
    decoder: registry.Spec | None = None,
    projection: str | Projection | None = None,
    verify: bool = False,
    observe: bool = True,
    batch: int | None = None,
    threads: int | None = None,
    progress: bool = False,
    **limits: Any,
) -> Translation | list[Translation]:
    """Translate a sentence, or each of several.

    Parameters
    ----------
    model : TranslationModel
        From `load`.
    text : str or iterable of str
        Empty text gives an empty translation.
    source, target : str, optional
        Languages, e.g. ``"en"`` and ``"de"``; the model's first direction that fits otherwise.
    decoder, projection : str or object
        Specs as on the command line: ``"gauss_seidel:block=3"``, ``"exact"``. The decoder is `registry.usual` unless it is given:
        greedy, or what a model of several tokens a step or a masked one needs. In place of greedy decoding on the compiled engine
        it is ``auto``, whose output is the same, and with ``observe=False`` in float32 the projection is ``quantised``, whose
        tokens are the same. Where `speedup` has measured a faster choice for this model that changes no output, it is that one.
    verify : bool
        Decode greedily as well and note in the trace how many passes that took and whether the tokens agree. It needs a model
        that greedy decoding can drive: a causal one of one token a step.
    observe : bool
        Record probabilities and margins, which cost a sum over the vocabulary.
    batch : int, optional
        Sentences of similar length that are decoded together; up to 64 by default. On the compiled
        engine a sentence's output does not depend on the others; on torch the last bits of its scores may.
    threads : int, optional
        Batches that run at a time: by default one for each processor on the compiled engine, one on torch, which has threads
        of its own.
    progress : bool
        Show a progress bar over several sentences.
    **limits
        ``max_length``, ``min_length`` or ``exact_length``, in tokens with the end.

    Returns
    -------
    Translation, or list of Translation in the order of the texts
        After Ctrl-C, a translation that was not done is empty, and its hypothesis has ``stop="interrupted"``.

    Raises
    ------
    ValueError
        If the choices do not fit the model or each other, or the text cannot be encoded.
    """
    check_loaded(model)
    check_counts(batch=batch, threads=threads)
    text = text if isinstance(text, str) else _sentences(text)
    if target is None:
        target = typed_target(model, [text] if isinstance(text, str) else text)
    single = isinstance(text, str) or batch == 1
    session = Session.usual(model, source, target, decoder, projection, single=single, observe=observe, **limits)
    if verify and not session.has_greedy:
        raise ValueError(
            f"verify compares with greedy decoding, which cannot drive this model: got verify=True for {model.name}, a model for "
            f"{registry.usual(model.network)}. Leave verify out."
        )
    if isinstance(text, str):
        translations = [session.translate(text, verify=verify, observe=observe)]
    else:
        translations = session.translate_all(
            text, verify=verify, observe=observe, batch=batch, threads=threads, progress=progress
        )
    if note := session.cut_short([translation.tokens for translation in translations]):
        warnings.warn(note, stacklevel=2)
    return translations[0] if isinstance(text, str) else translations


def _sentences(texts: Any) -> list[Any]:
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise ValueError(f"The text is no string: got {type(texts).__name__}. Give a string, or a list of strings.")
    return list(texts)


def typed_target(model: TranslationModel, texts: Sequence[Any]) -> str | None:
    """The language whose tag begins every text; None where there is none, or several."""
    typed = getattr(model.tokenizer, "typed_target", None)
    targets = {typed(text) if typed and isinstance(text, str) else None for text in texts}
    return targets.pop() if len(targets) == 1 else None


@dataclass(frozen=True)
class Session:
    """A model with a direction, a decoder, a projection and constraints, checked once for many sentences."""

    model: TranslationModel
    source: str | None
    target: str | None
    decoder: Decoder
    decoder_name: str
    projection: Projection
    projection_name: str
    constraints: Constraints

    @classmethod
    def of(
        cls,
        model: TranslationModel,
        source: str | None = None,
        target: str | None = None,
        decoder: registry.Spec | None = None,
        projection: str | Projection = "exact",
        **limits: Any,
    ) -> "Session":
        """Check and complete the choices; see `translate`.

        A session whose projection or drafts are slow to load is reused until the model's files change.

        Raises
        ------
        ValueError
            If they do not fit the model or each other; nothing has been decoded then.
        """
        check_loaded(model)
        source, target = model.direction(source, target)
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        decoder = registry.usual(model.network) if decoder is None else decoder
        parsed = registry.decoder(decoder)
        name = decoder if isinstance(decoder, str) else registry.describe(parsed)
        simple = projection == "exact" and not hasattr(parsed, "drafts")
        if simple or not registry.is_fixed(decoder) or not registry.is_fixed(projection):
            return cls._resolved(model, source, target, parsed, name, projection, limits)
        files = times(places_of(Path(model.checkpoint.folder), model.checkpoint.fingerprint))
        kind = registry.PROJECTIONS.get(str(projection).partition(":")[0])
        key = (source, target, decoder, projection, kind, repr(sorted(limits.items())), files)
        session: Session | None = model.sessions.get(key)
        if session is None:
            session = cls._resolved(model, source, target, parsed, name, projection, limits)
            for expired in [*model.sessions][: 1 - SESSIONS]:
                model.sessions.pop(expired, None)
            model.sessions[key] = session
        return session

    @classmethod
    def usual(
        cls,
        model: TranslationModel,
        source: str | None = None,
        target: str | None = None,
        decoder: registry.Spec | None = None,
        projection: str | Projection | None = None,
        *,
        single: bool,
        observe: bool = True,
        **limits: Any,
    ) -> "Session":
        """Check and complete the choices as `of` does, by default with the fastest ones that change no output; see `translate`."""
        refused = None
        if decoder is None and projection is None and isinstance(model, TranslationModel) and has_choices():
            direction = model.direction(source, target)
            choice = measured_choice(model.checkpoint.fingerprint, direction, 1 if single else 2, model.dtype)
            if choice is not None and model.engine == "compiled":
                try:
                    registry.check_lossless(*choice, plain=registry.usual(model.network))
                    return cls.of(model, *direction, *choice, **limits)
                except ValueError as error:
                    refused = error
        compiled = isinstance(model, TranslationModel) and model.engine == "compiled"
        exact = projection is None or projection in registry.EXACT
        if decoder is None and exact and compiled and registry.usual(model.network) == Greedy.name:
            decoder = Auto.name
            if projection is None and not observe and model.dtype == "float32":
                projection = "quantised"
        session = cls.of(model, source, target, decoder, "exact" if projection is None else projection, **limits)
        if refused is not None:
            warnings.warn(f"What speedup chose no longer runs, decoding as usual: {refused}", stacklevel=3)
        return session

    def cut_short(self, outputs: Iterable[Sequence[int]]) -> str:
        """A warning about outputs that ran to the length limit; empty if none did."""
        limit = self.constraints.limit
        cut = sum(len(tokens) >= limit for tokens in outputs) if self.constraints.exact_length is None else 0
        if not cut:
            return ""
        return (
            f"{cut} output{'s' * (cut > 1)} reached the longest length, {limit} tokens, and may be cut short. Allow more "
            "(max_length=N, --max-length N), or split the source."
        )

    @classmethod
    def _resolved(
        cls,
        model: TranslationModel,
        source: str | None,
        target: str | None,
        decoder: Decoder,
        decoder_name: str,
        projection: str | Projection,
        limits: dict[str, Any],
    ) -> "Session":
        """The session, once the files of its decoder and its projection are loaded and checked."""
        constraints = model.constraints(target, **limits)
        files = model.files(source, target, constraints.end, lambda name: drafting(name, model, source, target))
        scoring = model.exact if projection == "exact" else registry.projection(projection, model.network, files)
        if isinstance(decoder, Window):
            decoder = decoder.with_draft(decoder.drafts.resolve(model.network, files))
        if isinstance(decoder, Beam):
            decoder = decoder.completed(model.checkpoint.rules)
        check_fits(decoder, model.network)
        name = (
            projection
            if isinstance(projection, str)
            else getattr(projection, "name", type(projection).__name__.lower())
        )
        return cls(model, source, target, decoder, decoder_name, scoring, name, constraints)

    def translate(self, text: str, *, verify: bool = False, observe: bool = True) -> Translation:
        """Translate one sentence and record its trace; see `translate`."""
        source = self.encode_one(text)
        trace = self.new_trace(text, source)
        drain(self.follow([trace], source, verify=verify, observe=observe))
        return _translation(trace)

    def passes(self, source: Source, *, observe: bool = False) -> Passes:
        """Decode a batch, yielding an `Iteration` for every pass and row; return a `Hypothesis` for every row."""
        return self.decoder.iterate(self.model.network, self.projection, source, self.constraints, observe=observe)

    def follow(
        self,
        traces: Sequence[Trace],
        source: Source | None,
        *,
        verify: bool = False,
        observe: bool = True,
        stop: Callable[[], bool] = lambda: False,
    ) -> Generator[Iteration, None, None]:
        """Decode a batch and complete its traces, one for each row, yielding each iteration once its trace has it.

        Parameters
        ----------
        traces : sequence of Trace
            From `new_trace`.
        source : Source or None
            Ids of the text; None where it has no content.
        verify : bool
            Note greedy decoding's answer in the traces, where `has_greedy`.
        stop : callable
            Called after every pass; once it returns True the traces end as interrupted.
        """
        hypotheses: tuple[Hypothesis, ...] = ()
        passes = self.passes(source, observe=observe) if source is not None else None
        places = (
            source_places(self.decoder.drafts, source)
            if observe and source is not None and isinstance(self.decoder, Window)
            else []
        )
        while passes is not None and not hypotheses:
            try:
                iteration = next(passes)
            except StopIteration as end:
                hypotheses = end.value
                break
            trace = traces[iteration.row]
            if places:
                iteration = iteration._replace(sources=places[iteration.row].find(iteration))
            trace.iterations.append(iteration)
            lanes = [token for lane in iteration.lanes or () for token in lane.tokens]
            self._add_pieces(trace, {*iteration.tokens.tolist(), *iteration.drafts.tolist(), *lanes} - {-1})
            yield iteration
            if stop():
                passes.close()
                hypotheses = tuple(Hypothesis(_settled(trace), None, "interrupted") for trace in traces)
        for trace, hypothesis in zip(traces, hypotheses, strict=False):
            trace.hypotheses = (hypothesis,)
        if source is not None and verify and self.has_greedy and hypotheses[0].stop != "interrupted":
            greedy = registry.decoder("greedy")
            greedy_outputs = drain(greedy.iterate(self.model.network, self.model.exact, source, self.constraints))
            # The pass over a prefix is not counted.
            for trace, greedy_output in zip(traces, greedy_outputs, strict=True):
                trace.greedy = {"calls": len(greedy_output.tokens), "identical": greedy_output.tokens == trace.tokens}
        for row, trace in enumerate(traces):
            self._finish(trace, None if source is None else source.row(row))

    def decode(
        self,
        texts: str | Sequence[str],
        *,
        batch: int | None = None,
        threads: int | None = None,
        progress: "bool | tqdm[Any]" = False,
        keep_done: bool = False,
    ) -> list[Hypothesis]:
        """Decode many texts without traces, in batches of similar length; the order is kept.

        Text without content gets the empty hypothesis. `progress` says whether to show a bar, or is a bar to move. Ctrl-C raises
        KeyboardInterrupt; with `keep_done` it returns what is done, and an interrupted hypothesis for each text that was not
        reached.
        """
        texts = several(texts)
        if not texts:
            return []
        source, lengths = self._encode(texts)
        return self.decode_ids(source, lengths, batch=batch, threads=threads, progress=progress, keep_done=keep_done)

    def decode_ids(
        self,
        source: Source,
        lengths: np.ndarray,
        *,
        batch: int | None = None,
        threads: int | None = None,
        progress: "bool | tqdm[Any]" = False,
        keep_done: bool = False,
    ) -> list[Hypothesis]:
        """Decode ids as `decode` does; rows of length 0 in `lengths` get the empty hypothesis."""

        def run(rows: np.ndarray, stop: Callable[[], bool]) -> Sequence[Hypothesis]:
            return drain(self.passes(source.rows(rows)), stop, stopped=())

        hypotheses = in_batches(lengths, run, batch=batch, threads=self._threads(threads), progress=progress)
        if not keep_done and any(h is None and length for h, length in zip(hypotheses, lengths, strict=True)):
            raise KeyboardInterrupt
        return [
            hypothesis or Hypothesis((), None, "interrupted" if length else "end")
            for hypothesis, length in zip(hypotheses, lengths, strict=True)
        ]

    def translate_all(
        self,
        texts: str | Sequence[str],
        *,
        verify: bool = False,
        observe: bool = True,
        batch: int | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> list[Translation]:
        """Translate many texts and record the trace of each; see `translate`."""
        texts = several(texts)
        if not texts:
            return []
        source, lengths = self._encode(texts)

        def run(rows: np.ndarray, stop: Callable[[], bool]) -> Sequence[Translation]:
            traces = [self.new_trace(texts[row], source.row(int(row))) for row in rows]
            drain(self.follow(traces, source.rows(rows), verify=verify, observe=observe, stop=stop))
            interrupted = any(trace.hypotheses[0].stop == "interrupted" for trace in traces)
            return () if interrupted else [_translation(trace) for trace in traces]

        translations = in_batches(lengths, run, batch=batch, threads=self._threads(threads), progress=progress)
        return [
            translation or _translation(self._without_passes(text, bool(length)))
            for translation, text, length in zip(translations, texts, lengths, strict=True)
        ]

    def encode_one(self, text: str) -> Source | None:
        """Ids of a sentence as a batch of its own; None for text without content."""
        source, (length,) = self._encode([text])
        return source if length else None

    def _encode(self, texts: Sequence[str]) -> tuple[Source, np.ndarray]:
        """Ids of texts, and their lengths, 0 for text without content."""
        source = self.model.encode(texts, self.source, self.target)
        blank = np.array([not text.strip() for text in texts])
        return source, np.where(blank | (source.lengths <= self._empty_length), 0, source.lengths)

    @cached_property
    def _empty_length(self) -> int:
        """Ids of an empty text: tag and end."""
        return int(self.model.tokenizer.encode([""], self.source, self.target).lengths[0])

    def _threads(self, threads: int | None) -> int:
        return threads if threads is not None else cores() if self.model.engine == "compiled" else 1

    def has_content(self, text: str) -> bool:
        """Whether the tokenizer's normalisation leaves more than tag and end."""
        if not text.strip():
            return False
        return bool(self.model.tokenizer.encode([text], self.source, self.target).lengths[0] > self._empty_length)

    def new_trace(self, text: str, source: Source | None) -> Trace:
        """The trace of a sentence before its first pass; `source` has its ids, None for text without content."""
        return Trace(
            source={
                "text": text,
                "language": self.source,
                "pieces": [] if source is None else self.model.tokenizer.source_tokens(source.ids[0]),
            },
            target={"text": "", "language": self.target},
            settings={
                "model": self.model.name,
                "decoder": self.decoder_name,
                "projection": self.projection_name,
                "engine": self.model.engine,
                "dtype": self.model.dtype,
                "device": self.model.device,
                "vocabulary": self.model.network.outputs[0].vocabulary,
            },
            end=self.constraints.end,
        )

    def _without_passes(self, text: str, interrupted: bool) -> Trace:
        """The trace of a text that has no content, or that was not reached."""
        trace = self.new_trace(text, None)
        if interrupted:
            trace.hypotheses = (Hypothesis((), None, "interrupted"),)
        return trace

    def _finish(self, trace: Trace, source: Source | None) -> None:
        """Complete a trace with the text and the active sets of the clusters that its passes used."""
        (trace.target["text"],) = self.model.texts([trace.source["text"]], [trace.tokens])
        clusters = {
            int(c) for iteration in trace.iterations if iteration.cluster is not None for c in iteration.cluster
        }
        if clusters:
            scorer: Any = self.projection if hasattr(self.projection, "describe") else self.projection.bind(source)
            trace.clusters = {cluster: scorer.describe(cluster, SHOWN) for cluster in sorted(clusters)}
            self._add_pieces(trace, {token for described in trace.clusters.values() for token in described["tokens"]})

    def _add_pieces(self, trace: Trace, tokens: set[int]) -> None:
        """Add the texts of these ids to a trace."""
        if missing := sorted(tokens - trace.pieces.keys()):
            trace.pieces |= dict(zip(missing, self.model.tokenizer.pieces(missing), strict=True))

    @property
    def has_greedy(self) -> bool:
        """Whether the model can be decoded greedily, for comparison."""
        return registry.usual(self.model.network) == "greedy"


def drafting(name: str, model: TranslationModel, source: str | None, target: str | None) -> Outputs:
    """Outputs of another model, decoded by its usual decoder, for sources that are encoded for `model`.

    Raises
    ------
    ValueError
        If the vocabularies or the order of the target tokens differ.
    """
    drafter = _drafter(name, find_checkpoint(name).fingerprint, model.engine, model.dtype, model.device)
    vocabulary = model.network.outputs[0].vocabulary

    def vocabularies(loaded: TranslationModel) -> tuple[Any, ...]:
        pieces, sources = (getattr(loaded.tokenizer, side)(range(vocabulary)) for side in ("pieces", "source_tokens"))
        return loaded.network.outputs[0].vocabulary, pieces, sources, getattr(loaded.tokenizer, "backwards", False)

    if vocabularies(drafter) != vocabularies(model):
        raise ValueError(
            f"The model that drafts needs the vocabulary and order of the one that verifies: {name} and {model.name} differ. Take "
            "models trained with the same tokenizer, in the same direction."
        )
    session = Session.of(drafter, source, target)

    def outputs(batch: Source) -> list[tuple[int, ...]]:
        return [hypothesis.tokens for hypothesis in drain(session.passes(batch))]

    return outputs


@lru_cache(maxsize=2)
def _drafter(name: str, fingerprint: str, engine: str, dtype: str, device: str) -> TranslationModel:
    """A model that drafts, kept for later sentences until its files change."""
    if engine == "compiled":
        return load(name, engine=engine, precision=dtype)
    return load(name, device=device, engine="torch", dtype=dtype)


def _translation(trace: Trace) -> Translation:
    return Translation(trace.source["text"], trace.target["text"], trace.tokens, trace)


def _settled(trace: Trace) -> tuple[int, ...]:
    """The tokens settled when decoding was interrupted: those from the left end, then those from the right end."""
    tokens: dict[int, int] = {}
    for iteration in trace.iterations:
        for slot, token, status in zip(iteration.slots, iteration.tokens, iteration.status, strict=True):
            if status == "settled":
                tokens[int(slot)] = int(token)
    from_left = [tokens[slot] for slot in range(len(tokens)) if slot in tokens]
    settled = [*from_left, *(tokens[slot] for slot in sorted(slot for slot in tokens if slot < 0))]
    ends = [i for i, token in enumerate(settled) if token in trace.end]
    return tuple(settled[: ends[0] + 1] if ends else settled)
