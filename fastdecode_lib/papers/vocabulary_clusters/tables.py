"""Amer et al.'s tables and figures on the bundled model; one file because all share the fitted clusters and contexts.

The paper's models, sentences and ratings are not public. Our model translates between English, German, French and Spanish; set 1
are single sentences of the test split, set 2 the same joined two to four at a time. Active sets are fitted on contexts of
the training split, decoded by the model itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.contexts.fitting import groups
from fastdecode_lib.core import Projection, drain
from fastdecode_lib.decoding.autoregressive import Beam
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.papers.outcomes import trained
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, table_of
from fastdecode_lib.papers.shared.batches import batch_system, batches, decoded
from fastdecode_lib.papers.shared.contexts_of import MODELS, Situation, arrays, situation
from fastdecode_lib.papers.shared.projection_runs import Captured, context_counts, projection_system
from fastdecode_lib.papers.shared.rows import keyed, median, paper_rows, quality_of, slots_of, speedup_of
from fastdecode_lib.papers.vocabulary_clusters import printed as amer_2022
from fastdecode_lib.projections.clustering import fit_clustered, with_sets
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen
from fastdecode_lib.text.corpus import join_pairs, spread_over
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

NAME = "multilingual"
PROTOCOLS = {"batch 1, beam 1": (1, 1), "batch 20, beam 2": (20, 2)}
"""Batch size and beam (section 3.3)."""
SWEPT = "de-en"
"""The direction that figures 2 to 4 are drawn for; Italian to English in the paper."""


@dataclass(frozen=True)
class Amount:
    """Amount of decoding and range of knobs at a scale.

    The paper takes 1,300 clusters and one label, on far more contexts than ours; with fewer contexts, a cluster's set misses tokens
    that it needs (figure 3).

    Attributes
    ----------
    top : int
        Labels of a context that its set gets.
    paper_clusters : int
        The paper's number of clusters, with one label, for a second row.
    swept : tuple of int
        Numbers of clusters in figures 2 and 3.
    sentences, timed : int
        Sentences of a direction for quality, and for time.
    directions : int
        Number of directions measured, from the first.
    longest : int or None
        Most tokens of an output.
    """

    clusters: int
    top: int
    paper_clusters: int
    swept: tuple[int, ...]
    sentences: int
    timed: int
    rounds: int
    directions: int = 6
    longest: int | None = None


AMOUNTS = {
    Scale.TINY: Amount(8, 2, 8, (4, 8), 4, 4, 2, 2, 12),
    Scale.LAPTOP: Amount(50, 5, 1_300, (25, 50, 100, 200, 400, 800), 400, 60, 9),
    Scale.PAPER: Amount(1_300, 1, 1_300, tuple(range(100, 2_001, 100)), 20_000, 200, 11),
}


@cache
def screen_of(run: CorpusRun, name: str, clusters: int, top: int) -> Screen:
    """The clusters of a direction, of a target language, or of all directions."""
    recorded = situation(NAME, run)
    for per in ("direction", "target", "all"):
        members = groups(recorded.fit.directions, per).get(name)
        if members:
            contexts = recorded.fit.where(direction=members)
            if top > 1:
                return with_sets(screen_of(run, name, clusters, 1), contexts, top=top)
            return fit_clustered(
                contexts, clusters=clusters, top=top, seed=run.seed, always=recorded.loaded.constraints().end
            )
    raise ValueError(f"Unknown direction: got {name!r}. Recorded are {', '.join(recorded.fit.directions)}.")


def pairs_of(direction: str, sentences: str, run: CorpusRun) -> list[tuple[str, str]]:
    """Test sentences with their references, ``"single"`` or ``"joined"``, spread from short to long; our own in a tiny run."""
    pairs = run.pairs(*direction.split("-"))
    pairs = pairs[2::3] if run.tiny else pairs
    if sentences == "joined":
        pairs = join_pairs(pairs, seed=0)
    return spread_over(pairs, AMOUNTS[run.scale].sentences)


@experiment
def table1(run: CorpusRun) -> pd.DataFrame:
    """Table 1: sentences of the two sets."""
    rows: list[dict[str, Any]] = []
    for direction in situation(NAME, run).fit.directions:
        sizes = {f"set_{i}": len(pairs_of(direction, kind, run)) for i, kind in enumerate(("single", "joined"), 1)}
        rows.append({"name": direction, **sizes})
    rows += paper_rows(amer_2022.TABLE_1, "paper_set_1", "paper_set_2", suffix=", paper")
    return table_on(rows, run)


@experiment
def table2(run: CorpusRun) -> pd.DataFrame:
    """Table 2: the share of active tokens and the time of the projection, at batch 20 and beam 2.

    The hidden vectors of whole beam searches are kept, and each step's are scored again: over the full vocabulary, over the
    union of their sets as in the paper, and over each row's own set; the latter two also with the paper's numbers of clusters and
    labels. "Scattered" writes the union's scores into an array of the vocabulary's width, over which the paper takes its softmax.
    ``rows`` is the mean number of rows of a step: 40 at first, and fewer as sentences end.
    """
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    rows: list[dict[str, Any]] = []
    for direction in recorded.fit.directions[: amount.directions]:
        screen = screen_of(run, direction, amount.clusters, amount.top)
        paper_screen = screen_of(run, direction, amount.paper_clusters, 1)
        steps = _steps(recorded, direction, run)
        projections = {
            "exact": recorded.loaded.exact,
            "union of the batch": ScreenScorer(screen, recorded.matrix, shared=True),
            "union, scattered": ScreenScorer(screen, recorded.matrix, shared=True, scatter=True),
            "each row's own": ScreenScorer(screen, recorded.matrix),
            "union, the paper's choice": ScreenScorer(paper_screen, recorded.matrix, shared=True),
            "own, the paper's choice": ScreenScorer(paper_screen, recorded.matrix),
        }
        systems = [projection_system(name, projection, 4, normalise=True) for name, projection in projections.items()]
        timings = run.measure(systems, steps, runs=amount.rounds)
        for (name, projection), m in zip(projections.items(), timings, strict=True):
            active = np.concatenate([projection.bind(None).top_k(h, 1).num_active for h in steps])
            row = {
                **keyed(direction=direction, method=name),
                "clusters": 0 if name == "exact" else len((paper_screen if "choice" in name else screen).sets),
                "active": float(active.mean() / recorded.matrix.shape[0]),
                "microseconds": 1e6 * median(m) / len(steps),
                **speedup_of(timings[0], m),
                "rows": float(np.mean([len(h) for h in steps])),
            }
            rows.append(row)
    for direction, models in amer_2022.TABLE_2.items():
        for model, (share, microseconds), full in zip(
            ("dense", "m3"), models, amer_2022.FULL_MICROSECONDS, strict=True
        ):
            rows.append(
                {
                    **keyed(direction=direction, method=model),
                    "paper_active": share / 100,
                    "paper_microseconds": microseconds,
                    "paper_speedup": full / microseconds,
                    "kind": "paper",
                }
            )
    return table_on(rows, run, [recorded])


def _steps(recorded: Situation, direction: str, run: CorpusRun) -> list[np.ndarray]:
    """The hidden vectors of every step of a beam search of 2 over batches of 20."""
    session = limited(recorded, direction, run.scale)
    captured: Any = Captured(recorded.loaded.exact)
    texts = [a for a, _ in spread_over(pairs_of(direction, "single", run), AMOUNTS[run.scale].timed)]
    for batch in batches(recorded.loaded, texts, direction.split("-"), 20):
        drain(Beam(size=2).iterate(recorded.loaded.network, captured, batch, session.constraints))
    steps: list[np.ndarray] = captured.captured
    return steps


def limited(recorded: Situation, direction: str, scale: Scale) -> Session:
    """Greedy decoding in a direction, with the length limit of a scale."""
    return Session.of(recorded.loaded, *direction.split("-"), max_length=AMOUNTS[scale].longest)


@experiment
def table3(run: CorpusRun) -> pd.DataFrame:
    """Table 3: quality and speed of whole decoding on set 1, without and with clusters, in both protocols."""
    return _decoded("single", tuple(PROTOCOLS), run)


@experiment
def table4(run: CorpusRun) -> pd.DataFrame:
    """Table 4: the same on set 2, longer sentences, at batch 20 and beam 2."""
    return _decoded("joined", ("batch 20, beam 2",), run)


def _decoded(sentences: str, protocols: Sequence[str], run: CorpusRun) -> pd.DataFrame:
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    rows: list[dict[str, Any]] = []
    for direction in recorded.fit.directions[: amount.directions]:
        pairs = pairs_of(direction, sentences, run)
        texts, references = [a for a, _ in pairs], [b for _, b in pairs]
        screen = screen_of(run, direction, amount.clusters, amount.top)
        paper_screen = screen_of(run, direction, amount.paper_clusters, 1)
        projections: dict[str, Projection] = {
            "exact": recorded.loaded.exact,
            "clustered": ScreenScorer(screen, recorded.matrix),
            "clustered, shared": ScreenScorer(screen, recorded.matrix, shared=True),
            "clustered, the paper's choice": ScreenScorer(paper_screen, recorded.matrix),
        }
        constraints = limited(recorded, direction, run.scale).constraints
        for protocol in protocols:
            batch, beam = PROTOCOLS[protocol]
            systems = [
                batch_system(name, recorded.loaded.network, Beam(size=beam), projection, constraints)
                for name, projection in projections.items()
            ]
            parts = batches(recorded.loaded, texts, direction.split("-"), batch)
            timings = run.measure(systems, spread_over(parts, -(-amount.timed // batch)), runs=amount.rounds)
            exact: list[Any] = []
            for system, m in zip(systems, timings, strict=True):
                outputs = decoded(system, parts)
                exact = exact or outputs
                rows.append(
                    {
                        **keyed(direction=direction, method=m.name, protocol=protocol),
                        "sentences": len(texts),
                        **quality_of(recorded.loaded.texts(texts, outputs), references),
                        "identical": same_share(outputs, exact),
                        **speedup_of(timings[0], m),
                    }
                )
    return table_on([*rows, *_printed(sentences)], run, [recorded])


def _printed(sentences: str) -> Iterator[dict[str, Any]]:
    """Rows of the paper's table 3 or 4."""
    for model, number in (("dense", 0), ("m3", 1)):
        for direction in amer_2022.DIRECTIONS:
            by_protocol = (
                dict(zip(PROTOCOLS, amer_2022.TABLE_3[model][direction], strict=True))
                if sentences == "single"
                else {"batch 20, beam 2": amer_2022.TABLE_4[direction][number]}
            )
            for protocol, (exact, clustered, gain) in by_protocol.items():
                yield {
                    **keyed(direction=direction, method=model, protocol=protocol),
                    "paper_bleu_exact": exact,
                    "paper_bleu": clustered,
                    "paper_speedup": None if gain is None else 1 + gain / 100,
                    "kind": "paper",
                }


