"""Configuration of the site: the files of docs/ and notebooks/ as they stand, for Sphinx. ``make site`` builds it."""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import playing  # noqa: E402

import fastdecode_lib  # noqa: E402

project = "fastdecode"
author = "The fastdecode authors"
project_copyright = f"{author}, Apache-2.0"
version = release = fastdecode_lib.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
root_doc = "docs/index"
include_patterns = ["docs/*.md", "docs/**/*.md", "notebooks/[0-9]*.ipynb", "CONTRIBUTING.md", "CHANGELOG.md"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

nb_execution_mode = "off"  # notebooks are shown as they were saved
nb_merge_streams = True
myst_heading_anchors = 3
myst_enable_extensions = ["html_image"]
default_role = "py:obj"

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 90
numpydoc_show_class_members = False
autosummary_generate = False

html_theme = "pydata_sphinx_theme"
html_title = "fastdecode"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"docs/index": []}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "fastdecode"},
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": {name: ["page-toc"] for name in ("docs/**", "CONTRIBUTING", "CHANGELOG")},
    "footer_start": ["copyright"],
    "footer_end": [],
}

SECTIONS = {
    "docs/index": ["docs/guides", "docs/notebooks", "docs/results/README", "docs/api/README", "docs/reference"],
    "docs/guides": ["choose", "own_model", "add_draft", "add_projection", "for_a_paper", "command_line", "cpu", "app"],
    "docs/notebooks": [f"/notebooks/{path.stem}" for path in sorted(HERE.parent.glob("notebooks/[0-9]*.ipynb"))],
    "docs/results/README": [
        *("vocabulary_clusters", "learning_to_screen", "double_token_decoding", "parallel_decoding", "sharp_models"),
        *("combinations", "models"),
    ],
    "docs/api/README": ["fastdecode_lib", "decoding", "projections", "drafts", "core", "ddgviz"],
    "docs/reference": [
        *("glossary", "methods", "gallery", "trace", "numbers", "architecture", "reliability", "corpus"),
        *("site", "/CONTRIBUTING", "/CHANGELOG"),
    ],
}
"""The pages below each page; said here and not in the pages, which are read outside of the site too."""


def _read(app: Any, name: str, source: list[str]) -> None:
    folder = HERE.parent / Path(name).parent
    if (HERE.parent / f"{name}.ipynb").exists():
        source[0] = playing.notebook(source[0])
    else:
        source[0] = playing.page(source[0], folder)
    if name in SECTIONS:
        below = "\n".join(child if "/" not in child or child[0] == "/" else f"/{child}" for child in SECTIONS[name])
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{below}\n```\n"


def _scripts(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    for file, needed_by in {"plotly.min.js": playing.CHART_CLASS, "picture.js": playing.PICTURE_CLASS}.items():
        if needed_by in context.get("body", ""):
            app.add_js_file(file, defer="defer", priority=400)


def _finish(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        playing.write_shared(Path(app.outdir), root_doc)


def setup(app: Any) -> dict[str, Any]:
    """Register what is done to sources and pages."""
    app.connect("source-read", _read)
    app.connect("html-page-context", _scripts)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
