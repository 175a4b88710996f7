"""Amer et al. (2022): clusters of hidden vectors by k-means, each with all tokens that were best at one of its vectors."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastdecode_lib.projections.active_sets import ActiveSets, Recorded, check_guards, count_all, ranking, sampled
from fastdecode_lib.projections.kmeans import kmeans
from fastdecode_lib.projections.screens import Screen, ScreenProjection


def fit_clustered(
    contexts: Recorded,
    *,
    clusters: int = 50,
    top: int = 5,
    iterations: int = 20,
    seed: int = 0,
    most: int = 500_000,
    least_count: int = 1,
    always: Sequence[int] = (),
    at_least: int = 0,
) -> Screen:
    """Cluster the contexts and give each cluster the union of the best tokens of all its members (section 2.2).

    Parameters
    ----------
    contexts : Recorded
    clusters : int
        r; 100 to 2,000 in the paper, 1,300 for its Italian to English model, on contexts of 20 million sentences. With fewer
        contexts, the set of a cluster misses tokens that it needs, and fewer clusters lose less.
    top : int
        K, how many of the best tokens of a context count; 1, 3 or 5 in the paper, finally 1.
    iterations : int
        Iterations of k-means; 20 in the paper.
    most : int
        Contexts, at most, that k-means clusters, drawn at random; the sets are made of all contexts.
    least_count : int
        Ours: how often a token must have been best in a cluster to be active there. The paper's is 1: a token that was best once
        stays, and sets grow with the number of contexts.
    always : sequence of int
        Ours: tokens that are active in every cluster, such as the end of the sentence.
    at_least : int
        Ours: smaller sets are filled up with the most frequent tokens of all contexts, so that a beam finds enough tokens.

    Raises
    ------
    ValueError
        If there are fewer contexts than clusters, fewer recorded labels than `top`, or tokens outside the vocabulary.
    """
    _check(contexts, top, least_count)
    check_guards(contexts.vocabulary, always, at_least)
    points = kmeans(sampled(contexts, most, seed), clusters, iterations=iterations, seed=seed)
    knobs = {"clusters": clusters, "top": top, "iterations": iterations, "seed": seed, "most": most}
    guards = {"least_count": least_count, "always": [int(token) for token in always], "at_least": at_least}
    about: dict[str, Any] = {"fingerprint": contexts.fingerprint, "contexts": len(contexts), **knobs, **guards}
    return with_sets(Screen("clustered", points, empty_sets(clusters, contexts.vocabulary), about), contexts)


class Clustered(ScreenProjection):
    """Active sets of clusters of hidden vectors (Amer et al., 2022)."""

    name, remedy = "clustered", "fewer --clusters, a larger --top"
    fit = staticmethod(fit_clustered)


def empty_sets(clusters: int, vocabulary: int) -> ActiveSets:
    """Sets without a token."""
    return ActiveSets(np.zeros(clusters + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), vocabulary)


def with_sets(screen: Screen, contexts: Recorded, **changes: Any) -> Screen:
    """The clusters of a screen with new sets from these contexts; `changes` are new `top`, `least_count`, `always`, `at_least`."""
    about = screen.about | changes | {"contexts": len(contexts)}
    _check(contexts, about["top"], about["least_count"])
    keys, counts, members = count_all(screen.assign, contexts, about["top"], len(screen.sets))
    sets = ActiveSets.of_keys(keys[counts >= about["least_count"]], len(screen.sets), contexts.vocabulary)
    return with_guards(replace(screen, sets=sets, about=about), keys, counts, members)


def with_guards(screen: Screen, keys: np.ndarray, counts: np.ndarray, members: np.ndarray) -> Screen:
    """A screen whose sets follow `always` and `at_least` of its ``about``, which then says how many tokens are ``scored``.

    Parameters
    ----------
    keys, counts, members : int64 arrays
        What `count_all` counts.
    """
    sets, vocabulary = screen.sets, screen.sets.vocabulary
    if screen.about["always"]:
        sets = sets.with_always(screen.about["always"])
    if screen.about["at_least"]:
        sets = sets.at_least(screen.about["at_least"], ranking(keys % vocabulary, counts, vocabulary))
    scored = float((members * sets.sizes).sum() / max(1, members.sum()))
    return replace(screen, sets=sets, about=screen.about | {"scored": scored})


def _check(contexts: Recorded, top: int, least_count: int) -> None:
    if not 1 <= top <= contexts.top:
        raise ValueError(
            f"top must be from 1 to the {contexts.top} labels recorded for each context, got {top}. Record with more, or lower it."
        )
    if least_count < 1:
        raise ValueError(f"least_count must be at least 1, got {least_count}. 1 is the paper's.")
