"""Undocumented parts of transformers that this library relies on; one file because any release may change them.

Names of prepared arguments, the frame of `generate`, class names of processors, layouts of caches, attributes of modules: a
release may change any of them, so that only this file relies on them. Anything unknown is an error. Changes that keep all names
show in the comparison of passes with the module's own steps, `models.huggingface.check_passes`.
"""

import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TESTED = ("5.3.0", "5.23.0", "5.24.0")
"""The versions with which `make test-versions` runs the parity tests: the oldest, the pinned and the newest one."""

# ------------------------------------------------------------------------------------------------- processors, criteria

LOOKS_AT = {
    "scores": "InfNanRemoveLogitsProcessor LogitNormalization SuppressTokensLogitsProcessor TemperatureLogitsWarper "
    "TopKLogitsWarper TopPLogitsWarper TopHLogitsWarper MinPLogitsWarper TypicalLogitsWarper EpsilonLogitsWarper "
    "EtaLogitsWarper",
    "prefix": "NoBadWordsLogitsProcessor SequenceBiasLogitsProcessor NoRepeatNGramLogitsProcessor "
    "RepetitionPenaltyLogitsProcessor WatermarkLogitsProcessor",
    "row": "EncoderNoRepeatNGramLogitsProcessor EncoderRepetitionPenaltyLogitsProcessor PrefixConstrainedLogitsProcessor",
}
"""Inputs of the stateless processors of transformers; those of the last group depend on the source of each row."""
ACTS: dict[str, Callable[[Any, int], bool]] = {
    "ForcedBOSTokenLogitsProcessor": lambda p, length: length == 1,
    "ForcedEOSTokenLogitsProcessor": lambda p, length: length == p.max_length - 1,
    "MinLengthLogitsProcessor": lambda p, length: length < p.min_length,
    "MinNewTokensLengthLogitsProcessor": lambda p, length: length < p.prompt_length_to_skip + p.min_new_tokens,
    "SuppressTokensAtBeginLogitsProcessor": lambda p, length: length == p.begin_index,
    "ExponentialDecayLengthPenalty": lambda p, length: length > p.regulation_start,
}
"""Processors that depend on the length of the prefix, and the lengths at which they change scores."""


def looks_at(processor: Any) -> str:
    """Input of a processor: a key of `LOOKS_AT`, or "length"."""
    kind = type(processor)
    name = kind.__name__ if kind.__module__ == "transformers.generation.logits_process" else ""
    if name in ("NoBadWordsLogitsProcessor", "SequenceBiasLogitsProcessor"):
        return "scores" if all(len(words) == 1 for words in processor.sequence_bias) else "prefix"
    if name == "RepetitionPenaltyLogitsProcessor" and hasattr(processor.prompt_ignore_length, "shape"):
        return "row"
    for group, names in LOOKS_AT.items():
        if name in names.split():
            return group
    if name in ACTS:
        return "length"
    if getattr(processor, "stateless", False) is True:
        return "prefix"
    raise ValueError(
        f"A logits processor is called at several slots of a pass, so it must not remember earlier calls: got {kind.__name__}. "
        "Leave it out (guidance, watermarks), or set `stateless = True` on the class if the scores of a row depend on that row "
        "of its arguments alone."
    )


def stops_rows_alone(criterion: Any) -> bool:
    """Whether a stopping criterion answers for each row as if there were no other rows and no earlier calls."""
    own = type(criterion).__module__ == "transformers.generation.stopping_criteria"
    return own or getattr(criterion, "stateless", False) is True


def ends(criteria: Iterable[Any]) -> list[int]:
    """The ids that end a row."""
    return [i for c in criteria if type(c).__name__ == "EosTokenCriteria" for i in c.eos_token_id.tolist()]


WITHOUT_LIMIT = 1_000_000
"""Number of positions of a model with relative positions, which has no table that ends."""


def most_positions(module: Any, side: str) -> int:
    """Number of positions of a module's ``encoder`` or ``decoder``."""
    config = module.config
    part = getattr(config, side, None)
    for holder, name in (
        (config, f"max_{side}_position_embeddings"),
        (part, "max_position_embeddings"),
        (config, "max_position_embeddings"),
    ):
        if type(positions := getattr(holder, name, None)) is int:
            return positions
    return WITHOUT_LIMIT


def padding_of(config: Any) -> int:
    """Id that `generate` fills ended rows with."""
    return 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)


# ----------------------------------------------------------------------------------------------------------- arguments

CACHES = ("cache", "past_key_values")
"""Names of the key-value cache: from 5.24 on, and before."""
EVERY_PASS = ("encoder_outputs", "attention_mask")
"""Arguments that `generate` prepares and that the forward takes in every pass."""
USED_UP = (
    *(*CACHES, "use_cache", "logits_to_keep", "decoder_attention_mask", "output_attentions", "output_hidden_states"),
    *("inputs_embeds", "token_type_ids", "global_attention_mask", "interpolate_pos_encoding"),
)
"""Arguments that `generate` prepares and that a pass does not need: first those of the loop, then those of the encoder."""


