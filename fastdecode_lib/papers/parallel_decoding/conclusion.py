"""Conclusion on Santilli et al. (2023): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion

CITATION = Citation(
    "Santilli et al.",
    2023,
    "Accelerating Transformer Inference for Translation via Parallel Decoding",
    "https://arxiv.org/abs/2305.10427",
)
CONCLUSION = Conclusion(
    claims="Guess a block of tokens, correct all of them in every pass: the same output as greedy decoding, 1.34 to 1.38 times "
    "as fast on 16 cores.",
    found="The output is the same, and plain blocks are slower than greedy decoding here (PGJ and HGJ 0.78 to 0.86 times as "
    "fast, PJ 0.25 to 0.41), because a good model depends on its own last word: they save no passes. A sliding window with "
    "drafts from a table makes 1.7 to 1.8 times fewer, with a draft head as well 2.0 to 2.3.",
    differs="Counted at the network PJ, PGJ and HGJ save nothing; the paper counts 1.02 to 1.11 times fewer iterations, and its "
    "code leaves out one pass a sentence for PJ and PGJ. On 122 cores the paper has 1.98 times for PGJ and 1.99 for HGJ; for "
    "both 0.93 is calculated here.",
    why="A pass over several positions costs more than one over one. It pays where passes wait for memory: on an Intel Xeon a "
    "window of three is 1.2 times as fast on the bundled model, and 1.4 with the lossless projection `quantised`; 2.2 (2.0 to "
    "2.3) at opus-mt's shape; in int8 1.1 times, and slower than greedy decoding where drafts seldom hold. With a newer engine "
    "on an AMD EPYC the same window is 0.9 times as fast, and `quantised` is faster without it.",
    use='`projection="quantised"`, with `decoder="auto"` or a window of three where `fastdecode speedup` finds that it pays on '
    "your machine; one sentence at a time, not in batches.",
    setup="""\
The bundled model in float32 on the compiled engine, six directions, test sentences single and joined two to four at a time, one
thread, one run for all tables. *Times fewer passes* are greedy decoding's passes over the method's, on 500 sentences a direction
and set (100 under the protocol *paper*); speedups over our greedy loop are of 40 single and 10 joined sentences a direction.""",
    differences=(
        "The paper's models are OPUS-MT on 16 cores and mBART-50 on a GPU; ours is a small model on one core.",
        "The authors' code tells PJ and PGJ the length of the answer; under the protocol *honest* every decoder finds the end by "
        "itself.",
        "The authors' code returns a loop index, which leaves out one pass a sentence; passes are counted at the network here.",
        "Cores beyond those measured are calculated in figure 3: they share the positions of a pass, and drafts stay on one.",
        "Windows, draft tables and draft heads are beyond the paper.",
    ),
    inconsistencies=(
        "OPUS-MT gains more time than iterations in the same runs (Table 6: 1.16 to 1.19 and 1.03 to 1.07 times for PGJ and "
        "HGJ): a pass over three positions would have to cost less than one over a single position.",
        "The iterations saved are of the size of what is not counted: one pass in a sentence of 30 tokens is a factor of 1.03.",
        "Proposition 1 promises the tokens of greedy decoding, but in Table 7 PJ's BLEU differs from it by .01 in four of ten "
        "columns, PGJ's and HGJ's in two.",
    ),
)
