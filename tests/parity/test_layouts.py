"""Models as they lie on the hub, in miniature, with the fields of the real ones: transformers' numbers and tokens, or a refusal."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from fastdecode_lib import load
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Source
from fastdecode_lib.translation import Session

TEXTS = ["The bus is late.", "Good morning.", "We need two rooms, please."]
DECODERS = ("greedy", "window:width=3", "gauss_seidel:block=3")
LONGEST = 24
"""Tokens of an output, where the real settings have 200 or 512."""


@dataclass(frozen=True)
class Layout:
    """A folder, its languages, and what transformers is told of them."""

    folder: Path
    source: str | None = None
    target: str | None = None
    tokenizer: str = "MarianTokenizer"
    tag: str = ""
    told: tuple[str, str] | None = None
    """Languages as the tokenizer of transformers spells them."""


Pieces = Path
Maker = Callable[[Path, Pieces], Layout]


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    tensors = change(load_file(folder / "model.safetensors"))
    save_file(
        {name: tensor.clone() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


# ------------------------------------------------------------------------------------------------------------- Marian

OPUS = {
    "_num_labels": 3, "activation_dropout": 0.0, "add_bias_logits": False, "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"], "attention_dropout": 0.0, "bos_token_id": 0, "classif_dropout": 0.0,
    "decoder_layerdrop": 0.0, "dropout": 0.1, "encoder_layerdrop": 0.0, "eos_token_id": 0, "forced_eos_token_id": 0,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "init_std": 0.02, "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "max_length": 512, "normalize_before": False,
    "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 1, "static_position_embeddings": True,
    "transformers_version": "4.22.0.dev0", "use_cache": True,
}  # fmt: skip


def opus(folder: Path, own_pieces: Pieces) -> Layout:
    """``Helsinki-NLP/opus-mt-en-de``: embeddings under all their names, with tables of positions and the head."""
    fakes.write_marian(folder, own_pieces)
    (folder / "fastdecode.json").unlink()
    tokens = json.loads((folder / "vocab.json").read_text())
    padding = tokens.pop("<pad>")
    plain = [token for token in tokens if not token.startswith(">>")]
    filler = [f"▁filler{i}" for i in range(padding - len(plain))]
    fakes.write_json(folder / "vocab.json", {t: i for i, t in enumerate([*plain, *filler, "<pad>"])})
    rules = {
        "bad_words_ids": [[padding]], "bos_token_id": 0, "decoder_start_token_id": padding, "eos_token_id": 0,
        "forced_eos_token_id": 0, "max_length": 512, "num_beams": 6, "pad_token_id": padding, "renormalize_logits": True,
    }  # fmt: skip
    fakes.change_json(folder / "config.json", **OPUS, bad_words_ids=[[padding]], decoder_vocab_size=padding + 1)
    fakes.write_json(folder / "generation_config.json", {**rules, "_from_model_config": True})
    fakes.write_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})

    def stored(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        shared = tensors["model.shared.weight"]
        names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
        tables = {f"model.{side}.embed_positions.weight": positions() for side in ("encoder", "decoder")}
        bias = torch.randn(1, len(shared), generator=torch.Generator().manual_seed(1))
        bias[0, 0] += 2.0  # so that outputs end
        return tensors | dict.fromkeys(names, shared) | tables | {"final_logits_bias": bias}

    change_tensors(folder, stored)
    return Layout(folder, "en", "de")


def positions() -> torch.Tensor:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    return MarianSinusoidalPositionalEmbedding(fakes.POSITIONS, 16, 0).create_weight()


def tc_big(folder: Path, own_pieces: Pieces) -> Layout:
    """``opus-mt-tc-big``: float16, ReLU, embeddings and head both stored."""
    layout = opus(folder, own_pieces)
    fakes.change_json(folder / "config.json", torch_dtype="float16", dtype=None, activation_function="relu")
    change_tensors(folder, lambda tensors: {name: tensor.half() for name, tensor in tensors.items()})
    return layout


def two_vocabularies(folder: Path, own_pieces: Pieces) -> Layout:
    """Source and target vocabularies apart, the head that of the target."""
    layout = opus(folder, own_pieces)
    tokens = list(json.loads((folder / "vocab.json").read_text()))
    padding, more = len(tokens) - 1, 5  # of the target, behind the padding that both sides share
    targets = [*tokens[:2], *tokens[2:-1][::-1], "<pad>", *(f"▁more{i}" for i in range(more))]
    fakes.write_json(folder / "target_vocab.json", {token: i for i, token in enumerate(targets)})
    size = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(targets)}
    fakes.change_json(folder / "config.json", **size, bad_words_ids=[[padding]])
    fakes.change_json(folder / "tokenizer_config.json", separate_vocabs=True)

    def stored(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        rows, bias = tensors.pop("model.shared.weight"), tensors["final_logits_bias"]
        rows = torch.cat([rows.flip(0), rows[:more]])
        own = dict.fromkeys(("model.decoder.embed_tokens.weight", "lm_head.weight"), rows)
        return tensors | own | {"final_logits_bias": torch.cat([bias, bias[:, 1 : more + 1]], 1)}

    change_tensors(folder, stored)
    return layout


def several_targets(folder: Path, own_pieces: Pieces) -> Layout:
    """``opus-mt-en-ROMANCE``: the target's tag in front of a source, and no settings of generation of their own."""
    fakes.write_marian(folder, own_pieces)
    (folder / "fastdecode.json").unlink()
    rules = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").unlink()
    fakes.change_json(folder / "config.json", **OPUS, bad_words_ids=rules["bad_words_ids"])
    return Layout(folder, "en", "fr", tag=">>fra<< ")


