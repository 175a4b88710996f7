"""Decoders, projections and precisions combined: which combinations run on a model, and what their passes cost.

A pass over w positions takes the time of the network and the projection for w positions, and a sentence takes the time of the
encoder and of all its passes. The speedups of a fast projection and of a wide window therefore do not simply multiply: once the
projection is fast, the rest of a pass may grow faster with w.
"""

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Scorer, Source
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.referee import System, measure
from fastdecode_lib.translation import Session

WIDTHS = (1, 2, 3, 5, 8, 12, 20, 32)
"""Positions of the passes whose cost is measured."""


def named(decoder: str, projection: str, precision: str) -> str:
    """Name of a combination: ``DECODER + PROJECTION + PRECISION``."""
    return f"{decoder} + {projection} + {precision}"


@dataclass(frozen=True)
class Combination:
    """A decoder with a projection in a precision, by name, and the session that runs it; None if it is `refused` for a reason."""

    decoder: str
    projection: str
    precision: str
    session: Session | None
    refused: str = ""

    @property
    def name(self) -> str:
        """``DECODER + PROJECTION + PRECISION``."""
        return named(self.decoder, self.projection, self.precision)

    @property
    def lossless(self) -> bool:
        """Whether a law holds its outputs to those of plain decoding over the full vocabulary in float32."""
        return self.keeps_outputs and self.projection in registry.EXACT and self.precision == "float32"

    @property
    def keeps_outputs(self) -> bool:
        """Whether a law holds its outputs to those of plain decoding with the same projection and precision."""
        if self.session is None or not self.alone:
            return False
        return self.session.decoder.lossless or self.decoder == registry.usual(self.session.model.network)

    @property
    def alone(self) -> bool:
        """Whether a row's tokens do not depend on the other rows of a batch."""
        return not getattr(self.session and self.session.projection, "shared", False)


def combinations(
    models: Mapping[str, TranslationModel],
    source: str | None,
    target: str | None,
    decoders: Iterable[str],
    projections: Iterable[str],
    text: str,
    *,
    specs: Mapping[str, str] = types.MappingProxyType({}),
    **limits: Any,
) -> list[Combination]:
    """All combinations for models of the same weights by precision; the first pass over a text shows which of them run.

    `specs` has the specs of projections that stand for other options than the default ones.
    """
    decoders, results = tuple(decoders), list[Combination]()
    for precision, model in models.items():
        sessions: dict[str, Session | str] = {
            name: _session(model, source, target, name, **limits) for name in decoders
        }
        for projection in projections:
            bound = _session(model, source, target, None, specs.get(projection, projection), **limits)
            for name, decoder_session in sessions.items():
                session = None
                if isinstance(decoder_session, str):
                    refusal = decoder_session
                elif isinstance(bound, str):
                    refusal = bound
                else:
                    session = replace(decoder_session, projection=bound.projection, projection_name=projection)
                    refusal = _refusal(session, text)
                results.append(Combination(name, projection, precision, None if refusal else session, refusal))
    return results


def _session(
    model: TranslationModel,
    source: str | None,
    target: str | None,
    decoder: str | None,
    projection: str = "exact",
    **limits: Any,
) -> Session | str:
    """A session, or the error message if there is none."""
    try:
        return Session.of(model, source, target, decoder, projection, **limits)
    except ValueError as error:
        return str(error)


def _refusal(session: Session, text: str) -> str:
    """The error message of a session's first pass; empty if it runs."""
    source = session.model.encode([text], session.source, session.target)
    try:
        next(session.passes(source))
    except ValueError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Costs:
    """Seconds of decoding with a projection in a precision.

    `encoder` is for a sentence; `passes`, an array, network and projection for a pass over each of `WIDTHS`; `overhead` all else of
    a pass.
    """

    encoder: float
    passes: np.ndarray
    overhead: float

    def seconds(self, passes: float, positions: float) -> float:
        """Seconds of a sentence with a number of passes and positions; passes wider than `WIDTHS` are extrapolated."""
        width, (second, widest) = positions / passes, WIDTHS[-2:]
        beyond = max(0.0, width - widest) * (self.passes[-1] - self.passes[-2]) / (widest - second)
        each = float(np.interp(width, WIDTHS, self.passes) + beyond)
        return self.encoder + passes * (each + self.overhead)


