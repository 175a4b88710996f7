"""Gains of draft heads and of models trained for drafting; one file because its tables count and time the same models."""

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
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import paired_quality, signatures
from fastdecode_lib.measuring.referee import measure
from fastdecode_lib.papers.combinations.grown import grown, grown_head, grown_table
from fastdecode_lib.papers.outcomes import NoResult, trained
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment
from fastdecode_lib.papers.shared.random_models import OPUS
from fastdecode_lib.papers.shared.rows import gap, speedup_of, table_of
from fastdecode_lib.text.corpus import join_pairs, spread_over
from fastdecode_lib.text.sentences import TECHNICAL, own_pairs
from fastdecode_lib.translation import Session

BASE = "tatoeba-small"
MODELS = {
    "untouched": BASE,
    "tuned together": "tatoeba-drafting",
    "consistency": "tatoeba-consistent",
    "continued": "tatoeba-continued",
}
"""The bundled model; trained on with its head's loss; with Jacobi iteration's; and as long without either, as a control."""
DIRECTION = ("en", "de")
DRAFTS = ("recycled/pad", "ngram+lexicon", "head", "ngram+lexicon+head")
WIDTHS_OF_DRAFTS = {Scale.TINY: (2, 4), Scale.LAPTOP: (2, 3, 4, 5, 8), Scale.PAPER: (2, 3, 4, 5, 6, 8, 12)}
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 200, Scale.PAPER: 1_000}
SCORED = {Scale.TINY: 3, Scale.LAPTOP: 10**9, Scale.PAPER: 10**9}
SAMPLES = {Scale.TINY: 100, Scale.LAPTOP: 1_000, Scale.PAPER: 1_000}


# ------------------------------------------------------------------------------------------------- tokens a pass


@experiment
def drafts(run: CorpusRun) -> pd.DataFrame:
    """Tokens a pass of every draft and width, for the bundled model as it is and for those trained on for parallel decoding.

    On test sentences, joined and single, and on technical English, which is text of another kind. ``identical`` is the share
    of outputs that are the same model's greedy ones: 1 by law, and every one is compared. Intervals are over sentences.
    """
    from tqdm.auto import tqdm

    texts = _texts(run)
    rows: list[dict[str, Any]] = []
    fingerprints: dict[str, str] = {}
    for name in MODELS:
        try:
            model = _model(name)
        except NoResult as missing:
            rows.append({"name": name, "model": name, **gap(missing)})
            continue
        fingerprints[name] = model.checkpoint.fingerprint
        table, head = _parts(model)
        greedy = {which: count(Session.of(model, *DIRECTION, "greedy"), some) for which, some in texts.items()}
        chosen = [(d, w) for d in DRAFTS if "head" not in d or head for w in WIDTHS_OF_DRAFTS[run.scale]]
        for draft, width in tqdm(chosen, desc=name, unit="draft", disable=not run.progress):
            session = _session(model, Window(width, draft), table, head)
            for which, some in texts.items():
                counts, base = count(session, some), greedy[which]
                rows.append(
                    {
                        "name": f"{name}, {draft}, {width}, {which}",
                        "model": name,
                        "draft": draft,
                        "width": width,
                        "set": which,
                        "kind": "measured",
                        "sentences": len(some),
                        "identical": float((counts["ids"] == base["ids"]).mean()),
                        "passes": int(counts["passes"].sum()),
                        "positions": int(counts["positions"].sum()),
                        **_saved(base["passes"].to_numpy(), counts["passes"].to_numpy(), run.seed),
                    }
                )
    return table_of(
        rows, run, engine="compiled", precision="float32", direction="-".join(DIRECTION), fingerprints=fingerprints
    )


def _texts(run: CorpusRun) -> dict[str, list[str]]:
    number = SENTENCES[run.scale]
    if run.tiny:
        single = [a for a, _ in own_pairs(*DIRECTION)][:number]
        return {"joined": [" ".join(single)], "single": single, "technical": list(TECHNICAL[:number])}
    pairs = run.pairs(*DIRECTION)
    return {
        "joined": [a for a, _ in spread_over(join_pairs(pairs, seed=0), number)],
        "single": [a for a, _ in spread_over(pairs, number)],
        "technical": list(TECHNICAL),
    }


def _model(name: str) -> TranslationModel:
    return load(trained(MODELS[name]), device="cpu", engine="compiled")


def _parts(model: TranslationModel) -> tuple[DraftTable, DraftHead | None]:
    """The bundled model's draft table, which serves those trained on from it too, and a model's own head."""
    session = Session.of(load(BASE, device="cpu"), *DIRECTION, "window:draft=ngram+lexicon")
    table = session.decoder.drafts.table  # type: ignore[attr-defined]
    path = find_head(model.checkpoint.folder, model.checkpoint.fingerprint)
    return table, None if path is None else DraftHead.load(path)


def _session(model: TranslationModel, window: Window, table: DraftTable, head: DraftHead | None) -> Session:
    """A session with a window whose table and head are given, not searched for."""
    draft = window.drafts
    bound = BoundHead(head, model.network.outputs[0], DIRECTION[1]) if draft.needs_head and head is not None else None
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


# ------------------------------------------------------------------------------------------------------- quality


