"""Numbers printed in Imamura and Sumita (2020), double-token bidirectional decoding; fairseq on one V100, float16."""

SETS = ("wmt_base", "aspec_base", "wmt_big", "aspec_big")
"""WMT-14 English-German and ASPEC Japanese-English, Transformer base and big."""
NAMES = dict(zip(SETS, ("WMT-14, base", "ASPEC, base", "WMT-14, big", "ASPEC, big"), strict=True))

TABLE_1: tuple[tuple[str, str, str], ...] = (
    ("layers, base", "6 + 6", "encoder_layers"),
    ("width, base", "512", "width"),
    ("heads, base", "8", "heads"),
    ("feed-forward, base", "2048", "feed_forward"),
    ("dropout, base", "0.1", "dropout"),
    ("width, big", "1024", ""),
    ("heads, big", "16", ""),
    ("feed-forward, big", "4096", ""),
    ("dropout, big", "0.3; 0.1 in attention", ""),
    ("vocabulary", "37,000 shared (WMT-14); 16,000 a side (ASPEC)", "vocabulary"),
    ("optimiser", "Adam, 0.9, 0.99, epsilon 1e-6", "optimiser"),
    ("warm-up", "5 epochs, then inverse square root", "warm_up"),
    ("weight decay", "0.0001", "weight_decay"),
    ("clipping", "norm 5", "clip"),
    ("label smoothing", "0.1", "label_smoothing"),
    ("batch", "about 500 sentences", "batch"),
    ("peak rate", "0.0004; Mask-Predict 0.0001", "peak_rate"),
    ("stopping", "10 epochs without gain; Mask-Predict 300,000 updates", "updates"),
    ("averaging", "10 best checkpoints", "average"),
    ("beam width", "10; Mask-Predict 5 lengths", "beam"),
    ("length penalty", "1.0", "length_penalty"),
    ("test batch", "32 sentences sorted by source length", "test_batch"),
    ("numbers, test", "half precision", "numbers"),
    ("norms", "behind each block, base; before it, big", "norms"),
    ("layers, big", "6 + 6", ""),
)
"""Setting, the paper's value, and the key of our value in `quality.table1`."""

Cell = tuple[float, int]

TABLE_2: dict[str, tuple[Cell, Cell, Cell, Cell]] = {
    "bidirectional": ((25.62, 2_251), (28.23, 2_811), (25.56, 1_888), (27.50, 2_241)),
    "single_token_l2r": ((26.45, 1_997), (28.65, 1_891), (26.59, 1_520), (27.85, 1_449)),
    "single_token_r2l": ((25.79, 2_004), (28.31, 1_775), (26.14, 1_537), (28.23, 1_376)),
    "double_token_l2r": ((24.55, 2_349), (26.47, 2_717), (24.16, 1_915), (26.17, 2_229)),
    "double_token_r2l": ((24.43, 2_327), (27.26, 2_725), (24.42, 1_958), (26.57, 2_208)),
    "mask_predict_10": ((22.31, 1_564), (25.05, 1_476), (23.47, 1_092), (25.00, 1_095)),
    "mask_predict_4": ((19.62, 2_910), (22.08, 2_836), (20.34, 2_234), (22.30, 2_060)),
}
"""System -> BLEU and tokens a second in each of `SETS`."""


def printed_ratio(system: str, column: int) -> float:
    """Printed tokens a second of a system over those of single-token L2R, in one of `SETS`."""
    return TABLE_2[system][column][1] / TABLE_2["single_token_l2r"][column][1]


_BOTH = ("†‡",) * 4
MARKS: dict[str, tuple[str, str, str, str]] = {
    "bidirectional": ("†‡", "", "†‡", "‡"),
    "single_token_l2r": ("‡", "", "‡", ""),
    "single_token_r2l": ("†", "", "†", ""),
    "double_token_l2r": _BOTH,
    "double_token_r2l": _BOTH,
    "mask_predict_10": _BOTH,
    "mask_predict_4": _BOTH,
}
"""System -> whether its BLEU differs from single-token L2R's (†) and R2L's (‡) in each of `SETS`, p < 0.05."""

ENDS: tuple[tuple[str, int], ...] = (
    ("all", 0), ("left", 5), ("left", 10), ("left", 15), ("right", 5), ("right", 10), ("right", 15),
)  # fmt: skip
"""Tokens of an output that are scored: all, or a number from one end."""

TABLE_3: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "wmt": (
        (59.8, 59.9, 18.9, 18.2), (53.8, 53.8, 16.8, 16.2), (49.1, 49.0, 15.1, 14.5), (45.1, 45.0, 13.7, 13.2),
        (62.9, 64.5, 14.7, 15.3), (62.2, 63.0, 16.5, 16.8), (61.8, 62.2, 16.7, 16.6),
    ),
    "aspec": (
        (65.8, 66.2, 18.5, 17.8), (59.2, 59.4, 16.2, 15.6), (53.7, 53.9, 14.5, 13.9), (49.3, 49.5, 13.1, 12.5),
        (73.5, 76.1, 17.5, 18.9), (72.4, 74.6, 17.3, 18.9), (71.5, 72.6, 17.3, 18.3),
    ),
}  # fmt: skip
"""Percent of correct 1-grams and 4-grams for each of `ENDS`, single-token L2R and bidirectional; sentences of over 30 tokens."""

TABLE_4: dict[int, tuple[tuple[float, int, int], tuple[float, int, int]]] = {
    4_000: ((58.10, 2_444, 3_959), (34.44, 1_458, 3_493)),
    8_000: ((41.33, 2_561, 3_701), (30.17, 1_527, 3_500)),
    16_000: ((34.22, 2_474, 3_244), (27.67, 1_891, 2_811)),
    32_000: ((29.67, 2_183, 2_422), (26.43, 1_404, 2_209)),
    64_000: ((26.85, 1_721, 1_599), (25.81, 1_136, 1_438)),
}
"""Vocabulary -> tokens of a target sentence, tokens a second of single-token L2R and of bidirectional; WMT-14 and ASPEC. By the
table, 16,000 words give 131% on WMT-14, where table 2 has 113% at 37,000."""
