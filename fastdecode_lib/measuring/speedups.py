"""The fastest way to decode a text with a model on this machine; outputs are compared with those of greedy decoding."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.combinations import Combination, combinations, named
from fastdecode_lib.measuring.comparing import parts_of, rows_of, text_system
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import measure, median_ratio, noisy, ratio_of, stopwatch

if TYPE_CHECKING:
    import pandas as pd

DECODERS = (
    "greedy",
    "auto",
    *(f"window:width={width},draft=ngram+lexicon" for width in (2, 3, 4, 5)),
    *(f"window:width={width},draft=ngram+lexicon+head" for width in (3, 4, 5)),
)
SCREENING_ROUNDS = 3
"""Rounds in which all combinations are timed."""
FINALISTS = 3
"""How many combinations of each kind are timed longer: the fastest of the first rounds."""
ROUNDS = 9
"""Rounds in which they are."""
SURE = ("greedy", "auto")
"""Decoders whose lossless combinations are timed longer whatever the first rounds say, which other load disturbs."""
MORE = 3
"""How many times as many rounds there are where the times are noisy, if there is time for them."""
RISK = 0.05
"""Chance that a lower bound is too high: it holds with 95% confidence."""


def fastest(
    models: Mapping[str, TranslationModel],
    texts: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    near: float = 0.95,
    more: Sequence[str] = (),
    decoders: Sequence[str] = DECODERS,
    batch: int = 1,
    threads: int = 1,
    seed: int = 0,
    seconds: float = math.inf,
    say: Callable[[str], None] = lambda note: None,
    progress: bool = False,
    **limits: Any,
) -> tuple["pd.DataFrame", dict[str, str | None]]:
    """Time decoders with the exact projections in every precision, in batches of `batch`, `threads` of them at a time.

    All combinations are timed briefly. The fastest of those that change no output, and of those that change few outputs, are
    timed again together with greedy decoding, and only these times count; where they are noisy, in up to three times as many
    rounds. Then the outputs of the fastest that change few are compared on more sentences.

    Parameters
    ----------
    models : mapping of precision to TranslationModel
        The same weights, the most precise first; its greedy decoding is the baseline.
    texts : sequence of str
        Sentences with content.
    near : float
        Share of outputs identical to greedy decoding's that a nearly lossless combination must keep with 95% confidence.
    more : sequence of str
        Further sentences, on which outputs of nearly lossless combinations are compared, untimed.
    seconds : float
        Time for all rounds together, as far as those for noisy times can be left out.
    say : callable
        Takes a note on what is begun after the first rounds.

    Returns
    -------
    DataFrame
        A row per combination that runs, those timed again before the others, the fastest first: ``name, decoder, projection,
        precision, speedup``, for those timed again ``speedup_low, speedup_high``; ``unchanged``: share of outputs identical to the
        baseline's; ``lossless``: whether all outputs are those of greedy decoding in the same precision; ``note``; ``sentences``:
        number of outputs compared; ``unchanged_low``: share that is `surely` unchanged.
    dict
        Name of the fastest lossless combination by precision, greedy decoding if none is faster; under ``"near"`` the fastest
        nearly lossless combination, None if the lossless one in the first precision is as fast.
    """
    candidates = combinations(models, source, target, decoders, registry.EXACT, texts[0], **limits)
    sessions = {c.name: c.session for c in candidates if c.session is not None}
    baseline = _baseline(candidates, models, decoders)
    session = sessions[baseline]

    def timed(names: Sequence[str], rounds: int) -> dict[str, Measurement]:
        systems = [text_system(sessions[name], name, batch=batch, threads=threads) for name in names]
        parts = parts_of(session.model.encode(texts, session.source, session.target), batch=batch, threads=threads)
        device = session.model.device
        measured = measure(systems, parts, runs=rounds, threads=threads, device=device, seed=seed, progress=progress)
        return dict(zip(names, measured, strict=True))

    screening = timed(list(sessions), SCREENING_ROUNDS)
    screened = _rows([c for c in candidates if c.session is not None], screening, baseline)
    finalists = _finalists(screened, models, near)
    say(f"timing {len(finalists)} combinations in {ROUNDS} more rounds")
    final = timed(finalists, ROUNDS)
    table, choices = _decided(screened, final, models)
    brief, each = (sum(m.seconds.mean() for m in measured.values()) for measured in (screening, final))
    left = seconds - (SCREENING_ROUNDS + 1) * brief - (ROUNDS + 1) * each  # warm-ups, too
    rounds = int(min((MORE - 1) * ROUNDS, left / each - 1))
    if table["note"].str.contains("noisy").any() and rounds > 0:
        say(f"the times are noisy: {rounds} more rounds, about {(rounds + 1) * each:.0f} s")
        again = timed(finalists, rounds)
        final = {name: replace(m, seconds=np.append(m.seconds, again[name].seconds)) for name, m in final.items()}
        table, choices = _decided(screened, final, models)

    def outputs(name: str) -> list[Any]:
        return [h.tokens for h in sessions[name].decode(more, batch=batch, threads=threads, progress=progress)]

    for name in _close(table, final, choices, near):
        if more:
            say(f"comparing outputs of {name} on {len(more)} more sentences")
            _add_compared(table, name, same_share(outputs(name), outputs(baseline)), len(more))
        if (table.loc[table["name"] == name, "unchanged_low"] >= near).all():
            return table, choices | {"near": name}
    return table, choices


def undecided(table: "pd.DataFrame", choices: Mapping[str, str | None]) -> list[str]:
    """The precisions whose lossless choice is noisy, or is greedy decoding where a noisy combination may be faster."""
    rows = table.set_index("name")
    noisy_rows = rows[rows["note"].str.contains("noisy") & rows["lossless"]]
    found = []
    for precision in [p for p in choices if p != "near"]:
        name = choices[precision]
        may_be_as_fast = noisy_rows["speedup_high"] >= rows.loc[name, "speedup_low"]
        rivals = noisy_rows[(noisy_rows["precision"] == precision) & may_be_as_fast].index
        if name in rivals or (name == named("greedy", "exact", precision) and len(rivals)):
            found.append(precision)
    return found


def surely(kept: int, number: int) -> float:
    """The share of all outputs that is unchanged with 95% confidence if `kept` of `number` are (Clopper and Pearson, 1934)."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(kept, number, middle) <= RISK else (low, middle)
    return low


