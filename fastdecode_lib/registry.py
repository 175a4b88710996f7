"""Decoders and projections by name."""

import difflib
import importlib
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastdecode_lib.core import Decoder, Model, Projection
from fastdecode_lib.decoding.auto import Auto
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.double_token import DoubleToken
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.mask_predict import MaskPredict
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.sources import FILE_OPTIONS
from fastdecode_lib.store import ModelFiles

DECODERS: dict[str, type] = {
    cls.name: cls for cls in (Greedy, Beam, Jacobi, GaussSeidel, Hybrid, Window, Auto, DoubleToken, MaskPredict)
}
PROJECTIONS: dict[str, Any] = {
    "exact": "exact_compiled.CompiledExact",
    "quantised": "quantised.Quantised",
    "clustered": "clustering.Clustered",
    "screened": "learning_to_screen.Screened",
    "lexical": "lexical.Lexical",
    "svd": "factored.Svd",
    "fgd": "ann_indexes.Fgd",
    "greedy_mips": "mips.GreedyMips",
    "pca_mips": "mips.PcaMips",
    "lsh_mips": "mips.LshMips",
    "row_clusters": "mips.RowClusters",
    "scann": "ann_indexes.Scann",
    "adaptive": "factored.Adaptive",
}
"""Projections: the class of each, or its place in `fastdecode_lib.projections`, which is imported when it is first used.

A class has a ``name``, a classmethod ``make(model, files, *, ...)`` that takes a `Model` and `ModelFiles`, and ``needs``. A
projection's options are the keywords of ``make``. If ``make`` takes ``**keywords``, they are those of ``fit``. ``needs`` says what
the projection reads beside the network: ``"nothing"``, the ``"weights"`` of the output on the CPU, which it is fitted on when it
is made, a ``"lexicon"``, a ``"file"``, or ``"screens"``, which its ``fit(contexts, *, ...)`` makes of recorded contexts.
"""

Spec = str | Decoder


def decoder(spec: Spec) -> Decoder:
    """A decoder from ``NAME`` or ``NAME:key=value,key=value``; a decoder is returned as it is.

    Raises
    ------
    ValueError
        If the name, an option or a value is wrong; the message names the nearest valid one.

    Examples
    --------
    >>> decoder("gauss_seidel:block=3")
    GaussSeidel(block=3)
    """
    if not isinstance(spec, str):
        if not callable(getattr(spec, "iterate", None)):
            raise ValueError(f"A decoder is a name or a decoder: got {spec!r}. Example: 'gauss_seidel:block=3'.")
        return spec
    name, texts = parse(spec)
    cls = DECODERS.get(name)
    if cls is None:
        raise ValueError(f"Unknown decoder: got {name!r}. {nearest(name, DECODERS)}")
    make: Any = getattr(cls, "of", cls)
    return make(**_typed(name, options(cls), texts))


def fitting(model: Model) -> list[str]:
    """The decoders that can drive a model, the plainest first."""
    multi_token = model.tokens_per_step > 1
    return [
        name
        for name, cls in DECODERS.items()
        if model.kind in cls.accepts and (name == DoubleToken.name) == multi_token  # type: ignore[attr-defined]
    ]


def usual(model: Model) -> str:
    """The plainest decoder that can drive a model."""
    return fitting(model)[0]


EXACT = ("exact", "quantised")
"""Projections whose best token is the full vocabulary's."""


def check_lossless(decoder_spec: str, projection_spec: str, plain: str = "greedy") -> None:
    """Refuse a decoder and a projection that may change an output; `plain` is the model's usual decoder.

    Raises
    ------
    ValueError
        If they may, or one of them is unknown.
    """
    if not (decoder(decoder_spec).lossless or decoder_spec == plain) or projection_spec not in EXACT:
        raise ValueError(
            f"Only what changes no output is chosen by itself: got {decoder_spec} with {projection_spec}. Run fastdecode speedup "
            "again."
        )


def projection(spec: str | Projection, model: Model, files: ModelFiles | None = None) -> Projection:
    """A projection of a model from ``NAME`` or ``NAME:key=value``; a projection is returned as it is.

    The projection of an ensemble averages over one projection of each network.

    Raises
    ------
    ValueError
        If the name, an option or a value is wrong, or the projection was made for another model.
    """
    files = files or ModelFiles()
    if not isinstance(spec, str):
        if not callable(getattr(spec, "bind", None)):
            raise ValueError(f"A projection is a name or a projection: got {spec!r}. Example: 'exact'.")
        scorer: Any = spec
    else:
        name, texts = parse(spec)
        if name not in PROJECTIONS:
            raise ValueError(f"Unknown projection: got {name!r}. {nearest(name, PROJECTIONS)}")
        cls = projection_class(name)
        parameters = options(cls)
        if texts and not parameters:
            raise ValueError(f"The projection {name} has no options: got {', '.join(texts)}. Use {name!r} alone.")
        scorer = cls.make(model, files, **_typed(name, parameters, texts))
    trained_on = getattr(scorer, "fingerprint", None)
    if trained_on and files.fingerprint not in (None, trained_on):
        raise ValueError(
            f"The projection {scorer.name} was fitted on contexts of another model: its fingerprint is {trained_on}, got "
            f"{files.fingerprint}. Fit it again for this model."
        )
    return scorer


