"""Counting: passes, positions and time of what a model and a projection are asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.core import Candidates, Model, Projection, Scorer, Source
from fastdecode_lib.measuring.referee import T
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd


from fastdecode_lib.core import Usage
from fastdecode_lib.models.states import fed_before


@dataclass
class Watched:
    """A projection that adds up the seconds of its calls where they are made: amid decoding, with caches as that leaves them."""

    inner: Projection
    seconds: float = 0.0

    def bind(self, source: Source | None) -> "_WatchedScorer":
        """The inner scorer, watched."""
        return _WatchedScorer(self.inner.bind(source), self)

    @property
    def memory_bytes(self) -> int:
        """The inner's."""
        return self.inner.memory_bytes

    def multiply_adds(self, rows: int) -> int:
        """The inner's."""
        return self.inner.multiply_adds(rows)


@dataclass
class _WatchedScorer:
    inner: Scorer
    watch: Watched

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        start = perf_counter()
        found = self.inner.top_k(hidden, k, banned, normalise)
        self.watch.seconds += perf_counter() - start
        return found

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        return self.inner.log_probs(hidden, ids)


class WatchedModel:
    """A model that adds up the seconds of its calls: ``encoder``, ``layers`` of the decoder, ``copies`` of rows of a state."""

    def __init__(self, inner: Model):
        self.inner, self.seconds = inner, {"encoder": 0.0, "layers": 0.0, "copies": 0.0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _timed(self, part: str, call: Callable[[], T]) -> T:
        start = perf_counter()
        found = call()
        self.seconds[part] += perf_counter() - start
        return found

    def encode(self, source: Source) -> Any:
        """As the inner model's."""
        return self._timed("encoder", lambda: self.inner.encode(source))

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """As the inner model's; copies of the state are watched."""
        return _WatchedState(self.inner.start(encoded, prefix, capacity), self)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        """As the inner model's."""
        return self._timed("layers", lambda: self.inner.step(state.inner, tokens, visible))


class _WatchedState:
    """A state beside the model's watch; it keeps nothing alive that decoding lets go."""

    def __init__(self, inner: Any, watch: WatchedModel):
        self.inner, self.watch = inner, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def select(self, rows: np.ndarray) -> "_WatchedState":
        return _WatchedState(self.watch._timed("copies", lambda: self.inner.select(rows)), self.watch)


def count(session: Session, texts: Sequence[str], *, batch: int = 32, progress: bool = False) -> "pd.DataFrame":
    """What it takes to decode each of many texts: passes and positions counted, times not read.

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
            running = session.passes(source)
            while True:
                try:
                    iteration = next(running)
                except StopIteration as stop:
                    for i, hypothesis in zip(rows, stop.value, strict=True):
                        outputs[i] = hypothesis.tokens
                    break
                passes, group = counts[rows[iteration.row], 0], session.model.network.tokens_per_step
                # A beam feeds one slot in each lane, or a group; all others feed consecutive slots, which see each other. Of a
                # masked model's targets of several lengths, the one shown stands for all.
                in_steps, masked = iteration.lanes or group > 1, session.model.network.kind == "masked"
                held, fed = (passes * group, group) if in_steps else (iteration.slots[0], iteration.positions)
                held, fed = (0, len(iteration.slots)) if masked else (held, fed)
                entries = len(session.constraints.prefix) - group + held + fed
                counts[rows[iteration.row]] += (1, iteration.positions, iteration.positions * entries)
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


class Counted:
    """A model that counts its own use; every decoder is driven through it, so none can be counted wrongly."""

    def __init__(self, model: Model):
        self.model, self.usage = model, Usage()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encode(self, source: Source) -> Any:
        """Count one encoder call."""
        self.usage.encoder_calls += 1
        return self.model.encode(source)

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """Count the prefix's positions, if it feeds any."""
        before = fed_before(prefix, self.model.tokens_per_step)
        if before.shape[1]:
            self._count(before)
        return self.model.start(encoded, prefix, capacity)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        """Count one pass and its positions."""
        self._count(tokens)
        return self.model.step(state, tokens, visible)

    def refine(self, encoded: Any, tokens: np.ndarray, rows: np.ndarray) -> Any:
        """Count one pass and its positions."""
        self._count(tokens)
        masked: Any = self.model
        return masked.refine(encoded, tokens, rows)

    def _count(self, tokens: np.ndarray) -> None:
        feeding = tokens >= 0
        self.usage.passes += 1
        self.usage.positions += int(feeding.sum())
        self.usage.rows += int(feeding.any(1).sum())
