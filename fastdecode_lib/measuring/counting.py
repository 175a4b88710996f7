"""Counts and times of the calls of a model and a projection: passes, positions, seconds."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.core import Candidates, Iteration, Model, Projection, Scorer, Source, Usage, collected
from fastdecode_lib.measuring.referee import T
from fastdecode_lib.models.states import fed_before
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd


class Proxy:
    """A proxy that has the attributes of another object, except those that a subclass replaces."""

    def __init__(self, inner: Any):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Watched(Proxy):
    """A projection that adds up the seconds of its calls during decoding, and so includes decoding's effect on caches."""

    def __init__(self, inner: Projection | Scorer, whole: "Watched | None" = None):
        super().__init__(inner)
        self.whole, self.seconds = whole or self, 0.0

    def bind(self, source: Source | None) -> "Watched":
        """The inner scorer, whose seconds are added to those of the projection."""
        return Watched(self.inner.bind(source), self.whole)

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """Best tokens of the inner scorer, timed."""
        start = perf_counter()
        candidates: Candidates = self.inner.top_k(hidden, k, banned, normalise)
        self.whole.seconds += perf_counter() - start
        return candidates


class WatchedModel(Proxy):
    """A model that adds up the seconds of its calls: ``encoder``, ``layers`` of the decoder, ``copies`` of rows of a state."""

    def __init__(self, inner: Model):
        super().__init__(inner)
        self.seconds = {"encoder": 0.0, "layers": 0.0, "copies": 0.0}

    def timed(self, part: str, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call and add its seconds to those of a part."""
        start = perf_counter()
        result = call(*arguments)
        self.seconds[part] += perf_counter() - start
        return result

    def encode(self, source: Source) -> Any:
        """The inner model's."""
        return self.timed("encoder", self.inner.encode, source)

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """State of the inner model, whose copies are timed."""
        return _WatchedState(self.inner.start(encoded, prefix, capacity), self)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        """The inner model's."""
        return self.timed("layers", self.inner.step, state.inner, tokens, visible)


class _WatchedState(Proxy):
    """A state whose copies are timed; it keeps nothing alive that decoding releases."""

    def __init__(self, inner: Any, watch: WatchedModel):
        super().__init__(inner)
        self.watch = watch

    def select(self, rows: np.ndarray) -> "_WatchedState":
        return _WatchedState(self.watch.timed("copies", self.inner.select, rows), self.watch)


def count(
    session: Session, texts: Sequence[str], *, batch: int | None = None, progress: bool = False
) -> "pd.DataFrame":
    """Count the passes and positions that decoding takes for each text; nothing is timed.

    Texts are decoded in batches of 32 of similar length, which changes neither outputs nor counts; one by one where the rows of a
    batch share their active sets, unless `batch` says otherwise. As in a trace, the pass over a
    forced target language is left out. Text without content takes no pass.

    Returns
    -------
    DataFrame with a row per text, in order
        ``source_tokens``; ``tokens`` of the output with its end; ``passes``; ``positions`` computed; ``attended``: total number
        of entries of the decoder's cache that those positions read; ``text``; ``ids`` of the output.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    batch = batch or (1 if getattr(session.projection, "shared", False) else 32)
    encoded = session.model.encode(texts, session.source, session.target)
    with_content = [i for i, text in enumerate(texts) if session.has_content(text)]
    order = sorted(with_content, key=lambda i: int(encoded.lengths[i]))
    outputs: list[tuple[int, ...]] = [()] * len(texts)
    counts = np.zeros((len(texts), 3), dtype=np.int64)
    with tqdm(total=len(order), desc=session.decoder_name, unit="sentence", disable=not progress) as bar:
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            iterations, hypotheses = collected(session.passes(encoded.rows(np.array(rows))))
            for i, hypothesis in zip(rows, hypotheses, strict=True):
                outputs[i] = hypothesis.tokens
            for iteration in iterations:
                row_counts = counts[rows[iteration.row]]
                positions, cached = iteration.positions, _attended(session, iteration, int(row_counts[0]))
                row_counts += (1, positions, positions * cached)
            bar.update(len(rows))
    return pd.DataFrame(
        {
            "source_tokens": encoded.lengths,
            "tokens": [len(tokens) for tokens in outputs],
            "passes": counts[:, 0],
            "positions": counts[:, 1],
            "attended": counts[:, 2],
            "text": session.model.texts(texts, outputs),
            "ids": outputs,
        }
    )


def _attended(session: Session, iteration: Iteration, passes: int) -> int:
    """Entries of the decoder's cache that each position of a pass reads, given the number of earlier passes.

    A beam feeds one slot or one group of slots in each lane; other decoders feed consecutive slots, which see each other. If a
    masked model has targets of several lengths, the length of the one in the iteration counts for all.
    """
    network = session.model.network
    tokens = network.tokens_per_step
    if network.kind == "masked":
        cached, computed = 0, len(iteration.slots)
    elif iteration.lanes or tokens > 1:
        cached, computed = passes * tokens, tokens
    else:
        cached, computed = int(iteration.slots[0]), iteration.positions
    return len(session.constraints.prefix) - tokens + cached + computed


class Counted(Proxy):
    """A model that counts its own calls, in the same way for every decoder."""

    def __init__(self, inner: Model):
        super().__init__(inner)
        self.usage = Usage()

    def encode(self, source: Source) -> Any:
        """Count one encoder call."""
        self.usage.encoder_calls += 1
        return self.inner.encode(source)

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """Count the positions of the prefix that are fed, if any."""
        prefix_tokens = fed_before(prefix, self.inner.tokens_per_step)
        if prefix_tokens.shape[1]:
            self._count(prefix_tokens)
        return self.inner.start(encoded, prefix, capacity)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        """Count one pass and its positions."""
        self._count(tokens)
        return self.inner.step(state, tokens, visible)

    def refine(self, encoded: Any, tokens: np.ndarray, rows: np.ndarray) -> Any:
        """Count one pass and its positions."""
        self._count(tokens)
        return self.inner.refine(encoded, tokens, rows)

    def _count(self, tokens: np.ndarray) -> None:
        is_fed = tokens >= 0
        self.usage.passes += 1
        self.usage.positions += int(is_fed.sum())
        self.usage.rows += int(is_fed.any(1).sum())
