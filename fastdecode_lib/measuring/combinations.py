"""Decoders times projections times precisions of a model; one file because refusals, costs and choice go over one list.

A pass over w positions costs what network and projection take for them, and N passes over W positions each, with the encoder,
make a sentence. So a fast projection and a wide window do not simply multiply: what the projection saves is gone from every
pass, and what is left of a pass may grow faster with w.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement, Scorer, Source
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import System, bootstrap_ratio, measure, synchroniser
from fastdecode_lib.measuring.widths import contents
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

WIDTHS = (1, 2, 3, 5, 8, 12, 20, 32)
"""Positions of the passes whose cost is measured."""
CHECKED = 3
"""Combinations of each kind that `choose` times, the best by prediction."""
EXACT = ("exact", "quantised")
"""Projections that give the full vocabulary's best tokens."""


def named(decoder: str, projection: str, precision: str) -> str:
    """What a combination is called: ``DECODER + PROJECTION + PRECISION``."""
    return f"{decoder} + {projection} + {precision}"


PLAIN = named("greedy", "exact", "float32")
"""The combination that all are compared with."""


@dataclass(frozen=True)
class Combination:
    """A decoder with a projection in a precision.

    Attributes
    ----------
    decoder, projection, precision : str
        As `registry` and `loading.load` name them.
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
        return named(self.decoder, self.projection, self.precision)

    @property
    def lossless(self) -> bool:
        """Whether its outputs are plain decoding's over the full vocabulary in float32, by law."""
        return self.keeps_outputs and self.projection in EXACT and self.precision == "float32"

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
        next(session.passes(source))
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
        """Seconds of a sentence of so many passes and positions; passes wider than measured are extrapolated."""
        width, (second, widest) = positions / passes, WIDTHS[-2:]
        beyond = max(0.0, width - widest) * (self.passes[-1] - self.passes[-2]) / (widest - second)
        each = float(np.interp(width, WIDTHS, self.passes) + beyond)
        return self.encoder + passes * (each + self.beside)


def costs(
    found: Sequence[Combination], texts: Sequence[str], *, runs: int = 5, threads: int = 1, progress: bool = False
) -> dict[tuple[str, str], Costs]:
    """Measured costs by projection and precision, of those that greedy decoding runs with among some combinations.

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
                id(one): _amid(session, one, tokens) for one, tokens in zip(sources, outputs, strict=True)
            }
            encode = session.model.network.encode
            systems.append(System(f"encoder, {precision}", lambda one, encode=encode: (encode(one), ())[1]))  # type: ignore[misc]
        systems.append(decoder_system(session, f"greedy, {label}"))
        systems += [_pass(session, amid[precision], width, f"{label}, {width}") for width in WIDTHS]
    measured = measure(
        systems, sources, runs=runs, threads=threads, synchronise=synchroniser(first.model.device), progress=progress
    )
    seconds = {m.name: float(np.median(m.seconds)) / len(sources) for m in measured}
    made: dict[tuple[str, str], Costs] = {}
    for projection, precision in greedy:
        label, encoder = f"{projection}, {precision}", seconds[f"encoder, {precision}"]
        passes = np.array([seconds[f"{label}, {width}"] for width in WIDTHS])
        beside = (seconds[f"greedy, {label}"] - encoder) / steps[projection, precision] - passes[0]
        made[projection, precision] = Costs(encoder, passes, beside)
    return made


def _amid(session: Session, source: Source, output: Sequence[int]) -> tuple[Any, np.ndarray]:
    """The state behind the first half of an output, and the tokens (1, widest) that follow, from its beginning again if need be."""
    network, prefix, widest = session.model.network, session.constraints.prefix, max(WIDTHS)
    held = max(1, min(len(output) // 2, network.max_target - len(prefix) - widest))
    fed = np.resize(np.array(output or prefix[-1:]), held + widest)[None]
    state = network.start(network.encode(source), np.array([prefix]), held + widest + len(prefix))
    network.step(state, fed[:, :held])
    return state, fed[:, held:]


def _pass(session: Session, amid: Mapping[int, tuple[Any, np.ndarray]], width: int, name: str) -> System:
    """A pass of some width amid the sentence that is given: network, projection, and the cache put back."""
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


@dataclass(frozen=True)
class Choice:
    """What `choose` found.

    Attributes
    ----------
    lossless, near : str or None
        The fastest combination whose outputs are plain decoding's by law, None where plain decoding is faster; and one that is
        faster still and agrees often enough, None where there is none.
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
        rows, sentences = self.table.set_index("name"), self.provenance["sentences"]
        said = "Without any loss: nothing found is faster than greedy decoding in float32."
        if self.lossless is not None:
            speedup = rows.loc[self.lossless, "speedup"]
            said = f"Without any loss: {self.lossless}, {speedup:.2f} times as fast as greedy decoding in float32, measured."
        if self.near is None:
            return f"{said}\nWith next to none: nothing found is faster than that."
        near = rows.loc[self.near]
        same = f"{round(near.agreement * sentences)} of {sentences} outputs the same"
        return f"{said}\nWith next to none: {self.near}, {near.speedup:.2f} times, {same}."


WINDOWS = (
    *(f"window:width={width}" for width in (2, 3, 4, 5, 6, 8)),
    *(f"window:width={width},draft=ngram+lexicon+head" for width in (3, 5)),
)


