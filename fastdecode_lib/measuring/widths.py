"""Which width of the window pays on this machine: measured pass cost times counted passes, checked by a timed run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement, Source
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import System, bootstrap_ratio, measure, synchroniser
from fastdecode_lib.projections.lexical import source_vocabulary
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

HELD_SLOTS, HELD_SOURCE = 20, 20
"""How much target and source stands before the passes whose cost is measured."""


@dataclass(frozen=True)
class Tuning:
    """What `tune` found.

    Attributes
    ----------
    decoder : str
        The decoder to use here, as a spec: a window, or ``"greedy"`` if no width pays.
    speedup : float
        Of that decoder over greedy decoding, measured.
    table : DataFrame
        A row per width: ``name, width, cost, cost_low, cost_high`` (of a pass, in passes over one position), ``passes,
        tokens_per_pass, predicted`` (speedup), and for the width that was checked ``speedup, speedup_low, speedup_high``.
    provenance : dict
    """

    decoder: str
    speedup: float
    table: "pd.DataFrame" = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        wide = self.table[self.table.width > 1]
        if not len(wide):
            return "Use greedy decoding here: no other width was asked for."
        best = wide.loc[wide.predicted.idxmax()]
        if self.decoder == "greedy":
            checked = self.table.speedup.max()
            found = f"; measured, it came to {checked:.2f}" if checked == checked else ""
            return (
                f"Use greedy decoding here: no width pays. The best, {best.width}, settles {best.tokens_per_pass:.2f} tokens a "
                f"pass, which costs {best.cost:.2f} single ones{found}."
            )
        return (
            f"Use {self.decoder} here: {self.speedup:.2f} times as fast as greedy decoding, measured; {best.predicted:.2f} was "
            f"predicted from {best.tokens_per_pass:.2f} tokens a pass at {best.cost:.2f} times the cost."
        )


def tune(
    model: TranslationModel,
    sentences: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    draft: str = "auto",
    widths: Sequence[int] = (1, 2, 3, 4, 5, 6, 8),
    threads: int = 1,
    runs: int = 5,
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> Tuning:
    """Choose the width of the sliding window for a model, a machine and text like some sentences.

    A width pays when it saves more passes than its passes cost more. Both are measured: the cost of a pass over w positions,
    and the passes that the sentences need; from them follows a speedup for every width. The best width is then timed
    against greedy decoding, and what that gives is what counts.

    Parameters
    ----------
    sentences : sequence of str
        Text like that to be translated; never what results are reported on.
    draft : str
        See `decoding.drafts`.
    widths : sequence of int
    runs : int
        Timed rounds.

    Raises
    ------
    ValueError
        If no sentence has content, or a width or the draft is wrong.
    """
    import pandas as pd

    for width in widths:
        Window(width, draft)
    most = model.network.max_target - HELD_SLOTS - 1
    if max(widths, default=1) > most:
        raise ValueError(f"A width is too large for {model.name}: got {max(widths)}, at most {most} fit. Lower widths.")
    widths = sorted({1, *widths})
    greedy = Session.of(model, source, target, "greedy", **limits)
    windows = {
        width: Session.of(model, source, target, Window(width, draft), **limits) for width in widths if width > 1
    }
    texts = contents(greedy, sentences)
    sources = [model.encode([text], greedy.source, greedy.target) for text in texts]
    wait = synchroniser(model.device)
    encoding = System("encoder", lambda one: (model.network.encode(one), ())[1])
    costs = pass_systems(model.network, widths, greedy.constraints.prefix)
    timed = measure(
        [decoder_system(greedy, "greedy"), encoding, *costs],
        sources,
        runs=runs,
        threads=threads,
        synchronise=wait,
        progress=progress,
    )
    whole, encoder, *by_width = timed
    passes = {1: int(count(greedy, texts)["passes"].sum())}
    passes |= {width: int(count(session, texts)["passes"].sum()) for width, session in windows.items()}
    rows = []
    one = float(np.median(by_width[0].seconds)) / len(sources)
    # What a pass of the decoder costs beside the one measured, as greedy decoding shows it: its own work, other lengths.
    beside = (float(np.median(whole.seconds)) - float(np.median(encoder.seconds))) / passes[1] - one
    for width, m in zip(widths, by_width, strict=True):
        each = float(np.median(m.seconds)) / len(sources)
        predicted = float(np.median(encoder.seconds)) + passes[width] * (each + beside)
        low, high = bootstrap_ratio(m.seconds, by_width[0].seconds, seed)
        rows.append(
            {
                "name": "greedy" if width == 1 else registry.describe(windows[width].decoder),
                "width": width,
                "cost": each / one,
                "cost_low": low,
                "cost_high": high,
                "passes": passes[width],
                "tokens_per_pass": passes[1] / passes[width],
                "predicted": float(np.median(whole.seconds)) / predicted,
            }
        )
    table = pd.DataFrame(rows)
    best = table.loc[table.predicted.idxmax()]
    table[["speedup", "speedup_low", "speedup_high"]] = np.nan
    decoder, speedup = "greedy", 1.0
    if best.width > 1:
        chosen = windows[int(best.width)]
        base, contender = measure(
            [decoder_system(greedy, "greedy"), decoder_system(chosen)],
            sources,
            runs=runs,
            threads=threads,
            synchronise=wait,
            progress=progress,
        )
        measured = float(np.median(base.seconds) / np.median(contender.seconds))
        low, high = bootstrap_ratio(base.seconds, contender.seconds, seed)
        table.loc[table.width == best.width, ["speedup", "speedup_low", "speedup_high"]] = [measured, low, high]
        if measured > 1 and not low <= 1:
            decoder, speedup = str(best["name"]), measured
    about = provenance(model, threads=threads, seed=seed) | {"sentences": len(texts), "runs": runs, "draft": draft}
    table.attrs["provenance"] = about
    return Tuning(decoder, speedup, table, about)


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


def pass_systems(network: Any, widths: Sequence[int], prefix: Sequence[int] = (0,), seed: int = 0) -> list[System]:
    """Systems that run one pass of a given width for each source: network, projection, and the cache put back.

    They stand behind `HELD_SLOTS` slots of random target and a random source, so that only the number of sources counts.
    """
    random = np.random.default_rng(seed)
    projection = registry.projection("exact", network)
    vocabulary = network.outputs[0].vocabulary
    source = Source(random.integers(0, source_vocabulary(network), (1, HELD_SOURCE)), np.array([HELD_SOURCE]))
    tokens = random.integers(0, vocabulary, (1, HELD_SLOTS + max(widths)))
    state = network.start(network.encode(source), np.array([prefix]), HELD_SLOTS + max(widths) + len(prefix))
    network.step(state, tokens[:, :HELD_SLOTS])
    lengths = state.lengths

    def system(width: int) -> System:
        def decode(_: Source) -> tuple[int, ...]:
            best = projection.bind(source).top_k(network.step(state, tokens[:, HELD_SLOTS : HELD_SLOTS + width])[0], 1)
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
