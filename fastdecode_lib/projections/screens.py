"""A screen: clusters of hidden vectors, each with its active tokens, and the files screens are kept in.

Papers 000 and 001 share all of decoding: find the cluster of a hidden vector, score the tokens of its set with the rows of
the output matrix that belong to them, and take the best. They differ in how a vector finds its cluster (Euclidean distance
or inner product) and in how clusters and sets are fitted: `clustered` and `screened`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastdecode_lib.kernels.gathered import (
    nearest,
)
from fastdecode_lib.kernels.matrices import Matrix, room
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.store import atomic_folder, check_replaceable

Method = Literal["clustered", "screened"]
ROWS, SHARING_ROWS = 32, 64
"""Hidden vectors scored together, with sets of their own or with one for all."""
FORMAT, VERSION = "fastdecode-screens", 1


@dataclass(frozen=True)
class Screen:
    """Clusters and their active sets, as fitted on recorded contexts.

    Attributes
    ----------
    method : "clustered" or "screened"
        ``clustered`` (paper 000): the nearest centroid by Euclidean distance. ``screened`` (paper 001): the highest inner
        product, without bias and norms.
    points : float32 array (r, D)
        A centroid, or the weight of a cluster, in each row.
    sets : ActiveSets
    about : dict
        How it was made: contexts, knobs, and the ``fingerprint`` of the model they were recorded from.
    """

    method: Method
    points: np.ndarray
    sets: ActiveSets
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in ("clustered", "screened"):
            raise ValueError(f"Unknown kind of screen: got {self.method!r}. Use 'clustered' or 'screened'.")
        if self.points.ndim != 2 or len(self.points) != len(self.sets) or not np.isfinite(self.points).all():
            raise ValueError(
                f"A screen needs a finite point for each set: got points {self.points.shape} for {len(self.sets)} sets. Fit it "
                "again."
            )

    def __repr__(self) -> str:
        sizes = self.sets.sizes
        return f"Screen({self.method!r}, {len(self.sets)} sets of {sizes.min()} to {sizes.max()} of {self.sets.vocabulary} tokens)"

    @property
    def fingerprint(self) -> str:
        """Of the model whose contexts it was fitted on; empty if that is not known."""
        return str(self.about.get("fingerprint") or "")

    @property
    def router(self) -> Matrix:
        """What scores clusters, the highest being chosen.

        For Euclidean distance that is ``C h - |C|^2 / 2``, half of what eq. 2 of paper 000 is the negative of. Its norm
        bars, read as an absolute value, would choose wrongly: ``|C|^2 - 2 C h`` is lowest, and negative, at the nearest.
        """
        halves = -(self.points.astype(np.float64) ** 2).sum(1) / 2 if self.method == "clustered" else None
        return Matrix.of(self.points, halves, name="the centroids")

    def assign(self, hidden: np.ndarray) -> np.ndarray:
        """The cluster of each hidden vector (N, D), int64 (N,); as in decoding, bit for bit."""
        return _assign(self.router, len(self.sets), np.ascontiguousarray(hidden, dtype=np.float32))

    def save(self, folder: str | Path) -> None:
        """Write it, as the screen of all directions, into a folder of its own."""
        save_screens({"all": self}, folder)


def save_screens(screens: Mapping[str, Screen], folder: str | Path) -> None:
    """Write the screens of some directions (``"en-de"``, ``"de"`` or ``"all"``) into a folder, which takes the old one's place."""
    from safetensors.numpy import save_file

    with atomic_folder(check_replaceable(folder, "screens.json")) as temporary:
        parts = {}
        for name, screen in screens.items():
            small = screen.sets.vocabulary <= 65_536
            arrays = {
                "points": screen.points,
                "counts": np.diff(screen.sets.offsets).astype(np.uint32),
                "ids": screen.sets.ids.astype(np.uint16 if small else np.uint32),
            }
            save_file(arrays, temporary / f"{name}.safetensors")
            parts[name] = {"method": screen.method, "vocabulary": screen.sets.vocabulary, "about": screen.about}
        content = {"format": FORMAT, "version": VERSION, "parts": parts}
        (temporary / "screens.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_screens(folder: str | Path) -> dict[str, Screen]:
    """Read what `save_screens` wrote.

    Raises
    ------
    ValueError
        If it is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    try:
        content = json.loads((folder / "screens.json").read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
        screens = {}
        for name, part in content["parts"].items():
            if Path(name).name != name:
                raise ValueError(f"a file outside the folder: {name!r}")
            file = folder / f"{name}.safetensors"
            if not file.is_file():
                raise FileNotFoundError(None, None, file)
            arrays = load_file(file)
            offsets = np.concatenate([[0], np.cumsum(arrays["counts"], dtype=np.int64)])
            sets = ActiveSets(offsets, arrays["ids"].astype(np.int64), int(part["vocabulary"]))
            screens[name] = Screen(part["method"], arrays["points"].astype(np.float32), sets, dict(part["about"]))
    except FileNotFoundError as error:
        raise ValueError(
            f"There are no screens in {folder}: {Path(str(error.filename)).name} is missing. Fit them: fastdecode fit"
        ) from error
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"The screens in {folder} are damaged: {error}. Fit them again: fastdecode fit") from error
    if not screens:
        raise ValueError(f"The screens in {folder} are empty. Fit them again: fastdecode fit")
    return screens


def _assign(router: Matrix, clusters: int, hidden: np.ndarray) -> np.ndarray:
    found = np.empty(len(hidden), dtype=np.int64)
    together = max(1, min(ROWS, len(hidden)))
    scores = np.empty((together, router.outputs), dtype=np.float32)
    nearest(hidden, router.record, clusters, room(together, router.shape[1]), scores, found)
    return found
