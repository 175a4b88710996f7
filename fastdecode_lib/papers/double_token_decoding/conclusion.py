"""Conclusion on Imamura and Sumita (2020): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion

CITATION = Citation(
    "Imamura and Sumita",
    2020,
    "Transformer-based Double-token Bidirectional Autoregressive Decoding in Neural Machine Translation",
    "https://doi.org/10.18653/v1/2020.wat-1.3",
)
SETUP = """\
Systems are trained by one recipe on Tatoeba English-German and measured on one thread of a CPU with the compiled engine in float32,
in turns, 95% intervals; each row is one training. Speed at the paper's sizes is measured with random weights and forced lengths: 30
tokens of 16,000 pieces, the end forbidden before the last token, in both systems alike."""
CONCLUSION = Conclusion(
    claims="Two tokens a step, one from each end of the sentence: 1.13 to 1.55 times as many tokens a second at a "
    "beam of 10, 0.4 to "
    "1.0 BLEU behind.",
    found="1.2 times as many tokens a second (1.2 to 1.5), 3.0 BLEU behind after 9,600 updates, 3.5 to 3.6 after 6,000. "
    "Two tokens from the left are 5.5 behind at the same speed after 6,000; the order of the systems is the paper's.",
    differs="The loss in BLEU is larger than the paper's, and a plain rival does better: a single decoder layer below "
    "an encoder twice "
    "as deep is 1.6 to 1.7 times as fast, 3.8 to 4.5 BLEU behind.",
    why="More training still narrows the distance, and the halves do not see each other where they meet: two neighbours across the "
    "middle are right 8 points less often than at the middle of single-token outputs, elsewhere 1 to 2, and 4 to 6% of "
    "outputs say something twice there, where single-token ones do in under 1%. At Transformer base, with random weights, "
    "two tokens are 1.2 to 1.3 times as fast: half the steps, each with twice the rows to score.",
    use="Single-token decoding with a shallow decoder; two tokens a step only for a narrow beam and one sentence at a "
    "time. As a draft "
    "that single-token decoding verifies they cost no quality, and twice the time.",
)
DIFFERENCES = (
    "Single-token L2R and bidirectional have been trained on since: the tables *Single-token L2R and bidirectional, trained on*, "
    "*Where both halves meet* and table 3 are of their new weights, the others of those of 6,000 updates, "
    "`weights/single-l2r-6000` and `weights/bidirectional-6000`.",
    "The paper trains on WMT-14 and ASPEC to the end; ours are trained on Tatoeba for 2,400 to 9,600 updates.",
    "The paper's speeds are of a V100 in half precision; ours are of one thread of a CPU, where one sentence does not "
    "leave the machine "
    "idle.",
    "Our search takes the best of each slot before it pairs them, and is spared the paper's two looks at the vocabulary.",
    "Sentences of over 30 words are joined, five to eight at a time: Tatoeba has none so long.",
    "Mask-Predict learns from the corpus itself here, not from a teacher's outputs.",
)
