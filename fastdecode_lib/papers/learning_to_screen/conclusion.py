"""Conclusion on Chen et al. (2019): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion

CITATION = Citation(
    "Chen et al.",
    2019,
    "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural Networks",
    "https://arxiv.org/abs/1810.12406",
)
SETUP = """\
Speedups are over numpy's product of the matrix with one vector and its partial sort, the paper's baseline; a setting is the fastest
of those that on dev are not below the paper's precisions, and what is shown is the test split's. Screens were learned on 300,000
contexts of each model (a million is the default now); settings are chosen and measured on some 10,000 to 20,000 others. One
thread, methods in turn, 95% intervals."""
CONCLUSION = Conclusion(
    claims="A learned look at the hidden vector picks a few words worth scoring: 10.6 to 45.3 times as fast as the full product on "
    "language models, 20.4 on translation, with the best word found in 99% and more.",
    found="On models of the same sizes 27, 146 and 72 times numpy's product and 22, 90 and 57 times our own, with the "
    "best word found "
    "in 99.9%. Whole translations are 2.5 to 3.8 times as fast as with our exact product, 99% of greedy outputs unchanged.",
    differs="Our factors are two to three times the paper's, and learning adds little over plain k-means with a "
    "budget: a tenth on the "
    "smallest model, nothing sure elsewhere, up to 3.4 points of P@1 where budgets are tight.",
    why="Our models were trained briefly and say few words: of 10,000 no more than 1,127 and 432 are ever among the "
    "five best, and that "
    "is what screens live on. Rounding rows to bytes or float16 gives up to 247 times.",
    use='`fastdecode fit screened` and `projection="screened:file=DIR"` for large vocabularies and small networks; '
    "`quantised` where "
    "nothing may be lost: 4.8 times numpy on translation, bit for bit.",
)
DIFFERENCES = (
    "Novels stand for the Penn Treebank and WikiText-103, everyday sentences for IWSLT, because those corpora are licensed or were "
    "never published; vocabularies and widths are the paper's, but for the largest, of 70,000 words.",
    "The translation models had 1,500 updates (chrF 38 and 35 on dev), the larger language models 1,200, a third of the text once: "
    "they stand for their sizes alone, and none but the smallest is bundled.",
    "The paper gives no budget: ours stands with each setting. Algorithm 1 has four rounds, k-means and then three passes over the "
    "contexts, at a learning rate of 20 relative to the lengths of weights and vectors.",
    "The paper's times are of an Intel E5-2620, its rivals as others had programmed them; here most share the same kernels.",
    "The adaptive softmax begins as the model's own output layer, each tail the nearest of so low a rank.",
)
