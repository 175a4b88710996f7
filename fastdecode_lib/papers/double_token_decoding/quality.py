"""Quality and applications of Imamura and Sumita's trained systems; one file because all tables translate the same sentences."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.contexts.feeding import Translations
from fastdecode_lib.contexts.recording import record
from fastdecode_lib.core import Projection, Source
from fastdecode_lib.decoding.folding import folded
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.quality import paired_quality, same_share, signatures
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding.systems import (
    BEAM,
    BOTH,
    DIRECTION,
    JOINED,
    L2R,
    R2L,
    SINGLE,
    SYSTEMS,
    decoder_of,
    fingerprints,
    model_of,
    models_of,
    pairs_of,
    session_of,
    speed_columns,
    timing_columns,
    updates_of,
)
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, gap, table_of
from fastdecode_lib.papers.shared.batches import batches, session_system
from fastdecode_lib.papers.shared.rows import median, quality_of, slots_of
from fastdecode_lib.papers.shared.training_curves import training_curves
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.training.presets import RECIPES, SYSTEMS_002, GroupPreset
from fastdecode_lib.translation import Session

MOST = {Scale.TINY: 4, Scale.LAPTOP: 10**9, Scale.PAPER: 10**9}
"""Sentences whose quality is scored."""
TIMED = {Scale.TINY: 3, Scale.LAPTOP: 64, Scale.PAPER: 640}
RUNS = {Scale.TINY: 3, Scale.LAPTOP: 9, Scale.PAPER: 11}
BATCH = 32
"""The paper's batch size; batches are sorted by length."""
SAMPLES = {Scale.TINY: 100, Scale.LAPTOP: 1_000, Scale.PAPER: 1_000}
SIGNIFICANT = 0.05
MUON, ADAMW = "single-l2r-muon", "single-l2r-adamw"
TICKET = "I would like to buy a ticket to Berlin."


def systems_table(rows: Any, run: Run, models: Sequence[TranslationModel] = (), **facts: Any) -> pd.DataFrame:
    """Rows as a table whose provenance has the models and further `facts`."""
    facts = {"engine": "compiled", "precision": "float32", "fingerprints": fingerprints(models), **facts}
    return table_of(rows, run, **facts)


# -------------------------------------------------------------------------------------------------------- figures


@experiment
def figure1(run: Run) -> pd.DataFrame:
    """Figure 1: which slots attend to each other in training, for one token a step and for two, measured on the networks.

    A slot sees another if its hidden vector changes with the token fed in the other; the tokens fed are a sentence's, folded.
    """
    words = ["We", "will", "go", "to", "Tokyo", "."]
    ids = list(range(3, 3 + len(words)))
    rows: list[dict[str, Any]] = []
    for system in (L2R, BOTH):
        model = model_of(SYSTEMS[system].preset, Scale.TINY)
        network: Any = model.network
        slots = folded(ids, 0, network.tokens_per_step, network.both_ends)
        fed = [2] * network.tokens_per_step + slots[: -network.tokens_per_step]
        names = ["BOS", "EOS"][: network.tokens_per_step] + [words[i - 3] for i in slots[: -network.tokens_per_step]]
        dependence = _dependence(network, fed)
        rows += [
            {
                "name": f"{system}, {names[query]} sees {names[key]}",
                "system": system,
                "query": query,
                "key": key,
                "query_token": names[query],
                "key_token": names[key],
                "sees": bool(dependence[query, key]),
            }
            for query, key in np.ndindex(dependence.shape)
        ]
    return systems_table(rows, run)


def _dependence(network: Any, fed: Sequence[int]) -> np.ndarray:
    """Dependence of slots' hidden vectors (rows) on the tokens fed (columns), bool (T, T)."""
    source = Source(np.array([[5, 6, 0]]), np.array([3]))
    memory = network.encode(source)

    def hidden(tokens: Sequence[int]) -> np.ndarray:
        state = network.start(memory, np.zeros((1, 0), dtype=np.int64), len(tokens))
        vectors: np.ndarray = network.step(state, np.array([tokens]))[0]
        return vectors

    unchanged = hidden(fed)
    changed = [hidden([*fed[:i], 20, *fed[i + 1 :]]) for i in range(len(fed))]
    return np.stack([(vectors != unchanged).any(-1) for vectors in changed], axis=1)


@experiment
def figure2(run: Run) -> pd.DataFrame:
    """Figure 2: a sentence growing from both ends; live."""
    return _passes("bidirectional", "double_token", own_pairs("en", "de")[0][0], run)


