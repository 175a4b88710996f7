"""The panel as a page of Voila: the bundled model answers, every button works, and nothing is asked of other machines."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import _wait_for

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
SLOW = """
import time
import ddgviz, test_panel

class Slow(test_panel.Runner):
    def run(self, *given):
        for event in super().run(*given):
            time.sleep(0.2)
            yield event

ddgviz.explore(Slow(), start=False)
"""


CLOSING = "--Voila.tornado_settings={'disable_check_xsrf': True}"
"""Without it Voila refuses a page's own request to end its kernel. Requests that end one name its secret id."""


@pytest.fixture(scope="module")
def voila(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Voila that serves the app, and a panel with a slow runner."""
    pytest.importorskip("voila")
    folder = tmp_path_factory.mktemp("voila")
    shutil.copy(ROOT / "notebooks" / "app.ipynb", folder)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SLOW)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "slow.ipynb")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert f'"{CLOSING}"' in (ROOT / "Makefile").read_text(encoding="utf-8")
    command = [sys.executable, "-m", "voila", str(folder), "--no-browser", "--template=page", CLOSING]
    paths = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    folders = {f"JUPYTER_{name}_DIR": str(folder / f".{name.lower()}") for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = folders | {
        "JUPYTER_PATH": str(ROOT / "notebooks"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "IPYTHONDIR": str(folder / ".ipython"),
    }
    with (folder / "voila.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "--Voila.ip=127.0.0.1", f"--port={port}"],
            env=os.environ | environment,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/voila/static/voila.js", server, folder / "voila.log")
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=20)


@pytest.fixture
def open_page(voila: str, browser: Any) -> Iterator[Any]:
    """Opens a notebook of the server; at the end no page has complained or asked another machine."""
    context = browser.new_context(viewport={"width": 1280, "height": 1400})
    requests: list[str] = []
    complaints: list[str] = []

    def opened(name: str) -> Any:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("websocket", lambda websocket: requests.append(websocket.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{voila}voila/render/{name}.ipynb", timeout=60_000)
        page.wait_for_selector(".ddg-panel .ddgviz", timeout=60_000)
        return page

    yield opened
    context.close()
    near = (voila, voila.replace("http:", "ws:"), "data:", f"blob:{voila}")
    assert [url for url in requests if not url.startswith(near)] == []
    assert len(requests) > 20 and complaints == []


def test_the_app_weighs_widths_and_projections(open_page: Any) -> None:
    page = open_page("app")
    page.get_by_text("What pays").click()
    page.get_by_role("button", name="Measure").click()
    page.wait_for_selector(".js-plotly-plot .scatterlayer .point", timeout=60_000)
    page.wait_for_function("document.querySelectorAll('.ddgviz:not([hidden])').length >= 3", timeout=20_000)
    said = page.locator(".ddg-verdict:visible")
    measured = r"Window of \d, [a-z\d (),-]+: \d+ passes, \d+\.\d\d times as fast"
    said.filter(has_text=re.compile(measured)).wait_for(timeout=20_000)
    text = page.get_by_placeholder("A sentence to measure").input_value()
    assert said.first.inner_text() == f"Measured on “{text}” · English → German"
    projection = page.get_by_label("Projection", exact=True).last
    assert [name.split()[0] for name in projection.locator("option").all_inner_texts()] == [
        "exact", "quantised", "clustered", "screened", "lexical"
    ]  # fmt: skip
    projection.select_option("exact")
    page.wait_for_function(
        "[...document.querySelectorAll('.ddg-verdict')].some(e => e.textContent.includes(', exact: '))"
    )
    projection.select_option(index=2)
    clusters = page.locator("text=/^cluster \\d+$/ >> visible=true")  # active sets stand below the passes
    clusters.first.wait_for(timeout=20_000)
    page.get_by_label("To", exact=True).last.select_option("French")
    page.get_by_text("” · English → French").wait_for(timeout=60_000)
    page.locator(".ddg-token:visible", has_text="enfants").first.wait_for()


def test_a_session_ends_with_its_page(voila: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{voila}voila/render/slow.ipynb", timeout=60_000)
    page.wait_for_selector(".ddg-panel .ddgviz", timeout=60_000)
    config = json.loads(page.locator("#jupyter-config-data").text_content())
    place = f"{voila}api/kernels/{config['kernelId']}"
    assert page.request.get(place).status == 200
    page.goto("about:blank")
    for _ in range(100):
        if page.request.get(place).status == 404:
            break
        time.sleep(0.2)
    assert page.request.get(place).status == 404
    page.close()


RUN = """
async path => {
    const pages = await (await fetch(document.URL)).text();
    const kernel = document.body.innerHTML.match(/"kernelId": ?"([0-9a-f-]+)"/) || pages.match(/"kernelId": ?"([0-9a-f-]+)"/);
    const socket = new WebSocket(location.origin.replace("http", "ws") + "/api/kernels/" + kernel[1] + "/channels");
    await new Promise((done, failed) => { socket.onopen = done; socket.onerror = failed; });
    const message = (type, content) => socket.send(JSON.stringify({
        channel: "shell", parent_header: {}, metadata: {}, content, buffers: [],
        header: {msg_id: type, msg_type: type, session: "s", username: "", version: "5.3", date: new Date().toISOString()},
    }));
    const answered = new Promise(done => { socket.onmessage = event => {
        if (JSON.parse(event.data).parent_header.msg_id === "kernel_info_request") done("answered");
    }; });
    message("execute_request", {code: `open(${JSON.stringify(path)}, "w").close()`, silent: false, store_history: false,
        user_expressions: {}, allow_stdin: false});
    message("kernel_info_request", {});
    return answered;
}
"""
"""Asks the page's kernel to run code, then for something that it answers."""


def test_a_page_cannot_run_code_in_its_kernel(voila: str, browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(f"{voila}voila/render/slow.ipynb", timeout=60_000)
    page.wait_for_selector(".ddg-panel .ddgviz", timeout=60_000)
    assert page.evaluate(RUN, str(tmp_path / "run")) == "answered"
    page.close()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["api/kernels", "api/contents", "voila/files/app.ipynb", "api/terminals"])
def test_a_visitor_reaches_no_files_and_starts_nothing(voila: str, place: str) -> None:
    """Only the pages, what they are made of, and the kernel of a page that is open."""
    import urllib.error
    import urllib.request

    for method in ("GET", "POST"):
        request = urllib.request.Request(voila + place, method=method, data=b"{}" if method == "POST" else None)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert "login" in answer.url or ("kernels" in place and method == "GET"), answer.url
        except urllib.error.HTTPError as error:
            assert error.code in (401, 403, 404, 405)


def test_the_app_translates_compares_and_remembers(open_page: Any) -> None:
    page = open_page("app")
    result, verdict = page.locator(".ddg-result"), page.locator(".ddg-verdict")
    page.wait_for_function("document.querySelector('.ddg-result')?.textContent.startsWith('Die Kinder')")
    assert "fastdecode_lib.runner(" not in page.content(), "the notebook's own code is shown"

    sentence = page.get_by_placeholder("A sentence to translate")
    sentence.fill("The train is late.")
    sentence.press("Enter")
    page.wait_for_function("document.querySelector('.ddg-result')?.textContent.startsWith('Der Zug')")

    page.get_by_label("Compare with").select_option("Jacobi")
    verdict.wait_for(timeout=20_000)
    said = r"Same output: A in (\d+) passes, B in (\d+)\.(?: In this one run A took [\d.,]+ ms and B [\d.,]+ ms; .*)?"
    found = re.fullmatch(said, verdict.inner_text())
    assert found
    pictures = page.locator(".ddgviz:visible")
    assert pictures.count() == 2
    counts = [int(number) for number in found.groups()]
    for picture, count in zip(pictures.all(), counts, strict=True):
        assert int(picture.get_attribute("data-passes")) == count

    page.get_by_text("Python for this view").click()
    assert "ddgviz.compare(a, b)" in page.locator(".ddg-code pre").inner_text()

    history = page.get_by_label("History")
    assert history.locator("option").count() == 3
    history.select_option(index=2)
    page.wait_for_function("document.querySelector('.ddg-result')?.textContent.startsWith('Die Kinder')")
    assert sentence.input_value() == "The children are playing in the garden behind the school."
    assert page.get_by_label("Compare with").evaluate("menu => menu.selectedOptions[0].text") == "None"
    assert (pictures.count(), verdict.is_visible(), result.is_visible()) == (1, False, True)


DRAWN = """
const fillText = CanvasRenderingContext2D.prototype.fillText;
window.drawn = new Set();
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) { drawn.add(text); fillText.call(this, text, ...place); };
"""


WIDTHS = """menus => menus.map(menu => {
    const width = menu.offsetWidth;
    menu.style.width = "auto";
    const needed = menu.offsetWidth;
    menu.style.width = "";
    return [width, needed];
})"""
"""The width of each menu, and what its longest choice needs."""


def test_a_narrow_page_has_its_buttons_in_one_row_and_whole_tokens(voila: str, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 700, "height": 900}, reduced_motion="reduce")
    page.add_init_script(DRAWN)
    page.goto(f"{voila}voila/render/app.ipynb", timeout=60_000)
    page.wait_for_function(
        "document.querySelector('.ddg-result')?.textContent.startsWith('Die Kinder')", timeout=60_000
    )
    tops = [button.bounding_box()["y"] for button in page.locator(".ddg-first:visible button").all()]
    assert len(tops) == 3 and len(set(tops)) == 1
    page.set_viewport_size({"width": 520, "height": 900})
    tops = [button.bounding_box()["y"] for button in page.locator(".ddg-first:visible button").all()]
    assert len(set(tops)) == 1, "below the sentence, but together"
    page.set_viewport_size({"width": 700, "height": 900})
    widths = page.locator(".ddg-controls select:visible").evaluate_all(WIDTHS)
    assert all(width >= needed for width, needed in widths), f"the names of choices are cut: {widths}"
    page.evaluate("drawn.clear()")
    page.get_by_label("Compare with").select_option("Greedy")
    page.get_by_text("Same output: A in").wait_for(timeout=20_000)
    page.wait_for_function("drawn.has('Kinder') && drawn.has('Schule')")
    assert not [text for text in page.evaluate("[...drawn]") if text.endswith("…")]
    page.close()


