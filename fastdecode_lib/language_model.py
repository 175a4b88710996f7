"""Language models: text in, word-for-word probabilities out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.batching import several
from fastdecode_lib.checkpoints.folder import Checkpoint
from fastdecode_lib.checkpoints.generation import constraints_of
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.checkpoints.language import LANGUAGE
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Constraints, Projection
from fastdecode_lib.store import ModelFiles
from fastdecode_lib.text.tokenizers import padded
from fastdecode_lib.text.words import START, LanguageText

BATCH = 64
"""Texts fed together."""
RECORDED = "text"
"""Name of the direction of a language model's contexts in `fastdecode record`."""


@dataclass(frozen=True)
class LanguageModel:
    """A loaded language model with its vocabulary.

    Attributes
    ----------
    name : str
    network : Model
    text : LanguageText
    checkpoint : Checkpoint
    """

    name: str
    network: Any
    text: LanguageText
    checkpoint: Checkpoint

    def __repr__(self) -> str:
        return f"LanguageModel({self.name!r})"

    @cached_property
    def exact(self) -> Projection:
        """The full vocabulary projection."""
        return registry.projection("exact", self.network)

    @property
    def constraints(self) -> Constraints:
        """The checkpoint's own rules for outputs."""
        return constraints_of(
            self.name,
            self.checkpoint.config,
            vocabulary=self.network.outputs[0].vocabulary,
            room=self.network.max_target,
        )

    def hidden(self, rows: Sequence[np.ndarray]) -> list[Any]:
        """The hidden vectors (T, D) that predict each word of texts as ids (T,), from the true words before it."""
        vectors: list[Any] = [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), BATCH):
            indices = order[start : start + BATCH]
            inputs = padded([[START, *rows[i][:-1]] for i in indices], -1).ids
            no_source = padded([[]] * len(indices), 0)
            prefix = np.full((len(indices), 1), START, dtype=np.int64)
            state = self.network.start(self.network.encode(no_source), prefix, inputs.shape[1])
            hidden = self.network.step(state, inputs)
            for row, i in enumerate(indices):
                vectors[i] = hidden[row, : len(rows[i])]
        return vectors

    def projection(self, spec: str | Projection) -> Projection:
        """A projection from its spec, as in ``"quantised"`` or ``"screened:file=DIR"``; a projection is returned as it is."""
        if spec == "exact":
            return self.exact
        files = ModelFiles(self.checkpoint, (None, RECORDED), end=self.constraints.end)
        return registry.projection(spec, self.network, files)

    def log_probs(self, texts: Iterable[str], projection: str | Projection = "exact") -> list[np.ndarray]:
        """Log-probabilities (T,) of the words of each text and its end, under the full vocabulary or another projection.

        Parameters
        ----------
        projection : str or Projection
            Under one that does not score every word, those it leaves out have -inf, and the others share all probability.

        Raises
        ------
        ValueError
            If there are no texts, one is too long, or the projection cannot be made.
        """
        if isinstance(texts, str) or not (texts := several(texts)):
            raise ValueError(f"A language model scores a list of texts: got {texts!r}. Give at least one.")
        scorer = self.projection(projection).bind(None)
        rows = self.text.encode(texts)
        longest = max(range(len(rows)), key=lambda i: len(rows[i]))
        if len(rows[longest]) > self.network.max_target:
            raise ValueError(
                f"A text has at most {self.network.max_target} words with its end: got {len(rows[longest])} in text {longest + 1}, "
                f"{str(texts[longest])[:40]!r}... Divide it."
            )
        return [
            scorer.log_probs(hidden, ids[:, None])[:, 0] for hidden, ids in zip(self.hidden(rows), rows, strict=True)
        ]

    def perplexity(self, texts: Iterable[str], projection: str | Projection = "exact") -> float:
        """The exponential of the mean negative log-probability of a word, ends of texts included; see `log_probs`."""
        return float(np.exp(-np.concatenate(self.log_probs(texts, projection)).mean(dtype=np.float64)))


def load_language(name: str, *, device: str = "cpu", dtype: str = "float32") -> LanguageModel:
    """Load a language model: a bundled one, or the folder of a checkpoint.

    Parameters
    ----------
    device, dtype : str
        Options of `loading.load` on the torch engine.

    Raises
    ------
    CheckpointError
        If it cannot be used, or is a translation model.
    ValueError
        If there is no such device or dtype.
    """
    import torch

    from fastdecode_lib.loading import DTYPES, torch_device
    from fastdecode_lib.models.language import Language

    if dtype not in DTYPES:
        raise ValueError(f"Unknown dtype: got {dtype!r}. Use one of {', '.join(DTYPES)}.")
    place = torch_device(device)

    checkpoint = find_checkpoint(name)
    if checkpoint.family != LANGUAGE:
        raise CheckpointError(
            f"{name!r} is a {checkpoint.family} model, which is no language model. Use fastdecode_lib.load."
        )
    network = Language(checkpoint.architecture, checkpoint.tensors(), place, getattr(torch, dtype))
    return LanguageModel(
        str(name), network, LanguageText.load(checkpoint.folder, checkpoint.architecture.vocabulary), checkpoint
    )
