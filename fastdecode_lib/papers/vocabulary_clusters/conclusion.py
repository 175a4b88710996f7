"""Conclusion on Amer et al. (2022): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion
from fastdecode_lib.papers.vocabulary_clusters.printed import INCONSISTENCIES

CITATION = Citation(
    "Amer et al.",
    2022,
    "Fast Vocabulary Projection Method via Clustering for Multilingual Machine Translation on GPU",
    "https://arxiv.org/abs/2208.06874",
)
CONCLUSION = Conclusion(
    claims="A hidden vector needs the scores of its cluster's active tokens alone, 6 to 17% of the vocabulary: decoding is 1.05 "
    "to 1.27 times as fast on a GPU, with 92% of the outputs unchanged (M3).",
    found="One sentence at a time decoding is 1.5 to 1.6 times as fast with 97 to 99% of the outputs unchanged and 0.2 BLEU less "
    "on average; in batches with one set for all 1.1 to 1.3 times, with 96 to 98%. Of joined sentences 85 to 92% are unchanged "
    "so, at 1.1 to 1.2 times the speed. English to German alone is 1.8 times as fast with a newer engine (combinations).",
    differs="Our gains are larger, and the paper's own choice, 1,300 clusters with one label, keeps only 75 to 84% of our "
    "outputs, one sentence at a time: 50 clusters with five labels are used instead.",
    why="The projection is 45 to 47% of a step in our two-layer decoder, a quarter or more in the paper's twelve layers with "
    "their 250,000 tokens; and a union over examples needs many of them: the paper has those of 20 million sentences a "
    "direction.",
    use='`projection="clustered"` where some outputs may change; `fastdecode record` and `fastdecode fit clustered` make the '
    "sets of another model. Where none may change: `quantised`.",
    setup="""\
The bundled multilingual model on one thread, systems in turn, 95% intervals; speedups are over our own exact product in float32
unless a table says otherwise. A direction's sets are made of 960,025 to 1,075,230 hidden vectors of the model's own greedy decoding
of the training split, its clusters of 500,000 of those. Sentences are the test split's, single (set 1) and joined two to four at a
time (set 2). Times of the projection's share, under every decoder and at the geometry of the paper's models are of today's engine;
those of tables 3 and 4 of one whose passes took a fifth longer; all others of one that kept the model's weights in 32 bits, where
the exact product was up to 1.8 times as slow.""",
    differences=(
        "The paper's models, sentences and raters cannot be had: ours are a small model of three language pairs and everyday "
        "sentences.",
        "The paper measures on a V100 in float16, where a batch is one product and must share a set; on a CPU each row may keep "
        "its own.",
        "On an NVIDIA H200 no screen is faster than scoring all tokens, at 250,000 tokens and 1,024 entries: all are scored in "
        "0.2 ms, and a screen takes 0.35 ms or more. A V100's memory, at 0.9 TB a second, is read in 0.6 ms.",
        "Sets are made of about a million vectors a direction, clusters by k-means, as in the paper, of half a million; settings "
        "are chosen on the dev split. Every set has the end token too, so that outputs can stop.",
        "On a CPU we also keep a copy of the rows of every set, read as one piece, which the paper's memory does not have.",
        "We have no raters: table 6 counts the outputs that a study would show them.",
    ),
    inconsistencies=INCONSISTENCIES,
)
