"""Decoders times projections times precisions of a model: what runs, what is refused and why, and what its time should be.

A pass over w positions costs what network and projection take for them, and N passes over W positions each, with the encoder,
make a sentence. So a fast projection and a wide window do not simply multiply: what the projection saves is gone from every
pass, and what is left of a pass may grow faster with w.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.measure import System, decoder_system, measure, synchroniser
from fastdecode_lib.translation import Session, TranslationModel
from fastdecode_lib.tuning import pass_systems

WIDTHS = (1, 2, 3, 5, 8, 12, 20)
"""Positions of the passes whose cost is measured."""
EXACT = ("exact", "quantised")
"""Projections that give the full vocabulary's best tokens."""


@dataclass(frozen=True)
class Combination:
    """A decoder with a projection in a precision.

    Attributes
    ----------
    decoder, projection, precision : str
        As `registry` and `translation.load` name them.
    session : Session or None
        None where it is refused.
    refused : str
        Why.
    """

    decoder: str
    projection: str
    precision: str
    session: Session | None
    refused: str = ""

    @property
    def name(self) -> str:
        """``DECODER + PROJECTION + PRECISION``."""
        return f"{self.decoder} + {self.projection} + {self.precision}"

    @property
    def lossless(self) -> bool:
        """Whether its outputs are plain decoding's over the full vocabulary in float32, by law."""
        return self.keeps_outputs and self.projection in EXACT and self.precision == "float32"

    @property
    def keeps_outputs(self) -> bool:
        """Whether its outputs are plain decoding's under the same projection and precision, by law."""
        return self.session is not None and self.session.decoder.lossless and self.alone

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
    decoders, found = tuple(decoders), list[Combination]()
    for precision, model in models.items():
        sessions: dict[str, Session | str] = {
            name: _session(model, source, target, name, **limits) for name in decoders
        }
        for projection in projections:
            bound = _session(model, source, target, None, projection, **limits)
            for name, own in sessions.items():
                refused = next((why for why in (own, bound) if isinstance(why, str)), None)
                session = None
                if isinstance(own, Session) and isinstance(bound, Session):
                    session = replace(own, projection=bound.projection, projection_name=projection)
                    refused = _refusal(session, text)
                found.append(Combination(name, projection, precision, None if refused else session, refused or ""))
    return found


def _session(
    model: TranslationModel,
    source: str | None,
    target: str | None,
    decoder: str | None,
    projection: str = "exact",
    **limits: Any,
) -> Session | str:
    """A session, or why there is none."""
    try:
        return Session.of(model, source, target, decoder, projection, **limits)
    except ValueError as error:
        return str(error)


def _refusal(session: Session, text: str) -> str | None:
    """Why a session does not run, if it does not."""
    source = session.model.encode([text], session.source, session.target)
    try:
        next(session.decoder.iterate(session.model.network, session.projection, source, session.constraints))
    except ValueError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Costs:
    """What decoding takes with a projection in a precision.

    Attributes
    ----------
    encoder : float
        Seconds of a sentence.
    passes : float array
        Seconds of a pass over each of `WIDTHS`, network and projection.
    beside : float
        Seconds of a pass that are neither's.
    """

    encoder: float
    passes: np.ndarray
    beside: float

    def seconds(self, passes: float, positions: float) -> float:
        """Of a sentence that takes so many passes and positions."""
        each = float(np.interp(positions / passes, WIDTHS, self.passes))
        return self.encoder + passes * (each + self.beside)


def costs(
    found: Sequence[Combination],
    texts: Sequence[str],
    *,
    runs: int = 5,
    threads: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> dict[tuple[str, str], Costs]:
    """Measured costs by projection and precision, for the causal models of one token a step among some combinations.

    Passes go over what greedy decoding puts out for the texts, one output behind the other; what a pass takes beside network
    and projection is read off greedy decoding.
    """
    plain = {c.precision: c.session for c in found if c.session and (c.decoder, c.projection) == ("greedy", "exact")}
    bound: dict[tuple[str, str], Session] = {}
    for c in found:
        if c.session and c.precision in plain:
            bound.setdefault((c.projection, c.precision), c.session)
    if not bound:
        return {}
    first = next(iter(plain.values()))
    sources = [first.model.encode([text], first.source, first.target) for text in texts]
    longest = max(sources, key=lambda one: int(one.lengths[0]))
    systems: list[System] = []
    steps: dict[str, int] = {}
    for precision, session in plain.items():
        outputs = [hypothesis.tokens for hypothesis in session.decode(list(texts), threads=threads)]
        steps[precision] = sum(map(len, outputs))
        tokens = np.array([token for output in outputs for token in output[:-1]] or [0])
        encode = session.model.network.encode
        systems += [
            decoder_system(session, f"greedy, {precision}"),
            System(f"encoder, {precision}", lambda one, encode=encode: (encode(one), ())[1]),  # type: ignore[misc]
        ]
        for projection in (p for p, q in bound if q == precision):
            own = bound[projection, precision]
            made = pass_systems(
                own.model.network,
                WIDTHS,
                own.constraints.prefix,
                seed,
                projection=own.projection,
                source=longest,
                tokens=tokens,
            )
            systems += [
                replace(one, name=f"{projection}, {precision}, {w}") for w, one in zip(WIDTHS, made, strict=True)
            ]
    measured = measure(
        systems, sources, runs=runs, threads=threads, synchronise=synchroniser(first.model.device), progress=progress
    )
    seconds = {m.name: float(np.median(m.seconds)) / len(sources) for m in measured}
    made_costs: dict[tuple[str, str], Costs] = {}
    for projection, precision in bound:
        encoder, each = seconds[f"encoder, {precision}"], steps[precision] / len(sources)
        beside = (seconds[f"greedy, {precision}"] - encoder) / each - seconds[f"exact, {precision}, 1"]
        passes = np.array([seconds[f"{projection}, {precision}, {width}"] for width in WIDTHS])
        made_costs[projection, precision] = Costs(encoder, passes, beside)
    return made_costs


def known_projections() -> tuple[str, ...]:
    """Every projection of the registry, as it is without options, and clusters that a batch shares."""
    fitted = (*registry.FITTED, "clustered:shared=true")
    return (*registry.PROJECTIONS, *fitted, *registry.OF_WORDS, *registry.OF_WEIGHTS, *registry.KEPT)
