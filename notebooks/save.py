"""Runs the notebooks and saves them with pictures that any reader shows: ``python notebooks/save.py [NOTEBOOK ...]``."""

import base64
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from ddgviz.address import MIME

FOLDER = Path(__file__).parent
WIDGET, CHART, SVG = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json", "image/svg+xml"
PICTURE = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')
PROGRESS = "%|"
"""What the text of a progress bar has."""
IN_ITS_PLACE = "A picture: run this cell, or trust the notebook (jupyter trust FILE), to see it."
"""What JupyterLab shows of drawings in a notebook that it does not trust."""
WIDEST = 930
"""Pixels of a cell's output in a window of 1,400."""
LARGEST = 1_500_000
TIMEOUT = 1_200


def notebooks() -> list[Path]:
    """Those that are saved with their outputs: all but the app."""
    return sorted(FOLDER.glob("[0-9]*.ipynb"))


def key(notebook: Any) -> str:
    """What the outputs were made from: the code of all cells, and the bundled models that it names."""
    from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint

    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    models = [find_checkpoint(name).fingerprint for name in sorted(bundled()) if f'"{name}"' in "".join(sources)]
    return hashlib.sha256("\0".join([*sources, *models]).encode()).hexdigest()[:16]


def run(notebook: Any) -> None:
    """Run all cells in their folder."""
    from nbclient import NotebookClient

    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    os.environ["PYTHONWARNINGS"] = "ignore"
    NotebookClient(
        notebook, timeout=TIMEOUT, store_widget_state=False, resources={"metadata": {"path": str(FOLDER)}}
    ).execute()


def still(notebook: Any) -> int:
    """Put pictures in the place of widgets, and beside charts, which takes Chromium; the number of pictures.

    A picture keeps what a page plays it from: the packed trace, or what plotly draws. What another run would change for no
    reason is left out.

    Raises
    ------
    ValueError
        If a widget has no picture.
    """
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs for kept in _still(output, cell.source)]
    _draw([output for cell in notebook.cells for output in cell.get("outputs", []) if CHART in output.get("data", {})])
    return sum(SVG in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


def _still(output: Any, source: str) -> list[Any]:
    from nbformat.v4 import new_output

    if output.output_type == "stream":
        return [] if output.name == "stderr" else [output]
    if WIDGET not in output.get("data", {}):
        if output.output_type in ("display_data", "execute_result"):
            output.metadata = {}
        return [output]
    if PROGRESS in output.data["text/plain"]:
        return []
    pictures = PICTURE.findall(output.data.get("text/html", ""))
    if not pictures:
        raise ValueError(f"A saved widget needs a picture: got none of the cell {source!r}. Run it before it is shown.")
    drawn = [base64.b64decode(picture).decode() for picture in pictures]
    kept = [new_output("display_data", {SVG: narrow(svg), "text/plain": IN_ITS_PLACE}) for svg in drawn]
    kept[0].data |= {kind: output.data[kind] for kind in [MIME] if kind in output.data}
    return kept


def narrow(svg: str) -> str:
    """A drawing that a page narrower than it shows whole; JupyterLab, which does not, gets none wider than `WIDEST`."""
    root, content = svg.split(">", 1)
    wide = re.search(r' width="([0-9.]+)"', root)
    if wide and (scale := WIDEST / float(wide[1])) < 1:
        root = re.sub(r' (width|height)="([0-9.]+)"', lambda m: f' {m[1]}="{float(m[2]) * scale:.0f}"', root, count=2)
    style = re.search(r' style="([^"]*)"', root)
    kept = style.group(1) if style else ""
    return f'{root.replace(style.group(), "") if style else root} style="max-width:100%;height:auto;{kept}">{content}'


def _draw(outputs: list[Any]) -> None:
    """Put a chart's drawing beside what plotly draws it from."""
    import plotly.graph_objects as go
    import plotly.io

    figures = [go.Figure(output.data[CHART], skip_invalid=True) for output in outputs]
    with tempfile.TemporaryDirectory() as folder:
        drawings = [Path(folder) / f"{number}.svg" for number in range(len(figures))]
        if figures:
            heights = [figure.layout.height for figure in figures]  # plotly leaves them out where it writes several
            plotly.io.write_images(figures, drawings, width=860, height=heights)
        for output, drawing in zip(outputs, drawings, strict=True):
            text = {SVG: narrow(drawing.read_text(encoding="utf-8")), "text/plain": IN_ITS_PLACE}
            output.data = {CHART: output.data[CHART]} | text


def save(path: Path) -> None:
    """Run a notebook and write it back, or leave it as it is where a cell fails.

    Raises
    ------
    ValueError
        If the notebook with its outputs is too large.
    """
    import nbformat

    from fastdecode_lib.store import atomic_file

    notebook = nbformat.read(path, as_version=4)
    run(notebook)
    figures = still(notebook)
    notebook.metadata["fastdecode"] = {"made_from": key(notebook), "pictures": figures}
    text = nbformat.writes(notebook) + "\n"
    if len(text.encode()) > LARGEST:
        raise ValueError(f"A notebook has {LARGEST:,} bytes at most: {path.name} has {len(text):,}. Show less in it.")
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path.name}: {figures} pictures, {len(text):,} bytes", flush=True)


def main(names: list[str]) -> None:
    """Save the notebooks named, or all."""
    from ddgviz.browser import find_browser

    find_browser()
    for path in [Path(name) for name in names] or notebooks():
        save(path)


if __name__ == "__main__":
    main(sys.argv[1:])