@experiment
def table5(run: CorpusRun) -> pd.DataFrame:
    """Table 5: megabytes of the output matrix, and what clusters add: centroids, sets, and copies of the sets' rows."""
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    rows: list[dict[str, Any]] = []
    for direction in recorded.fit.directions[: amount.directions]:
        screen = screen_of(run, direction, amount.clusters, amount.top)
        scorer = ScreenScorer(screen, recorded.matrix)
        sets_bytes = screen.points.nbytes + screen.sets.ids.astype(np.uint16).nbytes + screen.sets.offsets.nbytes
        rows.append(
            {
                "name": direction,
                "output_megabytes": recorded.matrix.memory_bytes / 1e6,
                "sets_megabytes": sets_bytes / 1e6,
                "with_copies_megabytes": scorer.memory_bytes / 1e6,
            }
        )
    rows += paper_rows(amer_2022.TABLE_5, "paper_gigabytes", "paper_gigabytes_with")
    return table_on(rows, run, [recorded])


@experiment
def figure2(run: CorpusRun) -> pd.DataFrame:
    """Figure 2: the largest active share of a cluster against their number, clusters of the pair and of the target language."""
    recorded, rows = situation(NAME, run), []
    target, (hidden, _) = SWEPT.split("-")[1], arrays(recorded.test.where(direction=SWEPT))
    for name, group in ((SWEPT, "direction"), (target, "target")):
        for clusters in AMOUNTS[run.scale].swept:
            screen = screen_of(run, name, clusters, 1)
            shares = screen.sets.sizes / recorded.matrix.shape[0]
            assigned = np.bincount(screen.assign(hidden), minlength=clusters)
            rows.append(
                {
                    "name": f"{group}, {clusters} clusters",
                    "group": group,
                    "clusters": clusters,
                    "largest_share": float(shares[np.diff(screen.sets.offsets) > 0].max()),
                    "mean_share": float((shares * assigned).sum() / assigned.sum()),
                    "contexts": int(screen.about["contexts"]),
                }
            )
    rows += [
        {
            "name": f"{group}, paper",
            "group": f"paper: {group}",
            "clusters": 400,
            "paper_largest_share": percent / 100,
            "kind": "paper",
        }
        for group, percent in amer_2022.FIGURE_2.items()
    ]
    return table_on(rows, run, [recorded])


