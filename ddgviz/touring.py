"""A guided walk of six steps through a picture, for readers who see one for the first time."""

from typing import Any

import anywidget
import traitlets

from ddgviz import words
from ddgviz.assets import script, styles
from ddgviz.schema import fail
from ddgviz.trace import TraceModel, read


class Tour(anywidget.AnyWidget):
    """A picture with steps.

    Attributes
    ----------
    tour : dict
        ``trace`` and ``words`` of the picture, and ``steps``, each with its ``text`` and the ``view`` that it describes.
    """

    _esm = script("tour")
    _css = styles() + styles("tour")
    tour = traitlets.Dict().tag(sync=True)

    def __repr__(self) -> str:
        return f"Tour({len(self.tour.get('steps', []))} steps)"


def tour(trace: Any) -> Tour:
    """Explain a trace in six steps, each shown in its picture.

    Parameters
    ----------
    trace : anything that `read` takes
        Trace of a decoder that settles tokens as it goes: no beam search, no masks.

    Returns
    -------
    Tour
        Shown where it is the last value of a notebook cell; `ddgviz.save` makes a page of it.

    Raises
    ------
    ValueError
        If the run has no end, or settles its tokens all at once.
    """
    model = read(trace)
    if not model.complete or model.late or not model.rows:
        wrong = "A tour explains a run to its end that settles tokens as it goes"
        raise fail(wrong, repr(model.header["settings"].get("decoder")), "Show this one with ddgviz.show.")
    texts = words.spoken(model, range(model.rows))
    return Tour(tour={"trace": model.to_dict(), "words": texts, "steps": steps(model)})


def steps(model: TraceModel) -> list[dict[str, Any]]:
    """Texts of the steps, and the view shown with each."""
    first, fullest = model.iterations[0], words.highlight(model, range(model.rows))
    count, reach = len(model.tokens), len(first.slots)
    tokens = "1 token, one column" if count == 1 else f"{count} tokens, one column each"
    unsettled = [cell.column for cell in model.cells(0) if cell.kind == "draft"]
    at = {"row": 0, "column": unsettled[0]} if unsettled else {}
    positions = f"{reach} positions at once" if reach > 1 else "one position"
    dashed = (
        "Dashed ones follow a wrong draft, a guess, and are decided anew." if unsettled else "This pass has no others."
    )
    counts = [len(model.new_columns(row)) for row in range(model.rows)]
    most = counts[fullest]
    several = f"{most} tokens in one pass" if most > 1 else "one token, " if most else "no token, "
    if most < 2:
        several += "as every pass did" if len(set(counts)) == 1 else "and no pass settled more"
    ending = f"{words.headline(model)}; {words.comparison(model)}" if model.greedy else words.headline(model)
    return [
        {
            "text": f"A sentence is translated here. Its translation has {tokens}.",
            "view": {"pass": 0},
        },
        {"text": f"A row is a pass: the network runs once. This first pass computes {positions}.", "view": {"pass": 1}},
        {"text": f"Filled cells are settled and stay as they are. {dashed}", "view": {"pass": 1} | at},
        {"text": f"{words.pass_name(model, fullest).capitalize()} settled {several}.", "view": {"pass": fullest + 1}},
        {"text": f"An arc says that {words.meaning(model)}.", "view": {"pass": model.rows}},
        {"text": f"In the end: {ending}. Press play to see it again.", "view": {"pass": model.rows}},
    ]
