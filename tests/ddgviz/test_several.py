"""Several pictures on one page, each with its own copy of the script, as a notebook has them."""

import json
from typing import Any

import kept
import pytest

from ddgviz import words
from ddgviz.assets import script, styles
from ddgviz.trace import read

pytestmark = pytest.mark.browser
NAMES = ("greedy", "long_block", "garden", "both_ends", "station")
DRAWN = f"() => document.querySelectorAll('.ddg-scroll:has(.ddg-token)').length === {len(NAMES)}"
HEIGHTS = """() => [...document.querySelectorAll(".ddgviz")].map((root) => [
  document
    .querySelector(`${root.querySelector("g[clip-path]").getAttribute("clip-path").slice(4, -1)} rect`).getAttribute("height"),
  root.querySelector(".ddg-stage").style.height,
])"""


def page_of(names: tuple[str, ...], width: int = 900) -> str:
    """A page on which each picture evaluates the script anew."""
    parts = [f"<style>{styles()}</style><body style='margin:0;width:{width}px'>"]
    code = script().removesuffix("export default{render};")
    for name in names:
        model = read(kept.either(name))
        given = json.dumps([json.loads(model.to_json()), words.spoken(model, range(model.rows))])
        boot = (
            f'{{ const [trace, words] = {given}; mount(document.getElementById("{name}")).load(trace, {{ words }}); }}'
        )
        parts.append(f'<div id="{name}"></div><script type="module">{code}{boot}</script>')
    return "".join(parts)


def test_no_picture_is_cut_or_coloured_by_another(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 1200}, reduced_motion="reduce")
    page.set_content(page_of(NAMES))
    page.wait_for_function(DRAWN)
    ids = page.evaluate("() => [...document.querySelectorAll('.ddgviz [id]')].map((element) => element.id)")
    assert len(ids) == 3 * len(NAMES) and len(set(ids)) == len(ids)
    heights = page.evaluate(HEIGHTS)
    assert all(abs(float(clip) - float(stage.removesuffix("px"))) < 0.1 for clip, stage in heights)
    assert len({stage for _, stage in heights}) >= 4, "of unlike height"
    page.close()
