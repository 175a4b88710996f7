"""Santilli et al.'s tables and figures, and more of the same; one file because most of them are views of the same runs.

The paper's iterations are called passes here; its code does not count one pass a sentence for PJ and PGJ, and neither does the
column ``calls_ratio_as_paper_counts``. The protocols, ``honest`` and ``paper``, are described in `runs`. Rows of ``kind``
*measured* are ours, *paper* those of the paper's that match none of ours, *model* are calculated.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.checkpoints.transformer import FAMILIES
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.papers.parallel_decoding import printed as santilli_2023
from fastdecode_lib.papers.parallel_decoding.printed import GREEDY, HGJ3, PGJ3, PJ
from fastdecode_lib.papers.parallel_decoding.runs import (
    BATCH,
    METHODS,
    SETS,
    SIZES,
    WINDOW,
    directions_of,
    runs,
    sentence_pairs,
)
from fastdecode_lib.papers.reading import beside_paper
from fastdecode_lib.papers.run import CorpusRun, ModelRun, ThreadedRun, experiment, table_of
from fastdecode_lib.papers.shared.rows import paper_rows, slots_of
from fastdecode_lib.text.corpus import shuffled
from fastdecode_lib.text.sentences import EXAMPLES, SENTENCES, TECHNICAL
from fastdecode_lib.trace import Trace
from fastdecode_lib.training.pieces import load_pieces, trained_pieces
from fastdecode_lib.translation import Session, translate


def _with_paper(ours: pd.DataFrame, printed: Iterable[dict[str, Any]], *keys: str) -> pd.DataFrame:
    """Our rows with the paper's values of the same keys, then the paper's other rows."""
    frame = pd.concat([ours.assign(kind="measured"), pd.DataFrame(list(printed))], ignore_index=True)
    frame = beside_paper(frame, *keys) if keys else frame
    frame.attrs = dict(ours.attrs)
    return frame


def _with_cells(ours: pd.DataFrame, cells: santilli_2023.Cells) -> pd.DataFrame:
    """Our rows with the paper's values for the same decoder and direction, then the paper's other rows."""
    printed = ({"name": name, "direction": d, "kind": "paper", **values} for (name, d), values in cells.items())
    return _with_paper(ours, printed, "name", "direction")


KEYS = ["name", "direction", "set", "protocol", "sentences"]
INTERVAL = ["speedup", "speedup_low", "speedup_high"]


@experiment
def table1(run: ThreadedRun) -> pd.DataFrame:
    """Table 1: speed and BLEU of the decoders; the paper's OPUS-MT on a CPU, and its mBART-50 on a GPU. See `runs`."""
    frame = runs(run)
    columns = [*KEYS, *INTERVAL, "calls", "positions", "calls_ratio", "agreement", "bleu", "chrf", "seconds"]
    return _with_cells(frame[columns], santilli_2023.TABLE_1)


@experiment
def table2(run: ThreadedRun) -> pd.DataFrame:
    """Table 2: passes and time over languages; the paper's mBART-50. See `runs`."""
    frame = runs(run)
    frame = frame[frame["name"].isin([PJ, PGJ3, HGJ3, WINDOW])]
    return _with_cells(frame[[*KEYS, "calls_ratio", *INTERVAL]], santilli_2023.TABLE_2)


@experiment
def table6(run: ThreadedRun) -> pd.DataFrame:
    """Table 6: time and passes, all of them and as the paper counts them. See `runs`.

    In the paper, OPUS-MT saves far more time than passes. A pass over several positions does not cost less than a pass over
    one (see `cost`), so the difference has another cause.
    """
    frame = runs(run)
    frame = frame[frame["name"].isin([m.name for m in METHODS])]
    columns = [*KEYS, *INTERVAL, "calls", "calls_ratio", "calls_ratio_as_paper_counts"]
    return _with_cells(frame[columns], santilli_2023.TABLE_6)


@experiment
def table7(run: ThreadedRun) -> pd.DataFrame:
    """Table 7: BLEU over languages; the paper's mBART-50. See `runs`."""
    frame = runs(run)
    frame = frame[frame["name"].isin([m.name for m in METHODS])]
    return _with_cells(frame[[*KEYS, "agreement", "bleu", "chrf"]], santilli_2023.TABLE_7)


@experiment
def table4(run: ModelRun) -> pd.DataFrame:
    """Table 4: sizes of the test sets, ours with their mean length in tokens of the model."""
    model = run.loaded
    size = SIZES[run.scale]
    rows: list[dict[str, Any]] = []
    for direction, set_name in product(directions_of(model, run.scale), SETS):
        pairs = sentence_pairs(run, *direction, set_name, size.honest)
        lengths = model.encode([a for a, _ in pairs], *direction).lengths
        name = f"{'own sentences' if run.tiny else 'tatoeba'} {'-'.join(direction)}"
        rows.append({"name": name, "set": set_name, "sentences": len(pairs), "source_tokens": lengths.mean()})
    rows += [{"name": name, "paper_sentences": n, "kind": "paper"} for name, n in santilli_2023.TABLE_4.items()]
    return table_of(rows, run, model)


