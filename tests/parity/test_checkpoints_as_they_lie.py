"""Checkpoints as people's tools leave them: settings, lengths and weights are taken as transformers takes them, or refused."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_huggingface_adapter import module_of
from test_other_modules import FAMILIES, randomised
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

from fastdecode_lib import load, translate
from fastdecode_lib.checkpoints.generation import constraints_of
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.transformers_private import most_positions
from fastdecode_lib.core import Source, drain
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.models.huggingface import HuggingFaceModel
from fastdecode_lib.projections.exact_torch import Exact

TEXT = "The children are playing in the garden."
RULES = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id", "bad_words_ids", "max_length")

# ------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ({"max_length": 9}, None),
        ({"max_length": 9}, RULES[:5]),
        ({"max_length": 9}, RULES),
        ({}, None),
        ({}, RULES[:5]),
        ({"no_repeat_ngram_size": 2, "length_penalty": 3.0}, RULES),
        ({"bad_words_ids": [[221]]}, RULES[:3]),
        ({"bad_words_ids": [[221]]}, None),
        ({"forced_eos_token_id": None, "max_length": 12}, None),
    ],
)
@pytest.mark.parametrize("beams", [1, 4])
def test_rules_of_one_file_or_the_other(
    broken_marian: Path, config: dict[str, Any], left: tuple[str, ...] | None, beams: int
) -> None:
    """What config.json says of generation counts where there is no generation_config.json, and nowhere else."""
    fakes.change_json(broken_marian / "config.json", **config)
    file = broken_marian / "generation_config.json"
    if left is None:
        file.unlink()
    else:
        rules = json.loads(file.read_text())
        fakes.write_json(file, {name: rules[name] for name in left})
    module = AutoModelForSeq2SeqLM.from_pretrained(broken_marian, dtype=torch.float64)
    inputs = AutoTokenizer.from_pretrained(broken_marian)([f">>deu<< {TEXT}"], return_tensors="pt")
    expected = module.generate(**inputs, num_beams=beams)[0].tolist()[1:]
    model = load(str(broken_marian), dtype="float64", device="cpu")
    decoder = "greedy" if beams == 1 else f"beam:size={beams}"
    assert list(translate(model, TEXT, source="en", target="de", decoder=decoder).tokens) == expected


@pytest.mark.parametrize(("penalty", "stopping"), [(0.2, None), (2.0, True), (None, True), (-1.0, False)])
def test_beams_as_the_settings_ask(broken_marian: Path, penalty: float | None, stopping: bool | None) -> None:
    asked = {"length_penalty": penalty, "early_stopping": stopping, "forced_eos_token_id": None}
    fakes.change_json(broken_marian / "generation_config.json", **asked)
    module = AutoModelForSeq2SeqLM.from_pretrained(broken_marian, dtype=torch.float64)
    tokenizer, model = AutoTokenizer.from_pretrained(broken_marian), load(str(broken_marian), dtype="float64")
    for text in fakes.own_sentences()["en"][:6]:
        inputs = tokenizer([f">>deu<< {text}"], return_tensors="pt")
        if inputs["input_ids"].shape[1] <= fakes.POSITIONS:
            expected = module.generate(**inputs, num_beams=4)[0].tolist()[1:]
            assert list(translate(model, text, source="en", target="de", decoder="beam:size=4").tokens) == expected
    said = translate(
        model, TEXT, source="en", target="de", decoder="beam:size=4,length_penalty=1.0,early_stopping=false"
    )
    assert (
        said.tokens == translate(model, TEXT, source="en", target="de", decoder="beam:size=4,length_penalty=1").tokens
        or stopping
    )


@pytest.mark.parametrize(("least", "bias"), [(None, 3.0), (9, 3.0), (None, 30.0)])
def test_beams_over_the_tokens_that_may_be_chosen(broken_marian: Path, least: int | None, bias: float) -> None:
    """``renormalize_logits``, as Marian's settings on the hub have it."""
    asked = {"renormalize_logits": True, "min_length": least, "forced_eos_token_id": None}
    padding = json.loads((broken_marian / "config.json").read_text())["pad_token_id"]
    tensors = load_file(broken_marian / "model.safetensors")
    tensors["final_logits_bias"] = torch.zeros(1, padding + 1)
    tensors["final_logits_bias"][0, padding] = bias  # banned, and often probable
    save_file(tensors, broken_marian / "model.safetensors", metadata={"format": "pt"})
    fakes.change_json(broken_marian / "generation_config.json", **asked)
    module = AutoModelForSeq2SeqLM.from_pretrained(broken_marian, dtype=torch.float64)
    tokenizer, model = AutoTokenizer.from_pretrained(broken_marian), load(str(broken_marian), dtype="float64")
    for text in (text for text in fakes.own_sentences()["en"][:12] if len(text) < 50):
        inputs = tokenizer([f">>deu<< {text}"], return_tensors="pt")
        found = module.generate(**inputs, num_beams=4, return_dict_in_generate=True, output_scores=True)
        trace = translate(model, text, source="en", target="de", decoder="beam:size=4").trace
        expected = found.sequences[0].tolist()[1:]
        assert list(trace.hypotheses[0].tokens) == expected
        assert trace.hypotheses[0].score == pytest.approx(float(found.sequences_scores[0]), abs=1e-6)
        plain = translate(model, text, source="en", target="de", decoder="beam:size=4,renormalised=false")
        assert abs(plain.trace.hypotheses[0].score - trace.hypotheses[0].score) > 1e-3


