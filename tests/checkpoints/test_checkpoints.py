"""Checkpoints that cannot be used are refused before the first pass, in three parts: what, what was received, what to do."""

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import fakes
import pytest
import torch
from safetensors.torch import load_file, save_file

from fastdecode_lib import load, translate
from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.t5 import T5
from fastdecode_lib.checkpoints.transformer import FAMILIES, Architecture
from fastdecode_lib.checkpoints.transformers_private import WITHOUT_LIMIT
from fastdecode_lib.laws.cases import tiny_architecture


def refused(folder: Path | str, *parts: str, **options: str) -> str:
    """The message with which loading fails; it must hold all parts and stay on the subject."""
    with pytest.raises(CheckpointError) as caught:
        load(str(folder), **({"device": "cpu"} | options))
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    return message


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_good_checkpoint_loads_in_every_precision(marian_folder: Path) -> None:
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        model = load(str(marian_folder), device="cpu", dtype=dtype, engine="torch")
        assert model.network.outputs[0].weight.dtype == getattr(torch, dtype)
        assert (model.dtype, model.device, model.engine) == (dtype, "cpu", "torch")
    for precision in ("float32", "int16", "int8"):
        model = load(str(marian_folder), device="cpu", precision=precision)
        assert model.network.outputs[0].weight.precision == precision
        assert (model.dtype, model.device, model.engine) == (precision, "cpu", "compiled")


def test_the_bundled_model_is_found_by_name() -> None:
    assert "tatoeba-small" in bundled()
    assert find_checkpoint("tatoeba-small").folder == bundled()["tatoeba-small"]


# ------------------------------------------------------------------------------------------------------------- names


def test_unknown_model_names_the_nearest_bundled_one() -> None:
    refused("tatoeba-smal", "Unknown model", "'tatoeba-smal'", "Did you mean 'tatoeba-small'?")
    refused(
        "qqq", "Unknown model", "'qqq'", "Bundled: bidirectional, novels-small, sharp-s4, single-l2r, tatoeba-small"
    )


def test_a_file_is_no_checkpoint(marian_folder: Path) -> None:
    file = marian_folder / "config.json"
    refused(file, "A checkpoint is a folder", str(file), "Give the folder that holds it")


def test_hub_id_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*_: object, **__: object) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    refused("someone/some-model", "could not be fetched", "'someone/some-model'", "Check the name and the network")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    refused("someone/some-model", "not in the cache", "HF_HUB_OFFLINE keeps from the network. Unset it")


def test_a_hub_model_with_safetensors_is_never_asked_for_pickles(
    monkeypatch: pytest.MonkeyPatch, marian_folder: Path
) -> None:
    import huggingface_hub

    asked: list[str] = []

    def download(name: str, revision: None, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(marian_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert find_checkpoint("someone/some-model").family == "marian"
    assert asked and not any(pattern.endswith((".bin", ".pt", ".pkl", "*", ".py")) for pattern in asked)


# ------------------------------------------------------------------------------------------------------------ config


def test_config_missing(broken_marian: Path) -> None:
    (broken_marian / "config.json").unlink()
    refused(broken_marian, "no config.json", str(broken_marian), "Give a Hugging Face model directory")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "vocab.json", "fastdecode.json"])
def test_json_cut_short(broken_marian: Path, file: str) -> None:
    text = (broken_marian / file).read_text(encoding="utf-8")
    (broken_marian / file).write_text(text[: len(text) // 2], encoding="utf-8")
    refused(broken_marian, file, "not readable JSON", "It may be cut short. Copy it again")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "vocab.json", "fastdecode.json"])
def test_json_that_is_no_object(broken_marian: Path, file: str) -> None:
    (broken_marian / file).write_text("[1, 2]", encoding="utf-8")
    refused(broken_marian, file, "should hold a JSON object, got list", "Copy it again")


def test_config_not_utf8(broken_marian: Path) -> None:
    (broken_marian / "config.json").write_bytes(b'{"model_type": "\xff"}')
    refused(broken_marian, "config.json", "not readable JSON")


@pytest.mark.parametrize("key", ["d_model", "encoder_layers", "max_position_embeddings", "pad_token_id", "vocab_size"])
def test_config_lacks_a_setting(broken_marian: Path, key: str) -> None:
    fakes.change_json(broken_marian / "config.json", **{key: None})
    refused(broken_marian, "lacks the setting", repr(key), "save_pretrained")


