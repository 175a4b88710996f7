"""Small checkpoints that are real in every respect but their weights: written, loaded and broken by the tests."""

import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.laws.cases import random_tensors
from fastdecode_lib.text import sentences
from fastdecode_lib.text.corpus import FOREIGN
from fastdecode_lib.training.presets import LANGUAGE_TAGS

SENTENCES = Path(__file__).parent / "sentences"
LANGUAGES = ("en", "de", "fr", "es")
POSITIONS = 64


def own_sentences() -> dict[str, list[str]]:
    """The project's own sentences by language."""
    lines = Path(sentences.__file__).with_name("sentences.tsv").read_text(encoding="utf-8").splitlines()
    columns = zip(*(line.split("\t") for line in lines[1:]), strict=True)
    return dict(zip(lines[0].split("\t"), map(list, columns), strict=True))


def awkward() -> dict[str, str]:
    """Texts a translator must survive, by name."""
    return {row["name"]: row["text"] for row in json.loads((SENTENCES / "awkward.json").read_text(encoding="utf-8"))}


def train_sentencepiece(folder: Path, size: int = 300) -> Path:
    """A SentencePiece model of a few hundred pieces, trained on the project's own sentences."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for texts in own_sentences().values() for text in texts),
        model_writer=model,
        vocab_size=size,
        character_coverage=1.0,
        bos_id=1,
        eos_id=2,
        unk_id=0,
        num_threads=1,
        minloglevel=2,
    )
    path = folder / "own.model"
    path.write_bytes(model.getvalue())
    return path


def scored_pieces(model: Path) -> list[tuple[str, float]]:
    """Pieces and scores in the order of a SentencePiece model: ``<unk>``, ``<s>``, ``</s>``, then the rest."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]


def architecture(family: str, vocabulary: int, padding: int) -> Architecture:
    return Architecture(
        family=family,
        source_vocabulary=vocabulary,
        vocabulary=vocabulary,
        width=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_heads=2,
        decoder_heads=2,
        encoder_feed_forward=24,
        decoder_feed_forward=24,
        max_positions=POSITIONS,
        activation="swish",
        scaled_embeddings=True,
        padding=padding,
        shared_embeddings=True,
        tied_output=True,
    )


def stored_tensors(shape: Architecture, seed: int) -> dict[str, torch.Tensor]:
    """Random weights under the names a checkpoint stores them by: the tied embeddings once.

    Sharp attention, unit gain elsewhere and small biases: outputs depend on the source and on their prefix. With less
    care a random model says one token again and again, and shows a test nothing.
    """
    tensors = {name: tensor.float() for name, tensor in random_tensors(shape, seed, scale=1.0).items()}
    for name, tensor in tensors.items():
        if name.endswith("bias"):
            tensor *= 0.1
        elif name.endswith("norm.weight"):
            tensor.sub_(1).mul_(0.1).add_(1)
        elif "q_proj" not in name and "k_proj" not in name:
            tensor *= shape.width**-0.5
    shared = tensors.pop("lm_head.weight")
    shared[shape.padding] = 0.0  # as Marian has it: CTranslate2 starts from a vector of zeros
    for side in ("encoder", "decoder"):
        tensors.pop(f"model.{side}.embed_tokens.weight")
    return {name: tensor.clone() for name, tensor in tensors.items()} | {"model.shared.weight": shared.clone()}


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def change_json(file: Path, **changes: object) -> None:
    """Change fields of a JSON object on disk; None removes one."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    write_json(file, {name: value for name, value in content.items() if value is not None})


def write_marian(folder: Path, sentencepiece_model: Path, seed: int = 1) -> Path:
    """A Marian checkpoint of the bundled model's form: language tags, joint vocabulary, six directions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(sentencepiece_model, folder / name)
    pieces = [piece for piece, _ in scored_pieces(sentencepiece_model)[3:]]
    tokens = ["</s>", "<unk>", *pieces, *LANGUAGE_TAGS.values(), "<pad>"]
    padding = len(tokens) - 1
    shape = architecture("marian", len(tokens), padding)
    settings = {"decoder_start_token_id": padding, "eos_token_id": 0, "forced_eos_token_id": 0}
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)})
    write_json(
        folder / "config.json", shape.config | {"architectures": ["MarianMTModel"], "dtype": "float32"} | settings
    )
    write_json(
        folder / "generation_config.json",
        {**settings, "pad_token_id": padding, "bad_words_ids": [[padding]], "max_length": 24, "num_beams": 1},
    )
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "MarianTokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    )
    directions = [pair for other in FOREIGN for pair in (("en", other), (other, "en"))]
    write_json(folder / "fastdecode.json", {"tags": LANGUAGE_TAGS, "directions": directions})
    save_file(stored_tensors(shape, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_multilingual(folder: Path, family: str, tokenizer: object, seed: int = 2) -> Path:
    """An mBART-50, M2M-100 or NLLB checkpoint with the given tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    languages = getattr(tokenizer, "lang_code_to_id", None) or {"": 0}
    shape = architecture(family, max(len(tokenizer), *languages.values()) + 1, tokenizer.pad_token_id)
    end = tokenizer.eos_token_id
    name = {"mbart": "MBartForConditionalGeneration", "m2m_100": "M2M100ForConditionalGeneration"}[family]
    settings = {"decoder_start_token_id": end, "eos_token_id": end, "forced_eos_token_id": end}
    write_json(folder / "config.json", shape.config | {"architectures": [name], "dtype": "float32"} | settings)
    write_json(
        folder / "generation_config.json", {**settings, "pad_token_id": shape.padding, "max_length": 16, "num_beams": 1}
    )
    save_file(stored_tensors(shape, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def mbart50_tokenizer(sentencepiece_model: Path) -> object:
    from transformers import MBart50Tokenizer

    return MBart50Tokenizer(vocab=scored_pieces(sentencepiece_model))


def m2m_tokenizer(sentencepiece_model: Path, folder: Path) -> object:
    from transformers import M2M100Tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    pieces = [piece for piece, _ in scored_pieces(sentencepiece_model)[3:]]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)})
    return M2M100Tokenizer(str(folder / "vocab.json"), str(sentencepiece_model))


def nllb_tokenizer() -> object:
    """NLLB's tokenizer over single characters: enough for its language codes."""
    from transformers import NllbTokenizer
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    characters = sorted({c for texts in own_sentences().values() for text in texts for c in text} | {"▁"})
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(c for c in characters if c != " "), *FAIRSEQ_LANGUAGE_CODES, "<mask>"]
    return NllbTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[])


