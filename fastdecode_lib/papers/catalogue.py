"""Every table and figure of the five papers, and the function that makes it here."""

from dataclasses import dataclass

from fastdecode_lib.papers.experiment import Experiment


@dataclass(frozen=True)
class Entry:
    """One table or figure.

    Attributes
    ----------
    paper : str
        Number of the paper, ``"000"`` to ``"004"``.
    label : str
        As the paper calls it, e.g. ``"Table 2"``.
    title : str
    experiment : str
        ``STEM.TABLE`` of the function that makes it.
    """

    paper: str
    label: str
    title: str
    experiment: str


PAPERS = {
    "000": "Vocabulary projection by clusters and active sets",
    "001": "Learning to screen the softmax (L2S)",
    "002": "Double-token bidirectional decoding",
    "003": "Parallel decoding (PJ, PGJ, HGJ) and DDGviz",
    "004": "Sharp models on dull hardware",
}

INVENTORY: tuple[Entry, ...] = (
    Entry("000", "Figure 1", "Overview of the clustered projection", experiment="vocabulary_clusters.figure1"),
    Entry(
        "000",
        "Figure 2",
        "Largest active share against the number of clusters, per direction and per target",
        experiment="vocabulary_clusters.figure2",
    ),
    Entry("000", "Table 1", "Sizes of the validation sets", experiment="vocabulary_clusters.table1"),
    Entry("000", "Table 2", "Active share and time of the projection", experiment="vocabulary_clusters.table2"),
    Entry("000", "Table 3", "BLEU and speedup on set 1", experiment="vocabulary_clusters.table3"),
    Entry("000", "Table 4", "BLEU and speedup on set 2", experiment="vocabulary_clusters.table4"),
    Entry("000", "Table 5", "Memory", experiment="vocabulary_clusters.table5"),
    Entry("000", "Table 6", "Human evaluation", experiment="vocabulary_clusters.table6"),
    Entry("000", "Figure 3", "Speedup against clusters, for K = 1, 3, 5", experiment="vocabulary_clusters.figure3"),
    Entry("000", "Figure 4", "Active share of each cluster, for K = 1, 3, 5", experiment="vocabulary_clusters.figure4"),
    Entry("001", "Figure 1", "Overview of learning to screen", experiment="learning_to_screen.figure1"),
    Entry("001", "Table 1", "Vocabulary and hidden sizes", experiment="learning_to_screen.table1"),
    Entry("001", "Table 2", "Speedup, precision at 1 and at 5 of every method", experiment="learning_to_screen.table2"),
    Entry(
        "001",
        "Figure 2",
        "Precision at 1 against speedup, large language model",
        experiment="learning_to_screen.figure2",
    ),
    Entry(
        "001",
        "Figure 3",
        "Precision at 1 against speedup, small language model",
        experiment="learning_to_screen.figure3",
    ),
    Entry("001", "Figure 4", "Precision at 1 against speedup, translation", experiment="learning_to_screen.figure4"),
    Entry("001", "Table 3", "BLEU against time", experiment="learning_to_screen.table3"),
    Entry("001", "Table 4", "Number of clusters", experiment="learning_to_screen.table4"),
    Entry(
        "001",
        "Figure 5",
        "Precision at 5 against speedup, large language model",
        experiment="learning_to_screen.figure5",
    ),
    Entry(
        "001",
        "Figure 6",
        "Precision at 5 against speedup, small language model",
        experiment="learning_to_screen.figure6",
    ),
    Entry("001", "Figure 7", "Precision at 5 against speedup, translation", experiment="learning_to_screen.figure7"),
    Entry("001", "Table 5", "Learned screening against spherical k-means", experiment="learning_to_screen.table5"),
    Entry("001", "Table 6", "Perplexity against time", experiment="learning_to_screen.table6"),
    Entry("001", "Figure 8", "Speedup against vocabulary size", experiment="learning_to_screen.figure8"),
    Entry(
        "001", "Figure 9", "Precision against speedup, vocabulary of 80,000", experiment="learning_to_screen.figure9"
    ),
    Entry("001", "Table 7", "Words of some clusters", experiment="learning_to_screen.table7"),
    Entry("001", "Table 8", "Translations compared with the full softmax", experiment="learning_to_screen.table8"),
    Entry("002", "Figure 1", "Attention masks for training", experiment="double_token_decoding.figure1"),
    Entry("002", "Figure 2", "A sentence decoded from both ends", experiment="double_token_decoding.figure2"),
    Entry("002", "Table 1", "Hyper-parameters", experiment="double_token_decoding.table1"),
    Entry("002", "Table 2", "Quality and speed of each system", experiment="double_token_decoding.table2"),
    Entry("002", "Table 3", "Precision at the head and tail of outputs", experiment="double_token_decoding.table3"),
    Entry("002", "Figure 3", "Speed ratio against beam width", experiment="double_token_decoding.figure3"),
    Entry("002", "Table 4", "Speed against vocabulary size", experiment="double_token_decoding.table4"),
    Entry("003", "Figure 1", "Sequential and parallel decoding", experiment="parallel_decoding.figure1"),
    Entry("003", "Figure 2", "PJ, PGJ and HGJ", experiment="parallel_decoding.figure2"),
    Entry("003", "Table 1", "Speed and BLEU of the decoders", experiment="parallel_decoding.table1"),
    Entry("003", "Table 2", "Speed and iterations over languages", experiment="parallel_decoding.table2"),
    Entry("003", "Table 3", "Training and inference cost against other methods", experiment="parallel_decoding.table3"),
    Entry("003", "Figure 3", "Speedup against cores", experiment="parallel_decoding.figure3"),
    Entry("003", "Figure 4", "Dependency graph and iterations of one sentence", experiment="parallel_decoding.figure4"),
    Entry("003", "Table 4", "Sizes of the test sets", experiment="parallel_decoding.table4"),
    Entry("003", "Table 5", "FLOPs of other models", experiment="parallel_decoding.table5"),
    Entry("003", "Table 6", "Time and iterations on a desktop machine", experiment="parallel_decoding.table6"),
    Entry("003", "Table 7", "BLEU over languages, and example translations", experiment="parallel_decoding.table7"),
    Entry("003", "Figure 6", "Further dependency graphs", experiment="parallel_decoding.figure6"),
    Entry("004", "Figure 1", "16-bit matrix products against 32-bit", experiment="sharp_models.figure1"),
    Entry("004", "Table 1", "Decoding speed after each optimisation", experiment="sharp_models.table1"),
    Entry("004", "Table 2", "Quality and speed of the systems", experiment="sharp_models.table2"),
)


def experiments() -> dict[str, Experiment]:
    """Every experiment by ``STEM.TABLE``."""
    from fastdecode_lib.papers import start_here
    from fastdecode_lib.papers.combinations import experiments as combinations
    from fastdecode_lib.papers.double_token_decoding import experiments as double_token_decoding
    from fastdecode_lib.papers.learning_to_screen import experiments as learning_to_screen
    from fastdecode_lib.papers.parallel_decoding import experiments as parallel_decoding
    from fastdecode_lib.papers.sharp_models import experiments as sharp_models
    from fastdecode_lib.papers.vocabulary_clusters import experiments as vocabulary_clusters

    modules = (
        start_here,
        vocabulary_clusters,
        learning_to_screen,
        double_token_decoding,
        parallel_decoding,
        sharp_models,
        combinations,
    )
    return {e.name: e for module in modules for e in module.EXPERIMENTS}
