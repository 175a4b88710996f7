"""Draws docs/pictures/architecture.svg from the imports of the code: a box for each part, an arrow to what it imports.

Run it after parts or their imports have changed: python docs/draw_architecture.py
"""

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path

import networkx

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
GROUND = ("core", "trace", "kernels", "lexicon", "store", "batching", "workers")
DOORS = ("loading", "registry", "translation", "language_model", "runners", "hf")
ROWS = (
    ("cli", "papers", "benchmarks"),
    ("training",),
    ("measuring", "contexts", "laws"),
    ("doors", "ddgviz"),
    ("decoding", "models", "projections", "text"),
    ("drafts", "checkpoints"),
    ("ground",),
)
SAYS = {
    "cli": "a module for each command",
    "papers": "a folder for each paper",
    "benchmarks": "measured against rivals",
    "training": "recipes, runs, weights",
    "measuring": "referee, scores, costs",
    "contexts": "record and fit screens",
    "laws": "what must hold, always",
    "doors": "load, translate, generate",
    "ddgviz": "pictures of a trace",
    "decoding": "which slots a pass feeds",
    "models": "hidden vectors of slots",
    "projections": "hidden vector to tokens",
    "text": "text to ids and back",
    "drafts": "guesses for later slots",
    "checkpoints": "files to tensors",
    "ground": "types, trace, kernels, files",
}
WIDTH, HEIGHT, ACROSS, DOWN = 190, 46, 215, 84


def part_of(module: str) -> str | None:
    """The box that a module belongs to; None outside the project."""
    package, *rest = module.split(".")
    if package != "fastdecode_lib":
        return package if package in SAYS else None
    name = rest[0] if rest else ""
    return "ground" if name in GROUND else "doors" if name in DOORS else name if name in SAYS else None


def imports() -> Iterator[tuple[str, str]]:
    """Every import between two parts, functions included."""
    for path in sorted(
        file for package in ("fastdecode_lib", "ddgviz", "benchmarks") for file in (ROOT / package).rglob("*.py")
    ):
        here = part_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                named = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for there in map(part_of, named):
                if here and there and here != there:
                    yield here, there


def arrows() -> list[tuple[str, str]]:
    """Imports from a row to a lower one, but for those that a longer way already shows."""
    level = {part: number for number, row in enumerate(ROWS) for part in row}
    graph = networkx.DiGraph(pair for pair in imports() if level[pair[0]] < level[pair[1]])
    return sorted(networkx.transitive_reduction(graph).edges)


def svg() -> str:
    """The drawing."""
    wide = max(len(row) for row in ROWS) * ACROSS
    place = {
        part: ((wide - len(row) * ACROSS) / 2 + column * ACROSS + (ACROSS - WIDTH) / 2, 14 + number * DOWN)
        for number, row in enumerate(ROWS)
        for column, part in enumerate(row)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {len(ROWS) * DOWN}" font-family="system-ui,sans-serif" '
        'role="img" aria-label="Parts of fastdecode; an arrow goes from a part to one that it imports">',
        "<style>text{fill:#1f2933}rect{fill:#f4f6f8;stroke:#9aa5b1}path{stroke:#7b8794;fill:none}.small{fill:#52606d}"
        "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}rect{fill:#1f2933;stroke:#52606d}path{stroke:#7b8794}"
        ".small{fill:#9aa5b1}}</style>",
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M1 1 7 4 1 7"/></marker>',
    ]
    for here, there in arrows():
        (x, y), (to_x, to_y) = place[here], place[there]
        x, to_x, y = x + WIDTH / 2, to_x + WIDTH / 2, y + HEIGHT
        bend = (to_y - y) / 2
        lines.append(
            f'<path d="M{x:g} {y:g}C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}" marker-end="url(#tip)"/>'
        )
    for part, (x, y) in place.items():
        middle = x + WIDTH / 2
        lines.append(f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>')
        lines.append(
            f'<text x="{middle:g}" y="{y + 19:g}" text-anchor="middle" font-weight="600">{escape(part)}</text>'
        )
        lines.append(
            f'<text class="small" x="{middle:g}" y="{y + 36:g}" text-anchor="middle" font-size="12">{escape(SAYS[part])}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(svg(), encoding="utf-8")
