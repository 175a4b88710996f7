"""`runner`, by which a widget drives the library; one file because its choices and its runs must fit each other."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.recurrent import RECURRENT
from fastdecode_lib.checkpoints.transformer import TRANSFORMERS
from fastdecode_lib.core import Source
from fastdecode_lib.drafts.finding import directions_with_tables
from fastdecode_lib.loading import PRECISIONS, TranslationModel, check_loaded, load
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.referee import System, measure, no_garbage_collection, ratio_of
from fastdecode_lib.projections.screens import has_screens
from fastdecode_lib.text.languages import from_english
from fastdecode_lib.trace import Trace, iteration_to_dict
from fastdecode_lib.translation import Session

USUAL = ("window", "jacobi", "gauss_seidel", "hybrid", "greedy", "beam")
"""The order in which decoders are offered; the registry's other decoders follow."""

WIDTHS = ("width", "block", "size")
"""Options of decoders for the number of tokens, or hypotheses, that they take at once."""

NARROW = {"window": 3}
"""Usual widths that differ from a decoder's default: of a wider window, few draft tokens are accepted on one sentence."""

WEIGHED_WIDTHS = (1, 2, 3, 4, 5, 8)
"""Widths of `Runner.weigh`."""
FEWEST, MOST, SECONDS = 9, 50, 1.0
"""Rounds of `Runner.weigh`, and the seconds after which the fewest are enough."""

Direction = tuple[str | None, str | None]

SETTINGS = ("from", "to", "decoder", "width", "projection", "precision", "engine")


def spec(decoder: str, width: int | None = None) -> str:
    """The spec of a decoder with its width, as in ``gauss_seidel:block=3``.

    Parameters
    ----------
    decoder : str
        A name of the registry.
    width : int, optional
        Width, for decoders that have one; the usual one by default.
    """
    if decoder not in registry.DECODERS:
        raise ValueError(f"Unknown decoder: got {decoder!r}. {registry.nearest(decoder, registry.DECODERS)}")
    option, usual = _width(decoder)
    if not option:
        if width is not None:
            raise ValueError(f"The decoder {decoder} has no width: got width={width!r}. Leave width out.")
        return decoder
    number = usual if width is None else width
    if type(number) is not int or number < 1:
        raise ValueError(f"The width of {decoder} is a whole number from 1 on: got {width!r}. Example: {usual}.")
    return f"{decoder}:{option}={number}"


def _width(decoder: str) -> tuple[str, Any]:
    """Name of the decoder's width option, empty if it has none, and its usual value."""
    defaults: dict[str, Any] = {option.name: option.default for option in fields(registry.DECODERS[decoder])}
    option = next((name for name in WIDTHS if name in defaults), "")
    return option, NARROW.get(decoder) or defaults.get(option)


DECODERS = tuple(spec(name) for name in USUAL)
"""Each usual decoder at its usual width."""


