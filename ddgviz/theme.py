"""Colours and type, one set for light and one for dark, shared by SVG, widget and charts."""

from dataclasses import asdict, dataclass

FONT = "Inter, 'Noto Sans', 'Noto Sans CJK SC', 'Noto Color Emoji', 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by what they mean; all are #rrggbb, but for the see-through ones of `EITHER`."""

    paper: str
    ink: str
    muted: str
    line: str
    settled: str
    accent: str


LIGHT = Theme(paper="#ffffff", ink="#1b1f24", muted="#636c76", line="#e4e6e8", settled="#0d6e69", accent="#c94a06")
DARK = Theme(paper="#111417", ink="#e8eaed", muted="#949da7", line="#2a3036", settled="#4ac4b8", accent="#ff9a52")
THEMES = {"light": LIGHT, "dark": DARK}
EITHER = Theme(
    paper="rgba(0,0,0,0)", ink="#757d86", muted="#757d86", line="#757d8640", settled="#16918a", accent="#d9601c"
)
"""For charts, which cannot follow their surroundings: see-through, and legible on white and on black."""


def theme_named(name: str) -> Theme:
    """The theme called `name`.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in THEMES:
        raise ValueError(f'ddgviz draws in {" or ".join(THEMES)}, got {name!r}. Use theme="light" or theme="dark".')
    return THEMES[name]


def stylesheet() -> str:
    """The themes as CSS variables on the widget's root."""
    blocks = []
    for name, theme in THEMES.items():
        variables = "".join(f"--ddg-{key}:{value};" for key, value in asdict(theme).items())
        blocks.append(f'.ddgviz[data-theme="{name}"]{{{variables}color-scheme:{name};}}')
    return "\n".join([f".ddgviz{{--ddg-font:{FONT};}}", *blocks, ""])
