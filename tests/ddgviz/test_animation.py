"""Animations: every pass once, the last one held, in one size, small enough for a slide."""

import io
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import kept
import pytest
import simulate

import ddgviz
from ddgviz import animation, words
from ddgviz.animation import animated_svg, gif
from ddgviz.svg import draw
from ddgviz.theme import theme_named
from ddgviz.trace import read


def size(drawn: str) -> tuple[float, float]:
    wide, high = re.findall(r' width="([0-9.]+)" height="([0-9.]+)" viewBox="0 0 \1 \2"', drawn)[0]
    return float(wide), float(high)


@pytest.mark.parametrize("name", ["garden", "beam", "measured", "hostile"])
def test_every_pass_is_a_group(name: str) -> None:
    trace = getattr(simulate, name)()
    drawn = animated_svg(trace)
    root = ElementTree.fromstring(drawn)
    groups = [part for part in root if part.tag.endswith("}g")]
    assert [group.get("class") for group in groups] == ["ddg-pass"] * len(trace["iterations"]) + ["ddg-last"]
    assert [group.get("visibility") for group in groups] == ["hidden"] * len(trace["iterations"]) + [None]
    delays = [re.findall(r"animation-delay:([0-9.]+)s", group.get("style") or "") for group in groups[:-1]]
    assert delays == [[f"{number}"] for number in range(len(delays))]
    model = read(trace)
    for upto, group in enumerate(groups):
        drawn = ElementTree.fromstring(draw(model, "light", upto, None, steady=True))
        assert "".join(group.itertext()).split() == "".join(drawn.itertext()).split()
        said = " ".join("".join(group.itertext()).split())
        caption = words.caption(model, upto - 1) if upto else words.nothing(model)
        assert " ".join(caption.split())[:40] in said, "each frame speaks of its own pass, the last too"


@pytest.mark.parametrize("name", ["garden", "beam", "greedy"])
def test_the_frames_share_the_size_of_the_largest(name: str) -> None:
    trace = getattr(simulate, name)()
    stills = [size(ddgviz.svg(trace, upto=upto)) for upto in range(len(trace["iterations"]) + 1)]
    assert size(animated_svg(trace)) == (max(w for w, _ in stills), max(h for _, h in stills))


def test_nothing_moves_where_no_motion_is_wanted(small: dict[str, Any]) -> None:
    style = re.findall("<style>(.*?)</style>", animated_svg(small))[0]
    asked, rest = re.findall(
        r"@media \(prefers-reduced-motion:no-preference\)\{((?:\.[^{}]*\{[^{}]*\})*)\}(.*)", style
    )[0]
    assert asked.count("animation:") == 2 and "animation:" not in rest
    assert "ddg-pass 7s step-end infinite" in asked, "four passes and the last one held"
    assert "{0%{visibility:visible}14.2857%{visibility:hidden}}" in rest
    assert "{0%{visibility:hidden}57.1429%{visibility:visible}}" in rest


def test_equal_traces_give_equal_bytes() -> None:
    assert animated_svg(simulate.garden(), theme="dark") == animated_svg(simulate.garden(), theme="dark")


def test_saved_by_its_suffix(small: dict[str, Any], tmp_path: Path) -> None:
    path = ddgviz.save(small, tmp_path / "a.svg", "print", animate=True)
    assert path.read_text(encoding="utf-8") == animated_svg(small, theme="print")
    with pytest.raises(ValueError, match=r"saved as \.svg or \.gif, got 'a\.png'\. Give"):
        ddgviz.save(small, tmp_path / "a.png", animate=True)


def test_a_window_begins_with_its_first_pass(small: dict[str, Any]) -> None:
    window = ((1, 3), (0, 4))
    assert animated_svg(small, window=window).count('class="ddg-pass"') == 1
    with pytest.raises(ValueError, match=r"window must lie within 4 passes"):
        animated_svg(small, window=((7, 9), (0, 4)))


def test_without_passes_one_frame_stands(small: dict[str, Any]) -> None:
    drawn = animated_svg(small | {"iterations": [], "hypotheses": []})
    assert 'class="ddg-pass"' not in drawn and drawn.count("<g class") == 1


def test_what_is_too_large_asks_for_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "MAX_BYTES", 50_000)
    with pytest.raises(
        ValueError, match=r"at most 0\.05 MB of frames, got '0\.\d MB'\. Choose a smaller part, .* window="
    ):
        animated_svg(simulate.garden())
    assert animated_svg(simulate.garden(), window=((0, 2), (0, 5)))


def test_without_pillow_the_way_out_is_named(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        ValueError, match=r"GIF needs Pillow, got .*\. Install it: pip install pillow; or save an \.svg"
    ):
        gif(small)


@pytest.mark.browser
def test_a_gif_plays_every_pass(chromium: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("BROWSER_PATH", chromium)
    trace = simulate.garden()
    content = ddgviz.save(trace, tmp_path / "a.gif", theme="dark").read_bytes()
    assert len(content) < 300_000
    image = image_module.open(io.BytesIO(content))
    assert image.n_frames == len(trace["iterations"]) + 1 and image.info["loop"] == 0
    wide, high = size(animated_svg(trace))
    assert abs(image.width - 1.25 * wide) <= 1 and abs(image.height - 1.25 * high) <= 1
    seen, times = [], []
    for frame in range(image.n_frames):
        image.seek(frame)
        times.append(image.info["duration"])
        seen.append(image.convert("RGB"))
    assert times == [1000] * len(trace["iterations"]) + [3000]
    assert all(picture.getpixel((2, 2)) == (0x11, 0x14, 0x17) for picture in seen), "the paper is exact"
    assert len({picture.tobytes() for picture in seen}) == len(seen), "every pass looks different"
    for name in ("ink", "settled", "accent"):
        color = bytes.fromhex(getattr(theme_named("dark"), name)[1:])
        near = min(max(map(abs, map(int.__sub__, color, found))) for _, found in seen[-1].getcolors(1 << 20))
        assert near <= 12, f"{name} has kept its colour, but for smoothed edges"


@pytest.mark.browser
def test_the_svg_moves_and_stands(browser: Any, small: dict[str, Any]) -> None:
    for wish in ("reduce", "no-preference"):
        page = browser.new_page(reduced_motion=wish)
        page.set_content(animated_svg(small))
        states = set()
        for _ in range(2):
            groups = "[...document.querySelectorAll('svg > g[class^=ddg]')]"
            states.add(page.evaluate(f"{groups}.map(g => getComputedStyle(g).visibility[0]).join('')"))
            page.wait_for_timeout(1000 if wish == "no-preference" else 0)
        assert all(state.count("v") == 1 for state in states), "one pass at a time"
        assert states == {"hhhhv"} if wish == "reduce" else len(states) == 2
        page.close()


@pytest.mark.parametrize("name", ["garden", "beam", "clustered"])
def test_nothing_jumps_between_frames(name: str) -> None:
    drawn = animated_svg(kept.either(name), theme="dark")
    frames = [body for body in re.split(r"<g class=.ddg-", drawn)[1:] if body]
    captions = {re.findall(r'<text x="86" y="([0-9.]+)" font-size="13"', frame)[-1] for frame in frames}
    assert len(captions) == 1
    assert drawn.index('fill="#111417"') < drawn.index("<g class")