@experiment
def mask_predict(run: Run) -> pd.DataFrame:
    """Mask-Predict on a sentence: all tokens at once, then those of the lowest probability again."""
    return _passes("mask-predict", "mask_predict:iterations=4", TICKET, run)


def _passes(preset: str, decoder: str, text: str, run: Run) -> pd.DataFrame:
    """A row for each slot of each pass over a sentence; the trace is named after the decoder."""
    model = model_of(preset, run.scale)
    trace = session_of(model, decoder).translate(text).trace
    rows = [{"name": f"pass {row['call'] + 1}, slot {row['slot']}"} | row for row, _, _ in slots_of(trace)]
    return systems_table(rows, run, (model,), traces={decoder.partition(":")[0]: trace})


@experiment
def table1(run: Run) -> pd.DataFrame:
    """Table 1: the paper's settings and our recipe's, the same for all systems unless stated."""
    preset = SYSTEMS_002["bidirectional"]
    assert isinstance(preset, GroupPreset)
    ours = {
        "encoder_layers": f"{preset.encoder_layers} + {preset.decoder_layers}",
        "width": preset.width,
        "heads": preset.heads,
        "feed_forward": preset.feed_forward,
        "dropout": preset.dropout,
        "vocabulary": f"{preset.vocabulary:,} shared",
        "optimiser": f"Muon on the matrices of layers, {preset.matrix_rate}; AdamW on the rest",
        "warm_up": f"{preset.warm_up:,} updates, constant to {preset.constant:.0%}, then linear to zero",
        "weight_decay": "0.01, decoupled",
        "clip": "norm 1",
        "label_smoothing": preset.label_smoothing,
        "batch": f"at most {preset.tokens_per_update:,} padded target tokens",
        "peak_rate": preset.peak_rate,
        "updates": f"{preset.updates:,} updates",
        "average": f"last weights or their running average, {preset.average}, whichever is better on dev",
        "numbers": "float32",
        "norms": "behind each block; big not trained",
        "beam": f"{BEAM}; Mask-Predict 5 lengths",
        "length_penalty": "1.0",
        "test_batch": "one sentence; 32 sorted by length beside it",
    }
    rows = [
        {"name": name, "ours": str(ours.get(key, "not trained")), "paper": printed}
        for name, printed, key in imamura_2020.TABLE_1
    ]
    return systems_table(rows, run)


# ------------------------------------------------------------------------------------------------------- systems


@experiment
def table2(run: CorpusRun) -> pd.DataFrame:
    """Table 2: quality and speed of every system that is trained, on single sentences and on joined ones.

    ``bleu_p_l2r`` and ``bleu_p_r2l`` are the p-values of the difference to single-token L2R and R2L; ``marks`` has † and ‡ where
    they are below 5%, as in the paper. Speed is of one sentence at a time, and in batches of 32 sorted by length. Ratios are over
    single-token L2R in the same run, systems in turns: ``speedup`` is of the times for the same sentences; ``token_ratio`` is of
    tokens a second, as in the paper, and rises with the length of a system's outputs. Tokens are counted without ends. The row of
    a system that is not trained here has the command that trains it.
    """
    models, reasons = models_of(run.scale)
    sessions = {name: session_of(model, SYSTEMS[name].decoder) for name, model in models.items()}
    _check_tokenizers(sessions)
    rows: list[dict[str, Any]] = []
    for set_name in (SINGLE, JOINED):
        pairs = pairs_of(set_name, run, MOST[run.scale])
        texts, references = [a for a, _ in pairs], [b for _, b in pairs]
        outputs, counts = {}, {}
        for name, session in run.bar(sessions.items(), desc=set_name, unit="system"):
            counts[name] = count(session, texts)
            outputs[name] = list(counts[name]["text"])
        scores = {
            baseline: paired_quality(outputs, references, baseline, run.seed, SAMPLES[run.scale])
            for baseline in (L2R, R2L)
        }
        speeds = _speeds(sessions, spread_over(texts, TIMED[run.scale]), run)
        for name in SYSTEMS:
            full_name = name if set_name == SINGLE else f"{name}, {set_name}"
            row: dict[str, Any] = {"name": full_name, "system": name, "set": set_name}
            if name in sessions:
                row |= scores[L2R][name] | {"bleu_p_l2r": scores[L2R][name]["bleu_p"]}
                row |= {"bleu_p_r2l": scores[R2L][name]["bleu_p"] if R2L in sessions else None}
                row |= {
                    "sentences": len(pairs),
                    "passes": float(counts[name]["passes"].mean()),
                    "tokens": float(counts[name]["tokens"].mean()) - 1,
                    "updates": None if run.tiny else updates_of(SYSTEMS[name].preset),
                    **speeds[name],
                }
                row.pop("bleu_p")
                row["marks"] = _marks(row["bleu_p_l2r"], row["bleu_p_r2l"])
            else:
                row |= gap(reasons[name])
            for column, corpus in enumerate(imamura_2020.SETS):
                if name in imamura_2020.TABLE_2:
                    bleu, speed = imamura_2020.TABLE_2[name][column]
                    row |= {f"paper_bleu_{corpus}": bleu, f"paper_tokens_per_second_{corpus}": speed}
                    row[f"paper_ratio_{corpus}"] = imamura_2020.printed_ratio(name, column)
                    row[f"paper_marks_{corpus}"] = imamura_2020.MARKS[name][column]
            rows.append(row)
    return systems_table(rows, run, list(models.values()), beam=BEAM, batch=BATCH, **signatures())


