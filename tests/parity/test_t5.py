"""T5, flan-T5, mT5 and MADLAD-400 from their folders, on both engines: `transformers`' numbers and tokens, or a refusal."""

import copy
import shutil
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_families import OLDEST
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MT5Config,
    MT5ForConditionalGeneration,
    T5ForConditionalGeneration,
)
from transformers import T5Config as Config
from transformers.models.t5.modeling_t5 import T5Attention

from fastdecode_lib import load, translate
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.t5 import UNUSED
from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.core import Source
from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.models.positions import relative_rows
from fastdecode_lib.text.languages import UnknownLanguage
from fastdecode_lib.translation import Session

GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
LAYOUTS: dict[str, tuple[Any, Any, dict[str, Any], tuple[str, ...]]] = {
    "t5": (Config, T5ForConditionalGeneration, {}, ()),
    "flan": (Config, T5ForConditionalGeneration, GATED, ()),
    "mt5": (MT5Config, MT5ForConditionalGeneration, GATED, ()),
    "madlad": (Config, T5ForConditionalGeneration, GATED, ("shared.weight", "encoder.embed_tokens.weight")),
}
"""Classes, settings, and tensors that the hub's files lack where the decoder's embeddings stand for them."""
TAGS = ("<2de>", "<2en>", "<2fr>", "<2zh>", "<2zh_Latn>", "<2translate>")
"""Of MADLAD-400, whose sources begin with the target's; the last is none."""
MORE_ROWS = 5
LIMIT = 14
DECODERS = (
    "jacobi", "gauss_seidel:block=3", "hybrid", "window:width=3", "window:width=4,draft=source|recycled", "beam:size=1",
)  # fmt: skip


def folder_of(layout: str, folder: Path, own_pieces: Path, seed: int = 0) -> Path:
    """A tiny random model as the hub has it, with more rows than the tokenizer has tokens."""
    configuration, model, settings, lacking = LAYOUTS[layout]
    tokenizer = fakes.t5_tokenizer(own_pieces, TAGS if layout == "madlad" else ())
    torch.manual_seed(seed)
    config = configuration(
        vocab_size=len(tokenizer) + MORE_ROWS, d_model=16, d_kv=5, d_ff=24, num_layers=3, num_decoder_layers=2, num_heads=2,
        relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=0, pad_token_id=0,
        eos_token_id=1, **settings,
    )  # fmt: skip
    module = model(config).double().eval()
    if settings:
        module.lm_head.weight = torch.nn.Parameter(torch.empty(config.vocab_size, 16).double())
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(std=0.7).add_(1.0 if name.endswith("norm.weight") else 0.0)
    module.generation_config.max_length = LIMIT + 1
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    if lacking:
        stored["decoder.embed_tokens.weight"] = stored["shared.weight"]
    save_file(
        {name: tensor.clone() for name, tensor in stored.items() if name not in lacking}, folder / "model.safetensors"
    )
    if settings:  # as these were saved: transformers of today writes other settings
        fakes.change_json(folder / "config.json", tie_word_embeddings=False, scale_decoder_outputs=None)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, own_pieces: Path) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("t5")
    return {layout: folder_of(layout, root / layout, own_pieces) for layout in LAYOUTS}


def skip_what_the_oldest_reads_wrong(layout: str) -> None:
    if OLDEST and layout == "madlad":
        pytest.skip("the oldest version takes the head for the embeddings that MADLAD-400 lacks")


def theirs(folder: Path) -> Any:
    return AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64).eval()


def logits(network: Any, hidden: Any) -> torch.Tensor:
    weight = network.outputs[0].weight
    return torch.from_numpy(weight(hidden[0])) if network.engine == "compiled" else hidden[0] @ weight.T


