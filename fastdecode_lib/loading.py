"""A checkpoint made ready to run; one file because network, tokenizer and rules are chosen by the same settings."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.folder import Checkpoint, check_finite
from fastdecode_lib.checkpoints.generation import constraints_of
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.checkpoints.language import LANGUAGE
from fastdecode_lib.checkpoints.recurrent import RECURRENT
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.transformer import TRANSFORMERS
from fastdecode_lib.core import Constraints, Model, Projection, Source
from fastdecode_lib.drafts.finding import table_beside
from fastdecode_lib.store import ModelFiles, tensor_names
from fastdecode_lib.text.languages import check_direction
from fastdecode_lib.text.tokenizers import HuggingFaceText, MarianText, Tokenizer

LIMITS = ("max_length", "min_length", "exact_length")
"""The constraints a caller may change."""

DTYPES = ("float64", "float32", "float16", "bfloat16")
ENGINES = ("auto", "torch", "compiled")
PRECISIONS = ("float32", "int16", "int8")


def check_loaded(model: Any) -> None:
    """Refuse anything but a loaded model.

    Raises
    ------
    ValueError
        If it is something else, such as a name, or a sentence in the model's place.
    """
    if isinstance(model, TranslationModel):
        return
    named = isinstance(model, str) and model and len(model.split()) == 1
    remedy = f"fastdecode_lib.load({model!r})" if named else "what fastdecode_lib.load returns, as the first argument"
    raise ValueError(f"A loaded translation model is needed: got {model!r}. Use {remedy}.")


@dataclass(frozen=True)
class TranslationModel:
    """A loaded checkpoint: the network with its tokenizer and its own rules.

    Attributes
    ----------
    name : str
        As the caller wrote it.
    network : Model
    tokenizer : Tokenizer
    checkpoint : Checkpoint
    engine, dtype, device : str
        How it runs; `dtype` is the precision where the engine is the compiled one.
    """

    name: str
    network: Model
    tokenizer: Tokenizer
    checkpoint: Checkpoint
    engine: str
    dtype: str
    device: str

    def __repr__(self) -> str:
        return f"TranslationModel({self.name!r}, engine={self.engine!r}, dtype={self.dtype!r}, device={self.device!r})"

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """The (source, target) pairs the model translates; empty if it does not say."""
        return self.tokenizer.directions

    def direction(self, source: str | None, target: str | None) -> tuple[str | None, str | None]:
        """Complete and check a direction; as given where the model does not say what it translates.

        A target that is left out is the one that the checkpoint forces (``forced_bos_token_id``), the only one, or, for models
        whose own note lists directions, that of the first that fits.

        Raises
        ------
        UnknownLanguage
            If the model does not translate in that direction, or has several and does not say which is meant.
        """
        if not self.directions:
            return source, target
        if isinstance(self.tokenizer, HuggingFaceText):
            for code, side in ((source, "source"), (target, "target")):
                if code is not None:
                    self.tokenizer.check_variant(code, side)
        target = target or getattr(self.tokenizer, "own_target", None)
        return check_direction(self.directions, source, target, ordered=self.tokenizer.ordered)

    @cached_property
    def exact(self) -> Projection:
        """The full vocabulary projection, laid out once for all sessions."""
        return registry.projection("exact", self.network)

    @cached_property
    def sessions(self) -> dict[Any, Any]:
        """Sessions that are slow to make, by all that they were made from; see `translation.Session.of`."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """A copy starts without sessions."""
        return {name: value for name, value in vars(self).items() if name != "sessions"}

    def files(
        self, source: str | None, target: str | None, end: tuple[int, ...], outputs: Callable[[str], Any]
    ) -> ModelFiles:
        """Files of the model in one direction; `outputs` as in `store.ModelFiles`."""
        checkpoint, direction = self.checkpoint, (source, target)
        return ModelFiles(
            checkpoint,
            direction,
            self.tokenizer,
            end,
            getattr(self.tokenizer, "lexicon", None),
            cache(lambda: table_beside(Path(checkpoint.folder), checkpoint.fingerprint, direction)),
            outputs,
        )

    def constraints(self, target: str | None = None, **limits: Any) -> Constraints:
        """The checkpoint's own rules for outputs, with changes.

        Parameters
        ----------
        target : str, optional
            Target language, for models that start with it.
        **limits
            ``max_length``, ``min_length`` or ``exact_length``; None leaves the checkpoint's own.
        """
        constraints = constraints_of(
            self.name,
            self.checkpoint.rules,
            language=self.tokenizer.forced_language(target),
            language_ids=self.tokenizer.language_ids,
            vocabulary=self.network.outputs[0].vocabulary,
            room=self.network.max_target,
        )
        for name, value in limits.items():
            if name not in LIMITS:
                raise ValueError(f"Unknown option of decoding: got {name!r}. {registry.nearest(name, LIMITS)}")
            if value is not None and type(value) is not int:
                raise ValueError(f"{name} must be a whole number, got {value!r}. Example: {name}=40.")
        changed = replace(constraints, **{name: value for name, value in limits.items() if value is not None})
        fits = self.network.max_target - len(changed.prefix) + 1
        if changed.max_length > fits:
            raise ValueError(
                f"max_length is too long: got {changed.max_length}, {self.name} holds {fits} tokens. Lower max_length."
            )
        return changed

    def encode(self, texts: Sequence[str], source: str | None, target: str | None) -> Source:
        """Ids of texts, checked against the model's longest source."""
        batch = self.tokenizer.encode(texts, source, target)
        too_long = np.flatnonzero(batch.lengths > self.network.max_source)
        if len(too_long):
            lengths = ", ".join(f"sentence {row + 1} has {batch.lengths[row]} tokens" for row in too_long[:10])
            more = f" and {len(too_long) - 10} more are too long" if len(too_long) > 10 else ""
            raise ValueError(
                f"The source is too long: {lengths}{more}, {self.name} allows {self.network.max_source}. Split it into sentences."
            )
        return batch

    def texts(self, sources: Sequence[str], outputs: Sequence[Sequence[int]]) -> list[str]:
        """Texts of outputs' ids for their sources; unknown words are replaced where the tokenizer can."""
        tokenizer: Any = self.tokenizer
        if hasattr(tokenizer, "texts"):
            return tokenizer.texts(self.network, sources, outputs)
        return [tokenizer.decode(ids) for ids in outputs]