def versions() -> str:
    """The installed version and the tested ones, for messages."""
    import transformers

    return f"transformers {transformers.__version__}; tested with {', '.join(TESTED)}"


def prepared(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments prepared by `generate` that the forward takes in every pass.

    Raises
    ------
    ValueError
        If there is an unknown argument.
    """
    arguments = {name: value for name, value in inputs.items() if value is not None and name not in USED_UP}
    if unknown := [name for name in arguments if name not in EVERY_PASS]:
        raise ValueError(
            f"`generate` prepared arguments that a parallel decoder does not know: got {', '.join(unknown)} ({versions()}). "
            "Leave them out, or leave custom_generate out."
        )
    return arguments


def filled(inputs: Mapping[str, Any]) -> int:
    """Number of positions that a cache among the prepared arguments already holds."""
    positions = 0
    for name in CACHES:
        cache = inputs.get(name)
        for part in (cache, getattr(cache, "cross_attention_cache", None)):
            positions = max(positions, getattr(part, "get_seq_length", int)())
    return positions


def arguments_of_generate() -> dict[str, Any]:
    """Arguments of the `generate` that called the ``custom_generate`` from which this function is called.

    `generate` passes on neither streamer nor assistant. A streamer that is not told of the end would hang its reader; therefore
    they are read from the local variables of `generate`.

    Raises
    ------
    ValueError
        If the caller is not `generate`.
    """
    from transformers import GenerationMixin

    frame = sys._getframe(2)
    names, variables = ("streamer", "assistant_model", "synced_gpus"), frame.f_locals
    is_generate = frame.f_code is inspect.unwrap(GenerationMixin.generate).__code__
    if not is_generate or not all(name in variables for name in names):
        raise ValueError(
            f"custom_generate is called by `generate` alone: got a call from {frame.f_code.co_name} ({versions()}). Pass it to "
            "generate(custom_generate=...)."
        )
    return {name: variables[name] for name in names}


def greedy_of_its_own(module: Any, ids: "Tensor", **arguments: Any) -> Any:
    """Greedy decoding by `generate` itself, without ``custom_generate``, with the arguments that it has prepared."""
    return getattr(type(module), "_sample")(module, ids, **arguments)  # noqa: B009


def origin(module: Any) -> Path | None:
    """The folder that a module was loaded from, its own or the hub's snapshot in the cache; nothing is downloaded."""
    name, commit = getattr(module, "name_or_path", None), getattr(module.config, "_commit_hash", None)
    if not name or Path(name).is_dir():
        return Path(name) if name else None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        file = try_to_load_from_cache(name, "config.json", revision=commit)
    except HFValidationError:
        return None
    return Path(file).parent if isinstance(file, str) else None


def tokenizer_in(folder: Path, named: str) -> Any:
    """The tokenizer in a folder, of the class that its settings name if that class has source languages.

    For mBART-50 and NLLB, some versions use a general class that ignores the source language.
    """
    import transformers

    kind: Any = getattr(transformers, named.removesuffix("Fast"), None)
    tokenizer = kind if knows_languages(kind) else transformers.AutoTokenizer
    return tokenizer.from_pretrained(folder, trust_remote_code=False)


def knows_languages(tokenizer: Any) -> bool:
    """Whether a tokenizer, or a class of them, puts the source's language into its ids."""
    return hasattr(tokenizer, "set_src_lang_special_tokens")


# --------------------------------------------------------------------------------------------------------------- caches


def cache_argument(module: Any) -> str:
    """The name of the cache among the arguments of a module's forward; a forward may pass arguments on to an inner one."""
    forwards = [module.forward, *(kind.forward for kind in type(module).__mro__ if hasattr(kind, "forward"))]
    for parameters in (inspect.signature(forward).parameters for forward in forwards):
        if cache_names := [name for name in CACHES if name in parameters]:
            return cache_names[0]
    raise ValueError(
        f"A parallel decoder needs a forward that takes a key-value cache: got {type(module).__name__}, whose forward takes none "
        f"of {', '.join(CACHES)} ({versions()}). Decode this model with generate alone."
    )


def empty_cache() -> Any:
    """A cache that grows, for one row."""
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def shorten(cache: Any, length: int) -> None:
    """Remove all but the first `length` positions from a cache of `empty_cache`."""
    for layer in cache.self_attention_cache.layers:
        if layer.keys is not None:
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]


# -------------------------------------------------------------------------------------------------------------- modules

IGNORED = ("training", "gradient_checkpointing", "name_or_path")
"""Attributes of a part that its forward does not read in evaluation."""
_NOTES: "weakref.WeakKeyDictionary[Any, tuple[list[Any], list[Any], dict[str, Any]]]" = weakref.WeakKeyDictionary()


