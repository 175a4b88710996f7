"""Models that run through transformers' own forward: the same numbers, the same tokens, and clear refusals."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch

from fastdecode_lib import load, translate
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Constraints, Source, drain
from fastdecode_lib.models.huggingface import HuggingFaceModel
from fastdecode_lib.projections.exact_torch import Exact
from fastdecode_lib.registry import decoder
from fastdecode_lib.translation import Session

FAMILIES = ("t5", "t5-gated", "umt5", "bart", "pegasus")
VOCABULARY, LIMIT = 40, 18


def module_of(family: str, vocabulary: int = VOCABULARY, seed: int = 3) -> Any:
    """A random two-layer model whose outputs depend on everything before them."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        PegasusConfig,
        PegasusForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
        UMT5Config,
        UMT5ForConditionalGeneration,
    )

    torch.manual_seed(seed)
    if "t5" in family:
        gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if family == "t5-gated" else {}
        kind, model = (
            (UMT5Config, UMT5ForConditionalGeneration) if family == "umt5" else (T5Config, T5ForConditionalGeneration)
        )
        config = kind(
            vocab_size=vocabulary, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=2,
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, initializer_factor=6.0, **gated,
        )  # fmt: skip
        module = model(config)
    else:
        kind, model = (
            (BartConfig, BartForConditionalGeneration)
            if family == "bart"
            else (PegasusConfig, PegasusForConditionalGeneration)
        )
        end, padding = (2, 1) if family == "bart" else (1, 0)
        config = kind(
            vocab_size=vocabulary, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64,
            init_std=0.7, pad_token_id=padding, eos_token_id=end, decoder_start_token_id=end if family == "bart" else 0,
            forced_eos_token_id=None, bos_token_id=0,
        )  # fmt: skip
        module = model(config)
        module.final_logits_bias.normal_()
    return module.double().eval()


@pytest.fixture(scope="module", params=FAMILIES)
def module(request: pytest.FixtureRequest) -> Any:
    return module_of(request.param)


def source_of(module: Any, length: int = 7, seed: int = 0) -> Source:
    ids = np.random.default_rng(seed).integers(4, VOCABULARY, size=(1, length))
    ids[0, -1] = module.config.eos_token_id
    return Source(ids, np.array([length]))


def constraints_of(module: Any, **changes: Any) -> Constraints:
    config = module.config
    rules = {"prefix": (config.decoder_start_token_id,), "end": (config.eos_token_id,), "max_length": LIMIT}
    return Constraints(**(rules | changes))


def logits(model: HuggingFaceModel, hidden: torch.Tensor) -> np.ndarray:
    (output,) = model.outputs
    scores = hidden @ output.weight.T
    return (scores if output.bias is None else scores + output.bias.reshape(-1)).numpy()


@torch.inference_mode()
def expected_logits(module: Any, source: Source, tokens: np.ndarray) -> np.ndarray:
    """All at once and without a cache."""
    return module(
        input_ids=torch.from_numpy(source.ids), decoder_input_ids=torch.from_numpy(tokens), use_cache=False
    ).logits.numpy()


def test_logits_of_a_prefill(module: Any) -> None:
    model, source = HuggingFaceModel(module, 64), source_of(module)
    tokens = np.random.default_rng(1).integers(4, VOCABULARY, size=(1, 9))
    state = model.start(model.encode(source), tokens[:, :1])
    found = logits(model, model.step(state, tokens))
    assert np.abs(found - expected_logits(module, source, tokens)).max() < 1e-9
    assert np.abs(found).max() > 1e-3 and state.lengths.tolist() == [9]


def test_threads_do_not_take_each_others_vectors(module: Any) -> None:
    """Each reads what its own pass put out, however the passes of others fall between."""
    model = HuggingFaceModel(module, 64)
    sources = [source_of(module, length, seed=length) for length in range(3, 13)]
    tokens = [np.random.default_rng(i).integers(4, VOCABULARY, size=(1, 2 + i)) for i in range(len(sources))]

    def passed(number: int) -> torch.Tensor:
        source, own = sources[number % len(sources)], tokens[number % len(sources)]
        return model.step(model.start(model.encode(source), own[:, :1]), own)

    alone = [passed(number) for number in range(len(sources))]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(passed, range(80))):
            assert torch.equal(found, alone[number % len(sources)])


def test_a_start_symbol_that_is_no_output() -> None:
    """The module may embed more tokens than its head can choose."""
    module = module_of("bart", vocabulary=VOCABULARY + 1)
    module.lm_head = torch.nn.Linear(module.config.d_model, VOCABULARY, bias=False, dtype=module.dtype)
    module.final_logits_bias = module.final_logits_bias[:, :VOCABULARY]
    model = HuggingFaceModel(module, 30)
    state = model.start(model.encode(Source(np.array([[5, 6, 2]]), np.array([3]))), np.array([[VOCABULARY]]))
    assert model.step(state, np.array([[VOCABULARY]])).shape == (1, 1, module.config.d_model)


