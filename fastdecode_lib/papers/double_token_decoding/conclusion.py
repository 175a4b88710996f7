"""Conclusion on Imamura and Sumita (2020): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion

CITATION = Citation(
    "Imamura and Sumita",
    2020,
    "Transformer-based Double-token Bidirectional Autoregressive Decoding in Neural Machine Translation",
    "https://doi.org/10.18653/v1/2020.wat-1.3",
)
CONCLUSION = Conclusion(
    claims="Two tokens a step, one from each end of the sentence: 1.13 to 1.55 times as many tokens a second at a beam of 10, "
    "0.4 to 1.0 BLEU behind.",
    found="At a beam of 10 our models make 1.16 times as many tokens a second by two tokens a step (1.13 to 1.17), 1.12 in the "
    "paper's batches of 32 (1.11 to 1.16; on joined sentences 1.08, where right to left alone has 1.02), and 1.1 to 1.2 times as "
    "many at the paper's sizes with random weights (1.5 times on an Intel Xeon, with an earlier engine): the lower end of the "
    "claim. They lose 2.6 BLEU, 2.0 on joined "
    "sentences; two tokens from the left lose 3.9 to 4.0. In BLEU the seven systems have the order of the paper's first set "
    "(WMT-14, base).",
    differs="They lose more BLEU than in the paper. A plain rival is faster: one decoder layer and an encoder twice as deep make "
    "1.60 times as many tokens a second (1.58 to 1.64), with 0.6 to 1.7 BLEU less than two tokens a step. The right end gains "
    "nothing: the last five words are right no more often than single-token L2R's (0.9 points less, within chance; the "
    "paper: 1.6 to 2.6 more). Mask-Predict loses 6.1 BLEU with ten passes and 7.1 with four (the paper: 2.9 to 4.1 and 5.6 "
    "to 6.8), 10.8 and 14.7 on joined sentences; with four it is 0.88 times as fast as single-token L2R (the paper: 1.42 to "
    "1.50).",
    why="The halves do not see each other where they meet: two neighbours across the middle are right 6 to 8 points less often "
    "than at the middle of single-token outputs, elsewhere 1 to 2, and 3 to 6% of outputs say something twice there, where "
    "single-token ones do in 0.1%. Half the steps score twice the rows each, which leaves a factor of 1.2 at "
    "Transformer base, 1.4 on torch in float32 and 1.1 there in bfloat16.",
    use="Single-token decoding with a shallow decoder, or two tokens a step where 2 to 3 BLEU may go. As a draft that "
    "single-token decoding verifies they cost no quality, and 1.3 times the time.",
    setup="""\
Systems but Mask-Predict are trained by one recipe on Tatoeba English-German, and all are measured on one thread of a CPU with the
compiled engine in float32, in turns, 95% intervals; each row is one training. Speed at the paper's sizes is measured with random
weights and forced lengths: 30 tokens of 16,000 pieces, the end forbidden before the last token, in both systems alike.""",
    differences=(
        "The paper trains on WMT-14 and ASPEC to the end; ours are trained on Tatoeba for 2,800 updates of 12,000 tokens, three "
        "minutes each on a GPU that they shared. Each of these gained 0.3 to 1.2 chrF on dev in the last 300 updates, as the "
        "rate fell to zero.",
        "The paper's speeds are of a V100 in half precision; ours are of one thread of a CPU, where one sentence does not leave "
        "the machine idle.",
        "Our search takes the best of each slot before it pairs them, and is spared the paper's two looks at the vocabulary.",
        "Sentences of over 30 words are joined, five to eight at a time: Tatoeba has none so long.",
        "Mask-Predict has a recipe of its own: it learns from the translations of single-token L2R and begins with its weights, "
        "at half the rates of the others, for 3,000 of 4,200 updates, after which its run ended. Its authors train for 300,000, "
        "from random weights.",
    ),
    inconsistencies=(
        "Algorithm 1 takes 3W pairs so that at least W of them are unfinished. That holds only if an end on the left has an end "
        "on the right as well; the authors' code forces it, the paper does not say so.",
        "Section 5.2.2 has the ratio fall as the vocabulary grows; on ASPEC it rises from 1.49 at 16,000 pieces to 1.57 at "
        "32,000 (Table 4).",
        "ASPEC's ratios of 2.40 and 2.29 at 4,000 and 8,000 pieces stand on a slow baseline: there single-token L2R makes 1,458 "
        "and 1,527 tokens a second, with 16,000 pieces 1,891; on WMT-14 it makes 2,444 to 2,561 at all three.",
    ),
)
