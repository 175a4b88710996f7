"""Our lossless parallel decoders inside Hugging Face's `generate`; one file because every check guards the one loop.

>>> from fastdecode_lib import hf
>>> model.generate(**inputs, num_beams=1, custom_generate=hf.window(width=8))

`generate` prepares everything: the encoder's pass, the prompt, logits processors and stopping criteria. The loop over passes
is ours, and its tokens are greedy decoding's. Marian, mBART and M2M-100 / NLLB run whole batches on the functional
transformer, built on the module's own tensors; other encoder-decoders, and modules changed in place (adapters, hooks, other
activations), run through their own forward, one row at a time. Before a module is used, and after each change of it, passes are
compared with its own single steps on the sentence at hand: what differs is refused. In half precision rounding may decide
between the two best tokens, and a warning says where.

Logits processors are called at every slot of a pass with that slot's own prefix, so they must not remember earlier calls:
those of transformers that do not are known here, others are accepted if they say ``stateless = True``. Stopping criteria are
asked, and streamers told, after every settled token, row by row.
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Constraints, Hypothesis, Source
from fastdecode_lib.decoding.choosing import Choice, check_fits
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.passes import Accepted, Feed, Sentence, passes, row_batches
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.table import DraftTable

if TYPE_CHECKING:
    from torch import Tensor

INSTEAD = {
    "beam_search": "Pass num_beams=1, or leave custom_generate out for beams.",
    "beam_sample": "Pass num_beams=1 and do_sample=False, or leave custom_generate out.",
    "sample": "Pass do_sample=False, or leave custom_generate out to sample.",
    "assisted_generation": "Leave the assistant out: a window drafts by itself, from the source with draft='prompt/recycled'.",
}

ROUNDINGS = 2
"""Units in the last place of a best score by which a pass may differ from single steps; more are a change of the model."""


def window(
    width: int = 8, draft: str = "auto", candidates: int = 3, table: str | None = None, *, packed: bool = False
) -> "CustomGenerate":
    """`decoding.window.Window`; a draft table is used only where its file is named."""
    return decoder(Window.of(width, draft, candidates, table), packed=packed)


def jacobi(ratio: float = 1.2, extra: int = 5, *, packed: bool = False) -> "CustomGenerate":
    """`decoding.jacobi.Jacobi`."""
    return decoder(Jacobi(ratio, extra), packed=packed)


def gauss_seidel(block: int = 3, *, packed: bool = False) -> "CustomGenerate":
    """`decoding.jacobi.GaussSeidel`."""
    return decoder(GaussSeidel(block), packed=packed)


def hybrid(block: int = 3, length: int | None = None, *, packed: bool = False) -> "CustomGenerate":
    """`decoding.jacobi.Hybrid`."""
    return decoder(Hybrid(block, length), packed=packed)


def decoder(spec: registry.Spec, *, packed: bool = False) -> "CustomGenerate":
    """Any lossless parallel decoder of the registry as ``custom_generate``.

    Parameters
    ----------
    spec : str or Decoder
        As on the command line: ``"window:width=5,draft=prompt/recycled"``.
    packed : bool
        For the time of each `generate`, lay out a second copy of the weights so that a pass over several slots costs little
        more than one (`kernels.products`); worth it for several sentences at once. For Marian, mBART, M2M-100 and NLLB.

    Raises
    ------
    ValueError
        If there is no such decoder, or it is one that `generate` has itself.
    """
    chosen = registry.decoder(spec)
    if not (chosen.lossless and hasattr(chosen, "sentences")):
        parallel = [name for name, kind in registry.DECODERS.items() if hasattr(kind, "sentences")]
        raise ValueError(
            f"custom_generate needs a parallel decoder whose output is greedy decoding's: got {chosen.name!r}. Use one of "
            f"{', '.join(parallel)}; for greedy decoding and for beams leave custom_generate out."
        )
    draft = getattr(chosen, "drafts", None)
    if draft is not None and (draft.needs_head or draft.needs_model):
        raise ValueError(
            f"Draft heads and models that draft are not at hand within generate: got draft={draft.written!r}. Use "
            "draft=ngram+lexicon with a table, or fastdecode_lib.translate."
        )
    if draft is not None and isinstance(draft.table, str):
        loaded = dataclasses.replace(draft, table=DraftTable.load(draft.table))
        chosen = dataclasses.replace(chosen, draft=loaded)  # type: ignore[type-var]
    return CustomGenerate(chosen, packed)


@dataclass(frozen=True)
class CustomGenerate:
    """What `generate` takes as ``custom_generate``: a decoder, driven by what `generate` has prepared."""

    decoder: Any
    packed: bool = False

    def __call__(
        self,
        model: Any,
        input_ids: "Tensor",
        logits_processor: Sequence[Any],
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool | None = None,
        streamer: Any = None,
        inputs_tensor: "Tensor | None" = None,
        **inputs: Any,
    ) -> Any:
        """Decode, and return what `generate` returns.

        Raises
        ------
        ValueError
            If `generate` was asked for anything but greedy decoding, or for what parallel decoding cannot give.
        """
        caller = private.arguments_of_generate()
        caller["synced_gpus"] = synced_gpus or caller["synced_gpus"]
        streamer = caller["streamer"] if streamer is None else streamer
        for problem in _problems(model, generation_config, input_ids, inputs, stopping_criteria, streamer, caller):
            raise ValueError(problem)
        processors = [(processor, private.looks_at(processor)) for processor in logits_processor]
        network, memory, score = _network(model, inputs, input_ids, self.packed)
        check_fits(self.decoder, network)

        prompts, prompt = input_ids.tolist(), input_ids.shape[1]
        padding, ends = private.padding_of(generation_config), private.ends(stopping_criteria)
        longest = stopping_criteria.max_length or generation_config.max_length
        limit = max(1, min(longest, network.max_target + 1) - prompt)
        source = _source(inputs_tensor, inputs, padding)
        ids = input_ids.new_full((len(prompts), prompt + limit), padding)
        ids[:, :prompt] = input_ids
        asked = _asked_for(generation_config)
        rows: list[_Row] = []
        for first, part in row_batches(network, source):
            choosing = self.choosing(score, processors, prompts, first, bool(asked))
            choosing.rounds = network.dtype.itemsize < 4
            for number in range(first, first + len(part)):
                rules = Constraints(tuple(prompts[number]), tuple(ends) or (-1,), limit, padding)
                (sentence,) = self.decoder.sentences(network, source.row(number), rules)
                row = _Row(
                    sentence, number, ids[number : number + 1], prompt, choosing, stopping_criteria, streamer, asked
                )
                rows.append(row)
            capacity = prompt + limit + max(row.spare for row in rows[first:])
            state = network.start(memory(first), np.array(prompts[first : first + len(part)]), capacity)
            for _ in passes(rows[first:], network, state, choosing):
                pass
        if streamer is not None:
            streamer.end()
        _warn_of_ties(rows, network.dtype)
        sequences = ids[:, : max(row.length for row in rows)].contiguous()
        return _dictionary(sequences, rows, prompt, asked) if generation_config.return_dict_in_generate else sequences

    def choosing(self, *arguments: Any) -> "Choosing":
        """What chooses the token of every slot."""
        return Choosing(*arguments)


class Choosing:
    """Chooses as `generate` does, by processors at every slot with its own prefix; a `passes.Chooser`.

    Parameters
    ----------
    score : callable
        Hidden vectors (N, D) to logits (N, V), a new float32 tensor.
    processors : sequence of (processor, what it looks at)
    prompts : list of list of int
        Of all rows of the batch, of which the passes have those from `first` on.
    keep : bool
        Leave scores and logits of the last pass in `kept`, by row of the batch.

    Attributes
    ----------
    rounds : bool
        Whether the network computes in half precision, so that scores of the two best tokens are left in `best`.
    """

    rounds = False

    def __init__(
        self,
        score: Callable[[Any], "Tensor"],
        processors: Sequence[tuple[Any, str]],
        prompts: list[list[int]],
        first: int,
        keep: bool,
    ):
        self.score, self.processors, self.prompts, self.first, self.keep = score, processors, prompts, first, keep
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.best: dict[int, list[list[float]]] = {}

    def __call__(self, hidden: Any, slots: np.ndarray, rows: np.ndarray, feeds: Sequence[Feed]) -> Choice:
        """The best token of each slot."""
        logits = self.score(hidden)
        scores = self.process(logits.clone() if self.keep else logits, slots, rows + self.first, feeds)
        if self.keep:
            self.kept = {}
            for number, row in enumerate(rows.tolist()):
                self.kept.setdefault(self.first + row, (scores[number:], logits[number:]))
        if self.rounds:
            self.best = {}
            for row, pair in zip(rows.tolist(), scores.topk(2).values.tolist(), strict=True):
                self.best.setdefault(self.first + row, []).append(pair)
        return Choice(scores.argmax(-1).cpu().numpy(), None, None, np.full(len(slots), scores.shape[1]), None)

    def process(self, scores: "Tensor", slots: np.ndarray, rows: np.ndarray, feeds: Sequence[Feed]) -> "Tensor":
        """Scores (N, V) after the processors."""
        import torch

        places = [(feed, index) for feed in feeds for index in range(len(feed.tokens))]
        for processor, looks_at in self.processors:
            if looks_at == "scores":
                scores = processor(torch.zeros(len(scores), 1, dtype=torch.long, device=scores.device), scores)
                continue
            acts = private.ACTS[type(processor).__name__] if looks_at == "length" else None
            for slot in np.unique(slots):
                if acts and not acts(processor, len(self.prompts[0]) + int(slot)):
                    continue
                which = np.flatnonzero(slots == slot).tolist()
                prefixes = [[*self.prompts[rows[n]], *places[n][0].prefix(places[n][1])] for n in which]
                ids = torch.tensor(prefixes, device=scores.device)
                if looks_at != "row":
                    scores[which] = processor(ids, scores[which])
                    continue
                batch = len(self.prompts)
                for n, prefix in zip(
                    which, ids, strict=True
                ):  # asked for a batch of the same, read where the row stands
                    scores[n] = processor(prefix.repeat(batch, 1), scores[n].repeat(batch, 1))[rows[n]]
        return scores


@dataclass
class _Row:
    """A decoder's sentence that ends at the token at which a stopping criterion says so; a `passes.Sentence`.

    Attributes
    ----------
    number : int
        Of the row in the batch.
    ids : tensor (1, longest)
        Prompt, settled tokens, padding.
    length : int
        Of prompt and settled tokens.
    asked : tuple of str
        What is returned, and kept, of every settled token: "scores", "logits".
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
    asked: tuple[str, ...]
    kept: "list[dict[str, Tensor]]" = field(default_factory=list)
    best: list[list[float]] = field(default_factory=list)
    hypothesis: Hypothesis | None = None

    def __post_init__(self) -> None:
        self.prompt, self.spare = self.length, self.sentence.spare

    def feed(self) -> Feed:
        """What the decoder feeds."""
        self.fed = self.sentence.feed()
        return self.fed

    def take(self, tokens: np.ndarray) -> Accepted:
        """Let the decoder take the tokens, and go through those that it settled."""
        taken = self.sentence.take(tokens)
        for node, token, status in zip(taken.shown.tolist(), taken.tokens.tolist(), taken.status, strict=True):
            slot = self.length - self.prompt
            if status == "settled" and self.fed.slots[node] == slot and self.hypothesis is None:
                self._settle(token, node)
        if self.sentence.hypothesis is not None and self.hypothesis is None:
            raise ValueError(
                f"The output is too long: got {self.length} tokens and no end, and the model has no more positions. Lower "
                "max_new_tokens."
            )
        return taken

    def _settle(self, token: int, node: int) -> None:
        import torch

        self.ids[0, self.length] = token
        self.length += 1
        if self.asked:
            scores, logits = (values[node].clone() for values in self.choosing.kept[self.number])
            self.kept.append({"scores": scores, "logits": logits})
        if self.choosing.rounds:
            self.best.append(self.choosing.best[self.number][node])
        so_far = tuple(step["scores"][None] for step in self.kept) if "scores" in self.asked else None
        done = self.criteria(self.ids[:, : self.length], so_far)
        if done.numel() != 1:
            raise ValueError(
                f"Stopping criteria are asked row by row: got {done.numel()} answers for one row. Answer for the rows of "
                "input_ids, or generate one sentence at a time."
            )
        if self.streamer is not None:
            self.streamer.put(torch.tensor([token]))
        if done:
            self.hypothesis = Hypothesis(tuple(self.ids[0, self.prompt : self.length].tolist()), None, "end")


