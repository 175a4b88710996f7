"""Choice of the window's width on this machine, confirmed by a timed run; one file because it joins costs and counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement, Source
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import text_system
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import System, measure, noisy, ratio_of, synchroniser
from fastdecode_lib.projections.lexical import source_vocabulary
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

HELD_SLOTS, HELD_SOURCE = 20, 20
"""Target tokens and source tokens before the passes whose cost is measured."""
PASSES = 20
"""Passes of a size that are timed in a row: one alone finds other data in the processor's caches than decoding does."""
TIMED = 3
"""Settings that are timed, the best by prediction."""
DRAFTS = ("ngram+lexicon", "ngram+lexicon+head")
"""Drafts that `draft="auto"` tries beside itself."""


@dataclass(frozen=True)
class Tuning:
    """Result of `tune`.

    Attributes
    ----------
    decoder : str
        The decoder to use here, as a spec: a window, or ``"greedy"`` if none pays.
    speedup : float
        Measured speedup of that decoder over greedy decoding.
    table : DataFrame
        A row per draft and width: ``name, draft, width, cost`` (of a pass, in passes over one position), ``passes,
        tokens_per_pass, predicted`` (speedup), and for those that were timed ``speedup, speedup_low, speedup_high, note``.
    provenance : dict
    """

    decoder: str
    speedup: float
    table: "pd.DataFrame" = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        noise = " This machine is noisy now: measure again when it is idle." if self.provenance["noisy"] else ""
        if not (self.table.width > 1).any():
            return f"Use greedy decoding here: no other width was asked for.{noise}"
        if self.decoder == "greedy":
            best = self.table.loc[self.table.speedup.idxmax()]
            return (
                f"Use greedy decoding here: no width pays. The best, {best['name']}, settles {best.tokens_per_pass:.2f} tokens a "
                f"pass, which costs {best.cost:.2f} single ones; measured, it came to {best.speedup:.2f}.{noise}"
            )
        best = self.table.set_index("name").loc[self.decoder]
        return (
            f"Use {self.decoder} here: {self.speedup:.2f} times as fast as greedy decoding, measured; {best.predicted:.2f} was "
            f"predicted from {best.tokens_per_pass:.2f} tokens a pass at {best.cost:.2f} times the cost.{noise}"
        )


