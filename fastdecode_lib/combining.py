"""Decoders times projections times precisions of a model: what runs, what is refused and why, and what its time should be.

A pass over w positions costs what network and projection take for them, and N passes over W positions each, with the encoder,
make a sentence. So a fast projection and a wide window do not simply multiply: what the projection saves is gone from every
pass, and what is left of a pass may grow faster with w.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.measure import System, bootstrap_ratio, count, decoder_system, measure, provenance, synchroniser
from fastdecode_lib.translation import Session, TranslationModel
from fastdecode_lib.tuning import pass_systems

if TYPE_CHECKING:
    import pandas as pd

WIDTHS = (1, 2, 3, 5, 8, 12, 20)
"""Positions of the passes whose cost is measured."""
CHECKED = 3
"""Combinations of each kind that `choose` times, the best by prediction."""
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


@dataclass(frozen=True)
class Choice:
    """What `choose` found.

    Attributes
    ----------
    lossless, near : str or None
        The fastest combination whose outputs are plain decoding's by law, and the fastest of those that agree with it often
        enough; None where plain decoding is faster.
    table : DataFrame
        A row per combination that runs: ``name, decoder, projection, precision, lossless, agreement, passes, positions,
        predicted`` (speedup), and for those that were checked ``speedup, speedup_low, speedup_high``.
    provenance : dict
    """

    lossless: str | None
    near: str | None
    table: "pd.DataFrame" = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        said = []
        for what, name in (("Without any loss", self.lossless), ("With next to none", self.near)):
            if name is None:
                said.append(f"{what}: nothing found is faster than greedy decoding in float32.")
                continue
            row = self.table.set_index("name").loc[name]
            same = "" if row.lossless else f", {row.agreement:.0%} of the outputs the same"
            said.append(
                f"{what}: {name}, {row.speedup:.2f} times as fast as greedy decoding in float32, measured{same}."
            )
        return "\n".join(said)


WINDOWS = tuple(f"window:width={width}" for width in (2, 3, 4, 5, 6, 8))
OFFERED = (*EXACT, *registry.FITTED, *registry.OF_WORDS)
"""Projections that `choose` looks at: the baselines of paper 001 are not among them."""


def choose(
    models: Mapping[str, TranslationModel],
    sentences: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    near: float = 0.95,
    decoders: Iterable[str] = ("greedy", *WINDOWS),
    projections: Iterable[str] = OFFERED,
    threads: int = 1,
    runs: int = 5,
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> Choice:
    """The fastest combination for a model, a machine and text like some sentences: one without loss, one with next to none.

    All combinations are counted and their time is predicted from what passes cost; the best by prediction are then timed
    beside greedy decoding in float32, and that is what counts.

    Parameters
    ----------
    models : mapping of precision to TranslationModel
        The same weights; ``"float32"`` among them.
    sentences : sequence of str
        Text like that to be translated; never what results are reported on.
    near : float
        Share of outputs that must be greedy decoding's for a loss to be next to none.

    Raises
    ------
    ValueError
        If no sentence has content, or the model in float32 is missing.
    """
    import pandas as pd

    if "float32" not in models:
        raise ValueError(f"What is lossless is told by the model in float32: got {', '.join(models)}. Load it so too.")
    texts = [text for text in sentences if text.strip()]
    if not texts:
        raise ValueError("There is nothing to choose by: got no sentence with content. Give some twenty like your own.")
    found = combinations(models, source, target, decoders, projections, texts[0], **limits)
    prices = costs(found, texts, runs=runs, threads=threads, seed=seed, progress=progress)
    plain = next(c for c in found if c.name == Combination("greedy", "exact", "float32", None).name)
    running = {c.name: c for c in found if c.session is not None and (c.projection, c.precision) in prices}
    counts = {name: count(c.session, texts, batch=32 if c.alone else 1) for name, c in running.items()}  # type: ignore[arg-type]
    whole = counts[plain.name]
    base = prices["exact", "float32"].seconds(whole["passes"].mean(), whole["positions"].mean())
    rows = []
    for name, c in running.items():
        own = counts[name]
        passes, positions = float(own["passes"].mean()), float(own["positions"].mean())
        same = [a == b for a, b in zip(own["ids"], whole["ids"], strict=True)]
        rows.append(
            {
                "name": name,
                "decoder": c.decoder,
                "projection": c.projection,
                "precision": c.precision,
                "lossless": c.lossless,
                "agreement": float(np.mean(same)),
                "passes": passes,
                "positions": positions,
                "predicted": base / prices[c.projection, c.precision].seconds(passes, positions),
            }
        )
    table = pd.DataFrame(rows).sort_values("predicted", ascending=False, ignore_index=True)
    table[["speedup", "speedup_low", "speedup_high"]] = np.nan
    groups = {"lossless": table[table["lossless"]], "near": table[~table["lossless"] & (table["agreement"] >= near)]}
    asked = [str(name) for group in groups.values() for name in group["name"][:CHECKED] if name != plain.name]
    chosen: dict[str, str | None] = dict.fromkeys(groups)
    if asked:
        first = models["float32"]
        sources = [first.encode([text], source, target) for text in texts]
        systems = [decoder_system(running[name].session, name) for name in (plain.name, *asked)]  # type: ignore[arg-type]
        wait = synchroniser(first.device)
        timed = measure(systems, sources, runs=runs, threads=threads, synchronise=wait, progress=progress)
        for m in timed[1:]:
            low, high = bootstrap_ratio(timed[0].seconds, m.seconds, seed)
            ratio = float(np.median(timed[0].seconds) / np.median(m.seconds))
            table.loc[table["name"] == m.name, ["speedup", "speedup_low", "speedup_high"]] = [ratio, low, high]
        for what in groups:
            pays = table[
                table["name"].isin(groups[what]["name"]) & (table["speedup"] > 1) & ~(table["speedup_low"] <= 1)
            ]
            if len(pays):
                chosen[what] = str(pays.loc[pays["speedup"].idxmax()]["name"])
    about = provenance(models["float32"], threads=threads, seed=seed) | {
        "sentences": len(texts),
        "runs": runs,
        "near": near,
    }
    table.attrs["provenance"] = about
    return Choice(chosen["lossless"], chosen["near"], table, about)


def known_projections() -> tuple[str, ...]:
    """Every projection of the registry, as it is without options, and clusters that a batch shares."""
    fitted = (*registry.FITTED, "clustered:shared=true")
    return (*registry.PROJECTIONS, *fitted, *registry.OF_WORDS, *registry.OF_WEIGHTS, *registry.KEPT)
