"""The table of times of a screened projection, at sizes that a CPU has in no time; values are not looked at."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fastdecode_lib.experiments.gpu_projection import crossover, main, projection_times


def test_every_system_has_a_row_for_every_share() -> None:
    frame = projection_times(300, 16, 4, 10, (0.02, 0.5), "float32", "cpu", runs=2, top=2)
    assert frame["name"].tolist() == ["dense", "exact", "torch", "torch, shared"] * 2
    assert frame["active_share"].tolist() == [1, 1, 0.02, 0.02, 1, 1, 0.5, 0.5]
    assert (frame["milliseconds"] > 0).all() and (frame["agreement"] == 1).all()
    assert all(len(seconds) == 2 for seconds in frame["seconds_each"])
    for _, row in frame.iterrows():
        rows = 300 if row["active_share"] == 1 else 4 * 300 * row["active_share"]
        rows /= 4 if "shared" in row["name"] else 1
        bytes_read = 4 * 16 * (rows + 10 * (row["active_share"] < 1))
        assert row["gigabytes_per_second"] == pytest.approx(bytes_read / row["milliseconds"] / 1e6)
    assert frame.attrs["provenance"]["dtype"] == "float32"


def test_more_rows_than_clusters() -> None:
    frame = projection_times(50, 8, 7, 3, 0.1, "float64", "cpu", runs=1)
    assert len(frame) == 4 and frame["crossover"].isna().all()


def test_the_crossover_lies_between_two_shares() -> None:
    def found(**speedups: float) -> float:
        shares = {"low": 0.1, "middle": 0.2, "high": 0.4}
        return crossover(pd.DataFrame([{"active_share": shares[n], "speedup": s} for n, s in speedups.items()]))

    assert found(low=3.0, middle=2.0, high=0.0) == pytest.approx(0.3)
    assert found(high=0.5, low=2.0, middle=1.5) == pytest.approx(0.3)
    assert math.isnan(found(low=3.0, high=2.0)) and math.isnan(found(low=0.9, high=0.5)) and math.isnan(found(low=2.0))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--vocabulary", "60", "--width", "8", "--rows", "1", "2", "--clusters", "4", "--active-share", "0.1"]
    assert (
        main([*small, "--device", "cpu", "--dtype", "float32", "--runs", "1", "--json", str(tmp_path / "t.json")]) == 0
    )
    content = json.loads((tmp_path / "t.json").read_text())
    assert content["provenance"]["command"].startswith(
        "python -m fastdecode_lib.experiments.gpu_projection --vocabulary"
    )
    assert len(content["rows"]) == 8 and np.isfinite([row["seconds_each"][0] for row in content["rows"]]).all()
    assert "torch, shared" in capsys.readouterr().out
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            main(small)
        assert "No CUDA device here: got device='cuda'. Use device='cpu'" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"A share of the vocabulary .* got 1\.5. Use 0\.06"):
        projection_times(50, 8, 1, 3, 1.5, "float32", "cpu")
