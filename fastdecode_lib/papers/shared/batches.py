"""Sentences in batches, and the systems that decode them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastdecode_lib.core import Constraints, Decoder, Projection, Source, Usage, drain
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.comparing import rows_of
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.measuring.referee import System
from fastdecode_lib.translation import Session


def batches(
    model: TranslationModel, texts: Sequence[str], direction: Sequence[str], size: int, *, by_length: bool = False
) -> list[Source]:
    """The texts in batches of a size, each padded to its longest; if asked, the shortest first."""
    source = model.encode(texts, *direction)
    order = np.argsort(source.lengths, kind="stable") if by_length else np.arange(len(texts))
    parts = [source.rows(order[first : first + size]) for first in range(0, len(order), size)]
    return [replace(part, ids=part.ids[:, : int(part.lengths.max())]) for part in parts]


def batch_system(
    name: str,
    network: Any,
    decoder: Decoder,
    projection: Projection,
    constraints: Constraints,
    *,
    counted: bool = False,
) -> System:
    """A decoder on whole batches; its output is the tokens of each row, with the end.

    If asked, its passes are counted in a run of their own.
    """

    def decode(model: Any, source: Source) -> tuple[Any, ...]:
        return tuple(h.tokens for h in drain(decoder.iterate(model, projection, source, constraints)))

    def count(source: Source) -> Usage:
        proxy = Counted(network)
        decode(proxy, source)
        return proxy.usage

    return System(name, partial(decode, network), count if counted else None)


def decoded(system: System, parts: Sequence[Source]) -> list[Any]:
    """The tokens of each row of batches, by a `batch_system`."""
    return rows_of([system.decode(part) for part in parts])


def session_system(name: str, session: Session, *, counted: bool = False) -> System:
    """A session's decoder on whole batches; see `batch_system`."""
    parts = session.model.network, session.decoder, session.projection, session.constraints
    return batch_system(name, *parts, counted=counted)