def sharded(folder: Path, own_pieces: Pieces) -> Layout:
    """In two files with an index, embeddings stored once under the decoder's name."""
    layout = opus(folder, own_pieces)
    tensors = load_file(folder / "model.safetensors")
    shared = tensors.pop("model.shared.weight")
    for name in ("lm_head.weight", *(f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))):
        tensors.pop(name)
    tensors["model.decoder.embed_tokens.weight"] = shared
    (folder / "model.safetensors").unlink()
    index = {}
    for number in (0, 1):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        part = {name: tensor for i, (name, tensor) in enumerate(sorted(tensors.items())) if i % 2 == number}
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    fakes.write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})
    return layout


# -------------------------------------------------------------------------------------------------- mBART, M2M-100, NLLB


def many(kind: str, folder: Path, own_pieces: Pieces) -> None:
    tokenizer: Any
    if kind == "mbart":
        tokenizer = fakes.mbart50_tokenizer(own_pieces)
    else:
        tokenizer = fakes.m2m_tokenizer(own_pieces, folder / "files") if kind == "m2m" else fakes.nllb_tokenizer()
    fakes.write_multilingual(folder, "mbart" if kind == "mbart" else "m2m_100", tokenizer, seed=3)


def padded(folder: Path, rows: int) -> None:
    """More rows than the tokenizer has tokens, as the hub's M2M-100 has."""
    generator = torch.Generator().manual_seed(4)

    def longer(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        more = torch.randn(rows, 16, generator=generator) * 0.1
        return tensors | {"model.shared.weight": torch.cat([tensors["model.shared.weight"], more])}

    change_tensors(folder, longer)
    size = json.loads((folder / "config.json").read_text())["vocab_size"] + rows
    fakes.change_json(folder / "config.json", vocab_size=size, decoder_vocab_size=None)


def m2m(folder: Path, own_pieces: Pieces) -> Layout:
    """``facebook/m2m100_418M``."""
    many("m2m", folder, own_pieces)
    padded(folder, 8)
    fakes.change_json(
        folder / "config.json", early_stopping=True, gradient_checkpointing=False, max_length=200, num_beams=5
    )
    rules = {"early_stopping": True, "max_length": 200, "num_beams": 5, "bos_token_id": 0, "forced_eos_token_id": None}
    fakes.change_json(folder / "generation_config.json", **rules)
    return Layout(folder, "en", "de", "M2M100Tokenizer", told=("en", "de"))


def nllb(folder: Path, own_pieces: Pieces) -> Layout:
    """``facebook/nllb-200-distilled-600M``, saved today."""
    many("nllb", folder, own_pieces)
    rules = {"bos_token_id": 0, "max_length": 200, "forced_eos_token_id": None}
    fakes.change_json(folder / "generation_config.json", **rules)
    return Layout(folder, "en", "de", "NllbTokenizer", told=("eng_Latn", "deu_Latn"))


def old_nllb(folder: Path, own_pieces: Pieces) -> Layout:
    """As transformers 4 saved it: languages among the additional special tokens, a fast class."""
    layout = nllb(folder, own_pieces)
    settings = folder / "tokenizer_config.json"
    languages = json.loads(settings.read_text())["extra_special_tokens"]
    fakes.change_json(
        settings, extra_special_tokens=None, additional_special_tokens=languages, tokenizer_class="NllbTokenizerFast"
    )
    return layout


def nllb_of_one_target(folder: Path, own_pieces: Pieces) -> Layout:
    """Fine-tuned for one target: the settings force its language."""
    nllb(folder, own_pieces)
    tokenizer = transformers.NllbTokenizer.from_pretrained(folder)
    forced = tokenizer.convert_tokens_to_ids("fra_Latn")
    fakes.change_json(folder / "generation_config.json", forced_bos_token_id=forced)
    return Layout(folder, "en", None, "NllbTokenizer", told=("eng_Latn", "fra_Latn"))


MBART = {
    "_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": True, "classif_dropout": 0.0,
    "normalize_before": True, "normalize_embedding": True, "output_past": True, "scale_embedding": True,
    "static_position_embeddings": False, "tokenizer_class": "MBart50Tokenizer",
}  # fmt: skip


def mbart50(folder: Path, own_pieces: Pieces) -> Layout:
    """``facebook/mbart-large-50-many-to-many-mmt``."""
    many("mbart", folder, own_pieces)
    fakes.change_json(folder / "config.json", **MBART)
    rules = {"early_stopping": True, "max_length": LONGEST, "num_beams": 5}
    fakes.change_json(folder / "generation_config.json", **rules)
    return Layout(folder, "en", "de", "MBart50Tokenizer", told=("en_XX", "de_DE"))


MAKERS: dict[str, Maker] = {
    "opus": opus, "tc-big": tc_big, "two vocabularies": two_vocabularies, "several targets": several_targets,
    "sharded": sharded, "m2m": m2m, "nllb": nllb, "nllb of transformers 4": old_nllb,
    "nllb of one target": nllb_of_one_target, "mbart-50": mbart50,
}  # fmt: skip


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory, own_pieces: Path) -> dict[str, Layout]:
    root = tmp_path_factory.mktemp("layouts")
    return {name: make(root / name.replace(" ", "-"), own_pieces) for name, make in MAKERS.items()}