def test_logits_of_several_slots_at_once_and_after_truncation(module: Any) -> None:
    model, source = HuggingFaceModel(module, 64), source_of(module)
    random = np.random.default_rng(2)
    tokens = random.integers(4, VOCABULARY, size=(1, 12))
    expected = expected_logits(module, source, tokens)
    state = model.start(model.encode(source), tokens[:, :3])
    assert state.lengths.tolist() == [2]
    fed = 2
    for width in (1, 4, 2, 3):
        wrong = random.integers(4, VOCABULARY, size=(1, 5))
        model.step(state, wrong)
        state.truncate(np.array([fed]))
        found = logits(model, model.step(state, tokens[:, fed : fed + width]))
        assert np.abs(found - expected[:, fed : fed + width]).max() < 1e-9
        fed += width
        assert state.lengths.tolist() == [fed]


def test_keep_of_the_first_slots(module: Any) -> None:
    model, source = HuggingFaceModel(module, 64), source_of(module)
    tokens = np.random.default_rng(3).integers(4, VOCABULARY, size=(1, 8))
    state = model.start(model.encode(source), tokens[:, :1])
    model.step(state, tokens[:, :6])
    state.keep(np.array([[0, 1, 2, -1]]))
    assert state.lengths.tolist() == [3]
    found = logits(model, model.step(state, tokens[:, 3:5]))
    assert np.abs(found - expected_logits(module, source, tokens)[:, 3:5]).max() < 1e-9
    with pytest.raises(ValueError, match=r"keeps the first slots .* got \[\[1\]\]. Trees"):
        state.keep(np.array([[1]]))


def test_a_selected_state_is_independent(module: Any) -> None:
    model, source = HuggingFaceModel(module, 64), source_of(module)
    tokens = np.random.default_rng(4).integers(4, VOCABULARY, size=(1, 6))
    state = model.start(model.encode(source), tokens[:, :1])
    model.step(state, tokens[:, :2])
    other = state.select(np.array([0]))
    model.step(other, tokens[:, 4:6])
    found = logits(model, model.step(state, tokens[:, 2:4]))
    assert np.abs(found - expected_logits(module, source, tokens)[:, 2:4]).max() < 1e-9


@pytest.mark.parametrize(
    "name", ["greedy", "jacobi", "jacobi:ratio=0,extra=2", "gauss_seidel:block=4", "hybrid", "beam:size=1"]
)
@pytest.mark.parametrize("min_length", [0, 6])
def test_tokens_equal_generate(module: Any, name: str, min_length: int) -> None:
    model = HuggingFaceModel(module, 64)
    lengths = set()
    for seed in range(3):
        source = source_of(module, length=4 + seed, seed=seed)
        with torch.inference_mode():
            expected = module.generate(
                input_ids=torch.from_numpy(source.ids), num_beams=1, do_sample=False, max_length=LIMIT + 1,
                min_length=min_length + 1 if min_length else 0, forced_eos_token_id=None,
            )[0, 1:].tolist()  # fmt: skip
        constraints = constraints_of(module, min_length=min_length)
        (found,) = drain(decoder(name).iterate(model, Exact.of(model), source, constraints))
        assert list(found.tokens) == expected
        lengths.add((len(expected), tuple(expected[:2])))
    assert len(lengths) > 1, "the model answers every source alike, so this shows little"


def test_batches_are_decoded_row_by_row(module: Any) -> None:
    model = HuggingFaceModel(module, 64)
    one, two = source_of(module, 5, 1), source_of(module, 8, 2)
    ids = np.zeros((2, 8), np.int64)
    ids[0, :5], ids[1] = one.ids[0], two.ids[0]
    both, rules = Source(ids, np.array([5, 8])), constraints_of(module)
    for name in ("greedy", "jacobi", "beam:size=1"):
        together = drain(decoder(name).iterate(model, Exact.of(model), both, rules))
        alone = [drain(decoder(name).iterate(model, Exact.of(model), s, rules))[0] for s in (one, two)]
        assert [h.tokens for h in together] == [h.tokens for h in alone]


def test_refusals(module: Any) -> None:
    model, source = HuggingFaceModel(module, 12), source_of(module)
    with pytest.raises(ValueError, match="row by row: got a batch of 2. Give one sentence at a time"):
        model.encode(Source(np.ones((2, 3), np.int64), np.array([3, 3])))
    with pytest.raises(ValueError, match="source is too long: got 13 tokens, this model allows 12. Split"):
        model.encode(source_of(module, 13))
    state = model.start(model.encode(source), np.array([[0]]))
    with pytest.raises(ValueError, match="without candidate trees and ragged rows. Use a Marian"):
        model.step(state, np.array([[4]]), visible=np.ones((1, 1, 1), bool))
    with pytest.raises(ValueError, match="without candidate trees and ragged rows. Use a Marian"):
        model.step(state, np.array([[4, -1]]))
    with pytest.raises(ValueError, match="target is too long: this pass needs 13 slots, the state holds 12. Lower"):
        model.step(state, np.full((1, 13), 4))
    with pytest.raises(ValueError, match=r"truncate needs lengths from 0 to \[0\], got \[3\]"):
        state.truncate(np.array([3]))
    with pytest.raises(ValueError, match="row by row: got a choice of 4 rows. Beam search with size > 1 needs"):
        state.select(np.zeros(4, int))
    with pytest.raises(
        ValueError, match="beam of size 4 needs a model that runs several rows at once; .* Use beam:size=1"
    ):
        rules = constraints_of(module, max_length=6, min_length=3)
        drain(decoder("beam:size=4").iterate(model, Exact.of(model), source, rules))


