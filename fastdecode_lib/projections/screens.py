"""A screen: clusters of hidden vectors, each with its active tokens, and the files of screens.

Amer et al. and Chen et al. decode in the same way: find the cluster of a hidden vector, score the tokens of its set with their
rows of the output matrix, and take the best. They differ in how a vector finds its cluster (Euclidean distance or inner
product) and in how clusters and sets are fitted: `clustering.Clustered` and `learning_to_screen.Screened`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import Model, Projection
from fastdecode_lib.kernels.gathered import nearest
from fastdecode_lib.kernels.matrices import Matrix, StorageFormat, scratch
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.store import ModelFiles, atomic_folder, check_replaceable, read_json, read_tensors

EUCLIDEAN = frozenset({"clustered"})
"""Methods by which a hidden vector belongs to the nearest point; by others, to the one with the highest product."""
ROWS, SHARING_ROWS = 32, 64
"""Hidden vectors scored together, each with the set of its cluster or all with one set."""
FORMAT, VERSION = "fastdecode-screens", 1
SCREENS = "screens.json"


@dataclass(frozen=True)
class Screen:
    """Clusters and their active sets, as fitted on recorded contexts.

    Attributes
    ----------
    method : str
        Name of the projection that fitted it. ``clustered`` (Amer et al.): the nearest centroid by Euclidean distance.
        ``screened`` (Chen et al.): the highest inner product, without bias and norms.
    points : float32 array (r, D)
        Each row is the centroid or the weight vector of a cluster.
    sets : ActiveSets
    about : dict
        How it was made: contexts, knobs, and the ``fingerprint`` of the model that the contexts were recorded with.
    """

    method: str
    points: np.ndarray
    sets: ActiveSets
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
        """Fingerprint of the model whose contexts it was fitted on; empty if unknown."""
        return str(self.about.get("fingerprint") or "")

    @property
    def router(self) -> Matrix:
        """Matrix and bias whose product with a hidden vector scores the clusters; the highest score is chosen.

        For Euclidean distance the score is ``C h - |C|^2 / 2``, minus half of eq. 2 of Amer et al. (2022). The bars in eq. 2,
        read as an absolute value, would choose the wrong cluster: ``|C|^2 - 2 C h`` is lowest, and negative, at the nearest.
        """
        constants = -(self.points.astype(np.float64) ** 2).sum(1) / 2 if self.method in EUCLIDEAN else None
        return Matrix.of(self.points, constants, name="the centroids")

    def check_fits(self, vocabulary: int, width: int) -> None:
        """Check that the screen has the vocabulary and the width of an output matrix."""
        if self.points.shape[1] != width or self.sets.vocabulary != vocabulary:
            raise ValueError(
                f"The screen is another model's: got one of width {self.points.shape[1]} and vocabulary "
                f"{self.sets.vocabulary}, the model has {width} and {vocabulary}. Fit it on contexts of this model."
            )

    def assign(self, hidden: np.ndarray) -> np.ndarray:
        """The cluster of each hidden vector (N, D), int64 (N,), bitwise the same as in decoding."""
        router, hidden = self.router, np.ascontiguousarray(hidden, dtype=np.float32)
        clusters, batch = np.empty(len(hidden), dtype=np.int64), max(1, min(ROWS, len(hidden)))
        scores = np.empty((batch, router.outputs), dtype=np.float32)
        nearest(hidden, router.record, len(self.sets), scratch(batch, router.shape[1]), scores, clusters)
        return clusters

    def save(self, folder: str | Path) -> None:
        """Write it into a folder of its own, as the screen for all directions."""
        save_screens({"all": self}, folder)


def save_screens(screens: Mapping[str, Screen], folder: str | Path) -> None:
    """Write the screens by direction (``"en-de"``, ``"de"`` or ``"all"``) into a folder; an older folder is replaced."""
    from safetensors.numpy import save_file

    with atomic_folder(check_replaceable(folder, SCREENS)) as temporary:
        parts = {}
        for name, screen in screens.items():
            short_ids = screen.sets.vocabulary <= 65_536
            arrays = {
                "points": screen.points,
                "counts": np.diff(screen.sets.offsets).astype(np.uint32),
                "ids": screen.sets.ids.astype(np.uint16 if short_ids else np.uint32),
            }
            save_file(arrays, temporary / f"{name}.safetensors")
            parts[name] = {"method": screen.method, "vocabulary": screen.sets.vocabulary, "about": screen.about}
        content = {"format": FORMAT, "version": VERSION, "parts": parts}
        (temporary / SCREENS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_screens(folder: str | Path) -> dict[str, Screen]:
    """Read what `save_screens` wrote.

    Raises
    ------
    ValueError
        If it is missing or damaged.
    """
    folder, again = Path(folder), "Fit them again: fastdecode fit"
    if not (folder / SCREENS).is_file():
        raise ValueError(f"There are no screens in {folder}: {SCREENS} is missing. Fit them: fastdecode fit")
    content = read_json(folder / SCREENS, again=again)
    try:
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
        screens = {}
        for name, part in content["parts"].items():
            if Path(name).name != name:
                raise ValueError(f"a file outside the folder: {name!r}")
            arrays, _ = read_tensors(folder / f"{name}.safetensors")
            offsets = np.concatenate([[0], np.cumsum(arrays["counts"], dtype=np.int64)])
            sets = ActiveSets(offsets, arrays["ids"].astype(np.int64), int(part["vocabulary"]))
            screens[name] = Screen(part["method"], arrays["points"].astype(np.float32), sets, dict(part["about"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"The screens in {folder} are damaged: {error}. {again}") from error
    if not screens:
        raise ValueError(f"The screens in {folder} are empty. {again}")
    return screens


class ScreenProjection:
    """Base of projections with active sets.

    A subclass has a `name`, and ``fit(contexts, *, ...)``, which returns a `Screen` with this name as its method. A hidden vector
    belongs to the point with the highest inner product, or to the nearest if the name is in `EUCLIDEAN`.
    """

    name: ClassVar[str]
    needs: ClassVar[str] = "screens"
    remedy: ClassVar[str] = "other options"
    """Options of ``fastdecode fit`` that help where the sets miss tokens."""

    @classmethod
    def make(
        cls,
        model: Model,
        files: ModelFiles,
        *,
        file: str | None = None,
        shared: bool = False,
        precision: StorageFormat | None = None,
    ) -> Projection:
        """The screen for the direction, else for its target language, else for all, on the model's output matrix.

        Parameters
        ----------
        file : str, optional
            Folder of the screens; by default the one in the model's folder.
        shared : bool
            All rows of a call score the union of their sets.
        precision : str, optional
            Precision of the output matrix; by default the model's own.
        """
        screen = _screen_for(cls.name, screens_folder(cls.name, files, file), files)
        weight = model.outputs[0].weight
        device = getattr(getattr(weight, "device", None), "type", None)
        if len(model.outputs) == 1 and device is not None and (device != "cpu" or weight.element_size() == 8):
            from fastdecode_lib.projections.screen_torch import TorchScreenScorer

            if precision is not None:
                raise ValueError(
                    f"{cls.name}: precision belongs to float32 on the CPU, got it with {weight.dtype}. Leave it out."
                )
            return TorchScreenScorer(screen, weight, model.outputs[0].bias, shared=shared)
        from fastdecode_lib.projections.exact_compiled import output_matrix
        from fastdecode_lib.projections.screen_compiled import ScreenScorer

        return ScreenScorer(screen, output_matrix(model, precision), shared=shared)


def screens_folder(method: str, files: ModelFiles, file: str | None = None) -> Path:
    """Folder of a model's screens: `file`, or the one in the checkpoint's folder.

    Raises
    ------
    ValueError
        If there is no such folder.
    """
    if file is None and files.folder is None:
        raise ValueError(f"The projection {method} needs a folder of screens: got none. Use {method}:file=FOLDER.")
    folder = screens_path(Path(str(files.folder)), method) if file is None else Path(file).expanduser()
    if file is not None and not (folder / SCREENS).is_file():
        raise ValueError(
            f"{method}:file={folder} is not a folder that `fastdecode fit` wrote: got no screens.json there. Correct it."
        )
    if not folder.is_dir():
        raise ValueError(
            f"There are no screens for {method} in {folder}. Fit them on contexts of this model: fastdecode record, then "
            f"fastdecode fit {method}; or name their folder: {method}:file=FOLDER."
        )
    return folder


def screens_path(folder: Path, method: str) -> Path:
    """Path of a checkpoint's screens."""
    return Path(folder) / "projections" / method


