"""Chen et al.'s tables of whole outputs; one file because all choose their screen at the precision of table 2.

Each method is used at its cheapest setting whose precisions on the dev split are at least those of the paper's table 2; for
perplexity, at its cheapest setting that raises perplexity on the dev split by no more than in the paper.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Projection, drain
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.quality import same_share, signatures
from fastdecode_lib.measuring.referee import System
from fastdecode_lib.papers.learning_to_screen import printed as chen_2019
from fastdecode_lib.papers.learning_to_screen.tables import learned, table_on, trained_of
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, gap
from fastdecode_lib.papers.shared.contexts_of import Situation, arrays, situation
from fastdecode_lib.papers.shared.projection_runs import (
    BASELINE,
    GRIDS,
    Captured,
    Screens,
    Setting,
    first_of,
    precision_judge,
    projection_system,
    reaching,
)
from fastdecode_lib.papers.shared.rivals import JUDGED_ON, rival_settings, with_end
from fastdecode_lib.papers.shared.rows import keyed, median, quality_of, ratio_of, speedup_of, times_as_fast
from fastdecode_lib.projections.ann_indexes import Fgd
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.quantised import Quantised
from fastdecode_lib.projections.tail import WithTail, low_rank
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.sentences import EXAMPLES, own_pairs
from fastdecode_lib.translation import Session

BEAMS = (1, 5)
EXAMPLE_ROWS = 10
"""Most translations in table 8."""


@dataclass(frozen=True)
class Amount:
    """Sentences decoded for quality and for time, rounds of timing, and the most tokens of an output."""

    sentences: int
    timed: int
    rounds: int
    longest: int | None = None


AMOUNTS = {Scale.TINY: Amount(6, 2, 2, 12), Scale.LAPTOP: Amount(1_000, 60, 9), Scale.PAPER: Amount(20_000, 200, 11)}


def _screens(recorded: Situation, run: Run) -> list[Setting]:
    """Learned screens, in ascending order of the tokens that they score."""
    grid = GRIDS[run.scale]
    screens, budgets = Screens(recorded), [budget for budget in grid.budgets if budget < recorded.matrix.shape[0]]
    return [learned(screens, budget, grid.options, run.seed) for budget in budgets]


@cache
def _setting_at_paper_precision(name: str, method: str, run: CorpusRun) -> tuple[Setting, Projection]:
    """A method's setting on one model, at the precisions of the paper's table 2."""
    recorded = situation(name, run)
    _, at_1, at_5 = chen_2019.TABLE_2.get(name, chen_2019.TABLE_2["translation"])[method]
    if method == "screened":
        return reaching(_screens(recorded, run), recorded, at_1, at_5)
    judge = precision_judge(recorded, at_1, at_5, JUDGED_ON)
    rivals = rival_settings(recorded, GRIDS[run.scale], lambda _: judge, run.seed, methods=(method,))
    return reaching(rivals, recorded, at_1, at_5)


def _decoding(name: str, method: str, run: CorpusRun) -> tuple[str, Projection]:
    """Setting and projection for translations, with the end of the sentence among the candidates of every step."""
    recorded = situation(name, run)
    if method == "exact":
        return "exact", recorded.loaded.exact
    setting, projection = _setting_at_paper_precision(name, method, run)
    return setting.label, with_end(projection, recorded.loaded.constraints().end)


# --------------------------------------------------------------------------------------------------------- translation


@experiment
def table3(run: CorpusRun) -> pd.DataFrame:
    """Table 3: BLEU, greedily and with a beam of 5, and the time of the projection alone and of all decoding.

    Both speedups are over our own exact kernel in float32, not over numpy. For ``projection_speedup``, the hidden vectors of every
    step of exact decoding are kept and scored again. ``identical`` is the share of outputs that are the exact projection's.
    """
    rows: list[dict[str, Any]] = []
    for name, printed in chen_2019.TABLE_3.items():
        try:
            measured = {(row["method"], row["beam"]): row for row in _decoded(name, run)}
        except NoResult as missing:
            measured = {key: gap(missing) for key in printed}
        for (method, beam), (speedup, bleu) in printed.items():
            row = {"name": f"{name}, {method}, beam {beam}", "set": name, "method": method, "beam": beam}
            paper = {"paper_projection_speedup": speedup, "paper_bleu": bleu}
            rows.append(row | measured[method, beam] | paper)
    baseline = "our exact projection in float32"
    return table_on(rows, run, trained_of(chen_2019.TABLE_3, run), baseline=baseline, **signatures())


def _decoded(name: str, run: CorpusRun) -> Iterator[dict[str, Any]]:
    """Rows of one model: every method at every beam."""
    recorded, amount = situation(name, run), AMOUNTS[run.scale]
    loaded, (source, target) = recorded.loaded, recorded.direction.split("-")
    pairs = run.pairs(source, target)
    # in a tiny run, the third of our own sentences that nothing is fitted on
    pairs = spread_over(pairs[2::3] if run.tiny else pairs, amount.sentences)
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    sources = [loaded.encode([text], source, target) for text in spread_over(texts, amount.timed)]
    by_method = {m: _decoding(name, m, run) for m in ("exact", "fgd", "screened")}
    for beam in BEAMS:
        k = 1 if beam == 1 else (1 + len(loaded.constraints().end)) * beam
        decoder = "greedy" if beam == 1 else f"beam:size={beam}"
        projections = {m: _with_neighbours(k, *setting) for m, setting in by_method.items()}
        sessions = {
            method: Session.of(loaded, source, target, decoder, projection, max_length=amount.longest)
            for method, (_, projection) in projections.items()
        }
        exact = sessions["exact"]
        captured: Any = Captured(loaded.exact)
        for sentence in sources:
            drain(exact.decoder.iterate(loaded.network, captured, sentence, exact.constraints))
        systems = [
            projection_system(m, projection, k, normalise=beam > 1) for m, (_, projection) in projections.items()
        ]
        steps = run.measure(systems, captured.captured, runs=amount.rounds)
        systems = [decoder_system(session, method) for method, session in sessions.items()]
        decodings = run.measure(systems, sources, runs=amount.rounds)
        outputs = {m: [h.tokens for h in session.decode(texts)] for m, session in sessions.items()}
        for (method, (setting, _)), step, decoding in zip(projections.items(), steps, decodings, strict=True):
            yield {
                "method": method,
                "beam": beam,
                "setting": setting,
                "model": recorded.model,
                "sentences": len(texts),
                **quality_of(loaded.texts(texts, outputs[method]), references),
                "identical": same_share(outputs[method], outputs["exact"]),
                **ratio_of("projection_speedup", steps[0].seconds, step.seconds),
                **ratio_of("speedup", decodings[0].seconds, decoding.seconds),
            }


def _with_neighbours(k: int, label: str, projection: Projection) -> tuple[str, Projection]:
    """Setting and projection; FGD's graph is set to find at least the k tokens that the decoder needs."""
    if not isinstance(projection, Fgd) or projection.neighbours >= k:
        return label, projection
    label = label.replace(f"neighbours={projection.neighbours},", f"neighbours={k},")
    return label, replace(projection, neighbours=k)


