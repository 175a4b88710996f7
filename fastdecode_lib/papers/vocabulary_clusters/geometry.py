"""Projections at the size of Amer et al.'s models, and whether the lossless one is exact over many vectors.

The paper's weights of 250,000 x 1,024 are not public, and random ones have other scores than trained ones. `grown` makes them from
a trained model's output rows, repeated and rotated into the larger space, with noise that tells the repetitions apart. Hidden
vectors are rotated likewise, so that scores are the trained ones but for the noise. For time and exactness, never for quality.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, gap
from fastdecode_lib.papers.shared.contexts_of import Situation, arrays, situation
from fastdecode_lib.papers.shared.projection_runs import EXACT, K, numpy_system, projection_system
from fastdecode_lib.papers.shared.rows import keyed, median, speedup_of
from fastdecode_lib.papers.vocabulary_clusters import printed
from fastdecode_lib.papers.vocabulary_clusters.tables import table_on
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.quantised import Quantised
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen

NOISE = 0.1
"""Length of the noise on a row over the length of the row."""
GROWN = "rows of tatoeba-small's output repeated and turned into the larger space, noise of a tenth of their length"
"""Description of the matrices in the provenance."""
QUERIES = {
    Scale.TINY: {"translation": 500, "dense": 50},
    Scale.LAPTOP: {"translation": 1_000_000, "dense": 10_000},
    Scale.PAPER: {"translation": 1_000_000, "dense": 10_000},
}
"""Vectors on which the lossless projection is compared with the exact one."""
BLOCK = 2_048


def geometry(model: str, scale: Scale) -> tuple[int, int, int]:
    """Vocabulary, width and clusters of ``"dense"`` or ``"m3"``; a hundredth of the vocabulary in a tiny run."""
    vocabulary, width, clusters = printed.GEOMETRY[model]
    return (vocabulary // 100, 320, clusters // 100) if scale == Scale.TINY else (vocabulary, width, clusters)


def grown(
    weight: np.ndarray, bias: np.ndarray, hidden: np.ndarray, vocabulary: int, width: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A larger output matrix, its bias, and hidden vectors for it, in float32, made from a trained model's (V, D), (V,) and (N, D).

    Raises
    ------
    ValueError
        If the width is below the model's.
    """
    if width < weight.shape[1]:
        raise ValueError(f"grown needs a width from {weight.shape[1]}, got {width}. Use a smaller model.")
    random = np.random.default_rng(seed)
    rotation = np.linalg.qr(random.normal(size=(width, weight.shape[1])))[0].T.astype(np.float32)
    rows = np.concatenate([random.permutation(len(weight)) for _ in range(-(-vocabulary // len(weight)))])[:vocabulary]
    large = np.empty((vocabulary, width), dtype=np.float32)
    for first in range(0, vocabulary, 10_000):
        block = weight[rows[first : first + 10_000]]
        noise = random.standard_normal((len(block), width), dtype=np.float32)
        noise *= NOISE * np.linalg.norm(block, axis=1, keepdims=True) / np.sqrt(width, dtype=np.float32)
        large[first : first + 10_000] = block @ rotation + noise
    return large, bias[rows], hidden @ rotation


def _grown(model: str, recorded: Situation, run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`grown` from a recorded model to one of `printed.GEOMETRY`, with the vectors of its test split."""
    vocabulary, width, _ = geometry(model, run.scale)
    return grown(recorded.weight, recorded.bias, recorded.queries[0], vocabulary, width, run.seed)


@experiment
def lossless(run: CorpusRun) -> pd.DataFrame:
    """Check the lossless projection against the exact one: five best tokens and scores, bit for bit, over many vectors.

    ``recorded`` of them are a trained model's hidden vectors; the others, ``mixed``, are points between two of those.
    """
    rows: list[dict[str, Any]] = []
    used: list[Situation] = []
    for name, queries in QUERIES[run.scale].items():
        try:
            recorded = situation("multilingual" if name in printed.GEOMETRY else name, run)
        except NoResult as missing:
            rows.append({"name": name, **gap(missing)})
            continue
        used.append(recorded)
        matrix, hidden = _output(name, recorded, run)
        quantised, exact = Quantised(matrix), CompiledExact(matrix)
        parts = []
        for part in run.bar(_vectors(hidden, queries, run.seed), desc=name, unit="block"):
            best, rescored_rows = quantised.top_k_counted(part, K)
            expected = exact.top_k(part, K)
            differ = (best.ids != expected.ids).any(1) | (best.scores != expected.scores).any(1)
            parts.append((differ, rescored_rows))
        mismatches, rescored = (np.concatenate(column) for column in zip(*parts, strict=True))
        vectors = len(mismatches)
        rows.append(
            {
                "name": name,
                "vocabulary": matrix.shape[0],
                "width": matrix.shape[1],
                "queries": vectors,
                "recorded": min(vectors, len(hidden)),
                "mixed": max(0, vectors - len(hidden)),
                "mismatches": int(mismatches.sum()),
                "scored_again": float(rescored.mean()),
                "scored_again_most": int(rescored.max()),
            }
        )
    return table_on(rows, run, used, geometry=GROWN)


def _output(name: str, recorded: Situation, run: Run) -> tuple[Matrix, np.ndarray]:
    """The output matrix of a trained model and its recorded vectors, or of one of `printed.GEOMETRY` grown from it."""
    if name in printed.GEOMETRY:
        weight, bias, hidden = _grown(name, recorded, run)
        return Matrix.of(weight, bias), hidden
    return recorded.matrix, arrays(recorded.fit)[0]


def _vectors(hidden: np.ndarray, count: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks of `count` vectors in all: the hidden vectors, and after them points between two of them."""
    random = np.random.default_rng(seed)
    for first in range(0, count, BLOCK):
        size = min(BLOCK, count - first)
        rows = np.arange(first, first + size)
        vectors = hidden[rows % len(hidden)]
        share = np.where(rows < len(hidden), 1.0, random.random(size))[:, None].astype(np.float32)
        yield np.ascontiguousarray(share * vectors + (1 - share) * hidden[random.integers(0, len(hidden), size)])


@experiment
def zcode(run: CorpusRun) -> pd.DataFrame:
    """Time of one vector's five best tokens at the geometry of Amer et al.'s models, at two active shares of its figures.

    Sets are random tokens: 2% of all, as in cluster 0 of figure 4 with one label, and 12.5%, as in the largest of 400 clusters
    in figure 2; unions of a batch are in its table 2, 6.36 to 16.50%. Centroids are hidden vectors. The baseline is
    numpy's product.
    """
    rows: list[dict[str, Any]] = []
    recorded = situation("multilingual", run)
    for model in printed.GEOMETRY:
        rows += _zcode_rows(model, *_grown(model, recorded, run), run)
    return table_on(rows, run, [recorded], geometry=GROWN)


def _zcode_rows(model: str, weight: np.ndarray, bias: np.ndarray, hidden: np.ndarray, run: Run) -> list[dict[str, Any]]:
    random, (vocabulary, _, clusters) = np.random.default_rng(run.seed), geometry(model, run.scale)
    matrices = {precision: Matrix.of(weight, bias, precision) for precision in ("float32", "float16", "int8")}
    projections: dict[str, Any] = {EXACT: CompiledExact(matrices["float32"])}
    used_clusters = 8 if run.tiny else 20
    """Clusters with a whole set in memory; no vector of the others is scored."""
    points = hidden[np.linspace(0, len(hidden) - 1, clusters).astype(int)]
    for share in (0.02, 0.125):
        size = round(share * vocabulary)
        token_sets = [
            np.sort(random.choice(vocabulary, size, replace=False)) for _ in range(min(used_clusters, clusters))
        ]
        sets = ActiveSets.of([*token_sets, *[token_sets[0][:1]] * (clusters - len(token_sets))], vocabulary)
        for precision, matrix in matrices.items():
            screen = Screen("clustered", points, sets)
            projections[f"clustered {share:.1%} {precision}"] = ScreenScorer(screen, matrix)
    projections["quantised"] = Quantised(matrices["float32"])
    nearest = Screen("clustered", points, sets).assign(hidden)
    order = np.argsort(pd.Series(nearest).groupby(nearest).cumcount().to_numpy(), kind="stable")  # clusters in turn
    vectors: Any = [np.ascontiguousarray(hidden[i : i + 1]) for i in order[nearest[order] < used_clusters][:20]]
    systems = [numpy_system(weight, bias)]
    systems += [projection_system(name, projection) for name, projection in projections.items()]
    timings = run.measure(systems, vectors, runs=2 if run.tiny else 9)
    return [
        {
            **keyed(model=model, method=m.name),
            "microseconds": 1e6 * median(m) / len(vectors),
            **speedup_of(timings[0], m),
            "seconds": m.seconds.tolist(),
        }
        for m in timings
    ]
