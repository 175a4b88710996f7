"""Numbers printed in Chen et al. (2019), Learning to Screen for Fast Softmax. One thread of an Intel E5-2620."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

METHODS = {
    "screened": "L2S",
    "fgd": "FGD",
    "svd": "SVD-softmax",
    "adaptive": "Adaptive-softmax",
    "greedy_mips": "Greedy-MIPS",
    "pca_mips": "PCA-MIPS",
    "lsh_mips": "LSH-MIPS",
    "kmeans": "Spherical k-means",
}
"""Our name of a method -> the paper's."""

SIZES = {
    "small": ("PTB-Small", 10_000, 200),
    "large": ("PTB-Large", 10_000, 1_500),
    "translation": ("NMT: DE-EN", 24_725, 500),
    "second translation": ("NMT: EN-VE", 22_749, 200),
    "cased": ("WikiText-103", 80_000, 400),
}
"""Table 1: name, vocabulary and width; WikiText-103 is of the appendix."""

K = TypeVar("K")
V = TypeVar("V")


def by_model(models: Sequence[str], rows: Mapping[K, Sequence[V]]) -> dict[str, dict[K, V]]:
    """A printed table's rows, whose cells are of the models in turn, as a dictionary for each model."""
    return {model: {row: cells[i] for row, cells in rows.items()} for i, model in enumerate(models)}


TABLE_2: dict[str, dict[str, tuple[float, float, float]]] = by_model(
    ("small", "large", "translation"),
    {
        "screened": ((10.6, 0.998, 0.990), (45.3, 0.996, 0.982), (20.4, 0.989, 0.993)),
        "fgd": ((1.3, 0.980, 0.989), (6.9, 0.975, 0.979), (6.7, 0.987, 0.981)),
        "svd": ((0.8, 0.987, 0.990), (2.3, 0.988, 0.981), (3.4, 0.980, 0.985)),
        "adaptive": ((1.9, 0.972, 0.981), (4.2, 0.974, 0.937), (3.2, 0.982, 0.984)),
        "greedy_mips": ((0.5, 0.998, 0.972), (1.8, 0.945, 0.903), (2.6, 0.911, 0.887)),
        "pca_mips": ((0.14, 0.322, 0.341), (0.5, 0.361, 0.326), (1.3, 0.379, 0.320)),
        "lsh_mips": ((1.3, 0.165, 0.330), (2.2, 0.353, 0.310), (1.6, 0.131, 0.137)),
    },
)
"""Speedup over the full softmax, P@1, P@5."""

TABLE_3: dict[str, dict[tuple[str, int], tuple[float | None, float]]] = by_model(
    ("translation", "second translation"),
    {
        ("exact", 1): ((None, 29.50), (None, 24.58)),
        ("fgd", 1): ((2.7, 29.43), (6.4, 24.28)),
        ("screened", 1): ((14.0, 29.46), (12.4, 24.38)),
        ("exact", 5): ((None, 30.33), (None, 25.35)),
        ("fgd", 5): ((2.9, 30.13), (4.6, 25.26)),
        ("screened", 5): ((13.4, 30.19), (20.0, 25.27)),
    },
)
"""Method and beam -> speedup of the softmax, BLEU; 13.4 and 20 are barely legible (the text says more than 13 and 20)."""

TABLE_4: dict[int, tuple[float, float, float]] = {
    50: (0.12, 0.997, 0.988),
    100: (0.17, 0.998, 0.99),
    200: (0.14, 0.998, 0.99),
    250: (0.12, 0.994, 0.98),
}
"""Clusters -> milliseconds, P@1, P@5. The data set is not named: the precisions are PTB-Small's, but not the times, 0.03 ms."""

TABLE_5: dict[str, dict[str, tuple[float, float, float]]] = {
    "small": {"screened": (10.6, 0.998, 0.990), "kmeans": (4.0, 0.988, 0.992), "fgd": (1.3, 0.980, 0.989)},
    "large": {"screened": (45.3, 0.999, 0.82), "kmeans": (6.9, 0.992, 0.971), "fgd": (6.9, 0.975, 0.979)},
    "translation": {"screened": (20.4, 0.989, 0.993), "kmeans": (13.8, 0.991, 0.993), "fgd": (6.7, 0.987, 0.981)},
}
"""Speedup, P@1, P@5. L2S on PTB-Large has .999 and .82 here, and .996 and .982 in table 2."""

TABLE_6: dict[str, dict[str, tuple[float | None, float]]] = by_model(
    ("small", "large"),
    {
        "exact": ((None, 112.28), (None, 78.32)),
        "svd": ((0.84, 116.64), (0.61, 80.30)),
        "adaptive": ((1.69, 121.43), (1.76, 82.59)),
        "fgd": ((0.95, 116.49), (2.27, 80.47)),
        "screened": ((5.69, 115.91), (8.11, 80.09)),
    },
)
"""Speedup and perplexity; the tail is of rank 20 and 200."""
TAIL_RANKS = {"small": 20, "large": 200}

FIGURE_8: dict[int, float] = {2_000: 0.993, 4_000: 0.989, 6_000: 0.988, 8_000: 0.987, 9_000: 0.987, 10_000: 0.998}
"""Words of the vocabulary -> P@1; the axis of speedups is not printed. 200 clusters."""
FIGURE_9 = 15.0
"""Least speedup on WikiText-103 (appendix)."""