def _flops(run: ThreadedRun) -> pd.DataFrame:
    """FLOPs of our decoders in the first direction; nothing is trained for them, so that all FLOPs are of inference."""
    frame = runs(run)
    if "flops_per_sentence" not in frame:
        raise ValueError(
            f"FLOPs are known for {', '.join(FAMILIES)} models only: got another model. Use tatoeba-small, or an OPUS-MT, "
            "mBART, M2M-100, NLLB or T5 checkpoint."
        )
    first = frame["direction"] == frame["direction"].iloc[0]
    frame = frame[first & frame["name"].isin([m.name for m in METHODS])].assign(train_flops=0.0)
    return frame.assign(total_flops=frame["flops_per_sentence"] * frame["sentences"])


@experiment
def table3(run: ThreadedRun) -> pd.DataFrame:
    """Table 3: cost of our decoders and of methods that are trained. FLOPs are of the sentences of the row. See `runs`."""
    frame = _flops(run)
    frame = frame.assign(flops_per_speedup=frame["total_flops"] / frame["speedup"])
    values = {name: (*requirements, *numbers) for name, (requirements, numbers) in santilli_2023.TABLE_3.items()}
    printed = paper_rows(values, *santilli_2023.REQUIREMENTS, *santilli_2023.NAT_COLUMNS)
    flops = ["flops_per_sentence", "train_flops", "total_flops", "flops_per_speedup"]
    return _with_paper(frame[[*KEYS, "speedup", "bleu", *flops]], printed, "name")


@experiment
def table5(run: ThreadedRun) -> pd.DataFrame:
    """Table 5: FLOPs of training and of inference, of our decoders and of the paper's list of other models. See `runs`."""
    frame = _flops(run)
    columns = [*KEYS, "train_flops", "flops_per_sentence", "total_flops"]
    printed = paper_rows(santilli_2023.TABLE_5, "paper_train_flops", "paper_inference_flops", "paper_total_flops")
    return _with_paper(frame[columns], printed)


def _traces(model: TranslationModel, examples: Iterable[tuple[str, str, str, str]], *decoders: str) -> pd.DataFrame:
    """Passes of the decoders on the examples, a row for each slot of each pass; the traces are in ``attrs``."""
    rows: list[dict[str, Any]] = []
    traces: dict[str, Trace] = {}
    for (source, target, text, _), decoder in product(examples, decoders):
        trace = translate(model, text, source=source, target=target, decoder=decoder, verify=True).trace
        label = f"{decoder.replace(':', '.').replace('=', '').replace(',', '.')}.{len(traces)}"
        traces[label] = trace
        for row, iteration, place in slots_of(trace):
            probabilities = iteration.probabilities
            probability = None if probabilities is None else float(probabilities[place])
            seen = {"status": iteration.status[place], "probability": probability}
            rows.append({"name": decoder, "trace": label} | row | seen)
    return table_of(rows, None, model, traces=traces)


def _examples(model: TranslationModel, number: int | None = None) -> list[tuple[str, str, str, str]]:
    """The first of the project's own examples in the model's directions."""
    translatable = [example for example in EXAMPLES if not model.directions or example[:2] in model.directions]
    if not translatable:
        raise ValueError(
            f"The examples are in none of the model's directions: {model.name} has {model.directions[:9]}. Use tatoeba-small."
        )
    return translatable[:number]


@experiment
def figure1(run: ModelRun) -> pd.DataFrame:
    """Figure 1: one sentence decoded token by token, and in parallel."""
    return _traces(run.loaded, _examples(run.loaded, 1), GREEDY, PJ)


@experiment
def figure2(run: ModelRun) -> pd.DataFrame:
    """Figure 2: PJ, PGJ with blocks of 3, and HGJ, whose blocks end after 6 positions."""
    return _traces(run.loaded, _examples(run.loaded, 1), PJ, PGJ3, "hybrid:block=3,length=6")


@experiment
def figure4(run: ModelRun) -> pd.DataFrame:
    """Figure 4: the passes of PJ over one sentence, with the probability of each token."""
    return _traces(run.loaded, _examples(run.loaded)[1:2] or _examples(run.loaded, 1), PJ)


@experiment
def figure6(run: ModelRun) -> pd.DataFrame:
    """Figure 6: PJ over further sentences, in several languages."""
    return _traces(run.loaded, _examples(run.loaded, 2 if run.tiny else None), PJ)


