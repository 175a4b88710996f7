"""Our lossless parallel decoders inside Hugging Face's `generate`; one file because every check guards the one loop.

>>> from fastdecode_lib import hf
>>> model.generate(**inputs, num_beams=1, custom_generate=hf.window())

`generate` prepares everything: the encoder's pass, the prompt, logits processors and stopping criteria. The loop over passes
is ours, and its tokens are greedy decoding's. Marian, mBART, M2M-100 / NLLB, T5 and mT5 run whole batches: in float32 on a CPU
on the compiled kernels, with a copy of the weights that is kept and made again when they change; elsewhere on the functional
transformer, on the module's own tensors. Other encoder-decoders, and modules changed in place (adapters, hooks, other
activations), run through their own forward, one row at a time. Before a module is used, and after each change of it, passes are
compared with its own single steps on the sentence at hand: what differs is refused. In half precision rounding may decide
between the two best tokens, and a warning says where.

Draft tables, heads and what `fastdecode speedup` measured are found by the checkpoint that the module was loaded from. They
decide nothing but the speed: a module trained on since then has its own tokens.

Logits processors are called at every slot of a pass with that slot's own prefix, so they must not remember earlier calls:
those of transformers that do not are known here, others are accepted if they say ``stateless = True``. Stopping criteria are
asked, and streamers told, after every settled token, row by row.
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import loading, registry
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Constraints, Hypothesis, Source
from fastdecode_lib.decoding.choosing import Choice, check_fits
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.passes import Accepted, Feed, Sentence, passes, row_batches
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.finding import directions_with_tables, measured_choice, places_in_cache, resolve
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.store import ModelFiles
from fastdecode_lib.translation import drafting as outputs_of

if TYPE_CHECKING:
    from torch import Tensor

INSTEAD = {
    "beam_search": "Pass num_beams=1, or leave custom_generate out for beams.",
    "beam_sample": "Pass num_beams=1 and do_sample=False, or leave custom_generate out.",
    "sample": "Pass do_sample=False, or leave custom_generate out to sample.",
    "assisted_generation": "Leave the assistant out: a window drafts by itself, from the source with draft='prompt/recycled'.",
}

USUAL = Window(3, "ngram+lexicon")
"""The decoder of single sentences where there is a draft table and nothing was measured."""
GREEDY = Window(1, "pad")
"""Greedy decoding as a parallel decoder."""
ROUNDINGS = {"float16": 2, "bfloat16": 2, "float32": 64}
"""Units in the last place of a best score by which a pass may differ from single steps; more are a change of the model."""


def window(
    width: int | None = None,
    draft: str = "auto",
    candidates: int = 3,
    table: str | None = None,
    model: str | None = None,
    head: str | None = None,
    *,
    packed: bool = True,
) -> "CustomGenerate":
    """`decoding.window.Window`, as `Window.of`; without a width, the fastest decoder known for the model and batch size.

    That is the choice of `fastdecode speedup` on this machine; else `USUAL` for single sentences with a draft table; else
    greedy decoding, with one warning.
    """
    if width is None and (draft, candidates, table, model, head) == ("auto", 3, None, None, None):
        return CustomGenerate(None, packed)
    return decoder(Window.of(8 if width is None else width, draft, candidates, table, model, head), packed=packed)


def jacobi(ratio: float = 1.2, extra: int = 5, *, packed: bool = True) -> "CustomGenerate":
    """`decoding.jacobi.Jacobi`."""
    return decoder(Jacobi(ratio, extra), packed=packed)


def gauss_seidel(block: int = 3, *, packed: bool = True) -> "CustomGenerate":
    """`decoding.jacobi.GaussSeidel`."""
    return decoder(GaussSeidel(block), packed=packed)


def hybrid(block: int = 3, length: int | None = None, *, packed: bool = True) -> "CustomGenerate":
    """`decoding.jacobi.Hybrid`."""
    return decoder(Hybrid(block, length), packed=packed)


def decoder(spec: registry.Spec, *, packed: bool = True) -> "CustomGenerate":
    """Any lossless parallel decoder of the registry as ``custom_generate``.

    Parameters
    ----------
    spec : str or Decoder
        Spec as on the command line: ``"window:width=5,draft=prompt/recycled"``.
    packed : bool
        Run on the compiled kernels where they run the module; without it, always on the module's own tensors.

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
    if draft is not None and isinstance(draft.table, str):
        loaded = dataclasses.replace(draft, table=DraftTable.load(draft.table))
        chosen = dataclasses.replace(chosen, draft=loaded)  # type: ignore[type-var]
    return CustomGenerate(chosen, packed)


