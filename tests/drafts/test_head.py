"""Draft heads: the compiled step against the equations, files, what is refused, and training from text to a faster window."""

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from fastdecode_lib import cli, load, translate
from fastdecode_lib.core import Output, drain
from fastdecode_lib.drafts import scores as constants
from fastdecode_lib.drafts.finding import find_head
from fastdecode_lib.drafts.head import ANY, FORMAT, DraftHead, DraftHeadError, Shape
from fastdecode_lib.drafts.scores import BoundHead, HeadReading, Scores
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.kernels.matrices import Precision
from fastdecode_lib.laws import cases, decoders
from fastdecode_lib.store import atomic_file
from fastdecode_lib.training import draft_heads
from fastdecode_lib.training.draft_heads import HeadLearner, HeadRecipe, enter, forward, split
from fastdecode_lib.translation import Session

SHAPE = Shape(hidden=20, source=12, tokens=30, embedding=8, width=16, inner=24)
TEXTS = sorted(fakes.own_sentences()["en"], key=len)
RECIPE = HeadRecipe(
    name="micro", tokens_per_update=400, peak_rate=4e-3, warm_up=10, average=0.9, evaluate_every=40, updates=80,
    held_out=12, vocabulary=300, embedding=16, width=32, inner=32,
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    return load("tatoeba-small", device="cpu")


def random_head(random: np.random.Generator, shape: Shape = SHAPE, **about: Any) -> DraftHead:
    tensors = {name: random.normal(size=size).astype(np.float32) * 0.5 for name, size in shape.tensors.items()}
    return DraftHead(shape, tensors, {"de": np.sort(random.permutation(shape.tokens)[:9]).astype(np.int64)}, about)


def random_output(random: np.random.Generator, shape: Shape = SHAPE) -> Output:
    weight, bias = random.normal(size=(shape.tokens, shape.hidden)), random.normal(size=shape.tokens)
    return Output(torch.from_numpy(weight), torch.from_numpy(bias))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-5), ("int8", 0.1)])
def test_the_compiled_step_is_the_equations(seed: int, precision: Precision, tolerance: float) -> None:
    """In int8 within a tenth of the largest logit."""
    random = np.random.default_rng(seed)
    head, output = random_head(random), random_output(random)
    bound = BoundHead(head, output, "de", precision)
    reading = HeadReading(bound)
    vectors = random.normal(size=(int(random.integers(1, 40)), SHAPE.source)).astype(np.float32)
    hidden = random.normal(size=SHAPE.hidden).astype(np.float32)
    weights = {name: torch.from_numpy(tensor) for name, tensor in head.tensors.items()}
    keys, values = (split(torch.from_numpy(vectors)[None] @ weights[f"{name}.weight"].T) for name in ("key", "value"))
    state = enter(weights, torch.from_numpy(hidden)[None, None])
    reading.begin(vectors)
    reading.see(hidden)
    tokens = random.integers(0, SHAPE.tokens, size=5).tolist()
    mask = torch.ones(1, 1, 1, len(vectors), dtype=torch.bool)
    for number, token in enumerate(tokens):
        normaliser = reading.read(tokens[: number + 1], 1)
        expected, state = forward(weights, torch.tensor([[token]]), state, keys, values, mask)
        words = torch.from_numpy(bound.words)
        logits = expected[0, 0].double() @ output.weight[words].T + output.bias[words]
        near = tolerance * float(logits.abs().max())
        np.testing.assert_allclose(reading.logits[0, : len(words)], logits, atol=near)
        assert normaliser == pytest.approx(float(logits.logsumexp(0)), abs=near)


