"""Fixtures for the picture's tests: traces, a browser that must not reach the network, a JupyterLab."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import kept
import simulate

import ddgviz

FIXTURES = Path(__file__).parent / "fixtures"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]
Opener = Callable[..., Any]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture
def small() -> dict[str, Any]:
    """The hand-written trace: six tokens, four passes, one draft past the end."""
    trace: dict[str, Any] = json.loads((FIXTURES / "small.json").read_text(encoding="utf-8"))
    return trace


@pytest.fixture
def garden() -> dict[str, Any]:
    """A run of a sliding window."""
    return simulate.garden()


@pytest.fixture(params=["garden", "station", "long_block", "beam", "greedy", "measured", *kept.NAMES])
def any_trace(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each kind of run."""
    return kept.either(request.param)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium; without one the test is skipped, or fails where one is required."""
    named = os.environ.get("BROWSER_PATH")
    found = named if named and Path(named).is_file() else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no Chromium: BROWSER_PATH is not set and none of {', '.join(NAMES)} is on PATH"
        if os.environ.get("CI") and os.environ.get("FASTDECODE_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """A running Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


def page_of(url: str) -> str:
    """An address without the view that its hash tells."""
    return url.partition("#")[0]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens a trace's page; afterwards, nothing was fetched and nothing complained."""
    contexts, requests, complaints = [], [], []

    def open_page(trace: dict[str, Any], view: str = "", **options: Any) -> Any:
        path = ddgviz.save(trace, tmp_path / "picture.html")
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        contexts.append(context)
        context.route(
            "**/*", lambda route: route.continue_() if page_of(route.request.url) == path.as_uri() else route.abort()
        )
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri() + view)
        page.wait_for_selector(".ddgviz[data-passes]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert set(map(page_of, requests)) == {(tmp_path / "picture.html").as_uri()}
    assert complaints == []


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a JupyterLab."""
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    never = "--LabApp.expose_app_in_browser=True --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"
    options = f"{never} --ServerApp.ip=127.0.0.1 --ServerApp.port={port} --IdentityProvider.token= --allow-root"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        f"--LabApp.app_settings_dir={Path(__file__).parents[2] / 'notebooks' / 'lab'}",
        *options.split(" "),
        f"--ServerApp.root_dir={folder}",
    ]
    paths = [str(Path(__file__).parents[2]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    folders = {f"JUPYTER_{name}_DIR": str(folder / f".{name.lower()}") for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = (
        os.environ
        | folders
        | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "IPYTHONDIR": str(folder / ".ipython")}
    )
    log = (folder / "lab.log").open("wb")
    server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status", server, folder / "lab.log")
        yield address, folder
    finally:
        server.terminate()
        server.wait(timeout=20)
        log.close()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not start: {log.read_text(encoding='utf-8')[-2000:]}")
