"""Decoders and projections by name; one file because the command line, tests and menus read one list."""

import difflib
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.core import Decoder, Model, Projection
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.double_token import DoubleToken
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.mask_predict import MaskPredict
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.store import ModelFiles

DECODERS: dict[str, type] = {
    cls.name: cls for cls in (Greedy, Beam, Jacobi, GaussSeidel, Hybrid, Window, DoubleToken, MaskPredict)
}
PROJECTIONS = ("exact", "quantised")
"""Those that every model has on the CPU; every model has the first."""
FITTED = ("clustered", "screened")
"""Those that are fitted on recorded contexts and kept in a folder."""
OF_WORDS = ("lexical",)
"""Those that need a lexicon of the model's words."""
OF_WEIGHTS = {
    "svd": "factored.Svd",
    "fgd": "ann_indexes.Fgd",
    "greedy_mips": "mips.GreedyMips",
    "pca_mips": "mips.PcaMips",
    "lsh_mips": "mips.LshMips",
    "row_clusters": "mips.RowClusters",
    "scann": "ann_indexes.Scann",
}
"""Those that are fitted on the output matrix alone, which takes seconds: where each is."""
KEPT = {"adaptive": "factored.Adaptive"}
"""Those that are trained, and loaded from the folder named by ``file``."""

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
    make = getattr(cls, "of", cls)
    made: Decoder = make(**_typed(make, name, options))
    return made


def fitting(model: Model) -> list[str]:
    """The decoders that can drive a model, the plainest first."""
    several = model.group > 1
    return [
        name
        for name, cls in DECODERS.items()
        if model.kind in cls.accepts and (name == DoubleToken.name) == several  # type: ignore[attr-defined]
    ]


def usual(model: Model) -> str:
    """The plainest decoder that can drive a model."""
    return fitting(model)[0]


def projection(spec: str | Projection, model: Model, files: ModelFiles | None = None) -> Projection:
    """A projection of a model from ``NAME`` or ``NAME:key=value``; a projection is returned as it is.

    For an ensemble, it is the average over one of each network.
    """
    if not isinstance(spec, str):
        if not callable(getattr(spec, "bind", None)):
            raise ValueError(f"A projection is a name or a projection: got {spec!r}. Example: 'exact'.")
        _of_this_model(spec, files)
        return spec
    name, options = _parse(spec)
    known = (*PROJECTIONS, *FITTED, *OF_WORDS, *OF_WEIGHTS, *KEPT)
    if name not in known:
        raise ValueError(f"Unknown projection: got {name!r}. {nearest(name, known)}")
    files = files or ModelFiles()
    if name == "lexical":
        return _lexical(model, options, files)
    if name in FITTED:
        return _fitted(name, model, options, files)
    if name in OF_WEIGHTS:
        return _of_weights(name, model, options)
    if name in KEPT:
        return _trained(name, model, options, files)
    if options:
        raise ValueError(f"The projection {name} has no options: got {', '.join(options)}. Use {name!r} alone.")
    return _averaged(model, {"exact": _exact, "quantised": _quantised}[name])


def _of_this_model(made: Any, files: ModelFiles | None) -> None:
    """Refuse a projection that was fitted on contexts of another model, where both say whose they are."""
    own, wanted = getattr(made, "fingerprint", None), files.fingerprint if files else None
    if own and wanted and own != wanted:
        raise ValueError(
            f"The projection {made.name} was fitted on contexts of another model: its fingerprint is {own}, got {wanted}. Fit it "
            "again for this model."
        )


def fitted(folder: Path | None) -> tuple[str, ...]:
    """The names of `FITTED` that have screens beside a checkpoint."""
    return tuple(
        name for name in FITTED if folder is not None and (screens_of(folder, name) / "screens.json").is_file()
    )


def screens_of(folder: Path, name: str) -> Path:
    """Where the screens of a checkpoint are files."""
    return Path(folder) / "projections" / name


def _exact(model: Model) -> Projection:
    if getattr(model, "engine", None) == "compiled":
        from fastdecode_lib.projections.exact_compiled import CompiledExact

        return CompiledExact.of(model)
    from fastdecode_lib.projections.exact_torch import Exact

    return Exact.of(model)


def _quantised(model: Model) -> Projection:
    from fastdecode_lib.projections.quantised import Quantised

    return Quantised.of(model)