def test_every_button_works_while_a_run_is_under_way(open_page: Any) -> None:
    page = open_page("slow")
    picture = page.locator(".ddgviz").first

    def press(name: str) -> None:
        page.locator(".ddg-first").get_by_role("button", name=name, exact=True).click()

    def wait_for(name: str) -> None:
        page.wait_for_function(
            "name => [...document.querySelectorAll('.ddg-first button')].some(b => b.textContent === name && !b.disabled)",
            arg=name,
        )

    def reach(count: int) -> None:
        page.wait_for_function("n => document.querySelector('.ddgviz').dataset.passes >= n", arg=count)

    def passes() -> int:
        return int(picture.get_attribute("data-passes"))

    press("Translate")
    reach(1)
    press("Pause")
    wait_for("Resume")
    page.wait_for_timeout(500)
    paused = passes()
    page.wait_for_timeout(500)
    assert 1 <= paused == passes() <= 4
    press("Step")
    reach(paused + 1)
    page.wait_for_timeout(500)
    assert passes() == paused + 1
    press("Resume")
    wait_for("Translate")
    assert passes() == 6
    assert page.locator(".ddg-result").inner_text() == "Die Kinder spielen im Garten hinter der Schule."

    page.get_by_label("Decoder").select_option("Gauss-Seidel")
    page.wait_for_function("document.querySelector('.ddgviz').dataset.passes < 6")
    reach(2)
    press("Stop")
    wait_for("Translate")
    assert 2 <= passes() < 19
    page.get_by_label("Decoder").select_option("Broken")
    page.get_by_text("No such decoder, got <b>broken⟨U+202E⟩. Choose another.").wait_for()
    page.wait_for_function("document.querySelector('.ddgviz').dataset.passes === '0'")
    assert page.locator(".ddg-player:visible, .ddg-scroll:visible, [data-earlier]").count() == 0, (
        "an older picture is left"
    )
    page.get_by_label("Decoder").select_option("Sliding window")
    reach(6)
    page.wait_for_function("document.querySelector('.ddg-scroll').clientHeight > 200")