def _warn_of_ties(rows: Sequence[_Row], dtype: Any) -> None:
    """Say where the two best scores lie closer than half precision can tell, so that `generate` may choose the other token."""
    import torch

    rounding = ROUNDINGS * torch.finfo(dtype).eps
    close = [
        (best - second, row.number, index)
        for row in rows
        for index, (best, second) in enumerate(row.best)
        if best - second <= rounding * max(abs(best), 1.0)
    ]
    if close:
        margin, number, index = min(close)
        warnings.warn(
            f"In {str(dtype).removeprefix('torch.')} passes over several tokens are rounded otherwise than single steps: got "
            f"{len(close)} tokens whose two best scores lie within rounding, the closest {margin:.3g} apart (row {number}, token "
            f"{index + 1}), where generate may choose the other. Use float32 for the same tokens.",
            stacklevel=2,
        )


def _asked_for(config: Any) -> tuple[str, ...]:
    """What `generate` is to return of every step."""
    named = ("scores", "logits") if config.return_dict_in_generate else ()
    return tuple(name for name in named if getattr(config, f"output_{name}"))


def _dictionary(sequences: Any, rows: Sequence[_Row], prompt: int, asked: Sequence[str]) -> Any:
    """What `generate` returns as a dictionary; scores and logits are zero where a row has ended."""
    import torch
    from transformers.generation.utils import GenerateEncoderDecoderOutput

    def column(name: str, step: int) -> "Tensor":
        nothing = torch.zeros_like(rows[0].kept[0][name])
        return torch.stack([row.kept[step][name] if step < len(row.kept) else nothing for row in rows])

    steps = range(sequences.shape[1] - prompt)
    columns: dict[str, Any] = {name: tuple(column(name, step) for step in steps) for name in asked}
    return GenerateEncoderDecoderOutput(sequences=sequences, **columns)