def _fitted(name: str, model: Model, options: Mapping[str, str], files: ModelFiles) -> Projection:
    """A screen from its folder, for the direction, or for its target language, or for all."""
    from fastdecode_lib.projections.exact_compiled import output_matrix
    from fastdecode_lib.projections.screen_compiled import ScreenScorer
    from fastdecode_lib.projections.screens import load_screens

    hints = {"file": str, "shared": bool, "precision": str}
    _check_options(name, options, hints)
    chosen = {key: _value(hints[key], text, f"{name}: {key}") for key, text in options.items()}
    if "file" not in chosen and files.folder is None:
        raise ValueError(f"The projection {name} needs a folder of screens: got none. Use {name}:file=FOLDER.")
    folder = Path(chosen["file"]).expanduser() if "file" in chosen else screens_of(Path(str(files.folder)), name)
    if "file" in chosen and not (folder / "screens.json").is_file():
        raise ValueError(
            f"{name}:file={folder} is not a folder that `fastdecode fit` wrote: got no screens.json there. Correct it."
        )
    if not folder.is_dir():
        raise ValueError(
            f"There are no screens for {name} in {folder}. Fit them on contexts of this model: fastdecode record, then "
            f"fastdecode fit {name}; or name their folder: {name}:file=FOLDER."
        )
    screens = load_screens(folder)
    made_of = {screen.fingerprint for screen in screens.values()}
    if files.fingerprint is not None and made_of != {files.fingerprint}:
        raise ValueError(
            f"The screens in {folder} were fitted on contexts of another model: its fingerprint is "
            f"{', '.join(map(str, made_of))}, got {files.fingerprint}. Fit them again for this model."
        )
    source, target = files.direction
    screen = next((screens[n] for n in (f"{source}-{target}", str(target), "all") if n in screens), None)
    if screen is None:
        raise ValueError(
            f"The screens in {folder} are of other directions: got {source}-{target}, there are {', '.join(screens)}. Fit them "
            "on contexts of this direction."
        )
    if screen.method != name:
        raise ValueError(f"The screens in {folder} are {screen.method}, not {name}. Use {screen.method}:file={folder}.")
    output, shared = model.outputs[0], chosen.get("shared", False)
    if len(model.outputs) == 1 and _needs_torch(output.weight):
        from fastdecode_lib.projections.screen_torch import TorchScreenScorer

        if "precision" in chosen:
            raise ValueError(
                f"{name}: precision belongs to float32 on the CPU, got it with {output.weight.dtype}. Leave it out."
            )
        return TorchScreenScorer(screen, output.weight, output.bias, shared=shared)
    return ScreenScorer(screen, output_matrix(model, chosen.get("precision")), shared=shared)


def _needs_torch(weight: Any) -> bool:
    """Whether an output matrix is on another device than the CPU, or in float64."""
    kind = getattr(getattr(weight, "device", None), "type", None)
    return kind is not None and (kind != "cpu" or weight.element_size() == 8)


def projection_class(place: str) -> Any:
    """A projection's class, from ``MODULE.CLASS``."""
    module, _, name = place.partition(".")
    return getattr(importlib.import_module(f"fastdecode_lib.projections.{module}"), name)


def _of_weights(name: str, model: Model, options: Mapping[str, str]) -> Projection:
    """A projection that is fitted on the model's output matrix here and now."""
    from fastdecode_lib.projections.exact_compiled import output_matrix

    fit = projection_class(OF_WEIGHTS[name]).fit
    hints = typing.get_type_hints(fit)
    knobs = [p.name for p in inspect.signature(fit).parameters.values() if p.kind is p.KEYWORD_ONLY]
    _check_options(name, options, [knob for knob in knobs if knob != "fingerprint"])
    matrix = output_matrix(model)
    if not matrix.format.is_float:
        raise ValueError(
            f"The projection {name} is fitted on float weights: got an output matrix in {matrix.precision}. Load the model in "
            "float32."
        )
    chosen = {key: _value(hints[key], text, f"{name}: {key}") for key, text in options.items()}
    made: Projection = fit(matrix.unpacked(), matrix.bias[: matrix.shape[0]], **chosen)
    return made


