"""Choice of the window's width on this machine, confirmed by a timed run; one file because the choice joins costs and counts."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement, Source
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import text_system
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import NO_SOURCE, System, measure, noisy, ratio_of
from fastdecode_lib.projections.lexical import source_vocabulary
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

HELD_SLOTS, HELD_SOURCE = 20, 20
"""Target tokens and source tokens before the passes whose cost is measured."""
PASSES = 20
"""Passes of a size that are timed in a row, because a single pass finds other data in the processor's caches than decoding."""
FINALISTS = 3
"""How many settings are timed: the best by prediction."""
DRAFTS = ("ngram+lexicon", "ngram+lexicon+head")
"""Drafts that `draft="auto"` tries."""


@dataclass(frozen=True)
class Tuning:
    """Result of `tune`.

    Attributes
    ----------
    decoder : str
        The decoder to use on this machine, as a spec: a window, or ``"greedy"`` if no window is faster.
    speedup : float
        Measured speedup of that decoder over greedy decoding.
    table : DataFrame
        A row per draft and width: ``name, draft, width, cost`` (of a pass, in passes over one position), ``passes,
        tokens_per_pass, predicted`` (speedup), and for timed settings ``speedup, speedup_low, speedup_high, note``.
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
    """Choose the width of the sliding window for a model, a machine and a kind of text.

    A width is faster if it saves more passes than its wider passes cost. Both are measured: the cost of passes of each width
    and number of rows, and the passes that the sentences need. The overhead of a pass is measured with greedy decoding, and the
    cost of a draft token with one width of each draft. They predict a speedup for every width; the best widths are then timed
    against greedy decoding, and the measured times decide.

    Parameters
    ----------
    sentences : sequence of str
        Text like that to be translated; never the text that results are reported on.
    draft : str
        See `drafts.sources`; ``"auto"`` tries a draft table, and a table with a draft head, if the model has them.
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
    row_counts = sorted({1, -(-batch // 2), batch})
    pass_counts = {setting: _count_passes(session, texts, batch) for setting, session in sessions.items()}
    system = partial(text_system, batch=batch, threads=threads)
    timed = partial(measure, runs=runs, threads=threads, device=model.device, progress=progress)
    seconds, noisy_passes = _pass_seconds(sessions, texts, widths, row_counts, batch, system, timed)
    table = _prediction_table(sessions, pass_counts, seconds, row_counts)
    decoder, speedup, noisy_times = _time_best(table, sessions, texts, system, timed, seed)
    origin = provenance(model, threads=threads, seed=seed) | {
        "sentences": len(texts), "runs": runs, "draft": draft, "batch": batch, "noisy": noisy_passes or noisy_times,
    }  # fmt: skip
    table.attrs["provenance"] = origin
    return Tuning(decoder, speedup, table, origin)


def _drafts(greedy: Session, draft: str) -> list[str]:
    """Drafts to try; with ``"auto"``, those whose table or head is found."""
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


def _count_passes(session: Session, texts: Sequence[str], batch: int) -> Counter[int]:
    """Number of passes that decoding takes, by the number of rows of a pass."""
    counter = Counted(session.model.network)
    model = replace(session.model, network=counter)
    replace(session, model=model).decode(texts, batch=batch, threads=1)
    return counter.passes_of


def _pass_seconds(
    sessions: Mapping[tuple[str, int], Session],
    texts: Sequence[str],
    widths: Sequence[int],
    row_counts: Sequence[int],
    batch: int,
    system: Callable[[Session], System],
    timed: Callable[..., list[Measurement]],
) -> tuple[dict[Any, float], bool]:
    """Seconds of greedy decoding, of the encoder, of one width for each draft, and of a pass of each size; whether noisy."""
    greedy = sessions["", 1]
    network = greedy.model.network
    whole_text = greedy.model.encode(texts, greedy.source, greedy.target)
    longest_first = np.argsort(-whole_text.lengths, kind="stable")
    batches = [whole_text.rows(longest_first[start : start + batch]) for start in range(0, len(longest_first), batch)]
    whole_runs = {"greedy": greedy} | {kind: sessions[setting] for kind, setting in _middle_settings(sessions).items()}
    systems = {name: system(session) for name, session in whole_runs.items()}
    systems["encoder"] = System("encoder", lambda _: ([network.encode(source) for source in batches], ())[1])
    for rows in row_counts:
        passes = pass_systems(network, widths, greedy.constraints.prefix, rows=rows)
        for width, pass_system in zip(widths, passes, strict=True):
            systems[rows, width] = _repeated(pass_system)  # type: ignore[index]
    measurements = timed(list(systems.values()), [whole_text])
    return {
        name: float(np.median(measurement.seconds)) / (PASSES if isinstance(name, tuple) else 1)
        for name, measurement in zip(systems, measurements, strict=True)
    }, noisy(measurements[0])


def _repeated(system: System) -> System:
    """The system, run `PASSES` times in a row."""
    return replace(system, decode=lambda source: [system.decode(source) for _ in range(PASSES)][-1])


def _prediction_table(
    sessions: Mapping[tuple[str, int], Session],
    pass_counts: Mapping[tuple[str, int], Counter[int]],
    seconds: Mapping[Any, float],
    row_counts: Sequence[int],
) -> "pd.DataFrame":
    """A row per setting, with the speedup that its passes predict."""
    import pandas as pd

    def row_passes(setting: tuple[str, int]) -> int:
        return sum(rows * number for rows, number in pass_counts[setting].items())

    def passes(setting: tuple[str, int]) -> float:
        costs = [seconds[rows, setting[1]] for rows in row_counts]
        return sum(number * float(np.interp(rows, row_counts, costs)) for rows, number in pass_counts[setting].items())

    greedy = "", 1
    overhead = (seconds["greedy"] - seconds["encoder"] - passes(greedy)) / row_passes(greedy)
    undrafted = {s: seconds["encoder"] + passes(s) + overhead * row_passes(s) for s in sessions}
    drafted = {s: row_passes(s) * (s[1] - 1) for s in sessions}
    middle = _middle_settings(sessions)
    draft_cost = {kind: (seconds[kind] - undrafted[s]) / drafted[s] for kind, s in middle.items()} | {"": 0.0}
    most_rows = max(row_counts)
    return pd.DataFrame(
        {
            "name": [session.decoder_name for session in sessions.values()],
            "draft": [kind for kind, _ in sessions],
            "width": [width for _, width in sessions],
            "cost": [seconds[most_rows, width] / seconds[most_rows, 1] for _, width in sessions],
            "passes": [sum(pass_counts[s].values()) for s in sessions],
            "tokens_per_pass": [row_passes(greedy) / row_passes(s) for s in sessions],
            "predicted": [seconds["greedy"] / (undrafted[s] + draft_cost[s[0]] * drafted[s]) for s in sessions],
        }
    )


def _middle_settings(sessions: Iterable[tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """The setting with the middle width of each draft, at which the cost of drafting is measured."""
    widths: dict[str, list[int]] = {}
    for kind, width in sessions:
        if width > 1:
            widths.setdefault(kind, []).append(width)
    return {kind: (kind, sorted(of_kind)[len(of_kind) // 2]) for kind, of_kind in widths.items()}


def _time_best(
    table: "pd.DataFrame",
    sessions: Mapping[tuple[str, int], Session],
    texts: Sequence[str],
    system: Callable[[Session], System],
    timed: Callable[..., list[Measurement]],
    seed: int,
) -> tuple[str, float, bool]:
    """Time the best predictions against greedy decoding: the decoder to use, its speedup, and whether times were noisy."""
    table[["speedup", "speedup_low", "speedup_high"]], table["note"] = np.nan, ""
    best = table[table["width"] > 1].sort_values("predicted", ascending=False)[:FINALISTS]
    if not len(best):
        return "greedy", 1.0, False
    greedy = sessions["", 1]
    finalists = [sessions[kind, width] for kind, width in zip(best["draft"], best["width"], strict=True)]
    sources = [greedy.model.encode(texts, greedy.source, greedy.target)]
    baseline, *measurements = timed([system(session) for session in (greedy, *finalists)], sources)
    decoder, speedup = "greedy", 1.0
    for place, measurement in zip(best.index, measurements, strict=True):
        ratio = ratio_of("speedup", baseline.seconds, measurement.seconds, seed)
        table.loc[place, list(ratio)] = list(ratio.values())
        table.loc[place, "note"] = "noisy" if noisy(baseline, measurement) else ""
        if ratio["speedup"] > speedup and not ratio["speedup_low"] <= 1:
            decoder, speedup = str(table.loc[place, "name"]), ratio["speedup"]
    return decoder, speedup, noisy(baseline, *measurements)


def contents(session: Session, sentences: Sequence[str]) -> list[str]:
    """The sentences that have content.

    Raises
    ------
    ValueError
        If there are none, or a single text is given instead of a list.
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
    """Systems that run one pass of a given width for each source: network, projection, and a reset of the cache.

    Passes follow `HELD_SLOTS` random target tokens for `rows` random sources; only the number of the sources given matters.
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
    """Time passes of given widths; each measured time is that of `steps` passes."""
    return measure(
        pass_systems(network, widths, seed=seed),
        [NO_SOURCE] * steps,
        runs=rounds,
        threads=threads,
        device=str(getattr(network, "device", "cpu")),
        progress=progress,
    )
