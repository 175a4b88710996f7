"""The manifest of trained weights: true of what is committed, and weights that are altered, cut short or absent are refused."""

import json
import shutil
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fakes
import pytest

from fastdecode_lib import cli
from fastdecode_lib.checkpoints import hub, weights
from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.weights import BUNDLED, HERE, NOT_SHIPPED, Record, checksums, read_manifest
from fastdecode_lib.training import bundling, manifest

MEBIBYTES = 100


@pytest.fixture
def folder(tmp_path: Path, own_pieces: Path) -> Path:
    """A folder of weights that holds a small model, ``tiny``, and its manifest."""
    fakes.write_marian(tmp_path / "weights" / "tiny", own_pieces)
    place = tmp_path / "weights" / "tiny"
    record = Record("tiny", find_checkpoint(place).fingerprint, HERE, "fastdecode train tiny", sha256=checksums(place))
    weights.write_manifest([record], tmp_path / "weights")
    return tmp_path / "weights"


def test_every_fingerprint_that_a_committed_result_names_has_a_record() -> None:
    records = {record.fingerprint: record for record in read_manifest()}
    named = manifest.results_by_fingerprint()
    assert len(named) > 10 and named.keys() <= records.keys()
    for fingerprint, record in records.items():
        assert record.results == named.get(fingerprint, []), "refresh it: python -m fastdecode_lib.training.manifest"
        assert record.command and record.where in weights.PLACES


def test_what_is_said_to_be_here_is_here() -> None:
    records = read_manifest()
    assert {r.name for r in records if r.where == BUNDLED} == set(bundled())
    for record in records:
        if record.where == NOT_SHIPPED:
            assert not record.sha256 or record.address
            continue
        place = bundled()[record.name] if record.where == BUNDLED else weights.FOLDER / record.name
        assert record.sha256 == checksums(place), "refresh it: python -m fastdecode_lib.training.manifest"
        assert find_checkpoint(place).fingerprint == record.fingerprint
    assert sum(record.bytes for record in records if record.where == HERE) < MEBIBYTES * 2**20


def test_what_trained_on_from_other_weights_names_them(folder: Path) -> None:
    (base,) = read_manifest(folder)
    chosen = {"planned": 300}
    wanted = "fastdecode train large --updates 300 --seed 2"
    assert bundling._command("large", chosen, 2, None, folder, 300) == wanted
    assert bundling._command("large", chosen, 2, base.fingerprint, folder, 300) == f"{wanted} --begin-with tiny"
    assert bundling._command("large", chosen, 2, None, folder, 120) == f"{wanted} --stop-at 120", (
        "a run that ended early"
    )
    assert (
        bundling._command("large", chosen, 2, "0123456789abcdef", folder, 300)
        == f"{wanted} --begin-with 0123456789abcdef"
    )


def test_a_result_of_unknown_weights_is_found(tmp_path: Path) -> None:
    shutil.copy(weights.FOLDER / weights.MANIFEST, tmp_path / weights.MANIFEST)
    results = tmp_path / "results"
    results.mkdir()
    (results / "x.laptop.json").write_text('{"rows": [{"fingerprints": {"a": "0123456789abcdef"}}]}')
    with pytest.raises(ValueError, match=r"no record of the weights 0123456789abcdef, .* named by x.laptop\. Add one"):
        manifest.refresh(tmp_path, results)


def test_weights_that_others_began_with_are_remembered(tmp_path: Path) -> None:
    """A record without weights stays while a result or the command of another names it."""
    (tmp_path / "results").mkdir()
    fingerprints = [f"{i:016x}" for i in range(3)]
    (tmp_path / "results" / "some.json").write_text(json.dumps({"fingerprint": fingerprints[2]}))
    base, forgotten, last = (
        Record(name, fingerprint, NOT_SHIPPED, f"fastdecode train {name}")
        for name, fingerprint in zip(("base", "forgotten", "last"), fingerprints, strict=True)
    )
    last = replace(last, command="fastdecode train last --begin-with base --stop-at 3")
    known = [record for record in read_manifest(weights.FOLDER) if record.where == weights.BUNDLED]
    weights.write_manifest([*known, base, forgotten, last], tmp_path)
    kept = {record.name for record in manifest.refresh(tmp_path, tmp_path / "results")}
    assert kept == {record.name for record in known} | {"base", "last"}