# ------------------------------------------------------------------------------------------------------------ the tests


def theirs(layout: Layout) -> tuple[Any, list[Any], dict[str, Any]]:
    """The module of transformers in float64, the inputs of each text, and what it is told of the target."""
    module: Any = AutoModelForSeq2SeqLM.from_pretrained(layout.folder, dtype=torch.float64).eval()
    tokenizer: Any = getattr(transformers, layout.tokenizer).from_pretrained(layout.folder)
    more = {}
    if layout.told:
        tokenizer.src_lang = layout.told[0]
        code = f"__{layout.told[1]}__" if layout.tokenizer == "M2M100Tokenizer" else layout.told[1]
        more["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(code)
    if layout.target is None:  # the settings say it
        assert module.generation_config.forced_bos_token_id == more.pop("forced_bos_token_id")
    return module, [tokenizer(layout.tag + text, return_tensors="pt") for text in TEXTS], more


def ours(layout: Layout, decoder: str, model: Any) -> list[tuple[int, ...]]:
    session = Session.of(model, layout.source, layout.target, decoder, max_length=LONGEST)
    return [h.tokens for h in session.decode(TEXTS)]


def of_transformers(layout: Layout, beams: int) -> list[tuple[int, ...]]:
    """Outputs without start, forced language and padding."""
    module, inputs, more = theirs(layout)
    module.config.vocab_size = module.get_output_embeddings().weight.shape[
        0
    ]  # by which some versions count beams' tokens
    prefix = 1 + bool(layout.told)
    rows: Sequence[Any] = [
        module.generate(**row, num_beams=beams, max_length=LONGEST + prefix, **more)[0].tolist() for row in inputs
    ]
    return [tuple(row[prefix:]) for row in rows]


@pytest.mark.parametrize("name", MAKERS)
def test_logits_of_a_layout(name: str, layouts: dict[str, Layout]) -> None:
    layout = layouts[name]
    module, inputs, _ = theirs(layout)
    network = load(str(layout.folder), device="cpu", dtype="float64").network
    (output,) = network.outputs
    for row in inputs:
        tokens = np.random.default_rng(3).integers(3, output.vocabulary, (1, 12))
        with torch.inference_mode():
            expected = module(**row, decoder_input_ids=torch.from_numpy(tokens)).logits
        ids = row["input_ids"].numpy()
        state = network.start(network.encode(Source(ids, np.array([ids.shape[1]]))), tokens[:, :1])
        bias = 0 if output.bias is None else output.bias
        assert (network.step(state, tokens) @ output.weight.T + bias - expected).abs().max() < 1e-9


@pytest.mark.parametrize("name", MAKERS)
def test_tokens_of_a_layout(name: str, layouts: dict[str, Layout]) -> None:
    """Greedy and parallel decoders, alone and in batches, and beams as the settings ask, on both engines; int8 to itself."""
    layout = layouts[name]
    greedy, beams = of_transformers(layout, 1), of_transformers(layout, 4)
    assert len(set(greedy)) > 1 and max(len(set(row)) for row in greedy) > 1
    for options in ({"dtype": "float64"}, {"engine": "compiled"}):
        model = load(str(layout.folder), device="cpu", **options)
        for decoder in DECODERS:
            assert ours(layout, decoder, model) == greedy, (options, decoder)
        assert ours(layout, "beam:size=4", model) == beams, options
    model = load(str(layout.folder), device="cpu", precision="int8")
    expected = ours(layout, "greedy", model)
    for decoder in DECODERS[1:]:
        assert ours(layout, decoder, model) == expected, decoder


def test_a_target_that_nobody_names_is_asked_for(layouts: dict[str, Layout]) -> None:
    for name in ("several targets", "m2m", "nllb", "nllb of transformers 4", "mbart-50"):
        with pytest.raises(ValueError, match="several target languages: got none. Pass one of"):
            Session.of(load(str(layouts[name].folder), device="cpu"), "en", None)


@pytest.mark.parametrize("how", ["special", "in the place of all others", "plain"])
@pytest.mark.parametrize("name", ["nllb", "mbart-50"])
def test_a_language_that_was_added(name: str, how: str, layouts: dict[str, Layout], tmp_path: Path) -> None:
    """Tuvan, in the ways to add it; not what only looks like a language to a reader in haste."""
    layout = layouts[name]
    tokenizer = getattr(transformers, layout.tokenizer).from_pretrained(layout.folder)
    before, new = (
        len(load(str(layout.folder), device="cpu").tokenizer.codes),
        "tyv_Cyrl" if name == "nllb" else "tyv_RU",
    )
    if how == "plain":
        tokenizer.add_tokens([new, "my_name"])
    else:
        own = {"extra_special_tokens": [new]}
        tokenizer.add_special_tokens(own, replace_extra_special_tokens=how != "special")
    module = AutoModelForSeq2SeqLM.from_pretrained(layout.folder, dtype=torch.float64)
    torch.manual_seed(2)
    module.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        module.get_input_embeddings().weight[-2:].normal_(std=0.7)
    module.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load(str(tmp_path), device="cpu", dtype="float64")
    assert len(model.tokenizer.codes) == before + 1
    assert layout.told is not None
    for source, target, told in (("en", "tyv", (layout.told[0], new)), (new, "de", (new, layout.told[1]))):
        changed = replace(layout, folder=tmp_path, source=source, target=target, told=told)
        assert ours(changed, "greedy", model) == of_transformers(changed, 1), (source, target)


@pytest.mark.parametrize("name", ["opus", "several targets", "m2m", "nllb", "mbart-50"])
def test_the_shortest_and_the_longest_sources(name: str, layouts: dict[str, Layout]) -> None:
    """A hyphen, only a space, as many tokens as there are positions: each as in `generate` alone; one more is refused."""
    layout = layouts[name]
    module, _, more = theirs(layout)
    model = load(str(layout.folder), device="cpu", dtype="float64")
    texts = [f"{'a ' * words}{'a' * letters}" for words in range(fakes.POSITIONS) for letters in (1, 2)]
    lengths = model.tokenizer.encode(texts, layout.source, layout.target).lengths.tolist()
    most = model.network.max_source
    assert most == fakes.POSITIONS
    chosen = ["-", " ", *(texts[lengths.index(most + over)] for over in (-1, 0)), TEXTS[1]]
    for decoder in DECODERS:
        session = Session.of(model, layout.source, layout.target, decoder, max_length=LONGEST)
        found = [h.tokens for h in session.decode(chosen)]
        assert found[1] == ()
        for text, tokens in zip(chosen, found, strict=True):
            if text != " ":
                source = model.encode([text], layout.source, layout.target)
                ids = torch.from_numpy(source.ids)
                prefix = 1 + bool(layout.told)
                row = module.generate(input_ids=ids, num_beams=1, max_length=LONGEST + prefix, **more)[0, prefix:]
                assert tokens == tuple(row.tolist()), (decoder, text)
    with pytest.raises(ValueError, match=rf"source is too long: sentence 2 has {most + 1} tokens, .* allows {most}"):
        session.decode(["-", texts[lengths.index(most + 1)]])


def test_lengths_that_the_settings_force_beyond_the_positions(layouts: dict[str, Layout], tmp_path: Path) -> None:
    """Outputs end at the last position, whatever is asked."""
    layout = layouts["opus"]
    model = load(str(layout.folder), device="cpu")
    assert model.checkpoint.rules["max_length"] == 512
    assert Session.of(model, "en", "de", "greedy").constraints.max_length == fakes.POSITIONS
    folder = shutil.copytree(layout.folder, tmp_path / "model")
    fakes.change_json(folder / "generation_config.json", min_length=fakes.POSITIONS + 10)
    forced = load(str(folder), device="cpu")
    for decoder in DECODERS:
        session = Session.of(forced, "en", "de", decoder)
        assert session.constraints.min_length == fakes.POSITIONS - 1
        assert [len(h.tokens) for h in session.decode(TEXTS[:2])] == [fakes.POSITIONS] * 2


@pytest.mark.filterwarnings("ignore:No drafts are known")
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["opus", "several targets", "m2m", "nllb", "nllb of one target", "mbart-50"])
def test_the_lines_of_speedup_work_when_pasted(
    name: str, batch: int, layouts: dict[str, Layout], tmp_path: Path
) -> None:
    layout = layouts[name]
    prefix = 1 + bool(layout.told)
    folder = shutil.copytree(layout.folder, tmp_path / "model")
    settings = "generation_config.json" if (folder / "generation_config.json").exists() else "config.json"
    fakes.change_json(folder / settings, max_length=LONGEST + prefix)
    model, target = load(str(folder), device="cpu"), layout.target or "fr"
    translated, generated = fakes.pasted(model, "en", target, TEXTS, batch)
    expected = [h.tokens for h in Session.of(model, "en", target, "greedy").decode(TEXTS)]
    assert [t.tokens for t in translated] == expected and len(set(expected)) > 1
    assert len(generated) == batch
    for row, tokens in zip(generated[:, prefix:].tolist(), expected, strict=False):
        assert tuple(row[: len(tokens)]) == tokens


