"""The folder ``weights/`` of a checkout: trained models that do not come with the library, and a manifest of all named in results.

The manifest has a record for each fingerprint: the preset, command, seed and updates that made the weights, hours of training,
scores, and where the weights are: ``"bundled"``, ``"weights"`` (in this folder, with a SHA-256 sum for each file) or
``"not shipped"``.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.store import atomic_folder, read_json, write_text

FOLDER = Path(__file__).resolve().parents[2] / "weights"
MANIFEST = "manifest.json"
BUNDLED, HERE, NOT_SHIPPED = PLACES = ("bundled", "weights", "not shipped")


@dataclass(frozen=True)
class Record:
    """Record of one set of trained weights.

    Attributes
    ----------
    name : str
        Name for `load`, if the weights are bundled or in the folder.
    fingerprint : str
        `Checkpoint.fingerprint`.
    where : str
        One of `PLACES`.
    command : str
        Command that makes such weights; on another processor they differ in their last bits.
    made_with : str
        Version and commit of fastdecode, and the recipe if the command has changed since.
    hours : float or None
        Hours of training, on the GPU that `made_with` names or on one core; None if they were not recorded.
    scores : dict
        Scores on the dev and the test split.
    results : list of str
        Committed results made with these weights.
    address : str
        URL of the folder from which `fetch` downloads the files; empty if there is none.
    sha256 : dict of file name to sum
    bytes : int
        Size of all files.
    """

    name: str
    fingerprint: str
    where: str
    command: str
    made_with: str = ""
    seed: int | None = None
    updates: int | None = None
    hours: float | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    address: str = ""
    sha256: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


def read_manifest(folder: Path = FOLDER) -> list[Record]:
    """The records of a folder's manifest; an empty list if there is no manifest.

    Raises
    ------
    CheckpointError
        If the manifest is damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return []
    try:
        return [Record(**record) for record in read_json(path)["weights"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"The manifest {path} is damaged: {error!r}. Restore it: git checkout -- weights/{MANIFEST}"
        ) from error


def finished_run(folder: Path) -> int:
    """The planned number of updates of the finished run in a folder (``best/``, ``history.json``); 0 if it is not finished."""
    history = folder / "history.json"
    if not (folder / "best" / "config.json").is_file() or not history.is_file():
        return 0
    last: dict[str, Any] = read_json(history, list)[-1]
    planned_updates: int = last.get("planned", last["update"])
    return planned_updates if last["update"] >= planned_updates else 0


def write_manifest(records: list[Record], folder: Path = FOLDER) -> None:
    """Write a folder's manifest, sorted by name."""
    content = {
        "weights": [asdict(record) for record in sorted(records, key=lambda record: (record.name, record.fingerprint))]
    }
    write_text(folder / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 sum of every file of a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir()) if path.is_file()
    }


def find_weights(name: str, folder: Path = FOLDER) -> Path | None:
    """The folder of a model in ``weights/``, its files checked against the manifest; None if it is not there.

    Raises
    ------
    CheckpointError
        If a file is missing or differs.
    """
    record = next((record for record in read_manifest(folder) if record.name == name and record.sha256), None)
    if record is None or record.where == BUNDLED or not (record.where == HERE or (folder / name).is_dir()):
        return None
    check_sums(folder / name, record.sha256, f"Restore it: git checkout -- weights/{name}")
    return folder / name


def check_sums(folder: Path, expected: dict[str, str], remedy: str) -> None:
    """Check that the files of a folder have the sums of the manifest.

    Raises
    ------
    CheckpointError
        For the first file that differs.
    """
    actual = checksums(folder) if folder.is_dir() else {}
    for file, expected_sum in expected.items():
        if actual.get(file) != expected_sum:
            got = f"SHA-256 {actual[file][:12]}..." if file in actual else "no such file"
            raise CheckpointError(
                f"{folder / file} is not as its manifest says: got {got}, expected {expected_sum[:12]}.... {remedy}"
            )


def fetch(name: str, folder: Path = FOLDER) -> Path:
    """A model of the manifest, downloaded from its address if it is not in the folder, its sums checked.

    Returns
    -------
    Path
        The model's folder.

    Raises
    ------
    CheckpointError
        If the manifest lacks the name or its address, a download fails, or a sum differs; then no file is kept.
    """
    # Of records with the same name, one that can be opened comes last, and before it one that can be fetched.
    by_availability = sorted(
        read_manifest(folder), key=lambda record: (record.where != NOT_SHIPPED, bool(record.address))
    )
    records = {record.name: record for record in by_availability}
    if name not in records:
        raise CheckpointError(
            f"The manifest does not name {name!r}: it has {', '.join(records) or 'no models'}. Give one of them."
        )
    record = records[name]
    if (present := find_weights(name, folder)) is not None:
        return present
    if not (record.address and record.sha256):
        raise CheckpointError(f"{name} has no address to be fetched from. Train it instead: {record.command}")
    with atomic_folder(folder / name) as temporary:
        for file in record.sha256:
            (temporary / file).write_bytes(_download(f"{record.address.rstrip('/')}/{file}"))
        check_sums(temporary, record.sha256, "Nothing was kept. Try again, or report it to the owner of that address.")
    return folder / name


def _download(address: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.parse import urlsplit
    from urllib.request import urlopen

    parts = urlsplit(address)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1"):
        raise CheckpointError(f"Weights are fetched only by https: got {address!r}. Correct the manifest.")
    try:
        with urlopen(address, timeout=60) as response:
            content: bytes = response.read()
            return content
    except (URLError, HTTPException, OSError) as error:
        raise CheckpointError(f"{address} could not be fetched: {error}. Check the network and try again.") from error
