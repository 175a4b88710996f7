"""Combinations of decoder, projection and precision: what is promised, what they should cost, and which is chosen."""

import numpy as np
import pytest

from fastdecode_lib import cli, combining, load, registry
from fastdecode_lib.combining import WIDTHS, Combination, Costs, choose, combinations, costs, known_projections
from fastdecode_lib.core import Measurement

TEXTS = ["The train is late.", "Where did you put my keys?", "It is raining again."]


def test_a_sentence_costs_its_passes_at_their_width() -> None:
    prices = Costs(encoder=2.0, passes=np.array(WIDTHS, dtype=float), beside=0.5)
    assert prices.seconds(10, 10) == 2 + 10 * 1.5 and prices.seconds(10, 40) == 2 + 10 * 4.5


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
    assert set(registry.PROJECTIONS) < set(known_projections())


def test_the_fastest_is_chosen_by_a_timed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times by the clock of a test: windows and int8 are fast, the projection in bytes slow."""

    def measure(systems, sources, **_):
        def seconds(name):
            if name.startswith("window") and "int8" in name:
                return 1.0
            return 2.0 if name.startswith("window") and "exact" in name else 4.0 if "quantised" in name else 3.0

        return [Measurement(one.name, np.full(5, seconds(one.name)), ()) for one in systems]

    monkeypatch.setattr(combining, "measure", measure)
    models = {q: load("tatoeba-small", device="cpu", precision=q) for q in ("float32", "int8")}
    asked = {
        "decoders": ("greedy", "window:width=3"),
        "projections": ("exact", "quantised", "svd:windw=1"),
        "max_length": 8,
    }
    found = choose(models, [*TEXTS, " "], source="en", target="de", near=0.0, **asked)
    assert found.lossless == "window:width=3 + exact + float32" and found.near == "window:width=3 + exact + int8"
    table = found.table.set_index("name")
    assert (table[table["lossless"]]["agreement"] == 1).all() and len(table) == 6
    assert table.loc[found.near, "speedup"] == 3 and table.loc[found.lossless, "speedup"] == 1.5
    assert "Without any loss: window:width=3 + exact + float32, 1.50 times as fast" in str(found)
    assert found.provenance["sentences"] == 3
    strict = choose(models, TEXTS, source="en", target="de", near=1.1, **asked)
    assert strict.near is None and "With next to none: nothing found is faster" in str(strict)


def test_nothing_to_choose_by() -> None:
    model = load("tatoeba-small", device="cpu")
    with pytest.raises(ValueError, match="There is nothing to choose by"):
        choose({"float32": model}, [" "], source="en", target="de")
    with pytest.raises(ValueError, match="What is lossless is told by the model in float32: got int8"):
        choose({"int8": model}, TEXTS, source="en", target="de")


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
