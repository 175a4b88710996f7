"""Gains of drafts, in passes and in time; one file because its tables count and time the same model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.finding import find_head
from fastdecode_lib.drafts.head import DraftHead
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.combinations import WIDTHS, Combination, Costs, costs
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.referee import measure
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment
from fastdecode_lib.papers.shared.grown import grown, grown_head, grown_table
from fastdecode_lib.papers.shared.random_models import OPUS
from fastdecode_lib.papers.shared.rows import speedup_of, table_of
from fastdecode_lib.projections.quantised import Quantised
from fastdecode_lib.text.corpus import join_pairs, spread_over
from fastdecode_lib.text.sentences import TECHNICAL, own_pairs
from fastdecode_lib.translation import Session

BASE = "tatoeba-small"
DIRECTION = ("en", "de")
DRAFTS = ("recycled/pad", "ngram+lexicon", "head", "ngram+lexicon+head")
SETS = ("joined", "single", "technical")
WIDTHS_OF_DRAFTS = {Scale.TINY: (2, 4), Scale.LAPTOP: (2, 3, 4, 5, 8), Scale.PAPER: (2, 3, 4, 5, 6, 8, 12)}
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 200, Scale.PAPER: 1_000}


# ------------------------------------------------------------------------------------------------- tokens a pass


@experiment
def drafts(run: CorpusRun) -> pd.DataFrame:
    """Tokens a pass of every draft and width.

    On test sentences, joined and single, and on technical English, which is text of another kind. ``identical`` is the share
    of outputs that are greedy decoding's: 1 by law, and every one is compared. Intervals are over sentences.
    """
    from tqdm.auto import tqdm

    texts, model = texts_of(run, SENTENCES[run.scale], *SETS), _model()
    rows: list[dict[str, Any]] = []
    table, head = _parts(model)
    greedy = {which: count(Session.of(model, *DIRECTION, "greedy"), some) for which, some in texts.items()}
    for draft, width in tqdm([*product(DRAFTS, WIDTHS_OF_DRAFTS[run.scale])], unit="draft", disable=not run.progress):
        session = _session(model, Window(width, draft), table, head)
        for which, some in texts.items():
            counts, base = count(session, some), greedy[which]
            rows.append(
                {
                    "name": f"{draft}, {width}, {which}",
                    "draft": draft,
                    "width": width,
                    "set": which,
                    "sentences": len(some),
                    "identical": float((counts["ids"] == base["ids"]).mean()),
                    "passes": int(counts["passes"].sum()),
                    "positions": int(counts["positions"].sum()),
                    **_saved(base["passes"].to_numpy(), counts["passes"].to_numpy(), run.seed),
                }
            )
    fingerprints = {BASE: model.checkpoint.fingerprint}
    return table_of(
        rows, run, engine="compiled", precision="float32", direction="-".join(DIRECTION), fingerprints=fingerprints
    )


def texts_of(run: CorpusRun, number: int, *sets: str) -> dict[str, list[str]]:
    """So many English texts of each of these sets: single test sentences, joined ones, and technical text (all there is)."""
    pairs = own_pairs(*DIRECTION)[:number] if run.tiny else run.pairs(*DIRECTION)
    single = [a for a, _ in spread_over(pairs, number)]
    joined = [" ".join(single)] if run.tiny else [a for a, _ in spread_over(join_pairs(pairs, seed=0), number)]
    technical = list(TECHNICAL[: number if run.tiny else None])
    texts = {"joined": joined, "single": single, "technical": technical}
    return {which: texts[which] for which in sets}


def _model(precision: str = "float32") -> TranslationModel:
    return load(BASE, device="cpu", engine="compiled", precision=precision)


def _parts(model: TranslationModel) -> tuple[DraftTable, DraftHead]:
    """The model's draft table and head."""
    session = Session.of(model, *DIRECTION, "window:draft=ngram+lexicon")
    table = session.decoder.drafts.table  # type: ignore[attr-defined]
    path = find_head(model.checkpoint.folder, model.checkpoint.fingerprint)
    assert path is not None, "it comes with the model"
    return table, DraftHead.load(path)


def _session(model: TranslationModel, window: Window, table: DraftTable, head: DraftHead) -> Session:
    """A session with a window whose table and head are given, not searched for."""
    draft = window.drafts
    bound = BoundHead(head, model.network.outputs[0], DIRECTION[1]) if draft.needs_head else None
    ready = replace(draft, table=replace(table, about={}) if draft.wants_table else None, head=bound)
    return Session.of(model, *DIRECTION, replace(window, draft=ready))


def _saved(base: np.ndarray, found: np.ndarray, seed: int, samples: int = 2_000) -> dict[str, float]:
    """Greedy passes for each pass, with its interval over sentences."""
    chosen = np.random.default_rng(seed).integers(0, len(base), (samples, len(base)))
    low, high = np.quantile(base[chosen].sum(1) / found[chosen].sum(1), [0.025, 0.975])
    return {
        "tokens_per_pass": float(base.sum() / found.sum()),
        "tokens_per_pass_low": float(low),
        "tokens_per_pass_high": float(high),
    }


# ---------------------------------------------------------------------------------------------------------- time


