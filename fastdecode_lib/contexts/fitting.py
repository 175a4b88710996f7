"""Fit screens on recorded contexts, one for each direction, for each target language, or one for all."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.contexts.shards import Contexts
from fastdecode_lib.projections.screens import Screen, load_screens

Per = Literal["direction", "target", "all"]
MEASURABLE = 5_000
"""Fewest contexts of which some are held out."""
GOOD_PRECISION = 0.98
"""Share of best tokens in the sets; below it, many outputs change."""


def fit_screens(
    contexts: Contexts, method: str, *, per: Per = "direction", bar: bool = False, **options: Any
) -> dict[str, Screen]:
    """Fit a screen for each group of directions; the result has the screens by the group's name.

    Parameters
    ----------
    contexts : Contexts
    method : str
        A projection that needs screens: ``"clustered"`` (Amer et al., 2022) or ``"screened"`` (Chen et al., 2019).
    per : "direction", "target" or "all"
        Amer et al., section 2.2: a screen for each language pair (``"en-de"``), or for each target language (``"de"``), with the
        contexts of all its pairs together.
    bar : bool
        Show a progress bar over the screens.
    **options
        Options of the projection's ``fit``.

    Raises
    ------
    ValueError
        If a choice is unknown, a screen has no contexts, or ``fit`` raises it.
    """
    fit = fitted_projection(method).fit
    parts = {
        name: contexts if name == "all" else contexts.where(direction=members)
        for name, members in groups(contexts.directions, per).items()
    }
    if empty := [name for name, part in parts.items() if not len(part)]:
        raise ValueError(
            f"There are no contexts to fit {', '.join(empty)} on: got {len(contexts):,}, of "
            f"{', '.join(name for name in parts if name not in empty) or 'no direction'}. Record more of them."
        )
    from tqdm.auto import tqdm

    bars = tqdm(parts.items(), unit="screen", disable=not bar)
    return {name: _described(fit(part, **options), method, part) for name, part in bars}


def _described(screen: Screen, method: str, contexts: Contexts) -> Screen:
    """A screen with what `summary` and decoding ask of its ``about``, where ``fit`` did not say it."""
    if screen.method != method:
        raise ValueError(
            f"A screen has the name of its projection: got {screen.method!r} from the fit of {method}. Write "
            f"Screen({method!r}, ...)."
        )
    about = {"fingerprint": contexts.fingerprint, "contexts": len(contexts)} | screen.about
    if "scored" not in about:
        about["scored"] = Precision.of(screen, contexts).scored
    return replace(screen, about=about)


def fitted_projection(method: str) -> Any:
    """The class of a projection that is fitted on contexts.

    Raises
    ------
    ValueError
        If there is none of this name.
    """
    if method not in (known := registry.needing("screens")):
        raise ValueError(f"Unknown kind of screen: got {method!r}. {registry.nearest(method, known)}")
    return registry.projection_class(method)


OF_ALL = ("always", "at_least", "seed", "progress")
"""Keywords of a fit that `fastdecode fit` gives to all that have them."""


def options_of_fit(method: str, given: dict[str, Any], common: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options by name as keywords of a projection's ``fit``: fields of its settings, a dataclass, become one keyword.

    Parameters
    ----------
    given : dict
        Options that somebody asked for; texts become values of the type that ``fit`` names.
    common : dict, optional
        Options for every ``fit`` that has them.

    Raises
    ------
    ValueError
        If the projection does not have an option that was asked for, or a text is no value of it.
    """
    fit, options = fitted_projection(method).fit, dict(given)
    hints, known = get_type_hints(fit), list[str]()

    def typed(name: str, hint: Any) -> Any:
        value = options.pop(name)
        if hint is None:
            raise ValueError(
                f"The keyword {name} of {method}'s fit has no type: got {value!r} for it. Annotate it, as in keep: int."
            )
        return registry.typed_value(hint, value, f"{method}: {name}") if isinstance(value, str) else value

    parameters = [name for name, p in inspect.signature(fit).parameters.items() if p.kind is p.KEYWORD_ONLY]
    keywords = {name: value for name, value in (common or {}).items() if name in parameters}
    for name in parameters:
        hint = hints.get(name)
        settings: Any = next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)
        if settings is not None:
            kinds, names = get_type_hints(settings), [field.name for field in fields(settings)]
            keywords[name] = settings(**{field: typed(field, kinds[field]) for field in names if field in options})
            known += names
            continue
        known.append(name)
        if name in options:
            keywords[name] = typed(name, hint)
    if options:
        wrong, known = next(iter(options)), [name for name in known if name not in OF_ALL]
        raise ValueError(f"`fastdecode fit {method}` has no option {wrong!r}. {registry.nearest(wrong, known)}")
    return keywords


