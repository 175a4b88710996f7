"""Combinations of decoder, projection and precision: what is promised, what they should cost, and which is chosen."""

import numpy as np
import pytest

from fastdecode_lib import cli, load, registry
from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring import combinations as combining
from fastdecode_lib.measuring.combinations import (
    PLAIN,
    WIDTHS,
    Combination,
    Costs,
    choose,
    combinations,
    costs,
    known_projections,
)
from fastdecode_lib.papers.double_token_decoding.systems import _toy

TEXTS = ["The train is late.", "Where did you put my keys?", "It is raining again."]


def test_a_sentence_costs_its_passes_at_their_width() -> None:
    prices = Costs(encoder=2.0, passes=np.array(WIDTHS, dtype=float), beside=0.5)
    assert prices.seconds(10, 10) == 2 + 10 * 1.5 and prices.seconds(10, 40) == 2 + 10 * 4.5
    assert prices.seconds(1, 100) == 2 + 100.5, "wider than any that was measured"


def test_costs_give_greedy_decoding_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever passes take, what is left of greedy decoding is beside them; and every pass really runs."""

    def measure(systems, sources, **_):
        made = []
        for number, one in enumerate(systems, 1):
            outputs = tuple(one.decode(source) for source in sources)
            assert (
                not one.name[-1].isdigit()
                or all(len(found) in WIDTHS for found in outputs)
                or "float32" in one.name[-7:]
            )
            made.append(Measurement(one.name, np.full(3, float(number)), outputs))
        seconds.update({m.name: float(m.seconds[0]) / len(sources) for m in made})
        return made

    seconds: dict[str, float] = {}
    monkeypatch.setattr(combining, "measure", measure)
    model = load("tatoeba-small", device="cpu")
    names = ("exact", "clustered", "lexical")
    found = combinations({"float32": model}, "en", "de", ["greedy", "jacobi"], names, TEXTS[0], max_length=9)
    prices = costs(found, TEXTS, runs=3)
    assert set(prices) == {(name, "float32") for name in names}
    for (projection, precision), own in prices.items():
        (session,) = [c.session for c in found if (c.decoder, c.projection) == ("greedy", projection)]
        steps = np.mean([len(hypothesis.tokens) for hypothesis in session.decode(TEXTS, batch=1)])
        assert own.seconds(steps, steps) == pytest.approx(seconds[f"greedy, {projection}, {precision}"])
        assert own.passes[3] == seconds[f"{projection}, {precision}, {WIDTHS[3]}"]


def test_a_union_promises_nothing() -> None:
    model = load("tatoeba-small", device="cpu")
    names = ("clustered", "clustered:shared=true", "svd:windw=3")
    own, shared, wrong = combinations(
        {"float32": model}, "en", "de", ["jacobi"], names, "The train is late.", max_length=6
    )
    assert own.keeps_outputs and not own.lossless and own.alone
    assert not shared.keeps_outputs and not shared.alone
    assert wrong.session is None and "windw" in wrong.refused
    assert not Combination("greedy", "exact", "float32", None).lossless
    assert costs([own, wrong], ["The train is late."], runs=1) == {}, (
        "without plain decoding there is nothing to read it off"
    )
    assert {*registry.PROJECTIONS, "clustered:shared=true"} == set(known_projections())


def test_the_fastest_is_chosen_by_a_timed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of a test: windows and int8 are fast, the projection in bytes slow, and a second look takes a half more."""
    looks: list[list[str]] = []

    def measure(systems, sources, **_):
        def seconds(name):
            if name.startswith("window") and "int8" in name:
                return 1.0
            return 2.0 if name.startswith("window") and "exact" in name else 4.0 if "quantised" in name else 3.0

        looks.append([one.name for one in systems])
        slower = 1.5 if PLAIN in looks[-1] else 1.0
        return [
            Measurement(one.name, np.full(5, seconds(one.name) * (1 if one.name == PLAIN else slower)), ())
            for one in systems
        ]

    monkeypatch.setattr(combining, "measure", measure)
    models = {q: load("tatoeba-small", device="cpu", precision=q) for q in ("float32", "int8")}
    asked = {"decoders": ("window:width=3",), "projections": ("quantised", "svd:windw=1"), "max_length": 8}
    found = choose(models, [*TEXTS, " ", "\u200b"], source="en", target="de", near=0.01, **asked)
    assert found.near == "window:width=3 + exact + int8" and found.lossless is None, "two thirds of 1.5 is no gain"
    table = found.table.set_index("name")
    assert (table[table["lossless"]]["agreement"] == 1).all() and set(table["projection"]) == {"exact", "quantised"}
    assert table.loc[found.near, "speedup"] == 2 and looks[-1] == [
        PLAIN,
        "window:width=3 + exact + float32",
        found.near,
    ]
    agreed = round(table.loc[found.near, "agreement"] * 3)
    assert f"With next to none: {found.near}, 2.00 times, {agreed} of 3 outputs the same." in str(found)
    assert "Without any loss: nothing found is faster" in str(found)


def test_what_cannot_be_chosen_by_says_so() -> None:
    model = load("tatoeba-small", device="cpu")
    for models, texts, options, message in (
        ({"float32": model}, [" "], {}, "nothing to tune on"),
        ({"float32": model}, "a text", {}, "needs several sentences"),
        ({"float32": model}, TEXTS, {"max_length": 0}, "max_length"),
        ({"float32": model}, TEXTS, {"near": 95}, "near is a share of outputs, above 0 and at most 1: got 95"),
        ({"int8": model}, TEXTS, {}, "What is lossless is told by the model in float32: got int8"),
        ({"float32": load(str(_toy("mask-predict")), device="cpu")}, TEXTS, {}, "needs a causal model|greedy"),
    ):
        with pytest.raises(ValueError, match=message):
            choose(models, texts, source="en", target="de", **options)


def test_the_command_prints_both_choices(tmp_path, capsys) -> None:
    (tmp_path / "text").write_text("\n".join(TEXTS[:2]), encoding="utf-8")
    told = ["--from", "en", "--to", "de", "--source", str(tmp_path / "text"), "--runs", "1", "--max-length", "6"]
    assert cli.main(["tune", "--combinations", *told, "--json", str(tmp_path / "found.json")]) == 0
    said = capsys.readouterr().out
    assert (
        "Without any loss: " in said
        and "With next to none: " in said
        and "window:width=8 + quantised + float32" in said
    )
    assert (tmp_path / "found.json").is_file()
    for wrong, message in (
        (["--combinations", "--precision", "int8"], "--combinations tries every precision"),
        (["--near", "0.9"], "--near belongs to --combinations"),
    ):
        assert cli.main(["tune", *told, *wrong]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "text").write_text("", encoding="utf-8")
    assert cli.main(["tune", *told]) == 2 and "nothing to tune on" in capsys.readouterr().err
