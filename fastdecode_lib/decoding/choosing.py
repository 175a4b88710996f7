"""The one place where a slot's token is chosen: every decoder applies the constraints at every slot of a pass."""

from collections.abc import Iterator
from itertools import repeat
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from fastdecode_lib.core import Constraints, Decoder, Model, Scorer, Source

_Observed = tuple[np.ndarray | None, np.ndarray | None, np.ndarray, np.ndarray | None]


class Choice(NamedTuple):
    """Greedy tokens of N slots, with the observed fields of `core.Iteration`."""

    tokens: np.ndarray
    probabilities: np.ndarray | None
    margins: np.ndarray | None
    num_active: np.ndarray
    cluster: np.ndarray | None

    def rows(self, indices: np.ndarray | slice) -> dict[str, Any]:
        """The observed fields of the slots at these indices, as keyword arguments of `core.Iteration`."""
        probabilities, margins, cluster = self.probabilities, self.margins, self.cluster
        return {
            "probabilities": None if probabilities is None else probabilities[indices],
            "margins": None if margins is None else margins[indices],
            "num_active": self.num_active[indices],
            "cluster": None if cluster is None else cluster[indices],
        }

    def singles(self) -> Iterator[_Observed]:
        """The observed fields of each slot, in the order in which `core.Iteration` has them."""
        observed = self.probabilities, self.margins, self.num_active, self.cluster
        columns: list[Any] = [repeat(None) if values is None else values[:, None] for values in observed]
        return zip(*columns, strict=False)


def choose(scorer: Scorer, hidden: Any, slots: np.ndarray, constraints: Constraints, observe: bool) -> Choice:
    """The best allowed token of each slot: hidden (N, D), slots (N,).

    A forced token has probability 1 and an infinite margin, since the model did not choose it. A slot at which the projection
    finds no allowed token ends the sentence.
    """
    candidates = scorer.top_k(hidden, 2 if observe else 1, constraints.forbidden(slots), normalise=observe)
    tokens: np.ndarray = candidates.ids[:, 0].copy()
    free: np.ndarray | bool = True
    if min(tokens.tolist(), default=0) < 0:
        tokens = np.where(tokens >= 0, tokens, constraints.end[0])
    if constraints.may_force(slots):
        forced = constraints.forced(slots)
        free = forced < 0
        tokens = np.where(free, tokens, forced)
    if not observe:
        return Choice(tokens, None, None, candidates.num_active, candidates.cluster)
    assert candidates.log_normaliser is not None
    with np.errstate(invalid="ignore"):
        probabilities = np.where(free, np.exp(candidates.scores[:, 0] - candidates.log_normaliser), 1.0)
        margins = np.where(free, candidates.scores[:, 0] - candidates.scores[:, 1], np.inf)
    return Choice(tokens, probabilities, margins, candidates.num_active, candidates.cluster)


def check_least(name: str, option: str, value: int | None, least: int, advice: str) -> None:
    """Refuse an option of a decoder that is no whole number, or below its least value."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise ValueError(f"{name}: {option} must be a whole number, got {value!r}. Example: {option}={max(least, 3)}.")
    if value is not None and value < least:
        raise ValueError(f"{name} needs {option} >= {least}, got {value}. {advice}")


def check_fits(decoder: Decoder, model: Model, source: Source | None = None) -> None:
    """Refuse, before any work, a model that the decoder cannot drive, and a source, if given, that it cannot decode.

    A decoder's own ``check(model)``, if it has one, is called too.

    Raises
    ------
    ValueError
        If the model does not fit the decoder, or there is nothing to decode.
    """
    several_tokens = getattr(decoder, "several_tokens", False)
    if model.kind not in decoder.accepts or (model.tokens_per_step > 1) != several_tokens:
        this_one, decoders, _ = _described(model.kind == "masked", model.tokens_per_step)
        needed, _, example = _described("masked" in decoder.accepts, "several" if several_tokens else 1)
        raise ValueError(
            f"The decoder {decoder.name} needs {needed}, got {this_one}. Use {decoders} for this model, or a model that fits, such "
            f"as {example}."
        )
    if (check := getattr(decoder, "check", None)) is not None:
        check(model)
    if source is None:
        return
    if not len(source):
        raise ValueError(
            "A batch without sentences cannot be decoded: got no rows. Leave it out; `translate` answers [] with []."
        )
    if (source.lengths < 1).any():
        raise ValueError(
            f"A source without tokens cannot be decoded: got row {int(np.argmax(source.lengths < 1))}. Leave it out; `translate` "
            "answers empty text with empty text."
        )


def _described(masked: bool, tokens: int | str) -> tuple[str, str, str]:
    """Words for a model of this many tokens a step, the decoders for it, and an example of such a model."""
    if masked:
        return "a masked model", "mask_predict", "mask-predict (fastdecode train mask-predict)"
    if tokens == 1:
        return "a causal model of one token a step", "greedy, beam or window", "tatoeba-small"
    return f"a causal model of {tokens} tokens a step", "double_token", "bidirectional"