def summary(screen: Screen) -> str:
    """A sentence on the size of a fitted screen, with warnings."""
    sizes, vocabulary = np.diff(screen.sets.offsets), screen.sets.vocabulary
    scored, budget = screen.about["scored"], screen.about.get("budget")
    text = f"{len(sizes)} clusters; a context scores {scored:,.1f} tokens on average, {scored / vocabulary:.1%} of the vocabulary"
    if empty := int((sizes == 0).sum()):
        text += f"; {empty} cluster(s) got no token and score the whole vocabulary"
    elif budget is not None and scored < 0.9 * budget:
        text += f"; there is nothing more to fill the budget of {budget:g} with"
    return text


@dataclass(frozen=True)
class Precision:
    """How often a screen's sets hold the best tokens of contexts that it was not fitted on.

    Attributes
    ----------
    contexts : int
        N, number of contexts.
    p_at_1, p_at_5 : float
        Shares of the best tokens, and of the five best (of all labels if fewer were recorded), that are in the context's set.
    scored : float
        Mean number of tokens scored.
    """

    contexts: int
    p_at_1: float
    p_at_5: float
    scored: float

    @classmethod
    def of(cls, screen: Screen, contexts: Contexts) -> "Precision":
        """Measure the precision of a screen on contexts; a cluster without a set scores the whole vocabulary."""
        sets, top = screen.sets, min(5, contexts.top)
        keys, empty = sets.keys, np.diff(sets.offsets) == 0
        hits, scored = np.zeros(top), 0.0
        for block in contexts.blocks():
            cluster = screen.assign(block.hidden)
            is_active = np.isin(cluster[:, None] * sets.vocabulary + block.labels[:, :top], keys)
            hits += (is_active | empty[cluster][:, None]).sum(0)
            scored += float(sets.sizes[cluster].sum())
        first, five = (float(hits[:n].mean() / len(contexts)) for n in (1, top))
        return cls(len(contexts), first, five, scored / len(contexts))

    def summary(self, screen: Screen) -> str:
        """A sentence on the precision, with advice if it is low."""
        sentence = (
            f"on {self.contexts:,} held-out contexts: the best token is in the set of {self.p_at_1:.2%}, of the five best "
            f"{self.p_at_5:.2%}; {self.scored:,.0f} tokens scored"
        )
        if self.p_at_1 >= GOOD_PRECISION:
            return sentence
        remedy = registry.projection_class(screen.method).remedy
        return f"{sentence}. Low: many outputs will change. More contexts help (got {screen.about['contexts']:,}), or {remedy}."


def groups(directions: tuple[str, ...], per: Per) -> dict[str, list[str]]:
    """The directions that share a screen, by its name."""
    if per not in get_args(Per):
        raise ValueError(f"Unknown grouping: got per={per!r}. Use one of {', '.join(get_args(Per))}.")
    names: dict[str, list[str]] = {}
    for direction in directions:
        name = {"direction": direction, "target": direction.split("-")[-1], "all": "all"}[per]
        names.setdefault(name, []).append(direction)
    return names


def screens_to_keep(folder: str | Path, method: str, fingerprint: str, names: Iterable[str]) -> dict[str, Screen]:
    """The screens of a folder that new screens with `names` do not replace; empty if the folder has none.

    A new screen for a target language replaces those for directions into it; one for all directions replaces every screen.

    Raises
    ------
    ValueError
        If the screens are of another method or model, or damaged: writing new ones would destroy them.
    """
    if not (Path(folder) / "screens.json").is_file():
        return {}
    screens = load_screens(folder)
    for name, screen in screens.items():
        if (screen.method, screen.about.get("fingerprint")) != (method, fingerprint):
            raise ValueError(
                f"{folder} has screens of another kind or model: got {name}, {screen.method}, of "
                f"{screen.about.get('fingerprint')}. Name another folder."
            )
    return {
        name: screen
        for name, screen in screens.items()
        if not any(new in ("all", name) or name.endswith(f"-{new}") for new in names)
    }
