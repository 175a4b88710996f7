"""Tables and figures of Santilli et al. (2023) at tiny scale: nothing of ours is missing, and what must hold does."""

import re
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from ddgviz.figures import curves
from fastdecode_lib import load, registry
from fastdecode_lib.cli.main import main
from fastdecode_lib.core import drain
from fastdecode_lib.laws.cases import random_case, tiny_architecture
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.counting import Counted, count
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.parallel_decoding import costs, printed
from fastdecode_lib.papers.parallel_decoding import tables as parallel_decoding
from fastdecode_lib.papers.parallel_decoding.runs import METHODS, count_by_length, directions_of, multiply_adds, runs
from fastdecode_lib.text.corpus import CorpusNotFound
from fastdecode_lib.text.sentences import TECHNICAL
from fastdecode_lib.translation import Session

LOSSLESS = [method.name for method in METHODS if registry.decoder(method.name).lossless]
TEXTS = [
    "We forgot to close the window before the storm.",
    " ",
    "He sold his car.",
    "Nobody knew why the clock had stopped.",
]


@pytest.fixture(scope="module")
def model() -> TranslationModel:
    return load()


@pytest.fixture(scope="module")
def tables(model: TranslationModel) -> dict[str, pd.DataFrame]:
    """Every table that is a view of the same runs."""
    return {
        name: experiments()[f"parallel_decoding.{name}"].run(Scale.TINY, model=model)
        for name in ("table1", "table2", "table3", "table4", "table5", "table6", "table7")
    }


def ours(frame: pd.DataFrame) -> pd.DataFrame:
    """Our rows and columns."""
    kept = frame[frame.kind != "paper"] if "kind" in frame else frame
    return kept[[column for column in frame.columns if not column.startswith("paper_")]]


def curves_of(name: str, frame: pd.DataFrame) -> set[str]:
    """What the legend of an experiment's chart says."""
    chart = experiments()[f"parallel_decoding.{name}"].chart
    return {trace.name for trace in curves(chart.rows(frame), **chart.settings).data}


def complete(frame: pd.DataFrame) -> bool:
    """Whether we lack no value; a tiny run has too few rounds for intervals."""
    own = ours(frame)
    return len(own) > 0 and not own[[c for c in own if not c.endswith(("_low", "_high"))]].isna().any(axis=None)


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table5", "table6", "table7"])
def test_nothing_of_ours_is_missing(tables: dict[str, pd.DataFrame], name: str) -> None:
    frame = tables[name]
    assert complete(frame)
    assert frame.name.notna().all() and frame.attrs["provenance"]["model"] == "tatoeba-small"
    assert any(column.startswith("paper_") and frame[column].notna().any() for column in frame)


def test_lossless_rows_have_greedys_quality(tables: dict[str, pd.DataFrame]) -> None:
    for _, rows in ours(tables["table7"]).groupby(["direction", "set", "protocol"]):
        lossless = rows[rows.name.isin(LOSSLESS)]
        assert (lossless.agreement == 1).all() and {"greedy", "jacobi"} <= set(lossless.name)
        assert lossless.bleu.nunique() == lossless.chrf.nunique() == 1


def test_every_direction_set_and_protocol_is_there(tables: dict[str, pd.DataFrame], model: TranslationModel) -> None:
    rows = ours(tables["table1"])
    assert len(directions_of(model, Scale.TINY)) == 2 and len(directions_of(model, Scale.LAPTOP)) == 6
    assert rows.groupby("protocol").size().to_dict() == {"honest": 2 * 2 * 7, "paper": 2 * 2 * 6}
    assert (rows.positions >= rows.calls).all()


def test_the_paper_stands_beside_its_own_direction(tables: dict[str, pd.DataFrame]) -> None:
    frame = tables["table1"]
    row = frame[(frame.name == "hybrid:block=3") & (frame.direction == "de-en")].iloc[0]
    assert (row.kind, row.paper_speedup, row.paper_mbart_bleu) == ("measured", 1.37, 31.58)
    only_theirs = frame[frame.kind == "paper"]
    assert set(only_theirs.direction) == {"en-ro", "ro-en"} and len(only_theirs) == 12
    assert tables["table2"].paper_calls_ratio.max() == 1.11


