"""Training the word-based recurrent models of Devlin (2017): their vocabularies, lexicon, loss and checkpoint."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastdecode_lib.core import Constraints, drain
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.models.recurrent import WEIGHT_LIMIT, Network, Recurrent, first_weights
from fastdecode_lib.projections.exact_torch import Exact
from fastdecode_lib.store import atomic_folder
from fastdecode_lib.text import words
from fastdecode_lib.text.corpus import Pair, Tatoeba, join_pairs
from fastdecode_lib.text.words import Vocabulary, WordText, split_words
from fastdecode_lib.training.learner import (
    Examples,
    SmoothedLoss,
    TranslationLearner,
    Translator,
    autocast,
    kept_examples,
)
from fastdecode_lib.training.presets import RecurrentPreset

LONGEST_ON_DEV = 120
"""Words of a dev translation, at most: an untrained model does not stop."""


class RecurrentLearner(TranslationLearner):
    """Trains a `RecurrentPreset` in float32; the output's products are in bfloat16 where the hardware has it.

    Weights are clipped to [-1, 1] after every update (sec. 4.1).
    """

    padding = -1

    def __init__(self, preset: RecurrentPreset, corpus: Tatoeba, work: Path, device: str, seed: int):
        self.preset, self.corpus, self.device = preset, corpus, device
        self.text, self.examples = prepare_words(preset, corpus, work, seed)
        self.shape = replace(
            preset.shape, source_vocabulary=len(self.text.source.tokens), vocabulary=len(self.text.target.tokens)
        )
        self.parameters = {
            name: tensor.to(device).requires_grad_() for name, tensor in first_weights(self.shape, seed).items()
        }

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Smoothed cross-entropy per target token, each predicted from the true words before it."""
        network, real = Network(self.shape, self.parameters, self.preset.dropout), target >= 0
        inputs = torch.cat([torch.full_like(target[:, :1], words.START), target[:, :-1].clamp_min(0)], 1)
        memory = network.encode(source.clamp_min(0), (source >= 0).sum(1))
        hidden, _, _ = network.decode(memory, inputs, network.first_states(len(inputs)))
        matrix = self.parameters["output.V"]
        with autocast(self.device):
            return SmoothedLoss.apply(hidden[real], matrix, target[real], len(matrix), self.preset.label_smoothing)

    @torch.no_grad()
    def after_update(self) -> None:
        """Clip every weight."""
        weights = list(self.parameters.values())
        torch._foreach_clamp_min_(weights, -WEIGHT_LIMIT)
        torch._foreach_clamp_max_(weights, WEIGHT_LIMIT)

    def translator(self, weights: dict[str, torch.Tensor], source: str, target: str) -> Translator:
        """A function that translates texts with these weights, unknown words replaced."""
        model = Recurrent(self.shape, weights, self.device)
        projection = Exact.of(model)
        longest = min(LONGEST_ON_DEV, self.shape.max_positions)
        rules = Constraints((words.START,), (words.END,), longest, banned=(words.START,))

        def translated(texts: list[str]) -> list[str]:
            hypotheses = drain(Greedy().iterate(model, projection, self.text.encode(texts, source, target), rules))
            return self.text.texts(model, texts, [hypothesis.tokens for hypothesis in hypotheses])

        return translated

    def export(self, weights: dict[str, torch.Tensor], folder: Path) -> None:
        """Write the directory of a checkpoint."""
        write_checkpoint(folder, self.shape, weights, self.text)


def write_checkpoint(folder: Path, shape: Any, weights: Mapping[str, torch.Tensor], text: Any) -> None:
    """Write a checkpoint: weights, settings, rules of generation and vocabularies."""
    from safetensors.torch import save_file

    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, folder / "model.safetensors"
    )
    config = {**shape.config, **words.GENERATION, "max_length": shape.max_positions}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    text.save(folder)


def prepare_words(preset: RecurrentPreset, corpus: Tatoeba, work: Path, seed: int) -> tuple[WordText, Examples]:
    """Vocabularies, lexicon and encoded training examples, made once and then read from `work`.

    The vocabularies and the lexicon are counted on the single pairs, so that models of other seeds share them.
    """
    (direction,) = preset.directions
    single: list[Pair] = []
    if not (work / "words").exists() or not (work / "examples.npz").exists():
        single = corpus.pairs("train", *direction)
    if not (work / "words").exists():
        with atomic_folder(work / "words") as temporary:
            _count(preset, single).save(temporary)
    text = WordText.load(work / "words")

    def encode() -> Examples:
        joined = join_pairs(single, seed=seed, count=int(len(single) * preset.joined_share))
        sources, targets = _ids(text, [*single, *joined])
        return Examples.of(sources, targets, preset.shape.max_positions)

    return text, kept_examples(work, encode)


def _count(preset: RecurrentPreset, pairs: Sequence[Pair]) -> WordText:
    """The most frequent words of both sides, and the best translations of each source word by IBM model 1."""
    (direction,) = preset.directions
    source, target = (
        Vocabulary.count((split_words(pair[side], direction[side]) for pair in pairs), size)
        for side, size in enumerate((preset.shape.source_vocabulary, preset.shape.vocabulary))
    )
    text = WordText(direction, source, target)
    sizes = {"source_vocabulary": len(source.tokens), "vocabulary": len(target.tokens)}
    sources, targets = _ids(text, pairs)
    fitted = Lexicon.fit([row[:-1] for row in sources], [row[:-1] for row in targets], **sizes)
    words_only = (fitted.owners >= len(words.SPECIAL)) & (fitted.ids >= len(words.SPECIAL))
    lexicon = Lexicon.of_entries(
        fitted.owners[words_only], fitted.ids[words_only], fitted.probabilities[words_only], **sizes
    ).pruned(preset.translations)
    return replace(text, lexicon=lexicon)


def _ids(text: WordText, pairs: Sequence[Pair]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Ids of both sides of sentence pairs, each with its end."""
    sides = ((text.source, text.direction[0]), (text.target, text.direction[1]))
    source, target = (
        [np.array(vocabulary.encode(split_words(pair[side], language)), dtype=np.uint16) for pair in pairs]
        for side, (vocabulary, language) in enumerate(sides)
    )
    return source, target