def _network(
    model: Any, inputs: dict[str, Any], ids: "Tensor", packed: bool
) -> tuple[Any, Callable[[int], Any], Callable[[Any], "Tensor"]]:
    """The network, what a batch or row of it starts from, and what makes logits of its hidden vectors."""
    import torch

    from fastdecode_lib.kernels.products import Product
    from fastdecode_lib.models.huggingface import LogitsModel, check_passes
    from fastdecode_lib.models.transformer import Transformer

    given = private.prepared(inputs)
    places = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or sys.maxsize
    own = LogitsModel(model, places)
    network: Any = Transformer.of_module(model, copy=packed)
    if network is None:
        network = own

        def memory(row: int) -> Any:
            return {name: _row_of(value, row, len(ids)) for name, value in given.items()}

        def score(vectors: Any) -> "Tensor":
            return vectors.to(ids.device, torch.float32, copy=True)

        first = memory(0)
    else:
        mask = given.get("attention_mask")
        real = None if mask is None or bool(mask.all()) else mask.to(network.device, torch.bool)[:, None, None]
        whole = network.remember(given["encoder_outputs"][0], real)
        weight, bias = network.outputs[0].weight, network.outputs[0].bias
        product = Product.of(weight, weight.new_zeros(len(weight)) if bias is None else bias.reshape(-1), copy=packed)

        def memory(row: int) -> Any:
            return whole

        def score(vectors: Any) -> "Tensor":
            return product(vectors).to(ids.device, torch.float32)

        first = whole.gather(torch.zeros(1, dtype=torch.long, device=network.device))
    known, what = private.notes(model), f"{network.engine}, packed={packed}"
    if what not in known:
        encoded = {name: _row_of(value, 0, len(ids)) for name, value in given.items()}
        if check_passes(network, first, score, own, encoded, ids[:1].cpu().numpy()):
            known[what] = True
    return network, memory, score


