"""The gallery: a picture of every view, made by the test that looks at it, and what docs/gallery.md says of them.

Where the environment variable DDGVIZ_PICTURES names a folder, the tests leave their pictures there.
"""

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulate
import test_rating
import test_voila
from test_page import shown

import ddgviz

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
LARGEST = 99_000
ALL = 1_800_000
COLORS = 28
HAT = "Where did you buy that beautiful hat?"
BREAD = "My grandmother taught me how to bake bread."
JACKET = "This jacket is too small for me."
LIBRARY = "Can you tell me where the library is?"
SOUP = "The soup is cold."

PAINTED = """() => {
  const canvas = document.querySelector("canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let index = 3; index < data.length; index += 40) painted += data[index] > 0;
  return painted;
}"""
EMOJI = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const drawn = (text) => {
    context.clearRect(0, 0, 60, 60);
    context.font = "30px sans-serif";
    context.fillText(text, 5, 40);
    return context.getImageData(0, 0, 60, 60).data.join();
  };
  return drawn("\\u{1F389}") !== drawn("\\u{10FFF0}");
}"""
Opener = Callable[..., Any]
voila = test_voila.voila
rated = test_rating.opened


def both(view: Callable[..., None]) -> Any:
    """A browser test of a view, once in light and once in dark."""
    return pytest.mark.browser(pytest.mark.parametrize("scheme", ["light", "dark"])(view))


def in_the_app(view: Callable[..., None]) -> Any:
    """A browser test of the whole app, which takes long: in dark only where pictures are made."""
    schemes = ("light", "dark") if "DDGVIZ_PICTURES" in os.environ else ("light",)
    return pytest.mark.browser(pytest.mark.parametrize("scheme", schemes)(view))


def keep(picture: bytes, name: str) -> None:
    """Leave a picture where pictures are wanted, small enough to be committed."""
    assert len(picture) > 15_000, "there is next to nothing in the picture"
    if not (folder := os.environ.get("DDGVIZ_PICTURES")):
        return
    image = pytest.importorskip("PIL.Image")
    pixels = np.asarray(image.open(io.BytesIO(picture)).convert("RGB")).astype(np.uint32)
    packed = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
    known, where, counts = np.unique(packed, return_inverse=True, return_counts=True)
    palette, nearest = _palette(np.stack([known >> 16, known >> 8 & 255, known & 255], axis=1).astype(float), counts)
    drawn = image.fromarray(nearest[where].reshape(packed.shape).astype(np.uint8), "P")
    drawn.putpalette(palette.astype(np.uint8).tobytes())
    small = io.BytesIO()
    drawn.save(small, "PNG", optimize=True)
    assert small.tell() < LARGEST
    Path(folder, f"{name}.png").write_bytes(small.getvalue())


def _palette(colors: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Colors of the picture, each where it is missed most, and which of them is nearest to each color there is."""
    chosen = [int(counts.argmax())]
    nearest = np.zeros(len(colors), dtype=int)
    distance = ((colors - colors[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < COLORS and distance.any():
        chosen.append(int((distance * counts).argmax()))
        found = ((colors - colors[chosen[-1]]) ** 2).sum(axis=1)
        nearest[found < distance] = len(chosen) - 1
        distance = np.minimum(distance, found)
    return colors[chosen], nearest


# --------------------------------------------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    """The model that comes with fastdecode, on one thread: more only wait for the browser."""
    import torch

    import fastdecode_lib

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield fastdecode_lib.load("tatoeba-small")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def run(model: Any) -> Callable[..., Any]:
    """Decodes a sentence, once for both pictures of it."""
    import fastdecode_lib

    known: dict[tuple[Any, ...], Any] = {}

    def decode(text: str, decoder: str, target: str = "de", **limits: Any) -> Any:
        key = (text, decoder, target, *limits.items())
        if key not in known:
            limits |= {"source": "en", "target": target, "decoder": decoder, "verify": True}
            known[key] = fastdecode_lib.translate(model, text, **limits).trace
        return known[key]

    return decode


@pytest.fixture(scope="module")
def measured(model: Any, run: Callable[..., Any]) -> Any:
    """A run with its measured dependencies."""
    from fastdecode_lib.measuring.dependencies import dependencies, with_edges
    from fastdecode_lib.translation import Session

    found = dependencies(Session.of(model, "en", "de", "jacobi"), BREAD, replace="padding")
    return with_edges(run(BREAD, "window:width=5"), found)


@pytest.fixture(scope="module")
def long_text() -> str:
    """Eight of the project's own sentences, more than the model was trained to take at once."""
    lines = (ROOT / "fastdecode_lib" / "text" / "sentences.tsv").read_text(encoding="utf-8").splitlines()[1:]
    short = [english for line in lines if 25 < len(english := line.partition("\t")[0]) < 60]
    return " ".join(short[28:36])


@pytest.fixture(scope="module")
def long_run(run: Callable[..., Any], long_text: str) -> Any:
    return run(long_text, "window:width=5", max_length=256)


def scripts() -> dict[str, Any]:
    """An invented run whose tokens are written in every direction, or try not to be seen."""
    words = ["▁مرحبا", "▁بالعالم", "▁שלום", "▁東京", "タワー", "▁नमस्ते", "▁दुनिया", "▁👩\u200d💻", "▁🎉"]
    words += ["▁a\u202eb", "\x07", "▁한국어", "."]
    return simulate.jacobi(
        words,
        {2: [0], 3: [1], 4: [1], 6: [5], 8: [5], 9: [8], 10: [8], 12: [11], 13: [12]},
        width=5,
        source="مرحبا بالعالم، 東京 and नमस्ते 🎉",
        decoder="window:width=5",
        languages=("ar", "ja"),
    )


# -------------------------------------------------------------------------------------------------------------- pages


@pytest.fixture(scope="module")
def contexts(browser: Any) -> Iterator[dict[str, Any]]:
    """A light window and a dark one."""
    options = {"viewport": {"width": 1040, "height": 1100}, "device_scale_factor": 1.5, "reduced_motion": "reduce"}
    made = {scheme: browser.new_context(**options, color_scheme=scheme) for scheme in ("light", "dark")}
    for context in made.values():
        context.set_default_timeout(8_000)
    yield made
    for context in made.values():
        context.close()


@pytest.fixture
def opened(contexts: dict[str, Any], tmp_path: Path) -> Iterator[Opener]:
    """Opens a trace's page, its view as the address says; afterwards, nothing was fetched and nothing complained."""
    pages: list[Any] = []
    requests: list[str] = []
    complaints: list[str] = []
    path = tmp_path / "picture.html"

    def open_page(trace: Any, scheme: str, view: str = "", width: int = 0) -> Any:
        ddgviz.save(trace, path)
        page = contexts[scheme].new_page()
        if width:
            page.set_viewport_size({"width": width, "height": 1100})
        pages.append(page)
        page.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{path.as_uri()}#{view}")
        page.wait_for_selector(f'.ddgviz[data-theme="{scheme}"][data-passes]')
        shown(page)
        assert page.evaluate(PAINTED) > 4_000
        return page

    yield open_page
    for page in pages:
        page.close()
    assert set(requests) == {path.as_uri()}
    assert complaints == []


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).all_text_contents()
    return found


def said(page: Any, name: str) -> str:
    return str(page.locator(f".ddg-{name}").inner_text())


def point_at(page: Any, token: str, row: str | None = None) -> None:
    """Move the mouse to a token of the graph, or below it to a row."""
    box = page.locator(".ddg-token").get_by_text(token, exact=True).first.bounding_box()
    beside = page.locator(".ddg-row").get_by_text(row, exact=True).bounding_box() if row else box
    page.mouse.move(box["x"] + box["width"] / 2, beside["y"] + beside["height"] / 2)
    shown(page)


def around(page: Any, first: str, last: str = "") -> bytes:
    """A picture of the page from one part to another, with a margin."""
    top = page.locator(first).bounding_box()
    end = page.locator(last or first).bounding_box()
    left, width, high = end["x"] - 16, end["width"] + 32, end["y"] + end["height"] - top["y"] + 24
    picture: bytes = page.screenshot(
        full_page=True, clip={"x": left, "y": top["y"] - 12, "width": width, "height": high}
    )
    return picture


def photograph(page: Any, name: str, scheme: str, scale: str = "device") -> None:
    keep(page.locator(".ddgviz").screenshot(scale=scale), f"{name}-{scheme}")


# -------------------------------------------------------------------------------------------------------------- views


@both
def test_a_window_with_a_draft_table(opened: Opener, run: Callable[..., Any], scheme: str) -> None:
    page = opened(run(BREAD, "window:width=5"), scheme)
    assert said(page, "headline") == "6 passes for 12 tokens"
    assert said(page, "beside") == "greedy needs 12 · identical output"
    edges = [page.locator(f".ddg-{name}").bounding_box() for name in ("headline", "beside")]
    assert len({round(edge["x"] + edge["width"]) for edge in edges}) == 1
    assert texts(page, ".ddg-at-once") == ["2 at once", "5 at once", "2 at once"]
    assert "filled: the pass kept the draft" in said(page, "legend")
    photograph(page, "window", scheme)


@both
def test_blocks_are_outlined(opened: Opener, run: Callable[..., Any], scheme: str) -> None:
    page = opened(run(JACKET, "gauss_seidel:block=3"), scheme)
    assert "Gauss-Seidel, blocks of 3" in said(page, "sub")
    assert "computed together" in said(page, "legend")
    photograph(page, "blocks", scheme)


@both
def test_measured_causes_light_up(opened: Opener, measured: Any, scheme: str) -> None:
    page = opened(measured, scheme)
    point_at(page, "wie")
    assert 9 < page.locator(".ddg-arc").count() <= len(measured.edges)
    assert page.locator(".ddg-lit").count() > 2
    assert page.locator(".ddg-self").count() == 1
    photograph(page, "causes", scheme)


@both
def test_beam_lanes(opened: Opener, run: Callable[..., Any], scheme: str) -> None:
    page = opened(run("Could you close the window, please?", "beam:size=4"), scheme)
    point_at(page, "bitte", "lane 2")
    assert page.locator(".ddg-tip").is_visible()
    photograph(page, "beam", scheme)


@both
def test_active_sets(opened: Opener, run: Callable[..., Any], scheme: str) -> None:
    trace = run(BREAD, "window:width=5", projection="clustered")
    chosen = int(trace.iterations[1].cluster[0])
    page = opened(trace, scheme, f"cluster={chosen}")
    assert said(page, "words").startswith(f"Cluster {chosen} · ")
    photograph(page, "clusters", scheme)


@both
def test_two_outputs_are_rated_blind(rated: Opener, model: Any, tmp_path: Path, scheme: str) -> None:
    import fastdecode_lib
    from fastdecode_lib.papers.vocabulary_clusters.ratings import Study, sample_pairs

    texts = [BREAD, JACKET, LIBRARY, SOUP, "The train to the coast was late again because of the storm."]
    said = [
        [fastdecode_lib.translate(model, text, source="en", target="de", decoder=decoder).text for text in texts]
        for decoder in ("greedy", "beam:size=4")
    ]
    differing = sum(a != b for a, b in zip(*said, strict=True))
    with Study.create(
        tmp_path / "ratings.sqlite", sample_pairs(texts, *said, differing, 0), ("greedy", "beam")
    ) as study:
        page = rated(ddgviz.rate(study, "anna"), scheme=scheme)
        assert page.locator(".ddg-count").text_content() == f"1 of {differing}"
        page.get_by_label("Left score as a number").fill("80")
        page.get_by_label("Right score as a number").fill("65")
        keep(page.locator(".ddg-rating").screenshot(), f"rating-{scheme}")


@both
def test_two_tokens_a_pass_from_both_ends(opened: Opener, scheme: str) -> None:
    import fastdecode_lib

    model = fastdecode_lib.load("bidirectional", device="cpu")
    found = fastdecode_lib.translate(model, HAT)
    page = opened(found.trace, scheme)
    assert said(page, "headline") == f"{-(-len(found.tokens) // 2)} passes for {len(found.tokens)} tokens"
    photograph(page, "both-ends", scheme)


@both
def test_masks_are_predicted_again(opened: Opener, scheme: str) -> None:
    from fastdecode_lib.papers.outcomes import committed

    page = opened(committed("double_token_decoding.mask_predict").attrs["traces"]["mask_predict"], scheme)
    assert said(page, "headline") == "4 passes for 10 tokens" and "masked again" in said(page, "legend")
    photograph(page, "masks", scheme)


@both
def test_a_long_run_from_afar(opened: Opener, long_run: Any, scheme: str) -> None:
    page = opened(long_run, scheme, "zoom=0.15", width=1300)
    assert said(page, "headline") == "45 passes for 61 tokens"
    assert page.evaluate("() => document.querySelector('.ddg-scroll').scrollWidth <= innerWidth"), "it does not fit"
    photograph(page, "long", scheme, scale="css")


@both
def test_a_part_of_a_long_run(opened: Opener, long_run: Any, scheme: str) -> None:
    page = opened(long_run, scheme, "pass=19&brush=[20,29]")
    page.evaluate("() => document.querySelector('.ddg-scroll').scrollTo(0, 240)")
    shown(page)
    assert said(page, "caption").startswith("Pass 19")
    assert "".join(texts(page, ".ddg-token")).startswith("Patientenzweimal")
    photograph(page, "part", scheme)


@both
def test_scripts_of_the_world(opened: Opener, scheme: str) -> None:
    page = opened(scripts(), scheme)
    assert {"مرحبا", "東京", "नमस्ते", "a⟨U+202E⟩b", "⟨U+0007⟩"} <= set(texts(page, ".ddg-token"))
    if page.evaluate(EMOJI):  # without a font for them, the picture that is there is better
        photograph(page, "scripts", scheme)


@in_the_app
def test_the_panel_and_two_decoders(voila: str, browser: Any, scheme: str) -> None:
    size = {"width": 1080, "height": 1900}
    context = browser.new_context(viewport=size, device_scale_factor=1.5, reduced_motion="reduce", color_scheme=scheme)
    requests: list[str] = []
    complaints: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{voila}voila/render/app.ipynb?theme={scheme}", timeout=60_000)
    page.wait_for_function(
        "document.querySelector('.ddg-result')?.textContent.startsWith('Die Kinder')", timeout=60_000
    )
    sentence = page.get_by_placeholder("A sentence to translate")
    sentence.fill(LIBRARY)
    sentence.press("Enter")
    page.wait_for_function("document.querySelector('.ddg-result')?.textContent.startsWith('Kannst')")
    page.wait_for_function("document.querySelector('.ddgviz').dataset.pass === '5'")
    assert page.locator(f'.ddgviz[data-theme="{scheme}"]:visible').count() == 1
    page.get_by_text("Python for this view").click()
    assert "fastdecode_lib" in page.locator(".ddg-code pre").inner_text()
    keep(around(page, ".ddg-panel:visible"), f"panel-{scheme}")

    page.get_by_text("Python for this view").click()
    sentence.fill(SOUP)
    page.get_by_label("Compare with").select_option("Greedy")
    verdict = page.locator(".ddg-verdict:visible")
    verdict.get_by_text("Same output").wait_for(timeout=20_000)
    assert verdict.inner_text().startswith("Same output: A in 3 passes, B in 6.")
    page.wait_for_function("document.querySelectorAll('.ddgviz')[1].dataset.pass === '6'")
    box = page.locator(".ddg-token").get_by_text("kalt", exact=True).first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("document.querySelectorAll('.ddg-band').length === 2")
    keep(around(page, ".ddg-verdict", ".ddgviz >> nth=1"), f"comparison-{scheme}")
    context.close()
    assert [url for url in requests if not url.startswith((voila, "data:", f"blob:{voila}"))] == []
    assert complaints == []


@pytest.mark.skipif(
    "DDGVIZ_PICTURES" not in os.environ, reason="a picture only: test_voila does the same and looks closer"
)
@in_the_app
def test_what_pays_on_a_sentence(voila: str, browser: Any, scheme: str) -> None:
    size = {"width": 1080, "height": 2000}
    context = browser.new_context(viewport=size, device_scale_factor=1.2, reduced_motion="reduce", color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{voila}voila/render/app.ipynb?theme={scheme}", timeout=60_000)
    page.wait_for_selector(".ddg-panel .ddgviz", timeout=60_000)
    page.get_by_text("What pays").click()
    page.get_by_role("button", name="Measure").click()
    page.wait_for_selector(".js-plotly-plot .scatterlayer .point", timeout=60_000)
    page.get_by_label("Width", exact=True).last.select_option("4")
    page.get_by_label("Projection", exact=True).last.select_option("clustered (k-means)")
    page.locator(".ddg-verdict:visible").get_by_text("Window of 4, clustered").wait_for(timeout=20_000)
    page.locator(".ddg-verdict:visible").get_by_text(re.compile("Same output|Outputs differ")).wait_for(timeout=20_000)
    page.wait_for_function("document.querySelectorAll('.ddgviz[data-passes]').length >= 3")
    keep(around(page, ".ddg-panel:visible"), f"linked-{scheme}")
    context.close()


# ------------------------------------------------------------------------------------------------- charts and palettes


SERVED = pytest.mark.filterwarnings("ignore:The kopts argument is ignored")


@pytest.fixture(scope="module")
def kaleido(chromium: str) -> Iterator[Any]:
    """Kaleido with a browser that stays for all charts."""
    package = pytest.importorskip("kaleido")
    package.start_sync_server(silence_warnings=True)
    yield package
    package.stop_sync_server(silence_warnings=True)


def draw(figure: Any, name: str, width: int = 900) -> str:
    """Draw a chart; returns it as SVG."""
    svg = figure.to_image(format="svg", width=width).decode()
    keep(figure.to_image(format="png", width=width, scale=1.5), name)
    return str(svg)


@SERVED
@both
def test_speed_and_agreement(kaleido: Any, scheme: str) -> None:
    from fastdecode_lib.papers.outcomes import committed

    figure = ddgviz.speed_accuracy(committed("start_here.own_sentences"), theme=scheme)
    svg = draw(figure, f"speed-{scheme}")
    assert "same output as greedy" in svg and "ctranslate2" in svg


@SERVED
@both
def test_frontier(kaleido: Any, scheme: str) -> None:
    from ddgviz.figures import frontier
    from fastdecode_lib.papers.outcomes import committed

    figure = frontier(committed("start_here.own_sentences"), theme=scheme)
    svg = draw(figure, f"frontier-{scheme}")
    assert "on the front" in svg and "beam:size=5" in svg


@SERVED
@both
def test_curves(kaleido: Any, scheme: str) -> None:
    from fastdecode_lib.papers.outcomes import committed

    cores = committed("parallel_decoding.figure3")
    figure = ddgviz.curves(cores, x="cores", y="speedup", reference=1.0, log_x=True, theme=scheme)
    svg = draw(figure, f"curves-{scheme}")
    assert "window:width=5" in svg and "gauss_seidel:block=3" in svg and svg.count('class="legendtext"') == 3


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["print", "colorblind", "colorblind-dark"])
def test_palettes(contexts: dict[str, Any], run: Callable[..., Any], theme: str) -> None:
    page = contexts["light"].new_page()
    page.set_content(
        f"<!doctype html><style>body{{margin:0}}</style>{ddgviz.svg(run(SOUP, 'window:width=5'), theme=theme)}"
    )
    assert "3 passes for 6 tokens" in page.locator("svg").text_content()
    keep(page.locator("svg").screenshot(), theme)
    page.close()


# ---------------------------------------------------------------------------------------------------------- the pages


def test_the_gallery_names_what_is_there() -> None:
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    pictures = re.findall(r'(?:src|srcset)="pictures/([^"]+)"', gallery)
    assert sorted(pictures) == sorted(path.name for path in PICTURES.glob("*.png")), (
        "a picture is missing, or shown nowhere"
    )
    assert sum((PICTURES / name).stat().st_size for name in pictures) < ALL
    tests = {name for name in globals() if name.startswith("test_") and callable(globals()[name])}
    named = re.findall(r"`(test_\w+)`", gallery)
    assert set(named) == tests - {"test_the_gallery_names_what_is_there"}
    for section in gallery.split("\n## ")[1:]:
        assert section.count("<picture>") == section.count("alt=") >= 1, section
        assert re.search(r"`test_\w+`", section) and ("```" in section or "fastdecode " in section), section
