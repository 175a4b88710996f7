"""What the picture says in words: headline, subtitle, and one sentence for each pass."""

import re

from ddgviz.text import ELLIPSIS, END, join, visible
from ddgviz.trace import Cell, TraceModel

_NAMES = """
ar Arabic, bg Bulgarian, ca Catalan, cs Czech, da Danish, de German, el Greek, en English, es Spanish, et Estonian,
fa Persian, fi Finnish, fr French, ga Irish, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, id Indonesian,
is Icelandic, it Italian, ja Japanese, ko Korean, lt Lithuanian, lv Latvian, mt Maltese, nb Norwegian, nl Dutch,
pl Polish,
pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovenian, sr Serbian, sv Swedish, sw Swahili, th Thai,
tr Turkish, uk Ukrainian, ur Urdu, vi Vietnamese, zh Chinese
"""
_LANGUAGES = dict(pair.split() for pair in _NAMES.split(","))
_DECODERS = {
    "greedy": "greedy",
    "beam": "beam search",
    "jacobi": "Jacobi",
    "gauss_seidel": "Gauss-Seidel",
    "hybrid": "hybrid Gauss-Seidel",
    "window": "sliding window",
    "double_token": "double-token",
    "mask_predict": "mask-predict",
}
_OPTIONS = {
    ("gauss_seidel", "block"): "blocks of {}",
    ("hybrid", "block"): "blocks of {}",
    ("jacobi", "block"): "one block of {}",
    ("window", "width"): "{} wide",
    ("window", "size"): "{} wide",
    ("beam", "size"): "{} hypotheses",
    ("beam", "width"): "{} hypotheses",
}
QUOTED = 48


def language(code: object) -> str:
    """A language's English name, or its code where the name is not known."""
    text = visible(str(code or "?"))
    return _LANGUAGES.get(re.split("[-_]", text)[0].lower(), text)


def decoder(typed: object) -> str:
    """``gauss_seidel:block=3`` as ``Gauss-Seidel, blocks of 3``; what is not known stays as typed."""
    name, _, options = visible(str(typed)).partition(":")
    said = [_DECODERS.get(name, name)]
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        known = _OPTIONS.get((name, key))
        said.append(known.format(value) if known and equals else option.replace("=", " ").replace("_", " "))
    return ", ".join(said)


def subtitle(model: TraceModel) -> str:
    """Languages, decoder, projection unless exact, and dtype."""
    if not model.header:
        return ""
    source, target, settings = (model.header[key] for key in ("source", "target", "settings"))
    parts = [f"{language(source.get('language'))} → {language(target.get('language'))}"]
    if settings.get("decoder"):
        parts.append(decoder(settings["decoder"]))
    if settings.get("projection") not in (None, "", "exact"):
        parts.append(f"{decoder(settings['projection'])} projection")
    if settings.get("dtype"):
        parts.append(visible(str(settings["dtype"])))
    return " · ".join(parts)


def title(model: TraceModel) -> str:
    """The source text on one line."""
    text = model.header.get("source", {}).get("text") if model.header else ""
    return visible(" ".join(str(text or "").split()))


def headline(model: TraceModel) -> str:
    """Passes and tokens, and whether the run was cut short."""
    count = len(model.tokens) if model.complete else len(model.settled)
    said = f"{_count(model.rows, 'pass', 'es')} for {_count(count, 'token', 's')}"
    if model.complete:
        return said
    return said + (", stopped" if model.finished else " so far")


def comparison(model: TraceModel) -> str:
    """Greedy's passes and whether the output is the same; empty if greedy was not run."""
    if model.greedy is None:
        return ""
    same = "identical output" if model.greedy["identical"] else "output differs from greedy's"
    return f"greedy needs {model.greedy['calls']} · {same}"


def pass_name(model: TraceModel, row: int) -> str:
    """``pass 3``: passes count from 1."""
    return f"pass {model.iterations[row].call + 1}"


def caption(model: TraceModel, row: int) -> str:
    """What the pass did, as the rest of a sentence that begins with its name."""
    cells = model.cells(row)
    new = [cell for cell in cells if cell.kind == "new"]
    if model.beam:
        lanes = _count(model.iterations[row].lanes, "hypothesis", "", "hypotheses")
        return "settled the best hypothesis." if new else f"kept {lanes} open."
    moved = sum(cell.moved for cell in cells)
    change = f"changed {_count(moved, 'draft', 's')}" if moved else ""
    if not new:
        return f"settled nothing and {change}." if change else "changed nothing: what stands is confirmed."
    if len(new) == 1:
        return f"settled {_quoted(new)}" + (f" and {change}." if change else ".")
    return f"settled {_quoted(new)} in one pass: {_rest(new)} did not have to wait for {_quoted(new[:1])}."


def _quoted(cells: list[Cell]) -> str:
    labels = [cell.label for cell in cells if cell.label.text != END]
    text = join(labels)
    parts = [f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + ELLIPSIS}”"] if labels else []
    if len(labels) < len(cells):
        parts.append("the end")
    return " and ".join(parts)


def _rest(new: list[Cell]) -> str:
    if len(new) > 3:
        return f"the other {len(new) - 1}"
    return " and ".join(_quoted([cell]) for cell in new[1:])


def beyond(model: TraceModel) -> str:
    """How many computed positions are not drawn; empty if none."""
    more = model.beyond
    if not more:
        return ""
    if model.complete:
        return f"+{_count(more, 'position', 's')} beyond the end {'was' if more == 1 else 'were'} drafted too."
    return f"+{_count(more, 'more position', 's')}."


def summary(model: TraceModel, rows: range) -> tuple[str, str]:
    """What a still picture of a whole run says: a pass by name, or nothing, and the sentence."""
    row = highlight(model, rows)
    if len(model.new_columns(row)) == 1 and not model.beam:
        return "", "No pass settled more than one token."
    return pass_name(model, row), caption(model, row)


def highlight(model: TraceModel, rows: range) -> int:
    """The pass a still picture speaks about: the first that settled most."""
    return max(rows, key=lambda row: (len(model.new_columns(row)), -row))


def _count(number: int, one: str, ending: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + ending}"
