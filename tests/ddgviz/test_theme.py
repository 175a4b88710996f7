"""The palettes: legible, and told apart by every kind of colour vision and by a photocopier."""

import itertools
import re

import numpy as np
import pytest

from ddgviz.theme import THEMES, stylesheet, theme_named

FILLS = (0.1, 0.23, 0.26, 0.48)
"""How much of the settled colour lies under a token, from the faintest cell to the strongest."""

# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "photocopy": [[0.2126, 0.7152, 0.0722]] * 3,
}


def linear(color: str) -> np.ndarray:
    """Linear RGB of #rrggbb."""
    value = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def mixed(color: str, paper: str, alpha: float) -> str:
    """`color` laid over `paper`."""
    parts = [(int(color[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(alpha * a + (1 - alpha) * b):02x}" for a, b in parts)


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    low, high = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (a, b))
    return (high + 0.05) / (low + 0.05)


def distance(a: str, b: str, vision: str) -> float:
    """Distance in CIELAB as the eye in question sees both."""
    return float(np.linalg.norm(lab(a, vision) - lab(b, vision)))


def lab(color: str, vision: str) -> np.ndarray:
    seen = np.clip(np.array(VISION[vision]) @ linear(color), 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    x, y, z = (v / w for v, w in zip(np.array(to_xyz) @ seen, (0.95047, 1.0, 1.08883), strict=True))
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("name", THEMES)
def test_what_is_written_can_be_read(name: str) -> None:
    theme = THEMES[name]
    for fill in FILLS:
        assert contrast(theme.ink, mixed(theme.settled, theme.paper, fill)) >= 4.5
    for color in (theme.muted, theme.accent, theme.settled):
        assert contrast(color, theme.paper) >= 4.5
    for color in theme.series:
        assert contrast(color, theme.paper) >= 1.9, "a line is more than its colour, but must be seen"


@pytest.mark.parametrize("vision", ["normal", "protanopia", "deuteranopia", "tritanopia"])
@pytest.mark.parametrize(("name", "least"), [("light", 45), ("dark", 45), ("colorblind", 80), ("colorblind-dark", 80)])
def test_settled_and_accent_are_told_apart(name: str, least: float, vision: str) -> None:
    theme = THEMES[name]
    assert distance(theme.settled, theme.accent, vision) >= least


@pytest.mark.parametrize("vision", VISION)
def test_print_is_grey_and_its_greys_are_apart(vision: str) -> None:
    theme = THEMES["print"]
    colors = [theme.paper, theme.ink, theme.muted, theme.line, theme.settled, theme.accent, *theme.series]
    assert all(len(set(re.findall("..", color[1:]))) == 1 for color in colors)
    steps = [theme.paper, *(mixed(theme.settled, theme.paper, fill) for fill in (0.2, 0.44)), theme.settled]
    assert all(distance(a, b, vision) >= 7 for a, b in itertools.pairwise(steps))
    assert distance(theme.settled, theme.accent, vision) >= 30


def test_a_red_that_is_taken_for_brown_is_noticed() -> None:
    assert distance("#c03030", "#605030", "normal") > 50
    assert distance("#c03030", "#605030", "protanopia") < 5


def test_styles_know_every_theme_and_its_scheme() -> None:
    said = stylesheet()
    for name, theme in THEMES.items():
        block = re.findall(rf'\.ddgviz\[data-theme="{name}"\]{{(.*)}}', said)[0]
        assert block.endswith(f"color-scheme:{theme.scheme};") and theme.scheme in ("light", "dark")
        assert re.findall("--ddg-([a-z]+):", block) == ["paper", "ink", "muted", "line", "settled", "accent"]


def test_an_unknown_theme_names_them_all() -> None:
    message = r"draws in light, dark, print, colorblind or colorblind-dark, got 'blue'\. Use one"
    with pytest.raises(ValueError, match=message):
        theme_named("blue")