def test_beams_that_never_stop_early_are_refused(broken_marian: Path) -> None:
    fakes.change_json(broken_marian / "generation_config.json", early_stopping="never")
    model = load(str(broken_marian), device="cpu")
    with pytest.raises(
        ValueError, match=r"early_stopping='never'.*Say another, as in beam:size=4,early_stopping=false"
    ):
        translate(model, TEXT, source="en", target="de", decoder="beam:size=4")
    assert translate(model, TEXT, source="en", target="de", decoder="beam:size=4,early_stopping=false").tokens
    assert translate(model, TEXT, source="en", target="de").tokens


# ---------------------------------------------------------------------------------------------------------- lengths


def saved(module: Any, folder: Path, own_pieces: Path, **rules: Any) -> Path:
    """A folder with a module and a tokenizer of its size."""
    module.generation_config = GenerationConfig(
        decoder_start_token_id=module.config.decoder_start_token_id, pad_token_id=module.config.pad_token_id,
        eos_token_id=module.config.eos_token_id, **rules,
    )  # fmt: skip
    module.save_pretrained(folder)
    fakes.t5_tokenizer(own_pieces).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["led", "bert to bert", "t5", "pegasus"])
@pytest.mark.parametrize("rules", [{}, {"max_new_tokens": 30}])
def test_lengths_where_little_is_said(name: str, rules: dict[str, Any], own_pieces: Path, tmp_path: Path) -> None:
    """Twenty new tokens, as `generate` makes, and positions under whatever name the family has for them."""
    torch.manual_seed(1)
    module = randomised(FAMILIES[name]())
    folder = saved(module, tmp_path / "model", own_pieces, **rules)
    ids = torch.arange(3, 12)[None]
    expected = module.generate(input_ids=ids, num_beams=1)[0].tolist()[1:]
    model = HuggingFaceModel(module, *(most_positions(module, side) for side in ("encoder", "decoder")))
    rules_of = find_checkpoint(folder).rules
    constraints = constraints_of(name, rules_of, vocabulary=40, room=model.max_target)
    (found,) = drain(
        Greedy().iterate(model, Exact.of(model), Source(ids.numpy(), torch.tensor([9]).numpy()), constraints)
    )
    assert list(found.tokens) == expected


def test_a_long_source_of_a_model_without_a_limit(own_pieces: Path, tmp_path: Path) -> None:
    """T5's positions are relative: its ``n_positions`` of 512 ends nothing."""
    torch.manual_seed(2)
    vocabulary = len(fakes.t5_tokenizer(own_pieces))
    folder = saved(module_of("t5", vocabulary).float(), tmp_path / "t5", own_pieces, max_new_tokens=6)
    model = load(str(folder), device="cpu", dtype="float64")
    text = " ".join([TEXT] * 60)
    inputs = AutoTokenizer.from_pretrained(folder)([text], return_tensors="pt")
    assert inputs["input_ids"].shape[1] > 600
    module = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64)
    expected = module.generate(**inputs, num_beams=1)[0].tolist()[1:]
    assert list(translate(model, text).tokens) == expected


# ------------------------------------------------------------------------------------------- weights and vocabularies


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("t5", "lacks the tensor 'lm_head.weight' .*save the whole model again"),
        ("umt5", "lack the output matrix lm_head.weight: .*Save the whole model again"),
    ],
)
def test_an_output_matrix_that_is_missing_is_not_replaced(
    kind: str, message: str, own_pieces: Path, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    vocabulary = len(fakes.t5_tokenizer(own_pieces))
    folder = saved(module_of(kind, vocabulary), tmp_path / kind, own_pieces)
    fakes.change_json(folder / "config.json", tie_word_embeddings=False)
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    head = torch.randn(vocabulary, 16, dtype=torch.float64)
    save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors", metadata={"format": "pt"})
    (output,) = load(str(folder), device="cpu", dtype="float64").network.outputs
    assert torch.equal(output.weight, head)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        load(str(folder), device="cpu")


def test_tokens_added_to_a_vocabulary_are_not_spelt_out(broken_marian: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(broken_marian)
    kept = tmp_path / "kept"
    shutil.copytree(broken_marian, kept)
    tokenizer.save_pretrained(kept)
    assert load(str(kept), device="cpu")
    tokenizer.add_tokens(["<term>", "<name>"])
    tokenizer.save_pretrained(broken_marian)
    with pytest.raises(CheckpointError, match=r"added to its vocabulary, .*: got <name>, <term>\. Train without"):
        load(str(broken_marian), device="cpu")


def test_two_threads_with_two_source_languages(multilingual: Callable[[str], Path]) -> None:
    """A tokenizer of transformers keeps its source language: each call has its own."""
    tokenizer = load(str(multilingual("mbart50")), device="cpu").tokenizer
    expected = {code: tokenizer.encode(["a b"], code, "de").ids.tolist() for code in ("en", "fr")}
    assert expected["en"] != expected["fr"]
    wrong: list[str] = []

    def encode(code: str) -> None:
        for _ in range(300):
            if tokenizer.encode(["a b"], code, "de").ids.tolist() != expected[code]:
                wrong.append(code)

    threads = [threading.Thread(target=encode, args=(code,)) for code in expected for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