# ------------------------------------------------------------------------------------------------------- from a folder


@pytest.fixture(scope="module")
def umt5_folder(tmp_path_factory: pytest.TempPathFactory, own_pieces: Path) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-umt5"
    tokenizer = fakes.t5_tokenizer(own_pieces)
    module = module_of("umt5", vocabulary=len(tokenizer))
    module.generation_config.max_length = LIMIT + 1
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tasks = {"translation_en_to_de": {"prefix": "translate English to German: "}}
    fakes.change_json(folder / "config.json", task_specific_params=tasks)
    return folder


def test_a_folder_is_translated_as_transformers_does(umt5_folder: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    module = AutoModelForSeq2SeqLM.from_pretrained(umt5_folder, dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(umt5_folder)
    model = load(str(umt5_folder), device="cpu", dtype="float64")
    assert model.engine == "huggingface" and model.directions == (("en", "de"),)
    for text in fakes.own_sentences()["en"][:4]:
        inputs = tokenizer(f"translate English to German: {text}", return_tensors="pt")
        expected = module.generate(**inputs, num_beams=1, do_sample=False)[0, 1:]
        for name in ("greedy", "jacobi", "gauss_seidel:block=3"):
            result = translate(model, text, decoder=name, verify=True)
            assert result.tokens == tuple(expected.tolist())
            assert result.text == tokenizer.decode(expected, skip_special_tokens=True).strip()
            assert result.trace.greedy is not None and result.trace.greedy["identical"]
    session = Session.of(model, "en", "de")
    assert [h.tokens for h in session.decode(["The door is open.", "", "A window."])][1] == ()


def test_it_gets_a_draft_head_row_by_row(umt5_folder: Path, tmp_path: Path) -> None:
    from fastdecode_lib.training.draft_heads import HeadRecipe, make_head

    model = load(str(umt5_folder), device="cpu")
    assert "ragged" not in model.network.supports
    texts = fakes.own_sentences()["en"][:12]
    recipe = HeadRecipe(name="tiny", updates=2, evaluate_every=1, tokens_per_update=60, held_out=2, vocabulary=200)
    head = make_head([Session.of(model, "en", "de", "greedy")], [texts], recipe, folder=tmp_path / "build")
    assert list(head.vocabularies) == ["de"] and head.shape.source == 16
    head.save(tmp_path / "head.safetensors")
    for text in texts[:3]:
        window = translate(model, text, decoder=f"window:width=3,draft=head,head={tmp_path / 'head.safetensors'}")
        assert window.tokens == translate(model, text, decoder="greedy").tokens


def break_weights(folder: Path, target: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


NAME = "decoder.block.1.layer.0.SelfAttention.q.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(NAME), rf"do not fit its config.json: missing keys {NAME}. Save the whole model"),
        (lambda tensors: tensors.update(extra=torch.ones(2)), "do not fit its config.json: unexpected keys extra. Save"),
        (lambda tensors: tensors.update({NAME: torch.ones(2, 2)}), "(?s)could not load .*umt5.*Check that it is a"),
        (lambda tensors: tensors[NAME].view(-1)[:1].fill_(torch.nan), rf"'{NAME}' holds values that are not finite"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(
    umt5_folder: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], None], message: str
) -> None:
    folder = break_weights(umt5_folder, tmp_path / "umt5", change)
    with pytest.raises(CheckpointError, match=message):
        load(str(folder), device="cpu")


def test_cut_short_weights(umt5_folder: Path, tmp_path: Path) -> None:
    folder = break_weights(umt5_folder, tmp_path / "umt5", lambda tensors: None)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(CheckpointError, match="could not load|not a readable safetensors"):
        load(str(folder), device="cpu")


def test_an_unknown_family(umt5_folder: Path, tmp_path: Path) -> None:
    folder = break_weights(umt5_folder, tmp_path / "odd", lambda tensors: None)
    fakes.change_json(folder / "config.json", model_type="no_such_model", architectures=["Nothing"])
    with pytest.raises(CheckpointError, match=r"(?s)could not load '.*odd' \(no_such_model\).*Check that it is a"):
        load(str(folder), device="cpu")
    fakes.change_json(folder / "config.json", model_type="bert")
    with pytest.raises(CheckpointError, match=r"(?s)\(bert\): Unrecognized config.* Check that it is a") as refused:
        load(str(folder), device="cpu")
    assert len(str(refused.value)) < 500, "the models that transformers knows are not listed"
