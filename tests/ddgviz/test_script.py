"""The script: the same grid as Python's, events in any order, and nothing that could run a token."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kept
import pytest
import simulate

from ddgviz import assets, graph, views, words
from ddgviz.packing import pack
from ddgviz.trace import TraceModel, read

PACKAGE = Path(assets.__file__).parent
BANNED = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|(?<!\w )\bimport\s*\(|"
    r"setTimeout\(\s*[\"'`]"
)
ADDRESS = re.compile(r"https?://[^\s\"'`)<>]*")
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}


def offences(text: str) -> list[str]:
    """What no file of the package may hold."""
    return BANNED.findall(text) + [address for address in ADDRESS.findall(text) if address not in NAMESPACES]


@pytest.mark.parametrize(
    "path", sorted(p for p in PACKAGE.rglob("*") if p.suffix in {".py", ".js", ".css"}), ids=lambda p: p.name
)
def test_no_text_becomes_markup_and_nothing_is_fetched(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "bad",
    ["x.innerHTML = t", "eval (t)", "new Function(t)", "import('x')", "https://cdn.example/x.js", "document.write(t)"],
)
def test_each_offence_is_noticed(bad: str) -> None:
    assert offences(bad)


# What the shortening of the script would break: a comment after code, an empty statement, signs in a row, a missing end.
FRAGILE = re.compile(r"[;{})] *//|\(;|;\s*;|\)\s*;\s*\}\s*while|[+] [+]|, ,|\belse;|while \([^\n]*\);")
ENDS = re.compile(r"(?:[;{}(\[,:?=>&|+]|\*/|//.*|`)$")


def fragile(text: str) -> list[str]:
    """Lines that must be written another way."""
    lines = [line.strip() for line in text.splitlines()]
    literals = re.compile(r'"(?:\\.|[^"\\])*"|`[^`]*`')
    bare = [literals.sub("0;" if line.endswith(("`", '"')) else "0", line) for line in lines]
    following = [*lines[1:], ""]
    loose = [
        line for line, next_line in zip(bare, following, strict=True)
        if line and not ENDS.search(line) and not re.match(r"[?:.)\]}&|+]|\.\.\.", next_line)
    ]  # fmt: skip
    return loose + [line for line in bare if FRAGILE.search(line)]


@pytest.mark.parametrize("path", sorted((PACKAGE / "web").glob("*.js")), ids=lambda path: path.stem)
def test_sources_survive_the_shortening(path: Path) -> None:
    assert fragile(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "bad", ["f(); // note", "for (;;) {", "const a = b + +c;", "while (f(x));", "[1, , 2];", "const a = 1\nf();"]
)
def test_what_the_shortening_breaks_is_noticed(bad: str) -> None:
    assert fragile(bad)


def test_the_script_is_one_small_module() -> None:
    script = assets.script()
    assert len(script.encode()) <= 60 * 1024
    assert not re.search(r"\bimport\b[ {\"]", script)
    assert re.findall(r"\bexport\b.*", script) == ["export default{render};"]


def seen(model: TraceModel) -> dict[str, Any]:
    """What Python knows of a trace, in the form in which the script answers."""
    rows = range(model.rows)
    return {
        "cells": [
            [
                [
                    *(c.kind, c.token, c.label.text, c.label.continues, c.probability, c.margin),
                    *(c.draft, c.origin, c.moved, c.guess),
                ]
                for c in model.cells(row)
            ]
            for row in rows
        ],
        "edges": [
            [[e.source, e.target, e.strength] for e in graph.edges(model, upto)] for upto in range(model.rows + 1)
        ],
        "order": [[[e.source, e.target] for e in graph.edges(model, upto, "order")] for upto in range(model.rows + 1)],
        "blocks": [[b.row, b.end_row, b.column, b.end_column] for b in model.blocks()],
        "lattice": [
            [[n.token, n.label.text, n.score, n.parent, n.finished, n.best] for n in nodes]
            for nodes in (model.lattice() if model.beam else [])
        ],
        "picks": [
            [[p.column, p.cluster, p.active, p.settled] for p in model.picks(upto)] for upto in range(model.rows + 1)
        ],
        "clusters": views.clusters(model.picks()),
        "lanes": [words.lane_name(index) for index in range(25)],
        "pills": [[graph.pills(model, columns) for _, columns in graph.layers(model)]],
    }


def told(model: TraceModel) -> dict[str, Any]:
    """How Python writes the tokens and which edges it draws, as the script is told."""
    return words.spoken(model, range(0))


def sent(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the script is sent of some passes."""
    packed = [pack(row) for row in rows]
    columns = b"".join(columns for _, columns in packed)
    return {"records": [record for record, _ in packed], "bytes": base64.b64encode(columns).decode("ascii")}


def odd_rows() -> dict[str, Any]:
    """Passes with gaps, large ids, unknown numbers and none at all."""
    row = simulate.garden()["iterations"][0]
    gaps = {"slots": [0, 3, 900, -7, -1], "tokens": [2, 70_000, 5, -1, 3], "cluster": [None, 3, 0, 2, 1]}
    gaps |= {"num_active": [None, 60_000, 1, 2, 3], "probabilities": [None, 1e-7, 0.5, 1.0, 0.0], "margins": None}
    none = {key: [] for key in ("slots", "drafts", "origins", "tokens", "status")}
    return {"iterations": [row, row | gaps, row | none | {"probabilities": None, "margins": None}, row]}


NAMES = ["garden", "station", "long_block", "beam", "greedy", "measured", "hostile", "drafted", *kept.NAMES]


def test_python_and_script_agree(small: dict[str, Any], tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    traces = [small, *map(kept.either, NAMES)]
    cases = [
        {"trace": trace, "words": told(read(trace)), "events": simulate.events(trace), "seen": seen(read(trace))}
        for trace in traces
    ]
    half = TraceModel()
    for event in simulate.events(simulate.long_block())[:4]:
        half.append(event)
    packed = [{"rows": trace["iterations"], **sent(trace["iterations"])} for trace in [*traces, odd_rows()]]
    given = {
        "cases": cases,
        "packed": packed,
        "half": {"trace": half.to_dict(), "words": told(half), "seen": seen(half)},
    }
    (tmp_path / "given.json").write_text(json.dumps(given), encoding="utf-8")
    names = (
        "append, blocks, cell, clusterRows, columnCount, createFeed, edges, emptyModel, fromTrace, laneName, lattice, "
        "layers, picks, pills, reader, teach, unpack"
    )
    exports = f"\nexport {{ {names} }};\n"
    (tmp_path / "picture.mjs").write_text(assets.script() + exports, encoding="utf-8")
    shutil.copy(Path(__file__).parent / "script.test.mjs", tmp_path)
    done = subprocess.run(
        [node, "--test", "script.test.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