def has_screens(folder: Path, method: str, direction: tuple[str | None, str | None] | None = None) -> bool:
    """Whether a checkpoint's folder has a method's screens, and among them one for a direction, if one is given."""
    file = screens_path(folder, method) / SCREENS
    if direction is None or not file.is_file():
        return file.is_file()
    return any(name in read_json(file).get("parts", {}) for name in _names(*direction))


def _names(source: str | None, target: str | None) -> tuple[str, str, str]:
    """Names of the screens that serve a direction, the best first."""
    return f"{source}-{target}", str(target), "all"


def _screen_for(method: str, folder: Path, files: ModelFiles) -> Screen:
    """The screen for a direction, checked to be this model's and made by the method."""
    screens = load_screens(folder)
    fingerprints = {screen.fingerprint for screen in screens.values()}
    if files.fingerprint is not None and fingerprints != {files.fingerprint}:
        raise ValueError(
            f"The screens in {folder} were fitted on contexts of another model: its fingerprint is "
            f"{', '.join(map(str, fingerprints))}, got {files.fingerprint}. Fit them again for this model."
        )
    source, target = files.direction
    screen = next((screens[name] for name in _names(source, target) if name in screens), None)
    if screen is None:
        raise ValueError(
            f"The screens in {folder} are of other directions: got {source}-{target}, there are {', '.join(screens)}. Fit them "
            "on contexts of this direction."
        )
    if screen.method != method:
        raise ValueError(
            f"The screens in {folder} are {screen.method}, not {method}. Use {screen.method}:file={folder}."
        )
    return screen