@pytest.mark.filterwarnings("ignore:No drafts are known")
def test_the_lines_of_speedup_stay_within_the_positions(layouts: dict[str, Layout]) -> None:
    """The settings of this checkpoint ask for 200 tokens, it has 64 positions."""
    model = load(str(layouts["nllb"].folder), device="cpu")
    translated, generated = fakes.pasted(model, "en", "de", TEXTS[:1])
    tokens = translated[0].tokens
    assert translated[0].trace.hypotheses[0].stop == "length"
    assert tuple(generated[0, 2 : 2 + len(tokens)].tolist()) == tokens
    assert generated.shape[1] <= model.network.max_target + 1


# ------------------------------------------------------------------------------------------------- through transformers


def test_bart_and_pegasus_from_folders(tmp_path: Path, own_pieces: Path) -> None:
    """Their modules run through transformers' forward, row by row; what their settings ask beyond that is refused."""
    from test_other_modules import FAMILIES, randomised

    torch.manual_seed(3)
    tokenizers = {"bart": fakes.bart_tokenizer(), "pegasus": fakes.t5_tokenizer(own_pieces)}
    for name, tokenizer in tokenizers.items():
        module, folder = randomised(FAMILIES[name]()), tmp_path / name
        module.resize_token_embeddings(len(tokenizer))
        with torch.no_grad():
            module.get_input_embeddings().weight.normal_(std=0.7)
        module.generation_config.max_length = LONGEST + 1
        module.generation_config.num_beams = 4
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        read = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64)
        expected = [
            tuple(read.generate(**tokenizer(text, return_tensors="pt"), num_beams=1)[0, 1:].tolist()) for text in TEXTS
        ]
        assert len(set(expected)) > 1
        model = load(str(folder), device="cpu", dtype="float64")
        for decoder in DECODERS:
            assert [h.tokens for h in Session.of(model, None, None, decoder).decode(TEXTS)] == expected
        with pytest.raises(ValueError, match=r"beam of size 4 needs a model that runs several rows at once"):
            Session.of(model, None, None, "beam:size=4")
        fakes.change_json(folder / "generation_config.json", no_repeat_ngram_size=3)
        with pytest.raises(CheckpointError, match="rules that fastdecode does not apply: no_repeat_ngram_size=3"):
            Session.of(load(str(folder), device="cpu"), None, None)


