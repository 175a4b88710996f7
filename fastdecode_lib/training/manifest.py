"""Keep the manifest of weights up to date with the committed results, the bundled models and ``weights/``."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.checkpoints.weights import (
    BUNDLED,
    FOLDER,
    HERE,
    MANIFEST,
    NOT_SHIPPED,
    Record,
    checksums,
    read_manifest,
    write_manifest,
)


def results_by_fingerprint(folder: Path | None = None) -> dict[str, list[str]]:
    """Names of committed results by the fingerprints of the weights that they name."""
    folder = folder or Path(str(resources.files("fastdecode_lib"))) / "results"
    results: dict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.glob("*.json")):
        for fingerprint in _fingerprints(json.loads(file.read_text(encoding="utf-8"))):
            results[fingerprint].add(file.name.removesuffix(".json"))
    return {fingerprint: sorted(names) for fingerprint, names in results.items()}


def _fingerprints(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "fingerprint" and isinstance(value, str):
                yield value
            elif key == "fingerprints" and isinstance(value, dict):
                yield from value.values()
            else:
                yield from _fingerprints(value)
    elif isinstance(content, list):
        for value in content:
            yield from _fingerprints(value)


def refresh(folder: Path = FOLDER, results: Path | None = None) -> list[Record]:
    """Rewrite the manifest: where each model is, checksums of its files, and the results that name it.

    Records that are not shipped and that neither a result nor another record's command names are dropped.

    Raises
    ------
    ValueError
        If a result names weights without a record.
    """
    results_of = results_by_fingerprint(results)
    shipped = {find_checkpoint(path).fingerprint: (name, BUNDLED, path) for name, path in bundled().items()}
    records = {record.fingerprint: record for record in read_manifest(folder)}
    in_folder = {
        find_checkpoint(path.parent).fingerprint: (path.parent.name, HERE, path.parent)
        for path in sorted(folder.glob("*/config.json"))
    }
    shipped |= {key: place for key, place in in_folder.items() if not (key in records and records[key].address)}
    if missing := sorted((results_of.keys() | shipped.keys()) - records.keys()):
        raise ValueError(
            f"The manifest has no record of the weights {', '.join(missing)}, which are shipped or named by "
            f"{', '.join(results_of.get(missing[0], ['no result']))}. Add one with the command that trains them to "
            f"{folder / MANIFEST}"
        )
    begun_with = {name for r in records.values() for name in re.findall(r"--begin-with (\S+)", r.command)}
    refreshed = []
    for fingerprint, record in records.items():
        record = replace(record, results=results_of.get(fingerprint, []))
        if fingerprint in shipped:
            name, where, path = shipped[fingerprint]
            size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            record = replace(record, name=name, where=where, sha256=checksums(path), bytes=size)
        elif not record.address:
            record = replace(record, where=NOT_SHIPPED, sha256={}, bytes=0)
        if record.results or record.where != NOT_SHIPPED or record.address or record.name in begun_with:
            refreshed.append(record)
    write_manifest(refreshed, folder)
    return refreshed


def add(record: Record, folder: Path = FOLDER) -> None:
    """Add a record, or replace the one with its fingerprint."""
    write_manifest([*(r for r in read_manifest(folder) if r.fingerprint != record.fingerprint), record], folder)


if __name__ == "__main__":
    refresh()
