"""The width chooser: its table, its advice, and what it refuses. Times are not tested; that they are read is."""

import fakes
import numpy as np
import pytest

from fastdecode_lib import cli, tune
from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring import widths
from fastdecode_lib.measuring.referee import System

TEXTS = sorted(fakes.own_sentences()["en"], key=len)[:3]


@pytest.fixture
def clock(monkeypatch):
    """A referee whose times follow from what is run: `costs` for a pass of each width, the rest by the numbers of passes."""

    def install(costs, seconds):
        def measure(systems, sources, **_):
            made = []
            for system in systems:
                kind, _, width = system.name.partition("pass of ")
                each = costs[int(width)] * widths.PASSES if width else seconds[kind.split(":")[0]]
                made.append(Measurement(system.name, np.full(5, float(each)), ()))
            return made

        monkeypatch.setattr(widths, "measure", measure)

    return install


def test_a_flat_cost_makes_the_window_pay(marian, clock):
    clock({1: 1.0, 2: 1.0, 4: 1.0}, {"greedy": 300.0, "encoder": 3.0, "window": 200.0})
    found = tune(marian, TEXTS, source="en", target="de", widths=(2, 4), draft="recycled/pad", max_length=12)
    table = found.table
    assert table.width.tolist() == [1, 2, 4] and table.cost.tolist() == [1.0, 1.0, 1.0]
    assert table.passes.is_monotonic_decreasing and table.tokens_per_pass[0] == 1
    assert table.predicted[0] == pytest.approx(1.0)
    assert found.decoder.startswith("window:width=") and found.speedup == 1.5
    assert table.speedup.notna().sum() == 2, "greedy decoding is what the others are timed against"
    assert found.provenance["noisy"] is False and "noisy" not in str(found)
    assert "1.50 times as fast as greedy" in str(found)
    assert found.provenance["sentences"] == 3


def test_passes_are_timed_in_a_row():
    """One alone would find other data in the processor's caches than decoding does."""
    runs = []
    system = widths._repeated(System("pass of 2", lambda source: (runs.append(source), (7,))[1]))
    assert system.decode("source") == (7,) and runs == ["source"] * widths.PASSES


def test_a_steep_cost_leaves_greedy(marian, clock):
    clock({1: 1.0, 4: 4.0}, {"greedy": 36.0, "encoder": 0.0, "window": 99.0})
    found = tune(marian, TEXTS, source="en", target="de", widths=(4,), draft="recycled/pad", max_length=12)
    assert found.decoder == "greedy" and found.speedup == 1.0
    assert str(found).startswith("Use greedy decoding here: no width pays.")


def test_a_prediction_that_fails_leaves_greedy(marian, clock):
    clock({1: 1.0, 4: 1.0}, {"greedy": 36.0, "encoder": 0.0, "window": 40.0})
    found = tune(marian, TEXTS, source="en", target="de", widths=(4,), draft="recycled/pad", max_length=12)
    assert found.decoder == "greedy" and "came to 0.90" in str(found)


def test_bad_input(marian):
    with pytest.raises(ValueError, match="nothing to tune on: got no sentence with content"):
        tune(marian, ["", " "], source="en", target="de")
    with pytest.raises(ValueError, match="width >= 1, got -1"):
        tune(marian, TEXTS, source="en", target="de", widths=(-1, 2))


def test_command(marian_folder, capsys, tmp_path):
    source = tmp_path / "source.txt"
    source.write_text("\n".join(TEXTS), encoding="utf-8")
    model = ("--model", str(marian_folder), "--from", "en", "--to", "de", "--max-length", "8")
    status = cli.main(["tune", *model, "--source", str(source), "--runs", "1", "--json", str(tmp_path / "t.json")])
    output = capsys.readouterr().out
    assert status == 0 and "tokens_per_pass" in output and "Use " in output
    assert (tmp_path / "t.json").is_file()
    assert cli.main(["tune", "--model", str(marian_folder), "--from", "de", "--to", "en"]) == 2
    assert "Our own sentences are English: got --from de. Give yours" in capsys.readouterr().err


