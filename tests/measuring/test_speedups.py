"""The fastest combinations by the clock of a test: what is timed again, what is chosen, and what counts as lossless."""

from typing import Any

import numpy as np
import pytest

from fastdecode_lib import load
from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring import speedups
from fastdecode_lib.measuring.combinations import named
from fastdecode_lib.measuring.speedups import fastest

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
    table, chosen = fastest(models, TEXTS, decoders=DECODERS, near=0.3, batch=2, **ASKED)
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
    assert rounds == [speedups.SCREENING_ROUNDS, 9, 9 * speedups.MORE] and chosen["float32"] == quantised
    rows = table.set_index("name")
    assert rows.speedup[window] > rows.speedup[quantised] and "noisy" in rows.note[window]


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
