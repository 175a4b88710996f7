"""Numbers printed in Santilli et al. (2023), Accelerating Transformer Inference for Translation via Parallel Decoding.

Speed is a ratio of times, and iterations a ratio of decoder calls, both to greedy decoding on the same machine. OPUS-MT
ran on a CPU, mBART-50 on a GPU. Rows have the names of our decoders.
"""

from collections.abc import Mapping, Sequence

GREEDY, BEAM, PJ = "greedy", "beam:size=5", "jacobi"
PGJ5, PGJ3, HGJ3 = "gauss_seidel:block=5", "gauss_seidel:block=3", "hybrid:block=3"

Cells = dict[tuple[str, str], dict[str, float | None]]
"""(name, direction) -> column -> value; None where the print is not legible."""


def _cells(directions: Sequence[str], columns: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Cells:
    """The cells of a printed table, given as column -> decoder -> values in the order of the directions."""
    cells: Cells = {}
    for column, rows in columns.items():
        for name, values in rows.items():
            for direction, value in zip(directions, values, strict=True):
                cells.setdefault((name, direction), {})[column] = value
    return cells


def mean(cells: Cells, name: str, column: str) -> float:
    """The mean of a decoder's legible values over the directions."""
    values = [value for (other, _), row in cells.items() if other == name and (value := row.get(column)) is not None]
    return sum(values) / len(values)


WMT = ("en-de", "de-en", "en-ro", "ro-en")
LANGUAGES = ("en-fi", "fi-en", "en-hi", "hi-en", "en-vi", "vi-en", "en-it", "it-en", "en-fr", "fr-en")

_ONE = (1.00, 1.00, 1.00, 1.00)
_MBART_SPEEDUP: dict[str, Sequence[float]] = {
    GREEDY: _ONE,
    BEAM: (0.76, 0.77, 0.77, 0.76),
    PJ: (0.88, 0.88, 0.86, 0.85),
    PGJ3: (1.06, 1.08, 1.03, 1.04),
    HGJ3: (1.05, 1.07, 1.01, 1.02),
}
"""In tables 1 and 6."""
_OPUS_BLEU, _MBART_BLEU = (28.24, 33.10, 27.41, 37.01), (23.97, 31.58, 24.99, 34.77)

TABLE_1 = _cells(
    WMT,
    {
        "paper_speedup": {
            GREEDY: _ONE,
            BEAM: (0.71, 0.72, 0.70, 0.72),
            PJ: (0.73, 0.75, 0.66, 0.66),
            PGJ5: (1.28, 1.32, 1.33, 1.29),
            PGJ3: (1.34, 1.37, 1.38, 1.35),
            HGJ3: (1.34, 1.37, 1.38, 1.35),
        },
        "paper_bleu": {BEAM: (28.68, 33.92, 27.61, 37.84)} | dict.fromkeys((GREEDY, PJ, PGJ5, PGJ3, HGJ3), _OPUS_BLEU),
        "paper_mbart_speedup": _MBART_SPEEDUP | {PGJ5: (0.98, 0.98, 0.97, 0.99)},
        "paper_mbart_bleu": {BEAM: (24.93, 32.61, 25.31, 35.16)}
        | dict.fromkeys((GREEDY, PJ, PGJ5, PGJ3, HGJ3), _MBART_BLEU),
    },
)
"""OPUS-MT on 16 cores of an AMD EPYC Milan; mBART-50 on an RTX 3090."""

TABLE_2 = _cells(
    LANGUAGES,
    {
        "paper_calls_ratio": {
            PJ: (1.04, 1.04, 1.04, 1.04, 1.06, 1.03, 1.02, 1.04, 1.03, 1.03),
            PGJ3: (1.07, 1.09, 1.09, 1.09, 1.10, 1.07, 1.07, 1.08, 1.08, 1.11),
            HGJ3: (1.05, 1.07, 1.07, 1.07, 1.07, 1.06, 1.07, 1.06, 1.05, 1.07),
        },
        "paper_speedup": {
            PJ: (0.86, 0.88, 0.89, 0.89, 0.87, 0.86, 0.85, 0.86, 0.85, 0.85),
            PGJ3: (1.01, 1.05, 1.05, 1.07, 1.04, 1.02, 1.02, 1.03, 1.03, 1.05),
            HGJ3: (1.01, 1.03, 1.04, 1.05, 1.03, 1.01, 1.01, 1.02, 1.01, 1.03),
        },
    },
)
"""mBART-50 on an RTX 3090; of each pair of printed values, the first is read as out of English, the second as into it."""

REQUIREMENTS = ("paper_architecture", "paper_loss", "paper_distillation")
NAT_COLUMNS = ("paper_speedup", "paper_bleu", "paper_train_flops", "paper_total_flops", "paper_flops_per_speedup")

TABLE_3: dict[str, tuple[tuple[str, str, str], tuple[float, float, float, float, float]]] = {
    HGJ3: (("No", "No", "No"), (1.34, 28.24, 0.0, 2.53e13, 1.89e13)),
    "SUNDAE": (("Yes", "No", "No"), (1.4, 28.46, 5.27e21, 5.27e21, 3.77e21)),
    "ShallowDec (12-1)": (("Yes", "No", "No"), (1.4, 26.90, 1.02e19, 1.02e19, 7.30e18)),
    "Semi-NAT": (("Yes", "No", "Yes"), (1.5, 26.90, 1.55e17, 1.55e17, 1.03e17)),
    "DisCo": (("Yes", "Yes", "Yes, Big"), (3.5, 27.34, 4.06e19, 4.06e19, 1.16e19)),
    "DSLP": (("Yes", "Yes", "Yes"), (14.8, 27.02, 1.93e19, 1.93e19, 1.31e18)),
    "F-VAE": (("Yes", "Yes", "Yes, Big"), (16.5, 27.49, 4.06e19, 4.06e19, 2.46e18)),
}
"""WMT14 en-de, 3,003 sentences: `REQUIREMENTS`, then `NAT_COLUMNS`. Speeds are from each method's own paper."""

TABLE_4 = {
    "WMT 14 De-En": 3003, "WMT 16 Ro-En": 1999, "WMT 17 Fi-En": 3002, "IWSLT 15 En-Vi": 1046, "IITB En-Hi": 2507,
    "FLORES-101 En-It": 1012, "FLORES-101 En-Fr": 1012,
}  # fmt: skip

TABLE_5: dict[str, tuple[float, float | None, float | None]] = {
    "Semi-NAT": (1.55e17, 2.08e13, 1.55e17),
    "ShallowDec (12-1)": (1.02e19, 1.15e13, 1.02e19),
    "DSLP": (1.93e19, 1.58e13, 1.93e19),
    "F-VAE": (4.06e19, 1.58e13, 4.06e19),
    "DisCo": (4.06e19, 1.58e13, 4.06e19),
    "SUNDAE": (5.27e21, 1.58e14, 5.27e21),
    "BERT base": (6.43e19, None, None),
    "BERT large": (1.92e20, None, None),
    "RoBERTa": (3.19e21, None, None),
}
"""FLOPs of training, of translating the WMT14 en-de test set, and both together; pretraining for the last three."""

TABLE_6 = _cells(
    WMT,
    {
        "paper_speedup": {
            GREEDY: _ONE,
            BEAM: (0.71, 0.71, 0.70, 0.72),
            PJ: (0.72, 0.74, 0.69, 0.67),
            PGJ3: (1.16, 1.19, 1.17, 1.17),
            HGJ3: (1.16, 1.19, 1.17, 1.17),
        },
        "paper_calls_ratio": {
            GREEDY: _ONE,
            BEAM: _ONE,
            PJ: (1.03, 1.04, 1.04, 1.03),
            PGJ3: (1.04, 1.07, 1.05, 1.03),
            HGJ3: (1.04, 1.06, 1.05, 1.03),
        },
        "paper_mbart_speedup": _MBART_SPEEDUP,
        "paper_mbart_calls_ratio": {
            GREEDY: _ONE,
            BEAM: _ONE,
            PJ: (1.03, 1.03, 1.04, 1.03),
            PGJ3: (1.10, 1.11, 1.08, 1.11),
            HGJ3: (1.07, None, None, 1.08),
        },
    },
)
"""OPUS-MT on a Ryzen 9 3900X, mBART-50 on an RTX 3090. In the last row the columns of the print are shuffled: the times
are those of Table 1, and of the iterations only the first and the last are certain."""

TABLE_7 = _cells(
    LANGUAGES,
    {
        "paper_mbart_bleu": {
            GREEDY: (17.55, 25.34, 16.50, 24.70, 31.92, 33.94, 22.78, 26.38, 39.51, 38.90),
            BEAM: (18.39, 26.04, 16.87, 25.24, 32.14, 34.59, 23.52, 26.80, 39.59, 39.21),
            PJ: (17.54, 25.35, 16.50, 24.69, 31.92, 33.94, 22.78, 26.38, 39.50, 38.90),
            PGJ3: (17.55, 25.35, 16.50, 24.70, 31.93, 33.94, 22.78, 26.38, 39.51, 38.90),
            HGJ3: (17.55, 25.35, 16.50, 24.70, 31.93, 33.94, 22.78, 26.38, 39.51, 38.90),
        }
    },
)
"""Proposition 1 promises greedy decoding's tokens, but PJ's BLEU differs by .01 in four columns, PGJ's and HGJ's in two."""

FIGURE_3: dict[str, dict[int, float]] = {PJ: {8: 0.46}, PGJ3: {8: 1.11, 122: 1.98}, HGJ3: {8: 1.09, 122: 1.99}}
"""Speedup by number of cores, en-de; the values that the text gives (4.3, "Computational Scaling")."""

MODELS = (("OPUS-MT", 58_000, 74e6, "paper_calls_ratio"), ("mBART-50", 250_000, 610e6, "paper_mbart_calls_ratio"))
"""Name, vocabulary and parameters (4.1 and 4.3), and the column of `TABLE_6` with its calls."""
