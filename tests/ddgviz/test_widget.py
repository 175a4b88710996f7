"""The live picture's Python side: what it says of itself, what it sends, what it keeps."""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import simulate

import ddgviz
from benchmarks import ddgviz as bench
from ddgviz.address import MIME
from ddgviz.widget import SEND_EVERY, Picture


class Recorder(Picture):
    """A picture that keeps what it sends."""

    def __init__(self, trace: Any = None) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(trace)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append(content)


def bundle(picture: Picture) -> dict[str, Any]:
    """What a notebook would store of it."""
    made = picture._repr_mimebundle_()
    assert made is not None
    return made[0]


def test_it_says_what_it_holds(small: dict[str, Any]) -> None:
    assert repr(ddgviz.show(small)) == "Picture(4 passes, 6 tokens, 'window:width=3')"
    assert repr(Picture()) == "Picture(empty)"


def test_mime_bundle_shows_everywhere(small: dict[str, Any]) -> None:
    data = bundle(ddgviz.show(small))
    assert set(data) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json", MIME}
    assert data["text/plain"] == repr(ddgviz.show(small))
    image = data["text/html"].split("base64,")[1].split('"')[0]
    assert base64.b64decode(image).decode("utf-8") == ddgviz.svg(small)


def test_colab_is_asked_for_its_manager_of_widgets(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ddgviz.show(small)._repr_mimebundle_()[1] == {}
    asked: list[bool] = []
    manager = SimpleNamespace(_installed_url="https://example.org/manager.js")
    colab = SimpleNamespace(enable_custom_widget_manager=lambda: asked.append(True), _widgets=manager)
    monkeypatch.setitem(sys.modules, "google.colab.output", colab)
    data, metadata = ddgviz.show(small)._repr_mimebundle_()
    assert asked == [True] and MIME in data
    ((kind, told),) = metadata.items()
    assert kind in data and told["colab"]["custom_widget_manager"]["url"] == manager._installed_url


def test_a_large_run_has_a_small_still() -> None:
    trace = simulate.jacobi(["▁a", "▁b"] * 60, {}, width=1)
    data = bundle(ddgviz.show(trace))
    assert len(data["text/html"]) < 900_000
    assert MIME not in bundle(
        ddgviz.show(simulate.jacobi([f"▁{i * i}" for i in range(600)], {}, width=300, block=True))
    )


def test_streamed_events_are_numbered_without_gaps(garden: dict[str, Any]) -> None:
    picture = Recorder()
    for event in simulate.events(garden):
        picture.append(event)
    numbers = [message["seq"] + index for message in picture.sent for index in range(len(message["events"]))]
    assert numbers == list(range(1, len(simulate.events(garden)) + 1))
    assert picture.seq == numbers[-1]


def test_the_sealed_trace_is_the_whole_run(garden: dict[str, Any]) -> None:
    picture = Recorder()
    for event in simulate.events(garden):
        picture.append(event)
    assert picture.to_dict() == garden
    assert json.loads(picture.trace_json)["hypotheses"] == garden["hypotheses"]
    assert not picture.running


def test_messages_are_bundled_when_events_rush(garden: dict[str, Any]) -> None:
    picture = Recorder()
    for event in simulate.events(simulate.long_block()):
        picture.append(event)
    assert len(picture.sent) < len(simulate.events(simulate.long_block())) / 2
    assert SEND_EVERY == 0.05


def test_a_bad_event_leaves_the_picture_as_it_was(small: dict[str, Any]) -> None:
    picture = Recorder()
    events = simulate.events(small)
    picture.append(events[0])
    with pytest.raises(ValueError, match=r"slots.* of pass 1"):
        picture.append({"event": "iteration", "call": 0})
    for event in events[1:]:
        picture.append(event)
    assert picture.to_dict() == small


def test_a_new_run_resets_the_view(small: dict[str, Any]) -> None:
    picture = Recorder(small)
    picture.view = {"pass": 2}
    picture.append(simulate.events(small)[0])
    assert picture.view == {}


def test_importing_is_light() -> None:
    heavy = "plotly, anywidget, ipywidgets, networkx, torch, transformers, fastdecode_lib"
    code = f"import sys, ddgviz; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(callable(getattr(ddgviz, name)) for name in ddgviz.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ddgviz.nothing


def test_a_picture_can_be_saved_like_its_trace(small: dict[str, Any]) -> None:
    assert ddgviz.svg(ddgviz.show(small)) == ddgviz.svg(small)


def test_a_palette_is_a_theme(small: dict[str, Any]) -> None:
    assert ddgviz.show(small, palette="print").palette == "print"
    with pytest.raises(ValueError, match=r"ddgviz draws in light, .*got 'sepia'"):
        ddgviz.show(small, palette="sepia")


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("notebooks/*.ipynb")), ids=lambda path: path.stem
)
def test_committed_notebooks_carry_no_widget_state(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert "widgets" not in notebook["metadata"]
    assert all("execution" not in cell["metadata"] for cell in notebook["cells"])


@pytest.mark.browser
def test_a_png_stands_beside_where_asked(small: dict[str, Any], chromium: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "image/png" not in bundle(ddgviz.show(small))
    monkeypatch.setenv("BROWSER_PATH", chromium)
    monkeypatch.setenv("DDGVIZ_PNG", "1")
    assert base64.b64decode(bundle(ddgviz.show(small))["image/png"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "row", "notebook"), [("40x24", 1200, 200_000), ("512x200", 4500, 200_000)])
def test_bytes_stay_within_their_budget(name: str, row: int, notebook: int) -> None:
    found = bench.sizes(bench.grid(*bench.SIZES[name]))
    assert found["bytes a row"] <= row
    assert found["notebook"] <= notebook


def test_a_run_that_starts_while_rows_wait_is_drawn(garden: dict[str, Any]) -> None:
    picture = Recorder()
    for event in simulate.events(simulate.station())[:5]:
        picture.append(event)
    for event in simulate.events(garden):
        picture.append(event)
    assert picture.to_dict() == garden
    numbers = [message["seq"] + index for message in picture.sent for index in range(len(message["events"]))]
    assert numbers == list(range(1, 5 + len(simulate.events(garden)) + 1))


@pytest.mark.parametrize(
    ("key", "value"), [("tokens", 2**40), ("tokens", -2), ("cluster", 2**31 - 1), ("cluster", 2.7)]
)
def test_numbers_no_page_can_take_leave_the_picture_as_it_was(garden: dict[str, Any], key: str, value: float) -> None:
    picture = Recorder()
    start, first, *rest = simulate.events(garden)
    picture.append(start)
    damaged = first | {key: [value] * len(first["slots"])}
    with pytest.raises(ValueError, match=rf'"{key}" of pass 1 are .*, got .*\. Record the trace again'):
        picture.append(damaged)
    for event in (first, *rest):
        picture.append(event)
    assert picture.to_dict() == garden


def test_words_that_become_empty_are_told(garden: dict[str, Any]) -> None:
    picture = Recorder()
    picture._spoken = {"beyond": "+1 more position."}
    assert picture._is_news("beyond", "")
    assert not picture._is_news("passes", {})


def test_what_was_sent_is_sealed_a_little_later(garden: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddgviz.widget.SEAL_EVERY", 0.2)
    picture = Recorder()
    for event in simulate.events(garden)[:4]:
        picture.append(event)
    deadline = time.monotonic() + 5
    while picture.seq < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert picture.seq == 4
    assert len(json.loads(picture.trace_json)["iterations"]) == 3


def test_a_trace_of_the_caller_is_not_changed(garden: dict[str, Any]) -> None:
    model = ddgviz.read(garden)
    picture = ddgviz.show(model)
    picture.append(simulate.events(simulate.station())[0])
    assert model.to_dict() == garden


@pytest.mark.parametrize(
    "view", [{"pass": "x"}, {"foo": 1}, {"brush": [20, 3]}, {"zoom": 99}, {"arcs": "off"}, {"pass": -1}, {"speed": 3}]
)
def test_a_view_is_checked(small: dict[str, Any], view: dict[str, Any]) -> None:
    picture = ddgviz.show(small)
    with pytest.raises(ValueError, match=r"A view has pass, row, .*, got \{.*\. Mend this entry"):
        picture.view = view
    assert picture.view == {}
    picture.view = good = {"pass": 2, "row": 1, "column": 0, "zoom": 0.5, "brush": [0, 2], "find": "a", "loop": True}
    assert picture.view == good


def test_obvious_mistakes_are_answered(small: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"A panel drives a runner.*got 'dict'.*pass fastdecode_lib\.runner\(model\)"):
        ddgviz.explore({})
    with pytest.raises(ValueError, match="One trace is drawn, got 'a comparison of two'. Pass its a or its b"):
        ddgviz.save(ddgviz.compare(small, small), tmp_path / "a.json")
    assert {"show", "explore", "compare", "frontier"} <= set(dir(ddgviz))


def test_a_cleared_picture_is_empty(small: dict[str, Any]) -> None:
    picture = Recorder(small)
    picture.clear()
    assert (repr(picture), picture.trace_json, picture.rows) == ("Picture(empty)", "", b"")