def test_draft_table_command(marian_folder, capsys, tmp_path):
    source = tmp_path / "source.txt"
    source.write_text("\n".join(TEXTS), encoding="utf-8")
    model = ("--model", str(marian_folder), "--from", "en", "--to", "de", "--max-length", "8", "--least", "1")
    out, work = tmp_path / "out", tmp_path / "work"
    arguments = ["draft-table", *model, "--source", str(source), "--out", str(out), "--folder", str(work)]
    assert cli.main([*arguments, "--vmap", str(tmp_path / "vmap.txt"), "--json", str(tmp_path / "t.json")]) == 0
    assert "3 translations" in capsys.readouterr().out
    assert (out / "en-de.safetensors").is_file() and (tmp_path / "vmap.txt").is_file()
    spec = f"window:width=4,table={out / 'en-de.safetensors'}"
    assert cli.main(["translate", *model[:-2], "--decoder", spec, TEXTS[0]]) == 0
    windowed = capsys.readouterr().out
    assert cli.main(["translate", *model[:-2], TEXTS[0]]) == 0
    assert capsys.readouterr().out == windowed
    assert cli.main(["draft-table", *model, "--source", str(tmp_path / "none")]) == 2
    assert cli.main(["draft-table", *model, "--source", str(source), "--sentences", "0"]) == 2


def test_greedy_predicts_itself(marian, clock):
    clock({1: 1.0, 4: 1.0}, {"greedy": 1.0, "encoder": 0.1, "window": 1.0})
    found = tune(marian, TEXTS, source="en", target="de", widths=(4,), draft="recycled/pad", max_length=12)
    assert found.table.predicted[0] == pytest.approx(1.0), "also where passes are cheaper than those measured"


def test_wrong_sentences_and_widths(marian):
    with pytest.raises(ValueError, match="tune needs several sentences: got one text, 'Hello there'"):
        tune(marian, "Hello there", source="en", target="de")
    with pytest.raises(ValueError, match=r"A width is too large .*: got 300, at most \d+ fit"):
        tune(marian, TEXTS, source="en", target="de", widths=(300,))


def test_separate_vocabularies():
    from dataclasses import replace

    from fastdecode_lib.laws.cases import random_tensors, tiny_architecture
    from fastdecode_lib.models.transformer import Transformer

    shape = replace(tiny_architecture("marian", 30), source_vocabulary=7, shared_embeddings=False)
    network = Transformer(shape, random_tensors(shape, 1))
    for system in widths.pass_systems(network, (1, 3)):
        assert len(system.decode(None)) == int(system.name.split()[-1])


def test_drafting_is_part_of_the_prediction(marian, clock):
    """Passes are free here, so that all that a window takes is its drafts: twice as many take twice as long."""
    clock({1: 1e-9, 2: 1e-9, 3: 1e-9}, {"greedy": 36.0, "encoder": 0.0, "window": 30.0})
    found = tune(marian, TEXTS, source="en", target="de", widths=(2, 3), draft="recycled/pad", max_length=12)
    table = found.table.set_index("width")
    assert table.predicted[3] == pytest.approx(36 / 30), "the setting that drafting was read off predicts itself"
    per_pass = table.passes[1] / 36
    tokens = (30 - table.passes[3] / per_pass) / (table.passes[3] * 2)
    assert table.predicted[2] == pytest.approx(36 / (table.passes[2] / per_pass + table.passes[2] * tokens))


def test_batches_have_passes_of_their_own(marian, clock):
    clock({1: 1.0, 3: 1.0}, {"greedy": 60.0, "encoder": 0.0, "window": 30.0})
    alone = tune(marian, TEXTS, source="en", target="de", widths=(3,), draft="recycled/pad", max_length=12)
    together = tune(marian, TEXTS, source="en", target="de", widths=(3,), draft="recycled/pad", batch=3, max_length=12)
    assert together.table.passes[0] < alone.table.passes[0] and together.provenance["batch"] == 3
    assert (together.table.tokens_per_pass == alone.table.tokens_per_pass).all()


def test_what_is_at_hand_is_tried_and_noise_is_said(monkeypatch):
    from fastdecode_lib import load

    def measure(systems, sources, **_):
        return [Measurement(s.name, np.array([1.0, 2.0, 3.0]), ()) for s in systems]

    monkeypatch.setattr(widths, "measure", measure)
    model = load("tatoeba-small", device="cpu")
    found = tune(model, ["The train is late."], source="en", target="de", widths=(3,), max_length=6)
    assert found.table.draft.tolist() == ["", *widths.DRAFTS]
    assert found.provenance["noisy"] and str(found).endswith(
        "This machine is noisy now: measure again when it is idle."
    )