def _may_keep(table: "pd.DataFrame", near: float) -> np.ndarray:
    """Whether outputs compared so far leave it open, with 95% confidence, that a share of `near` is unchanged."""
    rows = zip(table["unchanged"], table["sentences"], strict=True)
    return np.array([1 - surely(round((1 - unchanged) * number), number) >= near for unchanged, number in rows])


def enough(kept: int, number: int, near: float, most: int) -> int | None:
    """The fewest outputs that show that a share of `near` is unchanged if changes stay as frequent; None above `most`."""
    numbers = range(number, most + 1) if near < 1 else ()
    return next((n for n in numbers if _chance(n * kept // number, n, near) <= RISK), None)


def _chance(kept: int, number: int, share: float) -> float:
    """Chance that at least `kept` of `number` outputs are unchanged if a `share` of all is, above 0 and below 1."""
    logarithms = (
        math.lgamma(number + 1) - math.lgamma(c + 1) - math.lgamma(number - c + 1)
        + c * math.log1p(-share) + (number - c) * math.log(share)
        for c in range(number - kept + 1)
    )  # fmt: skip
    return sum(map(math.exp, logarithms))


def _baseline(candidates: Sequence[Combination], models: Mapping[str, Any], decoders: Sequence[str]) -> str:
    """Greedy decoding in the first precision; an error if it does not run in all of them."""
    by_name = {c.name: c for c in candidates}
    plain = [named("greedy", "exact", precision) for precision in models]
    for name in plain:
        if name not in by_name:
            raise ValueError(
                f"Greedy decoding is what others are compared with: got decoders {', '.join(decoders)}. Add greedy."
            )
        if by_name[name].session is None:
            raise ValueError(by_name[name].refused)
    return plain[0]


def _finalists(table: "pd.DataFrame", models: Mapping[str, Any], near: float) -> list[str]:
    """What is timed again: greedy decoding, the fastest of each kind, and decoders that are `SURE` to be."""
    finalists = [named("greedy", "exact", precision) for precision in models]
    kinds = [table["lossless"] & (table["precision"] == precision) for precision in models]
    for kind in (*kinds, ~kinds[0] & _may_keep(table, near)):
        finalists += table[kind]["name"][:FINALISTS].tolist()
    finalists += table[table["lossless"] & table["decoder"].isin(SURE)]["name"].tolist()
    return list(dict.fromkeys(finalists))


def _decided(
    screened: "pd.DataFrame", final: Mapping[str, Measurement], models: Mapping[str, Any]
) -> tuple["pd.DataFrame", dict[str, str | None]]:
    """The table with the longer timings, sorted, and the fastest lossless combination of each precision."""
    table = screened.copy()
    for name, measurement in final.items():
        _add_times(table, name, final[named("greedy", "exact", next(iter(models)))], measurement)
    table = table.sort_values("speedup", ascending=False)
    table = table.sort_values("speedup_low", key=lambda low: low.isna(), kind="stable", ignore_index=True)
    return table, {p: _best_lossless(table, final, p) for p in models} | {"near": None}


def _close(
    table: "pd.DataFrame", final: Mapping[str, Measurement], choices: Mapping[str, Any], near: float
) -> list[str]:
    """The fastest combination of each precision that may change few outputs and is faster than the first choice without loss.

    One of each, because combinations that keep the outputs of their precision all change the same ones.
    """
    first, best = next(iter(choices.items()))
    rows = table[table["name"].isin(list(final)) & _may_keep(table, near)]
    rows = rows[~(rows["lossless"] & (rows["precision"] == first))].sort_values("speedup_low", ascending=False)
    faster = [name for name in rows["name"] if _faster(final[best], final[name])]
    return rows[rows["name"].isin(faster)].drop_duplicates("precision")["name"].tolist()


def _rows(combinations: Sequence[Combination], screening: Mapping[str, Measurement], baseline: str) -> "pd.DataFrame":
    import pandas as pd

    outputs = {name: rows_of(m.outputs) for name, m in screening.items()}
    number = len(outputs[baseline])
    rows = []
    for c in combinations:
        name, greedy_outputs = c.name, outputs[named("greedy", "exact", c.precision)]
        unchanged = same_share(outputs[name], outputs[baseline])
        rows.append(
            {
                "name": name,
                "decoder": c.decoder,
                "projection": c.projection,
                "precision": c.precision,
                "speedup": median_ratio(screening[baseline].seconds, screening[name].seconds),
                "speedup_low": np.nan,
                "speedup_high": np.nan,
                "unchanged": unchanged,
                "unchanged_low": surely(round(unchanged * number), number),
                "sentences": number,
                "lossless": c.keeps_outputs and outputs[name] == greedy_outputs,
                "note": "differs by rounding" if c.keeps_outputs and outputs[name] != greedy_outputs else "",
            }
        )
    return pd.DataFrame(rows).sort_values("speedup", ascending=False, ignore_index=True)


def _add_times(table: "pd.DataFrame", name: str, baseline: Measurement, measurement: Measurement) -> None:
    """Write the speedup of the longer timing into the table."""
    ratio = ratio_of("speedup", baseline.seconds, measurement.seconds)
    row = table["name"] == name
    table.loc[row, list(ratio)] = list(ratio.values())
    if noisy(*ratio.values()):
        table.loc[row, "note"] = (table.loc[row, "note"] + " noisy").str.strip()


def _add_compared(table: "pd.DataFrame", name: str, share: float, number: int) -> None:
    """Count in a share of unchanged outputs on `number` more sentences."""
    row = table["name"] == name
    before = int(table.loc[row, "sentences"].iloc[0])
    kept = round(float(table.loc[row, "unchanged"].iloc[0]) * before) + round(share * number)
    table.loc[row, "sentences"] = before + number
    table.loc[row, ["unchanged", "unchanged_low"]] = kept / (before + number), surely(kept, before + number)


def _best_lossless(table: "pd.DataFrame", final: Mapping[str, Measurement], precision: str) -> str:
    """The fastest lossless combination of a precision by the lower ends of intervals, if it is faster than greedy decoding."""
    greedy = named("greedy", "exact", precision)
    timed = table[table["lossless"] & (table["precision"] == precision) & table["name"].isin(list(final))]
    best = str(timed.sort_values("speedup_low", ascending=False)["name"].iloc[0]) if len(timed) else greedy
    return best if _faster(final[greedy], final[best]) else greedy


def _faster(slow: Measurement, fast: Measurement) -> bool:
    """Whether one measurement is significantly faster than another."""
    ratio = ratio_of("speedup", slow.seconds, fast.seconds)
    return ratio["speedup"] > 1 and not ratio["speedup_low"] <= 1


def seconds_each(session: Any, texts: Sequence[str], batch: int, threads: int = 1) -> float:
    """Seconds for each sentence, decoded in batches after compilation."""
    session.decode(texts[:2], batch=batch, threads=threads)
    seconds, _ = stopwatch(lambda batch_texts: session.decode(batch_texts, batch=batch, threads=threads), [list(texts)])
    return seconds / len(texts)
