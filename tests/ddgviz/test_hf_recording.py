"""Recordings of transformers' own decoding: the same tokens as without, and as many passes as the forward was called."""

from typing import Any

import pytest

import ddgviz
from ddgviz.trace import read

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
SIZES = {"vocab_size": 40, "max_position_embeddings": 128}


def decoder_only(seed: int = 0, layers: int = 2) -> Any:
    """A tiny model that repeats itself, as tiny models do: drafts copied from its text are often right."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": layers}
    config = transformers.LlamaConfig(**SIZES, **shape, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return transformers.LlamaForCausalLM(config).eval()


def encoder_decoder(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    heads = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    layers = {f"{side}_layers": 2 for side in ("encoder", "decoder")}
    widths = {f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")}
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    return transformers.MarianMTModel(
        transformers.MarianConfig(**SIZES, **heads, **layers, **widths, d_model=32, **ids)
    ).eval()


def plain_loop(model: Any, input_ids: Any, **options: Any) -> Any:
    """A `custom_generate` that drafts the last token again, and caches nothing."""
    ids = options.pop("decoder_input_ids", input_ids)
    known = {
        key: options[key]
        for key in ("encoder_outputs", "attention_mask")
        if key in options and model.config.is_encoder_decoder
    }
    name = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    for _ in range(9):
        drafted = torch.cat([ids, ids[:, -1:]], -1)
        best = model(**{name: drafted}, **known, use_cache=False).logits[:, -2:].argmax(-1)
        right = bool(best[0, 0] == drafted[0, -1])
        ids = torch.cat([ids, best[:, : 1 + right]], -1)
    return ids


PROMPT = [[1, 7, 9, 11, 7, 9, 11, 7, 9]]
WAYS: dict[str, Any] = {
    "greedy": lambda: {},
    "prompt lookup": lambda: {"prompt_lookup_num_tokens": 3},
    "assisted": lambda: {"assistant_model": decoder_only(layers=1)},
    "itself as assistant": lambda: {"assistant_model": decoder_only()},
    "sampling": lambda: {"do_sample": True},
    "sampled prompt lookup": lambda: {"do_sample": True, "prompt_lookup_num_tokens": 3},
}


@pytest.mark.parametrize("way", WAYS)
def test_decoder_only_models(way: str) -> None:
    model, inputs = decoder_only(), torch.tensor(PROMPT)
    options = {"max_new_tokens": 24, **WAYS[way]()}
    torch.manual_seed(5)
    alone = model.generate(inputs, **options)
    calls: list[int] = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    recording = ddgviz.record(model)
    torch.manual_seed(5)
    assert torch.equal(recording.generate(inputs, **options), alone)
    hook.remove()
    assert not model._forward_hooks and not model._forward_pre_hooks
    drawn = read(recording)
    assert drawn.rows == len(calls) and list(drawn.tokens) == alone[0, len(PROMPT[0]) :].tolist()
    assert drawn.complete and len(drawn.settled) == len(drawn.tokens)
    if way == "itself as assistant":
        assert drawn.rows < len(drawn.tokens), "its drafts are right"
    if way in ("greedy", "sampling"):
        assert drawn.rows == len(drawn.tokens)


@pytest.mark.parametrize("way", ["greedy", "prompt lookup"])
def test_encoder_decoders(way: str) -> None:
    model, inputs = encoder_decoder(), torch.tensor(PROMPT)
    options = {"max_new_tokens": 20, "num_beams": 1, **WAYS[way]()}
    alone = model.generate(inputs, **options)
    recording = ddgviz.record(model)
    assert torch.equal(recording.generate(input_ids=inputs, **options), alone)
    drawn = read(recording)
    assert list(drawn.tokens) == alone[0, 1:].tolist()
    assert drawn.header["settings"]["decoder"] == ("greedy" if way == "greedy" else "prompt_lookup:tokens=3")
    cells = [cell for row in range(drawn.rows) for cell in drawn.cells(row) if cell.kind == "new"]
    assert all(cell.probability is not None and 0 < cell.probability <= 1 for cell in cells)


@pytest.mark.parametrize("make", [decoder_only, encoder_decoder])
def test_any_custom_generate(make: Any) -> None:
    model, inputs = make(), torch.tensor(PROMPT)
    alone = model.generate(inputs, custom_generate=plain_loop, num_beams=1)
    recording = ddgviz.record(model)
    assert torch.equal(recording.generate(inputs, custom_generate=plain_loop, num_beams=1), alone)
    drawn = read(recording)
    assert drawn.rows == 9 and list(drawn.tokens) == alone[0, -len(drawn.tokens) :].tolist()
    assert "custom" in ddgviz.svg(recording)


def test_what_cannot_be_followed_is_refused_and_leaves_no_hook() -> None:
    model = decoder_only()
    recording = ddgviz.record(model)
    with pytest.raises(ValueError, match=r"one sequence, got '2 sequences in one pass'\. Generate one"):
        recording.generate(torch.tensor(PROMPT * 2), max_new_tokens=3)
    assert not model._forward_hooks and not model._forward_pre_hooks
    with pytest.raises(ValueError, match=r"once something was generated, got 'nothing'\. Call its generate"):
        ddgviz.show(recording)
    with pytest.raises(ValueError, match=r"a model of transformers that generates, got 'Linear'\. For a model"):
        ddgviz.record(torch.nn.Linear(1, 1))


def test_the_ends_given_to_generate_end_the_recording() -> None:
    """By an argument or by settings of the call; the module's own are for the rest."""
    model, prompt = decoder_only(), torch.tensor(PROMPT)
    end = model.generate(prompt, max_new_tokens=12)[0, len(PROMPT[0]) :].tolist()[4]
    config = transformers.GenerationConfig(max_new_tokens=12, eos_token_id=[end, 3], pad_token_id=0)
    for options, ends in (
        ({"eos_token_id": end, "max_new_tokens": 12}, [end]),
        ({"generation_config": config}, [end, 3]),
    ):
        recording = ddgviz.record(model)
        recording.generate(prompt, **options)
        assert recording.to_dict()["end"] == ends and recording.to_dict()["hypotheses"][0]["stop"] == "end"


def test_a_prompt_of_the_decoder_is_not_output() -> None:
    """`generate` puts the start symbol before a prompt that lacks it."""
    outputs = []
    for given in ([[5]], [[0, 5]]):
        recording = ddgviz.record(encoder_decoder())
        recording.generate(torch.tensor(PROMPT), decoder_input_ids=torch.tensor(given), max_new_tokens=5, num_beams=1)
        outputs.append(recording.to_dict()["hypotheses"][0]["tokens"])
    assert outputs[0] == outputs[1] and len(outputs[0]) == 5
