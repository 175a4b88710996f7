"""Conclusion on Chen et al. (2019): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion
from fastdecode_lib.papers.learning_to_screen.printed import INCONSISTENCIES

CITATION = Citation(
    "Chen et al.",
    2019,
    "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural Networks",
    "https://arxiv.org/abs/1810.12406",
)
CONCLUSION = Conclusion(
    claims="A learned look at the hidden vector picks a few words worth scoring: 10.6 to 45.3 times as fast as the full product "
    "on language models, 20.4 on translation, with the best word found in 98.9% and more.",
    found="On translation 20 times numpy's product (19.7 to 21.1), with the best token found in 99.5% and 378 of 16,000 tokens "
    "scored; on the small language model 49 times, in over 99.9%. Whole translations are 2.1 times as fast as with our exact "
    "product, 95 to 96% of greedy outputs unchanged and 0.3 BLEU less; at a beam of five 1.6 to 1.8 times, 81 to 86% unchanged "
    "and 0.5 to 0.7 BLEU less.",
    differs="The factor on translation is the paper's, at a P@5 of 98.7% for its 99.3%: no learned screen reaches that here, and "
    "clusters as in Amer et al. that do are 10.7 times numpy, 17.7 in float16. A beam of five costs the paper 0.1 BLEU. "
    "Where perplexity counts (table 6), it rises by 17% at 8.4 times (the paper: 3.2% at 5.7), by 3.3% with SVD and 7.2% with "
    "the adaptive softmax. Learning saves a tenth to a "
    "fifth of the tokens that plain k-means with a budget scores (378 for 421, 41 for 50) and a tenth of its time; the paper's "
    "is 1.5 times as fast as k-means on translation. Rivals that do not screen are 0.4 to 1.8 times numpy on translation, but "
    "for LSH-MIPS (8.5, at a P@1 of 18%), and 0.4 to 12 on the small model; the paper's are 1.3 to 6.7 and 0.1 to 1.9.",
    why="A screen lives on words that are never said: 1,259 of the language model's 10,000 are ever among the five best, and "
    "6,043 of the translation model's 16,000. Rivals run on our own kernels, beside a numpy that is fast on this processor.",
    use='`fastdecode fit screened` and `projection="screened:file=DIR"` for large vocabularies and small networks; `quantised` '
    "where nothing may be lost: 2.9 times numpy on translation, bit for bit.",
    setup="""\
Speedups are over numpy's product of the matrix with one vector and its partial sort, the paper's baseline. The knob of every method
is found by bisection, so that on dev it is not below the paper's precisions where it can be; what is shown is the test split's.
Translation is the bundled model's, German to English (English to French in the second set), the small language model is of
novels. Sets are made of a million contexts of each, weights learned from half of those; settings are chosen and measured on others,
20,000 of the novels and 11,000 to 13,000 of translation. One thread, methods in turn, 95% intervals. Figure 8 is of an earlier run
on 300,000 contexts. Whole translations are over an engine that kept weights in 32 bits; now the bundled model's lie in 16, and
greedy decoding is more than 1.5 times as fast.""",
    differences=(
        "Novels stand for the Penn Treebank and WikiText-103, everyday sentences for IWSLT: those corpora are licensed or were "
        "never published. Translation is a transformer's of 16,000 pieces and 256 entries where the paper has an LSTM's of "
        "24,725 words and 500.",
        "The larger language models are not trained: their rows are gaps.",
        "The paper gives no budget: ours stands with each setting. Algorithm 1 has four rounds, k-means and then three passes "
        "over the contexts, at a learning rate of 20 relative to the lengths of weights and vectors.",
        "The paper's times are of an Intel E5-2620, its rivals as others had programmed them; here most share the same kernels.",
        "The adaptive softmax begins as the model's own output layer, each tail the nearest of so low a rank.",
        "In translations (figure 1, tables 3 and 8) every set has the end token too, so that outputs can stop.",
    ),
    inconsistencies=INCONSISTENCIES,
)
