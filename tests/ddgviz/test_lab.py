"""The picture in a real JupyterLab: drawn, streamed into, deaf to no key that is its own, and dark when asked."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

pytestmark = pytest.mark.browser
CELLS = (
    "import ddgviz, simulate\nddgviz.show(simulate.garden())",
    "live = ddgviz.Picture()\nlive",
    "for event in simulate.events(simulate.station()):\n    live.append(event)",
)
READY = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  return context?.isReady && context.session?.kernel?.status === "idle";
}"""


def write_notebook(folder: Path) -> None:
    """A notebook that shows one finished run and streams another."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "picture.ipynb")


def command(page: Any, name: str, **options: Any) -> None:
    """Run a JupyterLab command."""
    page.evaluate("([name, options]) => void window.jupyterapp.commands.execute(name, options)", [name, options])


def test_jupyterlab(lab: tuple[str, Path], browser: Any) -> None:
    address, folder = lab
    write_notebook(folder)
    page = browser.new_context(viewport={"width": 1280, "height": 1400}).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{address}/lab/tree/picture.ipynb?reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.wait_for_function(READY, timeout=60_000)
    command(page, "notebook:run-all-cells")

    pictures = page.locator(".ddgviz")
    page.wait_for_selector('.ddgviz[data-pass="6"]', timeout=60_000)
    page.wait_for_selector('.ddgviz[data-passes="19"]', timeout=20_000)
    assert pictures.count() == 2
    assert pictures.nth(1).locator(".ddg-headline").inner_text() == "19 passes for 33 tokens"

    count = page.locator(".jp-Cell").count()
    pictures.first.focus()
    for key in ("b", "a", "x", "d", "d", "j", "["):
        page.keyboard.press(key)
    page.wait_for_selector('.ddgviz[data-pass="5"]')
    assert page.locator(".jp-Cell").count() == count

    canvas = pictures.first.locator("canvas")
    before = canvas.screenshot()
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector('.ddgviz[data-theme="dark"]', timeout=20_000)
    page.wait_for_timeout(300)
    assert canvas.screenshot() != before
    assert [line for line in complaints if "ddg" in line or "anywidget" in line] == []
    page.context.close()
