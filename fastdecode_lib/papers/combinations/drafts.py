"""Gains of drafts, in passes and in time, on the same texts with the same model."""

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
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, table_of
from fastdecode_lib.papers.shared.grown import grown, grown_head, grown_table
from fastdecode_lib.papers.shared.random_models import OPUS
from fastdecode_lib.papers.shared.rows import bootstrapped, keyed, median, speedup_of
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
    of outputs that are greedy decoding's: 1 by law, and every output is compared. Intervals are over sentences.
    """
    texts, model = texts_of(run, SENTENCES[run.scale], *SETS), _model()
    rows: list[dict[str, Any]] = []
    table, head = _table_and_head(model)
    greedy = {set_name: count(Session.of(model, *DIRECTION, "greedy"), texts[set_name]) for set_name in texts}
    for draft, width in run.bar([*product(DRAFTS, WIDTHS_OF_DRAFTS[run.scale])], unit="draft"):
        session = _session(model, Window(width, draft), table, head)
        for set_name, sentences in texts.items():
            counts, greedy_counts = count(session, sentences), greedy[set_name]
            rows.append(
                {
                    **keyed(draft=draft, width=width, set=set_name),
                    "sentences": len(sentences),
                    "identical": float((counts["ids"] == greedy_counts["ids"]).mean()),
                    "passes": int(counts["passes"].sum()),
                    "positions": int(counts["positions"].sum()),
                    **_tokens_per_pass(greedy_counts["passes"].to_numpy(), counts["passes"].to_numpy(), run.seed),
                }
            )
    fingerprints = {BASE: model.checkpoint.fingerprint}
    return table_of(
        rows, run, engine="compiled", precision="float32", direction="-".join(DIRECTION), fingerprints=fingerprints
    )


def texts_of(run: CorpusRun, number: int, *sets: str) -> dict[str, list[str]]:
    """English texts of each set: `number` single test sentences, as many joined ones, and all technical text."""
    pairs = own_pairs(*DIRECTION)[:number] if run.tiny else run.pairs(*DIRECTION)
    single = [a for a, _ in spread_over(pairs, number)]
    joined = [" ".join(single)] if run.tiny else [a for a, _ in spread_over(join_pairs(pairs, seed=0), number)]
    technical = list(TECHNICAL[: number if run.tiny else None])
    texts = {"joined": joined, "single": single, "technical": technical}
    return {set_name: texts[set_name] for set_name in sets}


def _model(precision: str = "float32") -> TranslationModel:
    return load(BASE, device="cpu", engine="compiled", precision=precision)


def _table_and_head(model: TranslationModel) -> tuple[DraftTable, DraftHead]:
    """The model's draft table and head."""
    session = Session.of(model, *DIRECTION, "window:draft=ngram+lexicon")
    table = session.decoder.drafts.table  # type: ignore[attr-defined]
    path = find_head(model.checkpoint.folder, model.checkpoint.fingerprint)
    assert path is not None, "it comes with the model"
    return table, DraftHead.load(path)


def _session(model: TranslationModel, window: Window, table: DraftTable, head: DraftHead) -> Session:
    """A session with a window that drafts from this table and head."""
    draft = window.drafts
    bound_head = BoundHead(head, model.network.outputs[0], DIRECTION[1]) if draft.needs("head") else None
    draft = replace(draft, table=replace(table, about={}) if draft.wants("table") else None, head=bound_head)
    return Session.of(model, *DIRECTION, replace(window, draft=draft))


def _tokens_per_pass(greedy_passes: np.ndarray, passes: np.ndarray, seed: int) -> dict[str, float]:
    """Greedy decoding's passes for each pass, with the interval over sentences."""
    return bootstrapped("tokens_per_pass", lambda total: total(greedy_passes) / total(passes), len(passes), seed, 2_000)


# ---------------------------------------------------------------------------------------------------------- time


@dataclass(frozen=True)
class Amount:
    """Sentences timed of each set; rounds; widths; precisions; layers and vocabulary of the large shape."""

    sentences: int
    rounds: int
    widths: tuple[int, ...]
    precisions: tuple[str, ...]
    layers: tuple[int, int]
    vocabulary: int


TIMED = {
    Scale.TINY: Amount(2, 2, (3,), ("float32", "int8"), (4, 3), 16_500),
    Scale.LAPTOP: Amount(8, 9, (3, 4), ("float32", "int8"), (6, 6), OPUS.vocabulary),
    Scale.PAPER: Amount(100, 11, (2, 3, 4, 5, 6, 8), ("float32", "int16", "int8"), (6, 6), OPUS.vocabulary),
}
TIMED_SETS = ("joined", "technical")
LARGE = "grown to opus-mt's shape"


@experiment
def draft_time(run: CorpusRun) -> pd.DataFrame:
    """Windows over the same model's greedy decoding, in float32 with the lossless projection too.

    On joined test sentences and on technical English, with the bundled model and with the model grown to opus-mt's shape (`grown`):
    each feature twice, layers that add nothing and tokens that never win, which gives the same outputs at the cost of the large
    shape. ``predicted`` is computed from counted passes and positions and measured costs of passes with the exact projection,
    without the time of drafting; every output is compared in the timed run.
    """
    amount, texts = TIMED[run.scale], texts_of(run, SENTENCES[run.scale], *TIMED_SETS)
    rows: list[dict[str, Any]] = []
    for shape, precision in product((BASE, LARGE), amount.precisions):
        model = _model(precision)
        fingerprint = model.checkpoint.fingerprint
        table, head = _table_and_head(model)
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
        for set_name in TIMED_SETS:
            keys = {"shape": shape, "precision": precision, "set": set_name}
            rows += _timed(keys, sessions, spread_over(texts[set_name], amount.sentences), amount, run)
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
    keys = ["shape", "precision", "projection", "draft", "set"]
    return rows.loc[rows.groupby(keys, sort=False)["predicted"].idxmax()]


def _timed(
    keys: dict[str, str],
    sessions: Mapping[tuple[str, int, str], Session],
    texts: Sequence[str],
    amount: Amount,
    run: Run,
) -> list[dict[str, Any]]:
    """A row for each session, timed in turns; the first is the baseline."""
    greedy, *_ = sessions.values()
    sources = [greedy.model.encode([text], *DIRECTION) for text in texts]
    timings = run.measure(
        [decoder_system(session, ", ".join(map(str, name))) for name, session in sessions.items()],
        sources,
        runs=amount.rounds,
    )
    counts = [count(session, texts, batch=1) for session in sessions.values()]
    combination = Combination("greedy", "exact", greedy.model.dtype, greedy)
    pass_costs: Mapping[tuple[str, str], Costs] = costs([combination], texts, runs=amount.rounds, progress=run.progress)
    cost = pass_costs["exact", greedy.model.dtype]
    base, greedy_counts = timings[0], counts[0]
    return [
        {
            **keyed(**keys, draft=draft, width=width, projection=projection),
            "sentences": len(texts),
            "identical": m.agreement(base),
            "tokens_per_pass": float(greedy_counts["passes"].sum() / counted["passes"].sum()),
            "predicted": cost.seconds(greedy_counts["passes"].mean(), greedy_counts["positions"].mean())
            / cost.seconds(counted["passes"].mean(), counted["positions"].mean()),
            **speedup_of(base, m),
            "cost": float(np.interp(width, WIDTHS, cost.passes) / cost.passes[0]),
            "encoder_share": cost.encoder * len(texts) / median(base),
            "seconds": m.seconds.tolist(),
        }
        for (draft, width, projection), m, counted in zip(sessions, timings, counts, strict=True)
    ]
