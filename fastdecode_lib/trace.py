"""The trace of a decoded sentence: every pass, as JSON that pictures read."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastdecode_lib.core import Hypothesis, Iteration, Lane
from fastdecode_lib.store import parse_json

TRACE_FORMAT, TRACE_VERSION = "fastdecode-trace", 1


@dataclass(repr=False)
class Trace:
    """A full record of the decoding of one sentence; pictures are made from it alone.

    Its JSON form is specified in ``docs/trace.md``.

    Attributes
    ----------
    source : dict
        ``text``, ``language``, ``pieces`` (the source as the model saw it).
    target : dict
        ``text`` (empty while decoding runs) and ``language``.
    settings : dict
        ``model``, ``decoder``, ``projection``, ``engine``, ``dtype``, ``device``.
    pieces : dict of int to str
        Text of every token id that occurs.
    end : tuple of int
        Ids that end a sentence.
    greedy : dict or None
        ``calls`` and ``identical``: what greedy decoding needed for the same sentence, and whether the tokens agree.
    edges : list of dict
        Known dependencies between slots: ``from``, ``to``, ``strength`` (0 to 1). Empty if none were measured.
    clusters : dict of int to dict
        Active sets by number of their cluster: ``size`` and ``tokens`` (those that score highest at the centroid first;
        a large set is cut off). Empty for a projection without clusters.
    """

    source: dict[str, Any]
    target: dict[str, Any]
    settings: dict[str, Any]
    end: tuple[int, ...]
    pieces: dict[int, str] = field(default_factory=dict)
    iterations: list[Iteration] = field(default_factory=list)
    hypotheses: tuple[Hypothesis, ...] = ()
    greedy: dict[str, Any] | None = None
    edges: list[dict[str, Any]] = field(default_factory=list)
    clusters: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Passes of the decoder network."""
        return self.iterations[-1].call + 1 if self.iterations else 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of the best hypothesis, the end included; empty while decoding runs."""
        return self.hypotheses[0].tokens if self.hypotheses else ()

    def __repr__(self) -> str:
        return f"Trace({self.source.get('text')!r}, {self.settings.get('decoder')}, {self.summary})"

    @property
    def summary(self) -> str:
        """Tokens and passes in words: ``"9 tokens, 1 pass"``."""
        tokens, passes = len(self.tokens), self.calls
        return f"{tokens} token{'s' * (tokens != 1)}, {passes} pass{'es' * (passes != 1)}"

    def header(self) -> dict[str, Any]:
        """The fields that are known before the first pass."""
        return {
            "format": TRACE_FORMAT,
            "version": TRACE_VERSION,
            "source": self.source,
            "target": self.target,
            "settings": self.settings,
            "end": list(self.end),
        }

    def footer(self) -> dict[str, Any]:
        """The fields that are known once decoding has ended."""
        return {
            "target": self.target,
            "pieces": {str(i): piece for i, piece in sorted(self.pieces.items())},
            "hypotheses": [
                {"tokens": list(h.tokens), "score": _finite(h.score), "stop": h.stop} for h in self.hypotheses
            ],
            "greedy": self.greedy,
            "edges": self.edges,
        } | ({"clusters": {str(n): cluster for n, cluster in sorted(self.clusters.items())}} if self.clusters else {})

    def to_dict(self) -> dict[str, Any]:
        """The trace as specified in ``docs/trace.md``."""
        return self.header() | self.footer() | {"iterations": [iteration_to_dict(i) for i in self.iterations]}

    def to_json(self) -> str:
        """The trace as a JSON text; equal traces give equal text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Trace":
        """The inverse of `to_dict`.

        Raises
        ------
        ValueError
            If this is no trace, or one of a newer version.
        """
        if not isinstance(data, Mapping) or data.get("format") != TRACE_FORMAT:
            got = data.get("format") if isinstance(data, Mapping) else type(data).__name__
            raise ValueError(
                f'Not a decoding trace: expected "format": "{TRACE_FORMAT}", got {got!r}. See docs/trace.md.'
            )
        if data.get("version") != TRACE_VERSION:
            raise ValueError(
                f"This trace has version {data.get('version')!r}, this fastdecode reads version {TRACE_VERSION}. "
                "Update fastdecode, or record the trace again."
            )
        try:
            return cls(
                source=dict(data["source"]),
                target=dict(data["target"]),
                settings=dict(data["settings"]),
                end=tuple(data["end"]),
                pieces={int(i): piece for i, piece in data["pieces"].items()},
                iterations=[iteration_from_dict(i) for i in data["iterations"]],
                hypotheses=tuple(Hypothesis(tuple(h["tokens"]), h["score"], h["stop"]) for h in data["hypotheses"]),
                greedy=data.get("greedy"),
                edges=list(data.get("edges") or []),
                clusters={int(number): cluster for number, cluster in (data.get("clusters") or {}).items()},
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"The trace is damaged: {error!r}. Record it again; its form is in docs/trace.md."
            ) from error

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """The inverse of `to_json`."""
        try:
            data = parse_json(text)
        except ValueError as error:
            raise ValueError(f"The trace is not JSON: {error}. It may be cut short; record it again.") from error
        return cls.from_dict(data)


def iteration_to_dict(iteration: Iteration) -> dict[str, Any]:
    """An iteration in plain lists and numbers, ready for JSON; without its row, since a trace has one sentence."""
    lanes = iteration.lanes
    return {
        "call": iteration.call,
        "slots": iteration.slots.tolist(),
        "drafts": iteration.drafts.tolist(),
        "origins": list(iteration.origins),
        "tokens": iteration.tokens.tolist(),
        "status": list(iteration.status),
        "probabilities": _plain(iteration.probabilities),
        "margins": _plain(iteration.margins),
        "num_active": _plain(iteration.num_active),
        "cluster": _plain(iteration.cluster),
        "lanes": None if lanes is None else [lane._asdict() | {"tokens": list(lane.tokens)} for lane in lanes],
        "positions": iteration.positions,
        "seconds": iteration.seconds,
    } | ({} if iteration.sources is None else {"sources": iteration.sources.tolist()})


def iteration_from_dict(data: Mapping[str, Any]) -> Iteration:
    """The inverse of `iteration_to_dict`, as row 0."""
    lanes = data.get("lanes")
    return Iteration(
        row=0,
        call=int(data["call"]),
        slots=np.array(data["slots"], dtype=np.int64),
        drafts=np.array(data["drafts"], dtype=np.int64),
        origins=tuple(data["origins"]),
        tokens=np.array(data["tokens"], dtype=np.int64),
        status=tuple(data["status"]),
        probabilities=_array(data.get("probabilities"), np.float64),
        margins=_array(data.get("margins"), np.float64),
        num_active=_array(data.get("num_active"), np.int64),
        cluster=_array(data.get("cluster"), np.int64),
        lanes=None if lanes is None else tuple(Lane(**lane | {"tokens": tuple(lane["tokens"])}) for lane in lanes),
        sources=_array(data.get("sources"), np.int64),
        positions=int(data.get("positions", len(data["slots"]))),
        seconds=float(data.get("seconds", 0.0)),
    )


def _finite(value: float | None) -> float | None:
    """A number as JSON can hold it: None for what is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def _plain(values: np.ndarray | None) -> list[Any] | None:
    return None if values is None else [_finite(v) if isinstance(v, float) else v for v in values.tolist()]


def _array(values: Sequence[Any] | None, dtype: Any) -> np.ndarray | None:
    return None if values is None else np.array([np.nan if v is None else v for v in values], dtype=dtype)
