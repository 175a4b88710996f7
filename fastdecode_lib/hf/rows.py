"""Rows of the batch that `generate` decodes: settled tokens, ends, and the scores and logits to return."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Constraints, Hypothesis, Source
from fastdecode_lib.decoding.passes import Accepted, Feed, Sentence
from fastdecode_lib.hf.choosing import Choosing

if TYPE_CHECKING:
    from torch import Tensor

ROUNDINGS = {"float16": 2, "bfloat16": 2, "float32": 64}
"""Units in the last place by which a best score of a pass may differ from that of single steps."""


@dataclass
class Row:
    """A decoder's sentence that ends where a stopping criterion says so; a `passes.Sentence`.

    Attributes
    ----------
    number : int
        Index of the row in the batch.
    ids : tensor (1, longest)
        Prompt, settled tokens, padding.
    length : int
        Number of prompt and settled tokens.
    requested : tuple of str
        Arrays kept and returned for every settled token: "scores", "logits".
    best : list of [float, float]
        The two best scores of every settled token, in half precision.
    """

    sentence: Sentence
    number: int
    ids: "Tensor"
    length: int
    choosing: Choosing
    criteria: Any
    streamer: Any
    requested: tuple[str, ...]
    kept: "list[dict[str, Tensor]]" = field(default_factory=list)
    best: list[list[float]] = field(default_factory=list)
    hypothesis: Hypothesis | None = None

    def __post_init__(self) -> None:
        self.prompt, self.spare = self.length, self.sentence.spare

    def widen(self, width: int) -> bool:
        """Set the width of the next pass, and return whether drafts had to be prepared for it."""
        return bool(self.sentence.widen(width))  # type: ignore[attr-defined]

    def feed(self) -> Feed:
        """Tokens that the decoder feeds."""
        self.fed = self.sentence.feed()
        return self.fed

    def take(self, tokens: np.ndarray) -> Accepted:
        """Pass the tokens to the decoder, and record those that it settled."""
        accepted = self.sentence.take(tokens)
        for node, token, status in zip(accepted.shown.tolist(), accepted.tokens.tolist(), accepted.status, strict=True):
            slot = self.length - self.prompt
            if status == "settled" and self.fed.slots[node] == slot and self.hypothesis is None:
                self._settle(token, node)
        if self.sentence.hypothesis is not None and self.hypothesis is None:
            raise ValueError(
                f"The output is too long: got {self.length} tokens and no end, as many as max_position_embeddings allows. Lower "
                "max_new_tokens."
            )
        return accepted

    def _settle(self, token: int, node: int) -> None:
        import torch

        self.ids[0, self.length] = token
        self.length += 1
        if self.requested:
            scores, logits = (values[node].clone() for values in self.choosing.kept[self.number])
            self.kept.append({"scores": scores, "logits": logits})
        if self.choosing.rounds:
            self.best.append(self.choosing.best[self.number][node])
        so_far = tuple(step["scores"][None] for step in self.kept) if "scores" in self.requested else None
        stop = self.criteria(self.ids[:, : self.length], so_far)
        if stop.numel() != 1:
            raise ValueError(
                f"Stopping criteria are asked row by row: got {stop.numel()} answers for one row. Answer for the rows of "
                "input_ids, or generate one sentence at a time."
            )
        if self.streamer is not None:
            self.streamer.put(torch.tensor([token]))
        if stop:
            self.hypothesis = Hypothesis(tuple(self.ids[0, self.prompt : self.length].tolist()), None, "end")


class Output:
    """Output of a call of `generate`: the ids of all rows, with scores and logits if requested.

    Parameters
    ----------
    prompts : int tensor (B, P)
        Prompt of each row.
    room : int
        Tokens of a row behind its prompt, at most.
    generation_config, stopping_criteria, streamer
        The arguments that `generate` has prepared.

    Attributes
    ----------
    ids : int tensor (B, P + room)
        Prompts, settled tokens, padding.
    requested : tuple of str
        Arrays to return of every step: "scores", "logits".
    rows : list of Row
        The rows that decoding has begun.
    """

    def __init__(self, prompts: "Tensor", room: int, *, generation_config: Any, stopping_criteria: Any, streamer: Any):
        self.prompts: list[list[int]] = prompts.tolist()
        self.prompt, self.room, self.padding = prompts.shape[1], room, private.padding_of(generation_config)
        self.ids = prompts.new_full((len(prompts), self.capacity), self.padding)
        self.ids[:, : self.prompt] = prompts
        self.criteria, self.streamer = stopping_criteria, streamer
        self.as_dictionary = bool(generation_config.return_dict_in_generate)
        names = ("scores", "logits") if self.as_dictionary else ()
        self.requested = tuple(name for name in names if getattr(generation_config, f"output_{name}"))
        self.rows: list[Row] = []

    @property
    def capacity(self) -> int:
        """Tokens of a row at most."""
        return self.prompt + self.room

    def begin(
        self, decoder: Any, network: Any, source: Source, numbers: range, ends: tuple[int, ...], choosing: Choosing
    ) -> list[Row]:
        """Begin the rows of these numbers with the decoder's sentences."""
        rows = []
        for number in numbers:
            rules = Constraints(tuple(self.prompts[number]), ends or (-1,), self.room, self.padding)
            (sentence,) = decoder.sentences(network, source.row(number), rules)
            ids = self.ids[number : number + 1]
            rows.append(Row(sentence, number, ids, self.prompt, choosing, self.criteria, self.streamer, self.requested))
        self.rows += rows
        return rows

    def returned(self) -> Any:
        """Ids as long as the longest row, or a dictionary, whose scores and logits are zero behind the end of a row."""
        sequences = self.ids[:, : max(row.length for row in self.rows)].contiguous()
        if not self.as_dictionary:
            return sequences
        from transformers.generation.utils import GenerateEncoderDecoderOutput

        steps = range(sequences.shape[1] - self.prompt)
        columns: dict[str, Any] = {name: tuple(self._column(name, step) for step in steps) for name in self.requested}
        return GenerateEncoderDecoderOutput(sequences=sequences, **columns)

    def _column(self, name: str, step: int) -> "Tensor":
        """Scores or logits (B, V) of a step."""
        import torch

        nothing = torch.zeros_like(self.rows[0].kept[0][name])
        return torch.stack([row.kept[step][name] if step < len(row.kept) else nothing for row in self.rows])


def rounds(dtype: Any) -> bool:
    """Whether passes in this number format may round differently from single steps."""
    return _name_of(dtype) in ROUNDINGS


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def warn_of_ties(rows: Sequence[Row], dtype: Any) -> None:
    """Warn of tokens whose two best scores lie within rounding, so that `generate` may choose the other one."""
    import torch

    name = _name_of(dtype)
    if name not in ROUNDINGS:
        return
    rounding = ROUNDINGS[name] * torch.finfo(dtype).eps
    close = [
        (best - second, row.number, index)
        for row in rows
        for index, (best, second) in enumerate(row.best)
        if best - second <= rounding * max(abs(best), 1.0)
    ]
    if close:
        margin, number, index = min(close)
        warnings.warn(
            f"In {name} passes over several tokens are rounded otherwise than single steps: got "
            f"{len(close)} tokens whose two best scores lie within rounding, the closest {margin:.3g} apart (row {number}, token "
            f"{index + 1}), where generate may choose the other. "
            f"Use {'float64' if name == 'float32' else 'float32'} for the same tokens.",
            stacklevel=2,
        )
