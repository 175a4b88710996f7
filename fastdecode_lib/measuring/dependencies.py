"""Dependencies between the tokens of a translation; one file because replacing tokens and counting changes are one measurement.

The passes of a parallel decoder show the order in which tokens settle; dependencies explain this order (Santilli et al.,
"Speedup Analysis"). The token at slot j is replaced and all others stay those of greedy decoding. Slot i depends on slot j if
another token is now chosen at i. The tokens between j and i are fixed, so no effect reaches i through a third token.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.transformer import FAMILIES
from fastdecode_lib.core import OUR_FAMILIES, Constraints, Model, Scorer, Source, State, drain
from fastdecode_lib.decoding.choosing import choose
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.trace import Trace
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

REPLACEMENTS = ("padding", "runner_up")
CONTROLS = ("none", "shuffled", "random_weights")
COLUMNS = ("name", "replace", "control", "measure", "group", "share", "count")
DISTANCES = {"1": (1, 1), "2": (2, 2), "3": (3, 3), "4": (4, 4), "5-8": (5, 8), "9+": (9, math.inf)}
WORD_CLASSES = ("word start", "continuation", "punctuation", "end")
POSITIONS = 1024
"""Most positions of a pass; outputs of up to 32 tokens need one pass."""


@dataclass(frozen=True)
class Dependencies:
    """Dependencies between the m tokens of an output, its end included.

    Attributes
    ----------
    tokens : int64 array (m,)
        Output of greedy decoding.
    replacements : int64 array (m,)
        Replacement of each token.
    changed : bool array (m, m)
        ``changed[j, i]``: with slot j replaced, another token is chosen at slot i. False for i <= j.
    shift : float array (m, m)
        Drop in the log-probability of the token at slot i; 0 for i <= j.
    """

    tokens: np.ndarray
    replacements: np.ndarray
    changed: np.ndarray
    shift: np.ndarray

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Every pair of an earlier slot j and a later slot i: two arrays of m (m - 1) / 2."""
        return np.triu_indices(len(self.tokens), 1)

    @property
    def strength(self) -> np.ndarray:
        """Share of its probability that the token at slot i loses if the choice changes, from 0 to 1; otherwise 0: (m, m)."""
        return np.where(self.changed, -np.expm1(-np.maximum(self.shift, 0.0)), 0.0)

    @property
    def distances(self) -> np.ndarray:
        """Distance from the earlier to the later slot of each dependency, 1 for neighbours; ascending."""
        return np.sort(np.subtract(*reversed(np.nonzero(self.changed))))

    @property
    def independent(self) -> np.ndarray:
        """Whether the choice stays when the token just before it is replaced, at slots 1 to m - 1: bool (m - 1,)."""
        return ~np.diagonal(self.changed, 1)

    def edges(self, least: float = 0.25) -> list[dict[str, Any]]:
        """The dependencies with at least a strength, in the form of `trace.Trace`: ``from``, ``to`` and ``strength``.

        If two tokens are almost equally good, many replacements change the choice, and weak edges crowd the picture.
        """
        if not 0 <= least <= 1:
            raise ValueError(f"A strength is from 0 to 1, got least={least}. Use least=0 for every edge.")
        strong = np.argwhere(self.changed & (self.strength >= least)).tolist()
        return [{"from": j, "to": i, "strength": float(self.strength[j, i])} for j, i in strong]

    def shuffled(self, random: np.random.Generator) -> "Dependencies":
        """A control with the same effects on random pairs of slots, so that distance has no influence."""
        order = random.permutation(len(self.pairs[0]))
        changed, shift = self.changed.copy(), self.shift.copy()
        for effect in (changed, shift):
            effect[self.pairs] = effect[self.pairs][order]
        return dataclasses.replace(self, changed=changed, shift=shift)


# ----------------------------------------------------------------------------------------------------------- measuring


def dependencies(session: Session, text: str, replace: str = "padding") -> Dependencies:
    """Measure the dependencies in greedy decoding's translation of a sentence; text without content has none.

    The work grows with the square of the output's length; `max_length` of the session limits outputs that do not end.

    Parameters
    ----------
    session : Session
        Model, direction, projection and constraints; its decoder is not used.
    text : str
    replace : {"padding", "runner_up"}
        Replacement of a token: padding, or the second best token that the constraints allow in its slot.
    """
    _check("replacement", replace, REPLACEMENTS)
    source = session.model.encode([text], session.source, session.target)
    if not session.has_content(text):
        no_tokens = np.zeros(0, dtype=np.int64)
        return Dependencies(no_tokens, no_tokens, np.zeros((0, 0), dtype=bool), np.zeros((0, 0)))
    greedy = registry.decoder("greedy")
    (best,) = drain(greedy.iterate(session.model.network, session.projection, source, session.constraints))
    tokens = np.array(best.tokens, dtype=np.int64)
    forced = _Forced.of(session, source, len(tokens))
    padding = np.full_like(tokens, session.constraints.padding)
    return forced.replacing(tokens, forced.runners_up(tokens) if replace == "runner_up" else padding)


