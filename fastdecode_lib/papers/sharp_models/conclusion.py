"""Conclusion on Devlin (2017): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion

CITATION = Citation(
    "Devlin",
    2017,
    "Sharp Models on Dull Hardware: Fast and Accurate Neural Machine Translation Decoding on the CPU",
    "https://doi.org/10.18653/v1/D17-1300",
)
CONCLUSION = Conclusion(
    claims="16-bit products, precomputed embeddings and attention, lookup tables and merged states make a good decoder 4.4 times "
    "as fast; fully-connected layers on one recurrent layer are as good as a deep recurrent network.",
    found="The same steps make our trained network 4.6 times as fast (4.2 to 4.8), and one of the paper's sizes with random "
    "weights 9.1 times (8.2 to 9.7, noisy). Factors of 2.4 and 3.1 of these are torch's, which is slow on this processor: "
    "over our own float32 products the steps give 1.9 and 3.0 times. Fully-connected layers do well: three (S3) gain 4.8 "
    "BLEU and seven (S4) 3.7, where a second recurrent layer (S2) gains 5.1 at a higher price. Beyond the paper, our engine "
    "for transformers is 1.2 to 2.4 times as fast as CTranslate2 on single sentences in float32 and int8 (on another "
    "processor), and 1.3 to 1.6 times on many at once on two threads; in int8 72% of outputs for our own sentences stay as "
    "they are, 47% in CTranslate2's.",
    differs="The deep recurrent network (S7) is 6.3 BLEU ahead of S4, after half the updates (the paper: 0.4 ahead). A recurrent "
    "layer on top of seven fully-connected ones (S5) is 3.2 behind S1, and fifteen of them (S6) are level with it (the "
    "paper: 1.4 and 1.1 ahead). Two networks together gain 2.8 (the paper: 0.9).",
    why="Our networks are a quarter as wide and had 2,400 updates on everyday sentences (S7 1,200), after which all still gain; "
    "S5 and S6 learn slowest. Our baseline is today's library on another processor.",
    use='`fastdecode_lib.load(name, precision="int8")` where outputs may change and their BLEU may not (84 to 89% of single ones '
    'stay as they are), `"int16"` where few may (98 to 99% stay), float32 where none may.',
    setup="""\
One thread, systems in turn, 95% intervals. The paper's times are of an Intel E5-2660 with the MKL of 2017: compare factors, not
words a second.""",
    differences=(
        "The paper's processor is an Intel E5-2660 with the MKL of 2017; ours are named below each table, with today's library.",
        "Quality is of networks of a quarter of the paper's widths, trained on everyday sentences for 2,400 updates; S7's are of "
        "update 1,200, since its run failed soon after.",
        "Each output and each row has a scale of its own in 16 bits, and sums cannot overflow; the paper multiplies all by one "
        "constant.",
        "With random weights at the paper's sizes each word has 38 translations, not 20, many of which other words have, too: a "
        "sentence has the paper's 500 candidates.",
        "Our vocabulary has 8,000 words altogether, the paper's 80,000.",
        "Transformers, 8 bits and the comparison with CTranslate2 and Hugging Face are beyond the paper.",
    ),
    inconsistencies=(
        "Section 4 prints the candidate state of the GRU with the sigmoid; by section 5.1 GRUs use tanh, and so do ours.",
    ),
)
