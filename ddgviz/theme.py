"""Colours and type by what they mean, one set for each palette, shared by SVG, widget and charts."""

from dataclasses import dataclass

FONT = "Inter, 'Noto Sans', 'Noto Sans CJK SC', 'Noto Color Emoji', 'Helvetica Neue', Arial, sans-serif"

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

    @property
    def variables(self) -> str:
        """The colours as CSS variables."""
        names = ("paper", "ink", "muted", "line", "settled", "accent")
        return "".join(f"--ddg-{name}:{getattr(self, name)};" for name in names) + f"color-scheme:{self.scheme};"


# fmt: off
# scheme, paper, ink, muted, line, settled, accent, series
LIGHT = Theme("light", "#ffffff", "#1b1f24", "#57606a", "#e4e6e8", "#0d6e69", "#c94a06")
DARK = Theme("dark", "#111417", "#e8eaed", "#9aa3ad", "#2a3036", "#4ac4b8", "#ff9a52")
PRINT = Theme("light", "#ffffff", "#000000", "#4d4d4d", "#d9d9d9", "#595959", "#000000",
    ("#000000", "#8c8c8c", "#404040", "#b0b0b0"))
COLORBLIND = Theme("light", "#ffffff", "#1b1f24", "#525b65", "#e4e6e8", "#005a9c", "#b34700",
    ("#0072b2", "#d55e00", "#1b1f24", "#56b4e9", "#cc79a7", "#009e73", "#b58900"))
COLORBLIND_DARK = Theme("dark", "#111417", "#eceef0", "#a3acb5", "#2a3036", "#56b4e9", "#f0a030",
    ("#56b4e9", "#e69f00", "#eceef0", "#009e73", "#cc79a7", "#f0e442", "#d55e00"))
# fmt: on
THEMES = {"light": LIGHT, "dark": DARK, "print": PRINT, "colorblind": COLORBLIND, "colorblind-dark": COLORBLIND_DARK}
"""Themes by name. *print* distinguishes by lightness, weight and dashes; *colorblind* is for every kind of colour vision."""

EITHER = Theme("light", "rgba(0,0,0,0)", "#757d86", "#757d86", "#757d8640", "#16918a", "#d9601c")
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
        blocks.append(f'.ddgviz[data-theme="{name}"]{{{theme.variables}}}')
    return "\n".join([f".ddgviz{{--ddg-font:{FONT};}}", *blocks, ""])
