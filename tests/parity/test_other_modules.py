"""Modules that are not as their class makes them, and families of all kinds: `generate`'s tokens, or a clear refusal."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fastdecode_lib import hf
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Source
from fastdecode_lib.laws.generate import END, FUNCTIONAL, PADDING, random_module
from fastdecode_lib.models.huggingface import HuggingFaceModel
from fastdecode_lib.models.transformer import Transformer

CUSTOM = (hf.window(width=5), hf.gauss_seidel(4), hf.jacobi())
DIFFERS = (
    "must give the logits of single steps: got .*(differs by .*at token|returns 2 rows for 4 tokens) .*transformers .*"
    "Decode it with generate"
)
ROWS = torch.tensor([[4, 5, 6, 7, END], [8, 9, 10, 11, END]])


def equal_generate(module: Any, custom: Any = CUSTOM, **inputs: Any) -> set[tuple[int, ...]]:
    """The outputs, which are `generate`'s own."""
    settings = {"max_new_tokens": 18, "num_beams": 1, "do_sample": False, "bad_words_ids": [[PADDING]]} | inputs
    if not {"input_ids", "pixel_values"} & settings.keys():
        settings["input_ids"] = ROWS
    expected = module.generate(**settings)
    for decoder in custom:
        assert torch.equal(module.generate(**settings, custom_generate=decoder), expected), decoder
    return set(map(tuple, expected.tolist()))


# ------------------------------------------------------------------------------------------- changed, and not noticed