@pytest.mark.parametrize(
    ("key", "value"),
    [("d_model", "16"), ("d_model", 0), ("encoder_attention_heads", 0), ("decoder_layers", -1), ("vocab_size", 3.5)],
)
def test_config_with_impossible_sizes(broken_marian: Path, key: str, value: object) -> None:
    fakes.change_json(broken_marian / "config.json", **{key: value})
    refused(broken_marian, key, "must be a whole number from 1 on", f"got {value!r}", "Copy it again")


@pytest.mark.parametrize(("key", "value"), [("pad_token_id", "2"), ("pad_token_id", -1), ("decoder_vocab_size", 2.5)])
def test_config_with_impossible_ids(broken_marian: Path, key: str, value: object) -> None:
    fakes.change_json(broken_marian / "config.json", **{key: value})
    refused(broken_marian, key, "must be a whole number from", f"got {value!r}", "Copy it again")


def test_heads_that_do_not_divide_the_width(broken_marian: Path) -> None:
    fakes.change_json(broken_marian / "config.json", decoder_attention_heads=3)
    refused(broken_marian, "inconsistent", "d_model=16", "decoder_attention_heads=3", "belongs to these weights")


def test_unknown_activation(broken_marian: Path) -> None:
    fakes.change_json(broken_marian / "config.json", activation_function="snake")
    refused(broken_marian, "Unknown activation", "'snake'", "Supported are relu")


def test_decoder_only_model(broken_marian: Path) -> None:
    fakes.write_json(broken_marian / "config.json", {"model_type": "gpt2", "vocab_size": 10})
    refused(broken_marian, "is a gpt2 model", "no encoder-decoder", "Give a translation model")


# ----------------------------------------------------------------------------------------------------------- weights


def test_missing_tensor(broken_marian: Path) -> None:
    name = "model.decoder.layers.1.fc1.weight"
    change_tensors(broken_marian, lambda tensors: tensors.pop(name))
    refused(broken_marian, "lacks the tensor", name, "(24, 16)", "save the whole model again")


def test_missing_embedding(broken_marian: Path) -> None:
    change_tensors(broken_marian, lambda tensors: tensors.pop("model.shared.weight"))
    refused(broken_marian, "lacks the tensor", "embed_tokens.weight")


def test_extra_tensor(broken_marian: Path) -> None:
    change_tensors(broken_marian, lambda tensors: tensors.update({"model.encoder.layers.7.fc1.bias": torch.ones(3)}))
    refused(broken_marian, "does not have", "model.encoder.layers.7.fc1.bias", "belongs to these weights")


def test_misshaped_tensor(broken_marian: Path) -> None:
    name = "model.encoder.layers.0.fc2.bias"
    change_tensors(broken_marian, lambda tensors: tensors.update({name: torch.ones(5)}))
    refused(broken_marian, name, "shape (5,)", "asks for (16,)", "belongs to these weights")


def test_misshaped_optional_tensor(broken_marian: Path) -> None:
    change_tensors(broken_marian, lambda tensors: tensors.update({"final_logits_bias": torch.ones(1, 2)}))
    refused(broken_marian, "final_logits_bias", "shape (1, 2)")


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (
            torch.int8,
            "type int8, but weights must be floating point. Quantised checkpoints are not read; give the original",
        ),
        (torch.int64, "type int64, but weights must be floating point"),
        (torch.float8_e4m3fn, "type F8_E4M3, which numpy does not have. Save it as float32"),
    ],
)
def test_tensor_of_the_wrong_type(broken_marian: Path, dtype: torch.dtype, said: str) -> None:
    name = "model.shared.weight"
    change_tensors(broken_marian, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
    refused(broken_marian, name, said)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["model.decoder.layers.0.fc1.weight", "final_logits_bias", "model.shared.weight"])
def test_values_that_are_not_finite(broken_marian: Path, name: str, value: float) -> None:
    change_tensors(broken_marian, lambda tensors: tensors[name].view(-1)[-1:].fill_(value))
    refused(broken_marian, name, "not finite", "use an earlier one")


