"""Skips what this machine cannot run, saying why."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
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


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in ("browser", "corpus", "gpu"):
        if item.get_closest_marker(mark) and (reason := missing(mark)):
            if mark == "browser" and os.environ.get("FASTDECODE_REQUIRE_BROWSER") == "1":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
