"""A checkpoint's folder: validated settings and weights. Only safetensors files are read; `conversion` makes them of others."""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.int8 import dequantised
from fastdecode_lib.checkpoints.language import LANGUAGE, LanguageShape
from fastdecode_lib.checkpoints.recurrent import RECURRENT, RecurrentShape
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.transformer import OWN, Architecture
from fastdecode_lib.store import read_json, read_tensors


@dataclass(frozen=True)
class Checkpoint:
    """A folder with ``config.json``, safetensors and tokenizer files.

    Attributes
    ----------
    name : str
        The user's name for it.
    folder : Path
    config, generation : dict
        ``config.json`` and ``generation_config.json`` (None if absent).
    """

    name: str
    folder: Path
    config: dict[str, Any]
    generation: dict[str, Any] | None

    @property
    def rules(self) -> dict[str, Any]:
        """The settings of generation, from ``generation_config.json`` if there is one, else ``config.json``, as in `generate`."""
        settings = self.config if self.generation is None else self.generation
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def family(self) -> str:
        """The Hugging Face model type."""
        return str(self.config.get("model_type"))

    @cached_property
    def architecture(self) -> Any:
        """The model's shape: a `RecurrentShape`, a `LanguageShape`, or for the families of `TRANSFORMERS` an `Architecture`."""
        shape: Any = {RECURRENT: RecurrentShape, LANGUAGE: LanguageShape}.get(self.family, Architecture)
        return shape.from_config(self.config)

    @property
    def text_fingerprint(self) -> str:
        """A hash of the files beside the weights as they are now: tokenizer and rules of generation."""
        digest = hashlib.sha256()
        for file in sorted(
            path for path in self.folder.iterdir() if path.suffix in (".json", ".spm", ".model", ".txt")
        ):
            digest.update(file.name.encode() + file.read_bytes())
        return digest.hexdigest()[:16]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of settings and weights; files fitted on a model are stored under it."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for file in self._same_weights():
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def tensors(self, framework: str = "pt") -> dict[str, Any]:
        """All tensors of the architecture, validated, in the stored precision; int8 is converted to float32.

        Parameters
        ----------
        framework : str
            ``"pt"`` for torch tensors, ``"np"`` for numpy arrays.

        Raises
        ------
        CheckpointError
            If a tensor is missing, unknown, of another shape or type, or holds values that are not finite.
        """
        stored: dict[str, Any] = {}
        for file in self._same_weights():
            stored |= read_tensors(file, CheckpointError, framework=framework)[0]
        architecture = self.architecture
        if self.family in (RECURRENT, LANGUAGE, OWN):
            stored = dequantised(stored)
        if architecture.layers > len(stored):
            raise CheckpointError(
                f"config.json asks for {architecture.layers:,} layers, and the weights of {self.name!r} are {len(stored):,} "
                "tensors. Check that config.json belongs to these weights."
            )
        tensors: dict[str, Any] = {}
        sources: set[str] = set()
        for name, shape in (architecture.tensors | architecture.optional_tensors).items():
            names = architecture.stored_as(name)
            source = next((alias for alias in names if alias in stored), None)
            if source is not None:
                tensors[name] = stored[source]
                sources.add(source)
                _check_shape(source, stored[source], shape)
            elif name in architecture.tensors:
                raise CheckpointError(
                    f"The checkpoint {self.name!r} lacks the tensor {names[0]!r} {shape}. It holds {len(stored)} tensors; "
                    "save the whole model again."
                )
        expected = {alias for name in architecture.tensors for alias in architecture.stored_as(name)} | sources
        extra = sorted(set(stored) - expected)
        if extra:
            raise CheckpointError(
                f"The checkpoint {self.name!r} holds tensors that a {self.family} model of its config.json does not have: "
                f"{', '.join(extra[:5])}{' ...' if len(extra) > 5 else ''}. Check that config.json belongs to these weights."
            )
        for source in sources:
            check_finite(source, stored[source])
        return tensors

    def arrays(self) -> dict[str, Any]:
        """All tensors of the architecture, validated, as float32 numpy arrays; tied tensors are one array."""
        shared: dict[int, Any] = {}
        return {
            name: shared.setdefault(id(array), array.astype(np.float32)) for name, array in self.tensors("np").items()
        }

    def _same_weights(self) -> list[Path]:
        """The files of the weights, as they were when they were read first.

        Raises
        ------
        CheckpointError
            If they were replaced since.
        """
        files = self.weight_files()
        found = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        if vars(self).setdefault("_first_read", found) != found:
            raise CheckpointError(
                f"The weights in {self.folder} were replaced after they were loaded. Load the model again."
            )
        return files

    def weight_files(self) -> list[Path]:
        """The safetensors files of the weights; a missing one raises a `CheckpointError`."""
        files = indexed_files(self.folder / "model.safetensors.index.json") or [self.folder / "model.safetensors"]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise CheckpointError(
                f"The checkpoint {self.name!r} lacks its weights: {', '.join(missing)} not found in {self.folder}. "
                "Give a complete Hugging Face directory, with safetensors or pytorch_model.bin."
            )
        return files


def indexed_files(index: Path) -> list[Path]:
    """The files, in the folder of an index of weights, that it names; empty if there is no index.

    Raises
    ------
    CheckpointError
        If the index is damaged, or names files outside its folder.
    """
    if not index.is_file():
        return []
    weight_map = read_json(index, error=CheckpointError).get("weight_map")
    if not weight_map or not isinstance(weight_map, dict) or not all(isinstance(n, str) for n in weight_map.values()):
        raise CheckpointError(f"{index} does not say which file holds which tensor. Copy it again.")
    names = sorted(set(weight_map.values()))
    if any(Path(name).name != name for name in names):
        raise CheckpointError(f"{index} names files outside its folder: got {names}. Save the model again.")
    return [index.with_name(name) for name in names]


def _check_shape(name: str, tensor: Any, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise CheckpointError(
            f"The tensor {name!r} has shape {tuple(tensor.shape)}, but config.json asks for {shape}. "
            "Check that config.json belongs to these weights."
        )
    if str(tensor.dtype).removeprefix("torch.") not in ("float64", "float32", "float16", "bfloat16"):
        raise CheckpointError(
            f"The tensor {name!r} has type {tensor.dtype}, but weights must be floating point. "
            "Quantised checkpoints are not read; give the original."
        )


def check_finite(name: str, tensor: Any) -> None:
    """Check that all values of a tensor are finite."""
    if not math.isfinite(float(abs(tensor).max())):
        raise CheckpointError(
            f"The tensor {name!r} holds values that are not finite (NaN or infinity). "
            "The checkpoint is damaged or training diverged; use an earlier one."
        )