class ScaledLinear(torch.nn.Linear):
    """As adapters are: a matrix of torch's with a forward of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 1.5 + 0.1


def scaled_linear(module: Any) -> None:
    layer = decoder_layers(module)[0]
    old = layer.fc1 if hasattr(layer, "fc1") else layer.layer[-1].DenseReluDense.wi
    new = ScaledLinear(old.in_features, old.out_features, bias=old.bias is not None).double()
    new.load_state_dict(old.state_dict())
    if hasattr(layer, "fc1"):
        layer.fc1 = new
    else:
        layer.layer[-1].DenseReluDense.wi = new


def decoder_layers(module: Any) -> Any:
    return module.model.decoder.layers if hasattr(module, "model") else module.decoder.block


def other_activation(module: Any) -> None:
    for layer in decoder_layers(module):
        if hasattr(layer, "activation_fn"):
            layer.activation_fn = torch.nn.Tanh()
        else:
            layer.layer[-1].DenseReluDense.act = torch.nn.Tanh()


def other_attention(module: Any) -> None:
    layer = decoder_layers(module)[1]
    attention = layer.self_attn if hasattr(layer, "self_attn") else layer.layer[0].SelfAttention
    kind = type(attention)

    class Louder(kind):  # type: ignore[misc, valid-type]
        def forward(self, *arguments: Any, **named: Any) -> Any:
            first, *rest = super().forward(*arguments, **named)
            return (first * 2, *rest)

    attention.__class__ = Louder


def other_norm(module: Any) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = 0.5
        elif hasattr(part, "variance_epsilon"):
            part.variance_epsilon = 0.5


def other_scale(module: Any) -> None:
    for part in module.modules():
        if hasattr(part, "embed_scale"):
            part.embed_scale = 3.0


def pre_hook(module: Any) -> None:
    decoder_layers(module)[0].register_forward_pre_hook(lambda part, inputs: (inputs[0] * 1.2, *inputs[1:]))


def hook(module: Any) -> None:
    module.get_output_embeddings().register_forward_hook(lambda part, inputs, output: output * -1)


def own_forward(module: Any) -> None:
    layer = decoder_layers(module)[0]
    inner = layer.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        found = inner(*arguments, **named)
        return (found[0] * 1.1, *found[1:]) if isinstance(found, tuple) else found * 1.1

    layer.forward = forward


def parametrized(module: Any) -> None:
    class Rounded(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return (weight * 2).round() / 2

    torch.nn.utils.parametrize.register_parametrization(module.get_output_embeddings(), "weight", Rounded())


def other_config(module: Any) -> None:
    module.config.scale_embedding = not module.config.scale_embedding


CHANGES = (
    *(scaled_linear, other_activation, other_attention, other_norm, other_scale),
    *(pre_hook, hook, own_forward, parametrized, other_config),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", ["marian", "mbart", "t5"])
def test_a_module_changed_in_place(kind: str, change: Callable[[Any], None]) -> None:
    """Its weights are not read past what was changed, before and after it was used."""
    if kind == "t5" and change in (other_scale, other_config):
        pytest.skip("T5 scales no embeddings")
    seen = set()
    for used_before in (False, True):
        module = random_module(kind, 3)
        before = equal_generate(module) if used_before else set()
        change(module)
        seen |= equal_generate(module) - before
        assert kind not in FUNCTIONAL or Transformer.of_module(module) is None
    assert seen or change is other_config, "the change does not show in the output"


def test_padding_in_the_output_of_a_changed_module() -> None:
    """M2M-100 counts positions by tokens that are no padding."""
    padded = 0
    for seed in range(6):
        module = random_module("m2m_100", seed)
        pre_hook(module)
        outputs = equal_generate(module, bad_words_ids=None, sequence_bias=[[[PADDING], 2.0]])
        padded += any(PADDING in row[1:-1] for row in outputs)
    assert padded > 2


def test_an_unchanged_module_runs_on_our_engine() -> None:
    for kind in FUNCTIONAL:
        module = random_module(kind, 0)
        for part in (module, copy.deepcopy(module), module.float()):
            assert Transformer.of_module(part) is not None
        state = torch.get_rng_state()
        assert private._differs_only_in_tensors(module) and torch.equal(torch.get_rng_state(), state)


def test_notes_of_a_module_end_with_a_change() -> None:
    module = random_module("marian", 0)
    layer = module.model.decoder.layers[0]
    for change in (
        lambda: layer.fc1.weight.neg_(),
        lambda: setattr(layer, "fc1", copy.deepcopy(layer.fc1)),
        lambda: setattr(layer.fc2, "weight", torch.nn.Parameter(layer.fc2.weight.clone())),
        lambda: setattr(layer.fc2.weight, "data", layer.fc2.weight.data.clone()),
        lambda: setattr(layer.final_layer_norm, "eps", 1e-3),
        lambda: setattr(module.config, "scale_embedding", False),
        lambda: layer.register_forward_hook(lambda *_: None),
    ):
        private.notes(module)["known"] = True
        assert private.notes(module) == {"known": True}
        with torch.no_grad():
            change()
        assert private.notes(module) == {}
    other = random_module("marian", 0)
    private.notes(other)["known"] = True
    reference = private.weakref.ref(other)
    del other
    assert reference() is None, "a module is kept by what is known of it"


@pytest.mark.parametrize("kind", ["global_forward_hook", "global_forward_pre_hook"])
def test_a_hook_of_all_modules_is_seen_after_first_use(kind: str) -> None:
    module = random_module("marian", 0)
    equal_generate(module)
    register = getattr(torch.nn.modules.module, f"register_module_{kind.removeprefix('global_')}")
    handle = register(
        lambda part, *given: given[-1] + 1 if isinstance(part, torch.nn.LayerNorm) and "pre" not in kind else None
    )
    try:
        assert not private.is_as_made(module)
    finally:
        handle.remove()
    assert private.is_as_made(module)


def test_dynamic_int8() -> None:
    module = random_module("marian", 1).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)
        with pytest.raises(
            ValueError, match="do not depend on what else is in a pass: got .*one scale.*Quantise weights"
        ):
            quantised.generate(input_ids=ROWS, max_new_tokens=4, num_beams=1, custom_generate=hf.window())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_says_where_rounding_decides(dtype: torch.dtype) -> None:
    """The same tokens, or a warning that names the margin; in float32 none where no scores are equal."""
    told = different = 0
    for seed in range(12):
        module = random_module("marian", seed)
        for tensor, warns in ((dtype, True), (torch.float32, False)):
            module = module.to(tensor)
            expected = module.generate(input_ids=ROWS, max_new_tokens=12, num_beams=1)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = module.generate(input_ids=ROWS, max_new_tokens=12, num_beams=1, custom_generate=hf.window(4))
            texts = [str(w.message) for w in caught if "within rounding, the closest" in str(w.message)]
            assert texts or torch.equal(expected, found)
            assert warns or not texts
            told += len(texts)
            different += not torch.equal(expected, found)
    assert told < 12 and (told or dtype is torch.float16) and different <= told


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_equal_scores_are_said_in_float32_and_not_in_float64(kind: str) -> None:
    """All tokens score alike, on the compiled kernels as through the module's own forward."""
    module = random_module(kind, 3).float()
    head = module.get_output_embeddings().weight.data
    head[:] = head[3]
    if hasattr(module, "final_logits_bias"):
        module.final_logits_bias.zero_()
    for dtype, told in ((torch.float32, True), (torch.float64, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module.to(dtype).generate(input_ids=ROWS, max_new_tokens=6, num_beams=1, custom_generate=hf.window(3))
        texts = [str(w.message) for w in caught if "within rounding" in str(w.message)]
        assert bool(texts) == told and all("In float32 passes" in text and "Use float64" in text for text in texts)


# ----------------------------------------------------------------------------------------------------------- families

IDS = {"pad_token_id": PADDING, "eos_token_id": END, "bos_token_id": 0, "decoder_start_token_id": END}
BART = {
    "vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 64,
    "init_std": 0.7, "forced_eos_token_id": None, **IDS,
}  # fmt: skip
T5 = {
    "vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2,
    "initializer_factor": 6.0, **IDS,
}  # fmt: skip
BERT = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 64, "initializer_range": 0.7, "pad_token_id": PADDING,
}  # fmt: skip


def of(name: str, settings: Mapping[str, Any], without: str = "", **more: Any) -> Callable[[], Any]:
    """Makes a module of a class's name without its ending."""

    def make() -> Any:
        model = name if name.endswith("Model") else f"{name}ForConditionalGeneration"
        config = getattr(transformers, f"{name.removesuffix('MTModel')}Config")
        return getattr(transformers, model)(config(**{k: v for k, v in settings.items() if k != without} | more))

    return make


def joined(encoder: Any, decoder: Any, kind: str) -> Any:
    config = getattr(transformers, f"{kind}Config").from_encoder_decoder_configs(encoder, decoder)
    for name, value in IDS.items():
        setattr(config, name, value)
    return getattr(transformers, f"{kind}Model")(config=config)


def bert_to_bert() -> Any:
    decoder = transformers.BertConfig(**BERT, is_decoder=True, add_cross_attention=True)
    return joined(transformers.BertConfig(**BERT), decoder, "EncoderDecoder")


def trocr() -> Any:
    names = ("vocab_size", "d_model", "decoder_layers", "decoder_attention_heads", "decoder_ffn_dim")
    decoder = transformers.TrOCRConfig(
        **{name: BART[name] for name in names}, init_std=0.7, max_position_embeddings=64, **IDS
    )
    encoder = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=8, patch_size=4,
        initializer_range=0.7,
    )  # fmt: skip
    return joined(encoder, decoder, "VisionEncoderDecoder")