def notes(module: Any) -> dict[str, Any]:
    """A dictionary for notes on a module, which is emptied after a part or a tensor of the module has changed."""
    references, values = [], []
    for part in module.modules():
        tensors = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        references += [weakref.ref(item) for item in (part, *tensors)]
        hooks = [list(part._forward_hooks), list(part._forward_pre_hooks)]
        values += [type(part), type(part).forward, hooks, _settings(part)]
        values += [(t.data_ptr(), None if t.is_inference() else t._version) for t in tensors]
    values += [list(hooks) for hooks in _global_hooks()]
    values.append({name: value for name, value in vars(module.config).items() if isinstance(value, _VALUES)})
    stored = _NOTES.get(module)
    unchanged = stored is not None and len(stored[0]) == len(references) and stored[1] == values
    if stored is None or not unchanged or any(a is not b for a, b in zip(stored[0], references, strict=True)):
        stored = _NOTES[module] = (references, values, {})
    return stored[2]


def _global_hooks() -> tuple[Any, Any]:
    """Hooks of all modules, by their numbers."""
    from torch.nn.modules import module

    return module._global_forward_hooks, module._global_forward_pre_hooks


_VALUES = (int, float, str, type(None))


def _settings(part: Any) -> dict[str, Any]:
    """Numbers, strings and functions among the attributes of a part."""
    public = {name: value for name, value in vars(part).items() if not name.startswith("_") and name not in IGNORED}
    return {name: value for name, value in public.items() if isinstance(value, _VALUES) or callable(value)}


def is_as_made(module: Any) -> bool:
    """Whether a module differs only in its tensors from a new module of its class with its config.

    Adapters, quantised weights, hooks, and other activations, norms or scales are differences.
    """
    module_notes = notes(module)
    if "as made" not in module_notes:
        module_notes["as made"] = _differs_only_in_tensors(module)
    return bool(module_notes["as made"])


def in_training(module: Any) -> bool:
    """Whether a part of transformers itself may use dropout; parts from elsewhere may not follow the training mode."""
    return any(part.training and type(part).__module__.partition(".")[0] == "transformers" for part in module.modules())


def autocasts(module: Any) -> bool:
    """Whether `torch.autocast` is active on a module's device."""
    import torch

    return torch.is_autocast_enabled(module.device.type)


def _differs_only_in_tensors(module: Any) -> bool:
    import torch

    family = module.config.model_type
    if type(module).__module__ != f"transformers.models.{family}.modeling_{family}":
        return False
    if any(_global_hooks()):
        return False
    with torch.device("meta"):
        fresh = type(module)(module.config)
    parts, originals = (dict(m.named_modules(remove_duplicate=False)) for m in (module, fresh))
    if parts.keys() != originals.keys():
        return False
    for name, part in parts.items():
        original, settings = originals[name], _settings(part)
        if type(part) is not type(original) or part._forward_hooks or part._forward_pre_hooks:
            return False
        if any(callable(getattr(type(part), key, None)) for key in vars(part).keys() - vars(original).keys()):
            return False
        if any(settings.get(key) != value for key, value in _settings(original).items()):
            return False
    return True


def t5_rounds_scores() -> bool:
    """Whether T5's softmax is float32 in every precision, as in the oldest version, which changes results in float64."""
    from transformers.models.t5.modeling_t5 import T5Attention

    return "softmax(scores.float()" in inspect.getsource(T5Attention.forward)


def tensors_of(module: Any, first: int, places: int) -> "dict[str, Tensor]":
    """Parameters and buffers by their names in checkpoints; position tables also as ``.rows``, from the row `first` on."""
    tensors = {name: tensor.detach() for name, tensor in module.named_parameters(remove_duplicate=False)}
    tensors |= {name: tensor.detach() for name, tensor in module.named_buffers(remove_duplicate=False)}
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions"
        table = tensors.get(f"{name}.weight", tensors.get(f"{name}.weights"))
        if table is not None and len(table) >= first + places:
            tensors[f"{name}.rows"] = table[first : first + places]
    return tensors


def head_of(module: Any, *, called: bool = True) -> "tuple[Any, Tensor | None]":
    """The part of a module with its output matrix, and the bias; `called`: its input must be the last hidden vectors.

    Raises
    ------
    ValueError
        If there is no such part.
    """
    import torch

    head = module.get_output_embeddings()
    if (called and isinstance(head, torch.nn.Embedding)) or not isinstance(getattr(head, "weight", None), torch.Tensor):
        raise ValueError(
            f"The model must end in a product with a matrix: got {type(module).__name__}, whose output embeddings are "
            f"{type(head).__name__}. Decode it with transformers' generate."
        )
    bias = getattr(module, "final_logits_bias", None)
    return head, getattr(head, "bias", None) if bias is None else bias


def most_tokens(module: Any) -> int:
    """The most tokens of a pass; a sparse layer drops tokens beyond the capacity of its experts."""
    return getattr(module.config, "expert_capacity", None) or sys.maxsize


def counts_tokens(module: Any) -> bool:
    """Whether positions count only the tokens of a pass that are not padding, so that padding needs a separate pass."""
    return any(hasattr(part, "create_position_ids_from_input_ids") for part in module.modules())


def depends_on_company(module: Any) -> str | None:
    """A part whose results depend on all tokens of a pass, such as torch's dynamic int8 with one scale for all tokens."""
    return next((type(p).__name__ for p in module.modules() if ".quantized.dynamic" in type(p).__module__), None)
