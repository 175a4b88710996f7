"""Numbers printed in Devlin (2017), Sharp Models on Dull Hardware. One thread of an Intel E5-2660, beam 6."""

TABLE_1 = {
    "baseline": (95, 1.00),
    "16-bit products": (248, 2.59),
    "precomputed embeddings": (311, 3.25),
    "precomputed attention": (342, 3.57),
    "lookup tables": (386, 4.06),
    "merged states": (418, 4.37),
}
"""Stage -> words a second, factor."""

TABLE_2 = {
    "S1": (36.2, 418),
    "S2": (36.8, 242),
    "S3": (37.1, 271),
    "S4": (37.4, 229),
    "S5": (37.6, 157),
    "S6": (37.3, 163),
    "S7": (37.8, 28),
    "E1": (38.3, 102),
    "E2": (38.5, 65),
}
"""System -> BLEU on newstest2014, words a second."""

CITED: dict[str, tuple[float, float | None]] = {
    "phrase-based, basic (Schwenk 2014)": (33.1, None),
    "phrase-based, best (Durrani et al. 2014)": (37.0, None),
    "RNN search, large vocabulary (Jean et al. 2015)": (34.6, 8),
    "Google, 8 LSTM layers, words (Wu et al. 2016)": (37.9, 100),
    "Google, 8 LSTM layers, word pieces (Wu et al. 2016)": (39.0, 100),
    "convolutional (Gehring et al. 2017)": (40.5, None),
    "transformer (Vaswani et al. 2017)": (41.0, None),
}
"""Other systems that the paper cites; 8 words a second on one core and 100 on 44 cores are approximate."""

FIGURE_1 = (2.0, 3.0)
"""Speed of 16-bit over 32-bit products at batches of 2 to 8, from the text; the axis' values are not printed."""
UNIQUE_STATES = 0.70
"""Share of unique states at a beam of 6, averaged over several language pairs."""
COVERAGE = 0.95
"""Least share of tokens covered by the 8,000 most frequent words of 80,000."""
LAYER = 1 / 6
"""Cost of a fully-connected layer over a GRU's; 1/8 over an LSTM's."""
TRAINING = 3.0
"""S7's training time over S4's, roughly."""
