"""Saved notebooks: of the current code and models, readable without a kernel, pictures first."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from ddgviz.address import unpack_text

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
DRAWS = re.compile(r"ddgviz\.(show|compare|curves|frontier|speed_accuracy)\(|^(panel|linked)$", re.M)
"""Code whose output is a picture, whatever else it is."""


def load_saver() -> ModuleType:
    spec = importlib.util.spec_from_file_location("save", ROOT / "notebooks" / "save.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


saver = load_saver()


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def pictures(cell):
    return [output for output in cell.get("outputs", []) if saver.SVG in output.get("data", {})]


def test_outputs_are_of_the_current_code_and_models(notebook, path):
    assert path in saver.notebooks()
    assert notebook.metadata.fastdecode.made_from == saver.key(notebook), "run make notebooks-save"
    drawings = ["".join(output.data[saver.SVG]) for cell in notebook.cells for output in pictures(cell)]
    assert all("max-width:100%;height:auto" in drawing[: drawing.index(">")] for drawing in drawings)
    changed = nbformat.from_dict(notebook)
    next(cell for cell in changed.cells if cell.cell_type == "code").source += "\n1"
    assert changed.metadata.fastdecode.made_from != saver.key(changed)


def test_every_picture_is_there_without_a_kernel(notebook):
    """nbconvert, which runs nothing, shows as many pictures as cells drew."""
    nbconvert = pytest.importorskip("nbconvert")
    drawing = [cell for cell in notebook.cells if cell.cell_type == "code" and DRAWS.search(cell.source)]
    assert drawing and all(pictures(cell) for cell in drawing)
    drawn = sum(len(pictures(cell)) for cell in notebook.cells)
    assert notebook.metadata.fastdecode.pictures == drawn > 0
    for exporter in (nbconvert.HTMLExporter(), nbconvert.SlidesExporter()):
        page, _ = exporter.from_notebook_node(notebook)
        assert page.count('src="data:image/svg+xml;base64,') == drawn


def test_nothing_but_pictures_tables_and_text_is_saved(notebook, path):
    assert path.stat().st_size <= saver.LARGEST
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert kinds <= {saver.SVG, saver.MIME, saver.CHART, "text/plain", "text/html", "text/markdown"}
    errors = [output for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    assert not errors


def test_every_picture_keeps_what_a_page_plays_it_from(notebook):
    for cell in notebook.cells:
        drawn = [output.data for output in pictures(cell)]
        while drawn:
            first = drawn.pop(0)
            assert (saver.MIME in first) != (saver.CHART in first), f"run make notebooks-save: {cell.source!r}"
            for picture in unpack_text(first[saver.MIME]["packed"])["pictures"][1:] if saver.MIME in first else []:
                assert picture["words"]["title"] and saver.MIME not in drawn.pop(0), "two pictures of one comparison"


def test_notebooks_are_for_reading(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert len(cell.source) <= 700, cell.source[:60]
        else:
            assert "lambda" not in cell.source and "def " not in cell.source, cell.source
    first = notebook.cells[0].source
    assert "[download]" in first and "../docs/" in first
    for link in re.findall(r"\]\(([^)#\s]+)", "\n".join(cell.source for cell in notebook.cells)):
        assert link.startswith("https://") or (ROOT / "notebooks" / link).exists(), link


def test_a_picture_stands_before_any_table_and_tables_are_narrow(notebook):
    seen = False
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            seen = seen or saver.SVG in output.get("data", {})
            html = output.get("data", {}).get("text/html", "")
            if "<table" in html:
                assert seen, "a picture before the first table"
                assert html.partition("</tr>")[0].count("<th ") <= 8
        if cell.cell_type == "markdown" and "\n| ---" in cell.source:
            assert seen and cell.source.partition("\n| ---")[2].partition("\n")[0].count("|") <= 8


def test_a_widget_without_a_picture_is_refused():
    output = nbformat.v4.new_output("display_data", {saver.WIDGET: {}, "text/plain": "Rating(0 of 5)"})
    cell = nbformat.v4.new_code_cell("rating", outputs=[output])
    with pytest.raises(ValueError, match=r"A saved widget needs a picture: got none of the cell 'rating'"):
        saver.still(nbformat.v4.new_notebook(cells=[cell]))
