"""Writes the dependency graph as TikZ, set in the type of the surrounding paper."""

from typing import Any

from ddgviz import layout, words
from ddgviz.graph import at_once, edges, layers, pills
from ddgviz.schema import fail
from ddgviz.svg import Window, ranges
from ddgviz.text import fit
from ddgviz.theme import Theme, theme_named
from ddgviz.trace import TraceModel, read

MAX_TOKENS = 200
_POINTS = 0.75
"""TeX's points for a pixel."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",
    ",": ",{}",
    " ": r"\ ",
    **dict.fromkeys("⟨‹", r"\ensuremath{\langle}"),
    **dict.fromkeys("⟩›", r"\ensuremath{\rangle}"),
    "…": r"\ldots{}",
}
"""Characters that TeX would interpret, or join to their neighbours."""

_LIBRARIES = r"\usetikzlibrary{backgrounds, fit, positioning}"
_SCRIPTS = "% Beyond Latin letters: compile with LuaLaTeX or XeLaTeX, in a font that has the script."
_PREAMBLE = rf"""% Needs the packages standalone, iftex, fontenc and tikz.
{_SCRIPTS}
\documentclass[tikz, border=4pt]{{standalone}}
\usepackage{{iftex}}
\ifPDFTeX\usepackage[T1]{{fontenc}}\fi
{_LIBRARIES}
\begin{{document}}"""
_NEEDS = rf"% Needs \usepackage{{tikz}} and {_LIBRARIES}, and with pdfLaTeX \usepackage[T1]{{fontenc}}."


def tikz(trace: Any, *, standalone: bool = False, theme: str = "light", window: Window | None = None) -> str:
    r"""The dependency graph as a ``tikzpicture``.

    Parameters
    ----------
    trace : anything that `ddgviz.read` takes
    standalone : bool
        Whether to write a whole document instead of a picture to ``\input``.
    theme, window
        As in `ddgviz.svg`; of a window's passes, only the tokens settled in them are shown.

    Raises
    ------
    ValueError
        If the trace is damaged, has more than 200 tokens to show, or an argument is out of range.
    """
    model = read(trace)
    picture = _picture(model, theme_named(theme), window)
    if standalone:
        return "\n".join([_PREAMBLE, *picture, r"\end{document}", ""])
    return "\n".join([_NEEDS, _SCRIPTS, *picture, ""])


def escape(text: str) -> str:
    """`text` for TeX, character for character."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def _picture(model: TraceModel, theme: Theme, window: Window | None) -> list[str]:
    visible, settled_by_pass = _shown(model, window)
    settled = {column: row for row, columns in settled_by_pass for column in columns}
    colors = [(name, getattr(theme, name)) for name in ("paper", "ink", "muted", "settled", "accent")]
    lines = [
        f"% {words.title(model)}: {words.headline(model)}",
        *(f"\\definecolor{{ddg{name}}}{{HTML}}{{{color[1:].upper()}}}" for name, color in colors),
        r"\begin{tikzpicture}[",
        *(["  show background rectangle, background rectangle/.style={fill=ddgpaper},"] * (theme.scheme == "dark")),
        "  token/.style={inner sep=2.5pt, text=ddgink, text height=1.6ex, text depth=0.4ex, font=\\bfseries},",
        "  open/.style={token, text=ddgmuted},",
        "  alone/.style={fill=ddgsettled, fill opacity=0.1, rounded corners=6pt, inner sep=1pt},",
        "  together/.style={alone, fill opacity=0.18},",
        "  count/.style={font=\\scriptsize, text=ddgaccent, inner sep=2pt},",
        "  needs/.style={draw=ddgsettled},",
        "]",
    ]
    if not settled:
        return [*lines, r"\node[open] {No token is settled yet.};", r"\end{tikzpicture}"]
    lines += [_node(model, column, settled.get(column), column == visible.start) for column in visible]
    lines.append(r"\begin{scope}[on background layer]")
    for _, columns in settled_by_pass:
        for run in pills(model, columns):
            around = "".join(f"(t{column})" for column in run)
            style = "together" if len(run) > 1 else "alone"
            lines.append(f"\\node[{style}, fit={around}] (g{run[0]}) {{}};")
    lines.append(r"\end{scope}")
    for row, columns in settled_by_pass:
        for run in pills(model, columns):
            if len(run) > 1:
                lines.append(f"\\node[count, below=0pt of g{run[0]}] {{{at_once(model, row, run)} at once}};")
    return [*lines, *_arcs(model, visible, settled), r"\end{tikzpicture}"]


def _shown(model: TraceModel, window: Window | None) -> tuple[range, list[tuple[int, list[int]]]]:
    """The positions to show, and each pass that settled some of them, with those that it settled."""
    (row, end_row), (column, end) = ((0, model.rows), (0, model.columns)) if window is None else ranges(window)
    shown = range(column, min(end, model.columns))
    if window is not None and (row < 0 or column < 0 or row >= min(end_row, model.rows) or not shown):
        size = f"{model.rows} passes and {model.columns} positions"
        raise fail(f"window must lie within {size}", window, _WINDOW)
    if len(shown) > MAX_TOKENS:
        raise fail(f"A LaTeX picture holds at most {MAX_TOKENS} tokens on its line", f"{len(shown)}", _WINDOW)
    within = [(number, [c for c in columns if c in shown]) for number, columns in layers(model)]
    return shown, [(number, columns) for number, columns in within if columns and row <= number < end_row]


_WINDOW = "Choose a part, for example window=((0, 40), (0, 40))."


def _node(model: TraceModel, column: int, row: int | None, first: bool) -> str:
    style, text, gap = "open", r"$\cdot$", 4
    if row is not None:
        label = model.cells(row, [column])[0].label
        style, text = "token", escape(fit(label.text, layout.WIDEST, layout.TOKEN_SIZE, bold=True))
        gap = 2 if label.continues else 4
    place = "" if first else f", base right={gap}pt of t{column - 1}"
    return f"\\node[{style}{place}] (t{column}) {{{text}}};"


def _arcs(model: TraceModel, columns: range, settled: dict[int, int]) -> list[str]:
    placed = layout.columns(model, columns, 0)
    lines = []
    for edge in sorted(edges(model), key=lambda e: e.strength):
        if edge.source in settled and edge.target in settled:
            weight, alpha = (0.8 + 2 * edge.strength, 0.3 + 0.5 * edge.strength) if model.edges else (1.6, 0.65)
            lift = layout.arc_height(placed[edge.source], placed[edge.target]) * 4 / 3 * _POINTS
            style = f"line width={weight * _POINTS:.2f}pt, opacity={alpha:.2f}"
            way = f".. controls +(0,{lift:.1f}pt) and +(0,{lift:.1f}pt) .."
            lines.append(f"\\draw[needs, {style}] (t{edge.source}.north) {way} (t{edge.target}.north);")
    return lines