def load(
    name: str = "tatoeba-small",
    *,
    device: str = "auto",
    dtype: str = "float32",
    engine: str = "auto",
    precision: str = "float32",
    revision: str | None = None,
) -> TranslationModel:
    """Load a bundled model, a Hugging Face directory or a hub id.

    Parameters
    ----------
    name : str
        ``"tatoeba-small"``, a folder, or e.g. ``"Helsinki-NLP/opus-mt-en-de"``.
    device : str
        ``"auto"`` (CUDA if there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    dtype : str
        Of the torch engine: ``"float64"``, ``"float32"``, ``"float16"`` or ``"bfloat16"``.
    engine : str
        ``"compiled"``: Marian, mBART, M2M-100, T5 and our recurrent models on a CPU, on kernels of our own. ``"torch"``: every
        model on every device. ``"auto"``: the compiled one where it runs the model, in float32 or in the precision given.
    precision : str
        Of the compiled engine's products: ``"float32"``, ``"int16"`` or ``"int8"``.
    revision : str, optional
        Branch, tag or commit of a hub id.

    Raises
    ------
    CheckpointError
        If the checkpoint cannot be used.
    ValueError
        If an option is unknown, or options contradict each other.
    """
    _check_numbers(dtype, engine, precision)
    checkpoint = find_checkpoint(name, revision)
    if checkpoint.family == LANGUAGE:
        raise CheckpointError(
            f"{name!r} is a language model, which does not translate. Use fastdecode_lib.language_model.load_language."
        )
    if _runs_compiled(checkpoint, device, dtype, engine, precision):
        network: Any = _compiled(checkpoint, precision)
        return TranslationModel(str(name), network, tokenizer_of(checkpoint), checkpoint, "compiled", precision, "cpu")
    import torch

    place = torch_device(device)
    if checkpoint.family in TRANSFORMERS:
        from fastdecode_lib.models.transformer import Transformer

        network = Transformer(checkpoint.architecture, checkpoint.tensors(), place, getattr(torch, dtype))
    elif checkpoint.family == RECURRENT:
        from fastdecode_lib.models.recurrent import Recurrent

        network = Recurrent(checkpoint.architecture, checkpoint.tensors(), place, getattr(torch, dtype))
    else:
        network = _through_huggingface(checkpoint, place, getattr(torch, dtype))
    tokenizer = tokenizer_of(checkpoint)
    return TranslationModel(str(name), network, tokenizer, checkpoint, network.engine, dtype, str(place))


def graphed(model: TranslationModel) -> TranslationModel:
    """A model of the torch engine whose passes are replayed as CUDA graphs, on the same weights.

    This version has been run on a CPU alone, where no graph is recorded; an earlier one failed on a GPU. Check it by
    ``make gpu`` before use.

    Raises
    ------
    ValueError
        If its network cannot; see `models.graphs.GraphTransformer.of`.
    """
    from fastdecode_lib.models.graphs import GraphTransformer

    network: Any = model.network
    return replace(model, network=GraphTransformer.of(network))


def around(network: Model, folder: Path) -> TranslationModel | None:
    """A network built elsewhere, with the tokenizer and rules of its checkpoint's folder; None where they cannot be used."""
    try:
        checkpoint = find_checkpoint(folder)
        engine: str = network.engine  # type: ignore[attr-defined]
        return TranslationModel(str(folder), network, tokenizer_of(checkpoint), checkpoint, engine, "float32", "cpu")
    except (ValueError, OSError):
        return None


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer in a checkpoint's folder."""
    if checkpoint.family == RECURRENT:
        from fastdecode_lib.text.words import WordText

        shape = checkpoint.architecture
        return WordText.load(checkpoint.folder, shape.source_vocabulary, shape.vocabulary)
    if any((checkpoint.folder / name).is_file() for name in ("source.spm", "target.spm")):
        return MarianText.load(checkpoint)
    return HuggingFaceText(checkpoint)


