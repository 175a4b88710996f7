"""Decoders and projections by name: the one list behind the command line, the tests and the widget's menus."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastdecode_lib.core import Decoder, Model, Projection
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.lexicon import Lexicon

DECODERS: dict[str, type] = {cls.name: cls for cls in (Greedy, Beam, Jacobi, GaussSeidel, Hybrid, Window)}
PROJECTIONS = ("exact",)
"""Those that every model has."""
OF_WORDS = ("lexical",)
"""Those that need a lexicon of the model's words."""

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
    name, options = _parse(spec)
    cls = DECODERS.get(name)
    if cls is None:
        raise ValueError(f"Unknown decoder: got {name!r}. {nearest(name, DECODERS)}")
    return cls(**_typed(cls, name, options))


def projection(spec: str | Projection, model: Model, lexicon: Lexicon | None = None) -> Projection:
    """A projection of a model from ``NAME`` or ``NAME:key=value``; a projection is returned as it is.

    For an ensemble, it is the average over one of each network. A lexicon is what ``lexical:top=20`` takes its lists from.
    """
    if not isinstance(spec, str):
        if not callable(getattr(spec, "bind", None)):
            raise ValueError(f"A projection is a name or a projection: got {spec!r}. Example: 'exact'.")
        return spec
    name, options = _parse(spec)
    if name not in (*PROJECTIONS, *OF_WORDS):
        raise ValueError(f"Unknown projection: got {name!r}. {nearest(name, (*PROJECTIONS, *OF_WORDS))}")
    if name == "lexical":
        return _lexical(model, options, lexicon)
    if options:
        raise ValueError(f"The projection {name} has no options: got {', '.join(options)}. Use {name!r} alone.")
    return _averaged(model, _exact)


def _exact(model: Model) -> Projection:
    if getattr(model, "engine", None) == "compiled":
        from fastdecode_lib.projections.compiled import CompiledExact

        return CompiledExact.of(model)
    from fastdecode_lib.projections.exact import Exact

    return Exact.of(model)


def _lexical(model: Model, options: Mapping[str, str], lexicon: Lexicon | None) -> Projection:
    from fastdecode_lib.projections.lexical import Lexical

    known = ("top", "frequent")
    for key in options:
        if key not in known:
            raise ValueError(f"Unknown option of lexical: got {key!r}. {nearest(key, known)}")
    if lexicon is None:
        raise ValueError(
            "The projection lexical needs a lexicon: got a model without one. Use a word-based model, such as sharp-s4."
        )
    numbers = {key: _value(int, text, f"lexical: {key}") for key, text in options.items()}
    return _averaged(model, lambda part: Lexical.of(part, lexicon, **numbers))


def _averaged(model: Any, of: Callable[[Model], Projection]) -> Projection:
    """The projection of a model; of an ensemble, the average over one of each of its networks."""
    if len(model.outputs) == 1:
        return of(model)
    from fastdecode_lib.projections.average import Average

    return Average.over(model, tuple(of(part) for part in model.parts))


def describe(decoder: Decoder) -> str:
    """The spec of a decoder: its name and the options that differ from their defaults."""
    changed = [
        f"{field.name}={getattr(decoder, field.name)}"
        for field in dataclasses.fields(decoder)  # type: ignore[arg-type]
        if field.repr and getattr(decoder, field.name) != field.default
    ]
    name = decoder.name
    return f"{name}:{','.join(changed)}" if changed else str(name)


def _parse(spec: str) -> tuple[str, dict[str, str]]:
    name, colon, tail = spec.strip().partition(":")
    options: dict[str, str] = {}
    for part in tail.split(",") if colon else []:
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise ValueError(
                f"An option is written key=value: got {part!r} in {spec!r}. Example: gauss_seidel:block=3."
            )
        if key.strip() in options:
            raise ValueError(f"An option is given once: got {key.strip()!r} twice in {spec!r}. Leave one out.")
        options[key.strip()] = value.strip()
    return name, options


def _typed(cls: type, name: str, options: Mapping[str, str]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = [field.name for field in dataclasses.fields(cls) if field.repr]
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in fields:
            choices = nearest(key, fields) if fields else f"{name} has no options."
            raise ValueError(f"Unknown option of {name}: got {key!r}. {choices}")
        values[key] = _value(hints[key], text, f"{name}: {key}")
    return values


def _value(hint: Any, text: str, what: str) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in kinds and text.lower() == "none":
        return None
    kind = next(k for k in kinds if k is not type(None))
    try:
        return kind(text)
    except ValueError:
        wanted = {"int": "a whole number", "float": "a number"}.get(kind.__name__, kind.__name__)
        raise ValueError(f"{what} must be {wanted}, got {text!r}. Example: {'3' if kind is int else '1.2'}.") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for somebody who mistyped a name."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}? Known: {', '.join(known)}." if near else f"Use one of {', '.join(known)}."