def test_counting_as_the_paper_does_flatters(tables: dict[str, pd.DataFrame]) -> None:
    rows = ours(tables["table6"])
    assert (rows.calls_ratio_as_paper_counts >= rows.calls_ratio).all()
    undercounted = rows.name.str.match("jacobi|gauss_seidel")
    assert (rows.calls_ratio_as_paper_counts > rows.calls_ratio)[undercounted].all()
    assert (rows.calls_ratio_as_paper_counts == rows.calls_ratio)[~undercounted].all()


def test_a_window_never_needs_more_passes_than_greedy(tables: dict[str, pd.DataFrame]) -> None:
    rows = ours(tables["table6"])
    assert (rows[rows.name.str.startswith("window")].calls_ratio >= 1).all()


def test_knowing_the_length_saves_positions(tables: dict[str, pd.DataFrame]) -> None:
    """With the true length a block never reaches beyond the end, and a last block may need a pass less."""
    rows = ours(tables["table1"]).set_index(["direction", "set", "name", "protocol"])
    for key in rows.index[rows.index.get_level_values("protocol") == "paper"]:
        if key[2] in ("jacobi", "gauss_seidel:block=3", "gauss_seidel:block=5"):
            told, alone = rows.loc[key], rows.loc[(*key[:3], "honest")]
            assert told.positions <= alone.positions and told.calls <= alone.calls


def test_flops_grow_with_positions(tables: dict[str, pd.DataFrame]) -> None:
    frame = tables["table3"]
    joined = ours(frame).merge(ours(tables["table1"])[["name", "direction", "set", "protocol", "positions"]])
    for _, rows in joined.groupby(["direction", "set", "protocol"]):
        by_positions = rows.sort_values("positions")
        assert by_positions.flops_per_sentence.is_monotonic_increasing
    assert frame[frame.name == "DisCo"].paper_train_flops.item() == 4.06e19
    assert (ours(tables["table5"]).train_flops == 0).all()


@pytest.mark.parametrize("family", ["marian", "mbart", "t5", "mt5"])
@pytest.mark.parametrize("decoder", ["greedy", "jacobi", "window:width=3,draft=recycled/pad", "beam:size=3"])
def test_multiply_adds_are_those_of_the_engine(monkeypatch: pytest.MonkeyPatch, family: str, decoder: str) -> None:
    """Matrix products as torch counts them, and attention as its arguments say."""
    case = random_case(5, family)
    source, architecture = case.source.row(0), case.model.architecture  # type: ignore[attr-defined]
    attention = 0
    original = functional.scaled_dot_product_attention

    def counting(q: Any, k: Any, v: Any, **options: Any) -> Any:
        nonlocal attention
        attention += 2 * q.numel() * k.shape[2]
        return original(q, k, v, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counting)
    rules = replace(case.constraints, prefix=(2,))
    with FlopCounterMode(display=False) as counter:
        iterations = list(registry.decoder(decoder).iterate(case.model, case.projection, source, rules))
    counted = counter.get_flop_counts()["Global"]  # bmm is attention with T5's biases, which is counted above
    products = sum(counted[op] for op in counted if "mm" in str(op) and "bmm" not in str(op))
    positions = sum(iteration.positions for iteration in iterations)
    attended = sum(
        i.positions * (number + 1 if i.lanes else i.slots[0] + i.positions) for number, i in enumerate(iterations)
    )
    assert products // 2 + attention == multiply_adds(architecture, int(source.lengths[0]), positions, attended)


def test_counting_sees_what_the_counter_sees(model: TranslationModel) -> None:
    for decoder in ("greedy", "gauss_seidel:block=3", "window:width=4,draft=recycled/pad|pool"):
        session = Session.of(model, "en", "de", decoder)
        found = count(session, TEXTS, batch=3)
        assert found.text.tolist() == [model.tokenizer.decode(h.tokens) for h in session.decode(TEXTS)]
        assert found.iloc[1][["tokens", "passes", "positions", "attended"]].tolist() == [0, 0, 0, 0]
        for text, row in zip(TEXTS, found.itertuples(), strict=True):
            if text.strip():
                counted = Counted(model.network)
                source = model.encode([text], "en", "de")
                drain(session.decoder.iterate(counted, session.projection, source, session.constraints))
                assert (row.passes, row.positions) == (counted.usage.passes, counted.usage.positions)
                assert row.source_tokens == source.lengths[0] and row.tokens == len(row.ids)