@experiment
def table8(run: CorpusRun) -> pd.DataFrame:
    """Table 8: translations of our own sentences with the full projection and with L2S, where they differ."""
    recorded = situation("translation", run)
    source, target = recorded.direction.split("-")
    pairs = own_pairs(source, target)[: 12 if run.tiny else None]
    texts = [text for text, _ in pairs]
    frame = pd.DataFrame(pairs, columns=["source", "reference"])
    for method in ("exact", "screened"):
        _, projection = _decoding("translation", method, run)
        session = Session.of(
            recorded.loaded, source, target, projection=projection, max_length=AMOUNTS[run.scale].longest
        )
        frame[method] = recorded.loaded.texts(texts, [hypothesis.tokens for hypothesis in session.decode(texts)])
    same = frame["exact"] == frame["screened"]
    examples = (
        frame.assign(same_text=same.mean(), model=recorded.model)[~same].head(EXAMPLE_ROWS).reset_index(drop=True)
    )
    examples.insert(0, "name", [f"example {i}" for i in range(1, len(examples) + 1)])
    return table_on(examples, run, [recorded])


@experiment
def figure1(run: CorpusRun) -> pd.DataFrame:
    """Figure 1: the method on one sentence: a row for each step, with the cluster of the hidden vector and the cluster's words."""
    recorded = situation("translation", run)
    source, target = recorded.direction.split("-")
    text = next(example[2] for example in EXAMPLES if example[:2] == (source, target))
    setting, projection = _decoding("translation", "screened", run)
    session = Session.of(recorded.loaded, source, target, projection=projection, max_length=AMOUNTS[run.scale].longest)
    trace = session.translate(text, verify=True).trace
    rows = []
    for number, iteration in enumerate(trace.iterations, 1):
        assert iteration.cluster is not None
        cluster = int(iteration.cluster[0])
        description = trace.clusters[cluster]
        rows.append(
            {
                "name": f"pass {number}",
                "token": trace.pieces[int(iteration.tokens[0])],
                "cluster": cluster,
                "active": description["size"],
                "active_share": description["size"] / recorded.matrix.shape[0],
                "words": " ".join(trace.pieces[token] for token in description["tokens"][:8]),
                "setting": setting,
            }
        )
    return table_on(rows, run, [recorded], traces={"screened": trace})


# ---------------------------------------------------------------------------------------------------------- perplexity


@experiment
def table6(run: CorpusRun) -> pd.DataFrame:
    """Table 6: perplexity of the words that came next, and the time to score one word.

    FGD and L2S score tokens outside of their sets by a matrix of low rank; SVD and adaptive softmax have probabilities of the whole
    vocabulary. Further rows are numpy, the baseline of the speedups, our exact kernel, and the lossless byte scores. ``reached`` is
    False where no setting raises perplexity as little as in the paper, and the setting that raises it least is shown.
    """
    rows: list[dict[str, Any]] = []
    for name, printed in chen_2019.TABLE_6.items():
        try:
            measured = {row["method"]: row for row in _perplexities(name, run)}
        except NoResult as missing:
            measured = {method: gap(missing) for method in printed}
        for method, row in measured.items():
            paper = dict(zip(("paper_speedup", "paper_perplexity"), printed.get(method, (None, None)), strict=True))
            rows.append(keyed(set=name, method=method) | row | paper)
    baseline = "numpy's product of the matrix with one vector, and its softmax"
    return table_on(rows, run, trained_of(chen_2019.TABLE_6, run), baseline=baseline)