@dataclass(frozen=True)
class CustomGenerate:
    """A decoder as the ``custom_generate`` of `generate`, driven by what that has prepared; None chooses the fastest known."""

    decoder: Any
    packed: bool = True

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
        padding, ends = private.padding_of(generation_config), private.ends(stopping_criteria)
        source = _source(inputs_tensor, inputs, padding)
        known = private.notes(model)
        network, memory, score = _network(model, known, inputs, input_ids, self.packed)
        drafting = _Drafting(model, known, network, source, input_ids, generation_config, tuple(ends))
        chosen = drafting.usual() if self.decoder is None else drafting.resolved(self.decoder)
        if chosen is None:
            prepared = {
                "logits_processor": logits_processor,
                "stopping_criteria": stopping_criteria,
                "streamer": streamer,
            }
            return private.greedy_of_its_own(
                model, input_ids, generation_config=generation_config, **prepared, **inputs
            )
        check_fits(chosen, network)

        prompts, prompt = input_ids.tolist(), input_ids.shape[1]
        longest = stopping_criteria.max_length or generation_config.max_length
        limit = max(1, min(longest, network.max_target + 1) - prompt)
        ids = input_ids.new_full((len(prompts), prompt + limit), padding)
        ids[:, :prompt] = input_ids
        asked = _asked_for(generation_config)
        rows: list[_Row] = []
        for first, part in row_batches(network, source):
            choosing = self.choosing(score, processors, prompts, first, bool(asked))
            choosing.rounds = _name_of(model.dtype) in ROUNDINGS
            for number in range(first, first + len(part)):
                rules = Constraints(tuple(prompts[number]), tuple(ends) or (-1,), limit, padding)
                (sentence,) = chosen.sentences(network, source.row(number), rules)
                row = _Row(
                    sentence, number, ids[number : number + 1], prompt, choosing, stopping_criteria, streamer, asked
                )
                rows.append(row)
            capacity = prompt + limit + max(row.spare for row in rows[first:])
            remembered = memory(first)
            state = network.start(remembered, np.array(prompts[first : first + len(part)]), capacity)
            watchers = drafting.watchers(chosen, rows[first:], remembered)
            for _ in passes(rows[first:], network, state, choosing, watchers=watchers):
                pass
        if streamer is not None:
            streamer.end()
        _warn_of_ties(rows, model.dtype)
        sequences = ids[:, : max(row.length for row in rows)].contiguous()
        return _dictionary(sequences, rows, prompt, asked) if generation_config.return_dict_in_generate else sequences

    def choosing(self, *arguments: Any) -> "Choosing":
        """Chooser of the token at every slot."""
        return Choosing(*arguments)


