"""Counting: passes, positions and time of the calls of a model and a projection."""

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.core import Candidates, Iteration, Model, Projection, Scorer, Source, Usage
from fastdecode_lib.measuring.referee import T
from fastdecode_lib.models.states import fed_before
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd


class Proxy:
    """A proxy: attributes of another object, except those that a subclass replaces."""

    def __init__(self, inner: Any):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Watched(Proxy):
    """A projection that adds up the seconds of its calls within decoding, with the processor's caches as decoding leaves them."""

    def __init__(self, inner: Projection | Scorer, whole: "Watched | None" = None):
        super().__init__(inner)
        self.whole, self.seconds = whole or self, 0.0

    def bind(self, source: Source | None) -> "Watched":
        """The inner scorer, watched by the whole."""
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
        """A call whose seconds are added to those of a part."""
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
    """A state with the model's watch; it keeps nothing alive that decoding releases."""

    def __init__(self, inner: Any, watch: WatchedModel):
        super().__init__(inner)
        self.watch = watch

    def select(self, rows: np.ndarray) -> "_WatchedState":
        return _WatchedState(self.watch.timed("copies", self.inner.select, rows), self.watch)


def count(session: Session, texts: Sequence[str], *, batch: int = 32, progress: bool = False) -> "pd.DataFrame":
    """Count the passes and positions that each of many texts takes to decode; times are not read.

    Texts are decoded in batches of like length, which changes neither outputs nor counts. As in a trace, the pass over a
    forced target language is left out. Text without content takes nothing.

    Returns
    -------
    DataFrame with a row per text, in order
        ``source_tokens``; ``tokens`` of the output, the end included; ``passes``; ``positions`` computed; ``attended``:
        entries of the decoder's cache that those positions read, in sum; ``text``; ``ids`` of the output.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    everything = session.model.encode(texts, session.source, session.target)
    filled = [i for i, text in enumerate(texts) if session.has_content(text)]
    order = sorted(filled, key=lambda i: int(everything.lengths[i]))
    outputs: list[tuple[int, ...]] = [()] * len(texts)
    counts = np.zeros((len(texts), 3), dtype=np.int64)
    with tqdm(total=len(order), desc=session.decoder_name, unit="sentence", disable=not progress) as bar:
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            source = everything.rows(np.array(rows))
            passes = session.passes(source)
            while True:
                try:
                    iteration = next(passes)
                except StopIteration as end:
                    for i, hypothesis in zip(rows, end.value, strict=True):
                        outputs[i] = hypothesis.tokens
                    break
                done = counts[rows[iteration.row]]
                done += (1, iteration.positions, iteration.positions * _attended(session, iteration, int(done[0])))
            bar.update(len(rows))
    return pd.DataFrame(
        {
            "source_tokens": everything.lengths,
            "tokens": [len(tokens) for tokens in outputs],
            "passes": counts[:, 0],
            "positions": counts[:, 1],
            "attended": counts[:, 2],
            "text": session.model.texts(texts, outputs),
            "ids": outputs,
        }
    )


def _attended(session: Session, iteration: Iteration, passes: int) -> int:
    """Entries of the decoder's cache that each position of a pass reads, given the number of positions before it.

    A beam feeds one slot in each lane, or a group; all others feed consecutive slots, which see each other. Of a masked model's
    targets of several lengths, the one shown stands for all.
    """
    network = session.model.network
    tokens = network.tokens_per_step
    if network.kind == "masked":
        cached, fed = 0, len(iteration.slots)
    elif iteration.lanes or tokens > 1:
        cached, fed = passes * tokens, tokens
    else:
        cached, fed = int(iteration.slots[0]), iteration.positions
    return len(session.constraints.prefix) - tokens + cached + fed


class Counted(Proxy):
    """A model that counts its own calls; every decoder is driven through it, so none can be counted wrongly."""

    def __init__(self, inner: Model):
        super().__init__(inner)
        self.usage = Usage()
        self.passes_of: Counter[int] = Counter()
        """Number of passes by their rows."""

    def encode(self, source: Source) -> Any:
        """Count one encoder call."""
        self.usage.encoder_calls += 1
        return self.inner.encode(source)

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """Count the prefix's positions, if it feeds any."""
        before = fed_before(prefix, self.inner.tokens_per_step)
        if before.shape[1]:
            self._count(before)
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
        feeding = tokens >= 0
        self.usage.passes += 1
        self.passes_of[int(feeding.any(1).sum())] += 1
        self.usage.positions += int(feeding.sum())
        self.usage.rows += int(feeding.any(1).sum())