def t5_tokenizer(sentencepiece_model: Path, tags: tuple[str, ...] = ()) -> object:
    """T5's tokenizer; with tags, as MADLAD-400 has them, each of which is a piece."""
    from transformers import T5Tokenizer

    special = [(token, 0.0) for token in ("<pad>", "</s>", "<unk>", *tags)]
    return T5Tokenizer(vocab=[*special, *scored_pieces(sentencepiece_model)[3:]], extra_ids=0)


def bart_tokenizer() -> object:
    """BART's byte-level tokenizer without merges: one token a byte."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import BartTokenizer

    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    return BartTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[])


def pasted(model: Any, source: str | None, target: str | None, sentences: list[str], batch: int = 1) -> tuple[Any, Any]:
    """What the printed lines of ``speedup`` give for a greedy choice: their own result, and `generate`'s where there is one."""
    from fastdecode_lib.training.speedup import Speedup, direction_in_generate

    greedy = {"decoder": "greedy", "projection": "exact", "precision": "float32"}
    about = {"model": model.name, "source": source, "target": target, "batch": batch}
    lines = Speedup(None, greedy, None, about, direction_in_generate(model, source, target)).lines(greedy)
    assert lines[0].startswith("  fastdecode translate --model ") and not lines[1]
    results, names = [], {"sentences": sentences}
    for block in "\n".join(line[2:] for line in lines[2:]).split("\n\n"):
        *before, last = block.splitlines()
        exec("\n".join(before), names)
        results.append(eval(last, names))
    return results[0], results[1] if len(results) > 1 else None


def write_corpus(folder: Path, pairs: int = 200) -> Path:
    """A corpus of invented pairs in the layout of `fastdecode_lib.text.corpus`: every word has one translation."""
    random = np.random.default_rng(7)
    words = {"en": [a + b for a in ("ba", "do", "ki", "lu") for b in ("n", "ra", "sti", "mo", "f")]}
    words |= {"de": [f"{w}en" for w in words["en"]], "fr": [f"le{w}" for w in words["en"]]}
    words["es"] = [f"{w}o" for w in words["en"]]
    (folder / "tatoeba").mkdir(parents=True)
    for split, count in (("train", pairs), ("dev", 12), ("test", 8)):
        chosen = [random.integers(0, 20, size=random.integers(2, 7)) for _ in range(count)]
        for other in FOREIGN:
            lines = [
                "\t".join(" ".join(words[language][i] for i in sentence) + "." for language in ("en", other))
                for sentence in chosen
            ]
            with gzip.open(folder / "tatoeba" / f"{split}.en-{other}.tsv.gz", "wt", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
    return folder