def test_each_sentence_is_told_its_own_length(model: TranslationModel) -> None:
    texts = [TEXTS[0], *TEXTS[2:]]
    lengths = count(Session.of(model, "en", "de"), texts).tokens.tolist()
    assert len(set(lengths)) > 1
    found = count_by_length(model, ("en", "de"), "jacobi:oracle_length={length}", texts, lengths)
    for text, length, passes in zip(texts, lengths, found.passes, strict=True):
        alone = count(Session.of(model, "en", "de", f"jacobi:oracle_length={length}"), [text])
        assert passes == alone.passes.item() <= length


def test_runs_are_made_once(
    tables: dict[str, pd.DataFrame], model: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastdecode_lib.papers.run.measure", lambda *_, **__: pytest.fail("measured again"))
    changed = runs(Scale.TINY, model=model)
    changed["bleu"] = 0.0
    assert (runs(Scale.TINY, model=model).bleu > 0).any()


def test_a_model_of_other_languages_is_refused(marian: TranslationModel) -> None:
    foreign = replace(marian, tokenizer=replace(marian.tokenizer, directions=(("fi", "sv"),)))
    for name in ("table1", "figure1"):
        with pytest.raises(ValueError, match=r"directions: .*fi.*\. Use tatoeba-small"):
            experiments()[f"parallel_decoding.{name}"].run(Scale.TINY, model=foreign)


# --------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize(("name", "number"), [("figure1", 2), ("figure2", 3), ("figure4", 1), ("figure6", 2)])
def test_figures_are_traces(model: TranslationModel, name: str, number: int) -> None:
    frame = experiments()[f"parallel_decoding.{name}"].run(Scale.TINY, model=model)
    traces = frame.attrs["traces"]
    assert len(traces) == number and complete(frame)
    for label, trace in traces.items():
        rows = frame[frame.trace == label]
        assert trace.greedy["identical"] and re.fullmatch(r"[\w.+-]+", label)
        assert rows.call.max() + 1 == trace.calls
        last = rows[rows.slot < len(trace.tokens)].groupby("slot").last()
        assert last.token.tolist() == [trace.pieces[token] for token in trace.tokens]
    if name == "figure2":  # HGJ goes on one position at a time where its blocks end
        tail = frame[frame.name.str.startswith("hybrid")].groupby("call").slot.agg(["min", "size"])
        assert (tail[tail["min"] >= 6]["size"] == 1).all() and (tail["size"] == 3).any()


def test_examples(model: TranslationModel) -> None:
    frame = parallel_decoding.examples(Scale.TINY, model=model)
    assert complete(frame) and frame.groupby("example").size().tolist() == [len(METHODS)] * 2
    assert frame[frame.name.isin(LOSSLESS)].same_as_greedy.all()
    assert (frame[frame.name.isin(LOSSLESS)].groupby("example").output.nunique() == 1).all()


# --------------------------------------------------------------------------------------- beyond the paper's tables


def test_a_pass_over_one_position_costs_one(model: TranslationModel) -> None:
    frame = costs.cost(Scale.TINY, model=model)
    assert complete(frame)
    assert (frame[frame.width == 1].cost == 1).all()
    assert curves_of("cost", frame) == {"tatoeba-small"}


@pytest.mark.parametrize("geometry", list(costs.GEOMETRIES))
def test_random_networks_of_the_papers_shapes(geometry: str) -> None:
    """Small here; only depth and size differ from those that are timed."""
    shape = costs.GEOMETRIES[geometry]
    small = replace(
        shape, width=16, vocabulary=30, source_vocabulary=30, decoder_layers=1, max_positions=64, decoder_heads=2,
        encoder_heads=2, decoder_feed_forward=20, encoder_feed_forward=20, padding=1,
    )  # fmt: skip
    network = costs.random_network(small, seed=1)
    assert network.encoder.embedding is network.decoder.embedding is network.outputs[0].weight
    (one, two) = costs.pass_cost(network, (1, 2), steps=1, rounds=3)
    assert [len(m.outputs[0]) for m in (one, two)] == [1, 2]


def test_figure_3_is_measured_modelled_and_quoted(model: TranslationModel) -> None:
    frame = costs.figure3(Scale.TINY, model=model)
    assert set(frame.kind) == {"measured", "model", "paper"}
    assert not frame[frame.kind != "paper"].speedup.isna().any()
    assert frame[frame.kind == "paper"].set_index(["name", "cores"]).paper_speedup["hybrid:block=3", 122] == 1.99
    modelled = frame[frame.kind == "model"].pivot(index="cores", columns="name", values="speedup")
    assert (modelled.greedy == 1).all()
    assert (modelled.diff().dropna() >= -1e-9).all(axis=None), "more cores never slow the model down"
    assert modelled.jacobi.iloc[-1] > modelled.jacobi.iloc[0]
    measured = frame[(frame.kind == "measured") & (frame.cores == 1)].set_index("name").speedup
    assert modelled.loc[1].sub(measured).abs().max() < 1e-9, "on one core, what is calculated is what was measured"
    assert {"jacobi", "jacobi, model", "jacobi, paper"} <= curves_of("figure3", frame)


def test_larger_vocabularies_have_fewer_word_internal_pieces(model: TranslationModel) -> None:
    frame = parallel_decoding.vocabulary(Scale.TINY, model=model)
    trained = frame[frame.name.str.startswith("tokenizer")].sort_values("vocabulary")
    assert len(trained) == 4 and trained.internal_share.is_monotonic_decreasing
    assert trained.pieces_per_word.is_monotonic_decreasing
    assert frame[frame.kind == "measured"][["internal_share", "pieces_per_word"]].notna().all(axis=None)
    own = frame[frame.name.str.startswith("tatoeba-small")]
    assert own.calls_ratio.notna().all() and (own.internal_share < trained.internal_share.min()).all()
    assert frame[frame.kind == "paper"].paper_calls_ratio.tolist() == pytest.approx([1.0475, 1.10])


@pytest.mark.parametrize(
    ("piece", "internal"), [("▁house", False), ("hold", True), (".", False), ("▁", False), ("▁'s", False), ("7", True)]
)
def test_word_internal(piece: str, internal: bool) -> None:
    assert parallel_decoding.word_internal(piece) is internal


def test_parameters_are_those_of_the_checkpoint(model: TranslationModel) -> None:
    found = parallel_decoding._parameters(model)
    stored = [item for file in model.checkpoint.weight_files() for item in load_file(file).items()]
    counted = [tensor for name, tensor in stored if "embed_positions" not in name and "logits_bias" not in name]
    assert found == sum(tensor.numel() for tensor in counted)


def test_batches_change_neither_outputs_nor_positions(model: TranslationModel) -> None:
    frame = costs.batch(Scale.TINY, model=model)
    assert complete(frame) and (frame.agreement == 1).all()
    assert (frame.groupby("name").positions.nunique() == 1).all()
    passes = frame.pivot(index="batch", columns="name", values="calls")
    assert (passes.diff().dropna() <= 0).all(axis=None), "a larger batch needs no more passes of the network"
    assert (passes["window:width=5"] <= passes["greedy"]).all()
    assert set(frame.attrs["provenance"]["break_even"]) == curves_of("batch", frame) == set(passes.columns)


def test_drafts(model: TranslationModel) -> None:
    chosen = ("recycled/pad", "ngram+lexicon", "recycled/pad|pool")
    frame = parallel_decoding.drafts(Scale.TINY, model=model, specs=chosen)
    assert complete(frame) and (frame.agreement == 1).all()
    assert {"single", "joined", "technical"} == set(frame.set)
    assert (frame.tokens_per_pass_low <= frame.tokens_per_pass).all()
    assert (frame[frame.name.str.startswith("window")].tokens_per_pass_low >= 1).all()
    assert {"recycled/pad", "gauss_seidel", "hybrid"} <= curves_of("drafts", frame) == set(frame.draft)


def test_drafts_that_need_a_table_are_left_out_without(marian: TranslationModel) -> None:
    session = Session.of(marian, decoder="window:draft=recycled/pad")
    assert parallel_decoding._has_table(session)
    assert parallel_decoding._has_table(Session.of(marian, decoder="greedy"))
    lacking = replace(session, decoder=registry.decoder("window:draft=ngram+lexicon"))
    assert not parallel_decoding._has_table(lacking)


def test_dependencies(model: TranslationModel) -> None:
    """Shuffling moves effects about and makes none; the means of all directions weigh every pair alike."""
    frame = parallel_decoding.dependencies(Scale.TINY, model=model)
    assert not frame.drop(columns="distance").isna().any(axis=None) and frame.share.between(0, 1).all()
    whole = frame[(frame.measure == "changed") & (frame.group == "all")].set_index(["direction", "variant"]).share
    for direction in frame.direction.unique():
        assert whole[direction, "shuffled"] == pytest.approx(whole[direction, "padding"])
    assert whole["all", "padding"] == pytest.approx(whole["en-de", "padding"]), "one direction at this scale"
    near = frame[(frame.direction == "en-de") & (frame.distance == "1")].set_index("variant").share
    assert near["padding"] > near["shuffled"]
    assert curves_of("dependencies", frame) == {"padding", "runner-up", "shuffled", "weights in random order"}


def test_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table is written, curves and passes are drawn; what needs the corpus is left out where there is none."""
    known = experiments()
    named = ("parallel_decoding.cost", "parallel_decoding.figure4", "parallel_decoding.table4", "start_here.comparison")
    chosen = {name: known[name] for name in named}

    @wraps(known["parallel_decoding.batch"].run)
    def needs_corpus(scale: Scale, **_: Any) -> pd.DataFrame:
        raise CorpusNotFound("This needs the corpus.")

    drawn: dict[str, Any] = {}
    chosen["parallel_decoding.batch"] = replace(known["parallel_decoding.batch"], run=needs_corpus)
    monkeypatch.setattr("fastdecode_lib.papers.catalogue.experiments", lambda: chosen)
    monkeypatch.setattr("fastdecode_lib.runners.DECODERS", ("gauss_seidel:block=3",))
    monkeypatch.setattr("ddgviz.save_chart", lambda figure, stem: [drawn.setdefault(stem.name, figure)][:0])
    monkeypatch.setattr("ddgviz.save", lambda trace, path: drawn.setdefault(path.name, trace))
    assert main(["figures", "--scale", "tiny", "--out", str(tmp_path)]) == 0
    assert "parallel_decoding.batch is left out. This needs the corpus." in capsys.readouterr().err
    tables = {f"{name}.tiny.{kind}" for name in named for kind in ("csv", "tex", "json")}
    assert {path.name for path in tmp_path.iterdir()} == {*tables, "index.html"}
    passes = ("parallel_decoding.figure4.jacobi.0", "passes.gauss_seidel")
    kinds = ("svg", "tex", "html", "pdf", "png", "json")
    charts = {"parallel_decoding.cost.tiny", "start_here.comparison.tiny", "start_here.comparison.tiny.frontier"}
    assert set(drawn) == charts | {f"{name}.{kind}" for name in passes for kind in kinds}
    assert all(len(drawn[name].data) > 0 for name in charts)
    assert drawn["parallel_decoding.figure4.jacobi.0.svg"].calls > 1


def test_own_sentences_are_new_and_distinct() -> None:
    assert len(set(TECHNICAL)) == 20


# ------------------------------------------------------------------------------------------------ the paper's numbers


def test_the_papers_tables_are_whole() -> None:
    assert len(printed.TABLE_1) == 6 * 4 and len(printed.TABLE_2) == 3 * 10
    assert len(printed.TABLE_6) == 5 * 4 and len(printed.TABLE_7) == 5 * 10
    assert sum(value is None for cell in printed.TABLE_6.values() for value in cell.values()) == 2
    for _, (_, (speed, _, train, total, each)) in printed.TABLE_3.items():
        assert total >= train and each == pytest.approx(total / speed, rel=0.02)


def test_table_2_follows_the_text() -> None:
    """4.3, "Cross Languages": 7-11% of iterations for PGJ and 5-7% for HGJ; the print's times reach 1-7% and 1-5%."""
    for name, low, high in (("gauss_seidel:block=3", 1.07, 1.11), ("hybrid:block=3", 1.05, 1.07)):
        values = [cell["paper_calls_ratio"] for (other, _), cell in printed.TABLE_2.items() if other == name]
        assert (min(values), max(values)) == (low, high)  # type: ignore[type-var]


def test_exact_projection_of_a_random_case() -> None:
    """The projection is counted with every position: D times V."""
    architecture = tiny_architecture("marian")
    more = multiply_adds(architecture, 5, 8, 0) - multiply_adds(architecture, 5, 7, 0)
    d, f = architecture.width, architecture.decoder_feed_forward
    layer = 6 * d * d + 2 * d * f + 2 * d * 5
    assert more == architecture.decoder_layers * layer + d * architecture.vocabulary