def _trained(name: str, model: Model, options: Mapping[str, str], files: ModelFiles) -> Projection:
    """A projection from the folder it was saved in."""
    _check_options(name, options, ("file",))
    if "file" not in options:
        raise ValueError(f"The projection {name} needs the folder it was saved in. Use {name}:file=FOLDER.")
    made: Any = projection_class(KEPT[name]).load(Path(options["file"]).expanduser())
    vocabulary = model.outputs[0].vocabulary
    if made.vocabulary != vocabulary:
        raise ValueError(
            f"The projection in {options['file']} is another model's: it has {made.vocabulary} tokens, the model {vocabulary}. "
            "Train it on contexts of this model."
        )
    _of_this_model(made, files)
    loaded: Projection = made
    return loaded


def _check_options(name: str, options: Iterable[str], known: Iterable[str]) -> None:
    for key in options:
        if key not in known:
            raise ValueError(f"Unknown option of {name}: got {key!r}. {nearest(key, known)}")


def _lexical(model: Model, options: Mapping[str, str], files: ModelFiles) -> Projection:
    """Candidate lists by the model's lexicon, by that of its draft table, or by a vmap file."""
    from fastdecode_lib.projections.lexical import FREQUENT, Lexical

    _check_options("lexical", options, ("top", "frequent", "file"))
    numbers = {key: _value(int, text, f"lexical: {key}") for key, text in options.items() if key != "file"}
    lexicon: Lexicon | None = files.lexicon
    always: Sequence[int] | None = None
    if "file" in options:
        if files.tokenizer is None or "frequent" in numbers:
            raise ValueError(
                "A vmap file says which tokens are in every list, and needs the model's tokenizer: got frequent, or no tokenizer. "
                "Use lexical:file=FILE by way of `translate`, without frequent."
            )
        pieces = files.tokenizer.pieces(range(model.outputs[0].vocabulary))
        sources = files.tokenizer.source_tokens(range(source_vocabulary(model)))
        lexicon, found = Lexicon.from_vmap(Path(options["file"]).expanduser(), sources, pieces)
        always = (*found, *files.end)
        numbers.setdefault(
            "top", max(1, int(np.diff(lexicon.offsets).max(initial=1)))
        )  # whole lines, as CTranslate2 takes them
    elif lexicon is None and (table := files.table()) is not None:
        lexicon, likely = table.lexicon, np.argsort(-table.ngrams.unigrams, kind="stable")
        always = (*likely[: max(0, numbers.get("frequent", FREQUENT))].tolist(), *files.end)
    if lexicon is None:
        raise ValueError(
            "The projection lexical needs a lexicon: got a model without one. Use a word-based model, such as sharp-s4, count "
            "what this one says (fastdecode draft-table), or name a vmap file of it: lexical:file=FILE."
        )
    chosen = lexicon
    return _averaged(model, lambda part: Lexical.of(part, chosen, always=always, **numbers))


def source_vocabulary(model: Any) -> int:
    """How many source ids a model knows; the target's, where it does not say."""
    shape = getattr(model, "architecture", None)
    return int(getattr(shape, "source_vocabulary", model.outputs[0].vocabulary))


def _averaged(model: Any, of: Callable[[Model], Projection]) -> Projection:
    """The projection of a model; of an ensemble, the average over one of each of its networks."""
    if len(model.outputs) == 1:
        return of(model)
    from fastdecode_lib.projections.average import Average

    return Average.over(model, tuple(of(part) for part in model.parts))


def describe(decoder: Decoder) -> str:
    """The spec of a decoder: its name and the options that differ from their defaults."""
    values = getattr(decoder, "options", None) or vars(decoder)
    changed = [f"{name}={values[name]}" for name, usual in settings(type(decoder)).items() if values[name] != usual]
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


def settings(cls: type) -> dict[str, Any]:
    """The options of a decoder with their defaults."""
    return {p.name: p.default for p in inspect.signature(getattr(cls, "of", cls)).parameters.values()}


def _typed(make: Any, name: str, options: Mapping[str, str]) -> dict[str, Any]:
    hints = typing.get_type_hints(make)
    known = list(inspect.signature(make).parameters)
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in known:
            choices = nearest(key, known) if known else f"{name} has no options."
            raise ValueError(f"Unknown option of {name}: got {key!r}. {choices}")
        values[key] = _value(hints[key], text, f"{name}: {key}")
    return values


def _value(hint: Any, text: str, what: str) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in kinds and text.lower() == "none":
        return None
    kind = next(k for k in kinds if k is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        if text not in typing.get_args(kind):
            raise ValueError(f"{what}: got {text!r}. {nearest(text, typing.get_args(kind))}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{what} must be true or false, got {text!r}. Example: true.")
        return text.lower() == "true"
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
