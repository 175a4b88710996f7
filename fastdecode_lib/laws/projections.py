"""Laws of projections, whatever they approximate, on hidden vectors of the bundled model.

They run on every projection of the registry that needs no file of its own and whose packages are installed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.contexts.feeding import Translations
from fastdecode_lib.contexts.fitting import fit_screens, options_of_fit
from fastdecode_lib.contexts.recording import record
from fastdecode_lib.core import MissingExtra, Scorer, drain
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.laws.cases import LawBroken
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.projections.screens import save_screens, screens_path
from fastdecode_lib.translation import Session

SENTENCES = ("Where did you buy this book about the history of the city?", "Please close the window.")
MOST = 5
"""Candidates asked for."""
ROUNDING = 1e-4
"""Largest difference of log-probabilities that are added up in another order."""


@dataclass(frozen=True)
class ProjectionCase:
    """A projection bound to a sentence, and hidden vectors of its passes.

    Attributes
    ----------
    spec : str
    scorer, exact : Scorer
        The projection's, and that of the full vocabulary.
    hidden : float32 array (N, D)
    vocabulary : int
    """

    spec: str
    scorer: Scorer
    exact: Scorer
    hidden: np.ndarray
    vocabulary: int


def projection_cases(spec: str) -> Iterator[ProjectionCase]:
    """A case for each sentence; none for a projection that reads a file of its own, or a package that is not installed.

    A projection whose screens do not come with the model is fitted on the contexts of the sentences.
    """
    name = spec.partition(":")[0]
    needs = registry.projection_class(name).needs
    if needs == "file":
        return
    model = load("tatoeba-small", device="cpu", engine="compiled")
    try:
        if needs == "screens" and not screens_path(Path(model.checkpoint.folder), name).is_dir():
            session = _fitted_session(model, spec, name)
        else:
            session = Session.of(model, "en", "de", Greedy.name, spec)
    except MissingExtra:
        return
    prefix = np.array([session.constraints.prefix])
    for text in SENTENCES:
        source = model.encode([text], "en", "de")
        (output,) = drain(Greedy().iterate(model.network, model.exact, source, session.constraints))
        state = model.network.start(model.network.encode(source), prefix)
        (hidden,) = model.network.step(state, np.concatenate([prefix[:, -1:], [output.tokens[:-1]]], axis=1))
        scorers = session.projection.bind(source), model.exact.bind(source)
        yield ProjectionCase(spec, *scorers, hidden, model.network.outputs[0].vocabulary)


def _fitted_session(model: TranslationModel, spec: str, name: str) -> Session:
    """A session whose screens were fitted on the contexts of the sentences, in two clusters if ``fit`` asks for a number."""
    with TemporaryDirectory() as folder:
        contexts = record(Translations(model), {"en-de": SENTENCES}, f"{folder}/contexts")
        few = options_of_fit(name, {}, {"clusters": 2})
        save_screens(fit_screens(contexts, name, **few), f"{folder}/screens")
        return Session.of(model, "en", "de", Greedy.name, f"{spec}{',' if ':' in spec else ':'}file={folder}/screens")


def best_come_first(case: ProjectionCase) -> None:
    """Candidates are different tokens, best first, the lowest id first of equals; behind the last one stand -1 and -inf."""
    found = case.scorer.top_k(case.hidden, MOST)
    for row, (ids, scores) in enumerate(zip(found.ids, found.scores, strict=True)):
        count = int((ids >= 0).sum())
        order = np.lexsort((ids[:count], -scores[:count]))
        right = (
            (ids[count:] == -1).all()
            and np.isneginf(scores[count:]).all()
            and (order == np.arange(count)).all()
            and len(set(ids[:count].tolist())) == count
            and (ids < case.vocabulary).all()
        )
        if not right:
            raise LawBroken(f"{case.spec}: candidates {ids.tolist()} with scores {scores.tolist()} at position {row}.")
    if not (found.num_active >= 1).all() or not (found.num_active <= case.vocabulary).all():
        raise LawBroken(f"{case.spec}: {found.num_active.tolist()} tokens scored, of {case.vocabulary}.")


def banned_are_left_out(case: ProjectionCase) -> None:
    """Banned tokens are never candidates, and the others keep their order."""
    ids = case.scorer.top_k(case.hidden, MOST).ids
    for banned in (ids[:, :1], ids[0, :1]):
        left = case.scorer.top_k(case.hidden, MOST, banned).ids
        for row, (before, after) in enumerate(zip(ids.tolist(), left.tolist(), strict=True)):
            refused = {*(banned if banned.ndim == 1 else banned[row]).tolist()}
            kept = [token for token in before if token >= 0 and token not in refused]
            if refused & set(after) or after[: len(kept)] != kept:
                raise LawBroken(f"{case.spec}: {before} without {sorted(refused)} became {after} at position {row}.")


def positions_are_independent(case: ProjectionCase) -> None:
    """A position alone has the candidates that it has among others."""
    ids = case.scorer.top_k(case.hidden, MOST).ids
    for row in range(len(ids)):
        (alone,) = case.scorer.top_k(case.hidden[row : row + 1], MOST).ids
        if alone.tolist() != ids[row].tolist():
            raise LawBroken(
                f"{case.spec}: {ids[row].tolist()} among others, {alone.tolist()} alone, at position {row}."
            )


def log_probs_fit_scores(case: ProjectionCase) -> None:
    """``log_probs`` of the best token is its score minus the normaliser, and at most 0."""
    found = case.scorer.top_k(case.hidden, 1, normalise=True)
    assert found.log_normaliser is not None
    told, expected = case.scorer.log_probs(case.hidden, found.ids)[:, 0], found.scores[:, 0] - found.log_normaliser
    if not (np.abs(told - expected) <= ROUNDING).all() or (told > ROUNDING).any():
        raise LawBroken(f"{case.spec}: log-probabilities {told.tolist()}, by the scores {expected.tolist()}.")


def exact_ones_find_the_best(case: ProjectionCase) -> None:
    """A projection that promises the full vocabulary's best token finds it."""
    if case.spec not in registry.EXACT:
        return
    ids, best = (scorer.top_k(case.hidden, 1).ids[:, 0].tolist() for scorer in (case.scorer, case.exact))
    if ids != best:
        raise LawBroken(f"{case.spec} found {ids}, the full vocabulary's best are {best}.")


PROJECTION_LAWS = (
    best_come_first,
    banned_are_left_out,
    positions_are_independent,
    log_probs_fit_scores,
    exact_ones_find_the_best,
)
