"""The script: the same grid as Python's, events in any order, and nothing that could run a token."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import simulate
from hostile import TOKENS

from ddgviz import assets, graph, words
from ddgviz.text import label
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


def test_the_script_is_one_small_module() -> None:
    script = assets.script()
    assert len(script.encode()) <= 60_000
    assert not re.search(r"^import ", script, flags=re.MULTILINE)
    assert re.findall(r"^export .*$", script, flags=re.MULTILINE) == ["export default { render };"]


def seen(model: TraceModel) -> dict[str, Any]:
    """What Python knows of a trace, in the form in which the script answers."""
    rows = range(model.rows)
    return {
        "cells": [
            [
                [c.kind, c.token, c.label.text, c.label.continues, c.probability, c.margin, c.draft, c.origin, c.moved]
                for c in model.cells(row)
            ]
            for row in rows
        ],
        "edges": [
            [[e.source, e.target, e.strength] for e in graph.edges(model, upto)] for upto in range(model.rows + 1)
        ],
        "pills": [[graph.pills(model, columns) for _, columns in graph.layers(model)]],
        "captions": [f"{words.pass_name(model, row)} {words.caption(model, row)}" for row in rows],
        "head": [
            words.title(model),
            words.headline(model),
            words.comparison(model),
            words.beyond(model),
            graph.meaning(model),
        ],
    }


NAMES = ["garden", "station", "long_block", "beam", "greedy", "measured", "hostile"]


def test_python_and_script_agree(small: dict[str, Any], tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    traces = [small, *(getattr(simulate, name)() for name in NAMES)]
    cases = [{"trace": trace, "events": simulate.events(trace), "seen": seen(read(trace))} for trace in traces]
    half = TraceModel()
    for event in simulate.events(simulate.long_block())[:4]:
        half.append(event)
    pieces = ["▁" + token for token in TOKENS] + [
        "می\u200cشود",
        "a\u200cb",
        "\u200d",
        "",
        "▁",
        "ung",
        "▁▁x",
        "...",
        "7",
    ]
    labels = [[piece, label(piece).text, label(piece).continues] for piece in pieces]
    given = {"cases": cases, "labels": labels, "half": {"trace": half.to_dict(), "seen": seen(half)}}
    (tmp_path / "given.json").write_text(json.dumps(given), encoding="utf-8")
    names = (
        "append, beyond, caption, cells, comparison, createFeed, edges, emptyModel, fromTrace, headline, label, layers"
    )
    exports = f"\nexport {{ {names}, meaning, passName, pills, title }};\n"
    (tmp_path / "picture.mjs").write_text(assets.script() + exports, encoding="utf-8")
    shutil.copy(Path(__file__).parent / "script.test.mjs", tmp_path)
    done = subprocess.run(
        [node, "--test", "script.test.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
