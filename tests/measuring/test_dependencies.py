"""Measured dependencies: equal to replacing one token at a time, causal, and none where the model has none."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import fakes
import numpy as np
import pytest

import ddgviz
import fastdecode_lib
from fastdecode_lib.core import Candidates, Constraints, Source, drain
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.decoding.choosing import choose
from fastdecode_lib.laws import cases
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring import dependencies as module
from fastdecode_lib.measuring.dependencies import (
    COLUMNS,
    DISTANCES,
    REPLACEMENTS,
    WORD_CLASSES,
    Dependencies,
    dependencies,
    random_model,
    statistics,
    with_edges,
    word_classes,
)
from fastdecode_lib.translation import Session

TEXTS = fakes.own_sentences()["en"][2:6]
SEEDS = range(20)


class OneSource:
    """A tokenizer that knows one text, and spells every token as its number."""

    directions = ()

    def __init__(self, source: Source):
        self.source = source

    def encode(self, texts: Sequence[str], source: str | None, target: str | None) -> Source:
        lengths = np.array([int(self.source.lengths[0]) if text.strip() else 0 for text in texts])
        return Source(np.repeat(self.source.ids, len(texts), axis=0), lengths)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [f"▁{i}" for i in ids]


def session_of(model: Any, projection: Any, source: Source, constraints: Constraints) -> Session:
    loaded = TranslationModel("tiny", model, OneSource(source), None, "torch", "float64", "cpu")  # type: ignore[arg-type]
    return Session(loaded, None, None, Greedy(), "greedy", projection, "exact", constraints)


def session_of_case(seed: int) -> Session:
    """A random case as it is, or with a longer output: most random models say little that depends on anything."""
    case = cases.random_case(seed)
    longer = dataclasses.replace(case.constraints, max_length=14, min_length=10, exact_length=None)
    return session_of(case.model, case.projection, case.source.row(0), longer if seed % 2 else case.constraints)


class RowByRow:
    """A model that holds one row at a time, as the adapter to transformers does."""

    supports: frozenset[str] = frozenset()

    def __init__(self, model: Any):
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        assert len(tokens) == len(state.lengths) == 1 and visible is None
        return self.model.step(state, tokens)


class Rule:
    """A model and its projection: after a prefix, the token that a rule names is the best one, the next id second."""

    kind, tokens_per_step, supports, max_source, max_target, vocabulary = "causal", 1, frozenset({"ragged"}), 9, 40, 11
    memory_bytes = 0

    class State:
        def __init__(self, rows: list[tuple[int, ...]]):
            self.rows = rows

        def select(self, rows: np.ndarray) -> "Rule.State":
            return Rule.State([self.rows[row] for row in rows])

    def __init__(self, rule: Callable[[tuple[int, ...]], int]):
        self.rule = rule

    def encode(self, source: Source) -> Source:
        return source

    def start(self, encoded: Source, prefix: np.ndarray, capacity: int | None = None) -> "Rule.State":
        return Rule.State([tuple(row[:-1]) for row in prefix.tolist()])

    def step(self, state: "Rule.State", tokens: np.ndarray, visible: np.ndarray | None = None) -> np.ndarray:
        hidden = np.zeros((*tokens.shape, self.vocabulary))
        for row, slot in np.ndindex(tokens.shape):
            best = self.rule((*state.rows[row], *tokens[row, : slot + 1].tolist()))
            hidden[row, slot, best], hidden[row, slot, (best + 1) % self.vocabulary] = 5.0, 4.0
        state.rows = [(*seen, *new) for seen, new in zip(state.rows, tokens.tolist(), strict=True)]
        return hidden

    def bind(self, source: Source | None) -> "Rule":
        return self

    def top_k(
        self, hidden: np.ndarray, k: int, banned: np.ndarray | None = None, normalise: bool = False
    ) -> Candidates:
        assert banned is None
        ids = np.argsort(-hidden, axis=1, kind="stable")[:, :k]
        return Candidates(ids, np.take_along_axis(hidden, ids, 1), np.full(len(hidden), hidden.shape[1]))

    def log_probs(self, hidden: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return np.take_along_axis(hidden - np.log(np.exp(hidden).sum(1, keepdims=True)), ids, 1)


def measured_with(rule: Callable[[tuple[int, ...]], int], replace: str = "padding", length: int = 12) -> Dependencies:
    model: Any = Rule(rule)
    constraints = Constraints(prefix=(2,), end=(10,), max_length=length, padding=9)
    return dependencies(session_of(model, model, Source(np.array([[3, 4]]), np.array([2])), constraints), "x", replace)


# ------------------------------------------------------------------------------------------------------- the reference


def one_by_one(session: Session, replace: str, shift_by: int = 0, free: bool = False) -> Dependencies:
    """What `dependencies` measures, by single steps: each row started anew, each slot in a pass of its own.

    With `shift_by` it is the wrong token that is replaced; with `free` the tokens between are decoded again, not held.
    """
    model, constraints = session.model.network, session.constraints
    source = session.model.encode(["x"], None, None)
    scorer = session.projection.bind(source)
    encoded = model.encode(source)

    def run(fixed: dict[int, int], held: Sequence[int]) -> tuple[list[int], np.ndarray, list[int]]:
        """Choices, log-probabilities of the tokens held, and runners-up."""
        state = model.start(encoded, np.array([constraints.prefix]))
        last, chosen, log_probs, seconds = constraints.prefix[-1], [], [], []
        for slot, token in enumerate(held):
            hidden, at = model.step(state, np.array([[last]]))[:, 0], np.array([slot])
            chosen.append(int(choose(scorer, hidden, at, constraints, observe=False).tokens[0]))
            log_probs.append(float(scorer.log_probs(hidden, np.array([[token]]))[0, 0]))
            seconds.append(int(scorer.top_k(hidden, 2, constraints.forbidden(at)).ids[0, 1]))
            last = fixed.get(slot, chosen[-1] if free else token)
        return chosen, np.array(log_probs), seconds

    (greedy,) = drain(Greedy().iterate(model, session.projection, source, constraints))
    tokens = list(greedy.tokens)
    usual, usual_log_probs, seconds = run({}, tokens)
    assert usual == tokens
    if replace == "padding":
        seconds = [constraints.padding] * len(tokens)
    length = len(tokens)
    changed, shift = np.zeros((length, length), dtype=bool), np.zeros((length, length))
    for j in range(length):
        at = min(j + shift_by, length - 1)
        chosen, log_probs, _ = run({at: seconds[at]}, tokens)
        changed[j, j + 1 :] = np.array(chosen[j + 1 :]) != np.array(tokens[j + 1 :])
        shift[j, j + 1 :] = (usual_log_probs - log_probs)[j + 1 :]
    return Dependencies(np.array(tokens), np.array(seconds), changed, shift)


def agree(found: Dependencies, expected: Dependencies) -> bool:
    return bool(
        (found.tokens == expected.tokens).all()
        and (found.replacements[:-1] == expected.replacements[:-1]).all()
        and (found.changed == expected.changed).all()
        and np.abs(found.shift - expected.shift).max() < 1e-9
    )


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("positions", [1024, 20])
def test_passes_over_many_rows_equal_single_steps(
    replace: str, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSITIONS", positions)
    edges = 0
    for seed in SEEDS:
        session = session_of_case(seed)
        found = dependencies(session, "x", replace)
        assert agree(found, one_by_one(session, replace)), seed
        edges += found.changed.sum()
    assert edges > 20


@pytest.mark.parametrize("wrong", [{"shift_by": 1}, {"free": True}])
def test_a_wrong_measurement_is_told_from_a_right_one(wrong: dict[str, Any]) -> None:
    sessions = [session_of_case(seed) for seed in SEEDS]
    right = [agree(dependencies(s, "x"), one_by_one(s, "padding", **wrong)) for s in sessions]
    assert not all(right)


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_a_model_without_rows_is_measured_row_by_row(replace: str) -> None:
    for seed in SEEDS[:8]:
        session = session_of_case(seed)
        alone = dataclasses.replace(
            session, model=dataclasses.replace(session.model, network=RowByRow(session.model.network))
        )
        assert agree(dependencies(alone, "x", replace), dependencies(session, "x", replace)), seed


def test_a_model_of_transformers_is_measured() -> None:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    from fastdecode_lib.models.huggingface import HuggingFaceModel
    from fastdecode_lib.projections.exact_torch import Exact

    torch.manual_seed(4)
    config = BartConfig(
        vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=32, init_std=0.7,
        pad_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None, bos_token_id=0,
    )  # fmt: skip
    bart = BartForConditionalGeneration(config).double().eval()
    bart.final_logits_bias.normal_()
    model = HuggingFaceModel(bart, 32)
    constraints = Constraints(prefix=(2,), end=(2,), max_length=9, padding=1, banned=(1,))
    source = Source(np.array([[0, 5, 6, 7, 2]]), np.array([5]))
    session = session_of(model, Exact.of(model), source, constraints)
    for replace in REPLACEMENTS:
        found = dependencies(session, "x", replace)
        assert len(found.tokens) > 4 and found.changed.any()
        assert agree(found, one_by_one(session, replace))


# --------------------------------------------------------------------------------------------------- what is measured


def test_nothing_depends_on_what_comes_later() -> None:
    for seed in SEEDS:
        found = dependencies(session_of_case(seed), "x")
        later = np.tril(np.ones_like(found.changed))
        assert not (found.changed & later).any() and not (found.shift * later).any()
        assert (found.strength >= 0).all() and (found.strength <= 1).all()
        assert (found.strength[~found.changed] == 0).all()


def test_a_model_that_ignores_its_prefix_has_no_dependencies() -> None:
    for replace in REPLACEMENTS:
        found = measured_with(lambda prefix: len(prefix) % 7, replace)
        assert len(found.tokens) == 12 and not found.changed.any() and not found.shift.any()
        assert found.independent.all() and found.edges(0) == [] and len(found.distances) == 0


@pytest.mark.parametrize("back", [1, 2, 4])
def test_a_model_that_looks_back_at_one_token_has_dependencies_at_that_distance(back: int) -> None:
    for replace in REPLACEMENTS:
        found = measured_with(lambda prefix: 2 if len(prefix) < back else (3 * prefix[-back] + 1) % 11, replace)
        assert found.distances.tolist() == [back] * (12 - back)
        assert found.independent.tolist() == [back > 1] * 11
        assert [(edge["from"], edge["to"]) for edge in found.edges()] == [(j, j + back) for j in range(12 - back)]


def test_a_token_is_replaced_by_padding_or_by_its_runner_up() -> None:
    padded, second = (measured_with(lambda prefix: len(prefix) % 7, replace) for replace in REPLACEMENTS)
    assert padded.replacements.tolist() == [9] * 12
    assert second.replacements.tolist() == [token + 1 for token in second.tokens]


def test_a_forced_token_depends_on_nothing() -> None:
    """The end that the length limit forces stands, whatever the model would say."""
    for seed in SEEDS:
        session = session_of_case(seed)
        constraints = dataclasses.replace(session.constraints, exact_length=session.constraints.max_length)
        found = dependencies(dataclasses.replace(session, constraints=constraints), "x")
        assert len(found.tokens) == constraints.max_length and not found.changed[:, -1].any()


def test_a_strength_is_the_share_of_probability_lost() -> None:
    changed = np.array([[False, True, True, True], *[[False] * 4] * 3])
    shift = np.array([[0, np.log(4), np.inf, -1.0], *[[0.0] * 4] * 3])
    found = Dependencies(np.arange(4), np.arange(4), changed, shift)
    assert found.strength[0].tolist() == pytest.approx([0, 0.75, 1, 0])
    assert [edge["to"] for edge in found.edges(0)] == [1, 2, 3]
    assert [edge["to"] for edge in found.edges()] == [1, 2]
    assert [edge["to"] for edge in found.edges(0.8)] == [2]


@pytest.mark.parametrize("text", ["", "  "])
def test_text_without_content_has_no_dependencies(marian: TranslationModel, text: str) -> None:
    session = Session.of(marian, "en", "de")
    found = dependencies(session, text)
    assert found.changed.shape == found.shift.shape == (0, 0) and found.edges() == []
    assert with_edges(session.translate(text).trace, found).edges == []


# -------------------------------------------------------------------------------------------------------- in a picture


def test_edges_in_a_trace_are_drawn(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de", "gauss_seidel:block=3")
    trace, found = session.translate(TEXTS[0]).trace, dependencies(session, TEXTS[0])
    shown = with_edges(trace, found, least=0)
    assert trace.edges == [] and len(shown.edges) == found.changed.sum() > 3
    assert ddgviz.read(shown.to_dict()).edges == fastdecode_lib.Trace.from_json(shown.to_json()).edges == shown.edges
    graph = ddgviz.to_networkx(shown)
    assert graph.graph["edges"] == "measured"
    assert set(graph.edges) == {(e["from"], e["to"]) for e in shown.edges if e["strength"] > 0}
    assert "changing the left token would change the right one" in ddgviz.svg(shown)


def test_edges_of_another_output_are_refused(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de")
    with pytest.raises(ValueError, match=r"of another output: got a trace .*\. Use the same sentence"):
        with_edges(session.translate(TEXTS[0]).trace, dependencies(session, TEXTS[1]))


@pytest.mark.parametrize("least", [-0.1, 1.5, float("nan")])
def test_a_threshold_is_a_strength(least: float) -> None:
    with pytest.raises(ValueError, match=r"A strength is from 0 to 1, got least=.*\. Use least=0"):
        measured_with(lambda prefix: 3).edges(least)


# ---------------------------------------------------------------------------------------------------------- statistics


def test_statistics_count_what_was_measured(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de")
    frame = statistics(session, [*TEXTS, "", " "], "runner_up")
    assert tuple(frame.columns) == COLUMNS
    assert set(frame["name"]) == {f"{marian.name} en-de"} and set(frame["replace"]) == {"runner_up"}
    table = frame.set_index(["measure", "group"])[["share", "count"]]
    found = [dependencies(session, text, "runner_up") for text in TEXTS]
    lengths = np.array([len(d.tokens) for d in found])
    assert table.loc[("changed", "all"), "count"] == (lengths * (lengths - 1) // 2).sum()
    assert table.loc[("changed", "1"), "count"] == table.loc[("independent", "all"), "count"] == (lengths - 1).sum()
    assert table.loc[("changed", "3"), "count"] == np.maximum(lengths - 3, 0).sum()
    hits = (frame["share"].fillna(0) * frame["count"]).groupby([frame["measure"], frame["group"]]).sum()
    assert hits["changed", "all"] == pytest.approx(sum(d.changed.sum() for d in found))
    for measure, groups in (("changed", DISTANCES), ("independent", WORD_CLASSES)):
        assert table.loc[[(measure, g) for g in groups], "count"].sum() == table.loc[(measure, "all"), "count"]
        assert sum(hits[measure, g] for g in groups) == pytest.approx(hits[measure, "all"])
    dependent = 1 - table.loc[("independent", "all"), "share"]
    assert table.loc[("changed", "1"), "share"] == pytest.approx(dependent)
    assert frame.attrs["provenance"]["sentences"] == len(TEXTS)


def test_shuffling_keeps_the_number_of_dependencies_and_no_distance() -> None:
    found = measured_with(lambda prefix: (3 * prefix[-1] + 1) % 11, length=30)
    draws = [found.shuffled(np.random.default_rng(seed)) for seed in range(300)]
    for draw in draws:
        assert len(draw.distances) == 29 and draw.shift.sum() == pytest.approx(found.shift.sum())
        assert not np.tril(draw.changed).any() and (draw.shift[draw.changed] > 0).all()
    distance = np.subtract(*reversed(found.pairs))
    rates = np.mean([draw.changed[draw.pairs] for draw in draws], axis=0)
    profile = [rates[distance == d].mean() for d in range(1, 16)]
    assert np.allclose(profile, 29 / len(distance), atol=0.015)
    assert found.changed.sum() == 29 and (np.diagonal(found.changed, 1)).all()


def test_controls_keep_pairs_and_slots(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de")
    frames = {control: statistics(session, TEXTS, control=control, seed=1) for control in module.CONTROLS}
    shares = {control: frame.set_index(["measure", "group"])["share"] for control, frame in frames.items()}
    for control, frame in frames.items():
        assert set(frame["control"]) == {control}
        assert frame["count"].tolist() == frames["none"]["count"].tolist()
        assert frame.equals(statistics(session, TEXTS, control=control, seed=1)), "a seed says everything"
    assert shares["shuffled"]["changed", "all"] == shares["none"]["changed", "all"]
    assert shares["shuffled"]["changed", "1"] != shares["none"]["changed", "1"]
    assert not shares["random_weights"].equals(shares["none"])


def test_a_random_model_has_the_same_numbers_in_other_places(marian: TranslationModel) -> None:
    random = random_model(marian, seed=5)
    weight, mixed = (m.network.outputs[0].weight for m in (marian, random))
    assert mixed.dtype == weight.dtype and not (mixed == weight).all()
    assert (mixed.flatten().sort().values == weight.flatten().sort().values).all()
    assert (mixed == random.network.decoder.embedding).all(), "what is shared stays shared"
    assert (mixed == random_model(marian, seed=5).network.outputs[0].weight).all()
    assert (mixed != random_model(marian, seed=6).network.outputs[0].weight).any()
    assert random.name == f"{marian.name} with random weights"
    assert fastdecode_lib.translate(random, TEXTS[0], source="en", target="de").text


def test_tokens_start_words_or_continue_them(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de")
    pieces = {"▁a": "word start", "▁": "word start", "en": "continuation", ".": "punctuation", "</s>": "end"}
    ids = marian.tokenizer.target_vocabulary
    known = {piece: kind for piece, kind in pieces.items() if piece in ids}
    assert set(known.values()) == set(WORD_CLASSES)
    assert word_classes(session, np.array([ids[piece] for piece in known])).tolist() == list(known.values())


def test_bad_input_is_refused(marian: TranslationModel) -> None:
    session = Session.of(marian, "en", "de")
    for text in (TEXTS[0], ""):
        with pytest.raises(ValueError, match=r"Unknown replacement: got 'paddin'. Did you mean 'padding'\?"):
            dependencies(session, text, "paddin")
    with pytest.raises(ValueError, match=r"Unknown replacement: got 'noise'. Use one of padding, runner_up"):
        statistics(session, TEXTS, "noise")
    with pytest.raises(ValueError, match=r"Unknown control: got 'shuffle'. Did you mean 'shuffled'\?"):
        statistics(session, TEXTS, control="shuffle")
    with pytest.raises(ValueError, match=r"nothing to measure: got no sentence with content. Give at least one"):
        statistics(session, ["", " "])
    other = dataclasses.replace(marian, network=RowByRow(marian.network), engine="huggingface")
    with pytest.raises(ValueError, match=r"engines: got .* on the engine huggingface. Load a Marian"):
        random_model(other)


def test_the_bundled_model_depends_mostly_on_the_token_before() -> None:
    model = fastdecode_lib.load("tatoeba-small", device="cpu")
    session = Session.of(model, "en", "de", "jacobi")
    for replace in REPLACEMENTS:
        found = dependencies(session, TEXTS[1], replace)
        assert found.tokens.tolist() == list(session.translate(TEXTS[1]).tokens)
        assert 0 < found.changed.sum() < len(found.pairs[0]) / 2
        assert np.median(found.distances) == 1
        shown = with_edges(session.translate(TEXTS[1]).trace, found)
        assert 0 < len(ddgviz.read(shown.to_dict()).edges) <= found.changed.sum()
