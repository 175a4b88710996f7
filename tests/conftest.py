"""Skips what this machine cannot run, saying why."""

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import pytest
import torch
from hypothesis import settings

from fastdecode_lib import store

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start, too
settings.register_profile("fastdecode", deadline=None)  # a slow machine is not a failing one
settings.load_profile("fastdecode")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing(mark: str) -> str | None:
    """What a test with this mark needs and this machine lacks."""
    if mark == "browser" and not os.environ.get("BROWSER_PATH") and not any(map(shutil.which, BROWSERS)):
        return "Chromium is not installed (or name it in BROWSER_PATH)"
    if mark == "corpus" and not Path(os.environ.get("FASTDECODE_DATA") or "missing", "tatoeba").is_dir():
        return "FASTDECODE_DATA names no folder with the corpus"
    if mark == "gpu":
        import torch

        return None if torch.cuda.is_available() else "no CUDA device"
    return None


def pytest_collection_finish() -> None:
    """What is loaded by now stays: collections of garbage need not search it again, a third of a second each."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in ("browser", "corpus", "gpu"):
        if item.get_closest_marker(mark) and (reason := missing(mark)):
            if mark == "browser" and os.environ.get("FASTDECODE_REQUIRE_BROWSER") == "1":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The tests' models are too small to share, and a test before may have asked for more."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that train let others go first; those after them in the same process must not have to."""
    monkeypatch.setattr(os, "setpriority", lambda *_: None)


CACHE = os.environ.get("XDG_CACHE_HOME")


@pytest.fixture(scope="session")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which nobody has kept anything."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    """What the user has made and measured for a bundled model is not found, unless a test names a cache; kernels are."""
    from fastdecode_lib.drafts import finding

    named = lambda: os.environ.get("XDG_CACHE_HOME") != CACHE  # noqa: E731
    monkeypatch.setattr(finding, "user_cache", lambda: store.user_cache() if named() else empty_cache)


@pytest.fixture(scope="session")
def own_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small SentencePiece model, trained on the project's own sentences."""
    return fakes.train_sentencepiece(tmp_path_factory.mktemp("pieces"))


@pytest.fixture(scope="session")
def marian_folder(tmp_path_factory: pytest.TempPathFactory, own_pieces: Path) -> Path:
    """A tiny Marian checkpoint with random weights; copy it before breaking it."""
    return fakes.write_marian(tmp_path_factory.mktemp("checkpoints") / "tiny-marian", own_pieces)


@pytest.fixture(scope="session")
def marian(marian_folder: Path) -> Any:
    """The tiny Marian checkpoint in float64."""
    from fastdecode_lib import load

    return load(str(marian_folder), device="cpu", dtype="float64")


@pytest.fixture
def broken_marian(marian_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Marian checkpoint to break."""
    return Path(shutil.copytree(marian_folder, tmp_path / "tiny-marian"))


@pytest.fixture(scope="session")
def multilingual(tmp_path_factory: pytest.TempPathFactory, own_pieces: Path) -> Callable[[str], Path]:
    """Folder of a tiny ``mbart50``, ``m2m`` or ``nllb`` checkpoint, written when first asked for."""
    root = tmp_path_factory.mktemp("multilingual")
    makers: dict[str, Callable[[], tuple[str, Any]]] = {
        "mbart50": lambda: ("mbart", fakes.mbart50_tokenizer(own_pieces)),
        "m2m": lambda: ("m2m_100", fakes.m2m_tokenizer(own_pieces, root / "m2m-files")),
        "nllb": lambda: ("m2m_100", fakes.nllb_tokenizer()),
    }

    def folder(kind: str) -> Path:
        if not (root / kind).exists():
            fakes.write_multilingual(root / kind, *makers[kind]())
        return root / kind

    return folder
