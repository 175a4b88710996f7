"""Any encoder-decoder of transformers (BART, Pegasus, UMT5, ...) through its own forward, one row at a time."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import OUR_FAMILIES, Kind, Model, Output, Source
from fastdecode_lib.models.states import SlotsInOrder, check_length

CHECKED_BY_MODULE = int(np.iinfo(np.int64).max)
"""Size of a vocabulary whose ids the module checks itself: it may embed more tokens than it can choose."""


@dataclass
class HuggingFaceState(SlotsInOrder):
    """The module's own key-value cache for one row; see `core.State`."""

    memory: dict[str, Any]
    """Arguments of the module's forward in every pass: the encoder's output, the source's mask."""
    cache: Any
    max_slots: int
    filled: np.ndarray
    before_step: np.ndarray

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` slots."""
        super().truncate(lengths)
        private.shorten(self.cache, int(self.filled[0]))

    def select(self, rows: np.ndarray) -> "HuggingFaceState":
        """A copy of the one row; several rows are refused."""
        import copy

        if list(rows) != [0]:
            raise ValueError(
                f"This model runs row by row: got a choice of {len(rows)} rows. Beam search with size > 1 needs "
                f"{OUR_FAMILIES}."
            )
        return HuggingFaceState(self.memory, copy.deepcopy(self.cache), self.max_slots, self.filled, self.before_step)


class HuggingFaceModel:
    """Adapter for `transformers` sequence-to-sequence models; satisfies `core.Model` for batches of one row.

    A hook catches the hidden vectors, which are the input of the module's output matrix.
    """

    kind: Kind = "causal"
    tokens_per_step = 1
    both_ends = False
    supports: frozenset[str] = frozenset()
    engine = "huggingface"

    def __init__(self, module: Any, max_source: int, max_target: int | None = None):
        if submodule := private.depends_on_company(module):
            raise ValueError(
                f"A parallel decoder needs a model whose numbers do not depend on what else is in a pass: got {submodule} in "
                f"{type(module).__name__}, which has one scale for all tokens. Quantise weights alone, or leave the decoder out."
            )
        self.module = module
        self.device, self.dtype = module.device, module.dtype
        self.max_source, self.max_target = max_source, max_target or max_source
        self.cache_argument = private.cache_argument(module)
        self.most_tokens, self.counts_tokens = private.most_tokens(module), private.counts_tokens(module)
        self._prepare()

    def _prepare(self) -> None:
        head, bias = private.head_of(self.module)
        self.outputs: tuple[Output, ...] = (Output(head.weight.detach(), None if bias is None else bias.detach()),)
        self.module.eval()
        self._caught = threading.local()
        self._checking = threading.RLock()
        self._checked: dict[str, Any] | None = None
        head.register_forward_pre_hook(self._catch)

    def _catch(self, _head: Any, inputs: tuple[Tensor, ...]) -> None:
        self._caught.hidden = inputs[0]

    @torch.inference_mode()
    def encode(self, source: Source) -> Any:
        """Run the module's encoder on one sentence."""
        if len(source) != 1:
            raise ValueError(f"This model runs row by row: got a batch of {len(source)}. Give one sentence at a time.")
        check_length(source.lengths, self.max_source)
        ids = torch.from_numpy(source.row(0).ids).to(self.device)
        mask = torch.ones_like(ids)
        encoded = self.module.get_encoder()(input_ids=ids, attention_mask=mask, return_dict=True)
        return {"encoder_outputs": encoded, "attention_mask": mask}

    def source_vectors(self, encoded: Any) -> list[np.ndarray]:
        """See `core.Vectors`: the encoder's output."""
        return [encoded["encoder_outputs"].last_hidden_state[0].float().cpu().numpy()]

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> HuggingFaceState:
        """A state fed with all but the last of the prefix ids (1, P)."""
        self._check(encoded, prefix)
        no_slots = np.zeros(1, dtype=np.int64)
        max_slots = min(capacity or self.max_target, self.max_target)
        state = HuggingFaceState(encoded, private.empty_cache(), max_slots, no_slots, no_slots)
        if prefix.shape[1] > 1:
            self.step(state, prefix[:, :-1])
        return state

    def _check(self, encoded: Any, prefix: np.ndarray) -> None:
        with self._checking:
            previous, self._checked = self._checked, private.notes(self.module)
            if self._checked is previous:
                return
            try:
                reference = LogitsModel(self.module, self.max_target)
                compared = check_passes(self, encoded, self._logits, reference, encoded, prefix)
            except BaseException:
                compared = False
                raise
            finally:
                self._checked = self._checked if compared else None

    def _logits(self, hidden: Tensor) -> Tensor:
        (output,) = self.outputs
        return functional.linear(hidden, output.weight, None if output.bias is None else output.bias.reshape(-1))

    @torch.inference_mode()
    def step(self, state: HuggingFaceState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Tensor:
        """Feed tokens (1, W) and return hidden vectors (1, W, D)."""
        if visible is not None or (tokens < 0).any():
            raise ValueError(f"This model runs without candidate trees and ragged rows. Use {OUR_FAMILIES}.")
        tokens, counts, _ = state.checked_step(tokens, CHECKED_BY_MODULE)
        slots = tokens.shape[1]
        padded = self.counts_tokens and (tokens == self.module.config.pad_token_id).any()
        singly = slots > self.most_tokens or padded
        vectors = [self._pass(state, tokens[:, [i]]) for i in range(slots)] if singly else [self._pass(state, tokens)]
        state.advance(counts)
        return vectors[0] if len(vectors) == 1 else torch.cat(vectors, 1)

    def _pass(self, state: HuggingFaceState, tokens: np.ndarray) -> Tensor:
        output = self.module(
            **state.memory,
            **{self.cache_argument: state.cache},
            decoder_input_ids=torch.from_numpy(np.ascontiguousarray(tokens)).to(self.device),
            use_cache=True,
            return_dict=True,
        )
        return self._hidden(output)

    def _hidden(self, output: Any) -> Tensor:
        hidden: Tensor = self._caught.hidden
        del self._caught.hidden
        return hidden


class LogitsModel(HuggingFaceModel):
    """The same for a user's module, which it neither changes nor hooks.

    Instead of hidden vectors it returns the module's logits (1, W, V). It starts from the arguments that the module's forward
    takes in every pass, ``encoder_outputs`` among them.
    """

    def _prepare(self) -> None:
        head, _ = private.head_of(self.module, called=False)
        self.outputs = (Output(head.weight.detach(), None),)

    def _check(self, encoded: Any, prefix: np.ndarray) -> None:
        pass

    def _hidden(self, output: Any) -> Tensor:
        return output.logits


STEPS = 4
"""Tokens that `check_passes` compares."""


@torch.inference_mode()
def check_passes(
    network: Model,
    memory: Any,
    score: Callable[[Any], Tensor],
    reference: LogitsModel,
    encoded: Any,
    prefix: np.ndarray,
) -> bool:
    """Compare a network's passes over several tokens with the module's own forward, token by token, on one sentence.

    Parameters
    ----------
    network : Model
        The network that decodes: it is fed a token and a wrong draft, forgets the draft, and is then fed three tokens at once.
    memory
        Encoder output that `network` starts from.
    score : callable
        Turns its hidden vectors (N, D) into logits (N, V).
    reference : LogitsModel
        The module, fed one token at a time: the best one that was not fed yet, since repeats hide errors.
    encoded
        Encoder output that `reference` starts from.
    prefix : int64 array (1, P)

    Returns
    -------
    bool
        False if there is no room for several tokens.

    Raises
    ------
    ValueError
        If the logits differ by more than rounding.
    """
    count = min(STEPS, reference.max_target - prefix.shape[1] + 1, network.max_target - prefix.shape[1] + 1)
    if count < 2:
        return False
    try:
        expected, actual = _stepped_and_passed(network, memory, score, reference, encoded, prefix, count)
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise ValueError(
            f"A parallel decoder needs a model whose forward takes several tokens and a cache: got "
            f"{type(reference.module).__name__}, which says {str(error)!r} ({private.versions()}). Decode it with generate alone."
        ) from error
    largest = float(expected.nan_to_num(0, 0, 0).abs().max())
    allowed = largest * max(torch.finfo(reference.dtype).eps ** 0.5, 1e-6)
    problem = f"returns {len(actual)} rows for {count} tokens"
    if actual.shape == expected.shape:
        close = torch.isclose(actual, expected, rtol=0, atol=allowed, equal_nan=True).all(1).tolist()
        if all(close):
            return True
        wrong = close.index(False)
        difference = float((actual - expected)[wrong].abs().nan_to_num(torch.inf).max())
        problem = f"differs by {difference:.3g} of {largest:.3g} at token {wrong + 1}"
    engine = "its own forward" if isinstance(network, HuggingFaceModel) else "our engine"
    raise ValueError(
        f"Passes over several tokens must give the logits of single steps: got {type(reference.module).__name__}, for which "
        f"{engine} {problem} ({private.versions()}). Decode it with generate alone, or use a version that was tested."
    )


def _stepped_and_passed(
    network: Model,
    memory: Any,
    score: Callable[[Any], Tensor],
    reference: LogitsModel,
    encoded: Any,
    prefix: np.ndarray,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Logits (count, V) of single steps of the module, and of the passes that `check_passes` compares with them."""
    padding = reference.module.config.pad_token_id
    state, tokens, steps = reference.start(encoded, prefix), [int(prefix[0, -1])], []
    for _ in range(count):
        steps.append(reference.step(state, np.array([tokens[-1:]]))[0, -1])
        ranked = steps[-1].topk(min(len(steps[-1]), count + 2)).indices.tolist()
        tokens.append(next((i for i in ranked if i not in (*tokens, padding)), tokens[-1]))
    expected = torch.stack(steps).float()
    state = network.start(memory, prefix, prefix.shape[1] + count)
    first = network.step(state, np.array([[tokens[0], tokens[2]]]))[0, :1]
    state.keep(np.array([[0]]))
    others = network.step(state, np.array([tokens[1:count]]))[0]
    return expected, torch.cat([score(first), score(others)]).float().to(expected.device)
