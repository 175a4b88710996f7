"""Animations for slides and pages: a frame for each pass, as an SVG that moves by itself or as a GIF."""

import io
import re
from typing import TYPE_CHECKING, Any

from ddgviz.browser import pngs
from ddgviz.schema import fail
from ddgviz.svg import Window, draw, ranges
from ddgviz.theme import Theme, theme_named
from ddgviz.trace import read

if TYPE_CHECKING:
    from PIL import Image

SECONDS = 1.0
"""Seconds for which a pass is shown; the last one is shown for `HOLD`, then the animation begins again."""
HOLD = 3.0
MAX_BYTES = 8_000_000

_SCALE = 1.25
_COLORS = 128
_NEAR = 8
_SIZE = re.compile(r' width="([0-9.]+)" height="([0-9.]+)" viewBox="[^"]*"')


def animated_svg(trace: Any, *, theme: str = "light", window: Window | None = None) -> str:
    """An SVG that plays by itself in a loop; for readers who want no motion it is a still of the last pass.

    Parameters
    ----------
    trace : anything that `ddgviz.read` takes
    theme, window
        As in `ddgviz.svg`.

    Raises
    ------
    ValueError
        As from `ddgviz.svg`, and if all frames together are larger than 8 MB.
    """
    head, bodies = _frames(trace, theme, window)
    *earlier, last = bodies
    total = SECONDS * len(earlier) + HOLD
    lines = [head, f"<style>{_styles(len(earlier), total)}</style>"]
    for number, body in enumerate(earlier):
        delay = f"animation-delay:{number * SECONDS:g}s"
        lines.append(f'<g class="ddg-pass" style="{delay}" visibility="hidden">\n{body}</g>')
    lines.append(f'<g class="ddg-last">\n{last}</g>')
    return "\n".join([*lines, "</svg>", ""])


def gif(trace: Any, *, theme: str = "light", window: Window | None = None) -> bytes:
    """A GIF that plays in a loop; needs Chromium and Pillow.

    Parameters
    ----------
    trace : anything that `ddgviz.read` takes
    theme, window
        As in `ddgviz.svg`.

    Raises
    ------
    ValueError
        As from `animated_svg`, and if Chromium or Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        remedy = "Install it: pip install pillow; or save an .svg with animate=True, which needs nothing."
        raise fail("A GIF needs Pillow", "no module PIL", remedy) from error
    head, bodies = _frames(trace, theme, window)
    files = pngs([f"{head}\n{body}</svg>" for body in bodies], _SCALE)
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    palette = _palette(images, theme_named(theme))
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    milliseconds = [int(1000 * SECONDS)] * len(others) + [int(1000 * HOLD)]
    out = io.BytesIO()
    first.save(out, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
    return out.getvalue()


def _palette(images: list["Image.Image"], theme: Theme) -> "Image.Image":
    """Palette of all frames: the theme's colours, then the most frequent others."""
    from PIL import Image

    strip = Image.new("RGB", (max(image.width for image in images), sum(image.height for image in images)))
    top = 0
    for image in images:
        strip.paste(image, (0, top))
        top += image.height
    exact = [bytes.fromhex(color[1:]) for color in (theme.paper, theme.ink, theme.muted, theme.settled, theme.accent)]
    colors = strip.quantize(_COLORS - len(exact), method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    mixed = [bytes(colors[at : at + 3]) for at in range(0, len(colors), 3)]
    # Pillow may use a nearby colour in place of an exact one, so nearby colours are dropped
    distinct = [new for new in mixed if all(max(map(abs, map(int.__sub__, new, other))) > _NEAR for other in exact)]
    palette = Image.new("P", (1, 1))
    palette.putpalette(b"".join([*exact, *distinct]))
    return palette


def _styles(count: int, total: float) -> str:
    """Styles that show each pass for its seconds of every `total`; without motion, only the last is shown."""
    end, start = (f"{100 * seconds / total:.4f}%" for seconds in (SECONDS, SECONDS * count))
    return (
        "@media (prefers-reduced-motion:no-preference){"
        f".ddg-pass{{animation:ddg-pass {total:g}s step-end infinite}}"
        f".ddg-last{{animation:ddg-last {total:g}s step-end infinite}}"
        "}"
        f"@keyframes ddg-pass{{0%{{visibility:visible}}{end}{{visibility:hidden}}}}"
        f"@keyframes ddg-last{{0%{{visibility:hidden}}{start}{{visibility:visible}}}}"
    )


def _frames(trace: Any, theme: str, window: Window | None) -> tuple[str, list[str]]:
    """The start tag and background of a drawing large enough for every frame, and the content of each frame."""
    model, window = read(trace), window and ranges(window)
    first, last = (window[0][0] + 1, min(window[0][1], model.rows)) if window else (0, model.rows)
    counts = range(first, last + 1) or [model.rows]
    # the last one first: it is the largest, so that an error of size comes at once
    frames = [draw(model, theme, upto, window, steady=True) for upto in reversed(counts)][::-1]
    if (size := sum(map(len, frames))) > MAX_BYTES:
        remedy = "Choose a smaller part, for example window=((0, 20), (0, 20))."
        raise fail(f"An animation holds at most {MAX_BYTES / 1e6:g} MB of frames", f"{size / 1e6:.1f} MB", remedy)
    matches = [re.fullmatch(r"(<svg [^>]*>)\n(.*)</svg>\n", frame, re.DOTALL) for frame in frames]
    heads, bodies = zip(*(part.groups() for part in matches if part), strict=True)
    sizes = [match.groups() for match in map(_SIZE.search, heads) if match]
    wide, high = (max(side, key=float) for side in zip(*sizes, strict=True))
    head = _SIZE.sub(f' width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"', heads[-1])
    ground = f'<rect width="{wide}" height="{high}" fill="{theme_named(theme).paper}"/>'
    return f"{head}\n{ground}", list(bodies)
