"""Conversion of weights in PyTorch's own format into safetensors, once, in a cache folder."""

import hashlib
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

from fastdecode_lib.checkpoints.folder import indexed_files
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.store import atomic_folder, user_cache

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
COPIED = (".json", ".spm", ".model", ".txt")
"""Suffixes of the files that are copied along with the weights."""


def lacks_safetensors(folder: Path) -> bool:
    """Whether a folder has weights only in PyTorch's format."""
    stored = any((folder / f"model.safetensors{ending}").is_file() for ending in ("", ".index.json"))
    return not stored and ((folder / WEIGHTS).is_file() or (folder / INDEX).is_file())


def converted(folder: Path) -> Path:
    """A cached folder with the same model in safetensors, made on the first call.

    ``torch.load(weights_only=True)`` reads the file: it builds tensors, runs no code of the file and refuses anything else. The
    folder is named by the SHA-256 sum of all files, so that a changed setting gives another folder.

    Raises
    ------
    CheckpointError
        If the weights are damaged, or hold anything but tensors.
    """
    files = _weight_files(folder)
    digest = hashlib.sha256()
    for path in (*files, *_copied_files(folder)):
        digest.update(path.name.encode())
        with path.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    target = user_cache() / "converted" / digest.hexdigest()[:32]
    if not (target / "config.json").is_file():
        try:
            _convert(folder, files, target)
        except OSError as error:
            raise CheckpointError(
                f"{folder} could not be converted into the cache {target}: {error.strerror or error}. Make room, or set "
                "XDG_CACHE_HOME to a folder that can be written."
            ) from error
        warnings.warn(
            f"{folder} has no safetensors: its {', '.join(path.name for path in files)} (SHA-256 of all {digest.hexdigest()}) "
            f"was converted once, into {target}.",
            stacklevel=2,
        )
    return target


def _copied_files(folder: Path) -> list[Path]:
    """Settings and tokenizer files."""
    return sorted(path for path in folder.iterdir() if path.suffix in COPIED and path.name != INDEX and path.is_file())


def _weight_files(folder: Path) -> list[Path]:
    files = indexed_files(folder / INDEX)
    if not all(path.is_file() for path in files):
        names = ", ".join(path.name for path in files)
        raise CheckpointError(f"{folder / INDEX} names files that its folder lacks: got {names}. Copy them too.")
    return files or [folder / WEIGHTS]


def _convert(folder: Path, files: list[Path], target: Path) -> None:
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    for path in files:
        tensors |= _read_tensors(path)
    with atomic_folder(target) as temporary:
        for path in _copied_files(folder):
            shutil.copyfile(path, temporary / path.name)
        # Tied tensors share memory, which safetensors cannot store: each is copied.
        save_file(
            {name: tensor.clone().contiguous() for name, tensor in tensors.items()}, temporary / "model.safetensors"
        )


def _read_tensors(path: Path) -> dict[str, Any]:
    import torch

    try:
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises many kinds of errors for damaged or hostile files
        raise CheckpointError(
            f"The weights {path} could not be read as tensors alone: got {type(error).__name__}: {str(error)[:200]}. Only tensors "
            "are read, since anything else can run code; copy the file again, or save the model with save_pretrained."
        ) from error
    if not isinstance(stored, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in stored.items()
    ):
        raise CheckpointError(
            f"The weights {path} hold more than named tensors: got {type(stored).__name__}. Save the model with transformers' "
            "save_pretrained."
        )
    return stored