def choose(
    models: Mapping[str, TranslationModel],
    sentences: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    near: float = 0.95,
    decoders: Iterable[str] = ("greedy", *WINDOWS),
    projections: Iterable[str] | None = None,
    threads: int = 1,
    runs: int = 5,
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> Choice:
    """The fastest combination for a model, a machine and text like some sentences: one without loss, one with next to none.

    All combinations are counted and their time is predicted from what passes cost; the best by prediction are timed, and the
    fastest of those is timed anew beside greedy decoding in float32, which is what counts.

    Parameters
    ----------
    models : mapping of precision to TranslationModel
        The same weights; ``"float32"`` among them.
    sentences : sequence of str
        Text like that to be translated; never what results are reported on.
    projections : iterable of str, optional
        Those that need nothing, a lexicon or screens beside the model, unless they are given: not the baselines of Chen et al.
    near : float
        Share of outputs that must be greedy decoding's for a loss to be next to none.

    Raises
    ------
    ValueError
        If no sentence has content, the model in float32 is missing, or greedy decoding cannot drive it.
    """
    if "float32" not in models:
        raise ValueError(f"What is lossless is told by the model in float32: got {', '.join(models)}. Load it so too.")
    if not 0 < near <= 1:
        raise ValueError(f"near is a share of outputs, above 0 and at most 1: got {near}. Example: 0.95.")
    plain = Session.of(models["float32"], source, target, "greedy", **limits)
    texts = contents(plain, sentences)
    if why := _refusal(plain, texts[0]):
        raise ValueError(why)
    projections = registry.needing("nothing", "screens", "lexicon") if projections is None else projections
    decoders, projections = dict.fromkeys(("greedy", *decoders)), dict.fromkeys(("exact", *projections))
    found = combinations(models, source, target, decoders, projections, texts[0], **limits)
    prices = costs(found, texts, runs=runs, threads=threads, progress=progress)
    running = {c.name: c.session for c in found if c.session is not None and (c.projection, c.precision) in prices}
    table = _predicted([c for c in found if c.name in running], plain, texts, prices)
    sources = [plain.model.encode([text], plain.source, plain.target) for text in texts]

    def timed(names: Sequence[str]) -> dict[str, Measurement]:
        systems = [decoder_system(running[name], name) for name in names]
        wait = synchroniser(plain.model.device)
        measured = measure(systems, sources, runs=runs, threads=threads, synchronise=wait, progress=progress)
        return dict(zip(names, measured, strict=True))

    chosen = _fastest(table, near, timed, seed)
    about = provenance(plain.model, threads=threads, seed=seed) | {"sentences": len(texts), "runs": runs, "near": near}
    table.attrs["provenance"] = about
    return Choice(chosen["lossless"], chosen["near"], table, about)


def _predicted(
    running: Sequence[Combination], plain: Session, texts: Sequence[str], prices: Mapping[tuple[str, str], Costs]
) -> "pd.DataFrame":
    """What each combination is expected to gain, the best first, and how many outputs are the plain ones."""
    import pandas as pd

    rows, whole = [], count(plain, texts)
    for c in running:
        assert c.session is not None
        own = count(c.session, texts, batch=32 if c.alone else 1)
        passes, positions = float(own["passes"].mean()), float(own["positions"].mean())
        rows.append(
            {
                "name": c.name,
                "decoder": c.decoder,
                "projection": c.projection,
                "precision": c.precision,
                "lossless": c.lossless,
                "agreement": same_share(own["ids"], whole["ids"]),
                "passes": passes,
                "positions": positions,
                "predicted": 1 / prices[c.projection, c.precision].seconds(passes, positions),
            }
        )
    table = pd.DataFrame(rows)
    table["predicted"] /= float(table.set_index("name").loc[PLAIN, "predicted"])
    return table.sort_values("predicted", ascending=False, ignore_index=True)


def _fastest(
    table: "pd.DataFrame", near: float, timed: Callable[[Sequence[str]], Mapping[str, Measurement]], seed: int
) -> dict[str, str | None]:
    """Time the best by prediction, and those that come out best anew; their speedups are put into the table."""
    others = table[table["name"] != PLAIN]
    kinds = {
        "lossless": others[others["lossless"]],
        "near": others[~others["lossless"] & (others["agreement"] >= near)],
    }
    contenders = {what: kind["name"][:CHECKED].tolist() for what, kind in kinds.items()}
    first = timed([name for names in contenders.values() for name in names])
    winners = {
        what: min(names, key=lambda name: float(np.median(first[name].seconds)))
        for what, names in contenders.items()
        if names
    }
    again = timed([PLAIN, *winners.values()])  # what chose them does not speak for them
    table[["speedup", "speedup_low", "speedup_high"]] = np.nan
    chosen: dict[str, str | None] = dict.fromkeys(kinds)
    best = 1.0
    for what, name in winners.items():
        ratio = float(np.median(again[PLAIN].seconds) / np.median(again[name].seconds))
        low, high = bootstrap_ratio(again[PLAIN].seconds, again[name].seconds, seed)
        table.loc[table["name"] == name, ["speedup", "speedup_low", "speedup_high"]] = [ratio, low, high]
        if ratio > best and not low <= 1:
            chosen[what], best = name, ratio
    return chosen


def known_projections() -> tuple[str, ...]:
    """Every projection of the registry, as it is without options, and clusters that a batch shares."""
    return (*registry.PROJECTIONS, "clustered:shared=true")