LED = {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}
UNTIED = {"share_encoder_decoder_embeddings": False}
FAMILIES = {
    "marian": of("MarianMTModel", BART),
    "marian, two vocabularies": of("MarianMTModel", BART, **UNTIED, decoder_vocab_size=31),
    "marian, untied": of("MarianMTModel", BART, **UNTIED, decoder_vocab_size=40, tie_word_embeddings=False),
    "bart": of("Bart", BART),
    "pegasus": of("Pegasus", BART),
    "blenderbot": of("Blenderbot", BART),
    "mvp": of("Mvp", BART),
    "plbart": of("PLBart", BART),
    "bigbird_pegasus": of("BigBirdPegasus", BART, attention_type="original_full"),
    "pegasus_x": of("PegasusX", BART, block_size=4, num_global_tokens=2),
    "led": of("LED", BART, "max_position_embeddings", **LED),
    "nllb-moe": of("NllbMoe", BART, num_experts=3, encoder_sparse_step=1, decoder_sparse_step=1),
    "t5": of("T5", T5),
    "t5, gated": of("T5", T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mt5": of("MT5", T5),
    "umt5": of("UMT5", T5),
    "longt5": of("LongT5", T5, local_radius=4),
    "bert to bert": bert_to_bert,
    "trocr": trocr,
}


def randomised(module: Any) -> Any:
    """The module in float64, its bias drawn, too."""
    if hasattr(module, "final_logits_bias"):
        module.final_logits_bias.normal_()
    return module.double().eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_the_tokens_of_generate(name: str) -> None:
    torch.manual_seed(3)
    module, outputs = randomised(FAMILIES[name]()), set()
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        inputs = {"input_ids": torch.randint(4, 31, (1 + seed % 2, 8), generator=generator)}
        if name == "trocr":
            inputs = {"pixel_values": torch.randn(1 + seed % 2, 3, 8, 8, generator=generator, dtype=torch.float64)}
        outputs |= equal_generate(module, **inputs)
    assert len(outputs) > 1


def test_experts_with_little_room_get_a_token_at_a_time() -> None:
    torch.manual_seed(3)
    settings = {"num_experts": 3, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "expert_capacity": 1}
    module = randomised(of("SwitchTransformers", T5, **settings)())
    try:
        module.generate(input_ids=ROWS, max_new_tokens=2)
    except RuntimeError as error:
        pytest.skip(f"transformers itself: {error}")
    for seed in range(3):
        ids = torch.randint(4, 31, (2, 8), generator=torch.Generator().manual_seed(seed))
        equal_generate(module, input_ids=ids)


def fsmt() -> Any:
    torch.manual_seed(3)
    sizes = {"src_vocab_size": 40, "tgt_vocab_size": 40, "langs": ["en", "de"], "tie_word_embeddings": False}
    return randomised(of("FSMT", BART, "vocab_size", **sizes)())


def test_a_part_in_training_and_autocast_are_refused() -> None:
    module = random_module("marian", 0).float()
    arguments: dict[str, Any] = {
        "input_ids": ROWS,
        "max_new_tokens": 3,
        "num_beams": 1,
        "custom_generate": hf.window(3),
    }
    module.generate(**arguments)
    module.model.decoder.layers[0].train()
    with pytest.raises(ValueError, match=r"training mode.*Call model.eval\(\) first"):
        module.generate(**arguments)
    module.eval()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=r"got torch.autocast. Leave it out"):
        module.generate(**arguments)


def test_a_forward_that_takes_one_token_at_a_time_is_refused() -> None:
    config = transformers.ProphetNetConfig(
        vocab_size=40, hidden_size=16, num_encoder_layers=1, num_decoder_layers=1, num_encoder_attention_heads=2,
        num_decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, **IDS,
    )  # fmt: skip
    module = transformers.ProphetNetForConditionalGeneration(config).eval()
    with pytest.raises(
        ValueError, match=r"takes several tokens and a cache: got ProphetNet.*Decode it with generate alone"
    ):
        module.generate(input_ids=ROWS, max_new_tokens=4, num_beams=1, custom_generate=hf.window())
    model = HuggingFaceModel(module, 64)
    with pytest.raises(ValueError, match="takes several tokens and a cache: got ProphetNet"):
        model.start(model.encode(Source(ROWS[:1].numpy(), np.array([ROWS.shape[1]]))), np.array([[END]]))


def test_fsmt_is_refused() -> None:
    """Its forward lets the tokens of a pass see those behind them."""
    for custom in CUSTOM:
        with pytest.raises(ValueError, match=DIFFERS):
            fsmt().generate(input_ids=ROWS, max_new_tokens=9, num_beams=1, custom_generate=custom)
    with pytest.raises(ValueError, match="must end in a product.*got FSMT.*Embedding. Decode it with transformers"):
        HuggingFaceModel(fsmt(), 64)


# ---------------------------------------------------------------------------------------------- what keeps no promise


def forgetful(kind: str) -> Any:
    """The broken twin: its forward ignores what its cache holds."""
    module = random_module(kind, 2)
    own = type(module)

    class Forgetful(own):  # type: ignore[misc, valid-type]
        def forward(self, *arguments: Any, **named: Any) -> Any:
            return super().forward(*arguments, **named | {private.cache_argument(random_module(kind, 0)): None})

    module.__class__ = Forgetful
    return module