@experiment
def examples(run: ModelRun) -> pd.DataFrame:
    """The qualitative examples: our own sentences with each decoder's translation and its number of passes."""
    model = run.loaded
    rows = []
    for number, (source, target, text, reference) in enumerate(_examples(model, 2 if run.tiny else None), 1):
        for method in METHODS:
            result = translate(
                model, text, source=source, target=target, decoder=method.name, verify=True, observe=False
            )
            greedy = result.trace.greedy or {}
            rows.append(
                {
                    "name": method.name,
                    "example": number,
                    "direction": f"{source}-{target}",
                    "source": text,
                    "reference": reference,
                    "output": result.text,
                    "tokens": len(result.tokens),
                    "calls": result.trace.calls,
                    "same_as_greedy": bool(greedy.get("identical")),
                }
            )
    return table_of(rows, run, model)


def word_internal(piece: str) -> bool:
    """Whether a piece continues a word: it holds a letter or digit and does not start a word."""
    return not piece.startswith("▁") and any(character.isalnum() for character in piece)


@experiment
def vocabulary(run: ThreadedRun) -> pd.DataFrame:
    """Vocabulary size against word-internal pieces, which the paper supposes to be the source of parallel decoding's gains.

    Tokenizers of several sizes, trained on the same text, split the model's own translations. Further rows are the model's
    tokenizer, with the passes saved on these translations, and the paper's two models.
    """
    model = run.loaded
    directions = directions_of(model, run.scale)
    sizes = (70, 80, 100, 130) if run.tiny else (4_000, 8_000, 16_000, 32_000)
    parts_by_decoder: dict[str, list[Any]] = {name: [] for name in (GREEDY, PGJ3, HGJ3, WINDOW)}
    for direction in directions:
        texts = [a for a, _ in sentence_pairs(run, *direction, "single", SIZES[run.scale].paper)]
        for name, parts in parts_by_decoder.items():
            parts.append(count(Session.of(model, *direction, name), texts, batch=BATCH, progress=run.progress))
    counts = {name: pd.concat(parts) for name, parts in parts_by_decoder.items()}
    outputs = counts[GREEDY].text.tolist()
    words = sum(len(text.split()) for text in outputs)
    rows: list[dict[str, Any]] = []

    def add(name: str, size: int, pieces: Sequence[str], **values: Any) -> None:
        internal = float(np.mean([word_internal(piece) for piece in pieces]))
        shares = {"internal_share": internal, "pieces_per_word": len(pieces) / words}
        rows.append({"name": name, "vocabulary": size} | shares | values)

    training = _training_text(run, directions)
    for size in sizes:
        tokenizer = load_pieces(trained_pieces(training, size, run.seed, threads=run.threads, minloglevel=2))
        add(f"tokenizer of {size:,}", size, [piece for row in tokenizer.encode(outputs, out_type=str) for piece in row])
    end = model.constraints(directions[0][1]).end
    pieces = model.tokenizer.pieces(i for ids in counts[GREEDY].ids for i in ids if i not in end)
    weights = _parameters(model)
    for name in list(counts)[1:]:
        ratio = counts[GREEDY].passes.sum() / counts[name].passes.sum()
        add(f"{model.name}, {name}", model.network.outputs[0].vocabulary, pieces, calls_ratio=ratio, parameters=weights)
    for name, number, weights, column in santilli_2023.MODELS:
        ratio = santilli_2023.mean(santilli_2023.TABLE_6, PGJ3, column)
        row = {"name": f"{name}, {PGJ3}", "kind": "paper", "vocabulary": number}
        rows.append(row | {"paper_calls_ratio": ratio, "parameters": weights})
    return table_of(rows, run, model, training_lines=len(training), test_lines=len(outputs))


def _parameters(model: TranslationModel) -> float | None:
    """Weights of a model, shared ones counted once."""
    if model.checkpoint.family not in FAMILIES:
        return None
    a = model.checkpoint.architecture
    shapes = dict(a.tensors)
    if a.shared_embeddings:
        del shapes["model.encoder.embed_tokens.weight"]
    if a.tied_output:
        del shapes["lm_head.weight"]
    return float(sum(int(np.prod(shape)) for shape in shapes.values()))


TRAINING_LINES = 200_000


def _training_text(run: CorpusRun, directions: Sequence[tuple[str, str]]) -> list[str]:
    """Text of all languages, to train every tokenizer on."""
    if run.tiny:
        return [text for pair in SENTENCES for text in pair] + list(TECHNICAL)
    texts = sorted({text for d in directions for pair in run.pairs(*d, "train") for text in pair})
    return shuffled(texts, run.seed)[:TRAINING_LINES]


DRAFTS = (
    "pad", "recycled/pad", "source/recycled", "recycled/source", "prompt/recycled/pad", "ngram", "lexicon", "ngram+lexicon",
    "recycled/pad|pool", "ngram+lexicon|recycled|pool",
)  # fmt: skip
"""Sources of a window's drafts; a model without a draft table leaves out those that need one."""