@experiment
def learning(run: Run) -> pd.DataFrame:
    """Learning curves: chrF on the dev split against updates, single sentences and joined ones.

    Scores are those of training: with each system's simplest decoder, and the last weights or their running average.
    """
    return table_of(training_curves(SYSTEMS_002), run)


@experiment
def recipes(run: Run) -> pd.DataFrame:
    """What training costs: chrF on dev of one system after so many updates, by two recipes.

    ``muon_share`` and ``muon_processor_share``: the updates and the processor time with which the recipe with Muon first comes to a
    row's chrF, over those of AdamW alone (interpolated between evaluations).
    """
    rows = training_curves(RECIPES)
    curves = [_records(row for row in rows if row["system"] == system) for system in (MUON, ADAMW)]
    for row in rows:
        if row["updates"] is not None and all(c and c[0]["chrf"] <= row["chrf"] <= c[-1]["chrf"] for c in curves):
            for column, cost in (("muon_share", "updates"), ("muon_processor_share", "processor_minutes")):
                muon, adamw = (
                    np.interp(row["chrf"], [best["chrf"] for best in c], [best[cost] for best in c]) for c in curves
                )
                row[column] = float(muon / adamw)
    return table_of(rows, run)


def _records(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The evaluations with a higher chrF than all before."""
    best: list[dict[str, Any]] = []
    for row in rows:
        if row["updates"] is not None and (not best or row["chrf"] > best[-1]["chrf"]):
            best.append(row)
    return best


def _marks(*p_values: float | None) -> str:
    """† if the first p-value is below 5%, ‡ if the second is."""
    return "".join(mark for mark, p in zip("†‡", p_values, strict=True) if p is not None and p < SIGNIFICANT)


def _speeds(sessions: dict[str, Session], texts: Sequence[str], run: Run) -> dict[str, dict[str, Any]]:
    """Tokens and sentences a second and the ratio over single-token L2R: at batch 1, and in batches sorted by length."""
    if not sessions:
        return {}
    rows: dict[str, dict[str, Any]] = {name: {} for name in sessions}
    first = next(iter(sessions.values()))
    systems = [session_system(name, session) for name, session in sessions.items()]
    for batch, suffix in ((1, ""), (BATCH, f"_batch_{BATCH}")):
        parts = batches(first.model, texts, DIRECTION, batch, by_length=True)
        timings = run.measure(systems, parts, runs=RUNS[run.scale])
        speeds = speed_columns(timings, first.constraints.end, suffix)
        for m in timings:
            rows[m.name] |= speeds[m.name] | {f"sentences_per_second{suffix}": len(texts) / median(m)}
    return rows


def _check_tokenizers(sessions: dict[str, Session]) -> None:
    """Raise a `ValueError` if a system has another tokenizer than the first: all get the same source ids."""
    pieces_by_system = {
        name: session.model.tokenizer.source_tokens(range(session.model.network.outputs[0].vocabulary))
        for name, session in sessions.items()
    }
    first = next(iter(pieces_by_system), None)
    for name, pieces in pieces_by_system.items():
        if first and pieces != pieces_by_system[first]:
            preset = SYSTEMS[name].preset
            raise ValueError(
                f"The systems of table 2 need one tokenizer: got another of {preset} than of {SYSTEMS[first].preset}. "
                f"Train {preset} anew, on the text of the others and with their seed, or take its folder out of build/train."
            )


# ---------------------------------------------------------------------------------------------------------- beyond


CLUSTERS, TOP = {Scale.TINY: 4, Scale.LAPTOP: 50, Scale.PAPER: 400}, 5
FIT_ON = {Scale.TINY: 60, Scale.LAPTOP: 20_000, Scale.PAPER: 200_000}
"""Training sentences on whose contexts a screen is fitted."""


@experiment
def screened(run: CorpusRun) -> pd.DataFrame:
    """Two tokens a step with a screened vocabulary; with large vocabularies, the projection's cost limits the gain.

    Each model has its own screen (Amer et al.), fitted on its own translations of training sentences. ``identical`` is the share
    of outputs that are the exact projection's under the same decoder.
    """
    pairs = pairs_of(JOINED, run, MOST[run.scale] if run.tiny else 300)
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    rows: list[dict[str, Any]] = []
    models = {name: model_of(SYSTEMS[name].preset, run.scale) for name in (L2R, BOTH)}
    screens = {name: _screen(model, run) for name, model in models.items()}
    for size in (1, BEAM):
        sessions: dict[str, Session] = {}
        for name, model in models.items():
            decoder = decoder_of(1 if name == L2R else 2, size)
            sessions[f"{name}, exact"] = session_of(model, decoder)
            sessions[f"{name}, clustered"] = session_of(model, decoder, screens[name])
        sources = [models[L2R].encode([text], *DIRECTION) for text in spread_over(texts, TIMED[run.scale])]
        systems = [session_system(n, s) for n, s in sessions.items()]
        timings = run.measure(systems, sources, runs=RUNS[run.scale])
        exact: Any = None
        for m, (label, session) in zip(timings, sessions.items(), strict=True):
            name, _, projection = label.partition(", ")
            outputs = session.decode(texts, threads=1)
            translations = session.model.texts(texts, [h.tokens for h in outputs])
            exact = outputs if projection == "exact" else exact
            rows.append(
                {
                    "name": f"{label}, beam {size}",
                    "system": name,
                    "projection": projection,
                    "beam": size,
                    **quality_of(translations, references),
                    "identical": same_share([h.tokens for h in outputs], [h.tokens for h in exact]),
                    **timing_columns(timings[0], m),
                }
            )
    return systems_table(rows, run, list(models.values()), clusters=CLUSTERS[run.scale], top=TOP, **signatures())


def _screen(model: TranslationModel, run: CorpusRun) -> Projection:
    """Clusters fitted on the contexts of a model's translations of training sentences."""
    import tempfile

    from fastdecode_lib.projections.clustering import fit_clustered
    from fastdecode_lib.projections.exact_compiled import output_matrix
    from fastdecode_lib.projections.screen_compiled import ScreenScorer

    texts = [a for a, _ in pairs_of(JOINED, run, FIT_ON[run.scale], "train")]
    with tempfile.TemporaryDirectory() as folder:
        contexts = record(Translations(model), {"en-de": texts}, folder, top=TOP)
        screen = fit_clustered(
            contexts, clusters=CLUSTERS[run.scale], top=TOP, seed=run.seed, always=model.constraints().end
        )
    return ScreenScorer(screen, output_matrix(model.network))


WIDTHS = (4, 8, 64)


@experiment
def lossless(run: CorpusRun) -> pd.DataFrame:
    """The bidirectional model's output as a draft that single-token L2R verifies: the output is L2R's greedy output, by law.

    ``identical`` is the share of outputs that are greedy decoding's, token for token; ``passes`` are of the verifying model,
    ``draft_passes`` of the drafting one; times include both.
    """
    texts = [a for a, _ in pairs_of(JOINED, run, MOST[run.scale] if run.tiny else 300)]
    verifying, drafting = (model_of(SYSTEMS[name].preset, run.scale) for name in (L2R, BOTH))
    specs = {"greedy": "greedy", "recycled": "window:width=5,draft=recycled/pad"}
    specs |= {f"drafted, width {w}": f"window:width={w},draft=model,model={drafting.name}" for w in WIDTHS}
    sessions = {name: session_of(verifying, spec) for name, spec in specs.items()}
    sessions["bidirectional alone"] = session_of(drafting, "double_token")
    counts = {name: count(session, texts) for name, session in sessions.items()}
    sources = [verifying.encode([text], *DIRECTION) for text in spread_over(texts, TIMED[run.scale])]
    timings = run.measure([decoder_system(s, n) for n, s in sessions.items()], sources, runs=RUNS[run.scale])
    draft_passes = float(counts["bidirectional alone"]["passes"].mean())
    rows = [
        {
            "name": m.name,
            "sentences": len(texts),
            "identical": same_share(counted["ids"], counts["greedy"]["ids"]),
            **timing_columns(timings[0], m),
            "passes": float(counted["passes"].mean()),
            "draft_passes": draft_passes if m.name.startswith("drafted") else 0.0,
            "tokens_per_pass": float(counted["tokens"].sum() / counted["passes"].sum()),
        }
        for m, counted in zip(timings, counts.values(), strict=True)
    ]
    return systems_table(rows, run, (verifying, drafting))
