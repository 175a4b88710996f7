"""The drawing of the parts is of the imports as they are, and shows every part."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def drawing() -> Any:
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "docs" / "draw_architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_of_the_code(drawing: Any) -> None:
    drawn = drawing.PICTURE.read_text(encoding="utf-8")
    assert drawn == drawing.svg(), "draw it again: python docs/draw_architecture.py"


def test_every_part_is_drawn_and_arrows_are_imports(drawing: Any) -> None:
    folders = {path.name for path in (ROOT / "fastdecode_lib").iterdir() if (path / "__init__.py").exists()}
    assert folders - {*drawing.GROUND, *drawing.DOORS} <= set(drawing.SAYS)
    assert {part for row in drawing.ROWS for part in row} == set(drawing.SAYS)
    imports = set(drawing.imports())
    assert set(drawing.arrows()) <= imports and ("decoding", "models") not in imports
    assert {("papers", "training"), ("doors", "decoding"), ("text", "checkpoints")} <= imports


def test_what_the_page_names_exists() -> None:
    import re

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page)
    assert len(named) > 15
    places = [ROOT, ROOT / "fastdecode_lib", *(path for path in (ROOT / "fastdecode_lib").iterdir() if path.is_dir())]
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []
