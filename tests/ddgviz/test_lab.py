"""The picture in a real JupyterLab: drawn, streamed into, deaf to no key that is its own, and dark when asked."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytestmark = pytest.mark.browser
CELLS = (
    "import time, ddgviz, simulate\nddgviz.show(simulate.garden())",
    "live = ddgviz.Picture()\nlive",
    "for event in simulate.events(simulate.station()):\n    live.append(event)\n    time.sleep(0.15)\nprint('decoded')",
    "other = simulate.other_words(simulate.garden())\nddgviz.compare(simulate.garden(), other)",
    "ddgviz.show(simulate.hostile())",
    "from test_race import slower\nddgviz.race(simulate.garden(), slower(simulate.garden()))",
    "ddgviz.tour(simulate.garden())",
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


@pytest.mark.parametrize(
    ("plugin", "key", "value"), [("docmanager", "autosave", False), ("apputils", "fetchNews", "false")]
)
def test_reading_a_notebook_changes_no_file(lab: tuple[str, Path], plugin: str, key: str, value: object) -> None:
    """`make lab` starts JupyterLab with these settings: what runs is saved when its reader saves it."""
    part = {"docmanager": "plugin", "apputils": "notification"}[plugin]
    with urllib.request.urlopen(f"{lab[0]}/lab/api/settings/@jupyterlab/{plugin}-extension:{part}") as answer:
        properties = json.load(answer)["schema"]["properties"]
    assert properties[key]["default"] == value
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert '--LabApp.app_settings_dir="$(CURDIR)/notebooks/lab"' in makefile


@pytest.fixture(scope="module")
def notebook(lab: tuple[str, Path], browser: Any) -> Iterator[Any]:
    """A notebook of pictures, run in a JupyterLab; afterwards, no other machine was asked and nothing complained."""
    address, folder = lab
    write_notebook(folder)
    context = browser.new_context(viewport={"width": 1280, "height": 3600})
    page = context.new_page()
    complaints: list[str] = []
    foreign: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("data:", "blob:", address)) else foreign.append(request.url),
    )
    page.goto(f"{address}/lab/tree/picture.ipynb?reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.wait_for_function(READY, timeout=60_000)
    command(page, "notebook:run-all-cells")
    yield page
    assert foreign == []
    assert [line for line in complaints if "ddg" in line or "anywidget" in line] == []
    context.close()


def picture(page: Any, title: str) -> Any:
    """The first picture whose sentence starts so."""
    page.wait_for_function(
        f"() => [...document.querySelectorAll('.ddg-title')].some((t) => t.textContent.startsWith({title!r}))"
    )
    return page.locator(".ddgviz", has=page.locator(".ddg-title", has_text=title)).first


def draws(page: Any) -> None:
    """Waits until what was asked has been drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_rows_stream_in_while_the_cell_runs(notebook: Any) -> None:
    live = picture(notebook, "Because")
    notebook.wait_for_function(
        "(root) => root.dataset.passes > 2 && root.dataset.passes < 15", arg=live.element_handle(), timeout=60_000
    )
    assert "so far" in live.locator(".ddg-headline").inner_text()
    assert notebook.get_by_text("decoded", exact=True).count() == 0
    notebook.wait_for_function("(root) => root.dataset.passes === '19'", arg=live.element_handle(), timeout=30_000)
    notebook.get_by_text("decoded", exact=True).wait_for(timeout=20_000)
    assert live.locator(".ddg-headline").inner_text() == "19 passes for 33 tokens"


def test_keys_stay_in_the_picture(notebook: Any) -> None:
    notebook.wait_for_function(READY, timeout=60_000)
    cells = notebook.locator(".jp-Cell")
    code = "() => [...document.querySelectorAll('.jp-InputArea-editor')].map((editor) => editor.textContent)"
    before = [cells.count(), notebook.evaluate(code)]
    first = picture(notebook, "The children")
    first.focus()
    notebook.keyboard.press("End")
    for key in ["b", "a", "x", "d", "d", "j", "k", "m", "ArrowDown", "ArrowUp", "Enter", "0", "0", "["]:
        notebook.keyboard.press(key)
    notebook.wait_for_function("(root) => root.dataset.pass === '5'", arg=first.element_handle())
    first.locator(".ddg-search").fill("")
    first.locator(".ddg-search").press_sequentially("bddx")
    assert first.locator(".ddg-search").input_value() == "bddx"
    notebook.keyboard.press("Escape")
    draws(notebook)
    assert [cells.count(), notebook.evaluate(code)] == before