UMT5 = {
    "architectures": ["UMT5ForConditionalGeneration"], "classifier_dropout": 0.0, "dense_act_fn": "gelu_new",
    "dropout_rate": 0.1, "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0, "is_encoder_decoder": True,
    "is_gated_act": True, "layer_norm_epsilon": 1e-06, "output_past": True, "scalable_attention": True,
    "scale_decoder_outputs": None, "tie_word_embeddings": False, "tokenizer_class": "T5Tokenizer",
    "transformers_version": "4.31.0.dev0", "use_cache": True,
}  # fmt: skip


@pytest.mark.parametrize("lacking", [(), ("shared.weight", "encoder.embed_tokens.weight")], ids=["whole", "lacking"])
def test_umt5_as_it_lies(
    lacking: tuple[str, ...], tmp_path: Path, own_pieces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``google/umt5-small``: a pickle with embeddings under all their names, or their least, and a head of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tokenizer = fakes.t5_tokenizer(own_pieces)
    torch.manual_seed(5)
    sizes = {"d_model": 16, "d_kv": 5, "d_ff": 24, "num_heads": 2, "num_layers": 3, "num_decoder_layers": 2}
    distances = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
    ends = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    config = transformers.UMT5Config(vocab_size=len(tokenizer) + 84, **sizes, **distances, **ends)
    module = transformers.UMT5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(std=0.7).add_(1.0 if name.endswith("norm.weight") else 0.0)
    module.generation_config.max_length = LONGEST + 1
    module.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    fakes.change_json(tmp_path / "config.json", **UMT5)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    shared = tensors["shared.weight"]
    own = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), shared)
    head = torch.randn(shared.shape, generator=torch.Generator().manual_seed(6)) * 0.7
    stored = {name: t for name, t in (tensors | own | {"lm_head.weight": head}).items() if name not in lacking}
    torch.save(stored, tmp_path / "pytorch_model.bin")

    read = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert torch.equal(read.encoder.embed_tokens.weight, shared.double())
    assert torch.equal(read.lm_head.weight, head.double())
    network = load(str(tmp_path), device="cpu", dtype="float64").network
    (output,) = network.outputs
    expected = []
    for text in TEXTS:
        row = tokenizer(text, return_tensors="pt")
        expected.append(tuple(read.generate(**row, num_beams=1)[0, 1:].tolist()))
        tokens = np.random.default_rng(3).integers(3, config.vocab_size, (1, 12))
        with torch.inference_mode():
            wanted = read(**row, decoder_input_ids=torch.from_numpy(tokens)).logits
        ids = row["input_ids"].numpy()
        state = network.start(network.encode(Source(ids, np.array([ids.shape[1]]))), tokens[:, :1])
        assert (network.step(state, tokens) @ output.weight.T - wanted).abs().max() < 1e-9
    assert len(set(expected)) > 1
    model = load(str(tmp_path), device="cpu", dtype="float64")
    for decoder in DECODERS:
        assert [h.tokens for h in Session.of(model, None, None, decoder).decode(TEXTS)] == expected
    for refused in ({"engine": "compiled"}, {"precision": "int8"}):
        with pytest.raises(ValueError, match="compiled engine runs marian, .* got a umt5 model. Use engine='torch'"):
            load(str(tmp_path), device="cpu", **refused)


def test_fsmt_from_a_folder_is_refused(tmp_path: Path, own_pieces: Path) -> None:
    from test_other_modules import fsmt

    fsmt().save_pretrained(tmp_path)
    fakes.t5_tokenizer(own_pieces).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"got .*FSMT.*transformers"):
        load(str(tmp_path), device="cpu")


def test_a_copy_saved_by_transformers_is_the_same_model(layouts: dict[str, Layout], tmp_path: Path) -> None:
    """Converting by ``save_pretrained``, as an error of ours advises."""
    for name in ("opus", "nllb", "mbart-50", "m2m"):
        layout, folder = layouts[name], tmp_path / name
        AutoModelForSeq2SeqLM.from_pretrained(layout.folder).save_pretrained(folder)
        getattr(transformers, layout.tokenizer).from_pretrained(layout.folder).save_pretrained(folder)
        for file in ("source.spm", "target.spm"):
            if (layout.folder / file).exists() and not (folder / file).exists():
                shutil.copyfile(layout.folder / file, folder / file)
        first, second = (load(str(place), device="cpu") for place in (layout.folder, folder))
        assert ours(layout, "greedy", first) == ours(layout, "greedy", second)