def _row_of(value: Any, row: int, batch: int) -> Any:
    """One row of everything that has rows."""
    if hasattr(value, "shape"):
        return value[row : row + 1] if value.ndim and len(value) == batch else value
    if isinstance(value, dict):
        return type(value)(**{name: _row_of(part, row, batch) for name, part in value.items()})
    return tuple(_row_of(part, row, batch) for part in value) if isinstance(value, tuple) else value


def _source(ids: "Tensor | None", inputs: dict[str, Any], padding: int) -> Source:
    """The source for lengths and drafts: real tokens first; padding where `generate` was given no ids."""
    hidden, mask = inputs["encoder_outputs"][0], inputs.get("attention_mask")
    real = np.ones(hidden.shape[:2], dtype=bool)
    if mask is not None and mask.shape == real.shape:
        real = mask.bool().cpu().numpy()
    tokens = np.full(real.shape, padding, dtype=np.int64)
    if ids is not None and ids.shape == real.shape and not ids.is_floating_point() and bool((ids >= 0).all()):
        tokens = ids.cpu().numpy()
    return Source(np.take_along_axis(tokens, np.argsort(~real, axis=1, kind="stable"), 1), real.sum(1))


def _problems(
    model: Any, config: Any, ids: "Tensor", inputs: dict[str, Any], criteria: Any, streamer: Any, caller: dict[str, Any]
) -> Iterator[str]:
    """Why this cannot be decoded, in three parts each."""
    if not model.config.is_encoder_decoder:
        yield (
            f"custom_generate is for encoder-decoder models: got {type(model).__name__}, which has no encoder. Leave it out, or "
            "use a translation model such as Helsinki-NLP/opus-mt-en-de."
        )
    mode = config.get_generation_mode(caller["assistant_model"]).value
    if mode != "greedy_search":
        yield (
            f"custom_generate gives greedy decoding's output: got settings for {mode.replace('_', ' ')} (num_beams="
            f"{config.num_beams}, do_sample={config.do_sample}). {INSTEAD.get(mode, 'Leave custom_generate out.')}"
        )
    if config.return_dict_in_generate and (config.output_attentions or config.output_hidden_states):
        yield (
            f"Passes are no steps of one token, whose attentions and hidden states could be returned: got output_attentions="
            f"{config.output_attentions}, output_hidden_states={config.output_hidden_states}. Leave custom_generate out for them."
        )
    if model.training:
        yield "The model is in training mode, where dropout makes outputs random: got training=True. Call model.eval() first."
    if caller["synced_gpus"]:
        yield (
            "Processes that share a model must make equally many passes, which here depends on the text: got synced_gpus=True. "
            "Leave custom_generate out."
        )
    if filled := private.filled(inputs):
        yield f"Decoding starts from an empty cache: got one with {filled} positions. Give decoder_input_ids instead."
    mask, source = inputs.get("decoder_attention_mask"), inputs.get("attention_mask")
    squeezed = model.config.model_type == "m2m_100" and ids.shape[1] > 1 and (ids == model.config.pad_token_id).any()
    if squeezed or (mask is not None and not bool(mask.all())):
        yield f"decoder_input_ids must be without padding: got {ids.tolist()}. Give the rows prompts of the same length."
    if others := [name for name in ("decoder_position_ids", "decoder_inputs_embeds") if inputs.get(name) is not None]:
        yield f"The decoder's prompt is given as ids: got {', '.join(others)}. Give decoder_input_ids instead."
    if source is not None and not bool(source.any(-1).all()):
        yield "A source without tokens cannot be decoded: got a row of zeros in attention_mask. Leave that sentence out."
    if streamer is not None and len(ids) > 1:
        yield f"A streamer follows one sentence: got a batch of {len(ids)}. Give one sentence at a time, or no streamer."
    stops = [type(c).__name__ for c in criteria if type(c).__name__ != "MaxLengthCriteria"]
    if len(ids) > 1 and stops and not any(hasattr(c, "eos_token_id") for c in criteria):
        yield (
            f"Without an end of sentence, `generate` goes on with rows that were stopped: got a batch of {len(ids)} with "
            f"{', '.join(stops)} and no eos_token_id. Give eos_token_id, or one sentence at a time."
        )