@experiment
def figure3(run: CorpusRun) -> pd.DataFrame:
    """Figure 3: gain in whole decoding against the number of clusters, for K = 1, 3, 5 labels, at batch 1 and beam 1."""
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    constraints = limited(recorded, SWEPT, run.scale).constraints
    texts = [a for a, _ in spread_over(pairs_of(SWEPT, "single", run), amount.timed)]
    settings = [(clusters, top) for clusters in amount.swept for top in (1, 3, 5)]
    projections: dict[str, Projection] = {"exact": recorded.loaded.exact}
    for clusters, top in settings:
        screen = screen_of(run, SWEPT, clusters, top)
        projections[f"{clusters} clusters, K = {top}"] = ScreenScorer(screen, recorded.matrix)
    network = recorded.loaded.network
    systems = [batch_system(name, network, Beam(size=1), p, constraints) for name, p in projections.items()]
    parts = batches(recorded.loaded, texts, SWEPT.split("-"), 1)
    timings = run.measure(systems, parts, runs=amount.rounds)
    rows = [
        {
            "name": m.name,
            "group": f"K = {top}",
            "clusters": clusters,
            **speedup_of(timings[0], m),
            "identical": m.agreement(timings[0]),
        }
        for (clusters, top), m in zip(settings, timings[1:], strict=True)
    ]
    return table_on(rows, run, [recorded])