def projection_class(name: str) -> Any:
    """The class of a projection."""
    entry = PROJECTIONS[name]
    if not isinstance(entry, str):
        return entry
    module, _, cls = entry.partition(".")
    return getattr(importlib.import_module(f"fastdecode_lib.projections.{module}"), cls)


def needing(*needs: str) -> tuple[str, ...]:
    """The projections whose ``needs`` is one of these; see `PROJECTIONS`."""
    return tuple(name for name in PROJECTIONS if projection_class(name).needs in needs)


def describe(decoder: Decoder) -> str:
    """The spec of a decoder: its name and the options that differ from their defaults."""
    values = getattr(decoder, "options", None) or vars(decoder)
    parameters = options(type(decoder)).values()
    changed = [f"{option.name}={values[option.name]}" for option in parameters if values[option.name] != option.default]
    name = decoder.name
    return f"{name}:{','.join(changed)}" if changed else str(name)


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """The name in a spec, and the texts of its options."""
    name, colon, tail = spec.strip().partition(":")
    options: dict[str, str] = {}
    for pair in tail.split(",") if colon else []:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise ValueError(
                f"An option is written key=value: got {pair!r} in {spec!r}. Example: gauss_seidel:block=3."
            )
        if key.strip() in options:
            raise ValueError(f"An option is given once: got {key.strip()!r} twice in {spec!r}. Leave one out.")
        options[key.strip()] = value.strip()
    return name, options


@cache
def options(cls: Any) -> Mapping[str, inspect.Parameter]:
    """The options of a decoder's or a projection's class, typed and with their defaults."""
    is_projection = hasattr(cls, "make")
    make = cls.make if is_projection else getattr(cls, "of", cls)
    if is_projection and any(p.kind is p.VAR_KEYWORD for p in inspect.signature(make).parameters.values()):
        make = cls.fit
    hints = typing.get_type_hints(make)
    found: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(make).parameters.items():
        typed, keyword = parameter.replace(annotation=hints[name]), parameter.KEYWORD_ONLY
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= {file: typed.replace(name=file, kind=keyword, default=None) for file in FILE_OPTIONS}
        elif not is_projection or parameter.kind is keyword:
            found[name] = typed
    return types.MappingProxyType(found)


def _typed(name: str, parameters: Mapping[str, inspect.Parameter], texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of options, from their texts."""
    for key in texts:
        if key not in parameters:
            choices = nearest(key, parameters) if parameters else f"{name} has no options."
            raise ValueError(f"Unknown option of {name}: got {key!r}. {choices}")
    return {key: typed_value(parameters[key].annotation, text, f"{name}: {key}") for key, text in texts.items()}


def typed_value(hint: Any, text: str, name: str) -> Any:
    """The value that a text stands for in an option of a type; `name` begins the error where it stands for none."""
    united = typing.get_origin(hint) in (types.UnionType, typing.Union)  # the latter of a Literal or None
    kinds = typing.get_args(hint) if united else (hint,)
    if type(None) in kinds and text.lower() == "none":
        return None
    kind = next(k for k in kinds if k is not type(None))
    if kind not in (str, int, float, bool, Path) and typing.get_origin(kind) is not typing.Literal:
        raise ValueError(f"{name} cannot be typed: got {text!r} for {hint}. Leave it out, or set it in Python.")
    if typing.get_origin(kind) is typing.Literal:
        if text not in typing.get_args(kind):
            raise ValueError(f"{name}: got {text!r}. {nearest(text, typing.get_args(kind))}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}. Example: true.")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        noun, example = ("a whole number", 3) if kind is int else ("a number", 1.2)
        raise ValueError(f"{name} must be {noun}, got {text!r}. Example: {example}.") from None


def is_fixed(spec: Spec | Projection) -> bool:
    """Whether a spec means the same every time: it is text, and no option of it names a file or a model, which may change.

    Those are the options whose value is a path, or any text where no other text is the default.
    """
    if not isinstance(spec, str):
        return False
    name, texts = parse(spec)
    cls = DECODERS.get(name) or (projection_class(name) if name in PROJECTIONS else None)
    given = [option for key, option in options(cls).items() if key in texts] if cls else []
    kinds = [(option, {option.annotation, *typing.get_args(option.annotation)}) for option in given]
    return not any(Path in kind or (str in kind and option.default in (None, option.empty)) for option, kind in kinds)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name: the nearest known one, and all of them."""
    known = list(known)
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean {matches[0]!r}? Known: {', '.join(known)}." if matches else f"Use one of {', '.join(known)}."