@pytest.mark.parametrize("kind", ["marian", "t5", "bart"])
def test_a_forward_that_ignores_its_cache_is_caught(kind: str) -> None:
    module = forgetful(kind)
    for custom in CUSTOM:
        with pytest.raises(ValueError, match=DIFFERS):
            module.generate(input_ids=ROWS, max_new_tokens=9, num_beams=1, custom_generate=custom)
    model = HuggingFaceModel(module, 40)
    memory = model.encode(Source(ROWS[:1].numpy(), np.array([5])))
    for _ in range(2):
        with pytest.raises(ValueError, match=DIFFERS):
            model.start(memory, np.array([[END]]))


def test_a_module_is_compared_once_and_again_when_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdecode_lib.models import huggingface

    compared: list[str] = []
    check = huggingface.check_passes
    monkeypatch.setattr(
        huggingface, "check_passes", lambda *all: (compared.append(type(all[0]).__name__), check(*all))[1]
    )
    module = random_module("marian", 0)
    for _ in range(3):
        equal_generate(module)
    assert compared == ["Transformer"]
    with torch.no_grad():
        module.model.decoder.layers[0].fc1.weight.neg_()
    equal_generate(module)
    assert compared == ["Transformer"] * 2
    other_activation(module)
    equal_generate(module)
    assert compared == ["Transformer"] * 2 + ["LogitsModel"]
    model = HuggingFaceModel(random_module("t5", 0), 40)
    memory = model.encode(Source(ROWS[:1].numpy(), np.array([5])))
    for _ in range(3):
        model.start(memory, np.array([[END]]))
    assert compared[3:] == ["HuggingFaceModel"]
    other_activation(model.module)
    model.start(memory, np.array([[END]]))
    assert compared[3:] == ["HuggingFaceModel"] * 2


def test_an_engine_that_differs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the structure of a module does not show."""
    from fastdecode_lib.models import transformer

    monkeypatch.setitem(transformer.ACTIVATIONS, "gelu", torch.tanh)
    module = random_module("marian", 0)
    assert Transformer.of_module(module) is not None
    with pytest.raises(ValueError, match="our engine differs by .* at token 1 .transformers .*Decode it with generate"):
        module.generate(input_ids=ROWS, max_new_tokens=9, num_beams=1, custom_generate=hf.window())


def test_unknown_arguments_are_refused() -> None:
    class Told(transformers.MarianMTModel):
        def forward(self, *arguments: Any, politeness: Any = None, **named: Any) -> Any:
            return super().forward(*arguments, **named)

        def prepare_inputs_for_generation(self, *arguments: Any, politeness: Any = None, **named: Any) -> Any:
            return super().prepare_inputs_for_generation(*arguments, **named) | {"politeness": politeness}

    module = random_module("marian", 0)
    module.__class__ = Told
    assert module.generate(input_ids=ROWS, max_new_tokens=4, politeness=torch.ones(2)).shape == (2, 5)
    with pytest.raises(
        ValueError, match="does not know: got politeness .transformers .*Leave them out, or leave custom"
    ):
        module.generate(input_ids=ROWS, max_new_tokens=4, politeness=torch.ones(2), custom_generate=hf.window())


def test_a_filled_cache_is_refused_by_every_name() -> None:
    module = random_module("marian", 1)
    for part in ("self_attention_cache", "cross_attention_cache"):
        for name in {private.cache_argument(module), "past_key_values"}:
            cache = private.empty_cache()
            getattr(cache, part).update(torch.zeros(2, 2, 3, 4), torch.zeros(2, 2, 3, 4), 0)
            with pytest.raises(ValueError, match="an empty cache: got one with 3 positions. Give decoder_input_ids"):
                module.generate(input_ids=ROWS, max_new_tokens=4, custom_generate=hf.window(), **{name: cache})


def test_only_generate_calls() -> None:
    module = random_module("marian", 1)
    with pytest.raises(ValueError, match="called by `generate` alone: got a call from test_only_generate_calls"):
        hf.window()(module, torch.tensor([[END]]), [], None, module.generation_config)


def test_the_version_at_hand_is_named() -> None:
    assert private.versions().startswith(f"transformers {transformers.__version__}; tested with {private.TESTED[0]}")
