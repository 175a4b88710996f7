"""Sentences in batches, and the systems that decode them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastdecode_lib.core import Constraints, Decoder, Projection, Source, drain
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.referee import System


def sorted_batches(
    model: TranslationModel, texts: Sequence[str], direction: tuple[str, str], size: int
) -> list[Source]:
    """The texts in batches of a size, sorted by length."""
    source = model.encode(texts, *direction)
    order = np.argsort(source.lengths, kind="stable")
    return [source.rows(order[first : first + size]) for first in range(0, len(order), size)]


def batch_system(name: str, network: Any, decoder: Decoder, projection: Projection, constraints: Constraints) -> System:
    """A decoder on whole batches; its output is the tokens of each row."""

    def decode(source: Source) -> tuple[Any, ...]:
        return tuple(h.tokens for h in drain(decoder.iterate(network, projection, source, constraints)))

    return System(name, decode)