def tune(
    model: TranslationModel,
    sentences: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    draft: str = "auto",
    widths: Sequence[int] = (1, 2, 3, 4, 5, 6, 8),
    batch: int = 1,
    threads: int = 1,
    runs: int = 5,
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> Tuning:
    """Choose the width of the sliding window for a model, a machine and text like some sentences.

    A width pays when it saves more passes than its passes cost more. Both are measured: the cost of passes over w positions of
    as many rows, and the passes that the sentences need. What decoding takes beside is read off greedy decoding, and what a
    drafted token takes off one width of each draft. From these follows a speedup for every width; the best are then timed
    against greedy decoding, and what that gives is what counts.

    Parameters
    ----------
    sentences : sequence of str
        Text like that to be translated; never what results are reported on.
    draft : str
        See `drafts.sources`; ``"auto"`` tries a draft table, and a table with a draft head, where they are at hand.
    widths : sequence of int
    batch : int
        Sentences decoded together.
    runs : int
        Timed rounds.

    Raises
    ------
    ValueError
        If no sentence has content, or a width or the draft is wrong.
    """
    for width in widths:
        Window(width, draft)
    most = model.network.max_target - HELD_SLOTS - 1
    if max(widths, default=1) > most:
        raise ValueError(f"A width is too large for {model.name}: got {max(widths)}, at most {most} fit. Lower widths.")
    greedy = Session.of(model, source, target, "greedy", **limits)
    texts = contents(greedy, sentences)
    widths = sorted({1, *widths})
    sessions = {("", 1): greedy}
    for kind in _drafts(greedy, draft) if len(widths) > 1 else ():
        for width in widths[1:]:
            sessions[kind, width] = Session.of(model, source, target, Window(width, kind), **limits)
    rows_of = sorted({1, -(-batch // 2), batch})
    counted = {setting: _passes(session, texts, batch) for setting, session in sessions.items()}
    seconds, spread = _measured(sessions, texts, widths, rows_of, batch, threads, runs, progress)
    table = _predicted(sessions, counted, seconds, rows_of)
    decoder, speedup, unsteady = _timed(table, sessions, texts, batch, threads, runs, seed, progress)
    about = provenance(model, threads=threads, seed=seed) | {
        "sentences": len(texts), "runs": runs, "draft": draft, "batch": batch, "noisy": spread or unsteady,
    }  # fmt: skip
    table.attrs["provenance"] = about
    return Tuning(decoder, speedup, table, about)


def _drafts(greedy: Session, draft: str) -> list[str]:
    """Drafts to try: with ``"auto"``, those whose table or head is found."""
    if draft != "auto":
        return [draft]
    available = []
    for kind in DRAFTS:
        try:
            Session.of(greedy.model, greedy.source, greedy.target, Window(2, kind))
        except ValueError:
            continue
        available.append(kind)
    return available or ["recycled/pad"]


def _passes(session: Session, texts: Sequence[str], batch: int) -> Counter[int]:
    """Number of passes that decoding takes, by the rows of a pass."""
    counted = Counted(session.model.network)
    model = replace(session.model, network=counted)
    replace(session, model=model).decode(texts, batch=batch, threads=1)
    return counted.passes_of


def _measured(
    sessions: Mapping[tuple[str, int], Session],
    texts: Sequence[str],
    widths: Sequence[int],
    rows_of: Sequence[int],
    batch: int,
    threads: int,
    runs: int,
    progress: bool,
) -> tuple[dict[Any, float], bool]:
    """Seconds of greedy decoding, of the encoder, of one width for each draft and of a pass of each size, measured in turn."""
    greedy = sessions["", 1]
    network = greedy.model.network
    everything = greedy.model.encode(texts, greedy.source, greedy.target)
    order = np.argsort(-everything.lengths, kind="stable")
    batches = [everything.rows(order[start : start + batch]) for start in range(0, len(order), batch)]
    tried = {
        kind: sessions[kind, _middle([w for k, w in sessions if k == kind])] for kind, width in sessions if width > 1
    }
    timed_sessions = {"greedy": greedy} | tried
    systems = {name: text_system(session, batch=batch, threads=threads) for name, session in timed_sessions.items()}
    systems["encoder"] = System("encoder", lambda _: ([network.encode(part) for part in batches], ())[1])
    for rows in rows_of:
        for system in pass_systems(network, widths, greedy.constraints.prefix, rows=rows):
            systems[rows, int(system.name.split()[-1])] = _repeated(system)  # type: ignore[index]
    measurements = measure(
        list(systems.values()),
        [everything],
        runs=runs,
        threads=threads,
        synchronise=synchroniser(greedy.model.device),
        progress=progress,
    )
    return {
        name: float(np.median(measurement.seconds)) / (PASSES if isinstance(name, tuple) else 1)
        for name, measurement in zip(systems, measurements, strict=True)
    }, noisy(measurements[0])


def _repeated(system: System) -> System:
    """The same, `PASSES` times in a row."""
    return replace(system, decode=lambda source: [system.decode(source) for _ in range(PASSES)][-1])


def _predicted(
    sessions: Mapping[tuple[str, int], Session],
    counted: Mapping[tuple[str, int], Counter[int]],
    seconds: Mapping[Any, float],
    rows_of: Sequence[int],
) -> "pd.DataFrame":
    """A row per setting, with the speedup that follows from its passes."""
    import pandas as pd

    def row_passes(setting: tuple[str, int]) -> int:
        return sum(rows * number for rows, number in counted[setting].items())

    def passes(setting: tuple[str, int]) -> float:
        costs = [seconds[rows, setting[1]] for rows in rows_of]
        return sum(number * float(np.interp(rows, rows_of, costs)) for rows, number in counted[setting].items())

    plain = "", 1
    beside = (seconds["greedy"] - seconds["encoder"] - passes(plain)) / row_passes(plain)
    undrafted = {s: seconds["encoder"] + passes(s) + beside * row_passes(s) for s in sessions}
    drafted = {s: row_passes(s) * (s[1] - 1) for s in sessions}
    middle = {kind: (kind, _middle([w for k, w in sessions if k == kind])) for kind, width in sessions if width > 1}
    each = {kind: (seconds[kind] - undrafted[s]) / drafted[s] for kind, s in middle.items()} | {"": 0.0}
    most = max(rows_of)
    return pd.DataFrame(
        {
            "name": [session.decoder_name for session in sessions.values()],
            "draft": [kind for kind, _ in sessions],
            "width": [width for _, width in sessions],
            "cost": [seconds[most, width] / seconds[most, 1] for _, width in sessions],
            "passes": [sum(counted[s].values()) for s in sessions],
            "tokens_per_pass": [row_passes(plain) / row_passes(s) for s in sessions],
            "predicted": [seconds["greedy"] / (undrafted[s] + each[s[0]] * drafted[s]) for s in sessions],
        }
    )


def _middle(widths: Sequence[int]) -> int:
    """The width at which the cost of drafting is measured."""
    return sorted(widths)[len(widths) // 2]


def _timed(
    table: "pd.DataFrame",
    sessions: Mapping[tuple[str, int], Session],
    texts: Sequence[str],
    batch: int,
    threads: int,
    runs: int,
    seed: int,
    progress: bool,
) -> tuple[str, float, bool]:
    """Time the best by prediction against greedy decoding; the decoder to use, its speedup, and whether times were unsteady."""
    table[["speedup", "speedup_low", "speedup_high"]], table["note"] = np.nan, ""
    best = table[table["width"] > 1].sort_values("predicted", ascending=False)[:TIMED]
    if not len(best):
        return "greedy", 1.0, False
    greedy = sessions["", 1]
    chosen = [sessions[kind, width] for kind, width in zip(best["draft"], best["width"], strict=True)]
    systems = [text_system(session, batch=batch, threads=threads) for session in (greedy, *chosen)]
    sources, wait = [greedy.model.encode(texts, greedy.source, greedy.target)], synchroniser(greedy.model.device)
    base, *others = measure(systems, sources, runs=runs, threads=threads, synchronise=wait, progress=progress)
    decoder, speedup = "greedy", 1.0
    for place, measurement in zip(best.index, others, strict=True):
        ratio = ratio_of("speedup", base.seconds, measurement.seconds, seed)
        table.loc[place, list(ratio)] = list(ratio.values())
        table.loc[place, "note"] = "noisy" if noisy(base, measurement) else ""
        if ratio["speedup"] > speedup and not ratio["speedup_low"] <= 1:
            decoder, speedup = str(table.loc[place, "name"]), ratio["speedup"]
    return decoder, speedup, noisy(base, *others)


def contents(session: Session, sentences: Sequence[str]) -> list[str]:
    """The sentences that have content.

    Raises
    ------
    ValueError
        If there are none, or one text stands in the place of a list.
    """
    if isinstance(sentences, str):
        raise ValueError(f"tune needs several sentences: got one text, {sentences[:40]!r}. Give a list of them.")
    texts = [text for text in sentences if session.has_content(text)]
    if not texts:
        raise ValueError("There is nothing to tune on: got no sentence with content. Give some twenty like your own.")
    return texts


def pass_systems(
    network: Any, widths: Sequence[int], prefix: Sequence[int] = (0,), seed: int = 0, rows: int = 1
) -> list[System]:
    """Systems that run one pass of a given width over some rows for each source: network, projection, and the cache put back.

    They stand behind `HELD_SLOTS` slots of random target and random sources, so that only the number of sources counts.
    """
    random = np.random.default_rng(seed)
    projection = registry.projection("exact", network)
    vocabulary = network.outputs[0].vocabulary
    source = Source(random.integers(0, source_vocabulary(network), (rows, HELD_SOURCE)), np.full(rows, HELD_SOURCE))
    tokens = random.integers(0, vocabulary, (rows, HELD_SLOTS + max(widths)))
    state = network.start(network.encode(source), np.tile(prefix, (rows, 1)), HELD_SLOTS + max(widths) + len(prefix))
    network.step(state, tokens[:, :HELD_SLOTS])
    lengths = state.lengths

    def system(width: int) -> System:
        def decode(_: Source) -> tuple[int, ...]:
            hidden = network.step(state, tokens[:, HELD_SLOTS : HELD_SLOTS + width])
            best = projection.bind(source).top_k(hidden.reshape(rows * width, -1), 1)
            state.truncate(lengths)
            return tuple(best.ids[:, 0].tolist())

        return System(f"pass of {width}", decode)

    return [system(width) for width in widths]


def pass_cost(
    network: Any,
    widths: Sequence[int],
    *,
    steps: int,
    rounds: int,
    threads: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> list[Measurement]:
    """Time passes of given widths; the seconds of a measurement are those of `steps` passes."""
    nothing = [Source(np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64))] * steps
    return measure(
        pass_systems(network, widths, seed=seed),
        nothing,
        runs=rounds,
        threads=threads,
        synchronise=synchroniser(str(getattr(network, "device", "cpu"))),
        progress=progress,
    )