WIDTHS = (2, 3, 4, 5, 8)
BLOCKS = ("gauss_seidel:block=", "hybrid:block=")


@experiment
def drafts(run: ThreadedRun, *, specs: Sequence[str] = DRAFTS) -> pd.DataFrame:
    """Tokens per pass (greedy decoding's passes per pass) of every draft and width, and of PGJ and HGJ.

    The mean of the directions, with the smallest and the largest: of test sentences, single and joined, and of technical
    English, which is text of another kind than the model and its draft tables were trained on.
    """
    model = run.loaded
    widths = (2, 5) if run.tiny else WIDTHS
    number = SIZES[run.scale].extra
    texts: dict[str, dict[tuple[str, str], list[str]]] = {"single": {}, "joined": {}, "technical": {}}
    for direction in directions_of(model, run.scale):
        for set_name in SETS:
            texts[set_name][direction] = [a for a, _ in sentence_pairs(run, *direction, set_name, number)]
        if direction[0] == "en":
            texts["technical"][direction] = list(TECHNICAL[: 2 if run.tiny else None])
    greedy = {
        (set_name, direction): count(Session.of(model, *direction), sentences, batch=BATCH)
        for set_name, by_direction in texts.items()
        for direction, sentences in by_direction.items()
    }
    decoders = [(block.partition(":")[0], f"{block}{width}", width) for block in BLOCKS for width in widths]
    decoders += [(draft, f"window:width={width},draft={draft}", width) for draft in specs for width in widths]
    rows: list[dict[str, Any]] = []
    for (draft, spec, width), (set_name, by_direction) in product(decoders, texts.items()):
        pairs = []
        for direction, sentences in by_direction.items():
            session = Session.of(model, *direction, spec)
            if not _has_table(session):
                break
            pairs.append((greedy[set_name, direction], count(session, sentences, batch=BATCH, progress=run.progress)))
        if pairs and len(pairs) == len(by_direction):
            ratios = [float(greedy_counts.passes.sum() / counts.passes.sum()) for greedy_counts, counts in pairs]
            rows.append(
                {
                    "name": spec,
                    "draft": draft,
                    "width": width,
                    "set": set_name,
                    "directions": len(pairs),
                    "sentences": sum(len(counts) for _, counts in pairs),
                    "calls": int(sum(counts.passes.sum() for _, counts in pairs)),
                    "positions": int(sum(counts.positions.sum() for _, counts in pairs)),
                    "tokens_per_pass": float(np.mean(ratios)),
                    "tokens_per_pass_low": min(ratios),
                    "tokens_per_pass_high": max(ratios),
                    "agreement": float(
                        np.mean([(greedy_counts.ids == counts.ids).mean() for greedy_counts, counts in pairs])
                    ),
                }
            )
    return table_of(rows, run, model)


def _has_table(session: Session) -> bool:
    """Whether a decoder that needs a draft table has one."""
    draft = getattr(session.decoder, "drafts", None)
    return draft is None or draft.table is not None or not draft.needs("table")


VARIANTS = (("padding", "none"), ("runner_up", "none"), ("padding", "shuffled"), ("padding", "random_weights"))


@experiment
def dependencies(run: ModelRun) -> pd.DataFrame:
    """Dependencies between tokens, which the paper leaves to future work ("Speedup Analysis"), with two controls.

    Rows are those of `fastdecode_lib.measuring.dependencies.statistics` on joined sentences, and the mean of all directions.
    """
    from fastdecode_lib.measuring.dependencies import statistics

    model = run.loaded
    parts = []
    for direction in directions_of(model, run.scale)[: 1 if run.tiny else None]:
        texts = [a for a, _ in sentence_pairs(run, *direction, "joined", SIZES[run.scale].extra)]
        session = Session.of(model, *direction, max_length=min(100, model.constraints(direction[1]).max_length))
        for replace, control in VARIANTS:
            part = statistics(session, texts, replace, control=control, seed=run.seed, progress=run.progress)
            parts.append(part.assign(direction="-".join(direction)))
    keys = ["replace", "control", "measure", "group"]
    shares = pd.concat(parts)[lambda rows: rows["count"] > 0]
    weighted = shares.assign(hits=shares["share"] * shares["count"]).groupby(keys, sort=False)[["hits", "count"]].sum()
    mean = weighted.assign(share=weighted["hits"] / weighted["count"]).drop(columns="hits").reset_index()
    frame = pd.concat([shares, mean.assign(name=model.name, direction="all")], ignore_index=True)
    frame["variant"] = frame["replace"].where(frame["control"] == "none", frame["control"])
    frame["distance"] = frame["group"].where((frame["measure"] == "changed") & (frame["group"] != "all"), None)
    return table_of(frame, run, model, sentences=len(texts))
