"""Finding a checkpoint: in a folder, bundled, trained here, or on the Hugging Face hub."""

import difflib
import warnings
from importlib import resources
from pathlib import Path

from fastdecode_lib.checkpoints.conversion import INDEX, WEIGHTS, converted, lacks_safetensors
from fastdecode_lib.checkpoints.folder import Checkpoint
from fastdecode_lib.checkpoints.language import LANGUAGE
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.weights import find_weights, finished_run, read_manifest
from fastdecode_lib.store import read_json

TRAINED = Path("build/train")
"""Folder of training runs."""
PATTERNS = ("*.json", "*.safetensors", "*.spm", "*.model", "*.txt")
CONVERTER = "SFconvertbot"
"""The account that offers safetensors on the hub in pull requests."""


def find_checkpoint(name: str | Path, revision: str | None = None) -> Checkpoint:
    """A bundled model, a Hugging Face directory, or a hub id, with its settings read and checked.

    Weights that are only in PyTorch's own format are converted once, into a cache folder; see `conversion`.

    Parameters
    ----------
    revision : str, optional
        Branch, tag or commit of a hub id.

    Raises
    ------
    CheckpointError
        If there is no such checkpoint, or its settings are unusable.
    """
    folder = _find_folder(str(name), revision)
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise CheckpointError(
            f"{folder.absolute()} is no checkpoint: it has no config.json. Give a Hugging Face model directory."
        )
    if lacks_safetensors(folder):
        folder = converted(folder)
    config = read_json(config_file, error=CheckpointError)
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file, error=CheckpointError) if generation_file.is_file() else None
    checkpoint = Checkpoint(str(name), folder.absolute(), config, generation)
    if not config.get("is_encoder_decoder", False) and checkpoint.family != LANGUAGE:
        raise CheckpointError(
            f"{name!r} is a {checkpoint.family} model, which is no encoder-decoder. Give a translation model "
            "such as tatoeba-small or Helsinki-NLP/opus-mt-en-de."
        )
    return checkpoint


def bundled() -> dict[str, Path]:
    """Names and folders of the models that come with the library."""
    assets = Path(str(resources.files("fastdecode_lib"))) / "assets"
    return {p.name: p for p in sorted(assets.glob("[!.]*")) if (p / "config.json").is_file()}


def _find_folder(name: str, revision: str | None) -> Path:
    assets = bundled()
    is_path = name.count("/") > 1 or name.startswith((".", "/", "~"))
    on_hub = name not in assets and "/" in name and not is_path
    if revision is not None and not (on_hub and not Path(name).exists()):
        raise CheckpointError(f"A revision belongs to a hub id: got revision={revision!r} with {name!r}. Leave it out.")
    if name in assets:
        return assets[name]
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"A checkpoint is a folder, got the file {name!r}. Give the folder that holds it.")
    if on_hub:
        return _from_hub(name, revision)
    run = TRAINED / name
    trained = run / "best" if finished_run(run) else find_weights(name)
    if trained is not None:
        return trained
    if record := next((record for record in read_manifest() if record.name == name), None):
        raise CheckpointError(
            f"The model {name!r} does not come with the library: it has to be trained, which takes an hour or more. Run "
            f"`{record.command} --data DIR`, then give {name!r} or the folder {run}/best."
        )
    if is_path:
        raise CheckpointError(
            f"There is no folder {name!r}. Give the folder of a checkpoint, a bundled name or a hub id."
        )
    similar = difflib.get_close_matches(name, assets, n=1)
    hint = f"Did you mean {similar[0]!r}?" if similar else f"Bundled: {', '.join(assets) or 'none'}."
    raise CheckpointError(
        f"Unknown model: got {name!r}. {hint} A folder or a hub id such as Helsinki-NLP/opus-mt-en-de works "
        "too; `fastdecode train` lists what can be trained, and a checkout of the project has more models in weights/."
    )


def _from_hub(name: str, revision: str | None) -> Path:
    """The snapshot of a hub model: its safetensors, else those of the conversion bot's pull request, else PyTorch's files."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RevisionNotFoundError,
    )

    http_errors = [cls for cls in HfHubHTTPError.__mro__ if cls.__name__ == "HTTPError"]
    """The HTTP library's error without a connection; the hub's client has changed its library more than once."""

    def download(*extra: str, revision: str | None = revision) -> Path:
        return Path(snapshot_download(name, revision=revision, allow_patterns=[*PATTERNS, *extra]))

    try:
        folder = download()
        if any(folder.glob("*.safetensors")):
            return folder
        if HF_HUB_OFFLINE and revision is None:
            snapshots = [path for path in sorted(folder.parent.iterdir()) if (path / "model.safetensors").exists()]
            return snapshots[0] if snapshots else download(WEIGHTS, INDEX, "pytorch_model-*.bin")
        request = _conversion_request(name) if revision is None else None
        if request is not None:
            number, commit = request
            warnings.warn(
                f"{name} has no safetensors on its default branch: those of pull request {number} by its conversion bot are used, "
                f"commit {commit}.",
                stacklevel=3,
            )
            return download(revision=commit)
        return download(WEIGHTS, INDEX, "pytorch_model-*.bin")
    except GatedRepoError as error:
        raise CheckpointError(
            f"The model {name!r} is gated: its owners ask who uses it. Accept their terms on its page, then log in: hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        raise CheckpointError(
            f"The model {name!r} has no such revision: got {revision!r}. Give a branch, a tag or a commit of it."
        ) from error
    except (*http_errors, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        if HF_HUB_OFFLINE:
            raise CheckpointError(
                f"The model {name!r} is not in the cache of the Hugging Face hub, which HF_HUB_OFFLINE keeps from the network. "
                "Unset it, or give a local folder."
            ) from error
        raise CheckpointError(
            f"The model {name!r} could not be fetched from the Hugging Face hub: {type(error).__name__}. Check the name and "
            "the network, or give a local folder."
        ) from error


def _conversion_request(name: str) -> tuple[int, str] | None:
    """The number and commit of the open pull request in which the hub's conversion bot offers safetensors."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        for request in api.get_repo_discussions(name, author=CONVERTER, discussion_type="pull_request"):
            if request.is_pull_request and request.status == "open" and request.author == CONVERTER:
                return request.num, str(api.model_info(name, revision=f"refs/pr/{request.num}").sha)
    except HfHubHTTPError:  # a repository may have no discussions
        return None
    return None