def costs(
    tried: Sequence[Combination], texts: Sequence[str], *, runs: int = 5, progress: bool = False
) -> dict[tuple[str, str], Costs]:
    """Measured costs by projection and precision, for each pair that greedy decoding runs with.

    Passes of each width are timed in the middle of every text: after the first half of greedy decoding's output. The overhead
    of a pass comes from the time of greedy decoding with the same projection.
    """
    greedy = {(c.projection, c.precision): c.session for c in tried if c.session and c.decoder == "greedy"}
    if not greedy:
        return {}
    first = next(iter(greedy.values()))
    sources = [first.model.encode([text], first.source, first.target) for text in texts]
    systems: list[System] = []
    steps: dict[tuple[str, str], float] = {}
    mid_sentence: dict[str, dict[int, Any]] = {}
    for (projection, precision), session in greedy.items():
        label = f"{projection}, {precision}"
        outputs = [hypothesis.tokens for hypothesis in session.decode(list(texts), batch=1, threads=1)]
        steps[projection, precision] = float(np.mean([len(output) for output in outputs]))
        if precision not in mid_sentence:
            mid_sentence[precision] = {
                id(item): _mid_sentence(session, item, tokens) for item, tokens in zip(sources, outputs, strict=True)
            }
            encode = session.model.network.encode
            systems.append(System(f"encoder, {precision}", lambda item, encode=encode: (encode(item), ())[1]))  # type: ignore[misc]
        systems.append(decoder_system(session, f"greedy, {label}"))
        systems += [_pass(session, mid_sentence[precision], width, f"{label}, {width}") for width in WIDTHS]
    measured = measure(systems, sources, runs=runs, device=first.model.device, progress=progress)
    seconds = {m.name: float(np.median(m.seconds)) / len(sources) for m in measured}
    measured_costs: dict[tuple[str, str], Costs] = {}
    for projection, precision in greedy:
        label, encoder = f"{projection}, {precision}", seconds[f"encoder, {precision}"]
        passes = np.array([seconds[f"{label}, {width}"] for width in WIDTHS])
        overhead = (seconds[f"greedy, {label}"] - encoder) / steps[projection, precision] - passes[0]
        measured_costs[projection, precision] = Costs(encoder, passes, overhead)
    return measured_costs


def _mid_sentence(session: Session, source: Source, output: Sequence[int]) -> tuple[Any, np.ndarray]:
    """The state after the first half of an output, and the tokens (1, widest) that follow; short outputs are repeated."""
    network, prefix, widest = session.model.network, session.constraints.prefix, max(WIDTHS)
    cached = max(1, min(len(output) // 2, network.max_target - len(prefix) - widest))
    tokens = np.resize(np.array(output or prefix[-1:]), cached + widest)[None]
    state = network.start(network.encode(source), np.array([prefix]), cached + widest + len(prefix))
    network.step(state, tokens[:, :cached])
    return state, tokens[:, cached:]


def _pass(session: Session, mid_sentence: Mapping[int, tuple[Any, np.ndarray]], width: int, name: str) -> System:
    """A pass of a given width in the middle of a sentence: network, projection, and the cache reset."""
    network, scorers = session.model.network, dict[int, Scorer]()

    def decode(source: Source) -> tuple[int, ...]:
        state, tokens = mid_sentence[id(source)]
        if id(source) not in scorers:
            scorers[id(source)] = session.projection.bind(source)
        scorer = scorers[id(source)]
        lengths = state.lengths
        best = scorer.top_k(network.step(state, tokens[:, :width])[0], 1)
        state.truncate(lengths)
        return tuple(best.ids[:, 0].tolist())

    return System(name, decode)


def known_projections() -> tuple[str, ...]:
    """Every projection of the registry without options, and clusters shared by a batch."""
    return (*registry.PROJECTIONS, "clustered:shared=true")
