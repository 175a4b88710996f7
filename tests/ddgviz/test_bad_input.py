"""Input that is no trace, or a damaged one: one clear error at every entry, or an empty state that says so in words."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import simulate

import ddgviz
from ddgviz.page import html

ENTRIES: dict[str, Callable[[Any, Path], Any]] = {
    "read": lambda trace, _: ddgviz.read(trace),
    "svg": lambda trace, _: ddgviz.svg(trace),
    "html": lambda trace, _: html(trace),
    "show": lambda trace, _: ddgviz.show(trace)._repr_mimebundle_(),
    "graph": lambda trace, _: ddgviz.to_networkx(trace),
    **{
        f"save {suffix}": lambda trace, folder, suffix=suffix: ddgviz.save(trace, folder / f"a{suffix}")  # type: ignore[misc]
        for suffix in (".svg", ".html", ".json", ".tex", ".graphml")
    },
}
EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES)
THREE_PARTS = re.compile(r".+[,:] .*got .+\. [A-Z].+\.$", re.DOTALL)


def refuses(entry: str, given: Any, folder: Path) -> str:
    """The message of the error, which must be the one kind, with its three parts; no file may be left behind."""
    before = set(folder.iterdir())
    with pytest.raises(ValueError) as caught:
        ENTRIES[entry](given, folder)
    assert type(caught.value) is ValueError, repr(caught.value)
    assert THREE_PARTS.match(str(caught.value)), caught.value
    assert set(folder.iterdir()) == before
    return str(caught.value)


def other_tool() -> dict[str, Any]:
    return {"version": 1, "attentions": [[0.5, 0.5]], "tokens": ["a", "b"]}


NOT_TRACES = {
    "truncated": (lambda: json.dumps(simulate.garden())[:700], "not whole JSON"),
    "newer version": (lambda: simulate.garden() | {"version": 2}, "Update ddgviz"),
    "no version": (lambda: {"format": "fastdecode-trace"}, "version None"),
    "another tool": (other_tool, "Not a decoding trace"),
    "another tool's JSON": (lambda: json.dumps(other_tool()), "Not a decoding trace"),
    "bytes": (lambda: json.dumps(simulate.garden()).encode(), "bytes"),
    "None": (lambda: None, "NoneType"),
    "a list": (lambda: [simulate.garden()], "list"),
    "a JSON list": (lambda: "[1, 2]", "Check the path"),
    "a number": (lambda: 7, "int"),
    "nothing": (lambda: "", "Check the path"),
    "an empty object": (dict, "Not a decoding trace"),
    "a missing file": (lambda: "no/such/file.json", "Check the path"),
    "a zero byte": (lambda: "a\0b", "Check the path"),
}


@EVERY_ENTRY
@pytest.mark.parametrize("name", NOT_TRACES)
def test_what_is_no_trace_is_refused(entry: str, name: str, tmp_path: Path) -> None:
    if entry == "show" and name == "None":
        pytest.skip("an empty picture, which events will fill")
    make, said = NOT_TRACES[name]
    assert said in refuses(entry, make(), tmp_path)


@EVERY_ENTRY
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(simulate.garden()).encode()[:900], "not whole JSON"),
        (b"", "not whole JSON"),
        (b"[]", "a JSON object"),
    ],
    ids=["truncated", "empty", "a list"],
)
def test_files_that_hold_no_trace(entry: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert said in refuses(entry, path, tmp_path)


LATIN = json.dumps(simulate.garden(), ensure_ascii=False).replace("Kinder", "Kühe").encode("latin-1", "replace")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary", LATIN], ids=["binary", "latin-1"])
def test_files_that_are_not_utf8(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert "UTF-8" in refuses("read", path, tmp_path)


def test_json_without_its_start(tmp_path: Path) -> None:
    refuses("read", json.dumps(simulate.garden())[1:], tmp_path)


def test_a_number_of_thousands_of_digits(tmp_path: Path) -> None:
    refuses("read", '{"a":' + "9" * 5_000 + "}", tmp_path)


@pytest.mark.parametrize("key", ["seconds", "probabilities", "margins"])
def test_whole_numbers_that_no_float_holds_are_unknown(key: str) -> None:
    trace = simulate.garden()
    for row in trace["iterations"]:
        row[key] = 10**400 if key == "seconds" else [10**400] * len(row["slots"])
    assert ddgviz.svg(trace) and html(trace)


def test_brackets_without_end(tmp_path: Path) -> None:
    refuses("read", '{"a":' + "[" * 100_000, tmp_path)


@EVERY_ENTRY
def test_a_folder_is_no_trace(entry: str, tmp_path: Path) -> None:
    for given in (tmp_path, str(tmp_path)):
        assert "Check the path" in refuses(entry, given, tmp_path)


@EVERY_ENTRY
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("key", ["probabilities", "margins", "seconds"])
def test_numbers_that_are_none_are_unknown(entry: str, key: str, value: float, tmp_path: Path) -> None:
    trace = simulate.garden()
    for row in trace["iterations"]:
        row[key] = value if key == "seconds" else [value] * len(row["slots"])
    for given in (trace, json.dumps(trace)):
        assert ENTRIES[entry](given, tmp_path) is not None
    assert "nan" not in ddgviz.svg(trace).lower().replace("dominan", "") and "inf" not in ddgviz.svg(trace).lower()


def without_passes(stop: str | None) -> dict[str, Any]:
    found = [] if stop is None else [{"tokens": [], "score": None, "stop": stop}]
    return simulate.garden() | {"iterations": [], "hypotheses": found, "greedy": None}


@EVERY_ENTRY
@pytest.mark.parametrize("stop", [None, "end", "interrupted"])
def test_a_run_without_passes_is_a_picture_that_says_so(entry: str, stop: str | None, tmp_path: Path) -> None:
    assert ENTRIES[entry](without_passes(stop), tmp_path) is not None


def words(drawn: str) -> str:
    """What a drawing says to a reader."""
    return " ".join(re.findall(r"<text[^>]*>([^<]+)", drawn))


@pytest.mark.parametrize("stop", [None, "end", "interrupted"])
def test_the_empty_picture_speaks(stop: str | None, tmp_path: Path) -> None:
    said = words(ddgviz.svg(without_passes(stop)))
    assert "no passes" in said and "The run made no pass." in said
    assert "No token is settled yet." in ddgviz.save(without_passes(stop), tmp_path / "a.tex").read_text(
        encoding="utf-8"
    )


def test_a_picture_of_nothing_shows_nothing_wrong() -> None:
    assert repr(ddgviz.show(None)) == "Picture(empty)"


def test_thousands_of_positions(tmp_path: Path) -> None:
    alone: dict[int, list[int]] = {position: [] for position in range(3000)}
    trace = simulate.jacobi([f"▁{number % 50}" for number in range(2999)], alone, width=100, block=True)
    assert len(trace["iterations"]) == 60
    for entry in ("svg", "save .svg", "save .tex"):
        assert "window" in refuses(entry, trace, tmp_path)
    for entry in ("read", "html", "graph", "show", "save .json", "save .graphml"):
        assert ENTRIES[entry](trace, tmp_path) is not None


def test_a_position_out_of_reach(tmp_path: Path) -> None:
    trace = simulate.garden()
    trace["iterations"][0]["slots"][-1] = 10**9
    for entry in ENTRIES:
        assert "ascending positions" in refuses(entry, trace, tmp_path)


# ------------------------------------------------------------------------------------------------- every field, broken

JUNK: list[Any] = [None, True, -1, 3.5, "x", "\ud800", [], {}, [None], ["x"], [{}], {"x": 1}, 10**30, float("nan")]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a trace; of a list only its first and last."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(inner):
        if not isinstance(value, list) or key in (0, len(value) - 1):
            yield from places(item, (*path, key))


def broken(trace: dict[str, Any], path: tuple[Any, ...], junk: Any) -> dict[str, Any]:
    trace = copy.deepcopy(trace)
    inner: Any = trace
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    return trace


def damage(entry: Callable[[Any], Any], trace: dict[str, Any]) -> list[str]:
    """Fields for which some nonsense ends in anything but a picture or the one kind of error."""
    found = []
    for path in places(trace):
        for junk in JUNK:
            try:
                entry(broken(trace, path, junk))
            except ValueError as error:
                if type(error) is not ValueError:
                    found.append(f"{path} = {junk!r}: {error!r}")
            except Exception as error:
                found.append(f"{path} = {junk!r}: {error!r}")
    return found


@pytest.mark.parametrize("name", ["small", "beam"])
def test_every_field_broken(name: str, small: dict[str, Any]) -> None:
    trace = small if name == "small" else getattr(simulate, name)()

    def entry(given: Any) -> None:
        ddgviz.svg(given).encode()
        ddgviz.read(given).to_json()

    found = damage(entry, trace)
    assert not found, f"{len(found)}:\n" + "\n".join(found[:40])


def test_an_entry_that_breaks_is_caught(small: dict[str, Any]) -> None:
    def entry(given: Any) -> int:
        return len(given["settings"]["decoder"])

    found = damage(entry, small)
    assert any("TypeError" in line for line in found)
