"""Records the passes of Hugging Face's own `generate`, so that they can be drawn."""

import time
from dataclasses import dataclass
from typing import Any

from ddgviz.schema import FORMAT, VERSION, fail

_ONE = "Generate one sequence: one sentence, num_beams=1, num_return_sequences=1."
_KINDS = (
    ("prompt_lookup_num_tokens", "prompt_lookup", "prompt"),
    ("assistant_model", "assisted", "model"),
    ("assistant_early_exit", "assisted", "model"),
    ("custom_generate", "custom", "draft"),
)
"""Arguments of `generate` that draft tokens: the argument, the decoder's name, and the source of its drafts."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One call of the model.

    Attributes
    ----------
    past : int
        Positions that were cached before the pass.
    fed : list of int
        Ids that were fed, at the positions from `past` on.
    best : list of (int, float, float)
        The likeliest token after each of the last positions fed, its probability, and its logit minus the runner-up's.
    seconds : float
        Time since the end of the previous call.
    """

    past: int
    fed: list[int]
    best: list[tuple[int, float, float]]
    seconds: float


class Recording:
    """A model whose next `generate` is recorded: see `record`.

    Attributes
    ----------
    passes : list of Pass
        Passes of the last `generate`.
    """

    def __init__(self, module: Any, tokenizer: Any = None) -> None:
        self.module, self.tokenizer = module, tokenizer
        self.passes: list[Pass] = []
        self._trace: dict[str, Any] | None = None
        self._past = 0
        self._clock = 0.0

    def generate(self, *args: Any, **options: Any) -> Any:
        """`generate` of the model, with the same arguments and result; afterwards the recording can be drawn.

        Raises
        ------
        ValueError
            If more than one sequence is decoded at a time, or the passes do not account for the output.
        """
        self.passes, self._trace = [], None
        hooks = [
            self.module.register_forward_pre_hook(self._before, with_kwargs=True),
            self.module.register_forward_hook(self._after, with_kwargs=True),
        ]
        self._clock = time.perf_counter()
        try:
            answer = self.module.generate(*args, **options)
        finally:
            for hook in hooks:
                hook.remove()
        prompt = self._prompt(args, options)
        output = getattr(answer, "sequences", answer)[0].tolist()
        self._trace = self._assemble(prompt, output, options)
        return answer

    def to_dict(self) -> dict[str, Any]:
        """The last run as docs/trace.md describes it."""
        if self._trace is None:
            raise fail("A recording is drawn once something was generated", "nothing", "Call its generate first.")
        return self._trace

    def _before(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("cache", kwargs.get("past_key_values"))  # the first from transformers 5.24 on
        self._past = 0 if cache is None else int(cache.get_seq_length())

    def _after(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        fed = kwargs.get(self._ids) if self._ids in kwargs or not args else args[0]
        if fed is None or fed.shape[0] != 1:
            received = "no ids" if fed is None else f"{fed.shape[0]} sequences in one pass"
            raise fail("A recording follows the ids of one sequence", received, _ONE)
        logits = output.logits[0].float()
        top = logits.topk(2)
        likely = (top.values[:, 0] - logits.logsumexp(-1)).exp()
        margins = (top.values[:, 0] - top.values[:, 1]).tolist()
        best = list(zip(top.indices[:, 0].tolist(), likely.tolist(), margins, strict=True))
        self.passes.append(Pass(self._past, fed[0].tolist(), best, time.perf_counter() - self._clock))
        self._clock = time.perf_counter()

    @property
    def _seq2seq(self) -> bool:
        return bool(self.module.config.is_encoder_decoder)

    @property
    def _ids(self) -> str:
        """The argument of the model that holds the decoded ids."""
        return "decoder_input_ids" if self._seq2seq else "input_ids"

    def _prompt(self, args: tuple[Any, ...], options: dict[str, Any]) -> list[int]:
        """Input of the model: the source, or the text that it continues."""
        prompt = options.get("input_ids", options.get("inputs", args[0] if args else None))
        if prompt is None:
            raise fail("A recording needs the ids that the model read", sorted(options), "Pass input_ids to generate.")
        return prompt[0].tolist()

    def _assemble(self, prompt: list[int], output: list[int], options: dict[str, Any]) -> dict[str, Any]:
        """The trace of a run."""
        given = options.get("decoder_input_ids")
        started = [] if given is None else given[0].tolist()
        begins = bool(started) and output[: len(started)] == started  # else `generate` put the start symbol before it
        start = len(started) + (not begins) if self._seq2seq else len(prompt)
        tokens = output[start:]
        decoder, origin = _described(options, self.module.generation_config)
        rows, settled = [], 0
        for number, recorded in enumerate(self.passes):
            rows.append(_row(number, recorded, start, tokens, settled, origin))
            settled += rows[-1]["status"].count("settled")
        if settled != len(tokens):
            remedy = "Only what the model's own forward computes can be recorded; see the docstring of ddgviz.record."
            raise fail(f"{len(self.passes)} passes account for {len(tokens)} tokens", f"{settled} of them", remedy)
        configs = options.get("generation_config"), self.module.generation_config
        asked = [options.get("eos_token_id"), *(getattr(config, "eos_token_id", None) for config in configs)]
        ends: Any = next((ids for ids in asked if ids is not None), [])
        end = [ends] if isinstance(ends, int) else [int(id_) for id_ in ends]
        used = {token for row in rows for token in (*row["tokens"], *row["drafts"]) if token >= 0} | {*tokens}
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": {"text": self._text(prompt), "language": None, "pieces": [self._piece(id_) for id_ in prompt]},
            "target": {"text": self._text(tokens), "language": None},
            "settings": {
                "model": str(self.module.config.name_or_path or type(self.module).__name__),
                "decoder": decoder,
                "projection": "exact",
                "engine": "transformers",
                "dtype": str(self.module.dtype).removeprefix("torch."),
                "device": str(self.module.device),
            },
            "end": end,
            "pieces": {str(token): self._piece(token) for token in sorted(used)},
            "iterations": rows,
            "hypotheses": [
                {"tokens": tokens, "score": None, "stop": "end" if tokens[-1:] and tokens[-1] in end else "length"}
            ],
            "greedy": None,
            "edges": [],
        }

    def _text(self, ids: list[int]) -> str:
        return "" if self.tokenizer is None else str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def _piece(self, token: int) -> str:
        """A token's text, with ``▁`` where a word begins, as in all traces."""
        if self.tokenizer is None:
            return f"▁#{token}"
        piece = str(self.tokenizer.convert_ids_to_tokens(token))
        if piece.startswith("▁") or token in self.tokenizer.all_special_ids:
            return piece
        if piece.startswith("##"):
            return piece[2:]
        text = str(self.tokenizer.decode([token]))
        return "▁" + text[1:] if text.startswith(" ") else text or piece


def _described(options: dict[str, Any], config: Any) -> tuple[str, str]:
    """Name of the decoder, and the source of its drafts."""
    for name, decoder, origin in _KINDS:
        value = options.get(name)
        value = getattr(options.get("generation_config", config), name, None) if value is None else value
        if value is not None:
            options_text = f":tokens={value}" if decoder == "prompt_lookup" else ""
            return decoder + options_text, origin
    passed = options.get("generation_config") or config
    return ("sampling" if options.get("do_sample", passed.do_sample) else "greedy"), ""


def _row(number: int, call: Pass, start: int, tokens: list[int], settled: int, origin: str) -> dict[str, Any]:
    """A pass as docs/trace.md describes it.

    Parameters
    ----------
    number : int
    call : Pass
    start : int
        Position of the first token generated.
    tokens : list of int
        All generated tokens.
    settled : int
        Number of tokens that were settled before the pass.
    origin : str
        Source of the drafts.
    """
    end = call.past + len(call.fed)
    first = end - len(call.best) + 1 - start
    best = {slot: prediction for slot, prediction in enumerate(call.best, first) if slot >= settled}
    slots = list(best)
    drafts = [call.fed[slot + start - call.past] if slot + start < end else -1 for slot in slots]
    agreed = 0
    while agreed < len(slots) - 1 and settled + agreed < len(tokens) and drafts[agreed] == tokens[settled + agreed]:
        agreed += 1
    count = min(agreed + 1, len(tokens) - settled) if slots[:1] == [settled] else 0
    chosen = [tokens[slot] if slot < settled + count else best[slot][0] for slot in slots]
    shown = [
        best[slot] if best[slot][0] == token else (token, None, None) for slot, token in zip(slots, chosen, strict=True)
    ]
    drafted = ["draft" if draft in (-1, token) else "changed" for draft, token in zip(drafts, chosen, strict=True)]
    return {
        "call": number,
        "slots": slots,
        "drafts": drafts,
        "origins": [origin or "draft" if draft >= 0 else "" for draft in drafts],
        "tokens": chosen,
        "status": ["settled"] * count + drafted[count:],
        "probabilities": [probability for _, probability, _ in shown],
        "margins": [margin for _, _, margin in shown],
        "num_active": None,
        "cluster": None,
        "lanes": None,
        "positions": len(slots),
        "seconds": call.seconds,
    }


def record(module: Any, tokenizer: Any = None) -> Recording:
    """Record a model of transformers while it generates, to draw its passes.

    >>> recording = ddgviz.record(model, tokenizer)
    >>> recording.generate(**inputs, prompt_lookup_num_tokens=4)
    >>> ddgviz.show(recording)

    Hooks around the model's forward read the ids that are fed and the logits, of encoder-decoders and of decoder-only models,
    also in assisted generation (``assistant_model``, ``prompt_lookup_num_tokens``) and in a ``custom_generate``. The output of
    `generate` does not change.

    Parameters
    ----------
    module : transformers.PreTrainedModel
        A model with `generate`.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        Tokenizer of the model; tokens are shown by their ids if there is none.

    Raises
    ------
    ValueError
        If `module` is no such model.
    """
    if not all(hasattr(module, name) for name in ("generate", "generation_config", "register_forward_hook")):
        expected = "A recording is made of a model of transformers that generates"
        raise fail(expected, type(module).__name__, "For a model of fastdecode_lib, show what its translate returns.")
    return Recording(module, tokenizer)
