"""All papers and their experiments, by name."""

from fastdecode_lib.papers.experiment import Experiment, Paper


def papers() -> tuple[Paper, ...]:
    """The first notebook, the five papers and their combinations."""
    from fastdecode_lib.papers import start_here
    from fastdecode_lib.papers.combinations import experiments as combinations
    from fastdecode_lib.papers.double_token_decoding import experiments as double_token_decoding
    from fastdecode_lib.papers.learning_to_screen import experiments as learning_to_screen
    from fastdecode_lib.papers.parallel_decoding import experiments as parallel_decoding
    from fastdecode_lib.papers.sharp_models import experiments as sharp_models
    from fastdecode_lib.papers.vocabulary_clusters import experiments as vocabulary_clusters

    return (
        start_here.PAPER,
        vocabulary_clusters.PAPER,
        learning_to_screen.PAPER,
        double_token_decoding.PAPER,
        parallel_decoding.PAPER,
        sharp_models.PAPER,
        combinations.PAPER,
    )


def experiments() -> dict[str, Experiment]:
    """Every experiment by ``STEM.TABLE``."""
    return {experiment.name: experiment for paper in papers() for experiment in paper.experiments}