@dataclass(frozen=True)
class _Forced:
    """An encoded sentence that whole targets (R, m) are fed to, one for each row."""

    model: Model
    scorer: Scorer
    state: State
    constraints: Constraints

    @classmethod
    def of(cls, session: Session, source: Source, length: int) -> "_Forced":
        """Encode the sentence once for all targets."""
        model, prefix = session.model.network, np.array([session.constraints.prefix])
        state = model.start(model.encode(source), prefix, prefix.shape[1] + length)
        return cls(model, session.projection.bind(source), state, session.constraints)

    def feed(self, rows: np.ndarray) -> Any:
        """Hidden vectors (R, m, D) of all slots; `rows` (R, m) begin with the last token of the prefix."""
        return self.model.step(self.state.select(np.zeros(len(rows), dtype=np.int64)), rows)

    def shifted(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens (m,) moved by one slot: each is fed at the slot where the next one is chosen."""
        return np.concatenate([self.constraints.prefix[-1:], tokens[:-1]])

    def runners_up(self, tokens: np.ndarray) -> np.ndarray:
        """The second best token allowed at each slot, padding if there is none: (m,)."""
        hidden = self.feed(self.shifted(tokens)[None])[0]
        ids = self.scorer.top_k(hidden, 2, self.constraints.forbidden(np.arange(len(tokens)))).ids
        second = np.where(ids[:, 0] == tokens, ids[:, 1], ids[:, 0])
        return np.where(second >= 0, second, self.constraints.padding)

    def replacing(self, tokens: np.ndarray, replacements: np.ndarray) -> Dependencies:
        """Replace the tokens (m,) one at a time, many rows in a pass, and compare with an unchanged row."""
        length, slots = len(tokens), np.arange(len(tokens))
        changed, shift = np.zeros((length, length), dtype=bool), np.zeros((length, length))
        rows = max(1, POSITIONS // length - 1)
        for first in range(0, length - 1, rows):
            replaced = np.array([-1, *range(first, min(first + rows, length - 1))])  # -1: the unchanged row
            targets = np.where(slots == replaced[:, None] + 1, self.shifted(replacements), self.shifted(tokens))
            row, slot = np.nonzero(slots > replaced[:, None])
            chosen, log_probs = self.choices(targets, row, slot, tokens[slot])
            with np.errstate(invalid="ignore"):  # -inf minus -inf: a token that is no candidate loses nothing
                drop = np.nan_to_num(log_probs[slot] - log_probs, nan=0.0, posinf=math.inf)
            # Row -1 of the results is that of the last token, which has no effect: the unchanged row writes none there.
            changed[replaced[row], slot], shift[replaced[row], slot] = chosen != chosen[slot], drop
        return Dependencies(tokens, replacements, changed, shift)

    def choices(
        self, targets: np.ndarray, row: np.ndarray, slot: np.ndarray, tokens: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens chosen at N places (row, slot) of targets, and log-probabilities of given tokens there: (N,) each."""
        if len(targets) > 1 and "ragged" not in self.model.supports:
            masks = [row == number for number in range(len(targets))]
            parts = [self.choices(targets[i : i + 1], 0 * row[at], slot[at], tokens[at]) for i, at in enumerate(masks)]
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        hidden = self.feed(targets)[row, slot]
        chosen = choose(self.scorer, hidden, slot, self.constraints, observe=False).tokens
        return chosen, self.scorer.log_probs(hidden, tokens[:, None])[:, 0]


def with_edges(trace: Trace, found: Dependencies, least: float = 0.25) -> Trace:
    """The trace with its dependencies, which `ddgviz.show` draws instead of the settling order; see `Dependencies.edges`."""
    if trace.tokens != tuple(found.tokens.tolist()):
        raise ValueError(
            f"These dependencies are of another output: got a trace with the tokens {list(trace.tokens)}, and dependencies of "
            f"{found.tokens.tolist()}. Use the same sentence and a lossless decoder."
        )
    return dataclasses.replace(trace, edges=found.edges(least))


# ---------------------------------------------------------------------------------------------------------- statistics


def statistics(
    session: Session,
    texts: Sequence[str],
    replace: str = "padding",
    *,
    control: str = "none",
    seed: int = 0,
    progress: bool = False,
) -> "pd.DataFrame":
    """Share of changed choices by distance, and share of tokens that are independent of the token before.

    Parameters
    ----------
    texts : sequence of str
        Sentences; those without content are left out. All pairs of slots count equally, so long sentences weigh more.
    control : {"none", "shuffled", "random_weights"}
        Control: the same effects on random pairs of slots of their sentence, or the same outputs with `random_model` and its exact
        projection.
    seed : int
        Seed of the control.

    Returns
    -------
    DataFrame with the columns of `COLUMNS`
        ``measure`` is ``changed``, with the ``share`` of ``count`` pairs of slots by distance, or ``independent``, with the share
        of the slots after the first by word class.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    _check("control", control, CONTROLS)
    with_content = [text for text in texts if session.has_content(text)]
    if not with_content:
        raise ValueError("There is nothing to measure: got no sentence with content. Give at least one.")
    controlled = session
    if control == "random_weights":
        random = random_model(session.model, seed)
        exact = registry.projection("exact", random.network)
        controlled = dataclasses.replace(session, model=random, projection=exact)
    measurements: list[Dependencies] = []
    for number, text in enumerate(tqdm(with_content, unit="sentence", disable=not progress)):
        measurement = dependencies(session, text, replace)
        if control == "random_weights":
            source = session.model.encode([text], session.source, session.target)
            forced = _Forced.of(controlled, source, len(measurement.tokens))
            measurement = forced.replacing(measurement.tokens, measurement.replacements)
        elif control == "shuffled":
            measurement = measurement.shuffled(np.random.default_rng((seed, number)))
        measurements.append(measurement)
    distance = np.concatenate([np.subtract(*reversed(d.pairs)) for d in measurements])
    changed = np.concatenate([d.changed[d.pairs] for d in measurements])
    classes = np.concatenate([word_classes(session, d.tokens)[1:] for d in measurements])
    independent = np.concatenate([d.independent for d in measurements])
    groups = [("changed", name, changed[(distance >= a) & (distance <= b)]) for name, (a, b) in DISTANCES.items()]
    groups += [("changed", "all", changed)]
    groups += [("independent", name, independent[classes == name]) for name in WORD_CLASSES]
    groups += [("independent", "all", independent)]
    labels = (f"{session.model.name} {session.source}-{session.target}", replace, control)
    rows = [(*labels, *group, hits.mean() if len(hits) else math.nan, len(hits)) for *group, hits in groups]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame.attrs["provenance"] = provenance(session.model, seed=seed) | {"sentences": len(with_content)}
    return frame


def word_classes(session: Session, tokens: np.ndarray) -> np.ndarray:
    """The class of each token (m,), one of `WORD_CLASSES`; ``▁`` starts a word, and punctuation continues no word."""
    pieces = session.model.tokenizer.pieces(tokens.tolist())
    starts = np.array([piece.startswith("▁") for piece in pieces], dtype=bool)
    spelled = np.array([any(map(str.isalnum, piece)) for piece in pieces], dtype=bool)
    ends = np.isin(tokens, session.constraints.end)
    return np.select([ends, starts, spelled], ["end", "word start", "continuation"], "punctuation")


def random_model(model: TranslationModel, seed: int = 0) -> TranslationModel:
    """The model with the entries of each weight in random order; only architecture and scale remain."""
    if model.checkpoint.family not in FAMILIES or model.engine not in ("torch", "compiled"):
        raise ValueError(
            f"Random weights need a model on fastdecode's engines: got {model.name!r} on the engine {model.engine}. Load "
            f"{OUR_FAMILIES}."
        )
    random = np.random.default_rng(seed)
    tensors = model.checkpoint.arrays()
    permuted: dict[int, np.ndarray] = {}  # by identity: shared tensors stay shared
    for tensor in tensors.values():
        if id(tensor) not in permuted:
            permuted[id(tensor)] = random.permutation(tensor.reshape(-1)).reshape(tensor.shape)
    weights = {name: permuted[id(tensor)] for name, tensor in tensors.items()}
    return dataclasses.replace(model, name=f"{model.name} with random weights", network=_network(model, weights))


def _network(model: TranslationModel, weights: Mapping[str, np.ndarray]) -> Any:
    """The model's network with other weights."""
    architecture, network = model.checkpoint.architecture, cast(Any, model.network)
    if model.engine == "compiled":
        from fastdecode_lib.models.compiled_transformer import CompiledTransformer

        return CompiledTransformer(architecture, weights, network.precision)
    import torch

    from fastdecode_lib.models.transformer import Transformer

    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    return Transformer(architecture, tensors, network.device, network.dtype)


def _check(what: str, name: str, options: Sequence[str]) -> None:
    if name not in options:
        raise ValueError(f"Unknown {what}: got {name!r}. {registry.nearest(str(name), options)}")
