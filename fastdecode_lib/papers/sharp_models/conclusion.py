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
    found="The same steps give 4.6 times with our trained model (4.2 to 4.8), whose layers are a quarter as wide, and 9.1 times "
    "at the paper's sizes (8.2 to 9.7, noisy), where torch is slow on this processor: over our own products in float32 they give "
    "1.9 and 3.0 times. Three fully-connected layers (S3) gain 4.8 BLEU and seven (S4) 3.7; a second recurrent layer (S2) gains "
    "5.1 and costs more. The engine for transformers grown from these steps is faster than CTranslate2 on single sentences: on "
    "the bundled model 1.5 times in float32 (1.4 to 1.5) and 1.2 times in int8 (1.2 to 1.3), at opus-mt's shape 1.2 and 2.4 "
    "times (2.3 to 2.6), and 1.9 times in float32 (1.9 to 2.0) where its weights are numbers of float16, all on another "
    "processor. In int8 72% of the outputs for our own sentences stay as they are, 47% in CTranslate2's. With many sentences at "
    "once on two threads it is 1.3 times as fast as CTranslate2 in float32 (1.3 to 1.4) and 1.6 times in int8.",
    differs="The deep recurrent network (S7) is 6.3 BLEU ahead of S4 after half the updates (the paper: 0.4). A recurrent layer "
    "on top of seven fully-connected ones (S5) and fifteen of them (S6) do not help here: 3.2 behind S1 and level with it, the "
    "paper's 1.4 and 1.1 ahead. Two networks together gain 2.8 (the paper: 0.9).",
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