def test_drafts_end_where_the_head_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of its probabilities for the tokens of a pass decides; the next pass begins anew."""
    random = np.random.default_rng(3)
    output = random_output(random)
    flat = Output(0.05 * output.weight, 0.05 * output.bias)
    bound = BoundHead(random_head(random), flat, "de", "float32")
    scores = Scores("head", None, np.array([1, 2]), 0, head=bound)
    scores.begin(random.normal(size=(2, SHAPE.source)).astype(np.float32))
    scores.see(random.normal(size=SHAPE.hidden).astype(np.float32))
    reading = scores.head
    assert reading is not None
    monkeypatch.setattr(constants, "DOUBT", 0.0)
    before, products = [3], [1.0]
    for _ in range(4):
        (token,) = scores.tokens(before, 1, 1)
        shares = np.exp(reading.logits[0, : len(bound.words)] - reading.normaliser)
        assert shares.sum() == pytest.approx(1, abs=1e-4)
        assert reading.probability(token) == pytest.approx(shares[list(bound.words).index(token)], rel=1e-6)
        products.append(products[-1] * reading.probability(token))
        before.append(token)
    assert reading.probability(next(i for i in range(SHAPE.tokens) if i not in bound.words)) == 0
    for drafted in range(1, 5):
        monkeypatch.setattr(constants, "DOUBT", (products[drafted - 1] + products[drafted]) / 2)
        for _ in range(2):  # a second chain of the pass begins anew, too
            chain = [3]
            while len(chain) < 5 and (tokens := scores.tokens(chain, 1, 1)):
                chain += tokens
            assert chain == before[:drafted]
    monkeypatch.setattr(constants, "DOUBT", 0.0)
    (token,) = scores.tokens([3, 4, before[1]], 2, 1)  # another source's token came first
    assert scores.sureness == reading.probability(token)


def test_a_head_follows_the_tokens_it_is_given() -> None:
    """Going back, or on from other tokens, gives what a fresh reading of these tokens gives."""
    random = np.random.default_rng(1)
    bound = BoundHead(random_head(random), random_output(random), "de")
    vectors = random.normal(size=(6, SHAPE.source)).astype(np.float32)
    hidden = random.normal(size=SHAPE.hidden).astype(np.float32)

    def fresh() -> HeadReading:
        reading = HeadReading(bound)
        reading.begin(vectors)
        reading.see(hidden)
        return reading

    one = fresh()
    for before in ([3, 4], [3, 4, 5, 6], [3, 4], [3, 4, 7], [3, 4, 5]):
        other = fresh()
        assert one.read(before, 2) == other.read(before, 2)
        assert (one.logits == other.logits).all()


def test_a_copy_stands_on_its_own() -> None:
    random = np.random.default_rng(1)
    bound = BoundHead(random_head(random), random_output(random), "de")
    copied = pickle.loads(pickle.dumps(bound))
    assert (copied.matrices != bound.matrices).any()
    told = []
    for one in (bound, copied):
        reading = HeadReading(one)
        reading.begin(np.ones((4, SHAPE.source), dtype=np.float32))
        reading.see(np.ones(SHAPE.hidden, dtype=np.float32))
        told.append((reading.read([3, 5], 1), reading.logits.tolist()))
        bound = None  # type: ignore[assignment]
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["head", "ngram+head", "lexicon+head", "ngram+lexicon+head"])
def test_scores_are_added(name: str) -> None:
    """With a head, the best token is the argmax of the sum of what the table says and what the head says."""
    random = np.random.default_rng(5)
    for _ in range(40):
        sentences = [random.integers(0, SHAPE.tokens, size=int(random.integers(1, 8))) for _ in range(30)]
        table = DraftTable.count(
            sentences, sentences[::-1], source_vocabulary=SHAPE.tokens, vocabulary=SHAPE.tokens, start=2, least=1
        )
        bound = BoundHead(random_head(random), random_output(random), "de")
        source = random.integers(0, SHAPE.tokens, size=5)
        before = random.integers(0, SHAPE.tokens, size=3).tolist()
        given = None if name == "head" else table
        both = Scores(name, given, source, 2, head=bound)
        hidden = random.normal(size=SHAPE.hidden).astype(np.float32)
        vectors = random.normal(size=(5, SHAPE.source)).astype(np.float32)
        both.begin(vectors)
        both.see(hidden)
        found = both.token(before, 3)
        logits = both.outputs[2][: len(bound.words)]
        told = np.full(SHAPE.tokens, constants.HEAD_FLOOR)
        told[bound.words] = np.maximum(logits - float(both.head.normaliser), constants.HEAD_FLOOR)  # type: ignore[union-attr]
        near = np.zeros(SHAPE.tokens, dtype=bool)
        near[bound.words] = logits >= logits.max() - constants.HEAD_REACH
        total = constants.HEAD_WEIGHT * told
        if given is not None:
            each, known = _by_table(name.removesuffix("+head"), table, source, before)
            total, near = total + each, near | known
        assert total[found] == pytest.approx(total[near].max(), abs=1e-4)
        assert not both.scratch.any(), "scratch must be left clean"


def _by_table(name: str, table: DraftTable, source: np.ndarray, before: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """What a table says of every token, by formulas written out, and which tokens it knows."""
    n, x = table.ngrams, table.lexicon
    alone = Scores(name, table, source, 2)
    alone.token(before, len(before))
    b, a = before[-1], before[-2]
    bigrams, trigrams, total3 = np.zeros(len(n.unigrams)), np.zeros(len(n.unigrams)), 0.0
    inside = slice(n.bigram_offsets[b], n.bigram_offsets[b + 1])
    bigrams[n.bigram_ids[inside]] = n.bigram_counts[inside]
    for context in range(n.context_offsets[b], n.context_offsets[b + 1]):
        if n.contexts[context] == a:
            inside = slice(n.trigram_offsets[context], n.trigram_offsets[context + 1])
            trigrams[n.trigram_ids[inside]] = n.trigram_counts[inside]
            total3 = n.trigram_totals[context]
    probability = (bigrams + constants.BIGRAM_PRIOR * n.unigrams) / (n.bigram_totals[b] + constants.BIGRAM_PRIOR)
    probability = (trigrams + constants.TRIGRAM_PRIOR * probability) / (total3 + constants.TRIGRAM_PRIOR)
    shares = np.exp(-abs(np.arange(len(source)) - alone.ahead.aligned - 1) / constants.REACH)
    shares *= 1 - constants.DISCOUNT * np.minimum(1, alone.ahead.covered[0])
    translated = np.zeros(len(n.unigrams))
    for word, share in zip(source, shares, strict=True):
        inside = slice(x.offsets[word], x.offsets[word + 1])
        if share >= 1e-4:
            np.add.at(translated, x.ids[inside], share * x.probabilities[inside])
    total, known = np.zeros(len(bigrams)), np.zeros(len(bigrams), dtype=bool)
    if "ngram" in name:
        total += constants.NGRAM_WEIGHT * np.log(probability + 1e-12)
        known |= (bigrams > 0) | (trigrams > 0)
    if "lexicon" in name:
        total += constants.LEXICON_WEIGHT * np.log(translated + constants.FLOOR)
        known |= translated > 0
    return total, known


def test_before_the_first_pass_the_table_speaks_alone() -> None:
    random = np.random.default_rng(2)
    table = DraftTable.count(
        [np.array([5, 6])] * 3, [np.array([7, 8])] * 3, source_vocabulary=30, vocabulary=30, start=2
    )
    bound = BoundHead(random_head(random), random_output(random), "de")
    with_head = Scores("ngram+lexicon+head", table, np.array([5, 6]), 2, head=bound)
    assert with_head.token([], 0) == Scores("ngram+lexicon", table, np.array([5, 6]), 2).token([], 0) == 7
    assert Scores("head", None, np.array([5, 6]), 2, head=bound).token([], 0) == -1


# -------------------------------------------------------------------------------------------------------------- files


def test_a_head_survives_its_file(tmp_path: Path) -> None:
    head = random_head(np.random.default_rng(3), fingerprint="f", tokens=5)
    head.save(tmp_path / "head.safetensors")
    again = DraftHead.load(tmp_path / "head.safetensors")
    assert again.shape == head.shape and again.about == head.about
    assert {n: ids.tolist() for n, ids in again.vocabularies.items()} == {
        n: ids.tolist() for n, ids in head.vocabularies.items()
    }
    for name, tensor in head.tensors.items():
        step = np.abs(tensor).max(1, keepdims=True) / 127 if tensor.ndim == 2 else 0
        assert (np.abs(again.tensors[name] - tensor) <= 0.6 * step + 1e-7).all(), (
            "half a step, and float16's rounding of 127"
        )
    again.save(tmp_path / "twice.safetensors")
    twice = DraftHead.load(tmp_path / "twice.safetensors")
    assert all(np.allclose(twice.tensors[name], again.tensors[name], rtol=2e-3) for name in again.tensors)


def test_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    with pytest.raises(
        DraftHeadError, match="head.safetensors is not a readable safetensors file.*fastdecode draft-head"
    ):
        DraftHead.load(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DraftHeadError, match="is not a readable"):
        DraftHead.load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(DraftHeadError, match="Not a draft head of version 1"):
        DraftHead.load(path)
    random_head(np.random.default_rng(1)).save(path)
    header = {"version": 1, "shape": dataclasses.asdict(SHAPE), "about": {}}
    tensors = load_file(path)
    for change, said in (
        ({"token.bias": None}, "token.bias of other sizes"),
        ({"outer.bias": np.full(SHAPE.hidden, np.nan, dtype=np.float32)}, "outer.bias of other sizes .* or not finite"),
        ({"vocabulary.de": np.array([5, 3], dtype=np.int32)}, "the vocabulary of de"),
        ({"vocabulary.de": None}, "no vocabulary"),
    ):
        changed = {name: tensor for name, tensor in {**tensors, **change}.items() if tensor is not None}
        with atomic_file(path) as temporary:
            save_file(changed, temporary, metadata={FORMAT: json.dumps(header)})
        with pytest.raises(DraftHeadError, match=said):
            DraftHead.load(path)


def test_a_head_of_another_model_or_language_is_refused(model: Any, tmp_path: Path) -> None:
    random, path = np.random.default_rng(1), tmp_path / "head.safetensors"
    random_head(random, fingerprint="another").save(path)
    with pytest.raises(DraftHeadError, match="trained on the model another: got .*leave it out to have it found"):
        Session.of(model, "en", "de", f"window:draft=head,head={path}")
    random_head(random, fingerprint=model.checkpoint.fingerprint).save(path)
    with pytest.raises(DraftHeadError, match="of another model: it knows hidden vectors of 20 and 30 tokens"):
        Session.of(model, "en", "de", f"window:draft=head,head={path}")
    with pytest.raises(DraftHeadError, match="not trained for this target language: it knows de, got fr"):
        Session.of(model, "en", "fr", f"window:draft=head,head={path}")
    with pytest.raises(ValueError, match="A head is used by the draft head only: got draft='recycled'"):
        Session.of(model, "en", "de", f"window:draft=recycled,head={path}")
    assert find_head(tmp_path, "missing") is None


def test_a_model_without_a_head_says_how_to_make_one() -> None:
    other = load("sharp-s4", device="cpu")
    with pytest.raises(
        ValueError, match="needs a draft head, got none for this model. Train one with `fastdecode draft-head`"
    ):
        translate(other, "Hello.", decoder="window:draft=head")


# ----------------------------------------------------------------------------------------------------------- training


def make(
    model: Any,
    folder: Path,
    directions: Any = (("en", "de"),),
    begin_with: DraftHead | None = None,
    **changes: Any,
) -> DraftHead:
    sessions = [Session.of(model, *direction, "greedy") for direction in directions]
    texts = [sorted(fakes.own_sentences()[source], key=len)[:90] for source, _ in directions]
    recipe = dataclasses.replace(RECIPE, **changes)
    return draft_heads.make_head(sessions, texts, recipe, begin_with=begin_with, folder=folder)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_training_makes_a_window_faster_and_changes_nothing(engine: str, tmp_path: Path) -> None:
    other: Any = load("tatoeba-small", device="cpu", engine=engine)
    head = make(other, tmp_path)
    assert head.about["fingerprint"] == other.checkpoint.fingerprint and head.about["sentences"] == 78
    history = json.loads(next(tmp_path.glob("*/history.json")).read_text())
    assert history[-1]["tokens_per_pass"] > 1.15, "eighty updates should already save a pass in seven"
    head.save(tmp_path / "head.safetensors")
    greedy = [translate(other, text, source="en", target="de", decoder="greedy") for text in TEXTS[20:40]]
    spec = f"window:width=4,draft=head,head={tmp_path / 'head.safetensors'}"
    windows = translate(other, TEXTS[20:40], source="en", target="de", decoder=spec, verify=True)
    assert [w.tokens for w in windows] == [g.tokens for g in greedy]
    passes, before = (sum(t.trace.calls for t in found) for found in (windows, greedy))
    assert passes < 0.95 * before
    assert {o for w in windows for i in w.trace.iterations for o in i.origins} == {"head", ""}


def test_several_directions_share_a_head(model: Any, tmp_path: Path) -> None:
    head = make(model, tmp_path, (("en", "de"), ("de", "en"), ("fr", "en")), updates=2, evaluate_every=1)
    assert sorted(head.vocabularies) == ["de", "en"]
    assert set(head.about["held_out"]) == {"tokens_per_pass", "en-de", "de-en", "fr-en"}
    head.save(tmp_path / "head.safetensors")
    for direction in (("en", "de"), ("fr", "en")):
        Session.of(model, *direction, f"window:draft=ngram+lexicon+head,head={tmp_path / 'head.safetensors'}")


def test_stopped_training_goes_on_to_the_same_head(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make(model, tmp_path / "whole", updates=15)
    step, updates = draft_heads.Run.step, []

    def stopping(run: Any, rows: np.ndarray) -> Any:
        if len(updates) == 8:
            run.save()
            raise KeyboardInterrupt
        updates.append(1)
        return step(run, rows)

    monkeypatch.setattr(draft_heads.Run, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        make(model, tmp_path / "parts", updates=15)
    monkeypatch.setattr(draft_heads.Run, "step", step)
    parts = make(model, tmp_path / "parts", updates=15)
    assert all((whole.tensors[name] == parts.tensors[name]).all() for name in whole.tensors)


def test_a_head_begins_with_the_weights_of_another(model: Any, tmp_path: Path) -> None:
    first = make(model, tmp_path / "first", updates=15)
    on = make(model, tmp_path / "on", updates=15, begin_with=first)
    assert on.about["begun_with"] == first.about["fingerprint"] and "begun_with" not in first.about
    assert any((on.tensors[name] != first.tensors[name]).any() for name in on.tensors)

    session = Session.of(model, "en", "de", "greedy")
    source = session.model.encode(["The house is red."], "en", "de")
    (said,) = session.decode(["The house is red."])
    pair = ([source.ids[0, : source.lengths[0]]] * 2, [np.array(said.tokens)] * 2)
    recipe = dataclasses.replace(RECIPE, held_out=1)
    learner = HeadLearner(recipe, [session], [pair], 1, first)
    assert all((learner.parameters[name].detach().numpy() == first.tensors[name]).all() for name in first.tensors)
    with pytest.raises(ValueError, match=r"begins with one of its own shape: got .*Give another, or none"):
        HeadLearner(dataclasses.replace(recipe, inner=8), [session], [pair], 1, first)


def test_the_loss_is_of_the_tokens_behind_right_drafts(model: Any) -> None:
    """By hand, for one sentence and two drafts: what stands one and two places behind each position, within the vocabulary."""
    session = Session.of(model, "en", "de", "greedy")
    source = session.model.encode(["The house is red."], "en", "de")
    (said,) = session.decode(["The house is red."])
    pair = ([source.ids[0, : source.lengths[0]]] * 2, [np.array(said.tokens)] * 2)
    learner = HeadLearner(dataclasses.replace(RECIPE, drafts=2, decay=0.5, held_out=1), [session], [pair], 1)
    batch = learner.examples.batch(np.array([0]), learner.padding)
    found, tokens = learner.features(0, [pair[0][0]], [pair[1][0]]), said.tokens
    weights, words = learner.parameters, torch.from_numpy(learner.vocabularies["de"])
    keys, values = (split(found.vectors @ weights[f"{name}.weight"].T) for name in ("key", "value"))
    total, share = 0.0, 0.0
    for place in range(len(tokens) - 1):
        state = enter(weights, found.hidden[:, place : place + 1])
        for ahead, factor in ((1, 1.0), (2, 0.5)):
            if place + ahead < len(tokens):
                fed = torch.tensor([[tokens[place + ahead - 1]]])
                hidden, state = forward(weights, fed, state, keys, values, found.mask)
                logits = (hidden[0, 0] @ learner.rows[words].T + learner.bias[words]).log_softmax(0)
                total -= factor * float(logits.detach()[words.tolist().index(tokens[place + ahead])])
                share += factor
    assert float(learner.loss(*batch).detach()) == pytest.approx(total / share, rel=1e-4)


def test_the_command(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("\n".join(TEXTS[:80]) + "\n", encoding="utf-8")
    out = tmp_path / "head.safetensors"
    arguments = ["draft-head", "--source", str(tmp_path / "text"), "--from", "en", "--to", "de", "--updates", "1"]
    arguments += ["--folder", str(tmp_path / "build"), "--out", str(out), "--json", str(tmp_path / "head.json")]
    assert cli.main(arguments) == 0
    said, announced = capsys.readouterr()
    assert "update 1: tokens_per_pass 1." in said and "inf" not in said and "best before" not in said
    assert "\nen-de: 1." in said and "\ntokens_per_pass: " not in said, "one row for each direction"
    assert "of 30 translations" in said and str(out) in said
    assert announced.startswith(
        "fastdecode: translations of 80 sentences, then training, 1 updates at most; a stopped run goes on"
    )
    assert json.loads((tmp_path / "head.json").read_text())["provenance"]["fingerprint"] == model.checkpoint.fingerprint
    assert cli.main(["translate", "Hello.", "--to", "de", "--decoder", f"window:draft=head,head={out}"]) == 0
    assert cli.main([*arguments, "--sentences", "0"]) == 2
    assert cli.main(["draft-head", "--source", str(tmp_path / "text"), "--sentences", "20", "--to", "de"]) == 2
    assert "needs at least 51 sentences of a direction" in capsys.readouterr().err


def test_a_random_head_never_changes_an_output() -> None:
    """The law of `laws` on the drafts with a head, on a model that attends otherwise: it must hold for any weights."""
    for seed in range(30):
        case = cases.random_case(seed)
        for draft in cases.HEAD_DRAFTS:
            decoders.lossless_equals_greedy(cases.random_window(case.random, draft), case)
    assert ANY in cases.random_head(np.random.default_rng(0)).head.vocabularies


def test_what_only_passes_calls_on_is_asked_for_vectors(model: Any) -> None:
    """Counting proxies show `source_vectors` through ``__getattr__``, which protocols do not look at on newer Pythons."""
    session = Session.of(model, "en", "de", "window:width=4,draft=head")

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return getattr(model.network, name)

    proxy: Any = Proxy()
    source = model.encode(TEXTS[:2], "en", "de")
    found = drain(session.decoder.iterate(proxy, session.projection, source, session.constraints))
    assert [h.tokens for h in found] == [h.tokens for h in Session.of(model, "en", "de", "greedy").decode(TEXTS[:2])]


def test_a_bound_head_follows_the_direction(model: Any) -> None:
    german: Any = Session.of(model, "en", "de", "window:draft=head").decoder
    french: Any = Session.of(model, "en", "fr", german).decoder
    own: Any = german.drafts.head
    assert own.target == "de" and french.drafts.head.target == "fr"
    assert french.drafts.head.words.tolist() != own.words.tolist()
    random = np.random.default_rng(1)
    foreign = BoundHead(dataclasses.replace(own.head, about={"fingerprint": "x"}), model.network.outputs[0], "de")
    other = dataclasses.replace(german, draft=dataclasses.replace(german.drafts, head=foreign))
    with pytest.raises(DraftHeadError, match="trained on the model x"):
        Session.of(model, "en", "de", other)
    head = random_head(random)
    assert head.vocabulary_of(None) is head.vocabularies["de"] and head.vocabulary_of("fr") is None


def test_sizes_that_do_not_fit_are_named() -> None:
    random = np.random.default_rng(1)
    with pytest.raises(DraftHeadError, match="width, no multiple of the heads"):
        random_head(random, dataclasses.replace(SHAPE, width=18))
    reading = HeadReading(BoundHead(random_head(random), random_output(random), "de"))
    with pytest.raises(DraftHeadError, match="knows source vectors of 12, the model's have 5"):
        reading.begin(np.ones((3, 5), dtype=np.float32))
    reading.begin(np.ones((3, 12), dtype=np.float32))
    reading.see(np.ones(SHAPE.hidden, dtype=np.float32))
    assert reading.read([SHAPE.tokens + 5], 1) is None and reading.read([3], 1) is not None