@experiment
def tuned(run: CorpusRun) -> pd.DataFrame:
    """Quality of the models trained on for parallel decoding against the bundled one, greedy, on the whole test split.

    ``bleu_p`` says how likely the distance to the untouched model is by chance (paired bootstrap).
    """
    rows: list[dict[str, Any]] = []
    models: dict[str, TranslationModel] = {}
    for name in MODELS:
        try:
            models[name] = _model(name)
        except NoResult as missing:
            rows.append({"name": name, "model": name, **gap(missing)})
    for which in ("single", "joined"):
        pairs = run.pairs(*DIRECTION)
        pairs = (join_pairs(pairs, seed=0) if which == "joined" else pairs)[: SCORED[run.scale]]
        found = {
            name: count(Session.of(model, *DIRECTION, "greedy"), [a for a, _ in pairs], progress=run.progress)
            for name, model in models.items()
        }
        outputs = {name: list(counted["text"]) for name, counted in found.items()}
        scores = paired_quality(outputs, [b for _, b in pairs], "untouched", run.seed, SAMPLES[run.scale])
        for name, model in models.items():
            limit = model.constraints(DIRECTION[1]).limit
            rows.append(
                {
                    "name": f"{name}, {which}",
                    "model": name,
                    "set": which,
                    "kind": "measured",
                    "sentences": len(pairs),
                    "not_ended": int((found[name]["tokens"] >= limit).sum()),
                    **scores[name],
                }
            )
    frame = pd.DataFrame(rows)
    frame.attrs["provenance"] = provenance(threads=1, seed=run.seed) | signatures()
    frame.attrs["provenance"] |= {name: model.checkpoint.fingerprint for name, model in models.items()}
    return frame


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
    Scale.TINY: Timed(2, 2, (3,), ("int8",), (4, 3), 16_500),
    Scale.LAPTOP: Timed(8, 5, (3, 4), ("float32", "int8"), (OPUS.encoder_layers, OPUS.decoder_layers), OPUS.vocabulary),
    Scale.PAPER: Timed(100, 11, (2, 3, 4, 5, 6, 8), ("float32", "int16", "int8"), (6, 6), OPUS.vocabulary),
}
TIMED_DRAFTS = {"untouched": DRAFTS[1:], "tuned together": DRAFTS[-1:], "consistency": DRAFTS[:1]}
"""Drafts that each model is trained for."""
TIMED_SETS = ("joined", "technical")
LARGE = "grown to opus-mt's shape"


@experiment
def draft_time(run: CorpusRun) -> pd.DataFrame:
    """Windows of each model in time over the same model's greedy decoding, predicted from measured costs and then run.

    On joined test sentences and on technical English. On the models as they are, and grown to opus-mt's shape (`grown`): each
    feature twice, layers that add nothing and tokens that never win, so that a model says the same at the cost of the large
    shape. ``predicted`` is from counted passes and positions and measured costs of passes, and leaves the time of drafting out;
    outputs are compared, one by one, in the timed run.
    """
    amount = TIMED[run.scale]
    texts = {which: spread_over(_texts(run)[which], amount.sentences) for which in TIMED_SETS}
    rows: list[dict[str, Any]] = []
    fingerprints: dict[str, str] = {}
    for name, drafts in TIMED_DRAFTS.items():
        try:
            trained_one = trained(MODELS[name])
        except NoResult as missing:
            rows.append({"name": name, "model": name, **gap(missing)})
            continue
        for shape, precision in product((BASE, LARGE), amount.precisions):
            model = load(trained_one, device="cpu", engine="compiled", precision=precision)
            fingerprints[name] = model.checkpoint.fingerprint
            table, head = _parts(model)
            if shape == LARGE:
                model = grown(model, amount.layers, amount.vocabulary, precision, run.seed)
                table, head = grown_table(table, amount.vocabulary), head and grown_head(head, amount.vocabulary)
            sessions = {("greedy", 1): Session.of(model, *DIRECTION, "greedy")}
            for draft, width in product((d for d in drafts if "head" not in d or head), amount.widths):
                sessions[draft, width] = _session(model, Window(width, draft), table, head)
            for which, some in texts.items():
                about = {"model": name, "shape": shape, "precision": precision, "set": which}
                for row in _timed(sessions, some, amount, run):
                    named = ", ".join((*about.values(), row["draft"], str(row["width"])))
                    rows.append({"name": named} | about | row)
    return table_of(
        rows,
        run,
        engine="compiled",
        large={"layers": amount.layers, "vocabulary": amount.vocabulary},
        fingerprints=fingerprints,
    )


def as_predicted(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `draft_time` at the width predicted to be fastest, for each model, shape, precision, draft and set."""
    rows = frame[(frame["kind"] == "measured") & (frame["width"] > 1)]
    return rows.loc[rows.groupby(["model", "shape", "precision", "draft", "set"], sort=False)["predicted"].idxmax()]


def _timed(
    sessions: Mapping[tuple[str, int], Session], texts: Sequence[str], amount: Timed, run: Run
) -> list[dict[str, Any]]:
    """A row for each session, timed in turns; the first is the baseline."""
    greedy, *_ = sessions.values()
    sources = [greedy.model.encode([text], *DIRECTION) for text in texts]
    timings = measure(
        [decoder_system(session, f"{draft}, {width}") for (draft, width), session in sessions.items()],
        sources,
        runs=amount.rounds,
        progress=run.progress,
    )
    counts = [count(session, texts, batch=1) for session in sessions.values()]
    price = _price(greedy, texts, amount, run)
    base, plain = timings[0], counts[0]
    rows = []
    for (draft, width), m, own in zip(sessions, timings, counts, strict=True):
        rows.append(
            {
                "draft": draft,
                "width": width,
                "kind": "measured",
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
