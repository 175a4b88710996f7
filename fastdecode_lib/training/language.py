"""Training word-based LSTM language models: their vocabulary, loss and checkpoint."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from fastdecode_lib.models.language import LanguageNetwork, NoMemory
from fastdecode_lib.models.recurrent import first_weights
from fastdecode_lib.store import atomic_folder
from fastdecode_lib.text import words
from fastdecode_lib.text.corpus import Novels
from fastdecode_lib.text.words import LanguageText, Vocabulary
from fastdecode_lib.training.learner import Examples, Learner, SmoothedLoss, autocast, batches, kept_examples
from fastdecode_lib.training.presets import LanguagePreset
from fastdecode_lib.training.recurrent import write_checkpoint


class LanguageLearner(Learner):
    """Trains a `LanguagePreset` on separate sentences; products are in bfloat16 where the hardware has it."""

    padding = -1

    def __init__(self, preset: LanguagePreset, corpus: Novels, work: Path, device: str, seed: int):
        self.preset, self.device, self.corpus = preset, device, corpus
        self.text, self.examples = prepare_language(preset, corpus, work)
        self.shape = replace(preset.shape, vocabulary=len(self.text.vocabulary.tokens))
        self.parameters = {
            name: tensor.to(device).requires_grad_() for name, tensor in first_weights(self.shape, seed).items()
        }

    def _hidden(self, weights: dict[str, torch.Tensor], target: torch.Tensor, dropout: float = 0.0) -> torch.Tensor:
        """The hidden vectors (N, D) that predict the words of padded sentences (B, T), without padding."""
        network = LanguageNetwork(self.shape, weights, dropout)
        inputs = torch.cat([torch.full_like(target[:, :1], words.START), target[:, :-1].clamp_min(0)], 1)
        hidden, _, _ = network.decode(NoMemory(len(inputs)), inputs, network.first_states(len(inputs)))
        return hidden[target >= 0]

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Cross-entropy per word, each predicted from the true words before it."""
        matrix, bias = self.parameters["output.V"], self.parameters["output.bias"]
        with autocast(self.device):
            hidden = self._hidden(self.parameters, target, self.preset.dropout)
            return SmoothedLoss.apply(
                hidden, matrix, target[target >= 0], len(matrix), self.preset.label_smoothing, bias
            )

    @torch.no_grad()
    def evaluate(self, weights: dict[str, torch.Tensor]) -> dict[str, float]:
        """Mean log-probability of a word of the dev split, and the perplexity, ends of sentences included."""
        rows = self.text.encode(self.corpus.sentences("dev")[: self.preset.dev_single])
        examples = Examples.of([row[:0] for row in rows], rows, self.shape.max_positions - 1)
        total, count = 0.0, 0
        for batch in batches(examples, 2_000, 0, 0):
            _, target = (ids.to(self.device) for ids in examples.batch(batch, self.padding))
            real = target[target >= 0]
            scores = functional.linear(self._hidden(weights, target), weights["output.V"], weights["output.bias"])
            total -= float(functional.cross_entropy(scores, real, reduction="sum"))
            count += len(real)
        return {"dev_log_probability": total / count, "dev_perplexity": float(np.exp(-total / count))}

    def export(self, weights: dict[str, torch.Tensor], folder: Path) -> None:
        """Write the directory of a checkpoint."""
        write_checkpoint(folder, self.shape, weights, self.text)


def prepare_language(preset: LanguagePreset, corpus: Novels, work: Path) -> tuple[LanguageText, Examples]:
    """Vocabulary and encoded training sentences, made once and then read from `work`."""
    if not (work / "words").exists():
        text = LanguageText("en", preset.lower, Vocabulary((), ()))
        vocabulary = Vocabulary.count(map(text.words, corpus.sentences("train")), preset.shape.vocabulary)
        with atomic_folder(work / "words") as temporary:
            replace(text, vocabulary=vocabulary).save(temporary)
    text = LanguageText.load(work / "words")

    def encode() -> Examples:
        kind = np.uint16 if len(text.vocabulary.tokens) <= 65_536 else np.uint32
        rows = [row.astype(kind) for row in text.encode(corpus.sentences("train"))]
        return Examples.of([row[:0] for row in rows], rows, preset.shape.max_positions - 1)

    return text, kept_examples(work, encode)
