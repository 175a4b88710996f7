"""Models of a hub, served on this machine: which of their weights are read, and what is said when they are not."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import fakes
import pytest
import torch
from safetensors.torch import load_file

from fastdecode_lib import load, translate
from fastdecode_lib.checkpoints.conversion import converted, lacks_safetensors
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.checkpoints.shape import CheckpointError

REPOSITORY = "Helsinki-NLP/opus-mt-xx-yy"
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Hub:
    """Revisions of one repository, each a folder, as the hub's own paths show them."""

    revisions: dict[str, Path]
    discussions: list[dict[str, Any]] = field(default_factory=list)
    address: str = ""
    asked: list[str] = field(default_factory=list)
    status: int = 200

    def commit(self, revision: str) -> str:
        return sha1(str(self.revisions[revision]).encode()).hexdigest()

    def folder(self, revision: str) -> Path | None:
        return next((path for name, path in self.revisions.items() if revision in (name, self.commit(name))), None)


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path, query = urlsplit(self.path).path.replace("%2F", "/"), parse_qs(urlsplit(self.path).query)
            hub.asked.append(path)
            api = f"/api/models/{REPOSITORY}"
            if hub.status != 200:
                code = {"X-Error-Code": "GatedRepo"} if hub.status == 403 else {"X-Error-Code": "RepoNotFound"}
                return self.send(hub.status, b"{}", body, code)
            if path == f"{api}/discussions":
                known = [
                    d for d in hub.discussions if query.get("author", [d["author"]["name"]]) == [d["author"]["name"]]
                ]
                content = {"discussions": known, "count": len(known), "start": 0}
                return self.send(200, json.dumps(content).encode(), body)
            if path.startswith(f"{api}/revision/") or path == api or path.startswith(f"{api}/tree/"):
                revision = path.removeprefix(api).removeprefix("/revision/").removeprefix("/tree/") or "main"
                folder = hub.folder(revision)
                if folder is None:
                    return self.send(404, b"{}", body, {"X-Error-Code": "RevisionNotFound"})
                files = sorted(p for p in folder.iterdir() if p.is_file())
                if "/tree/" in path:
                    tree = [{"type": "file", "path": p.name, "size": p.stat().st_size, "oid": p.name} for p in files]
                    return self.send(200, json.dumps(tree).encode(), body)
                sha = sha1(str(folder).encode()).hexdigest()
                content = {
                    "id": REPOSITORY,
                    "modelId": REPOSITORY,
                    "sha": sha,
                    "private": False,
                    "tags": [],
                    "downloads": 0,
                }
                content |= {"siblings": [{"rfilename": p.name} for p in files], "likes": 0}
                return self.send(200, json.dumps(content).encode(), body)
            resolve = f"/{REPOSITORY}/resolve/"
            if path.startswith(resolve):
                revision, _, name = path.removeprefix(resolve).rpartition("/")
                folder = hub.folder(revision)
                if folder is not None and (folder / name).is_file():
                    data = (folder / name).read_bytes()
                    sha = sha1(str(folder).encode()).hexdigest()
                    return self.send(200, data, body, {"ETag": f'"{sha1(data).hexdigest()}"', "X-Repo-Commit": sha})
            return self.send(404, b"{}", body, {"X-Error-Code": "EntryNotFound"})

        def send(self, status: int, content: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

    return Handler


@pytest.fixture
def pickled(broken_marian: Path) -> Path:
    """A folder with weights in PyTorch's format alone, tied ones as transformers once stored them."""
    tensors = load_file(broken_marian / "model.safetensors")
    shared = tensors["model.shared.weight"]
    tied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    torch.save(tensors | dict.fromkeys(tied, shared), broken_marian / "pytorch_model.bin")
    (broken_marian / "model.safetensors").unlink()
    return broken_marian


@pytest.fixture
def hub(marian_folder: Path, pickled: Path) -> Iterator[Hub]:
    hub = Hub({"main": pickled})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(hub)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub.address = f"http://127.0.0.1:{server.server_port}"
        yield hub
        server.shutdown()


LOAD = """
import json, sys, warnings
warnings.simplefilter("always")
import fastdecode_lib
model = fastdecode_lib.load({name!r}, device="cpu", revision={revision!r})
print(json.dumps([str(model.checkpoint.folder), model.checkpoint.fingerprint]))
"""


def loaded(hub: Hub, home: Path, revision: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "HF_ENDPOINT": hub.address, "HF_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }  # fmt: skip
    environment |= variables
    code = LOAD.format(name=REPOSITORY, revision=revision)
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=home)


def test_safetensors_of_the_default_branch_come_first(hub: Hub, marian_folder: Path, tmp_path: Path) -> None:
    hub.revisions["main"] = marian_folder
    done = loaded(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1] == find_checkpoint(marian_folder).fingerprint
    assert not any(path.endswith("discussions") for path in hub.asked)
    again = loaded(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert again.stdout == done.stdout, "what is in the cache needs no network"


def test_then_those_of_the_conversion_bots_pull_request(hub: Hub, marian_folder: Path, tmp_path: Path) -> None:
    hub.revisions["refs/pr/7"] = marian_folder
    request = {
        "title": "Adding `safetensors` variant of this model", "createdAt": "2023-01-01T00:00:00.000Z", "isPullRequest": True,
        "repo": {"name": REPOSITORY, "type": "model"}, "status": "open",
    }  # fmt: skip
    hub.discussions = [
        request | {"num": 3, "author": {"name": "somebody"}},
        request | {"num": 7, "author": {"name": "SFconvertbot"}},
    ]
    done = loaded(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1] == find_checkpoint(marian_folder).fingerprint
    assert f"pull request 7 by its conversion bot are used, commit {hub.commit('refs/pr/7')}" in done.stderr
    assert not any(path.endswith(".bin") for path in hub.asked)
    again = loaded(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert again.stdout == done.stdout, again.stderr


def test_else_weights_of_pytorch_are_converted_once(hub: Hub, marian_folder: Path, tmp_path: Path) -> None:
    done = loaded(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    folder, _ = json.loads(done.stdout)
    assert "pytorch_model.bin" in done.stderr and "was converted once, into" in done.stderr
    expected, made = load_file(marian_folder / "model.safetensors"), load_file(f"{folder}/model.safetensors")
    assert all(torch.equal(made[name], tensor) for name, tensor in expected.items())
    again = loaded(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert again.stdout == done.stdout and "converted" not in again.stderr


def test_a_revision_is_taken_as_it_is(hub: Hub, marian_folder: Path, tmp_path: Path) -> None:
    hub.revisions["v1"] = marian_folder
    done = loaded(hub, tmp_path, "v1")
    assert done.returncode == 0 and hub.commit("v1") in json.loads(done.stdout)[0]
    absent = loaded(hub, tmp_path, "v2")
    assert absent.returncode == 1 and "has no such revision: got 'v2'" in absent.stderr
    for name in ("tatoeba-small", str(marian_folder)):
        with pytest.raises(CheckpointError, match="A revision belongs to a hub id: got revision='v1'"):
            load(name, revision="v1")


def test_no_connection_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    done = loaded(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1 and "could not be fetched from the Hugging Face hub" in done.stderr.splitlines()[-1]


def test_a_hub_that_is_kept_offline_says_so(hub: Hub, tmp_path: Path) -> None:
    done = loaded(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert done.returncode == 1 and "which HF_HUB_OFFLINE keeps from the network" in done.stderr.splitlines()[-1]


def test_a_gated_model_says_so(hub: Hub, tmp_path: Path) -> None:
    hub.status = 403
    done = loaded(hub, tmp_path)
    assert done.returncode == 1 and "is gated: its owners ask who uses it" in done.stderr.splitlines()[-1]
    hub.status = 404
    done = loaded(hub, tmp_path)
    assert (
        done.returncode == 1
        and "could not be fetched from the Hugging Face hub: RepositoryNotFoundError" in done.stderr
    )


# ---------------------------------------------------------------------------------------------------------- conversion


def test_a_folder_is_converted_like_a_hub_model(
    pickled: Path, marian_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert lacks_safetensors(pickled) and not lacks_safetensors(marian_folder)
    with pytest.warns(UserWarning, match=r"has no safetensors: its pytorch_model\.bin .* was converted once, into"):
        model = load(str(pickled), device="cpu")
    text = "Good morning."
    assert (
        translate(model, text, target="de").tokens
        == translate(load(str(marian_folder), device="cpu"), text, target="de").tokens
    )
    torch.save({"x": torch.zeros(3)}, pickled / "pytorch_model.bin")
    assert converted(pickled) != model.checkpoint.folder, "other weights are another model"


def test_a_cache_that_cannot_be_written_is_named(
    pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        CheckpointError, match=r"could not be converted into the cache .* set XDG_CACHE_HOME to a folder"
    ):
        converted(pickled)


def test_files_of_before_torch_1_6_and_changed_settings(
    pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = converted(pickled)
    tensors = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    torch.save(tensors, pickled / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    old = converted(pickled)
    assert (first / "model.safetensors").read_bytes() == (old / "model.safetensors").read_bytes()
    fakes.change_json(pickled / "generation_config.json", max_length=7)
    assert json.loads((converted(pickled) / "generation_config.json").read_text())["max_length"] == 7
    (pickled / "draft-head.safetensors").write_bytes(b"")
    assert lacks_safetensors(pickled), "only the model's own weights count"


def test_shards_are_put_together(
    pickled: Path, marian_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tensors = list(torch.load(pickled / "pytorch_model.bin", weights_only=True).items())
    (pickled / "pytorch_model.bin").unlink()
    places = {}
    for number, part in enumerate((tensors[::2], tensors[1::2]), 1):
        name = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save(dict(part), pickled / name)
        places |= {key: name for key, _ in part}
    (pickled / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert load_file(converted(pickled) / "model.safetensors").keys() == dict(tensors).keys()
    (pickled / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(
        CheckpointError, match="names files that its folder lacks: got pytorch_model-00001.*Copy them too"
    ):
        converted(pickled)


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"a": 3}, {"model": {"a": torch.zeros(2)}}, {1: torch.zeros(2)}])
def test_what_is_no_table_of_tensors_is_refused(
    content: object, pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.save(content, pickled / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="hold more than named tensors: got (list|dict)"):
        find_checkpoint(pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="could not be read as tensors alone"):
        find_checkpoint(pickled)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
