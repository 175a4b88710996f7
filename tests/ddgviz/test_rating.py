"""The blind rating: what it is told, what it keeps, and how it is driven in a real browser by mouse and keys."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hostile import TOKENS
from hostile import shown as to_be_seen
from test_lab import READY, command
from test_theme import contrast, mixed

from ddgviz.rating import Rating, differences, rate
from ddgviz.theme import DARK, LIGHT
from fastdecode_lib.papers.vocabulary_clusters.ratings import Study, sample_pairs

browser_test = pytest.mark.browser
SYSTEMS = ("secret-one", "secret-two")


def make(path: Path, count: int = 4) -> Study:
    """A study whose outputs say who made them, to the test."""
    sources = [f"The source of pair {i}." for i in range(count)]
    ones, twos = ([f"Das ist {who} von Paar {i}." for i in range(count)] for who in ("A", "B"))
    return Study.create(path, sample_pairs(sources, ones, twos, count, 0, references=sources[::-1]), SYSTEMS)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with make(tmp_path / "study.sqlite") as made:
        yield made


def tell(widget: Rating, **content: Any) -> dict[str, Any]:
    """The page that the kernel answers with to a message of the browser."""
    widget._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})
    return dict(widget.page)


# -------------------------------------------------------------------------------------------------------------- Python


def test_saving_goes_on_and_back_leads_back(study: Study) -> None:
    widget = rate(study, "anna")
    assert (widget.page["place"], widget.page["rated"], widget.page["total"]) == (0, 0, 4)
    for place in range(4):
        page = tell(widget, k="save", place=place, left=place, right=50 + place, comment="")
        assert (page["place"], page["rated"], page["notice"]) == (place + 1, place + 1, "")
    assert repr(widget) == "Rating('anna', 4 of 4 rated)"
    page = tell(widget, k="open", place=1)
    assert (page["place"], page["scores"]) == (1, [1, 51])
    assert tell(widget, k="save", place=1, left=9, right=8, comment="better so")["place"] == 2
    assert study.pair_at("anna", 1)["scores"] == [9, 8]
    assert rate(study, "anna").page["place"] == 4, "opened again, all is done"
    assert rate(study, "ben").page["place"] == 0


def test_after_the_last_place_come_those_left_out(study: Study) -> None:
    for place in (0, 2):
        study.rate("anna", place, 1, 2)
    widget = rate(study, "anna")
    assert widget.page["place"] == 1
    tell(widget, k="open", place=3)
    assert tell(widget, k="save", place=3, left=1, right=2, comment="")["place"] == 1


def test_nothing_tells_which_system_wrote_what(study: Study) -> None:
    widget = rate(study, "anna")
    said = json.dumps(widget.get_state(), default=str) + repr(widget)
    assert not any(name in said for name in SYSTEMS)
    assert set(widget.page) == {
        *("turn", "place", "rated", "total", "notice"),
        *("source", "reference", "left", "right", "scores", "comment"),
    }


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        (
            {"k": "save", "place": 0, "left": 101, "right": 1, "comment": ""},
            "A score is a number from 0 to 100, got 101.",
        ),
        ({"k": "save", "place": 7, "left": 1, "right": 1, "comment": ""}, "Places are from 0 to 3, got 7."),
        ({"k": "save", "place": 0}, "KeyError: 'left'"),
        ({"k": "open", "place": -1}, "got -1"),
        ({"k": "open", "place": "\u202e"}, "⟨U+202E⟩"),
    ],
)
def test_a_failure_is_shown_and_nothing_is_kept(content: dict[str, Any], notice: str, study: Study) -> None:
    widget = rate(study, "anna")
    before = dict(widget.page)
    page = tell(widget, **content)
    assert notice.replace("\u202e", "⟨U+202E⟩") in page.pop("notice").replace("\\u202e", "⟨U+202E⟩")
    assert page.pop("turn") == before.pop("turn") + 1
    before.pop("notice")
    assert page == before and study.ratings().empty
    assert tell(widget, k="open", place=2)["notice"] == ""


def test_other_messages_are_not_for_it(study: Study) -> None:
    widget = rate(study, "anna")
    turn = widget.page["turn"]
    assert tell(widget, kind="anywidget-command", id="1")["turn"] == turn


def test_it_is_plain_where_no_widget_runs(study: Study) -> None:
    bundle = rate(study, "anna")._repr_mimebundle_()
    assert bundle is not None
    assert set(bundle[0]) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert bundle[0]["text/plain"] == "Rating('anna', 0 of 4 rated)"


def test_anything_that_answers_can_be_rated() -> None:
    class Memory:
        said: dict[int, list[float]] = {}  # noqa: RUF012

        def progress(self, rater: str) -> tuple[int, int]:
            return len(self.said), 2

        def next_place(self, rater: str) -> int | None:
            return next((place for place in range(2) if place not in self.said), None)

        def pair_at(self, rater: str, place: int) -> dict[str, Any]:
            texts = {"source": "s", "reference": None, "left": "a", "right": "b"}
            return texts | {"scores": self.said.get(place), "comment": ""}

        def rate(self, rater: str, place: int, left: float, right: float, comment: str) -> None:
            self.said[place] = [left, right]

    widget = rate(Memory(), "anna")
    for place in range(2):
        tell(widget, k="save", place=place, left=1, right=2, comment="")
    assert widget.page["place"] == 2
    message = r"A rating asks a study: an object with progress\(\), .* got 'str'\. Make one with fastdecode_lib"
    with pytest.raises(ValueError, match=message):
        rate("study", "anna")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize(
    ("one", "two", "left", "right"),
    [
        ("the cat sat", "the dog sat", ["cat"], ["dog"]),
        ("the small cat sat", "the cat sat", ["small"], []),
        ("one two three", "one 2 3", ["two three"], ["2 3"]),
        ("It is so.", "It is so!", ["."], ["!"]),
        ("東京へ行く", "京都へ行く", ["東"], ["都"]),
        ("한국어 좋다", "한국말 좋다", ["한국어"], ["한국말"]),
        ("नमस्ते दुनिया", "नमस्कार दुनिया", ["नमस्ते"], ["नमस्कार"]),
        ("two  spaces", "two spaces", ["two"], ["two"]),
        ("", "word", [], ["word"]),
        ("A b", "a b", ["A"], ["a"]),
    ],
)
def test_what_differs_is_marked(one: str, two: str, left: list[str], right: list[str]) -> None:
    for segments, text, wanted in zip(differences(one, two), (one, two), (left, right), strict=True):
        assert "".join(part for part, _ in segments) == text
        assert [part for part, differs in segments if differs] == wanted


def test_every_text_is_kept_whole() -> None:
    texts = [*TOKENS, "", " ", "a\nb", "a b", "a, b", "  a"]
    for one, two in itertools.product(texts, repeat=2):
        for segments, text in zip(differences(one, two), (one, two), strict=True):
            assert "".join(part for part, _ in segments) == text
            assert all(part for part, _ in segments)
            assert any(differs for _, differs in segments) <= (one != two)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_marked_words_can_be_read(theme: Any) -> None:
    assert contrast(theme.ink, mixed(theme.accent, theme.paper, 0.14)) >= 7
    assert contrast(theme.paper, theme.settled) >= 4.5
    assert contrast(mixed(theme.muted, theme.paper, 0.4), theme.paper) >= 1.5


# ------------------------------------------------------------------------------------------------------------- browser

MODEL = """
window.start = (page) => {
  document.body.replaceChildren();
  const hooks = new Set();
  const answer = (text) => {
    if (!text) return;
    page = JSON.parse(text);
    hooks.forEach((hook) => hook());
  };
  const model = {
    get: () => page, on: (name, hook) => hooks.add(hook), off: (name, hook) => hooks.delete(hook),
    send: (message) => void window.kernel(JSON.stringify(message)).then(answer),
  };
  const cell = document.createElement("div");
  document.body.append(cell);
  window.keys = [];
  document.body.addEventListener("keydown", (event) => event.ctrlKey || window.keys.push(event.key));
  window.stop = render({ model, el: cell });
};
"""
Opener = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Opener]:
    """Opens a rating in a page whose kernel is this process; afterwards nothing was fetched and nothing complained."""
    contexts, complaints = [], []

    def open_page(
        widget: Rating, width: int = 1000, scheme: str = "light", alive: Callable[[], bool] = lambda: True
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 700}, color_scheme=scheme, locale="en-GB")
        contexts.append(context)
        context.route("**/*", lambda route: complaints.append(route.request.url))
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.expose_function("kernel", lambda text: json.dumps(tell(widget, **json.loads(text))) if alive() else "")
        script = str(Rating._esm).replace("export default { render };", "") + MODEL
        page.set_content(f"<!doctype html><style>{Rating._css}</style><script>{script}</script>")
        page.evaluate("(page) => start(page)", dict(widget.page))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def score(page: Any, side: str) -> str:
    return str(page.get_by_label(f"{side} score as a number").input_value())


def reach(page: Any, said: str) -> None:
    """Wait for a pair."""
    page.wait_for_function("(said) => document.querySelector('.ddg-count').textContent === said", arg=said)


@browser_test
def test_keys_are_enough(opened: Opener, study: Study) -> None:
    page = opened(rate(study, "anna"))
    assert page.locator(".ddg-count").inner_text() == "1 of 4"
    assert page.locator(".ddg-source").inner_text() == study.pair_at("anna", 0)["source"]
    assert page.locator("mark").all_inner_texts() in (["A", "B"], ["B", "A"])
    assert not page.get_by_text(study.pair_at("anna", 0)["reference"]).is_visible()
    page.keyboard.press("Tab")
    page.evaluate("() => window.keys.splice(0)")
    page.keyboard.press("Space")
    assert page.get_by_text(study.pair_at("anna", 0)["reference"]).is_visible()

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_role("status").last.inner_text() == "Give both outputs a score first"
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "PageUp"):
        page.keyboard.press(key)
    assert (score(page, "Left"), score(page, "Right")) == ("61", "")
    page.keyboard.press("Enter")
    assert study.progress("anna") == (0, 4), "one score is not enough"
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "Right score"
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    reach(page, "2 of 4")
    assert study.pair_at("anna", 0)["scores"] == [61, 100]
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "Left score"
    assert (score(page, "Left"), score(page, "Right")) == ("", "")

    page.keyboard.press("Tab")
    page.keyboard.type("7")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("101")
    assert page.get_by_label("Right score as a number").get_attribute("aria-invalid") == "true"
    page.keyboard.press("Enter")
    assert page.get_by_role("status").last.inner_text() == "A score is a whole number from 0 to 100"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("0")
    page.keyboard.press("Tab")
    page.keyboard.type("Both are odd.")
    page.keyboard.press("Enter")
    reach(page, "3 of 4")
    pair = study.pair_at("anna", 1)
    assert (pair["scores"], pair["comment"]) == ([7, 0], "Both are odd.")
    assert page.get_by_label("Comment").input_value() == ""
    page.keyboard.press("Escape")
    assert page.evaluate("() => window.keys") == ["Escape"], "a notebook would take keys for commands"


@browser_test
def test_the_mouse_is_enough_and_back_corrects(opened: Opener, study: Study) -> None:
    page = opened(rate(study, "anna"))
    save, back = page.get_by_role("button", name="Save and next"), page.get_by_role("button", name="Back")
    assert back.is_disabled()
    left, right = page.get_by_label("Left score", exact=True), page.get_by_label("Right score", exact=True)
    left.click()
    assert score(page, "Left") == "50", "the middle counts once it is chosen"
    save.click()
    assert study.progress("anna") == (0, 4)
    box = right.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 30, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    save.click()
    reach(page, "2 of 4")
    left.click(position={"x": 9, "y": 16})
    page.get_by_label("Comment").fill("half done")
    back.click()
    reach(page, "1 of 4")
    assert (score(page, "Left"), score(page, "Right")) == ("50", "100")
    assert "saving replaces" in page.get_by_role("status").last.inner_text()
    page.get_by_label("Right score as a number").fill("20")
    save.click()
    reach(page, "2 of 4")
    assert study.pair_at("anna", 0)["scores"] == [50, 20]
    assert (score(page, "Left"), page.get_by_label("Comment").input_value()) == ("0", "half done"), "nothing is lost"
    assert study.progress("anna") == (1, 4)


@browser_test
def test_it_goes_on_after_page_and_kernel_are_gone(opened: Opener, study: Study) -> None:
    alive = True
    widget = rate(study, "anna")
    page = opened(widget, alive=lambda: alive)
    for said in ("2 of 4", "3 of 4"):
        page.get_by_label("Left score as a number").fill("30")
        page.get_by_label("Right score as a number").fill("40")
        page.keyboard.press("Enter")
        reach(page, said)
    page.evaluate("(page) => { stop(); start(page); }", dict(widget.page))
    reach(page, "3 of 4")
    alive = False
    page.get_by_label("Left score as a number").fill("55")
    page.get_by_label("Right score as a number").fill("66")
    page.keyboard.press("Enter")
    page.get_by_text("The kernel has not answered yet").wait_for()
    assert (score(page, "Left"), score(page, "Right")) == ("55", "66")
    page.close()
    widget.close()
    study.close()

    with Study(study.path) as later:
        page = opened(rate(later, "anna"))
        reach(page, "3 of 4")
        assert (score(page, "Left"), score(page, "Right")) == ("", "")
        for _ in range(2):
            page.get_by_label("Left score as a number").fill("1")
            page.get_by_label("Right score as a number").fill("2")
            number = page.locator(".ddg-count").inner_text()
            page.keyboard.press("Enter")
            page.wait_for_function(
                "(said) => document.querySelector('.ddg-count').textContent !== said "
                "|| !document.querySelector('.ddg-done').hidden",
                arg=number,
            )
        page.get_by_text("Every pair is rated").wait_for()
        assert page.get_by_text('study.export("ratings.csv")').is_visible()
        assert not page.get_by_label("Left score", exact=True).is_visible()
        assert later.progress("anna") == (4, 4)
        page.keyboard.press("Enter")
        reach(page, "4 of 4")
        assert (score(page, "Left"), score(page, "Right")) == ("1", "2")


@browser_test
def test_a_failure_leaves_the_scores_where_they_are(
    opened: Opener, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(rate(study, "anna"))
    page.get_by_label("Left score as a number").fill("5")
    page.get_by_label("Right score as a number").fill("6")
    with monkeypatch.context() as patch:
        patch.setattr(study, "rate", lambda *given: (_ for _ in ()).throw(OSError("no <b>space</b> left")))
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("OSError: no <b>space</b> left").wait_for()
    assert (score(page, "Left"), score(page, "Right")) == ("5", "6")
    page.keyboard.press("Enter")
    reach(page, "2 of 4")
    assert page.locator(".ddg-notice").text_content() == ""


@browser_test
def test_hostile_texts_are_only_text(opened: Opener, tmp_path: Path) -> None:
    twos = [f"{token} {other}" for token, other in zip(TOKENS, TOKENS[1:] + TOKENS[:1], strict=True)]
    sample = sample_pairs(TOKENS, TOKENS, twos, len(TOKENS), 0, references=TOKENS)
    with Study.create(tmp_path / "evil.sqlite", sample, SYSTEMS) as study:
        page = opened(rate(study, TOKENS[0]), width=600)
        for place in range(len(TOKENS)):
            reach(page, f"{place + 1} of {len(TOKENS)}")
            pair = study.pair_at(TOKENS[0], place)
            page.locator("summary").click()
            texts = page.locator(".ddg-text:visible").evaluate_all("(all) => all.map((one) => one.textContent)")
            token = pair["source"]
            assert texts[:2] == [to_be_seen(token)] * 2
            assert all(to_be_seen(token) in text for text in texts[2:])
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "long words wrap"
            page.get_by_label("Left score as a number").fill("1")
            page.get_by_label("Right score as a number").fill("2")
            page.get_by_label("Comment").fill(TOKENS[1])
            page.keyboard.press("Enter")
        page.get_by_text("Every pair is rated").wait_for()
        page.get_by_role("button", name="Back").click()
        page.wait_for_function("(said) => document.querySelector('.ddg-comment').value === said", arg=TOKENS[1])
        assert page.evaluate("() => window.owned") is None
        assert page.locator(".ddg-rating :is(img, script, a, s, svg)").count() == 0
        assert set(study.ratings()["comment"]) == {TOKENS[1]}


@browser_test
def test_it_fits_and_follows_the_theme(opened: Opener, study: Study) -> None:
    page = opened(rate(study, "anna"))
    paper = "() => getComputedStyle(document.querySelector('.ddg-rating')).getPropertyValue('--ddg-paper')"
    for width in (1000, 600, 380):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        tops = [box.bounding_box()["y"] for box in page.locator(".ddg-side").all()]
        assert (tops[0] == tops[1]) == (width > 500)
    for system, lab, theme in itertools.product(("light", "dark"), (None, "true", "false"), (LIGHT, DARK)):
        page.emulate_media(color_scheme=system)
        page.evaluate(
            "(lab) => lab ? document.body.setAttribute('data-jp-theme-light', lab) "
            ": document.body.removeAttribute('data-jp-theme-light')",
            lab,
        )
        dark = lab == "false" or (lab is None and system == "dark")
        assert (page.evaluate(paper) == theme.paper) == (dark == (theme is DARK))


LAB = """
from ddgviz.rating import rate
from fastdecode_lib.papers.vocabulary_clusters.ratings import Study
rate(Study("lab.sqlite"), "anna")
"""


@browser_test
def test_in_jupyterlab_it_goes_on_after_a_restart(lab: tuple[str, Path], browser: Any) -> None:
    address, folder = lab
    make(folder / "lab.sqlite").close()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LAB)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "rating.ipynb")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(f"{address}/lab/tree/rating.ipynb?reset")
    for place in (1, 3):
        page.wait_for_function(READY, timeout=60_000)
        command(page, "notebook:run-all-cells")
        page.locator(".ddg-rating").wait_for(timeout=60_000)
        for number in range(place, place + 2):
            reach(page, f"{number} of 4")
            page.get_by_label("Left score", exact=True).focus()
            for key in ("b", "d", "d", "x", "ArrowRight", "Tab", "Tab", "ArrowLeft", "Enter"):
                page.keyboard.press(key)
        reach(page, "3 of 4") if place == 1 else page.get_by_text("Every pair is rated").wait_for()
        assert page.locator(".jp-Cell").count() == 1, "keys stay in the widget"
        command(page, "notebook:clear-all-cell-outputs")
        page.locator(".ddg-rating").wait_for(state="detached")
        page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    context.close()
    with Study(folder / "lab.sqlite") as study:
        assert study.progress("anna") == (4, 4)
        assert study.pair_at("anna", 3)["scores"] == [51, 49]
