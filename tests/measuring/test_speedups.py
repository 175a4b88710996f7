"""The fastest combinations by the clock of a test: what is timed again, what is chosen, and what counts as lossless."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fastdecode_lib import load
from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring import speedups
from fastdecode_lib.measuring.combinations import named
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.speedups import enough, fastest, surely, undecided
from fastdecode_lib.translation import Session

TEXTS = ["The train is late.", "Where did you put my keys?", "It is raining again."]
ASKED: dict[str, Any] = {"source": "en", "target": "de", "max_length": 8}
DECODERS = ("greedy", "window:width=3,draft=recycled/pad", "window:width=3,draft=recycled/pod")


def clock(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], wrong: str = "") -> list[list[str]]:
    """A referee whose times are made up and whose outputs are real, but those of `wrong`; the names of each of its runs."""
    looks: list[list[str]] = []

    def measure(systems: Any, sources: Any, **_: Any) -> list[Measurement]:
        looks.append([one.name for one in systems])
        found = []
        for one in systems:
            outputs = tuple(one.decode(source) for source in sources)
            if wrong and wrong in one.name:
                outputs = tuple(tuple((7, *row) for row in rows) for rows in outputs)
            time = next((value for part, value in seconds.items() if part in one.name), 4.0)
            found.append(Measurement(one.name, np.full(6, time), outputs))
        return found

    monkeypatch.setattr(speedups, "measure", measure)
    return looks


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {precision: load("tatoeba-small", device="cpu", precision=precision) for precision in ("float32", "int8")}


def test_the_fastest_of_each_kind(monkeypatch: pytest.MonkeyPatch, models: dict[str, Any]) -> None:
    looks = clock(monkeypatch, {"pad + exact + int8": 1.0, "pad + quantised": 2.0, "quantised": 3.0})
    table, chosen = fastest(models, TEXTS, decoders=DECODERS, near=0.1, batch=2, **ASKED)
    window = DECODERS[1]
    assert chosen == {
        "float32": named(window, "quantised", "float32"),
        "int8": named(window, "exact", "int8"),
        "near": named(window, "exact", "int8"),
    }
    assert len(looks) == 2 and set(looks[1]) <= set(looks[0]) and not any("pod" in name for name in looks[0])
    rows = table.set_index("name")
    assert rows.loc[chosen["float32"], "speedup"] == 2 and rows.loc[chosen["near"], "speedup_low"] == 4
    assert rows.lossless.all() and (rows[rows.precision == "float32"].unchanged == 1).all()
    assert 0 < rows.loc[chosen["near"], "unchanged"] <= 1, "int8 is compared with float32 as well"
    _, strict = fastest(models, TEXTS, decoders=DECODERS, near=1.0 + 1e-9, **ASKED)
    assert strict["near"] is None


def test_noisy_times_are_taken_again_and_what_is_surely_faster_is_chosen(
    monkeypatch: pytest.MonkeyPatch, models: dict[str, Any]
) -> None:
    """A window that is mostly faster, and sometimes much slower, is not chosen; `quantised` is timed although it seemed slow."""
    rounds: list[int] = []
    window, quantised = (named(d, "quantised", "float32") for d in (DECODERS[1], "greedy"))

    def measure(systems: Any, sources: Any, *, runs: int, **_: Any) -> list[Measurement]:
        rounds.append(runs)
        times = {window: [1.0, 5.0, 1.1], quantised: [9.0] if runs == speedups.SCREENING_ROUNDS else [2.0]}
        return [
            Measurement(
                s.name, np.resize(times.get(s.name, [4.0]), runs), tuple(s.decode(source) for source in sources)
            )
            for s in systems
        ]

    monkeypatch.setattr(speedups, "measure", measure)
    monkeypatch.setattr(speedups, "FINALISTS", 1)
    table, chosen = fastest({"float32": models["float32"]}, TEXTS, decoders=DECODERS, **ASKED)
    assert rounds == [speedups.SCREENING_ROUNDS, 9, 9 * (speedups.MORE - 1)] and chosen["float32"] == quantised
    rows = table.set_index("name")
    assert rows.speedup[window] > rows.speedup[quantised] and "noisy" in rows.note[window]
    assert rows.note[window].count("noisy") == 1 and undecided(table, chosen) == [], "the choice itself is not noisy"
    rounds.clear()
    said: list[str] = []
    first = 4 * (4 + 9 + 2.4 + 4) + 10 * (each := 4 + 2 + 7.1 / 3)
    for extra, more in ((0, []), (4.5 * each, [3])):
        fastest(
            {"float32": models["float32"]}, TEXTS, decoders=DECODERS, seconds=first + extra, say=said.append, **ASKED
        )
        assert rounds == [speedups.SCREENING_ROUNDS, 9, *more]
        rounds.clear()
    assert [note for note in said if "noisy" in note] == ["the times are noisy: 3 more rounds, about 33 s"]


def test_what_is_noisy_is_no_decision() -> None:
    greedy, window, int8 = named("greedy", "exact", "float32"), named("window", "exact", "float32"), "int8"
    columns = ("name", "precision", "lossless", "speedup_low", "speedup_high", "note")

    def precisions(*rows: tuple[str, str, bool, float, float, str], choice: str) -> list[str]:
        table = pd.DataFrame([dict(zip(columns, row, strict=True)) for row in rows])
        return undecided(table, {"float32": choice, "int8": int8, "near": int8})

    plain = (greedy, "float32", True, 1.0, 1.0, "")
    quiet, loud = ((int8, "int8", True, 2.0, 2.5, note) for note in ("", "noisy"))
    assert precisions(plain, (window, "float32", True, 1.1, 1.4, ""), quiet, choice=window) == []
    assert precisions(plain, (window, "float32", True, 1.1, 1.4, "noisy"), loud, choice=window) == ["float32", "int8"]
    assert precisions(plain, (window, "float32", True, 0.9, 1.4, "noisy"), quiet, choice=greedy) == ["float32"]
    assert precisions(plain, (window, "float32", True, 0.5, 0.9, "noisy"), quiet, choice=greedy) == []


@pytest.mark.parametrize("changed", [0, 1, 2, 30])
def test_little_loss_must_be_sure(monkeypatch: pytest.MonkeyPatch, models: dict[str, Any], changed: int) -> None:
    """Few outputs, all unchanged, show nothing: those of more sentences decide, and they are not timed."""
    clock(monkeypatch, {"pad + exact + int8": 1.0, "int8": 2.0, "quantised": 3.0})
    int8, decode = models["int8"], Session.decode

    def made_up(self: Session, texts: Any, **options: Any) -> list[Any]:
        assert len(texts) == len(more) and options["batch"] == 1
        changes = changed if self.model is int8 else 0
        return [replace(decode(self, TEXTS[:1])[0], tokens=(int(i < changes), 9)) for i in range(len(texts))]

    monkeypatch.setattr(Session, "decode", made_up)
    monkeypatch.setattr(
        speedups, "same_share", lambda one, other: same_share(one, other) if one[0][1:] == (9,) else 1.0
    )
    more, said = ["One more."] * 90, list[str]()
    table, chosen = fastest(models, TEXTS, decoders=DECODERS, more=more, say=said.append, **ASKED)
    name = named(DECODERS[1], "exact", "int8")
    row = table.set_index("name").loc[name]
    assert row.sentences == 93 and row.unchanged == pytest.approx(1 - changed / 93)
    assert chosen["near"] == (name if changed < 2 else None) and row.unchanged_low == surely(93 - changed, 93)
    assert said[-1] == f"comparing outputs of {name} on 90 more sentences"
    assert (table[table["name"] != name]["sentences"] == 3).all()
    _, chosen = fastest(models, TEXTS, decoders=DECODERS, **ASKED)
    assert chosen["near"] is None, "three of three"


def test_the_bound_is_exact() -> None:
    from scipy.stats import beta

    for kept, number in ((20, 20), (200, 202), (11, 20), (1, 7), (955, 1_000)):
        assert surely(kept, number) == pytest.approx(beta.ppf(0.05, kept, number - kept + 1))
    assert surely(0, 9) == 0 and surely(59, 59) >= 0.95 > surely(58, 58)
    assert enough(20, 20, 0.95, 1_000) == 59 and enough(39, 40, 0.95, 1_000) == 234
    few = pd.DataFrame({"unchanged": [18 / 20, 11 / 20], "sentences": 20})
    assert speedups._may_keep(few, 0.95).tolist() == [True, False], "more sentences may show it"
    assert enough(951, 1_000, 0.95, 1_000) is None and enough(20, 20, 1.0, 1_000) is None


def test_what_was_timed_briefly_stands_below(monkeypatch: pytest.MonkeyPatch, models: dict[str, Any]) -> None:
    """Its lucky rounds do not put it before what was timed to the end."""
    clock(monkeypatch, {"pad + quantised": 1.0, "pad + exact": 1.5}, wrong="pad + ")
    table, _ = fastest({"float32": models["float32"]}, TEXTS, decoders=DECODERS[:2], near=1.0, **ASKED)
    again = table["name"].str.startswith("greedy")
    assert again.tolist() == [True, True, False, False] and (table["speedup_low"].notna() == again).all()
    assert table["speedup"].tolist() == [1.0, 1.0, 4.0, 4 / 1.5]


def test_what_differs_is_not_lossless(monkeypatch: pytest.MonkeyPatch, models: dict[str, Any]) -> None:
    clock(monkeypatch, {"pad + exact": 1.0}, wrong="pad + exact")
    table, chosen = fastest({"float32": models["float32"]}, TEXTS, decoders=DECODERS[:2], **ASKED)
    wrong = table.set_index("name").loc[named(DECODERS[1], "exact", "float32")]
    assert not wrong.lossless and wrong.note == "differs by rounding" and wrong.unchanged < 1
    assert chosen == {"float32": named("greedy", "exact", "float32"), "near": None}


def test_decoders_without_greedy_are_refused(models: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Greedy decoding is what others .*: got decoders auto\. Add greedy"):
        fastest({"float32": models["float32"]}, TEXTS, decoders=["auto"], **ASKED)


def test_models_without_greedy_decoding_are_refused() -> None:
    model = load("bidirectional", device="cpu")
    with pytest.raises(ValueError, match=r"greedy needs a causal model|tokens a step"):
        fastest({"float32": model}, TEXTS)
