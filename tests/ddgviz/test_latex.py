"""TikZ: characters that TeX acts upon, the structure of the picture, and its limits."""

import re
from typing import Any

import pytest
import simulate
from hostile import TOKENS

import ddgviz
from ddgviz.latex import escape, tikz
from ddgviz.text import label
from ddgviz.theme import THEMES

COMMANDS = {
    "textbackslash": "\\",
    "textasciicircum": "^",
    "textasciitilde": "~",
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textquotesingle": "'",
    "textasciigrave": "`",
    "ldots": "…",
    "char34": '"',
}


def typeset(source: str) -> str:
    """What TeX sets for the commands that `escape` writes; anything else it acts upon is an error."""
    shown, index = "", 0
    pattern = re.compile(
        r"\\ensuremath\{\\([lr])angle\}|\\([a-z]+[0-9]*)\{\}|\\([ {}$&#%_])|(\{\})|([^\\{}$&#%_^~<>|\"'`])"
    )
    while index < len(source):
        match = pattern.match(source, index)
        assert match, f"TeX would act upon {source[index:]!r}"
        angle, command, special, _, plain = match.groups()
        shown += {"l": "⟨", "r": "⟩"}[angle] if angle else COMMANDS[command] if command else special or plain or ""
        index = match.end()
    return shown


@pytest.mark.parametrize("token", [*TOKENS, r"\input{x}", "a^2_b~c", "``x''", "--", ",,", "!`", "  two  spaces "])
def test_every_character_is_set(token: str) -> None:
    shown = label("▁" + token).text
    assert typeset(escape(shown)) == shown
    assert not re.search(r"--|,,|<<|>>|''|``|  ", escape(shown)), "TeX joins these"


@pytest.mark.parametrize("source", ["50% off", "x_1", "$x$", "#1", "{", r"\alpha"])
def test_what_is_not_escaped_is_caught(source: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        typeset(source)


def depth(source: str) -> int:
    """Braces open at the end, comments left out; below zero is an error."""
    open_ = 0
    for mark in re.findall(r"(?<!\\)[{}]", re.sub(r"(?m)^%.*$", "", source)):
        open_ += 1 if mark == "{" else -1
        assert open_ >= 0
    return open_


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("name", ["garden", "station", "beam", "greedy", "measured", "hostile"])
def test_the_picture_is_whole(name: str, standalone: bool) -> None:
    drawn = tikz(getattr(simulate, name)(), standalone=standalone)
    assert drawn.startswith("% Needs ") and "tikz" in drawn.splitlines()[0]
    assert depth(drawn) == 0
    assert re.findall(r"\\begin\{(\w+)\}", drawn) == re.findall(r"\\end\{(\w+)\}", drawn)[::-1] or not standalone
    for environment in ("tikzpicture", "scope"):
        assert drawn.count(f"\\begin{{{environment}}}") == drawn.count(f"\\end{{{environment}}}") == 1
    assert ("\\documentclass" in drawn) is standalone
    nodes = set(re.findall(r"\\node\[.*?\] \((\w+)\)", drawn))
    assert set(re.findall(r"\((t\d+)(?:\.north)?\)", drawn)) <= nodes
    assert all(line.endswith((";", "{scope}", "{tikzpicture}", "[", ",", "]", "}", "layer]")) or line[:1] in "%\\"
               for line in drawn.splitlines())  # fmt: skip


def test_groups_arcs_and_counts(small: dict[str, Any]) -> None:
    drawn = tikz(small)
    assert "\\node[together, fit=(t2)(t3)] (g2) {};" in drawn and "\\node[alone, fit=(t0)] (g0) {};" in drawn
    assert re.findall(r"\\node\[count, below=0pt of (\w+)\] \{(.*)\};", drawn) == [
        ("g2", "2 at once"),
        ("g4", "2 at once"),
    ]
    assert drawn.count("\\draw[needs") == 5
    assert "base right=2pt of t2] (t3)" in drawn, "what continues a word stands close to it"


def test_stronger_arcs_are_heavier() -> None:
    weights = [float(w) for w in re.findall(r"line width=([0-9.]+)pt", tikz(simulate.measured()))]
    assert weights == sorted(weights) and weights[0] < weights[-1]


@pytest.mark.parametrize("name", THEMES)
def test_colours_are_the_themes(small: dict[str, Any], name: str) -> None:
    drawn, theme = tikz(small, theme=name), THEMES[name]
    assert f"\\definecolor{{ddgsettled}}{{HTML}}{{{theme.settled[1:].upper()}}}" in drawn
    assert ("background rectangle" in drawn) is (theme.scheme == "dark")


def test_equal_traces_give_equal_bytes() -> None:
    assert tikz(simulate.measured()) == tikz(simulate.measured())


def test_nothing_settled_is_said(small: dict[str, Any]) -> None:
    drawn = tikz(small | {"iterations": [], "hypotheses": []})
    assert "{No token is settled yet.}" in drawn and depth(drawn) == 0


def test_a_part(small: dict[str, Any]) -> None:
    drawn = tikz(small, window=((0, 3), (1, 4)))
    assert re.findall(r"\] \((t\d)\)", drawn) == ["t1", "t2", "t3"]
    for window in (((0, 3), (9, 12)), ((7, 9), (0, 2)), ((-1, 2), (0, 2)), ((0, 0), (0, 2))):
        with pytest.raises(
            ValueError, match=r"window must lie within 4 passes and 6 positions, got .*\. Choose a part"
        ):
            tikz(small, window=window)


def test_a_line_that_is_too_long_asks_for_a_part(tmp_path: Any) -> None:
    trace = simulate.jacobi([f"▁{number}" for number in range(300)], {}, width=60, block=True)
    with pytest.raises(
        ValueError, match=r"at most 200 tokens on its line, got '301'\. Choose a part, for example window="
    ):
        ddgviz.save(trace, tmp_path / "a.tex")
    assert ddgviz.save(trace, tmp_path / "a.tex", window=((0, 999), (100, 140))).is_file()