class Choosing:
    """Chooses as `generate` does, by processors at every slot with its own prefix; a `passes.Chooser`.

    Parameters
    ----------
    score : callable
        Hidden vectors (N, D) to logits (N, V), a new float32 tensor.
    processors : sequence of (processor, what it looks at)
    prompts : list of list of int
        Prompts of all rows of the batch; the passes have the rows from `first` on.
    keep : bool
        Leave scores and logits of the last pass in `kept`, by row of the batch.

    Attributes
    ----------
    rounds : bool
        Whether passes may be rounded otherwise than single steps, so that scores of the two best tokens are left in `best`.
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
        Index of the row in the batch.
    ids : tensor (1, longest)
        Prompt, settled tokens, padding.
    length : int
        Number of prompt and settled tokens.
    asked : tuple of str
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
    asked: tuple[str, ...]
    kept: "list[dict[str, Tensor]]" = field(default_factory=list)
    best: list[list[float]] = field(default_factory=list)
    hypothesis: Hypothesis | None = None

    def __post_init__(self) -> None:
        self.prompt, self.spare = self.length, self.sentence.spare

    def feed(self) -> Feed:
        """Tokens that the decoder feeds."""
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
    """Say where the two best scores lie within rounding of each other, so that `generate` may choose the other token."""
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


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _asked_for(config: Any) -> tuple[str, ...]:
    """Names of the arrays that `generate` is to return of every step."""
    named = ("scores", "logits") if config.return_dict_in_generate else ()
    return tuple(name for name in named if getattr(config, f"output_{name}"))


def _dictionary(sequences: Any, rows: Sequence[_Row], prompt: int, asked: Sequence[str]) -> Any:
    """The output of `generate` as a dictionary; scores and logits are zero where a row has ended."""
    import torch
    from transformers.generation.utils import GenerateEncoderDecoderOutput

    def column(name: str, step: int) -> "Tensor":
        nothing = torch.zeros_like(rows[0].kept[0][name])
        return torch.stack([row.kept[step][name] if step < len(row.kept) else nothing for row in rows])

    steps = range(sequences.shape[1] - prompt)
    columns: dict[str, Any] = {name: tuple(column(name, step) for step in steps) for name in asked}
    return GenerateEncoderDecoderOutput(sequences=sequences, **columns)


def _network(
    model: Any, known: dict[str, Any], inputs: dict[str, Any], ids: "Tensor", packed: bool
) -> tuple[Any, Callable[[int], Any], Callable[[Any], "Tensor"]]:
    """The network, what a batch or row of it starts from, and what makes logits of its hidden vectors."""
    import torch

    from fastdecode_lib.kernels.products import Product
    from fastdecode_lib.models.huggingface import LogitsModel, check_passes
    from fastdecode_lib.models.transformer import Transformer

    given = private.prepared(inputs)
    network: Any = _compiled(model, known) if packed else None
    first: Any
    network = network or Transformer.of_module(model)
    if network is None or network.engine not in known:
        places = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or sys.maxsize
        own = LogitsModel(model, places)
    if network is None:
        network = own

        def memory(row: int) -> Any:
            return {name: _row_of(value, row, len(ids)) for name, value in given.items()}

        def score(vectors: Any) -> "Tensor":
            return vectors.to(ids.device, torch.float32, copy=True)

        first = memory
    else:
        hidden, mask = given["encoder_outputs"][0], given.get("attention_mask")
        weight = network.outputs[0].weight
        if network.engine == "compiled":
            real = np.ones(hidden.shape[:2], dtype=bool) if mask is None else mask.numpy().astype(bool)
            whole = network.remember(hidden.detach().numpy(), real)
            first = lambda _: network.remember(hidden[:1].detach().numpy(), real[:1])  # noqa: E731
            score = lambda vectors: torch.from_numpy(weight(vectors))  # noqa: E731
        else:
            real = None if mask is None or bool(mask.all()) else mask.to(network.device, torch.bool)[:, None, None]
            whole, bias = network.remember(hidden, real), network.outputs[0].bias
            first = lambda _: whole.gather(torch.zeros(1, dtype=torch.long, device=network.device))  # noqa: E731
            product = Product.of(
                weight, weight.new_zeros(len(weight)) if bias is None else bias.reshape(-1), copy=False
            )
            score = lambda vectors: product(vectors).to(ids.device, torch.float32)  # noqa: E731

        def memory(row: int) -> Any:
            return whole

    if network.engine not in known:
        encoded = {name: _row_of(value, 0, len(ids)) for name, value in given.items()}
        if check_passes(network, first(0), score, own, encoded, ids[:1].cpu().numpy()):
            known[network.engine] = True
    return network, memory, score


def _compiled(model: Any, known: dict[str, Any]) -> Any:
    """The module on the compiled kernels, None where they do not run it; made again when its weights have changed.

    `private.notes` sees most changes, but not those of a tensor's ``.data``: these show in products with a fixed vector, if they
    are larger than rounding.
    """
    network, before = known.get("packed", (None, []))
    now = [] if network is None else _products(model)
    if "packed" not in known or any((a != b).any() for a, b in zip(before, now, strict=True)):
        from fastdecode_lib.models.compiled_transformer import CompiledTransformer

        known.clear()
        network = CompiledTransformer.of_module(model)
        known["packed"] = network, [] if network is None else _products(model)
    return network


def _products(model: Any) -> "list[Tensor]":
    """Fingerprint of each tensor that a module decodes with: vectors as they are, matrices as a product."""
    import torch

    head, bias = private.head_of(model, called=False)
    found = [t for part in (model.get_decoder(), head) for t in (*part.parameters(), *part.buffers())]
    found += [] if bias is None else [bias]
    tensors = [tensor.detach().float() for tensor in {id(tensor): tensor for tensor in found}.values()]
    widest = max(tensor.shape[-1] for tensor in tensors if tensor.ndim)
    probe = torch.linspace(1, 2, widest)
    return [t.flatten(0, -2) @ probe[: t.shape[-1]] if t.ndim > 1 else t.clone() for t in tensors]


class _Drafting:
    """Draft tables and heads found for the sentences of a `generate`.

    Attributes
    ----------
    loaded : TranslationModel or None
        The network with the tokenizer and files of the checkpoint that the module comes from.
    direction : (source, target)
        Languages named by the sources' tags and the forced first token; None where they name none.
    """

    def __init__(
        self,
        model: Any,
        known: dict[str, Any],
        network: Any,
        source: Source,
        ids: "Tensor",
        config: Any,
        ends: tuple[int, ...],
    ):
        self.module, self.network, self.rows, self.ends = model, network, len(source), ends
        self.found: dict[Any, Any] = known.setdefault("found", {})
        self.vectors = hasattr(network, "source_vectors") and network.engine != "huggingface"
        self.loaded: TranslationModel | None = None
        self.direction: tuple[str | None, str | None] = (None, None)
        if (folder := private.origin(model)) is None:
            return
        written = network.engine, *map(_written, (folder, folder / "draft-tables"))
        if known.get("written") != written:
            known |= {"written": written, "loaded": loading.around(network, folder)}
        self.loaded = known["loaded"]
        if self.loaded is not None:
            try:
                fingerprint = self.loaded.checkpoint.fingerprint
            except (ValueError, OSError):  # its files are gone
                self.loaded = None
                return
            made = written, *map(_written, places_in_cache(fingerprint))
            if known.get("made") != made:
                known |= {"made": made, "found": {}}
            self.found = known["found"]
            first = {*ids[:, 1].tolist()} if ids.shape[1] > 1 else {config.forced_bos_token_id}
            self.direction = self._direction(self.loaded, source, first)

    def _direction(self, loaded: TranslationModel, source: Source, first: set[int]) -> tuple[str | None, str | None]:
        """The one direction with a draft table whose tag all sources bear, and whose target all outputs begin with."""
        fitting = []
        for pair, (tag, target) in self._frames(loaded).items():
            tagged = source.ids.shape[1] >= len(tag) and (source.ids[:, : len(tag)] == tag).all()
            if tagged and (not target or first == set(target)):
                fitting.append(pair)
        return fitting[0] if len(fitting) == 1 else (None, None)

    def _frames(self, loaded: TranslationModel) -> dict[Any, tuple[np.ndarray, tuple[int, ...]]]:
        """Frames by direction with a draft table: the ids in front of a source and of an output."""
        if "frames" not in self.found:
            frames = self.found["frames"] = {}
            for pair in directions_with_tables(Path(loaded.checkpoint.folder), loaded.checkpoint.fingerprint):
                with suppress(ValueError):  # a table of a direction that the model no longer names
                    empty = loaded.tokenizer.encode([""], *pair)
                    frames[pair] = empty.ids[0, : empty.lengths[0] - 1], loaded.tokenizer.forced_language(pair[1])
        frames_found: dict[Any, tuple[np.ndarray, tuple[int, ...]]] = self.found["frames"]
        return frames_found

    def usual(self) -> Any:
        """The fastest decoder known, resolved; None for `generate` as it is."""
        key = "usual", self.direction, self.rows == 1
        if key not in self.found:
            self.found[key] = self._usual()
        return self.found[key]

    def _usual(self) -> Any:
        loaded, batch = self.loaded, self.rows
        if loaded is not None and (choice := measured_choice(loaded.checkpoint.fingerprint, self.direction, batch)):
            try:
                registry.check_lossless(*choice)
                return self.resolved(registry.decoder(choice[0]))
            except ValueError as error:
                warnings.warn(f"What speedup chose no longer runs, decoding as usual: {error}", stacklevel=7)
        if loaded is not None and batch == 1 and self.direction in self._frames(loaded):
            return self.resolved(USUAL)
        what = "single sentences" if batch == 1 else "batches"
        warnings.warn(
            f"No drafts are known to pay for {what} of this model here: got {self.module.name_or_path or 'a module'}, which is "
            "decoded greedily. Run fastdecode speedup, or give a width.",
            stacklevel=7,
        )
        return GREEDY if self.network.engine == "compiled" else None

    def resolved(self, chosen: Any) -> Any:
        """A decoder with its drafts loaded."""
        draft = getattr(chosen, "drafts", None)
        if draft is None or draft.resolved:
            return chosen
        if draft.needs_head and not self.vectors:
            raise ValueError(
                f"A draft head needs the model's hidden vectors: got {type(self.module).__name__}, which runs through its own "
                f"forward, with draft={draft.written!r}. Use draft=ngram+lexicon."
            )
        files = self._files()
        key = chosen, self.direction, self.network.engine
        if key not in self.found:
            if draft.table is not None:
                given, draft = draft.table, dataclasses.replace(draft, table=None)
                files = dataclasses.replace(files, table=lambda: given)
            self.found[key] = dataclasses.replace(chosen, draft=resolve(draft, self.network, files))
        return self.found[key]

    def watchers(self, chosen: Any, rows: Sequence["_Row"], memory: Any) -> list[Any]:
        """Observers of the network's vectors for each row: the drafters of heads."""
        draft = getattr(chosen, "drafts", None)
        if draft is None or not draft.needs_head:
            return []
        sentences: list[Any] = [row.sentence for row in rows]
        drafters = [sentence.drafter for sentence in sentences]
        for drafter, vectors in zip(drafters, self.network.source_vectors(memory), strict=True):
            drafter.begin(vectors)
        return drafters

    def _files(self) -> ModelFiles:
        if self.loaded is None:
            return ModelFiles()
        loaded, (source, target) = self.loaded, self.direction
        return loaded.files(source, target, self.ends, lambda name: outputs_of(name, loaded, source, target))


def _written(folder: Path) -> int:
    """Time of a folder's last change; 0 where there is none."""
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


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
    """Reasons why this cannot be decoded, each in three parts."""
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
    if private.in_training(model):
        yield "The model is in training mode, where dropout makes outputs random: got training=True. Call model.eval() first."
    if private.autocasts(model):
        yield (
            "Single steps and passes over several tokens are rounded alike in one precision alone: got torch.autocast. Leave it "
            "out, or load the model in that precision."
        )
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