def test_two_runs_share_cursor_and_pass(notebook: Any) -> None:
    one, two = notebook.locator(".ddgviz").nth(2), notebook.locator(".ddgviz").nth(3)
    one.scroll_into_view_if_needed()
    two.wait_for()
    assert notebook.get_by_text("Outputs differ at 1 of 10 positions").count() == 1
    one.focus()
    for key in ("Home", "]", "]", "]"):
        notebook.keyboard.press(key)
    notebook.wait_for_function("(root) => root.dataset.pass === '3'", arg=two.element_handle())
    two.focus()
    notebook.keyboard.press("End")
    notebook.wait_for_function("(root) => root.dataset.pass === '6'", arg=one.element_handle())
    assert [view.locator(".ddg-differs").count() for view in (one, two)] == [1, 1]
    assert "differs from the other run" in one.locator(".ddg-legend").inner_text()
    stage = one.locator(".ddg-stage").bounding_box()
    notebook.mouse.move(stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] - 20)
    draws(notebook)
    assert [view.locator(".ddg-self").count() for view in (one, two)] == [1, 1]
    texts = [view.locator(".ddg-token").all_text_contents() for view in (one, two)]
    assert [a == b for a, b in zip(*texts, strict=True)].count(False) == 1
    differing = [a == b for a, b in zip(*texts, strict=True)].index(False)
    token = one.locator(".ddg-token").nth(differing).bounding_box()
    notebook.mouse.move(token["x"] + 5, token["y"] + 5)
    draws(notebook)
    assert [view.locator(".ddg-self").count() for view in (one, two)] == [1, 0], "what is in one alone has no partner"
    notebook.mouse.move(2, 2)
    one.get_by_label("Play", exact=True).click()
    notebook.wait_for_function("(root) => root.dataset.pass === '2'", arg=two.element_handle())
    notebook.wait_for_function("(root) => root.dataset.pass === '6'", arg=two.element_handle())


def test_hostile_tokens_stay_text(notebook: Any) -> None:
    root = notebook.locator(".ddgviz").nth(4)
    root.scroll_into_view_if_needed()
    root.wait_for()
    assert notebook.evaluate("() => window.owned") is None
    assert root.locator("img, script, a, s").count() == 0


def test_buttons_beside_a_comparison_can_be_pressed(notebook: Any) -> None:
    """Its styles, which are the whole page's, move no button of a race or a tour."""
    notebook.wait_for_selector(".ddg-tour .ddg-copy")
    for place in (".ddg-tour", ".ddg-race"):
        boxes = [button.bounding_box() for button in notebook.locator(f"{place} .ddg-copy").all()]
        assert len(boxes) == 2
        (x, y, wide, _), (other, below, *_) = (tuple(box.values()) for box in boxes)
        assert other >= x + wide or below > y, place
    notebook.locator(".ddg-tour").get_by_text("Next").click()
    notebook.locator(".ddg-tour").get_by_text("Back").click()
    assert notebook.locator(".ddg-tour").get_by_text("1 of 6").count() == 1


def test_it_follows_the_theme(notebook: Any) -> None:
    canvas = notebook.locator(".ddgviz").first.locator("canvas")
    canvas.scroll_into_view_if_needed()
    draws(notebook)
    before = canvas.screenshot()
    command(notebook, "apputils:change-theme", theme="JupyterLab Dark")
    notebook.wait_for_selector('.ddgviz[data-theme="dark"]', timeout=20_000)
    draws(notebook)
    assert canvas.screenshot() != before


def test_a_reloaded_page_shows_the_pictures_again(notebook: Any) -> None:
    command(notebook, "docmanager:save")
    notebook.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty", timeout=20_000)
    notebook.reload()
    notebook.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    notebook.wait_for_function("() => document.querySelectorAll('.ddgviz[data-passes]').length >= 4", timeout=60_000)
    assert notebook.locator(".ddg-headline").first.inner_text() == "6 passes for 10 tokens"


def test_a_saved_notebook_shows_the_pictures_to_a_new_kernel(notebook: Any, lab: tuple[str, Path]) -> None:
    """The settings of `make lab` save the state of widgets too."""
    address, _ = lab
    context = notebook.context
    token = next(cookie["value"] for cookie in context.cookies() if cookie["name"] == "_xsrf")
    for session in context.request.get(f"{address}/api/sessions").json():
        ended = context.request.delete(f"{address}/api/sessions/{session['id']}", headers={"X-XSRFToken": token})
        assert ended.ok
    page = context.new_page()
    page.goto(f"{address}/lab/tree/picture.ipynb?reset")
    page.wait_for_function("() => document.querySelectorAll('.ddgviz[data-passes]').length >= 4", timeout=60_000)
    assert page.get_by_text("Error displaying widget").count() == 0
    assert page.locator(".jp-InputPrompt", has_text="[1]:").count() == 1, "nothing was run"
    page.close()


def test_a_notebook_of_another_machine_shows_pictures_before_it_is_run(notebook: Any, lab: tuple[str, Path]) -> None:
    address, folder = lab
    saved = nbformat.read(folder / "picture.ipynb", as_version=4)
    saved.cells.append(nbformat.v4.new_markdown_cell("Changed, so that this machine has not signed it."))
    nbformat.write(saved, folder / "copy.ipynb")
    page = notebook.context.new_page()
    page.goto(f"{address}/lab/tree/copy.ipynb?reset")
    page.wait_for_selector(".jp-OutputArea img[src^='data:image/svg+xml;base64,']", timeout=60_000)
    page.wait_for_function("() => document.querySelector('.jp-OutputArea img').naturalWidth > 700")
    page.close()