@dataclass(frozen=True)
class Runner:
    """A model behind the three calls a live picture makes."""

    model: TranslationModel
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _loaded: dict[tuple[str, str], TranslationModel] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> Any:
        """A copy has its own lock."""
        return Runner, (self.model,)

    def choices(self) -> dict[str, Any]:
        """Choices of each control, the usual value first.

        Returns
        -------
        dict
            Lists for ``from``, ``to``, ``decoder``, ``projection``, ``precision`` and ``engine``; under ``directions``
            the pairs that exist, as ``en-de``; under ``width`` the usual width of each decoder that has one.
        """
        directions = self._directions()
        names = registry.fitting(self.model.network)
        names.sort(key=lambda name: USUAL.index(name) if name in USUAL else len(USUAL))
        widths = {name: _width(name) for name in names}
        return {
            "from": list(dict.fromkeys(a for a, _ in directions)),
            "to": list(dict.fromkeys(b for _, b in directions)),
            "directions": [f"{a}-{b}" for a, b in directions],
            "decoder": list(widths),
            "width": {name: usual for name, (option, usual) in widths.items() if option},
            "projection": [name for name in registry.PROJECTIONS if self._has_what_it_needs(name)],
            "precision": list(
                dict.fromkeys((self.model.dtype, *(n for names in self._numbers().values() for n in names)))
            ),
            "engine": ["auto", *self._numbers()],
        }

    def run(
        self, text: str, settings: Mapping[str, Any], stop: Callable[[], bool] = lambda: False
    ) -> Iterator[dict[str, Any]]:
        """The events of ``docs/trace.md`` for one sentence; the last one has greedy decoding's answer.

        Parameters
        ----------
        text : str
        settings : mapping
            Values from `choices`; what is left out is the usual one.
        stop : callable
            Called after every pass; once it returns True the trace ends as interrupted.

        Raises
        ------
        ValueError
            If a setting or its value is unknown.
        """
        complete = self._complete(settings)
        session = Session.of(
            self._model(complete["engine"], complete["precision"]),
            complete["from"],
            complete["to"],
            spec(complete["decoder"], complete["width"]),
            complete["projection"],
        )
        yield from events(session, text, verify=True, stop=stop)

    def weigh(
        self,
        text: str,
        languages: Mapping[str, Any] | None = None,
        stop: Callable[[], bool] = lambda: False,
        told: Callable[[float], None] = lambda share: None,
    ) -> list[dict[str, Any]]:
        """Time windows of several widths under the projections that a direction has on one sentence, in turns.

        Parameters
        ----------
        text : str
        languages : mapping, optional
            ``from`` and ``to``; what is left out is the usual one.
        stop : callable
            Called between rounds; once it returns True the list is empty.
        told : callable
            Called with the share that is done.

        Returns
        -------
        list of dict
            ``width`` (1 is greedy decoding), ``projection``, ``decoder``; ``speedup`` over greedy decoding with the exact
            projection, with its interval over rounds, ``passes``, ``kept`` (share of greedy decoding's tokens), whether the
            projection has ``clusters``, and the ``settings`` of `run`.

        Raises
        ------
        ValueError
            If the sentence has no content, the model does not translate between the languages, or it is not decoded token by
            token from the left.
        """
        usual = next(iter(self._directions()), (None, None))
        source, target = self.model.direction(*map(languages.get, ("from", "to")) if languages else usual)
        settings = self._weighed(source, target)
        sessions = [
            Session.of(self.model, source, target, spec(choice["decoder"], choice.get("width")), choice["projection"])
            for choice in settings
        ]
        if not sessions[0].has_content(text):
            raise ValueError(f"A sentence with content is needed: got {text!r}. Type some words.")
        batch = self.model.encode([text], source, target)
        systems_with_counts = [decoder_system(session) for session in sessions]
        systems = [System(system.name, system.decode) for system in systems_with_counts]
        rounds, share = list[list[float]](), 0.0
        with no_garbage_collection():  # once, not in every round
            while share < 1:
                if stop():
                    return []
                measurements = measure(systems, [batch], runs=1, warm_up=0, device=self.model.device, seed=len(rounds))
                rounds.append([float(m.seconds[0]) for m in measurements])
                timed = len(rounds) - 1  # the first warms up
                share = min(1.0, max(timed / MOST, min(timed / FEWEST, np.sum(rounds) / SECONDS)))
                told(share)
        seconds = np.array(rounds[1:]).T
        return [
            choice
            | {"settings": choice, "width": choice.get("width", 1), "passes": system.count(batch).passes}
            | _speedup(session, sessions[0], batch, times, seconds[0])
            for choice, system, session, times in zip(settings, systems_with_counts, sessions, seconds, strict=True)
            if system.count is not None
        ]

    def _weighed(self, source: str | None, target: str | None) -> list[dict[str, Any]]:
        """The settings that `weigh` times: every width under every projection that the direction has."""
        languages = {"from": source, "to": target}
        return [
            {**languages, "projection": name, "decoder": "window" if width > 1 else "greedy"}
            | ({"width": width} if width > 1 else {})
            for name in registry.PROJECTIONS
            if self._has_what_it_needs(name, (source, target))
            for width in WEIGHED_WIDTHS
        ]

    def code(self, settings: Mapping[str, Any]) -> str:
        """Python that reproduces a run.

        Parameters
        ----------
        settings : mapping
            Settings as for `run`, with the sentence as ``text`` and, to compare two runs, the other run's settings as
            ``against``.
        """
        text, against = settings.get("text", ""), settings.get("against")
        complete = self._complete({key: value for key, value in settings.items() if key not in ("text", "against")})
        options = self._options(complete["engine"], complete["precision"])
        loading = "".join(f", {name}={value!r}" for name, value in options.items())
        lines = [
            "import ddgviz",
            "import fastdecode_lib",
            "",
            f"model = fastdecode_lib.load({self.model.name!r}{loading})",
            f"text = {text!r}",
        ]
        if against is None:
            lines += [f"result = {_call(complete)}", "ddgviz.show(result)"]
        else:
            lines += [f"a = {_call(complete)}", f"b = {_call(self._complete(against))}", "ddgviz.compare(a, b)"]
        return "\n".join([*lines, ""])

    def _complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings, checked and completed by usual values."""
        for name in settings:
            if name not in SETTINGS:
                raise ValueError(f"Unknown setting: got {name!r}. {registry.nearest(name, SETTINGS)}")
        choices = self.choices()
        complete: dict[str, Any] = {"width": settings.get("width")}
        for name in ("decoder", "projection", "precision", "engine"):
            value = complete[name] = settings.get(name) or choices[name][0]
            if value not in choices[name]:
                raise ValueError(f"Unknown {name}: got {value!r}. {registry.nearest(str(value), choices[name])}")
        return complete | {name: settings.get(name) for name in ("from", "to")}

    def _directions(self) -> Sequence[tuple[str, str]]:
        """The directions of the model, the usual one first."""
        return self.model.directions if self.model.tokenizer.ordered else from_english(self.model.directions)

    def _has_what_it_needs(self, projection: str, direction: Direction | None = None) -> bool:
        """Whether a projection can run, in a direction or in any: it needs no files, or this model has them."""
        needs = registry.projection_class(projection).needs
        if needs == "screens":
            return has_screens(Path(self.model.checkpoint.folder), projection, direction)
        return needs == "nothing" or (needs == "lexicon" and self._has_lexicon(direction))

    def _has_lexicon(self, direction: Direction | None) -> bool:
        """Whether there are candidate lists, from the checkpoint's lexicon or from draft tables."""
        checkpoint = self.model.checkpoint
        tables = directions_with_tables(Path(checkpoint.folder), checkpoint.fingerprint)
        has_table = bool(tables) if direction is None else direction in tables
        return getattr(self.model.tokenizer, "lexicon", None) is not None or has_table

    def _numbers(self) -> dict[str, tuple[str, ...]]:
        """The engines that run this model on its device, and the dtypes or precisions of each."""
        torch_numbers = tuple(
            dict.fromkeys((*(() if self.model.engine == "compiled" else (self.model.dtype,)), "float32", "float64"))
        )
        on_cpu = self.model.device == "cpu" and self.model.checkpoint.family in (*TRANSFORMERS, RECURRENT)
        return ({"compiled": PRECISIONS} if on_cpu else {}) | {"torch": torch_numbers}

    def _engine(self, engine: str, precision: str) -> str:
        """The engine that computes in a precision: the model's own if it does, else the first that does.

        Raises
        ------
        ValueError
            If the named engine does not.
        """
        able = [name for name, numbers in self._numbers().items() if precision in numbers]
        if engine == "auto":
            return self.model.engine if self.model.engine in able else able[0]
        if engine not in able:
            raise ValueError(
                f"The {engine} engine does not compute in {precision}. Use engine {' or '.join(able)}, or auto."
            )
        return engine

    def _options(self, engine: str, precision: str) -> dict[str, str]:
        """The options of `load` that give an engine and precision."""
        engine = self._engine(engine, precision)
        return {"engine": engine, "precision" if engine == "compiled" else "dtype": precision}

    def _model(self, engine: str, precision: str) -> TranslationModel:
        """The model on another engine or in another precision, loaded once."""
        options = self._options(engine, precision)
        if (options["engine"], precision) == (self.model.engine, self.model.dtype):
            return self.model
        with self._lock:
            key = options["engine"], precision
            if key not in self._loaded:
                loaded = load(str(self.model.checkpoint.folder), device=self.model.device, **options)
                self._loaded[key] = replace(loaded, name=self.model.name)
            return self._loaded[key]


