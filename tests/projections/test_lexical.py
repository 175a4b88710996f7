"""Candidate lists, averages of ensembles, and the beam that stops early."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdecode_lib import load, registry, translate
from fastdecode_lib.checkpoints.recurrent import system
from fastdecode_lib.core import Output, Source
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.laws import cases, decoders
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.models.ensemble import Ensemble
from fastdecode_lib.models.recurrent import Recurrent
from fastdecode_lib.projections.average import Average
from fastdecode_lib.projections.exact_torch import Exact
from fastdecode_lib.projections.lexical import Lexical
from fastdecode_lib.projections.queries import best_first
from fastdecode_lib.store import ModelFiles
from fastdecode_lib.translation import Session

seeds = st.integers(0, 2**31)
VOCABULARY = 13


class Outputs:
    """A model that is only its output matrix."""

    def __init__(self, weight: Any, bias: Any = None):
        self.outputs = (Output(weight, bias),)


def random_lexicon(seed: int, entries: int = 30, vocabulary: int = VOCABULARY) -> Lexicon:
    random = np.random.default_rng(seed)
    pairs = np.unique(random.integers(3, VOCABULARY, size=(entries, 2)), axis=0)
    return Lexicon.of_entries(pairs[:, 0], pairs[:, 1], random.random(len(pairs)), VOCABULARY, vocabulary)


def arrays(seed: int, rows: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(VOCABULARY, 5)), random.normal(size=VOCABULARY), random.normal(size=(rows, 5))


# ------------------------------------------------------------------------------------------------------------- lexical


@settings(max_examples=60)
@given(
    seeds,
    st.sampled_from(["numpy", "torch", "packed"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 20),
    st.booleans(),
)
def test_lexical_is_exact_restricted_to_its_list(
    seed: int, kind: str, biased: bool, single: bool, k: int, each: bool
) -> None:
    weight, bias, hidden = arrays(seed)
    random = np.random.default_rng(seed)
    lengths = np.full(1 if single else 4, 3)
    source = Source(random.integers(0, VOCABULARY, size=(len(lengths), 3)), lengths)
    convert = torch.from_numpy if kind == "torch" else np.asarray
    model: Any = Outputs(convert(weight), convert(bias) if biased else None)
    if kind == "packed":
        model = Outputs(Matrix.of(weight, bias if biased else None))
    near = 1e-4 if kind == "packed" else 1e-8
    lexical = Lexical.of(model, random_lexicon(seed), top=2, frequent=2)
    banned = random.integers(-1, VOCABULARY, size=(4, 3)) if each else random.integers(0, VOCABULARY, size=3)
    found = lexical.bind(source).top_k(convert(hidden), k, banned, normalise=True)
    wanted = np.tile(np.arange(VOCABULARY), (4, 1))
    log_probs = lexical.bind(source).log_probs(convert(hidden), wanted)
    scores = hidden @ weight.T + (bias if biased else 0)
    for row in range(4):
        active = lexical.candidates(source.ids[0 if single else row])
        assert {0, 1, 3, 4} <= set(active) and 2 not in active and (np.diff(active) > 0).all()
        assert found.num_active[row] == len(active) and found.support == "active"
        refused = banned[row] if each else banned
        order = [i for i in active[np.argsort(-scores[row, active], kind="stable")] if i not in refused][:k]
        assert found.ids[row, : len(order)].tolist() == order and (found.ids[row, len(order) :] == -1).all()
        assert found.log_normaliser is not None
        total = np.log(np.exp(scores[row, active]).sum())
        assert np.isclose(found.log_normaliser[row], total, atol=near)
        assert np.allclose(found.scores[row, : len(order)], scores[row, order], atol=near)
        inside = np.isin(wanted[row], active)
        assert np.allclose(log_probs[row, inside], scores[row, active] - total, atol=near)
        assert np.isneginf(log_probs[row, ~inside]).all()


def test_with_every_token_active_it_equals_exact() -> None:
    weight, bias, hidden = (torch.from_numpy(array) for array in arrays(1))
    model: Any = Outputs(weight, bias)
    exact, lexical = Exact.of(model), Lexical.of(model, random_lexicon(1), frequent=VOCABULARY)
    source = Source(np.array([[3, 4, 2]]), np.array([3]))
    for banned in (None, np.array([2]), np.array([[2, 5], [2, -1], [2, 3], [2, 0]])):
        banned_too = np.array([2]) if banned is None else banned
        a = exact.top_k(hidden, 6, banned_too, normalise=True)
        b = lexical.bind(source).top_k(hidden, 6, banned, normalise=True)
        assert (a.ids == b.ids).all() and np.allclose(a.scores, b.scores)
        assert (b.num_active == VOCABULARY - 1).all(), "the start symbol is never a candidate"


def test_equal_scores_come_in_order_of_id() -> None:
    model: Any = Outputs(np.zeros((VOCABULARY, 5)))
    lexical = Lexical.of(model, random_lexicon(2), frequent=5)
    found = lexical.bind(Source(np.array([[5]]), np.array([1]))).top_k(np.ones((2, 5)), 4)
    assert found.ids.tolist() == [[0, 1, 3, 4]] * 2
    scores = np.array([[1.0, 2.0, 2.0, -np.inf, 2.0] * 8])
    assert best_first(scores, np.arange(40)[None], 3)[1].tolist() == [[1, 2, 4]]


def test_what_does_not_fit_is_refused() -> None:
    weight, _, hidden = arrays(3)
    model: Any = Outputs(weight)
    with pytest.raises(
        ValueError, match="of another vocabulary: got one of 14 target words, the model has 13. Use the lex"
    ):
        Lexical.of(model, random_lexicon(1, vocabulary=14))
    lexical = Lexical.of(model, random_lexicon(1))
    with pytest.raises(ValueError, match="of another vocabulary: got the source id 13, it has 13 source words"):
        lexical.bind(Source(np.array([[4, 13]]), np.array([2])))
    with pytest.raises(ValueError, match="needs source sentences: got none"):
        lexical.bind(None)
    empty = Lexicon.of_entries(np.array([3]), np.array([4]), np.array([1.0]), VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match=r"no candidate for the source ids \[5\]: got always=\(\)"):
        Lexical.of(model, empty, frequent=0, always=()).bind(Source(np.array([[5]]), np.array([1])))
    with pytest.raises(ValueError, match="needs top >= 1, got 0. Use lexical:top=20"):
        Lexical.of(model, random_lexicon(1), top=0)
    scorer = lexical.bind(Source(np.array([[4], [5]]), np.array([1, 1])))
    with pytest.raises(ValueError, match="do not fit: got 4 for 2 sentences"):
        scorer.top_k(hidden, 1)
    with pytest.raises(ValueError, match=r"takes hidden vectors of width 5, got \(2, 3\)"):
        scorer.top_k(hidden[:2, :3], 1)
    with pytest.raises(ValueError, match="k from 1, got 0"):
        scorer.top_k(hidden[:2], 0)


def test_lists_are_kept_while_they_are_bound() -> None:
    model: Any = Outputs(arrays(4)[0])
    lexical = Lexical.of(model, random_lexicon(4))
    several = Source(np.array([[number] for number in range(3, VOCABULARY)]), np.ones(VOCABULARY - 3, int))
    scorer = lexical.bind(several)
    assert all(a is b for a, b in zip(lexical.bind(several).shortlists, scorer.shortlists, strict=True))
    assert len(lexical.bound_lists) == len(several)
    del scorer
    assert len(lexical.bound_lists) == 0
    assert lexical.memory_bytes > 0


@pytest.mark.parametrize("precision", ["float32", "int16", "int8"])
def test_on_packed_weights_a_sentence_has_the_same_scores_in_any_company(precision: Any) -> None:
    weight, bias, hidden = arrays(6, rows=6)
    lexical = Lexical.of(Outputs(Matrix.of(weight, bias, precision)), random_lexicon(6))  # type: ignore[arg-type]
    source = Source(np.array([[3, 4], [5, 6], [5, 6], [7, 3], [3, 4], [12, 12]]), np.array([2, 2, 2, 1, 2, 2]))
    wanted = np.tile(np.arange(VOCABULARY), (6, 1))
    together = lexical.bind(source).top_k(hidden, 4, np.array([4]), normalise=True)
    log_probs = lexical.bind(source).log_probs(hidden, wanted)
    for row in range(6):
        scorer = lexical.bind(source.row(row))
        alone = scorer.top_k(hidden[row : row + 1], 4, np.array([4]), normalise=True)
        assert alone.log_normaliser is not None and together.log_normaliser is not None
        assert together.ids[row].tolist() == alone.ids[0].tolist()
        assert together.scores[row].tolist() == alone.scores[0].tolist()
        assert together.log_normaliser[row] == alone.log_normaliser[0]
        assert log_probs[row].tolist() == scorer.log_probs(hidden[row : row + 1], wanted[:1])[0].tolist()


def test_what_a_kernel_must_not_be_told() -> None:
    weight, _, hidden = arrays(7)
    lexical = Lexical.of(Outputs(Matrix.of(weight)), random_lexicon(7))  # type: ignore[arg-type]
    scorer = lexical.bind(Source(np.array([[4], [5]]), np.array([1, 1])))
    for call, message in (
        (lambda: scorer.top_k(hidden[:2], 0), "k from 1, got 0"),
        (lambda: scorer.top_k(hidden[:2, :3], 1), r"takes hidden vectors of width 5, got \(2, 3\)"),
        (lambda: scorer.top_k(hidden, 1), "do not fit: got 4 for 2 sentences"),
        (lambda: scorer.top_k(hidden[:2], 1, np.ones((3, 1), int)), r"banned ids are \(M,\).*got \(3, 1\) for 2"),
        (lambda: Matrix.of(weight).rows(np.array([VOCABULARY])), f"Unknown id among the outputs: got {VOCABULARY}"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_registry_knows_it() -> None:
    model: Any = Outputs(arrays(5)[0])
    made: Any = registry.projection("lexical:top=1,frequent=4", model, ModelFiles(lexicon=random_lexicon(5)))
    assert len(made.always) == 6 and np.diff(made.lexicon.offsets).max() == 1
    with pytest.raises(ValueError, match="lexical needs a lexicon: got a model without one"):
        registry.projection("lexical", model)
    with pytest.raises(ValueError, match=r"Unknown option of lexical: got 'topp'. Did you mean 'top'\?"):
        registry.projection("lexical:topp=3", model, ModelFiles(lexicon=random_lexicon(5)))
    with pytest.raises(ValueError, match="lexical: top must be a whole number, got 'x'"):
        registry.projection("lexical:top=x", model, ModelFiles(lexicon=random_lexicon(5)))
    with pytest.raises(ValueError, match=r"Unknown projection: got 'lexcal'. Did you mean 'lexical'\?"):
        registry.projection("lexcal", model)


# ---------------------------------------------------------------------------------------------------------- ensembles


def network(name: str, seed: int, vocabulary: int = VOCABULARY, **changes: Any) -> Recurrent:
    widths = {"embedding": 4, "source_width": 3, "width": 5, "attention": 4, "fc_width": 4, "max_positions": 40}
    shape = replace(system(name, source_vocabulary=13, vocabulary=vocabulary), **(widths | changes))
    generator = torch.Generator().manual_seed(seed)
    tensors = {n: torch.randn(size, generator=generator, dtype=torch.float64) for n, size in shape.tensors.items()}
    return Recurrent(shape, tensors, dtype=torch.float64)


def test_an_ensemble_is_the_average_by_hand() -> None:
    parts = [network("S1", 1), network("S4", 2, width=7), network("S7", 3)]
    ensemble = Ensemble(parts)
    source = Source(np.array([[3, 4, 5]]), np.array([3]))
    tokens = np.array([[2, 7, 4]])
    hidden = ensemble.step(ensemble.start(ensemble.encode(source), tokens[:, :1]), tokens)[0]
    assert hidden.shape == (3, 17)
    probabilities = np.zeros((3, VOCABULARY))
    for part in parts:
        own = part.step(part.start(part.encode(source), tokens[:, :1]), tokens)[0]
        scores = (own @ part.outputs[0].weight.T).numpy()
        probabilities += np.exp(scores) / np.exp(scores).sum(1, keepdims=True) / 3
    average: Any = registry.projection("exact", ensemble)
    scorer = average.bind(source)
    ids = np.tile(np.arange(VOCABULARY), (3, 1))
    assert np.allclose(np.exp(scorer.log_probs(hidden, ids)), probabilities)
    found = scorer.top_k(hidden, 4, np.array([probabilities[0].argmax()]), normalise=True)
    assert found.log_normaliser.tolist() == [0, 0, 0] and found.support == "vocabulary"
    probabilities[:, probabilities[0].argmax()] = 0
    assert (found.ids == np.argsort(-probabilities, axis=1, kind="stable")[:, :4]).all()
    assert np.allclose(ensemble.align(source, tokens, np.array([2])).sum(2), 1)
    assert average.memory_bytes > 0


def test_an_ensemble_of_one_network_twice_is_that_network() -> None:
    for seed in range(20):
        case = cases.random_case(seed)
        one = network("S4", seed)
        twice = Ensemble([one, one])
        alone = replace(case, model=one, projection=Exact.of(one))
        together = replace(case, model=twice, projection=Average.of(twice))
        for decoder in (Greedy(), Beam(3)):
            assert [h.tokens for h in cases.decode(decoder, alone)] == [
                h.tokens for h in cases.decode(decoder, together)
            ]


def test_an_ensemble_over_candidate_lists() -> None:
    ensemble = Ensemble([network("S1", 1), network("S4", 2)])
    lexicon = random_lexicon(3)
    projection: Any = registry.projection("lexical:top=1,frequent=2", ensemble, ModelFiles(lexicon=lexicon))
    source = Source(np.array([[3, 4, 5], [6, 7, 7]]), np.array([3, 2]))
    hidden = torch.randn(2, 10, dtype=torch.float64)
    found = projection.bind(source).top_k(hidden, VOCABULARY, normalise=True)
    assert found.support == "active"
    for row in range(2):
        active = projection.parts[0].candidates(source.row(row).ids[0])
        assert sorted(i for i in found.ids[row] if i >= 0) == active.tolist() and found.num_active[row] == len(active)
        assert np.isclose(np.exp(found.scores[row][found.ids[row] >= 0]).sum(), 1)


def test_networks_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="An ensemble needs networks: got none"):
        Ensemble([])
    with pytest.raises(ValueError, match="the same target vocabulary: got 13, 14. Take models trained with"):
        Ensemble([network("S1", 1), network("S1", 1, vocabulary=14)])
    with pytest.raises(ValueError, match=r"takes hidden vectors of width 5, got \(1, 6\)"):
        one = Ensemble([network("S1", 1)])
        Average.of(one).bind(None).top_k(torch.zeros(1, 6, dtype=torch.float64), 1)
    with pytest.raises(ValueError, match="needs a projection for each network: got 0 for 1"):
        Average((), (5,), 13)


# --------------------------------------------------------------------------------------------------- stopping a beam


def test_delta_stops_early_and_none_changes_nothing() -> None:
    passes = {None: 0, 1e9: 0, 3.0: 0, 0.0: 0}
    for seed in range(20):
        case = cases.random_case(seed)
        found = {}
        for delta in passes:
            iterations, outputs = decoders.run_through(Beam(4, delta=delta), case)
            passes[delta] += iterations[-1].call
            found[delta] = [(h.tokens, h.score) for h in outputs]
        assert found[None] == found[1e9]
    assert passes[None] == passes[1e9] > passes[3.0] > passes[0.0]


def test_delta_stops_where_the_paper_says() -> None:
    """It goes on as long as the best partial hypothesis is within delta of the best completed one."""
    stopped = 0
    for seed in range(100):
        case = cases.random_case(seed)
        case = replace(case, source=case.source.row(0))
        iterations, _ = decoders.run_through(Beam(3, length_penalty=0.0, delta=1.0), case)
        for number, iteration in enumerate(iterations):
            lanes = iteration.lanes or ()
            done, live = ([lane.score for lane in lanes if lane.finished is over] for over in (True, False))
            apart = bool(done) and bool(live) and max(done) - max(live) > 1.0
            if number + 1 < len(iterations):
                assert not apart
            stopped += apart
    assert stopped


@pytest.mark.parametrize("delta", [-0.1, float("nan")])
def test_a_wrong_delta_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="beam needs delta >= 0, got .* The paper has 3.0"):
        Beam(delta=delta)
    assert registry.decoder("beam:size=6,delta=3.0") == Beam(6, delta=3.0)
    assert registry.describe(Beam(6, delta=3.0)) == "beam:size=6,delta=3.0"
    assert registry.decoder("beam:delta=none") == Beam()


def test_a_draft_table_is_a_lexicon() -> None:
    """Lists of a model of pieces: what its own table says of the source, the most frequent tokens and the end."""
    model = load("tatoeba-small", device="cpu")
    folder = Path(model.checkpoint.folder)
    table = DraftTable.load(folder / "draft-tables" / "en-de.safetensors")
    text = "The train is late."
    source = model.encode([text], "en", "de")
    session = Session.of(model, "en", "de", projection="lexical:top=3,frequent=40")
    lexical: Any = session.projection
    listed = set(lexical.candidates(source.ids[0]).tolist())
    likely = set(np.argsort(-table.ngrams.unigrams, kind="stable")[:40].tolist())
    assert likely | set(model.constraints("de").end) | set(table.lexicon.pruned(3).candidates(source.ids[0])) == listed
    assert set(session.translate(text).tokens) <= listed
    other = ModelFiles(model.checkpoint, ("de", "xx"))
    with pytest.raises(ValueError, match=r"needs a lexicon.*fastdecode draft-table"):
        registry.projection("lexical", model.network, other)


def test_a_vmap_file_is_a_projection_of_any_model(marian: Any, tmp_path: Path) -> None:
    """Lists that hold every token change nothing; short ones keep outputs among their tokens and the end."""
    text, file = "The train is late.", tmp_path / "lists.vmap"
    pieces = marian.tokenizer.pieces(range(marian.network.outputs[0].vocabulary))
    (source,) = marian.encode([text], "en", "de").ids
    file.write_text("\t" + " ".join(pieces) + "\n", encoding="utf-8")
    exact = translate(marian, text, source="en", target="de")
    whole = translate(marian, text, source="en", target="de", projection=f"lexical:file={file}")
    assert whole.tokens == exact.tokens
    few = {pieces[40], pieces[41], pieces[50]}
    lines = [f"{pieces[source[1]]}\t{pieces[40]} {pieces[41]}", f"\t{pieces[50]}"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = translate(marian, text, source="en", target="de", projection=f"lexical:file={file}")
    assert {pieces[token] for token in found.tokens} <= few | {"</s>"} and len(found.tokens) > 1
    with pytest.raises(ValueError, match="without frequent"):
        translate(marian, text, source="en", target="de", projection=f"lexical:file={file},frequent=3")
    with pytest.raises(ValueError, match=r"needs a lexicon.*lexical:file=FILE"):
        translate(marian, text, source="en", target="de", projection="lexical")
