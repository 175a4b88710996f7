"""Decoders, projections and precisions combined: which combinations run on a model, and what their passes cost.

A pass over w positions costs what network and projection take for them, and N passes over W positions each, with the encoder,
make a sentence. So a fast projection and a wide window do not simply multiply: what the projection saves is gone from every
pass, and what is left of a pass may grow faster with w.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Scorer, Source
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.referee import System, measure, synchroniser
from fastdecode_lib.translation import Session

WIDTHS = (1, 2, 3, 5, 8, 12, 20, 32)
"""Positions of the passes whose cost is measured."""


def named(decoder: str, projection: str, precision: str) -> str:
    """Name of a combination: ``DECODER + PROJECTION + PRECISION``."""
    return f"{decoder} + {projection} + {precision}"


PLAIN = named("greedy", "exact", "float32")
"""The combination that all are compared with."""


@dataclass(frozen=True)
class Combination:
    """A decoder with a projection in a precision.

    Attributes
    ----------
    decoder, projection, precision : str
        Names of `registry` and `loading.load`.
    session : Session or None
        Session to run it with; None where it is refused.
    refused : str
        Reason of the refusal.
    """

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
        """Whether its outputs are plain decoding's over the full vocabulary in float32, by law."""
        return self.keeps_outputs and self.projection in registry.EXACT and self.precision == "float32"

    @property
    def keeps_outputs(self) -> bool:
        """Whether its outputs are plain decoding's under the same projection and precision, by law."""
        if self.session is None or not self.alone:
            return False
        return self.session.decoder.lossless or self.decoder == registry.usual(self.session.model.network)

    @property
    def alone(self) -> bool:
        """Whether a row's tokens do not depend on the rows beside it."""
        return not getattr(self.session and self.session.projection, "shared", False)


def combinations(
    models: Mapping[str, TranslationModel],
    source: str | None,
    target: str | None,
    decoders: Iterable[str],
    projections: Iterable[str],
    text: str,
    **limits: Any,
) -> list[Combination]:
    """All combinations for one model, each tried on the first pass over a text.

    Parameters
    ----------
    models : mapping of precision to TranslationModel
        The same weights.
    text : str
        A sentence.
    """
    decoders, tried = tuple(decoders), list[Combination]()
    for precision, model in models.items():
        sessions: dict[str, Session | str] = {
            name: _session(model, source, target, name, **limits) for name in decoders
        }
        for projection in projections:
            bound = _session(model, source, target, None, projection, **limits)
            for name, decoder_session in sessions.items():
                refused = next((why for why in (decoder_session, bound) if isinstance(why, str)), None)
                session = None
                if isinstance(decoder_session, Session) and isinstance(bound, Session):
                    session = replace(decoder_session, projection=bound.projection, projection_name=projection)
                    refused = _refusal(session, text)
                tried.append(Combination(name, projection, precision, None if refused else session, refused or ""))
    return tried


def _session(
    model: TranslationModel,
    source: str | None,
    target: str | None,
    decoder: str | None,
    projection: str = "exact",
    **limits: Any,
) -> Session | str:
    """A session, or the reason why there is none."""
    try:
        return Session.of(model, source, target, decoder, projection, **limits)
    except ValueError as error:
        return str(error)


def _refusal(session: Session, text: str) -> str | None:
    """Reason why a session does not run; None if it does."""
    source = session.model.encode([text], session.source, session.target)
    try:
        next(session.passes(source))
    except ValueError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Costs:
    """Times of decoding with a projection in a precision.

    Attributes
    ----------
    encoder : float
        Seconds of a sentence.
    passes : float array
        Seconds of a pass over each of `WIDTHS`, network and projection.
    beside : float
        Seconds of a pass outside both.
    """

    encoder: float
    passes: np.ndarray
    beside: float

    def seconds(self, passes: float, positions: float) -> float:
        """Seconds of a sentence of so many passes and positions; passes wider than measured are extrapolated."""
        width, (second, widest) = positions / passes, WIDTHS[-2:]
        beyond = max(0.0, width - widest) * (self.passes[-1] - self.passes[-2]) / (widest - second)
        each = float(np.interp(width, WIDTHS, self.passes) + beyond)
        return self.encoder + passes * (each + self.beside)