def test_an_optional_tensor_may_have_another_name(broken_marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family may store what a checkpoint may lack under a name of its own: it is read, and is none too many."""
    vocabulary = load(str(broken_marian), device="cpu").network.outputs[0].vocabulary
    bias = torch.arange(vocabulary, dtype=torch.float32)[None]

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        tensors.pop("final_logits_bias", None)
        tensors["another.bias"] = bias

    change_tensors(broken_marian, rename)
    refused(broken_marian, "another.bias")
    named = Architecture.stored_as
    own = {"final_logits_bias": ("another.bias",)}
    monkeypatch.setattr(Architecture, "stored_as", lambda self, name: own.get(name) or named(self, name))
    found = load(str(broken_marian), device="cpu").checkpoint.arrays()["final_logits_bias"]
    assert (found == bias[0].numpy()).all()


def test_weights_stored_in_half_precision(broken_marian: Path) -> None:
    """They are computed in float32 unless asked otherwise; where float16 overflows, it says so."""
    stored = {name: tensor.clone() for name, tensor in load_file(broken_marian / "model.safetensors").items()}
    large = {name: tensor * (3e4 if ".fc" in name else 1) for name, tensor in stored.items()}
    half = {name: tensor.clamp(-6e4, 6e4).half() for name, tensor in large.items()}

    def tokens(decoder: str = "greedy", projection: str = "exact", **options: str) -> tuple[int, ...]:
        model = load(str(broken_marian), device="cpu", **options)
        chosen = {"decoder": decoder, "projection": projection}
        return translate(model, "The bus is late.", source="en", target="de", observe=False, **chosen).tokens

    found = set()
    for tensors in (half, {name: tensor.float() for name, tensor in half.items()}):
        save_file(tensors, broken_marian / "model.safetensors")
        found |= {tokens(), tokens(engine="torch"), tokens(dtype="float64")}
    assert len(found) == 1 and len(set(*found)) > 1
    save_file(half, broken_marian / "model.safetensors")
    for decoder in ("greedy", "gauss_seidel:block=3", "beam:size=4"):
        with pytest.raises(
            ValueError, match=r"must be numbers: got NaN at \d of \d pos.* Load it with dtype='float32'"
        ):
            tokens(decoder, dtype="float16")
    huge = {name: tensor * (1e25 if ".fc" in name else 1) for name, tensor in stored.items()}
    save_file(huge, broken_marian / "model.safetensors")
    for projection, decoder in product(("exact", "quantised"), ("greedy", "window:width=3", "beam:size=4")):
        with pytest.raises(
            ValueError, match=r"must be numbers: got hidden vectors with NaN or infinity at \d of \d positions"
        ):
            tokens(decoder, projection)
    save_file(half, broken_marian / "model.safetensors")
    change_tensors(broken_marian, lambda tensors: tensors["model.shared.weight"][5].mul_(1e9))
    refused(broken_marian, "model.shared.weight", "not finite", "use an earlier one")


def test_cut_short_weights(broken_marian: Path) -> None:
    file = broken_marian / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    refused(broken_marian, "model.safetensors is not a readable safetensors file", "Copy it again")
    file.write_bytes(b"")
    refused(broken_marian, "not a readable safetensors file")


def test_more_layers_than_there_are_tensors(broken_marian: Path) -> None:
    """Refused from the weights that there are, before a name is made for every tensor that there is not."""
    config = json.loads((broken_marian / "config.json").read_text())
    (broken_marian / "config.json").write_text(json.dumps(config | {"encoder_layers": 10**12}))
    refused(broken_marian, "asks for 1,000,000,000,00", "Check that config.json belongs to these weights")


def test_no_weights(broken_marian: Path) -> None:
    (broken_marian / "model.safetensors").unlink()
    refused(broken_marian, "lacks its weights", "model.safetensors", "Give a complete Hugging Face directory")


class _Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("family", ["marian", "umt5"])
@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_never_read(broken_marian: Path, tmp_path: Path, weights: str, family: str) -> None:
    marker = tmp_path / "ran"
    (broken_marian / "model.safetensors").unlink()
    (broken_marian / weights).write_bytes(pickle.dumps(_Trap(marker)))
    fakes.change_json(broken_marian / "config.json", model_type=family)
    said = (
        ("read as tensors alone", "Only tensors are read", "save_pretrained")
        if weights.endswith("bin")
        else ("lacks its weights",)
    )
    refused(broken_marian, *said)
    assert not marker.exists()
    pickle.loads((broken_marian / weights).read_bytes()).close()
    assert marker.exists(), "the trap itself must work, or this test shows nothing"


def test_pickles_beside_safetensors_are_ignored(broken_marian: Path, tmp_path: Path) -> None:
    (broken_marian / "pytorch_model.bin").write_bytes(pickle.dumps(_Trap(tmp_path / "ran")))
    load(str(broken_marian), device="cpu")
    assert not (tmp_path / "ran").exists()


def shard(folder: Path) -> Path:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, chosen in parts.items():
        save_file({name: tensors[name] for name in chosen}, folder / file)
    index = folder / "model.safetensors.index.json"
    fakes.write_json(index, {"weight_map": {name: file for file, chosen in parts.items() for name in chosen}})
    return index


def test_sharded_weights(broken_marian: Path, marian_folder: Path) -> None:
    shard(broken_marian)
    whole, parts = find_checkpoint(marian_folder).tensors(), find_checkpoint(broken_marian).tensors()
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_missing_shard(broken_marian: Path) -> None:
    shard(broken_marian)
    (broken_marian / "b.safetensors").unlink()
    refused(broken_marian, "lacks its weights", "b.safetensors")


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/hostname", "sub/inside.safetensors"])
def test_an_index_that_points_elsewhere(broken_marian: Path, marian_folder: Path, name: str) -> None:
    shutil.copyfile(marian_folder / "model.safetensors", broken_marian.parent / "outside.safetensors")
    index = shard(broken_marian)
    weights = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    fakes.write_json(index, {"weight_map": weights | {next(iter(weights)): name}})
    refused(broken_marian, "outside its folder", name, "Save the model again")


@pytest.mark.parametrize("content", [{}, {"weight_map": ["a"]}, {"weight_map": {"x": 3}}])
def test_an_index_that_says_nothing(broken_marian: Path, content: object) -> None:
    fakes.write_json(shard(broken_marian), content)
    refused(broken_marian, "model.safetensors.index.json", "does not say which file", "Copy it again")


def test_tied_embeddings_under_any_of_their_names(broken_marian: Path, marian_folder: Path) -> None:
    expected = find_checkpoint(marian_folder).tensors()

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors.pop("model.shared.weight")

    change_tensors(broken_marian, rename)
    found = find_checkpoint(broken_marian).tensors()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_loaded_model_does_not_take_the_fingerprint_of_later_weights(broken_marian: Path) -> None:
    model = load(str(broken_marian))
    weights = next(iter(model.checkpoint.weight_files()))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match="replaced after they were loaded. Load the model again"):
        _ = model.checkpoint.fingerprint
    assert load(str(broken_marian)).checkpoint.fingerprint


def test_fingerprint_follows_weights_and_settings(broken_marian: Path, marian_folder: Path) -> None:
    before = find_checkpoint(marian_folder).fingerprint
    assert find_checkpoint(broken_marian).fingerprint == before
    change_tensors(broken_marian, lambda tensors: tensors["final_logits_bias"].add_(1))
    changed = find_checkpoint(broken_marian).fingerprint
    assert changed != before
    fakes.change_json(broken_marian / "config.json", scale_embedding=False)
    assert find_checkpoint(broken_marian).fingerprint not in (before, changed)


# -------------------------------------------------------------------------------------------------------- vocabulary


def test_vocabulary_with_ids_beyond_the_weights(broken_marian: Path) -> None:
    size = json.loads((broken_marian / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    fakes.change_json(broken_marian / "vocab.json", surplus=size)
    refused(broken_marian, "vocabulary does not fit", f"{size}", f"0 to {size - 1}", "tokenizer saved with the model")


@pytest.mark.parametrize("value", [-1, "7", 1.5])
def test_vocabulary_with_ids_that_are_none(broken_marian: Path, value: object) -> None:
    fakes.change_json(broken_marian / "vocab.json", surplus=value)
    refused(broken_marian, "vocabulary does not fit", repr(value))


@pytest.mark.parametrize("token", ["</s>", "<unk>"])
def test_vocabulary_without_its_special_tokens(broken_marian: Path, token: str) -> None:
    fakes.change_json(broken_marian / "vocab.json", **{token: None})
    refused(broken_marian, "vocabulary lacks", token, "tokenizer saved with the model")


@pytest.mark.parametrize("file", ["source.spm", "target.spm", "vocab.json"])
def test_incomplete_tokenizer(broken_marian: Path, file: str) -> None:
    (broken_marian / file).unlink()
    refused(broken_marian, "tokenizer", "incomplete", f"{file} is missing", "Copy it again")


def test_damaged_sentencepiece_model(broken_marian: Path) -> None:
    (broken_marian / "source.spm").write_bytes(b"nothing")
    refused(broken_marian, "SentencePiece model", "unreadable", "Copy it again")


@pytest.mark.parametrize(
    "note", [{"tags": {"de": ">>xyz<<"}, "directions": [["en", "de"]]}, {"directions": [["en", "de"]]}, {"tags": {}}]
)
def test_language_note_that_does_not_fit(broken_marian: Path, note: object) -> None:
    fakes.write_json(broken_marian / "fastdecode.json", note)
    refused(broken_marian, "fastdecode.json", "does not fit", "Copy it again")


def test_huggingface_tokenizer_larger_than_the_weights(multilingual: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(multilingual("mbart50"), tmp_path / "mbart"))
    shape = Architecture.from_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    smaller = fakes.architecture("mbart", shape.vocabulary - 9, shape.padding)
    fakes.change_json(folder / "config.json", vocab_size=smaller.vocabulary)
    save_file(fakes.stored_tensors(smaller, 1), folder / "model.safetensors")
    refused(folder, "vocabulary does not fit", f"{smaller.vocabulary} rows", "tokenizer saved with the model")


@pytest.mark.parametrize("family", FAMILIES)
def test_an_architecture_is_what_its_config_says(family: str) -> None:
    if family in T5:
        shape = replace(tiny_architecture(family), max_positions=WITHOUT_LIMIT)
        another = replace(shape, decoder_layers=3, gated=True, activation="silu", epsilon=1e-3)
    else:
        shape = fakes.architecture(family, 30, 3)
        another = replace(shape, vocabulary=40, shared_embeddings=False)
    for other in (shape, another, replace(shape, tied_output=not shape.tied_output)):
        assert Architecture.from_config(other.config) == other


def test_no_tokenizer(multilingual: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(multilingual("mbart50") / name, folder / name)
    refused(folder, "tokenizer in", str(folder), "is missing", "Save tokenizer and model together")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    refused(folder, "tokenizer in", "could not be loaded", "Save tokenizer and model together")


# ---------------------------------------------------------------------------------------------------- settings of load


def test_unknown_dtype(marian_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"Unknown dtype: got 'float8'. Use one of float64, float32"):
        load(str(marian_folder), dtype="float8")


@pytest.mark.parametrize("device", ["gpu", "cpu:x", ""])
def test_unknown_device(marian_folder: Path, device: str) -> None:
    with pytest.raises(ValueError, match=f"Unknown device: got '{device}'. Use auto, cpu"):
        load(str(marian_folder), device=device)


def test_device_that_is_not_supported(marian_folder: Path) -> None:
    with pytest.raises(ValueError, match="Unsupported device: got 'meta'. Use auto, cpu"):
        load(str(marian_folder), device="meta")


def test_cuda_without_cuda(marian_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for device in ("cuda", "cuda:3"):
        with pytest.raises(ValueError, match=rf"No such CUDA device here: got device='{device}'. Use device='cpu'"):
            load(str(marian_folder), device=device)
    assert load(str(marian_folder), device="auto").device == "cpu"


@pytest.mark.parametrize(
    ("rule", "value", "named"),
    [
        ("repetition_penalty", 1.2, "repetition_penalty"),
        ("no_repeat_ngram_size", 3, "no_repeat_ngram_size"),
        ("suppress_tokens", [5], "suppress_tokens"),
        ("forced_decoder_ids", [[1, 5]], "forced_decoder_ids"),
        ("encoder_no_repeat_ngram_size", 2, "encoder_no_repeat_ngram_size"),
        ("begin_suppress_tokens", [5], "begin_suppress_tokens"),
        ("stop_strings", ["er"], "stop_strings"),
        ("watermarking_config", {"bias": 2.5}, "watermarking_config"),
        ("guidance_scale", 1.5, "guidance_scale"),
    ],
)
def test_generation_rules_that_are_not_applied(broken_marian: Path, rule: str, value: object, named: str) -> None:
    fakes.change_json(broken_marian / "generation_config.json", **{rule: value})
    model = load(str(broken_marian), device="cpu")
    with pytest.raises(ValueError, match=rf"does not apply: {named}=.*\. Remove them from generation_config.json"):
        model.constraints("de")


def test_an_empty_file_of_rules_is_a_file_of_rules(broken_marian: Path) -> None:
    """As transformers has it, which then finds no start symbol."""
    fakes.write_json(broken_marian / "generation_config.json", {})
    with pytest.raises(CheckpointError, match="needs decoder_start_token_id to be an id"):
        load(str(broken_marian), device="cpu").constraints("de")


def test_generation_rules_that_are_applied(broken_marian: Path) -> None:
    """As `generate` counts: lengths with the start symbol, new tokens without it."""
    change = fakes.change_json
    file = broken_marian / "generation_config.json"
    change(file, min_length=5, max_length=9)
    assert load(str(broken_marian), device="cpu").constraints().min_length == 4
    assert load(str(broken_marian), device="cpu").constraints().max_length == 8
    change(file, min_new_tokens=6, max_new_tokens=7, forced_bos_token_id=11)
    rules = load(str(broken_marian), device="cpu").constraints()
    assert (rules.min_length, rules.max_length, rules.prefix[1:]) == (5, 6, (11,))
    change(file, max_new_tokens=None, max_length=1, min_new_tokens=None, min_length=None, forced_bos_token_id=None)
    assert load(str(broken_marian), device="cpu").constraints().max_length == 1


@pytest.mark.parametrize("value", [[[5, 6]], [5], [[100_000]], "a"])
def test_bad_words_that_cannot_be_banned(broken_marian: Path, value: object) -> None:
    fakes.change_json(broken_marian / "generation_config.json", bad_words_ids=value)
    model = load(str(broken_marian), device="cpu")
    with pytest.raises(ValueError, match=r"needs bad_words_ids to be a list of lists of one id .*: got .* Correct"):
        model.constraints("de")


def test_unknown_limits_name_the_nearest(broken_marian: Path) -> None:
    model = load(str(broken_marian), device="cpu")
    with pytest.raises(ValueError, match=r"Unknown option of decoding: got 'max_len'. Did you mean 'max_length'\?"):
        model.constraints(max_len=3)
    with pytest.raises(ValueError, match="max_length must be a whole number, got '5'. Example: max_length=40"):
        model.constraints(max_length="5")


def test_harmless_generation_rules(broken_marian: Path) -> None:
    fakes.change_json(broken_marian / "generation_config.json", repetition_penalty=1.0, no_repeat_ngram_size=0)
    assert load(str(broken_marian), device="cpu").constraints("de").max_length == 23


@pytest.mark.parametrize(
    "rule",
    [{"no_repeat_ngram_size": 1}, {"encoder_no_repeat_ngram_size": 1}, {"token_healing": True}, {"guidance_scale": 0}],
)
def test_what_is_neutral_for_one_rule_is_not_for_another(broken_marian: Path, rule: dict[str, object]) -> None:
    fakes.change_json(broken_marian / "generation_config.json", **rule)
    with pytest.raises(CheckpointError, match=f"rules that fastdecode does not apply: {next(iter(rule))}="):
        load(str(broken_marian), device="cpu").constraints("de")


def test_the_end_is_not_banned_and_the_forced_one_is_written(broken_marian: Path) -> None:
    rules = load(str(broken_marian), device="cpu").constraints("de")
    (end,) = rules.end
    fakes.change_json(broken_marian / "generation_config.json", bad_words_ids=[[5], [end]])
    assert load(str(broken_marian), device="cpu").constraints("de").banned == (5,)
    fakes.change_json(broken_marian / "generation_config.json", eos_token_id=[6, 7, end], forced_eos_token_id=end)
    assert load(str(broken_marian), device="cpu").constraints("de").end == (end, 6, 7)
    fakes.change_json(broken_marian / "generation_config.json", forced_eos_token_id=5)
    with pytest.raises(CheckpointError, match=f"needs forced_eos_token_id to be one of the ends, 6, 7, {end}: got 5"):
        load(str(broken_marian), device="cpu").constraints("de")


@pytest.mark.parametrize("name", ["decoder_start_token_id", "eos_token_id", "pad_token_id"])
@pytest.mark.parametrize("value", [100_000, -2, "a"])
def test_ids_in_the_settings_that_the_vocabulary_lacks(broken_marian: Path, name: str, value: object) -> None:
    fakes.change_json(broken_marian / "generation_config.json", **{name: value})
    with pytest.raises(CheckpointError, match=rf"needs {name} to be an id from 0 to \d+: got {value!r}. Correct"):
        load(str(broken_marian), device="cpu").constraints("de")


def test_an_end_that_nobody_names(broken_marian: Path) -> None:
    for file in ("config.json", "generation_config.json"):
        fakes.change_json(broken_marian / file, eos_token_id=None)
    with pytest.raises(CheckpointError, match="needs eos_token_id to be an id"):
        load(str(broken_marian), device="cpu").constraints("de")


def test_a_path_that_is_not_there_is_not_taken_for_a_name() -> None:
    for name in ("build/train/nobody/best", "./nobody", "/nobody"):
        with pytest.raises(CheckpointError, match=rf"There is no folder '{name}'. Give the folder of a checkpoint"):
            find_checkpoint(name)