def test_weights_of_a_checkout_are_loaded_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "find_weights", partial(weights.find_weights, folder=folder))
    assert find_checkpoint("tiny").folder == folder / "tiny"
    assert weights.find_weights("other", folder) is None and weights.find_weights("tiny", folder / "none") is None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "got SHA-256 "),
        (lambda file: file.unlink(), "got no such file"),
    ],
)
def test_weights_cut_short_or_absent_are_refused(harm: object, said: str, folder: Path) -> None:
    harm(folder / "tiny" / "model.safetensors")  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=rf"model\.safetensors is not as its manifest says: {said}.*git checkout"):
        weights.find_weights("tiny", folder)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weights": [{"name": 1}]}', '{"weights": 3}'])
def test_a_damaged_manifest_is_named(content: str, folder: Path) -> None:
    (folder / weights.MANIFEST).write_text(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged: .*git checkout"):
        read_manifest(folder)


# -------------------------------------------------------------------------------------------------------------- fetch


@pytest.fixture
def remote(folder: Path, tmp_path: Path) -> Path:
    """The same model, not shipped, at an address of this machine."""
    served = tmp_path / "served"
    (folder / "tiny").rename(served)
    handler = partial(_Quiet, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (record,) = read_manifest(folder)
        address = f"http://127.0.0.1:{server.server_port}/"
        weights.write_manifest([replace(record, where=NOT_SHIPPED, address=address)], folder)
        yield served
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_fetched_weights_are_those_of_the_manifest(remote: Path, folder: Path) -> None:
    assert weights.find_weights("tiny", folder) is None
    assert checksums(weights.fetch("tiny", folder)) == checksums(remote)
    assert weights.find_weights("tiny", folder) == folder / "tiny"


def test_what_differs_from_its_sum_is_not_kept(remote: Path, folder: Path) -> None:
    (remote / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"config\.json is not as its manifest says.*Nothing was kept"):
        weights.fetch("tiny", folder)
    assert not (folder / "tiny").exists() and [path.name for path in folder.iterdir()] == [weights.MANIFEST]


def test_what_cannot_be_fetched(remote: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (remote / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json could not be fetched: .*404"):
        weights.fetch("tiny", folder)
    with pytest.raises(CheckpointError, match="does not name 'huge': it has tiny"):
        weights.fetch("huge", folder)
    (record,) = read_manifest(folder)
    weights.write_manifest([replace(record, address="http://example.org/tiny")], folder)
    with pytest.raises(CheckpointError, match="only by https: got 'http://example"):
        weights.fetch("tiny", folder)
    weights.write_manifest([replace(record, address="")], folder)
    with pytest.raises(
        CheckpointError, match="tiny has no address to be fetched from. Train it instead: fastdecode train"
    ):
        weights.fetch("tiny", folder)
    assert cli.main(["fetch"]) == 0 and "bundled" in capsys.readouterr().out


def test_what_is_here_is_not_fetched(
    remote: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(weights, "FOLDER", folder)
    fetched = weights.fetch("tiny", folder)
    (remote / "config.json").unlink()
    assert weights.fetch("tiny", folder) == fetched
    assert cli.main(["fetch", "tatoeba-small"]) == 0
    assert capsys.readouterr().out.startswith("tatoeba-small is in ")


def test_an_installed_library_has_nothing_to_fetch_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    assert cli.main(["fetch"]) == 2 and "into a checkout of the project" in capsys.readouterr().err
