"""k-means by faiss, without its silent subsampling."""

import numpy as np

from fastdecode_lib.core import optional


def kmeans(
    points: np.ndarray, clusters: int, *, iterations: int = 20, seed: int = 0, spherical: bool = False
) -> np.ndarray:
    """Centroids of all points.

    Parameters
    ----------
    points : float array (N, D)
    clusters : int
        r, at most N.
    iterations : int
        20 in Amer et al. (2022).
    spherical : bool
        Points and centroids are scaled to length 1, and the nearest centroid is the one with the highest inner product
        (Chen et al., 2019).

    Returns
    -------
    float32 array (r, D)

    Raises
    ------
    ValueError
        If there are fewer points than clusters, or numbers that are not finite.
    """
    faiss = optional("faiss", "projections")

    points = np.ascontiguousarray(points, dtype=np.float32)
    if not 1 <= clusters <= len(points):
        raise ValueError(
            f"k-means needs at least as many vectors as clusters: got {len(points)} for {clusters} clusters. Record more "
            "contexts, or ask for fewer clusters."
        )
    if iterations < 1:
        raise ValueError(f"k-means needs iterations >= 1, got {iterations}. The papers' is 20.")
    if not np.isfinite(points).all():
        raise ValueError("k-means needs finite vectors: got NaN or infinity. Record the contexts again.")
    if spherical:
        points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    clustering = faiss.Kmeans(
        points.shape[1],
        clusters,
        niter=iterations,
        seed=seed % 2**31,  # faiss takes a C int
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=-(-len(points) // clusters) + 1,
    )
    clustering.train(points)
    return np.asarray(clustering.centroids, dtype=np.float32).reshape(clusters, -1)