def random_ids(module: Any, rows: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources of unlike lengths (B, S), some longer than the farthest distance, their lengths, and targets (B, T)."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 50, rows)
    ids = random.integers(2, module.config.vocab_size, (rows, lengths.max()))
    return ids, lengths, random.integers(2, module.config.vocab_size, (rows, 30))


FLOAT64 = 2.0**-29
"""The relative rounding error of float64 in units of float32's."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_from_a_folder(layout: str, folders: dict[str, Path]) -> None:
    skip_what_the_oldest_reads_wrong(layout)
    module = theirs(folders[layout])
    ids, lengths, targets = random_ids(module)
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    with torch.inference_mode():
        inputs = {"input_ids": torch.from_numpy(ids * mask), "attention_mask": torch.from_numpy(mask).long()}
        expected = module(**inputs, decoder_input_ids=torch.from_numpy(targets)).logits
        rounded = copy.deepcopy(module).float()(**inputs, decoder_input_ids=torch.from_numpy(targets)).logits
    error = float((rounded - expected).abs().max())  # of transformers' own float32; scores are not scaled, and sharp
    for engine, tolerance in (("torch", error if OLDEST else 16 * error * FLOAT64), ("compiled", 8 * error)):
        network = load(str(folders[layout]), device="cpu", **options(engine)).network
        assert network.engine == engine and network.outputs[0].vocabulary == module.config.vocab_size
        state = network.start(network.encode(Source(ids, lengths)), targets[:, :1])
        hidden = network.step(state, targets)
        for row in range(len(ids)):
            assert (logits(network, hidden[row][None]) - expected[row]).abs().max() < tolerance


def options(engine: str) -> dict[str, str]:
    return {"engine": engine} | ({"dtype": "float64"} if engine == "torch" else {})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_from_a_folder(layout: str, folders: dict[str, Path]) -> None:
    """Every lossless decoder on both engines, alone and in a batch of unlike lengths; beams, too."""
    skip_what_the_oldest_reads_wrong(layout)
    texts = [*fakes.own_sentences()["en"][:4], " ".join(fakes.own_sentences()["en"][:4])]
    module, tokenizer = theirs(folders[layout]), AutoTokenizer.from_pretrained(folders[layout])
    tag = "<2de> " if layout == "madlad" else ""
    inputs = tokenizer([tag + text for text in texts], return_tensors="pt", padding=True)
    assert len({len(tokenizer(text)["input_ids"]) for text in texts}) > 3
    for beams, names in ((1, ("greedy", *DECODERS)), (3, ("beam:size=3,length_penalty=1.0",))):
        with torch.inference_mode():
            rows = module.generate(**inputs, num_beams=beams, length_penalty=1.0, early_stopping=False)[:, 1:].tolist()
        expected = [tuple(row[: row.index(1) + 1] if 1 in row else row) for row in rows]
        assert len(set(expected)) > 2 or OLDEST  # whose tokenizer makes another vocabulary
        for engine in ("torch", "compiled"):
            model = load(str(folders[layout]), device="cpu", **options(engine))
            for name in names:
                session = Session.of(model, "en", "de", name)
                assert [h.tokens for h in session.decode(texts)] == expected, (engine, name)
    assert (
        translate(model, tag + texts[0], decoder="greedy").tokens
        == Session.of(model, "en", "de", "greedy").decode(texts)[0].tokens
    )


def test_the_target_of_madlad_stands_in_front(folders: dict[str, Path]) -> None:
    """Named, or typed as the tag itself; its ids are those of transformers for the text with the tag."""
    model, tokenizer = load(str(folders["madlad"]), device="cpu"), AutoTokenizer.from_pretrained(folders["madlad"])
    text = "The children are playing."
    assert [target for _, target in model.directions] == ["de", "en", "fr", "zh", "zh_Latn"]
    for target, tag in (("de", "<2de>"), ("German", "<2de>"), ("zh", "<2zh>"), ("zh_Latn", "<2zh_Latn>")):
        expected = tokenizer(f"{tag} {text}")["input_ids"]
        assert expected.count(tokenizer.convert_tokens_to_ids(tag)) == 1
        for source in (None, "en"):
            assert model.encode([text], source, model.direction(source, target)[1]).ids[0].tolist() == expected
        for typed in (f"{tag} {text}", f" {tag}{text}"):
            assert model.encode([typed], None, None).ids[0].tolist() == expected
    typed, named = (translate(model, f"<2fr> {text}", source="en"), translate(model, text, source="en", target="fr"))
    assert typed.tokens == named.tokens
    for texts, target, message in (
        ([text], None, r"several target languages: got none\. Pass one of de, en, fr, zh, zh_Latn"),
        ([f"<2fr> {text}"], "de", r"tag of another language: got <2fr>, the target is de\. Leave out"),
        ([f"<2fr> {text}", text], "de", r"tag of another language: got <2fr>"),
        ([text], "it", r"Unknown target language: got 'it'"),
    ):
        with pytest.raises(UnknownLanguage, match=message):
            model.encode(texts, "en", target)
    with pytest.raises(UnknownLanguage, match="several target languages: got none"):
        translate(model, text, source="en")


@pytest.mark.filterwarnings("ignore:No drafts are known")
@pytest.mark.parametrize("layout", ["t5", "madlad"])
def test_the_lines_of_speedup_work_when_pasted(layout: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """With the instruction or the tag in front of a source."""
    skip_what_the_oldest_reads_wrong(layout)
    folder = shutil.copytree(folders[layout], tmp_path / "model")
    tasks = {"translation_en_to_de": {"prefix": "translate English to German: "}}
    fakes.change_json(folder / "config.json", task_specific_params=tasks if layout == "t5" else None)
    model, texts = load(str(folder), device="cpu"), fakes.own_sentences()["en"][:2]
    translated, generated = fakes.pasted(model, "en", "de", texts)
    expected = [h.tokens for h in Session.of(model, "en", "de", "greedy").decode(texts)]
    assert [t.tokens for t in translated] == expected
    assert tuple(generated[0, 1:].tolist()) == expected[0]


@pytest.mark.parametrize(("precision", "projection"), [("float32", "quantised"), *((p, "exact") for p in PRECISIONS)])
def test_decoders_are_lossless_in_every_precision(precision: str, projection: str, folders: dict[str, Path]) -> None:
    texts = fakes.own_sentences()["en"][:6]
    for layout in ("t5", "madlad"):
        model = load(str(folders[layout]), device="cpu", engine="compiled", precision=precision)
        expected = [h.tokens for h in Session.of(model, "en", "de", "greedy").decode(texts)]
        for name in DECODERS:
            session = Session.of(model, "en", "de", name, projection=projection)
            assert [h.tokens for h in session.decode(texts)] == expected, name


def test_a_draft_head_of_a_t5(folders: dict[str, Path], tmp_path: Path) -> None:
    from fastdecode_lib.training.draft_heads import HeadRecipe, make_head

    model = load(str(folders["mt5"]), device="cpu")
    assert model.engine == "compiled"
    texts = fakes.own_sentences()["en"][:12]
    recipe = HeadRecipe(name="tiny", updates=2, evaluate_every=1, tokens_per_update=60, held_out=2, vocabulary=200)
    head = make_head([Session.of(model, "en", "de", "greedy")], [texts], recipe, folder=tmp_path / "build")
    assert (head.shape.hidden, head.shape.source) == (16, 10)
    head.save(tmp_path / "head.safetensors")
    window = f"window:width=3,draft=head,head={tmp_path / 'head.safetensors'}"
    expected = Session.of(model, "en", "de", "greedy").decode(texts[:3])
    assert [h.tokens for h in Session.of(model, "en", "de", window).decode(texts[:3])] == [h.tokens for h in expected]


# ------------------------------------------------------------------------------------------------- relative positions


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_rows_of_distances_are_those_of_transformers(side: str) -> None:
    for buckets in (4, 6, 8, 15, 32, 64):
        for farthest in (buckets // 2 + 1, buckets, 100, 128, 513, 2000):
            shape = Architecture.from_config(
                Config(relative_attention_num_buckets=buckets, relative_attention_max_distance=farthest).to_dict()
            )
            distances = torch.arange(-3 * farthest, 3 * farthest + 1)
            expected = T5Attention._relative_position_bucket(distances, side == "encoder", buckets, farthest).numpy()
            found = relative_rows(shape, side)[distances.clamp(-farthest, farthest) + farthest]
            assert (found == expected).all(), (buckets, farthest)


# ------------------------------------------------------------------------------------------------ embeddings and heads

EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize("number", range(1, 16))
def test_embeddings_are_tied_as_transformers_ties_them(number: int, folders: dict[str, Path], tmp_path: Path) -> None:
    """Whichever of the four are stored, all with values of their own."""
    skip_what_the_oldest_reads_wrong("madlad" if number in (10, 12) else "t5")
    folder = shutil.copytree(folders["t5"], tmp_path / "t5")
    stored = load_file(folder / "model.safetensors")
    vocabulary = len(stored["shared.weight"])
    for place, name in enumerate(EMBEDDINGS):
        stored.pop(name, None)
        if number >> place & 1:
            stored[name] = torch.randn(vocabulary, 16, generator=torch.Generator().manual_seed(place)).double()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    module = theirs(folder)
    ours = load(str(folder), device="cpu", dtype="float64").network
    for found, wanted in (
        (ours.encoder.embedding, module.encoder.embed_tokens.weight),
        (ours.decoder.embedding, module.decoder.embed_tokens.weight),
        (ours.outputs[0].weight, module.lm_head.weight),
    ):
        assert torch.equal(found, wanted)


def test_a_table_that_nobody_reads_may_be_stored(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["t5"], tmp_path / "t5")
    stored = load_file(folder / "model.safetensors")
    save_file(stored | {UNUSED: torch.ones(8, 2)}, folder / "model.safetensors")
    assert load(str(folder), device="cpu").engine == "compiled"


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_kv": "5"}, "damaged: d_kv must be a whole number from 1 on, got '5'. Copy"),
        ({"num_heads": 0}, "damaged: num_heads must be a whole number from 1 on, got 0. Copy"),
        ({"relative_attention_num_buckets": 3}, "num_buckets must be a whole number from 4 on, got 3. Copy"),
        ({"relative_attention_max_distance": 4}, "max_distance must be more than half of 8 buckets, got 4. Copy"),
        ({"layer_norm_epsilon": 2.0}, "layer_norm_epsilon must be a number between 0 and 1, got 2.0. Copy"),
        ({"feed_forward_proj": "double-gelu"}, "feed_forward_proj must be .*, got 'double-gelu'. Copy"),
        ({"feed_forward_proj": "gated-mish"}, "Unknown activation in config.json: got 'mish'. Supported are relu"),
        ({"d_kv": 6}, r"'encoder.block.0.layer.0.SelfAttention.q.weight' has shape \(10, 16\), .* \(12, 16\). Check"),
        (
            {"num_layers": 4},
            r"lacks the tensor 'encoder.block.3.layer.0.SelfAttention.q.weight' .*save the whole model",
        ),
        ({"num_layers": 2}, "tensors that a t5 model of its config.json does not have: encoder.block.2.* Check that"),
        ({"model_type": "umt5"}, "compiled engine runs marian, .*t5, mt5.*, got a umt5 model. Use engine='torch'"),
    ],
    ids=str,
)
def test_what_cannot_be_run(settings: dict[str, Any], message: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["t5"], tmp_path / "t5")
    fakes.change_json(folder / "config.json", **settings)
    with pytest.raises((CheckpointError, ValueError), match=message):
        load(str(folder), device="cpu", engine="compiled")


@pytest.mark.parametrize("name", ["d_model", "num_heads", "vocab_size"])
def test_a_setting_that_is_missing(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["t5"], tmp_path / "t5")
    fakes.change_json(folder / "config.json", **{name: None})
    with pytest.raises(
        CheckpointError, match=rf"lacks the setting '{name}' that a t5 model needs. Save the model again"
    ):
        load(str(folder), device="cpu")