def costs(
    found: Sequence[Combination], texts: Sequence[str], *, runs: int = 5, threads: int = 1, progress: bool = False
) -> dict[tuple[str, str], Costs]:
    """Measured costs by projection and precision, for each pair with which greedy decoding runs.

    Passes of each width are timed amid every text: behind the first half of what greedy decoding puts out for it. What a pass
    takes beside network and projection is read off greedy decoding under the same projection.
    """
    greedy = {(c.projection, c.precision): c.session for c in found if c.session and c.decoder == "greedy"}
    if not greedy:
        return {}
    first = next(iter(greedy.values()))
    sources = [first.model.encode([text], first.source, first.target) for text in texts]
    systems: list[System] = []
    steps: dict[tuple[str, str], float] = {}
    amid: dict[str, dict[int, Any]] = {}
    for (projection, precision), session in greedy.items():
        label = f"{projection}, {precision}"
        outputs = [hypothesis.tokens for hypothesis in session.decode(list(texts), batch=1, threads=threads)]
        steps[projection, precision] = float(np.mean([len(output) for output in outputs]))
        if precision not in amid:
            amid[precision] = {
                id(item): _amid(session, item, tokens) for item, tokens in zip(sources, outputs, strict=True)
            }
            encode = session.model.network.encode
            systems.append(System(f"encoder, {precision}", lambda item, encode=encode: (encode(item), ())[1]))  # type: ignore[misc]
        systems.append(decoder_system(session, f"greedy, {label}"))
        systems += [_pass(session, amid[precision], width, f"{label}, {width}") for width in WIDTHS]
    measured = measure(
        systems, sources, runs=runs, threads=threads, synchronise=synchroniser(first.model.device), progress=progress
    )
    seconds = {m.name: float(np.median(m.seconds)) / len(sources) for m in measured}
    measured_costs: dict[tuple[str, str], Costs] = {}
    for projection, precision in greedy:
        label, encoder = f"{projection}, {precision}", seconds[f"encoder, {precision}"]
        passes = np.array([seconds[f"{label}, {width}"] for width in WIDTHS])
        beside = (seconds[f"greedy, {label}"] - encoder) / steps[projection, precision] - passes[0]
        measured_costs[projection, precision] = Costs(encoder, passes, beside)
    return measured_costs


def _amid(session: Session, source: Source, output: Sequence[int]) -> tuple[Any, np.ndarray]:
    """The state behind the first half of an output, and the tokens (1, widest) that follow, from its beginning again if need be."""
    network, prefix, widest = session.model.network, session.constraints.prefix, max(WIDTHS)
    held = max(1, min(len(output) // 2, network.max_target - len(prefix) - widest))
    fed = np.resize(np.array(output or prefix[-1:]), held + widest)[None]
    state = network.start(network.encode(source), np.array([prefix]), held + widest + len(prefix))
    network.step(state, fed[:, :held])
    return state, fed[:, held:]


def _pass(session: Session, amid: Mapping[int, tuple[Any, np.ndarray]], width: int, name: str) -> System:
    """A pass of a given width in the middle of a sentence: network, projection, and the cache reset."""
    network, scorers = session.model.network, dict[int, Scorer]()

    def decode(source: Source) -> tuple[int, ...]:
        state, fed = amid[id(source)]
        if id(source) not in scorers:
            scorers[id(source)] = session.projection.bind(source)
        scorer = scorers[id(source)]
        lengths = state.lengths
        best = scorer.top_k(network.step(state, fed[:, :width])[0], 1)
        state.truncate(lengths)
        return tuple(best.ids[:, 0].tolist())

    return System(name, decode)


def known_projections() -> tuple[str, ...]:
    """Every projection of the registry without options, and clusters shared by a batch."""
    return (*registry.PROJECTIONS, "clustered:shared=true")