def _compiled(checkpoint: Checkpoint, precision: Any) -> Any:
    if checkpoint.family == RECURRENT:
        from fastdecode_lib.models.compiled_recurrent import FASTEST, CompiledRecurrent

        return CompiledRecurrent(checkpoint.architecture, checkpoint.arrays(), replace(FASTEST, products=precision))
    from fastdecode_lib.models.compiled_transformer import CompiledTransformer

    return CompiledTransformer(checkpoint.architecture, checkpoint.arrays(), precision)


def _check_numbers(dtype: str, engine: str, precision: str) -> None:
    """Refuse unknown dtypes, engines and precisions, and those that the engine does not have."""
    for option, value, values in (
        ("dtype", dtype, DTYPES),
        ("engine", engine, ENGINES),
        ("precision", precision, PRECISIONS),
    ):
        if value not in values:
            raise ValueError(f"Unknown {option}: got {value!r}. Use one of {', '.join(values)}.")
    if engine == "torch" and precision != "float32":
        raise ValueError(f"The torch engine has no precision {precision}: leave it out, or use engine='compiled'.")
    if engine == "compiled" and dtype != "float32":
        raise ValueError(f"The compiled engine has no dtype {dtype}: leave it out, or use engine='torch'.")
    if dtype != "float32" and precision != "float32":
        raise ValueError(
            f"dtype belongs to the torch engine, precision to the compiled one: got dtype={dtype!r} and "
            f"precision={precision!r}. Leave out one."
        )


def _runs_compiled(checkpoint: Checkpoint, device: str, dtype: str, engine: str, precision: str) -> bool:
    """Whether a model is loaded on the compiled engine."""
    required = engine == "compiled" or precision != "float32"
    runs = checkpoint.family in (*TRANSFORMERS, RECURRENT)
    if required and not runs:
        raise ValueError(
            f"The compiled engine runs {', '.join((*TRANSFORMERS, RECURRENT))} models, got a {checkpoint.family} model. "
            "Use engine='torch'."
        )
    if required and device not in ("auto", "cpu"):
        raise ValueError(f"The compiled engine runs on the CPU: got device={device!r}. Use engine='torch'.")
    if required or engine == "torch" or dtype != "float32" or not runs:
        return required
    return device == "cpu" or (device == "auto" and not _sees_cuda())


def _sees_cuda() -> bool:
    """Whether torch would find a CUDA device; torch is only asked where there is a driver."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    import torch

    return torch.cuda.is_available()


def torch_device(device: str) -> Any:
    """The torch device of a name, such as ``auto``.

    Raises
    ------
    ValueError
        If there is none of that name here.
    """
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"Unknown device: got {device!r}. Use auto, cpu, cuda or cuda:N.") from error
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"Unsupported device: got {device!r}. Use auto, cpu, cuda or cuda:N.")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"No such CUDA device here: got device={device!r}. Use device='cpu'.")
    return place


def _through_huggingface(checkpoint: Checkpoint, device: Any, dtype: Any) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoModelForSeq2SeqLM

    from fastdecode_lib.checkpoints.transformers_private import most_positions
    from fastdecode_lib.models.huggingface import HuggingFaceModel

    checkpoint.weight_files()
    try:
        module, report = AutoModelForSeq2SeqLM.from_pretrained(
            checkpoint.folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    except (ValueError, OSError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).partition("Model type should be one of")[0].strip(" .\n")  # then transformers names dozens
        raise CheckpointError(
            f"transformers could not load {checkpoint.name!r} ({checkpoint.family}): {reason}. Check that it is a "
            "sequence-to-sequence model."
        ) from error
    for problem in ("missing_keys", "unexpected_keys"):
        if names := sorted(report[problem]):
            raise CheckpointError(
                f"The weights of {checkpoint.name!r} do not fit its config.json: {problem.replace('_', ' ')} "
                f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}. Save the whole model again."
            )
    for name, tensor in module.state_dict().items():
        check_finite(name, tensor)
    _check_head(checkpoint, module)
    return HuggingFaceModel(module.to(device), *(most_positions(module, side) for side in ("encoder", "decoder")))


def _check_head(checkpoint: Checkpoint, module: Any) -> None:
    """Refuse a model whose separate output matrix is not stored: transformers would use the embeddings instead."""
    if checkpoint.config.get("tie_word_embeddings") is not False:
        return
    head = module.get_output_embeddings()
    name = next((f"{name}.weight" for name, submodule in module.named_modules() if submodule is head), None)
    stored: set[str] = set()
    for file in checkpoint.weight_files():
        stored |= tensor_names(file)
    if name is not None and name not in stored:
        raise CheckpointError(
            f"The weights of {checkpoint.name!r} lack the output matrix {name}: config.json says tie_word_embeddings=false, "
            f"and {len(stored)} other tensors are stored. Save the whole model again."
        )
