"""Turns SVG into PDF and PNG with an installed Chromium."""

import asyncio
import base64
import os
import re
import shutil
import subprocess
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALL = (
    "Install one (Debian and Ubuntu: apt install chromium fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji), set "
    "BROWSER_PATH to its program, or save as .svg or .html, which need no browser."
)
_SCALE = 2
_TIMEOUT = 60.0


def find_browser() -> str:
    """Path of a Chromium: BROWSER_PATH if set, else the first on PATH.

    Raises
    ------
    ValueError
        If there is none.
    """
    path = os.environ.get("BROWSER_PATH")
    if path:
        if not Path(path).is_file():
            raise ValueError(f"BROWSER_PATH must name a Chromium program, got {path!r}, which is no file. {_INSTALL}")
        return path
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        names = ", ".join(_NAMES)
        raise ValueError(f"PDF, PNG and GIF need Chromium, got no BROWSER_PATH and none of {names} on PATH. {_INSTALL}")
    return browser


def convert(svg: str, kind: str) -> bytes:
    """The drawing as a file of a kind, "pdf", or "png" with two pixels for each of its own in both directions."""
    return _draw([(svg, kind, _SCALE)])[0]


def pngs(svgs: Sequence[str], scale: float) -> list[bytes]:
    """Several drawings as PNG, from one start of the browser."""
    return _draw([(svg, "png", scale) for svg in svgs])


_Job = tuple[str, str, float]
"""A drawing, the kind of file, and the number of pixels for each pixel of the drawing."""


def _draw(jobs: Sequence[_Job]) -> list[bytes]:
    browser = find_browser()
    _warn_of_missing_fonts("".join(svg for svg, _, _ in jobs))
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["files"] = asyncio.run(asyncio.wait_for(_convert(browser, jobs), _TIMEOUT + len(jobs)))
        except BaseException as error:  # raised again in the caller's thread
            outcome["error"] = error

    # a thread of its own: notebooks already run an event loop in theirs
    thread = threading.Thread(target=work, name="ddgviz-browser")
    thread.start()
    thread.join()
    if "error" in outcome:
        error = outcome["error"]
        raise RuntimeError(f"Chromium at {browser} did not draw the picture, got {error!r}. {_INSTALL}") from error
    return outcome["files"]


async def _convert(path: str, jobs: Sequence[_Job]) -> list[bytes]:
    from choreographer import Browser

    files = []
    async with Browser(path=path, headless=True) as browser:
        tab = await browser.create_tab("about:blank")
        tree = await tab.send_command("Page.getFrameTree")
        frame = tree["result"]["frameTree"]["frame"]["id"]
        for svg, kind, scale in jobs:
            await tab.send_command("Page.setDocumentContent", {"frameId": frame, "html": _page(svg)})
            command, options = _command(kind, *_size(svg), scale)
            answer = await tab.send_command(command, options)
            files.append(base64.b64decode(answer["result"]["data"]))
    return files


def _page(svg: str) -> str:
    wide, high = _size(svg)
    style = f"@page{{size:{wide}px {high}px;margin:0}}html,body{{margin:0;padding:0}}svg{{display:block}}"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    meta = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    return f"<!doctype html>{meta}<style>{style}</style>{svg}"


def _command(kind: str, wide: float, high: float, scale: float) -> tuple[str, dict[str, Any]]:
    if kind == "pdf":
        return "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True}
    clip = {"x": 0, "y": 0, "width": wide, "height": high, "scale": scale}
    return "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}


def _size(svg: str) -> tuple[float, float]:
    wide, high = re.findall(r'<svg [^>]*? width="([0-9.]+)" height="([0-9.]+)"', svg)[0]
    return float(wide), float(high)


def _warn_of_missing_fonts(svg: str) -> None:
    """Warn of characters that no installed font can draw; without fontconfig, nothing is checked."""
    if shutil.which("fc-list") is None:
        return
    samples = {ord(character) >> 8: character for character in sorted(set(svg)) if ord(character) > 0x2FF}
    missing = [sample for sample in samples.values() if not _has_font(sample)]
    if missing:
        warnings.warn(
            f"No installed font draws {', '.join(f'U+{ord(sample):04X}' for sample in missing[:5])}: "
            "the file will show boxes. Install fonts "
            "(Debian and Ubuntu: apt install fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji).",
            stacklevel=4,
        )


def _has_font(character: str) -> bool:
    command = ["fc-list", f":charset={ord(character):x}", "family"]
    return bool(subprocess.run(command, capture_output=True, check=False, timeout=10).stdout.strip())
