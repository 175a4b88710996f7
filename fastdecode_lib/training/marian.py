"""Training of Marian models with Hugging Face: a joint SentencePiece vocabulary, and one model for several directions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from fastdecode_lib.store import atomic_folder
from fastdecode_lib.text.corpus import Tatoeba, join_pairs
from fastdecode_lib.training.learner import (
    Examples,
    SmoothedLoss,
    TranslationLearner,
    Translator,
    autocast,
    kept_examples,
    new_marian,
)
from fastdecode_lib.training.pieces import load_pieces, trained_pieces
from fastdecode_lib.training.presets import LANGUAGE_TAGS, Preset

END, UNKNOWN = "</s>", "<unk>"
PADDING = "<pad>"


def prepare(preset: Preset, corpus: Tatoeba, work: Path, seed: int) -> tuple[Examples, Any]:
    """The tokenizer and the encoded training examples, made once and then read from `work`."""
    from transformers import MarianTokenizer

    tokenizer_folder = work / "tokenizer"
    if not (tokenizer_folder / "vocab.json").exists():
        with atomic_folder(tokenizer_folder) as temporary:
            _train_tokenizer(preset, corpus, temporary, seed)
    tokenizer = MarianTokenizer.from_pretrained(tokenizer_folder)
    return kept_examples(work, lambda: _encode_examples(preset, corpus, tokenizer, seed)), tokenizer


def _train_tokenizer(preset: Preset, corpus: Tatoeba, folder: Path, seed: int) -> None:
    texts: dict[str, None] = {}
    for source, target in preset.directions:
        texts.update(dict.fromkeys(text for text, _ in corpus.pairs("train", source, target)))
    number = preset.vocabulary - len(LANGUAGE_TAGS) - 2
    model = trained_pieces(texts, number, seed, bos_id=-1, eos_id=-1, pad_id=-1, unk_id=0)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model)
    pieces = load_pieces(model)
    tokens = [END, UNKNOWN, *(pieces.id_to_piece(i) for i in range(1, len(pieces))), *LANGUAGE_TAGS.values(), PADDING]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False))


def _encode_examples(preset: Preset, corpus: Tatoeba, tokenizer: Any, seed: int) -> Examples:
    pieces, ids = tokenizer.spm_source, tokenizer.get_vocab()
    unknown, end = ids[UNKNOWN], ids[END]

    def encode(texts: list[str], tag: list[int]) -> Iterator[np.ndarray]:
        for row in pieces.encode(texts, out_type=str):
            yield np.array([*tag, *(ids.get(piece, unknown) for piece in row), end], dtype=np.uint16)

    sources: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for number, (source, target) in enumerate(tqdm(preset.directions, desc="encoding", unit="direction")):
        pairs = corpus.pairs("train", source, target)
        pairs += join_pairs(pairs, seed=seed + number, count=int(len(pairs) * preset.joined_share))
        sources += encode([a for a, _ in pairs], [ids[LANGUAGE_TAGS[target]]])
        targets += encode([b for _, b in pairs], [])
    return Examples.of(sources, targets, preset.max_positions)


class MarianLearner(TranslationLearner):
    """Trains a `Preset`: a MarianMTModel over a joint SentencePiece vocabulary, in bfloat16 where the hardware has it."""

    def __init__(self, preset: Preset, corpus: Tatoeba, work: Path, device: str, seed: int):
        self.preset, self.corpus, self.device = preset, corpus, device
        self.examples, self.tokenizer = prepare(preset, corpus, work, seed)
        self.padding = self.tokenizer.pad_token_id
        torch.manual_seed(seed)
        self.model = _new_model(preset, self.tokenizer).to(device)
        self.parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Smoothed cross-entropy per target token."""
        padding = self.padding
        decoder_input = torch.cat([torch.full_like(target[:, :1], padding), target[:, :-1]], 1)
        real = target != padding
        self.model.train()
        with autocast(self.device):
            hidden = self.model.model(
                input_ids=source, attention_mask=source != padding, decoder_input_ids=decoder_input, use_cache=False
            ).last_hidden_state[real]
            return SmoothedLoss.apply(
                hidden, self.model.lm_head.weight, target[real], padding, self.preset.label_smoothing
            )

    def _with(self, weights: dict[str, torch.Tensor]) -> Any:
        model = _new_model(self.preset, self.tokenizer).to(self.device).eval()
        model.load_state_dict(weights, strict=False)
        return model

    def translator(self, weights: dict[str, torch.Tensor], source: str, target: str) -> Translator:
        """A function that translates texts with these weights."""
        model, longest = self._with(weights), min(129, self.preset.max_positions)

        def translated(texts: list[str]) -> list[str]:
            tagged = [f"{LANGUAGE_TAGS[target]} {text}" for text in texts]
            inputs = self.tokenizer(tagged, return_tensors="pt", padding=True).to(self.device)
            ids = model.generate(**inputs, num_beams=1, do_sample=False, max_length=longest)
            outputs: list[str] = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
            return outputs

        return translated

    def export(self, weights: dict[str, torch.Tensor], folder: Path) -> None:
        """Write a Hugging Face directory: float16 weights in shards under 15 MB, computed in float32 when loaded."""
        self._with(weights).half().save_pretrained(folder, max_shard_size="14MB")
        self.tokenizer.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")


def _new_model(preset: Preset, tokenizer: Any) -> Any:
    from transformers import GenerationConfig

    padding, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    model = new_marian(preset, padding, end, preset.dropout)
    model.generation_config = GenerationConfig(
        bad_words_ids=[[padding]],
        decoder_start_token_id=padding,
        pad_token_id=padding,
        eos_token_id=end,
        forced_eos_token_id=end,
        max_length=preset.max_positions,
        num_beams=1,
    )
    return model
