"""Colours and type by what they mean, one set for each palette, shared by SVG, widget and charts."""

from dataclasses import dataclass

FONT = "Inter, 'Noto Sans', 'Noto Sans CJK SC', 'Noto Color Emoji', 'Helvetica Neue', Arial, sans-serif"

_VARIABLES = ("paper", "ink", "muted", "line", "settled", "accent")
_SERIES = (
    *("#16918a", "#d9601c", "#6f74d9", "#b8479c", "#7f8c1f"),
    *("#2f86c9", "#a8743a", "#757d86", "#c93a4b", "#3f9a54"),
)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by what they mean; all are #rrggbb, except the transparent ones of `EITHER`.

    Attributes
    ----------
    scheme : {"light", "dark"}
        Brightness of the background.
    paper, ink, muted, line : str
        Colours of the background, of text, of secondary text, and of thin lines.
    settled, accent : str
        Colours of settled tokens and of the latest changes.
    series : tuple of str
        Colours of a chart's curves, in order.
    """

    scheme: str
    paper: str
    ink: str
    muted: str
    line: str
    settled: str
    accent: str
    series: tuple[str, ...] = _SERIES


LIGHT = Theme(
    scheme="light",
    paper="#ffffff",
    ink="#1b1f24",
    muted="#57606a",
    line="#e4e6e8",
    settled="#0d6e69",
    accent="#c94a06",
)
DARK = Theme(
    scheme="dark",
    paper="#111417",
    ink="#e8eaed",
    muted="#9aa3ad",
    line="#2a3036",
    settled="#4ac4b8",
    accent="#ff9a52",
)
PRINT = Theme(
    scheme="light",
    paper="#ffffff",
    ink="#000000",
    muted="#4d4d4d",
    line="#d9d9d9",
    settled="#595959",
    accent="#000000",
    series=("#000000", "#8c8c8c", "#404040", "#b0b0b0"),
)
COLORBLIND = Theme(
    scheme="light",
    paper="#ffffff",
    ink="#1b1f24",
    muted="#525b65",
    line="#e4e6e8",
    settled="#005a9c",
    accent="#b34700",
    series=("#0072b2", "#d55e00", "#1b1f24", "#56b4e9", "#cc79a7", "#009e73", "#b58900"),
)
COLORBLIND_DARK = Theme(
    scheme="dark",
    paper="#111417",
    ink="#eceef0",
    muted="#a3acb5",
    line="#2a3036",
    settled="#56b4e9",
    accent="#f0a030",
    series=("#56b4e9", "#e69f00", "#eceef0", "#009e73", "#cc79a7", "#f0e442", "#d55e00"),
)
THEMES = {"light": LIGHT, "dark": DARK, "print": PRINT, "colorblind": COLORBLIND, "colorblind-dark": COLORBLIND_DARK}
"""Themes by name. *print* distinguishes by lightness, weight and dashes; *colorblind* is for every kind of colour vision."""

EITHER = Theme(
    scheme="light",
    paper="rgba(0,0,0,0)",
    ink="#757d86",
    muted="#757d86",
    line="#757d8640",
    settled="#16918a",
    accent="#d9601c",
)
"""Theme of charts, which cannot follow their surroundings: transparent, and legible on white and on black."""


def theme_named(name: str) -> Theme:
    """The theme called `name`.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in THEMES:
        *others, last = THEMES
        names = f"{', '.join(others)} or {last}"
        raise ValueError(f'ddgviz draws in {names}, got {name!r}. Use one of these names, as in theme="dark".')
    return THEMES[name]


def stylesheet() -> str:
    """The themes as CSS variables on the widget's root."""
    blocks = []
    for name, theme in THEMES.items():
        variables = "".join(f"--ddg-{key}:{getattr(theme, key)};" for key in _VARIABLES)
        blocks.append(f'.ddgviz[data-theme="{name}"]{{{variables}color-scheme:{theme.scheme};}}')
    return "\n".join([f".ddgviz{{--ddg-font:{FONT};}}", *blocks, ""])
