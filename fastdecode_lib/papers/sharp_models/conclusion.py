"""Conclusion on Devlin (2017): its claim, our findings, recommendations and differences in method."""

from fastdecode_lib.papers.experiment import Citation, Conclusion

CITATION = Citation(
    "Devlin",
    2017,
    "Sharp Models on Dull Hardware: Fast and Accurate Neural Machine Translation Decoding on the CPU",
    "https://doi.org/10.18653/v1/D17-1300",
)
SETUP = """\
One thread, systems in turn, 95% intervals. The paper's times are of an Intel E5-2660 with the MKL of 2017: compare factors, not
words a second."""
CONCLUSION = Conclusion(
    claims="16-bit products, precomputed embeddings and attention, lookup tables and merged states make a good "
    "decoder 4.4 times as "
    "fast; fully-connected layers on one recurrent layer are as good as a deep recurrent network.",
    found="The same steps give 4.5 times at the paper's sizes and 3.4 times with our trained model (3.3 to 3.6), whose layers "
    "are a quarter as wide. The engine for transformers grown from them is faster than CTranslate2 on single sentences: on the "
    "bundled model 1.5 times in float32 (1.4 to 1.5) and 1.2 times in int8 (1.2 to 1.3), at opus-mt's shape 1.2 and 2.4 times "
    "(2.3 to 2.6), and 1.9 times in float32 (1.9 to 2.0) where its weights are numbers of float16. In int8 72% of the outputs "
    "for our own sentences stay as they are, 47% in CTranslate2's. With many sentences at once on two threads, on another "
    "processor, it is 1.3 times as fast as CTranslate2 in float32 (1.3 to 1.4) and 1.6 times in int8.",
    differs="Not every step pays here. Our network with fully-connected layers is 0.6 BLEU ahead of the plain one, within chance "
    "(p 0.16), where the paper's is 1.2 ahead.",
    why="Our baseline is today's library on another processor; our networks are a quarter as wide, had 2,400 updates, after which "
    "both still gain, and everyday sentences.",
    use='`fastdecode_lib.load(name, precision="int8")` where outputs may change and their BLEU may not (84 to 89% of single ones '
    'stay as they are), `"int16"` where few may (98 to 99% stay), float32 where none may.',
)
DIFFERENCES = (
    "The paper's processor is an Intel E5-2660 with the MKL of 2017; ours are named below each table, with today's library.",
    "Quality is of networks of a quarter of the paper's widths, trained on everyday sentences for 2,400 updates.",
    "Each output and each row has a scale of its own in 16 bits, and sums cannot overflow; the paper multiplies all "
    "by one constant.",
    "Our vocabulary has 8,000 words altogether, the paper's 80,000.",
    "Transformers, 8 bits and the comparison with CTranslate2 and Hugging Face are beyond the paper.",
)
