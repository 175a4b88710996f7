"""Every projection of the registry keeps the laws, and each law catches a scorer that breaks it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastdecode_lib import registry
from fastdecode_lib.contexts.shards import Contexts
from fastdecode_lib.core import Candidates, Model
from fastdecode_lib.laws import projections
from fastdecode_lib.laws.cases import LawBroken
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.clustering import Clustered, fit_clustered
from fastdecode_lib.projections.screens import Screen, ScreenProjection
from fastdecode_lib.store import ModelFiles


@pytest.mark.parametrize("spec", [*registry.PROJECTIONS, "clustered:precision=int8"])
def test_projections_keep_the_laws(spec: str) -> None:
    cases = list(projections.projection_cases(spec))
    if registry.projection_class(spec.partition(":")[0]).needs != "file" and not cases:
        pytest.skip("its package is not installed")
    for law in projections.PROJECTION_LAWS:
        for case in cases:
            law(case)


class Frequent(ScreenProjection):
    """The most frequent tokens of the contexts; a projection that nobody has fitted."""

    name = "frequent"

    @staticmethod
    def fit(contexts: Contexts, *, keep: int = 40) -> Screen:
        counts = np.bincount(
            np.concatenate([block.labels.ravel() for block in contexts.blocks()]), minlength=contexts.vocabulary
        )
        sets = ActiveSets.of([np.argsort(-counts, kind="stable")[:keep]], contexts.vocabulary)
        return Screen("frequent", np.zeros((1, contexts.width), np.float32), sets)


class ClusteredAgain(Clustered):
    """A fit that asks for more clusters than two sentences have contexts, unless it is given a number."""

    name = "again"

    @staticmethod
    def fit(contexts: Contexts, *, clusters: int = 500) -> Screen:
        return replace(fit_clustered(contexts, clusters=clusters), method="again")


@pytest.mark.parametrize("projection", [Frequent, ClusteredAgain])
def test_a_projection_without_screens_is_fitted_for_the_laws(
    projection: type[ScreenProjection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.PROJECTIONS, projection.name, projection)
    for spec in (projection.name, f"{projection.name}:precision=int8"):
        cases = list(projections.projection_cases(spec))
        assert len(cases) == len(projections.SENTENCES)
        for law in projections.PROJECTION_LAWS:
            for case in cases:
                law(case)


def test_the_laws_catch_a_fitted_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backwards(Frequent):
        @classmethod
        def make(cls, model: Model, files: ModelFiles, *, file: str | None = None) -> Any:
            right = super().make(model, files, file=file)
            return SimpleNamespace(name=cls.name, bind=lambda source: WorstFirst(right.bind(source), np.zeros(0)))

    monkeypatch.setitem(registry.PROJECTIONS, "frequent", Backwards)
    cases = list(projections.projection_cases("frequent"))
    assert len(cases) == len(projections.SENTENCES)
    for case in cases:
        with pytest.raises(LawBroken, match=r"frequent: candidates"):
            projections.best_come_first(case)


class Twin:
    """A scorer that is wrong in one way."""

    def __init__(self, scorer: Any, hidden: np.ndarray):
        self.scorer, self.hidden = scorer, hidden

    def top_k(
        self, hidden: np.ndarray, k: int, banned: np.ndarray | None = None, normalise: bool = False
    ) -> Candidates:
        found: Candidates = self.scorer.top_k(hidden, k, banned, normalise)
        return found

    def log_probs(self, hidden: np.ndarray, ids: np.ndarray) -> np.ndarray:
        told: np.ndarray = self.scorer.log_probs(hidden, ids)
        return told


class WorstFirst(Twin):
    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        found = super().top_k(hidden, k, banned, normalise)
        return found._replace(ids=found.ids[:, ::-1], scores=found.scores[:, ::-1])


class CountsNothing(Twin):
    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        found = super().top_k(hidden, k, banned, normalise)
        return found._replace(num_active=found.num_active * 0)


class DeafToBans(Twin):
    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        return super().top_k(hidden, k, None, normalise)


class BansForAll(Twin):
    """Takes the ids banned at one position as banned at all."""

    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        return super().top_k(hidden, k, None if banned is None else np.unique(banned[banned >= 0]), normalise)


class SharesTheFirst(Twin):
    """Scores all positions with the first one's hidden vector."""

    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        return super().top_k(np.repeat(hidden[:1], len(hidden), 0), k, banned, normalise)


class Unnormalised(Twin):
    def log_probs(self, hidden: Any, ids: Any) -> np.ndarray:
        return super().log_probs(hidden, ids) + 0.5


class SecondBest(Twin):
    def top_k(self, hidden: Any, k: int, banned: Any = None, normalise: bool = False) -> Candidates:
        found = super().top_k(hidden, k + 1, banned, normalise)
        return found._replace(ids=found.ids[:, 1:], scores=found.scores[:, 1:])


@pytest.mark.parametrize(
    ("law", "twin"),
    [
        (projections.best_come_first, WorstFirst),
        (projections.best_come_first, CountsNothing),
        (projections.banned_are_left_out, DeafToBans),
        (projections.banned_are_left_out, BansForAll),
        (projections.positions_are_independent, SharesTheFirst),
        (projections.log_probs_fit_scores, Unnormalised),
        (projections.exact_ones_find_the_best, SecondBest),
    ],
)
def test_a_law_catches_its_twin(law: Any, twin: type[Twin]) -> None:
    for case in projections.projection_cases("quantised"):
        law(case)
        with pytest.raises(LawBroken, match="quantised"):
            law(replace(case, scorer=twin(case.scorer, case.hidden)))
