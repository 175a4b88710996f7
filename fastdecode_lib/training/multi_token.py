"""Training the systems of Imamura and Sumita (2020)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.int8 import quantised
from fastdecode_lib.checkpoints.transformer import OWN, Architecture
from fastdecode_lib.core import Constraints, drain
from fastdecode_lib.decoding.folding import folded
from fastdecode_lib.models.transformer import Transformer
from fastdecode_lib.store import atomic_file
from fastdecode_lib.text.corpus import Tatoeba, join_pairs
from fastdecode_lib.text.tokenizers import padded
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
from fastdecode_lib.training.presets import GroupPreset, place_of

END, UNKNOWN, PADDING = range(3)
"""Special ids of the joint SentencePiece model; padding starts every slot of the first group, and masks."""
SPECIAL = {"bos_id": -1, "eos_id": END, "unk_id": UNKNOWN, "pad_id": PADDING}
"""The same as options of SentencePiece."""
LONGEST_ON_DEV = 129
LENGTH_WEIGHT = 0.1
"""Weight of the length's loss; the tokens' loss has 1."""
TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
"""The names of the one embedding, stored as ``model.shared.weight``."""


class GroupLearner(TranslationLearner):
    """Trains a `GroupPreset`: transformers' MarianMTModel with other masks, in bfloat16 where the hardware has it."""

    padding = PADDING

    def __init__(self, preset: GroupPreset, corpus: Tatoeba, work: Path, device: str, seed: int):
        self.preset, self.corpus, self.device = preset, corpus, device
        self.pieces_file = _kept_pieces(preset, corpus, work, seed)
        self.pieces = load_pieces(self.pieces_file.read_bytes())
        self.examples = kept_examples(work, lambda: _encoded(preset, corpus, self.pieces, work, seed, device))
        self.architecture = architecture_of(preset)
        torch.manual_seed(seed)
        self.model = _new_model(preset).to(device)
        self.parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        groups = torch.arange(preset.max_positions, device=device) // preset.tokens_per_step
        self.hidden_groups = torch.zeros(len(groups), len(groups), device=device).masked_fill(
            groups[:, None] < groups, torch.finfo(torch.float32).min
        )
        """Mask (T, T) added to attention scores: the lowest number where a slot must not attend."""

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Smoothed cross-entropy per target token, over all tokens in groups or over the masked ones."""
        self.model.train()
        with autocast(self.device):
            return self._masked_loss(source, target) if self.preset.masked else self._group_loss(source, target)

    def _group_loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Each group is fed the true group before it (sec. 3.2), the first one start symbols."""
        start, slots = torch.full_like(target[:, : self.preset.tokens_per_step], PADDING), target.shape[1]
        inputs = torch.cat([start, target[:, : -self.preset.tokens_per_step]], 1)
        hidden, _ = self._hidden(source, inputs, self.hidden_groups[None, None, :slots, :slots])
        real = target != PADDING
        return self._smoothed(hidden[real], target[real])

    def _masked_loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Some tokens of each target, one to all, are masked and predicted from the others; the length is predicted too."""
        real = target != PADDING
        lengths = real.sum(1)
        order = torch.rand(target.shape, device=target.device).masked_fill(~real, 2.0).argsort(1).argsort(1)
        counts = (torch.rand(len(lengths), device=target.device) * lengths).long() + 1
        masked = order < counts[:, None]
        lowest = torch.finfo(torch.float32).min
        unseen = torch.zeros(target.shape, device=target.device).masked_fill(~real, lowest)[:, None, None]
        unseen = unseen.expand(-1, 1, target.shape[1], -1)
        hidden, memory = self._hidden(source, target.masked_fill(masked, PADDING), unseen)
        real_source = (source != PADDING).unsqueeze(-1)
        mean = (memory * real_source).sum(1) / real_source.sum(1)
        length_loss = functional.cross_entropy(functional.linear(mean, self.model.length.weight).float(), lengths - 1)
        return self._smoothed(hidden[masked], target[masked]) + LENGTH_WEIGHT * length_loss

    def _hidden(self, source: torch.Tensor, fed: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden vectors (B, T, D) of the decoder and (B, S, D) of the encoder."""
        outputs = self.model.model(
            input_ids=source,
            attention_mask=source != PADDING,
            decoder_input_ids=fed,
            decoder_attention_mask=mask,
            use_cache=False,
        )
        return outputs.last_hidden_state, outputs.encoder_last_hidden_state

    def _smoothed(self, hidden: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        matrix = self.model.lm_head.weight
        return SmoothedLoss.apply(hidden, matrix, target, len(matrix), self.preset.label_smoothing)

    def translator(self, weights: dict[str, torch.Tensor], source: str, target: str) -> Translator:
        """A function that translates texts with these weights."""
        model = Transformer(self.architecture, _untied(weights), self.device)
        projection, decoder = registry.projection("exact", model), registry.decoder(registry.usual(model))
        group = self.preset.tokens_per_step
        longest = min(LONGEST_ON_DEV, self.preset.max_positions - group + 1)
        rules = Constraints((PADDING,) * group, (END,), longest, PADDING, banned=(PADDING,), forced_end=True)

        def translated(texts: list[str]) -> list[str]:
            batch = padded([[*row, END] for row in self.pieces.encode(texts)], PADDING)
            hypotheses = drain(decoder.iterate(model, projection, batch, rules))
            rows = [[token for token in hypothesis.tokens if token > PADDING] for hypothesis in hypotheses]
            return [self.pieces.decode(row[::-1] if self.preset.order == "right_to_left" else row) for row in rows]

        return translated

    @property
    def _longest(self) -> int:
        """Slots of the start and of the 99.9th percentile of targets: later positions have hardly been trained."""
        group = self.preset.tokens_per_step
        longest = int(np.quantile(np.diff(self.examples.target_offsets), 0.999))
        longest += self.preset.masked  # whose targets are without their end
        return min(self.preset.max_positions, group * (2 + (longest - 1) // group))

    def export(self, weights: dict[str, torch.Tensor], folder: Path) -> None:
        """Write the directory of a checkpoint, matrices as int8 with a scale for each row."""
        write_checkpoint(folder, self.architecture, _untied(weights), self.preset.directions, self._longest)
        (folder / "source.spm").write_bytes(self.pieces_file.read_bytes())


def write_checkpoint(
    folder: Path,
    architecture: Architecture,
    tensors: Mapping[str, Any],
    directions: Sequence[tuple[str, str]],
    longest: int | None = None,
) -> None:
    """Write a checkpoint without its ``source.spm``: settings, rules of generation, directions and weights.

    `longest` is the most slots of an output, the start included; by default the number of positions.
    """
    from safetensors.numpy import save_file

    untied = [name for name in architecture.tensors if name not in TIED]
    stored = {name: _array(tensors[name]) for name in (*untied, "model.shared.weight")}
    settings = {
        "eos_token_id": END,
        "decoder_start_token_id": [PADDING] * architecture.tokens_per_step,
        "forced_eos_token_id": END,
        "bad_words_ids": [[PADDING]],
        "max_length": longest or architecture.max_positions,
    }
    save_file(quantised(stored), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(architecture.config | settings, indent=2) + "\n", encoding="utf-8")
    note = {"directions": directions, "tags": {}}
    (folder / "fastdecode.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().float().cpu().numpy() if isinstance(tensor, torch.Tensor) else tensor


def architecture_of(preset: GroupPreset) -> Architecture:
    """The architecture of a preset's model."""
    return Architecture.of_marian(
        preset.width,
        preset.feed_forward,
        preset.heads,
        (preset.encoder_layers, preset.decoder_layers),
        preset.vocabulary,
        family=OWN,
        max_positions=preset.max_positions,
        padding=PADDING,
        tokens_per_step=preset.tokens_per_step,
        order=preset.order,
        masked=preset.masked,
    )


class _Positions(nn.Embedding):
    """Learned positions in the place of Marian's sinusoids: an embedding for each slot (sec. 3.1)."""

    def forward(self, shape: Any, past: int = 0, position_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Embeddings (T, D) of the positions."""
        assert position_ids is not None
        return super().forward(position_ids)


def _new_model(preset: GroupPreset) -> Any:
    model = new_marian(preset, PADDING, END, preset.dropout)
    positions = _Positions(preset.max_positions, preset.width)
    with torch.no_grad():
        positions.weight.normal_(0.0, preset.width**-0.5)
    model.model.decoder.embed_positions = positions
    # Padding starts and masks targets, so that its embedding is trained: torch would not update the row of a `padding_idx`.
    for embedding in (model.model.shared, model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
        embedding.padding_idx = None
    if preset.masked:
        model.length = nn.Linear(preset.width, preset.max_positions, bias=False)
    return model


def _untied(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights under every name of an `Architecture`: tied embeddings are trained under one name."""
    return weights | dict.fromkeys(TIED, weights["model.shared.weight"])


def _kept_pieces(preset: GroupPreset, corpus: Tatoeba, work: Path, seed: int) -> Path:
    """The joint SentencePiece model, trained once; presets that differ only in their order have the same one."""
    file = work / "source.spm"
    if not file.exists():
        texts: dict[str, None] = {}
        for source, target in preset.directions:
            for pair in corpus.pairs("train", source, target):
                texts.update(dict.fromkeys(pair))
        with atomic_file(file) as temporary:
            temporary.write_bytes(trained_pieces(texts, preset.vocabulary, seed, hard_vocab_limit=True, **SPECIAL))
    return file


def _encoded(preset: GroupPreset, corpus: Tatoeba, pieces: Any, work: Path, seed: int, device: str) -> Examples:
    """Training pairs: targets in the order of emission, with the ends of their last group, or without ends for a masked model.

    Pairs for which a teacher's output is empty are left out.
    """
    sources: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for number, (source, target) in enumerate(preset.directions):
        pairs = corpus.pairs("train", source, target)
        joined = int(len(pairs) * preset.joined_share)
        pairs += join_pairs(pairs, seed=seed + number, count=joined, sizes=preset.joined_sizes)
        texts, outputs = [a for a, _ in pairs], pieces.encode([b for _, b in pairs])
        if preset.teacher:
            outputs = _teacher_outputs(preset.teacher, texts, (source, target), pieces, work, device)
        for row, output in zip(pieces.encode(texts), outputs, strict=True):
            if output:
                sources.append(np.array([*row, END], dtype=np.uint16))
                targets.append(np.array(_slots(preset, output), dtype=np.uint16))
    return Examples.of(sources, targets, preset.max_positions)


def _teacher_outputs(
    teacher: str, texts: list[str], direction: tuple[str, str], pieces: Any, work: Path, device: str
) -> list[list[int]]:
    """Ids of a teacher's translations of texts, saved during the run; the teacher is trained beside this model, or bundled."""
    from fastdecode_lib.loading import load
    from fastdecode_lib.training.draft_tables import translations
    from fastdecode_lib.translation import Session

    place = place_of(teacher, work.parent)
    if place is None:
        raise ValueError(
            f"The teacher {teacher} has not been trained to its end: got {work.parent / teacher}. Train it first: fastdecode train "
            f"{teacher} --data DIR --folder {work.parent}"
        )
    model = load(place, device=device)
    session, batch = Session.of(model, *direction), 64 if model.engine == "compiled" else 1_024
    _, outputs = translations(session, texts, batch=batch, folder=work / "taught", progress=True)
    translated = model.texts(texts, [[token for token in ids.tolist() if token != END] for ids in outputs])
    return pieces.encode(translated)


def _slots(preset: GroupPreset, tokens: list[int]) -> list[int]:
    if preset.masked:
        return tokens
    tokens = tokens[::-1] if preset.order == "right_to_left" else tokens
    return folded(tokens, END, preset.tokens_per_step, preset.order == "both_ends")
