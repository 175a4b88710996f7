"""SentencePiece models trained on texts."""

import io
from collections.abc import Iterable
from typing import Any


def trained_pieces(texts: Iterable[str], vocabulary: int, seed: int, *, threads: int = 2, **options: Any) -> bytes:
    """A SentencePiece model of texts; `options` are SentencePiece's own, such as the ids of special tokens."""
    import sentencepiece

    model = io.BytesIO()  # SentencePiece's own writer does not notice a full disk
    sentencepiece.set_random_generator_seed(seed)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocabulary,
        character_coverage=1.0,
        num_threads=threads,
        **{"minloglevel": 1, **options},
    )
    return model.getvalue()


def load_pieces(model: bytes) -> Any:
    """Load a SentencePiece model from the bytes of `trained_pieces`."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model)
