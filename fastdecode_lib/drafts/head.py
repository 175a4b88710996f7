"""Draft heads: a small network on a frozen model that predicts the tokens behind the one just verified.

With the model's hidden vector h, from which token y was chosen, and the source's vectors s (`core.Vectors`)::

    u = tanh(enter h)                                    once a pass
    u = GRU(u, embedding[y])                             for y and each token drafted behind it
    c = sum of alpha (value s),  alpha = softmax(query u . key s)
    z = outer relu(inner [u; c])
    logits = rows z + bias                               the model's own output rows of the draft vocabulary

So a draft sees the token verified, the drafts before it and the source. The model itself, and so its output, does not change.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.int8 import SCALE, dequantised, quantised
from fastdecode_lib.drafts.table import DraftTableError
from fastdecode_lib.store import atomic_file, note_of, read_tensors

FORMAT, VERSION = "fastdecode-draft-head", 1
HEADS = 4
"""Heads of the attention to the source."""
FILE = "draft-head.safetensors"
ANY = "any"
"""Key of the vocabulary of a model that names no target languages."""


class DraftHeadError(DraftTableError):
    """A draft head cannot be used: it is damaged, or made for another model."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a draft head.

    Attributes
    ----------
    hidden, source : int
        Widths of the model's hidden vectors and of its source's vectors.
    tokens : int
        Target vocabulary of the model.
    embedding, width, inner : int
        Widths of the head's token embeddings, of its state, and of the layer before its output.
    """

    hidden: int
    source: int
    tokens: int
    embedding: int = 64
    width: int = 256
    inner: int = 512

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor by name."""
        d = self.width
        return {
            "embedding": (self.tokens, self.embedding),
            "enter.weight": (d, self.hidden),
            "enter.bias": (d,),
            "state.weight": (3 * d, d),
            "token.weight": (3 * d, self.embedding),
            "token.bias": (3 * d,),
            "query.weight": (d, d),
            "key.weight": (d, self.source),
            "value.weight": (d, self.source),
            "inner.weight": (self.inner, 2 * d),
            "inner.bias": (self.inner,),
            "outer.weight": (self.hidden, self.inner),
            "outer.bias": (self.hidden,),
        }


@dataclass(frozen=True)
class DraftHead:
    """A trained draft head.

    Attributes
    ----------
    shape : Shape
    tensors : dict of name to float32 array
        Weights, named as in `Shape.tensors`.
    vocabularies : dict of target language to int64 array
        The ids that drafts are taken from, ascending; `ANY` where the model names no languages.
    about : dict
        ``fingerprint`` of the model and how the head was trained.
    """

    shape: Shape
    tensors: dict[str, np.ndarray]
    vocabularies: dict[str, np.ndarray]
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = self.shape.tensors
        problems = [name for name, size in shapes.items() if getattr(self.tensors.get(name), "shape", None) != size]
        problems += sorted(set(self.tensors) - set(shapes))
        problems += ["width, no multiple of the heads"] if self.shape.width % HEADS else []
        problems += [n for n, tensor in self.tensors.items() if n not in problems and not np.isfinite(tensor).all()]
        for language, ids in self.vocabularies.items():
            ascending = ids.ndim == 1 and len(ids) and (np.diff(ids) > 0).all()
            if not ascending or not 0 <= ids[0] <= ids[-1] < self.shape.tokens:
                problems.append(f"the vocabulary of {language}")
        if problems or not self.vocabularies:
            raise DraftHeadError(
                f"The parts of a draft head do not fit each other: got {', '.join(problems) or 'no vocabulary'} of other sizes "
                f"than {self.shape} asks for, or not finite. Train it again with `fastdecode draft-head`."
            )

    def vocabulary_of(self, target: str | None) -> np.ndarray | None:
        """The draft vocabulary of a target language, or of a model that names none; None if the head was not trained for it."""
        ids = self.vocabularies.get(target or ANY, self.vocabularies.get(ANY))
        only_ids = next(iter(self.vocabularies.values())) if target is None and len(self.vocabularies) == 1 else None
        return only_ids if ids is None else ids

    def check_fits(self, hidden: int, tokens: int) -> None:
        """Refuse a model of other sizes.

        Raises
        ------
        DraftHeadError
        """
        if (hidden, tokens) != (self.shape.hidden, self.shape.tokens):
            raise DraftHeadError(
                f"The draft head is of another model: it knows hidden vectors of {self.shape.hidden} and {self.shape.tokens} "
                f"tokens, the model has {hidden} and {tokens}. Train one for this model with `fastdecode draft-head`."
            )

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, its matrices as int8 with a float16 scale for each row."""
        from safetensors.numpy import save_file

        narrow = np.uint16 if self.shape.tokens <= 1 << 16 else np.int32
        ids = {f"vocabulary.{name}": ids.astype(narrow) for name, ids in self.vocabularies.items()}
        tensors = quantised(self.tensors)
        tensors |= {name: tensor.astype(np.float16) for name, tensor in tensors.items() if name.endswith(SCALE)}
        header = {"version": VERSION, "shape": vars(self.shape), "about": self.about}
        with atomic_file(path) as temporary:
            save_file(tensors | ids, temporary, metadata={FORMAT: json.dumps(header, sort_keys=True)})

    @classmethod
    def load(cls, path: str | Path) -> "DraftHead":
        """Read what `save` wrote.

        Raises
        ------
        DraftHeadError
            If the file is missing, damaged or no draft head.
        """
        again = "Train it again with `fastdecode draft-head`."
        tensors, metadata = read_tensors(path, DraftHeadError, again)
        header = note_of(metadata, FORMAT)
        if header.get("version") != VERSION:
            raise DraftHeadError(f"Not a draft head of version {VERSION}: {path}. {again}")
        try:
            vocabularies = {
                name.removeprefix("vocabulary."): tensors.pop(name).astype(np.int64)
                for name in list(tensors)
                if name.startswith("vocabulary.")
            }
            floats = {name: t.astype(np.float32) if t.dtype == np.float16 else t for name, t in tensors.items()}
            return cls(Shape(**header["shape"]), dequantised(floats), vocabularies, dict(header["about"]))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DraftHeadError):
                raise
            raise DraftHeadError(f"The draft head is damaged: {path}: {error!r}. {again}") from error
