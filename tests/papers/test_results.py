"""What is committed under results/ is whole, tells how it was made, and says what the documents say of it."""

import pytest

from fastdecode_lib import registry
from fastdecode_lib.experiments import beside, committed, experiments

LONG = sorted(e.name for e in experiments().values() if e.stem == "parallel_decoding" and not e.traced)


@pytest.mark.parametrize("name", LONG)
def test_every_long_run_is_there(name):
    frame = committed(name)
    about = frame.attrs["provenance"]
    assert len(frame) and frame["name"].notna().all()
    assert about["scale"] == "laptop" and about["fingerprint"] and about["versions"]["torch"]
    assert f"experiment {name.partition('.')[0]}" in about["command"]
    assert "/work" not in str(about) and "/home" not in str(about)


def test_what_is_not_there_names_its_command():
    with pytest.raises(ValueError, match=r"no result of 'nothing' at scale 'laptop'.*fastdecode experiment nothing"):
        committed("nothing")


def test_lossless_decoders_agree():
    """In float32 rounding may turn a tie: one sentence of 3,000, where the two best tokens are 1e-6 apart."""
    frame = committed("parallel_decoding.table1")
    ours = frame[(frame.kind == "measured") & frame.name.isin(registry.DECODERS)]
    assert len(ours)
    for name in frame.name[frame.kind == "measured"].unique():
        if name != "hf" and registry.decoder(name).lossless:
            found = frame.agreement[frame.name == name].dropna()
            assert found.min() >= 0.998 and found.mean() > 0.9995, name
    assert (committed("parallel_decoding.drafts").agreement == 1).all()


def test_the_window_needs_far_fewer_passes():
    """The claim of the README: about half of greedy decoding's on joined test sentences, 1.5 times fewer at least."""
    frame = committed("parallel_decoding.table1")
    window = frame[(frame.name == "window:width=5") & (frame.set == "joined") & (frame.protocol == "honest")]
    assert sorted(window.direction) == ["de-en", "en-de", "en-es", "en-fr", "es-en", "fr-en"]
    assert (window.sentences == 500).all()
    assert window.calls_ratio.mean() > 1.75
    jacobi = frame[(frame.name == "jacobi") & (frame.protocol == "honest") & (frame.set == "joined")]
    assert 0.95 < jacobi.calls_ratio.mean() < 1.1


def test_the_papers_values_stand_beside_ours():
    table = beside(committed("parallel_decoding.table1"), "speedup")
    row = table.loc[("hybrid:block=3", "joined", "honest")]
    assert row["paper", "en-de"] == 1.34 and row["paper mbart", "de-en"] == 1.07
    ours = row["ours"].drop("mean")
    assert len(ours) == 6 and row["ours", "mean"] == pytest.approx(ours.mean())
