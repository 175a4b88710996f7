"""Parts of every kind of training: encoded examples in batches, a learner, and a smoothed loss."""

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fastdecode_lib.checkpoints.folder import Checkpoint
from fastdecode_lib.measuring.provenance import cpu_features
from fastdecode_lib.measuring.quality import quality
from fastdecode_lib.models.lstm_layer import product_dtype
from fastdecode_lib.store import atomic_file
from fastdecode_lib.text.corpus import Tatoeba, join_pairs

SHARED = "model.shared.weight"
"""The trained name of an embedding that encoder, decoder and output share."""
LENGTH = "length.weight"
"""The trained name of the matrix that predicts the length of an output (Mask-Predict)."""
VOCABULARY_FILES = (
    "source.spm",
    "target.spm",
    "vocab.json",
    "tokenizer_config.json",
    "vocabulary.json",
    "lexicon.safetensors",
)


Translator = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Examples:
    """Encoded training pairs: all ids in one flat array each, with the offsets of the rows (N + 1,)."""

    source: np.ndarray
    source_offsets: np.ndarray
    target: np.ndarray
    target_offsets: np.ndarray

    @classmethod
    def of(cls, sources: list[np.ndarray], targets: list[np.ndarray], longest: int) -> "Examples":
        """The pairs whose sides both have at most `longest` ids."""
        fits = [i for i in range(len(sources)) if max(len(sources[i]), len(targets[i])) <= longest]
        return cls(*_flatten([sources[i] for i in fits]), *_flatten([targets[i] for i in fits]))

    def batch(self, rows: np.ndarray, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Padded ids of these rows: source (B, S) and target (B, T), int64."""
        return (
            _padded(self.source, self.source_offsets, rows, padding),
            _padded(self.target, self.target_offsets, rows, padding),
        )


def autocast(device: str) -> Any:
    """Matrix products in bfloat16 where the hardware has it; emulation is many times slower than float32."""
    kind = torch.device(device).type
    able = kind != "cpu" or not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(cpu_features())
    return torch.autocast(kind, torch.bfloat16, enabled=able)


def new_marian(preset: Any, padding: int, end: int, dropout: float = 0.0) -> Any:
    """An untrained MarianMTModel of a preset's sizes, whose targets start with padding and close with an end."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=preset.vocabulary,
        max_position_embeddings=preset.max_positions,
        encoder_layers=preset.encoder_layers,
        decoder_layers=preset.decoder_layers,
        encoder_attention_heads=preset.heads,
        decoder_attention_heads=preset.heads,
        encoder_ffn_dim=preset.feed_forward,
        decoder_ffn_dim=preset.feed_forward,
        d_model=preset.width,
        dropout=dropout,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=padding,
        eos_token_id=end,
        decoder_start_token_id=padding,
        forced_eos_token_id=end,
    )
    return MarianMTModel._from_config(config, attn_implementation="eager")


@torch.no_grad()
def begin_as(parameters: dict[str, torch.Tensor], base: Checkpoint) -> None:
    """Set parameters to the weights of a checkpoint of the same shape.

    The matrix that predicts lengths, which only Mask-Predict has, may be missing and then stays as it is.

    Raises
    ------
    ValueError
        If a tensor is missing or has another shape.
    """
    stored = base.tensors()
    shared = stored.get("lm_head.weight")
    for name, parameter in parameters.items():
        tensor = stored.get(name, shared if name == SHARED else None)
        if tensor is None and name == LENGTH:
            continue
        if tensor is None or tensor.shape != parameter.shape:
            found = "no such tensor" if tensor is None else f"shape {tuple(tensor.shape)}"
            raise ValueError(
                f"A run begins with weights of its own shape: {name} is {tuple(parameter.shape)}, and {base.name} has {found}. "
                "Give a model that was trained by the same preset."
            )
        parameter.copy_(tensor)


def copy_vocabulary(base: Path, folder: Path) -> None:
    """Copy the vocabulary files that a checkpoint has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in VOCABULARY_FILES:
        if (base / name).is_file():
            with atomic_file(folder / name) as temporary:
                shutil.copyfile(base / name, temporary)


class Learner:
    """Base of what trains a kind of model: its data, its network and its checkpoint.

    Attributes
    ----------
    examples : Examples
    padding : int
        Fills the rows of a batch.
    parameters : dict of name to tensor
        Trained in place.
    """

    examples: Examples
    padding: int
    parameters: dict[str, Any]

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss per target token of a padded batch (B, S), (B, T), to be differentiated."""
        raise NotImplementedError

    def after_update(self) -> None:
        """Bring the parameters back within their bounds, if they have any."""

    def evaluate(self, weights: dict[str, torch.Tensor]) -> dict[str, float]:
        """Scores of a network of these weights on the dev split, the preset's `measure` among them; higher is better."""
        raise NotImplementedError

    def export(self, weights: dict[str, torch.Tensor], folder: Path) -> None:
        """Write a checkpoint of these weights that `load` opens."""
        raise NotImplementedError


