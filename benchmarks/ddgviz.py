"""Costs of the picture: drawing, latency, bytes and recording, in headless Chromium without a GPU."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import simulate

import ddgviz
from benchmarks.report import Row, command_of, options_of, report
from ddgviz.assets import script
from ddgviz.browser import find_browser
from ddgviz.page import html

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"40x24": (40, 24), "512x200": (512, 200)}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
TIMED_FRAMES = """
window.frames_ms = [];
const raf = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (act) => raf((now) => {
  const start = performance.now();
  act(now);
  window.frames_ms.push(performance.now() - start);
});
"""
DRAWN = """
window.drawn = {};
new MutationObserver((changes) => {
  for (const { target } of changes) {
    const passes = Number(target.dataset.passes);
    for (let pass = passes; pass > 0 && !(pass in window.drawn); pass--) window.drawn[pass] = Date.now();
  }
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-passes"] });
"""
STREAM = """
import json, time, ddgviz
from benchmarks import ddgviz as bench
picture = ddgviz.Picture()
display(picture)
time.sleep(1.5)
sent = []
for event in bench.events(bench.grid({positions}, {passes})):
    if event["event"] == "iteration":
        sent.append(time.time() * 1000)
    picture.append(event)
    time.sleep(0.05)
open("sent-{name}.json", "w").write(json.dumps(sent))
"""
PANEL = """
import ddgviz, fastdecode_lib
ddgviz.explore(fastdecode_lib.runner(fastdecode_lib.load("tatoeba-small")))
"""
ENTERED = """
window.first = {};
addEventListener("keydown", (event) => { if (event.key === "Enter") window.entered = performance.now(); }, true);
new MutationObserver((changes) => {
  for (const { target } of changes) {
    const text = target.querySelector(".ddg-title").textContent;
    if (Number(target.dataset.pass) && !(text in window.first)) window.first[text] = performance.now() - window.entered;
  }
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-pass"] });
"""
WARM = 2
"""Sentences that a panel answers before it is timed."""


def events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The run as a decoder sends it: each pass has the texts of its new tokens."""
    sent: set[str] = set()
    run_events = simulate.events(trace)
    for event in run_events[1:-1]:
        new = {str(token) for token in (*event["tokens"], *event["drafts"])} - sent
        event["pieces"] = {key: text for key, text in trace["pieces"].items() if key in new}
        sent |= new
    return run_events


def grid(positions: int, passes: int) -> dict[str, Any]:
    """A Jacobi run of one block: every pass computes all tokens that are not settled."""
    trace = simulate.jacobi(["▁a"], {}, width=1, source="A long sentence. " * (positions // 12), decoder="jacobi")
    tokens = [2 + index % 97 for index in range(positions - 1)] + [simulate.END]
    trace["pieces"] |= {str(2 + index): f"▁word{index}" for index in range(97)}
    before, settled = [(simulate.PAD, "pad")] * positions, 0
    trace["iterations"] = []
    for call in range(passes):
        until = (call + 1) * positions // passes
        outputs = [
            tokens[slot] if slot < until or (slot * 7 + call) % 3 else 2 + (slot + call) % 97
            for slot in range(positions)
        ]
        row = simulate.row_of_pass(
            call, list(range(settled, positions)), before[settled:], outputs[settled:], until - settled, True
        )
        trace["iterations"].append(row)
        before, settled = [(token, "recycled") for token in outputs], until
    trace["hypotheses"] = [{"tokens": tokens, "score": None, "stop": "end"}]
    return trace


class Counted(ddgviz.Picture):
    """A picture that counts the bytes that it would send."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        super().__init__()

    def send(self, content: Any, buffers: Any = None) -> None:
        """Count the bytes of a message."""
        self.sizes.append(len(json.dumps(content, ensure_ascii=False).encode()) + sum(map(len, buffers or ())))


def sizes(trace: dict[str, Any]) -> dict[str, float]:
    """Bytes of a row of a streamed run, of the sealed trace, of its page, and of a notebook with it."""
    picture = Counted()
    for event in events(trace)[:-1]:
        picture.append(event)
        picture.flush()
    rows = sum(picture.sizes[1:]) / len(trace["iterations"])
    shown = ddgviz.show(trace)
    data, _ = shown._repr_mimebundle_()
    cell = nbformat.v4.new_code_cell("ddgviz.show(trace)", outputs=[nbformat.v4.new_output("display_data", data=data)])
    notebook = nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))
    sealed = len(shown.trace_json.encode()) + len(shown.rows) + len(json.dumps(shown.words).encode())
    return {
        "bytes a row": rows,
        "sealed": sealed,
        "page": len(html(trace).encode()),
        "notebook": len(notebook.encode()),
    }


def draws(browser: Any, trace: dict[str, Any], steps: int = 120) -> list[float]:
    """Milliseconds of each frame while the reader steps through a page and scrolls it."""
    with tempfile.TemporaryDirectory() as folder:
        page = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce").new_page()
        page.add_init_script(TIMED_FRAMES)
        page.goto(ddgviz.save(trace, Path(folder) / "page.html").as_uri())
        page.wait_for_selector(".ddgviz[data-passes]")
        page.locator(".ddgviz").focus()
        for key in ("[", "]") * 10:
            page.keyboard.press(key)
        page.evaluate("() => { window.frames_ms.length = 0; }")
        for step in range(steps):
            if step % 2:
                page.keyboard.press("[" if step % 4 == 1 else "]")
            else:
                page.evaluate(
                    "(n) => document.querySelector('.ddg-scroll').scrollTo((n * 331) % 9000, (n * 173) % 6000)", step
                )
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        milliseconds = [ms for ms in page.evaluate("() => window.frames_ms") if ms > 0.3]
        page.context.close()
    return milliseconds


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """A JupyterLab in `folder`."""
    port = 8900 + os.getpid() % 90
    flags = "--LabApp.expose_app_in_browser=True --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"
    options = f"{flags} --ServerApp.ip=127.0.0.1 --ServerApp.port={port} --IdentityProvider.token= --allow-root".split()
    folders = {f"JUPYTER_{name}_DIR": str(folder / f".{name.lower()}") for name in ("CONFIG", "DATA", "RUNTIME")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "ddgviz")])
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", *options, f"--ServerApp.root_dir={folder}"]
    with (folder / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | folders | {"PYTHONPATH": paths}, stdout=log, stderr=log
        )
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"{address}/api/status", timeout=2).read()
                    break
                except OSError:
                    time.sleep(0.3)
            yield address
        finally:
            server.terminate()
            server.wait(timeout=20)


def run_notebook(browser: Any, address: str, path: Path, code: str, watch: str) -> Any:
    """The page of a JupyterLab notebook whose single cell is running, watched by a script."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)
    page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
    page.add_init_script(watch)
    page.goto(f"{address}/lab/tree/{path.name}?reset")
    ready = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    page.wait_for_function(ready, timeout=90_000)
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    return page


def answers(page: Any, sentences: int) -> list[float]:
    """Milliseconds from Enter in a panel to the first row of the picture, after a warm-up."""
    page.wait_for_selector(".ddg-panel .ddgviz[data-pass]", timeout=90_000)
    times = []
    for number in range(WARM + sentences):
        text = f"The old man has {number + 2} books in his house."
        time.sleep(2)  # for the run before to have ended
        page.locator(".ddg-sentence input").fill(text)
        page.locator(".ddg-sentence input").press("Enter")
        page.wait_for_function("(text) => text in window.first", arg=text, timeout=30_000)
        times.append(page.evaluate("(text) => window.first[text]", text))
    return times[WARM:]


def latencies(browser: Any, sentences: int) -> dict[str, list[float]]:
    """Milliseconds in JupyterLab from `append` in a kernel to the drawn frame, at 20 rows a second, and from Enter."""
    milliseconds: dict[str, list[float]] = {}
    folder = Path(tempfile.mkdtemp())
    try:
        with lab(folder) as address:
            page = run_notebook(browser, address, folder / "panel.ipynb", PANEL, ENTERED)
            milliseconds["panel"] = answers(page, sentences)
            page.context.close()
            for name, (positions, passes) in SIZES.items():
                code = STREAM.format(positions=positions, passes=passes, name=name)
                page = run_notebook(browser, address, folder / f"{name}.ipynb", code, DRAWN)
                page.wait_for_function(f"() => {passes} in window.drawn", timeout=120_000)
                times = page.evaluate("() => window.drawn")
                while not (folder / f"sent-{name}.json").exists():
                    time.sleep(0.1)
                sent = json.loads((folder / f"sent-{name}.json").read_text())
                milliseconds[name] = [times[str(index + 1)] - at for index, at in enumerate(sent)]
                page.context.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return milliseconds


def recording(rounds: int) -> dict[str, list[float]]:
    """CPU seconds of decoding our sentences: without observation, with probabilities, traced, and drawn live; interleaved."""
    import torch

    import fastdecode_lib
    from fastdecode_lib.core import drain
    from fastdecode_lib.runners import events
    from fastdecode_lib.translation import Session

    torch.set_num_threads(1)
    model = fastdecode_lib.load("tatoeba-small")
    session = Session.of(model, "en", "de", "greedy")
    sentences = (ROOT / "fastdecode_lib" / "text" / "sentences.tsv").read_text(encoding="utf-8").splitlines()
    texts = [row.split("\t")[sentences[0].split("\t").index("en")] for row in sentences[1:13]]
    picture = Counted()

    def decode(text: str, observe: bool) -> None:
        source = model.encode([text], "en", "de")
        drain(session.decoder.iterate(model.network, session.projection, source, session.constraints, observe=observe))

    def trace(text: str, act: Callable[[dict[str, Any]], None]) -> None:
        for event in events(session, text):
            act(event)

    runs: dict[str, Callable[[str], None]] = {
        "decoded": lambda text: decode(text, False),
        "with probabilities": lambda text: decode(text, True),
        "traced": lambda text: trace(text, lambda _: None),
        "drawn live": lambda text: trace(text, picture.append),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 2):
        for name, act in runs.items():
            start = time.process_time()
            for text in texts:
                act(text)
            if turn > 1:
                seconds[name].append(time.process_time() - start)
    return seconds


def p95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def bytes_rows() -> Iterator[Row]:
    """Bytes of the script, of a page, and of runs in messages and in notebooks."""
    yield Row("one script", len(script().encode()), "bytes")
    small = simulate.garden()
    data = len(json.dumps(small)) + len(json.dumps(ddgviz.show(small).words))
    yield Row("standalone page without data", len(html(small).encode()) - data, "bytes")
    for name, size in SIZES.items():
        for part, count in sizes(grid(*size)).items():
            yield Row(f"{name}, {part}", count, "bytes")


def browser_rows(steps: int) -> Iterator[Row]:
    """Milliseconds of a drawn frame, from `append` to the drawn frame in JupyterLab, and from Enter to the first row."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        delays = latencies(browser, max(5, steps // 4))
        times = delays["panel"]
        yield Row.of_samples("Enter to first row", times, "ms", f"p95 {p95(times):.1f} of {len(times)}")
        for name, size in SIZES.items():
            for part, times in (("draw", draws(browser, grid(*size), steps)), ("append to drawn", delays[name])):
                yield Row.of_samples(f"{name}, {part}", times, "ms", f"p95 {p95(times):.1f} of {len(times)}")
        browser.close()


def recording_rows(rounds: int) -> Iterator[Row]:
    """CPU time of recording and drawing, over that of decoding alone, in the same round."""
    seconds = recording(rounds)
    for name, values in seconds.items():
        ratios = [value / plain for value, plain in zip(values, seconds["decoded"], strict=True)]
        yield Row.of_samples(f"recording: {name}", ratios, "times decoded")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    options = options_of("ddgviz", __doc__, corpus=False).parse_args(arguments)
    rounds, steps = (2, 4) if options.tiny else (6, 40) if options.quick else (15, 120)
    rows = [*bytes_rows(), *browser_rows(steps), *recording_rows(rounds)]
    report(rows, command_of("ddgviz", arguments), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