@experiment
def figure4(run: CorpusRun) -> pd.DataFrame:
    """Figure 4: the active share of every cluster, largest first, for K = 1, 3, 5."""
    recorded, rows = situation(NAME, run), []
    for top in (1, 3, 5):
        sets = screen_of(run, SWEPT, AMOUNTS[run.scale].clusters, top).sets
        shares = np.sort(np.diff(sets.offsets))[::-1] / recorded.matrix.shape[0]
        rows += [
            {
                "name": f"K = {top}, cluster {rank}",
                "group": f"K = {top}",
                "cluster": rank,
                "share": float(share),
            }
            for rank, share in enumerate(shares)
        ]
    return table_on(rows, run, [recorded])


@experiment
def table6(run: CorpusRun) -> pd.DataFrame:
    """Table 6: the outputs that differ, which raters would see in a `ratings.Study`, and the ratings of the paper's raters."""
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    rows: list[dict[str, Any]] = []
    for direction in recorded.fit.directions[: amount.directions]:
        texts = [a for a, _ in pairs_of(direction, "single", run)]
        screen = screen_of(run, direction, amount.clusters, amount.top)
        session = limited(recorded, direction, run.scale)
        exact, clustered = (
            recorded.loaded.texts(texts, [h.tokens for h in replace(session, projection=projection).decode(texts)])
            for projection in (recorded.loaded.exact, ScreenScorer(screen, recorded.matrix))
        )
        differing = sum(a != b for a, b in zip(exact, clustered, strict=True))
        row = {"segments": len(texts), "differing": differing, "identical": 1 - differing / len(texts)}
        rows.append({"name": direction} | row)
    rows += paper_rows(amer_2022.TABLE_6, "paper_exact", "paper_clustered", "paper_mark", suffix=", paper")
    return table_on(rows, run, [recorded])