def _perplexities(name: str, run: CorpusRun) -> Iterator[dict[str, Any]]:
    """Rows of one model: numpy, then every method, timed in turn."""
    recorded, grid, printed = situation(name, run), GRIDS[run.scale], chen_2019.TABLE_6[name]
    dev, (hidden, gold) = arrays(recorded.dev, "gold"), arrays(recorded.test, "gold")
    rank = min(chen_2019.TAIL_RANKS[name], *recorded.matrix.shape)
    exact = CompiledExact(recorded.matrix)
    exact_perplexity = perplexity(exact, *dev)
    methods: dict[str, tuple[str, Projection]] = {"exact": ("exact", exact)}
    methods["quantised"] = "quantised", Quantised(recorded.matrix)
    reached: dict[str, bool] = {}
    factors = low_rank(recorded.weight, recorded.bias, rank)
    for method in ("svd", "adaptive", "fgd", "screened"):
        limit = exact_perplexity * printed[method][1] / printed["exact"][1]
        tail = factors if method in ("fgd", "screened") else None
        setting, projection, reached[method] = _setting_below_perplexity(limit, method, recorded, dev, tail, run)
        methods[method] = setting.label, projection
    timed_rows = np.linspace(0, len(gold) - 1, min(grid.timed, len(gold))).astype(int)
    pairs: Any = [(np.ascontiguousarray(hidden[i : i + 1]), gold[i : i + 1, None].astype(np.int64)) for i in timed_rows]
    systems = [_numpy_system(recorded.weight, recorded.bias)]
    systems += [_scoring_system(method, projection) for method, (_, projection) in methods.items()]
    timings = run.measure(systems, pairs, runs=grid.rounds)
    methods = {BASELINE: methods["exact"]} | methods
    for (method, (label, projection)), m in zip(methods.items(), timings, strict=True):
        yield {
            "method": method,
            "setting": label,
            "reached": reached.get(method, True),
            "model": recorded.model,
            "contexts": len(gold),
            "tail_rank": rank if isinstance(projection, WithTail) else 0,
            "perplexity": perplexity(projection, hidden, gold),
            "microseconds": 1e6 * median(m) / len(pairs),
            **speedup_of(timings[0], m),
            "over_exact": times_as_fast(timings[1], m),
        }


def _setting_below_perplexity(
    limit: float,
    method: str,
    recorded: Situation,
    dev: tuple[np.ndarray, np.ndarray],
    tail: tuple[Matrix, Matrix] | None,
    run: Run,
) -> tuple[Setting, Projection, bool]:
    """The first setting of a method whose perplexity is at most a limit: see `first_of`.

    With a `tail`, a matrix of low rank scores the tokens that the method leaves out.
    """

    def whole(projection: Projection) -> Projection:
        return WithTail(projection, *tail) if tail else projection

    def judge(projection: Projection) -> tuple[bool, float]:
        value = perplexity(whole(projection), *dev)
        return value <= limit, -value

    if method == "screened":
        settings = _screens(recorded, run)
    else:
        grid = GRIDS[run.scale]
        settings = rival_settings(recorded, grid, lambda _: judge, run.seed, methods=(method,), whole_vocabulary=True)
    setting, projection, good_enough = first_of(settings, judge)
    return setting, whole(projection), good_enough


def perplexity(projection: Projection, hidden: np.ndarray, gold: np.ndarray) -> float:
    """The exponential of the mean negative log-probability of tokens (N,) after hidden vectors (N, D)."""
    scorer = projection.bind(None)
    parts = [
        scorer.log_probs(hidden[start : start + 4_096], gold[start : start + 4_096, None])
        for start in range(0, len(gold), 4_096)
    ]
    return float(np.exp(-np.concatenate(parts).mean(dtype=np.float64)))


def numpy_log_prob(weight: np.ndarray, bias: np.ndarray, hidden: np.ndarray, token: int) -> float:
    """The log-probability of a token after one hidden vector (1, D), by a product and a softmax."""
    scores = weight @ hidden[0] + bias
    scores -= scores.max()
    return float(scores[token] - np.log(np.exp(scores).sum()))


def _numpy_system(weight: np.ndarray, bias: np.ndarray) -> System:
    return System(BASELINE, lambda pair: (numpy_log_prob(weight, bias, pair[0], pair[1][0, 0]),))  # type: ignore[index]


def _scoring_system(name: str, projection: Projection) -> System:
    scorer = projection.bind(None)
    return System(name, lambda pair: tuple(scorer.log_probs(pair[0], pair[1])[0]))  # type: ignore[index]