@dataclass(frozen=True)
class Timed:
    """Sentences timed of each set, rounds, widths, precisions, and the large shape: layers and vocabulary."""

    sentences: int
    rounds: int
    widths: tuple[int, ...]
    precisions: tuple[str, ...]
    layers: tuple[int, int]
    vocabulary: int


TIMED = {
    Scale.TINY: Timed(2, 2, (3,), ("float32", "int8"), (4, 3), 16_500),
    Scale.LAPTOP: Timed(8, 7, (3, 4), ("float32", "int8"), (OPUS.encoder_layers, OPUS.decoder_layers), OPUS.vocabulary),
    Scale.PAPER: Timed(100, 11, (2, 3, 4, 5, 6, 8), ("float32", "int16", "int8"), (6, 6), OPUS.vocabulary),
}
TIMED_SETS = ("joined", "technical")
LARGE = "grown to opus-mt's shape"


@experiment
def draft_time(run: CorpusRun) -> pd.DataFrame:
    """Windows over the same model's greedy decoding, in float32 with the lossless projection too.

    On joined test sentences and on technical English. On the model as it is, and grown to opus-mt's shape (`grown`): each
    feature twice, layers that add nothing and tokens that never win, so that it says the same at the cost of the large shape.
    ``predicted`` is from counted passes and positions and measured costs of passes with the exact projection, and leaves the time
    of drafting out; outputs are compared, one by one, in the timed run.
    """
    amount, texts = TIMED[run.scale], texts_of(run, SENTENCES[run.scale], *TIMED_SETS)
    rows: list[dict[str, Any]] = []
    for shape, precision in product((BASE, LARGE), amount.precisions):
        model = _model(precision)
        fingerprint = model.checkpoint.fingerprint
        table, head = _parts(model)
        if shape == LARGE:
            model = grown(model, amount.layers, amount.vocabulary, precision, run.seed)
            table, head = grown_table(table, amount.vocabulary), grown_head(head, amount.vocabulary)
        sessions = {("greedy", 1, "exact"): Session.of(model, *DIRECTION, "greedy")}
        for draft, width in product(DRAFTS[1:], amount.widths):
            sessions[draft, width, "exact"] = _session(model, Window(width, draft), table, head)
        if precision == "float32":
            lossless = Quantised(model.network.outputs[0].weight)
            for (draft, width, _), session in [*sessions.items()]:
                sessions[draft, width, "quantised"] = replace(session, projection=lossless, projection_name="quantised")
        for which in TIMED_SETS:
            about = {"shape": shape, "precision": precision, "set": which}
            for row in _timed(sessions, spread_over(texts[which], amount.sentences), amount, run):
                named = ", ".join((*about.values(), row["draft"], str(row["width"]), row["projection"]))
                rows.append({"name": named} | about | row)
    return table_of(
        rows,
        run,
        engine="compiled",
        large={"layers": amount.layers, "vocabulary": amount.vocabulary},
        fingerprints={BASE: fingerprint},
    )


def as_predicted(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `draft_time` at the width predicted to be fastest, for each shape, precision, projection, draft and set."""
    rows = frame[(frame["kind"] == "measured") & ((frame["width"] > 1) | (frame["projection"] != "exact"))]
    place = ["shape", "precision", "projection", "draft", "set"]
    return rows.loc[rows.groupby(place, sort=False)["predicted"].idxmax()]


def _timed(
    sessions: Mapping[tuple[str, int, str], Session], texts: Sequence[str], amount: Timed, run: Run
) -> list[dict[str, Any]]:
    """A row for each session, timed in turns; the first is the baseline."""
    greedy, *_ = sessions.values()
    sources = [greedy.model.encode([text], *DIRECTION) for text in texts]
    timings = measure(
        [decoder_system(session, ", ".join(map(str, name))) for name, session in sessions.items()],
        sources,
        runs=amount.rounds,
        progress=run.progress,
    )
    counts = [count(session, texts, batch=1) for session in sessions.values()]
    price = _price(greedy, texts, amount, run)
    base, plain = timings[0], counts[0]
    rows = []
    for (draft, width, projection), m, own in zip(sessions, timings, counts, strict=True):
        rows.append(
            {
                "draft": draft,
                "width": width,
                "projection": projection,
                "sentences": len(texts),
                "identical": m.agreement(base),
                "tokens_per_pass": float(plain["passes"].sum() / own["passes"].sum()),
                "predicted": price.seconds(plain["passes"].mean(), plain["positions"].mean())
                / price.seconds(own["passes"].mean(), own["positions"].mean()),
                **speedup_of(base, m, run.seed),
                "cost": float(np.interp(width, WIDTHS, price.passes) / price.passes[0]),
                "encoder_share": price.encoder * len(texts) / float(np.median(base.seconds)),
                "seconds": m.seconds.tolist(),
            }
        )
    return rows


def _price(greedy: Session, texts: Sequence[str], amount: Timed, run: Run) -> Costs:
    """Measured costs of passes of the greedy session's model."""
    one = Combination("greedy", "exact", greedy.model.dtype, greedy)
    found: Mapping[tuple[str, str], Costs] = costs([one], texts, runs=amount.rounds, progress=run.progress)
    return found["exact", greedy.model.dtype]