class TranslationLearner(Learner):
    """Base of learners of translation: chrF on dev sentences, single and joined."""

    preset: Any
    corpus: Tatoeba

    def translator(self, weights: dict[str, torch.Tensor], source: str, target: str) -> Translator:
        """A function that translates texts with a network of these weights, by the model's usual decoder."""
        raise NotImplementedError

    @torch.no_grad()
    def translate(self, weights: dict[str, torch.Tensor], texts: list[str], source: str, target: str) -> list[str]:
        """Translations by a network of these weights, in batches of similar length."""
        translated, outputs = self.translator(weights, source, target), [""] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for rows in (order[start : start + 64] for start in range(0, len(order), 64)):
            for i, text in zip(rows, translated([texts[i] for i in rows]), strict=True):
                outputs[i] = text
        return outputs

    def evaluate(self, weights: dict[str, torch.Tensor]) -> dict[str, float]:
        """Score each direction by chrF, and ``dev_chrf``, their mean."""
        scores = {}
        for source, target in self.preset.directions:
            pairs = self.corpus.pairs("dev", source, target)
            sample = pairs[:: max(1, len(pairs) // self.preset.dev_single)][: self.preset.dev_single]
            sample += join_pairs(pairs, seed=0)[: self.preset.dev_joined]
            outputs = self.translate(weights, [a for a, _ in sample], source, target)
            scores[f"{source}-{target}"] = quality(outputs, [b for _, b in sample], target)[1]
        return {"dev_chrf": float(np.mean(list(scores.values()))), **scores}


def _padded(flat: np.ndarray, offsets: np.ndarray, rows: np.ndarray, padding: int) -> torch.Tensor:
    lengths = offsets[rows + 1] - offsets[rows]
    places = np.arange(lengths.max())
    indices = np.minimum(offsets[rows, None] + places, len(flat) - 1)
    return torch.from_numpy(np.where(places < lengths[:, None], flat[indices].astype(np.int64), padding))


def _flatten(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(rows), np.concatenate([[0], np.cumsum([len(row) for row in rows])])


def kept_examples(work: Path, make: Callable[[], Examples]) -> Examples:
    """The encoded training examples, made once and then read from `work`."""
    encoded = work / "examples.npz"
    if not encoded.exists():
        arrays = asdict(make())
        with atomic_file(encoded) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
    try:
        with np.load(encoded) as arrays:
            return Examples(**arrays)
    except (OSError, zipfile.BadZipFile, ValueError, TypeError, EOFError) as error:
        raise ValueError(f"{encoded} is damaged: {error!r}. Delete it, and it is made again.") from error


def batches(examples: Examples, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """One epoch's batches in random order: rows of similar length, at most `tokens` padded target tokens."""
    random = np.random.default_rng((seed, epoch))
    target = np.diff(examples.target_offsets)
    source = np.diff(examples.source_offsets)
    order = np.lexsort((random.random(len(target)), source, target))
    cuts, start, longest = [], 0, 0
    for position, row in enumerate(order):
        longest = max(longest, int(target[row]), int(source[row]))
        if (position - start + 1) * longest > tokens:
            cuts.append(order[start:position])
            start, longest = position, max(int(target[row]), int(source[row]))
    cuts.append(order[start:])
    random.shuffle(cuts)
    return [rows for rows in cuts if len(rows)]


# ----------------------------------------------------------------------------------------------------- training


class SmoothedLoss(torch.autograd.Function):
    """Label-smoothed cross-entropy of an output matrix; on a CPU, softmax takes a few rows at a time, which fit its cache.

    The value is the plain negative log-likelihood per token; the gradient is that of the smoothed loss. The rows of the matrix
    from `classes` on (padding) receive no gradient, so that the embedding of padding, with which decoding starts, stays the
    zero vector. Under autocast, products and probabilities are in its precision. The gradient of all scores (N, V) is kept
    until both of its products are computed.
    """

    ROWS = 128

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        classes: int,
        smoothing: float,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden (N, D), weight (V, D), target (N,), bias (V,) -> mean negative log-likelihood, a scalar."""
        dtype = product_dtype(hidden)
        rows, matrix = hidden.to(dtype), weight[:classes].to(dtype)
        gradients = rows.new_empty(len(hidden), classes)
        total = hidden.new_zeros((), dtype=torch.float32)
        bias_row = None if bias is None else bias[:classes].to(dtype)
        step = SmoothedLoss.ROWS if hidden.device.type == "cpu" else max(1, len(hidden))
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, len(hidden), step):
                rows_of_step = slice(start, start + step)
                gold, gradient = target[rows_of_step, None], gradients[rows_of_step]
                torch.softmax(functional.linear(rows[rows_of_step], matrix, bias_row), -1, out=gradient)
                total -= gradient.gather(1, gold).float().clamp_min(1e-30).log().sum()
                gradient.scatter_add_(1, gold, gradient.new_full(gold.shape, smoothing - 1))
        # Smoothing subtracts the same from every score of a row, so that its products are sums.
        share = smoothing / classes
        grad_bias = None if bias is None else gradients.sum(0, dtype=torch.float32) - share * len(hidden)
        grad_weight = torch.zeros_like(weight)
        grad_weight[:classes] = (gradients.T @ rows).to(weight.dtype) - share * rows.sum(0, dtype=weight.dtype)
        grad_hidden = (gradients @ matrix).to(hidden.dtype) - share * matrix.sum(0, dtype=weight.dtype).to(hidden.dtype)
        ctx.save_for_backward(*(None if g is None else g / len(hidden) for g in (grad_hidden, grad_weight, grad_bias)))
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients computed in `forward`, scaled."""
        grad_hidden, grad_weight, grad_bias = (None if g is None else g * grad for g in ctx.saved_tensors)
        return grad_hidden, grad_weight, None, None, None, grad_bias
