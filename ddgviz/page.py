"""A page that stands alone: the picture with its script, styles and trace, and nothing fetched."""

import base64
import hashlib
import json
from typing import Any

from ddgviz import words
from ddgviz.assets import script, styles
from ddgviz.drawing import escape
from ddgviz.trace import read

_BOOT = """
const data = JSON.parse(document.getElementById("trace").textContent);
const asked = () => {
  const view = {};
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    try {
      view[key] = JSON.parse(value);
    } catch {
      continue;
    }
  }
  return view;
};
let later = 0;
const onView = (view) => {
  const said = Object.entries(view).map(([key, value]) => [key, JSON.stringify(value)]);
  clearTimeout(later);
  later = setTimeout(() => history.replaceState(null, "", "#" + new URLSearchParams(said)), 100);
};
const picture = mount(document.getElementById("picture"), { onView });
picture.load(data.trace, { words: data.words, view: asked() });
addEventListener("hashchange", () => picture.setView(asked()));
"""
_STYLE = """
body { margin: 0; padding: 24px; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { background: #111417; } }
#picture { max-width: 1600px; margin: 0 auto; }
"""


def html(trace: Any) -> str:
    """A whole page that plays a trace, light or dark as the reader's system is.

    Parameters
    ----------
    trace : anything that `read` takes
    """
    model = read(trace)
    data = {"trace": json.loads(model.to_json()), "words": words.spoken(model, range(model.rows))}
    code = script().removesuffix("export default{render};") + _BOOT
    style = styles() + _STYLE
    policy = f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; base-uri 'none'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(words.title(model) or 'Decoding')}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<main id="picture"></main>',
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
