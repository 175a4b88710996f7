"""A self-contained page: the picture with its script, styles and trace; it fetches nothing."""

import base64
import hashlib
import json
from typing import Any

from ddgviz.address import LONGEST, contents, pack_text
from ddgviz.assets import script, styles
from ddgviz.drawing import escape

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; padding: 24px; background: light-dark(#ffffff, #111417); }
@media (max-width: 620px) { body { padding: 4px; } }
#picture, #tools { max-width: 1600px; margin: 0 auto; }
#tools { display: flex; gap: 8px; padding: 12px 20px; }
.ddg-judgement { margin: 0; padding: 8px 20px 0; font: 14px/1.4 system-ui, sans-serif; color: light-dark(#1b1f24, #e8eaed); }
.ddg-judgement:empty { display: none; }
.ddg-copy { padding: 5px 12px; border: 1px solid #9aa3ad66; border-radius: 6px; background: none; font: 12px system-ui, sans-serif;
  color: light-dark(#57606a, #9aa3ad); cursor: pointer; }
@media print { #tools { display: none; } }
"""


def html(trace: Any) -> str:
    """A page that plays a trace or a comparison of two, light or dark as the reader's system is.

    A trace in the page's address, as `ddgviz.link` writes it, is drawn in place of the page's own.

    Parameters
    ----------
    trace : anything that `read` takes, or a comparison
    """
    data = contents(trace)
    packed = pack_text(data)
    return sealed(data, packed if len(packed) <= LONGEST else "")


def sealed(data: dict[str, Any], link: str = "") -> str:
    """A page of the content that `ddgviz.address.contents` makes; with a packed `link`, it offers its address to copy."""
    return _page(data["pictures"][0]["words"]["title"], data | {"link": link}, script("page"), styles())


def race_html(race: dict[str, Any]) -> str:
    """A whole page of two decoders against the clock; `race` as `ddgviz.racing.Race` has it."""
    boot = 'mountRace(document.getElementById("picture"), JSON.parse(document.getElementById("trace").textContent));'
    code = script("race").removesuffix("export default{render};") + boot
    return _page(race["title"], race, code, styles() + styles("race"))


def tour_html(tour: dict[str, Any]) -> str:
    """A whole page of a guided walk; `tour` as `ddgviz.touring.Tour` has it."""
    boot = 'mountTour(document.getElementById("picture"), JSON.parse(document.getElementById("trace").textContent));'
    code = script("tour").removesuffix("export default{render};") + boot
    return _page(tour["words"]["title"], tour, code, styles() + styles("tour"))


def _page(title: str, data: dict[str, Any], code: str, styles: str) -> str:
    style = styles + _STYLE
    policy = f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; base-uri 'none'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title or 'Decoding')}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<main id="picture"></main>',
            '<footer id="tools"></footer>',
            f'<script type="application/json" id="trace">{_data(data)}</script>',
            f'<script type="module">{code}</script>',
            "</body>",
            "</html>",
            "",
        ]
    )


def _data(value: Any) -> str:
    """JSON that cannot end its script element."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