def events(
    session: Session, text: str, *, verify: bool = False, stop: Callable[[], bool] = lambda: False
) -> Generator[dict[str, Any], None, Trace]:
    """Decode one sentence, yielding the events of ``docs/trace.md`` as they happen; return the finished trace.

    The last event has greedy decoding's answer if `verify` is true. `stop` is called after every pass; once it returns True the
    trace ends as interrupted.
    """
    source = session.encode_one(text)
    trace, sent_tokens = session.new_trace(text, source), set[int]()
    yield {"event": "start"} | trace.header()
    for iteration in session.follow([trace], source, verify=verify, stop=stop):
        new_tokens = sorted(trace.pieces.keys() - sent_tokens)
        pieces = {str(token): trace.pieces[token] for token in new_tokens}
        sent_tokens.update(new_tokens)
        yield {"event": "iteration", "pieces": pieces} | iteration_to_dict(iteration)
    yield {"event": "end"} | trace.footer()
    return trace


def _speedup(session: Session, plain: Session, batch: Source, times: np.ndarray, base: np.ndarray) -> dict[str, Any]:
    """Speedup and share of identical tokens of one measured setting."""
    (output,), (exact,) = (session.decode_ids(batch, batch.lengths), plain.decode_ids(batch, batch.lengths))
    agreement = sum(a == b for a, b in zip(output.tokens, exact.tokens, strict=False)) / max(
        len(output.tokens), len(exact.tokens)
    )
    clusters = hasattr(session.projection, "describe") or hasattr(session.projection.bind(batch), "describe")
    return {**ratio_of("speedup", base, times), "kept": agreement, "clusters": clusters}


def _call(settings: Mapping[str, Any]) -> str:
    projection = settings["projection"]
    options = {
        "source": settings["from"],
        "target": settings["to"],
        "decoder": spec(settings["decoder"], settings["width"]),
        "projection": None if projection == "exact" else projection,
        "verify": None if settings["decoder"].partition(":")[0] in ("double_token", "mask_predict") else True,
    }
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None)
    return f"fastdecode_lib.translate(model, text, {arguments})"


def runner(model: TranslationModel) -> Runner:
    """Make a runner for ``ddgviz.explore``; ValueError if the model is not a loaded one."""
    check_loaded(model)
    return Runner(model)