@experiment
def sharing(run: CorpusRun) -> pd.DataFrame:
    """Effect of a union over the batch on outputs: how many change with the batch, and with parallel decoding.

    Sentences of each direction are decoded alone, in batches of 20, and in batches of 7: where every row has its own set, the
    output is always the same. There, too, a window of draft tokens gives greedy decoding's tokens by law; where a pass shares one
    set, it need not.
    """
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    rows: list[dict[str, Any]] = []
    for direction in recorded.fit.directions[: amount.directions]:
        screen = screen_of(run, direction, amount.clusters, amount.top)
        texts = [a for a, _ in pairs_of(direction, "joined", run)]
        session = limited(recorded, direction, run.scale)
        for shared in (False, True):
            greedy = replace(session, projection=ScreenScorer(screen, recorded.matrix, shared=shared))
            alone = [h.tokens for h in greedy.decode(texts, batch=1, threads=1)]
            in_twenties = [h.tokens for h in greedy.decode(texts, batch=20, threads=1)]
            in_sevens = [h.tokens for h in greedy.decode(texts, batch=7, threads=1)]
            window = replace(greedy, decoder=registry.decoder("window:width=5,draft=recycled/pad"))
            drafted = [h.tokens for h in window.decode(texts, batch=1, threads=1)]
            rows.append(
                {
                    **keyed(direction=direction, method="union" if shared else "own sets"),
                    "together_as_alone": same_share(in_twenties, alone),
                    "otherwise_together_as_alone": same_share(in_sevens, alone),
                    "window_as_greedy": same_share(drafted, alone),
                    "sentences": len(texts),
                }
            )
    return table_on(rows, run, [recorded])


@experiment
def figure1(run: Run) -> pd.DataFrame:
    """Figure 1: a hidden vector is assigned to its cluster, and only its tokens are scored; with the bundled clusters."""
    session = Session.of(_model(), "en", "de", projection="clustered")
    trace = session.translate(own_pairs("en", "de")[0][0], verify=True).trace
    rows = [
        {
            "name": f"slot {row['slot']}",
            "token": row["token"],
            "cluster": int(iteration.cluster[place]),
            "active": int(iteration.num_active[place]),
        }
        for row, iteration, place in slots_of(trace)
        if iteration.cluster is not None and iteration.num_active is not None
    ]
    return table_on(rows, run, traces={"clusters": trace})


def table_on(rows: Any, run: Run, situations: Iterable[Situation] = (), **facts: Any) -> pd.DataFrame:
    """Rows as a table with its provenance, which has the numbers of contexts of the situations."""
    return table_of(rows, run, _model(), contexts=context_counts(situations), **facts)


@cache
def _model() -> TranslationModel:
    return load(trained(MODELS[NAME]), device="cpu", engine="compiled")
