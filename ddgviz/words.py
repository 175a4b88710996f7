"""Texts of the picture: headline, subtitle, and one sentence for each pass."""

import re
from collections.abc import Iterable
from typing import Any

from ddgviz.graph import meaning, measured
from ddgviz.source import spoken_source
from ddgviz.text import ELLIPSIS, END, join, visible
from ddgviz.trace import PLAIN, Cell, TraceModel

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
    "auto": "automatic width",
    "double_token": "double-token",
    "mask_predict": "mask-predict",
    "prompt_lookup": "prompt lookup",
    "assisted": "assisted generation",
    "custom": "custom generation",
}
_PROJECTIONS = {
    "quantised": "quantised (int8, then exact)",
    "clustered": "clustered (k-means)",
    "screened": "screened (learned clusters)",
    "lexical": "lexical (words of the source)",
}
_OPTIONS = {
    ("gauss_seidel", "block"): "blocks of {}",
    ("hybrid", "block"): "blocks of {}",
    ("jacobi", "block"): "one block of {}",
    ("window", "width"): "{} wide",
    ("window", "size"): "{} wide",
    ("auto", "width"): "{} wide at most",
    ("beam", "size"): "{} hypotheses",
    ("beam", "width"): "{} hypotheses",
}
QUOTED = 48
UNKNOWN = frozenset({"<unk>", "[UNK]"})
"""Spellings of the unknown token in vocabularies."""


def language(code: object) -> str:
    """A language's English name, or its code if the name is unknown."""
    text = visible(str(code or "?"))
    return _LANGUAGES.get(re.split("[-_]", text)[0].lower(), text)


def decoder(typed: object) -> str:
    """``gauss_seidel:block=3`` as ``Gauss-Seidel, blocks of 3``; unknown names and options stay as typed."""
    name, _, options = visible(str(typed)).partition(":")
    names = [_DECODERS.get(name, name)]
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        template = _OPTIONS.get((name, key))
        names.append(template.format(value) if template and equals else option.replace("=", " ").replace("_", " "))
    return ", ".join(names)


def projection(name: object) -> str:
    """A projection's name and what it does; unknown ones as they are."""
    text = visible(str(name))
    return _PROJECTIONS.get(text, text)


def subtitle(model: TraceModel) -> str:
    """Languages, decoder, projection unless exact, and dtype."""
    if not model.header:
        return ""
    source, target, settings = (model.header[key] for key in ("source", "target", "settings"))
    languages = [side.get("language") for side in (source, target)]
    parts = [" → ".join(map(language, languages))] if any(languages) else []
    if settings.get("decoder"):
        parts.append(decoder(settings["decoder"]))
    if settings.get("projection") not in (None, "", "exact"):
        name, *options = decoder(settings["projection"]).split(", ")
        parts.append(", ".join([f"{name} projection", *options]))
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
    if model.finished and not model.rows:
        return "no passes"
    text = f"{_count(model.rows, 'pass', 'es')} for {_count(count, 'token', 's')}"
    if model.complete:
        return text + (", cut at the limit" if model.hypotheses[0].get("stop") == "length" else "")
    return text + (", stopped" if model.finished else " so far")


def nothing(model: TraceModel) -> str:
    """Text shown before any pass."""
    if model.rows:
        return "Before the first pass."
    return "The run made no pass." if model.finished else "Waiting for the first pass."


def comparison(model: TraceModel) -> str:
    """Greedy's passes, whether the output is the same, and how much of the source the model could not read."""
    notes = []
    if model.greedy is not None:
        output = "identical output" if model.greedy["identical"] else "output differs from greedy's"
        notes += [f"greedy needs {model.greedy['calls']}", output]
    pieces = model.header.get("source", {}).get("pieces") if model.header else None
    unknown = sum(piece in UNKNOWN for piece in pieces if isinstance(piece, str)) if isinstance(pieces, list) else 0
    return " · ".join(
        [*notes, f"{_count(unknown, 'piece', 's')} of the source unknown to the model"] if unknown else notes
    )


def pass_name(model: TraceModel, row: int) -> str:
    """``pass 3``: passes count from 1."""
    return f"pass {model.iterations[row].call + 1}"


def progress(model: TraceModel, upto: int) -> str:
    """Progress after the first `upto` passes: ``4 of 7 passes · 9 tokens · 2.25 a pass``."""
    if not upto:
        return ""
    passes = f"{upto} of {_count(model.rows, 'pass', 'es')}"
    if model.late:
        return passes
    tokens = sum(row < upto for row, _ in model.settled.values())
    rate = int(100 * tokens / upto + 0.5) / 100
    return f"{passes} · {_count(tokens, 'token', 's')} · {rate:.2f} a pass"


def caption(model: TraceModel, row: int) -> str:
    """Description of a pass, as the rest of a sentence that begins with its name."""
    slots = model.iterations[row].slots
    cells = model.cells(row, [column for column in map(model.column, slots) if column < model.columns])
    new = [cell for cell in cells if cell.kind == "new"]
    if model.beam:
        return _beam_caption(model, row)
    if model.masks:
        return _mask_caption(model, row, cells)
    if model.late:
        return _search_caption(model, row, cells)
    moved = sum(cell.moved for cell in cells)
    change = f"changed {_count(moved, 'draft', 's')}" if moved else ""
    if not new:
        return f"settled nothing and {change}." if change else "changed nothing: what stands is confirmed."
    if len(new) == 1:
        return f"settled {_quoted(new)}" + (f" and {change}." if change else ".")
    if model.right:
        closing = new[-1].token in model.header["end"]
        ends = ": one token from each end" if len(new) == 2 and not closing else ""
        return f"settled {' and '.join(_quoted([cell]) for cell in new)}{ends}."
    sources = sorted({cell.origin for cell in new[:-1]} - PLAIN)
    if sources:
        drafts = f"the drafts {_quoted(new[:-1])} were" if len(new) > 2 else f"the draft {_quoted(new[:1])} was"
        return f"settled {_quoted(new)} in one pass: {drafts} right ({', '.join(map(origin, sources))})."
    rest = f"the other {len(new) - 1}" if len(new) > 3 else " and ".join(_quoted([cell]) for cell in new[1:])
    return f"settled {_quoted(new)} in one pass: {rest} did not have to wait for {_quoted(new[:1])}."


def spoken(model: TraceModel, rows: range, tokens: Iterable[int] | None = None) -> dict[str, Any]:
    """All texts of a picture of a trace, for a view that draws it.

    Parameters
    ----------
    model : TraceModel
    rows : range
        Passes whose captions are included.
    tokens : iterable of int, optional
        Tokens to spell; all by default.

    Returns
    -------
    dict
        ``title, headline, subtitle, comparison, beyond, nothing``; ``passes``: by row, its caption and the progress after it;
        ``meanings``: of edges, by kind; ``shares``: the share of the vocabulary, by number of tokens scored; ``origins``: texts
        of the legend and of a tip, by name; ``labels``: text of a token, and whether a tick marks it, by token;
        ``clusters``: size and words, by number; ``edges``: source, target and strength of the measured ones that are drawn;
        and, if drafts come from the source, ``source``: see `ddgviz.source`.
    """
    spelled = {token: model.label(token) for token in (model.pieces if tokens is None else tokens)}
    scored = {n for row in rows for n in model.iterations[row].num_active if n is not None} if model.grouped else set()
    labels = {str(token): [label.text, label.ticked] for token, label in spelled.items()}
    passes = {str(row): [caption(model, row), progress(model, row + 1)] for row in rows}
    return {
        "title": title(model),
        "headline": headline(model) if model.header else "",
        "subtitle": subtitle(model),
        "comparison": comparison(model),
        "beyond": beyond(model) if model.rows else "",
        "nothing": nothing(model),
        "passes": passes,
        "labels": labels,
        "meanings": {kind: meaning(model, kind) for kind in ("measured", "order")},
        "shares": {str(n): percent(model, n) for n in sorted(scored)},
        "origins": {name: [origin_legend(name), origin(name)] for name in sorted(model.origins - PLAIN)},
        "edges": [[e.source, e.target, e.strength] for e in measured(model)] if model.finished else [],
        "clusters": {
            str(n): [share(model, cluster["size"]), cluster_words(model, n)] for n, cluster in model.clusters.items()
        },
    } | ({"source": spoken_source(model, title(model))} if model.sourced else {})


def _beam_caption(model: TraceModel, row: int) -> str:
    lanes = model.iterations[row].lanes
    finished = sum(lane.finished for lane in lanes)
    open_lanes = f"kept {_count(len(lanes) - finished, 'hypothesis', '', 'hypotheses')} open"
    if row + 1 == model.rows and model.complete:
        return f"ended the search with {_count(finished, 'finished hypothesis', '', 'finished hypotheses')}."
    return f"{open_lanes}, {finished} finished." if finished else f"{open_lanes}."


def _search_caption(model: TraceModel, row: int, cells: list[Cell]) -> str:
    """Caption of a search whose hypotheses are not in the trace: the tokens that the shown one added."""
    if row + 1 == model.rows and model.complete:
        return f"settled all {_count(len(cells), 'token', 's')}: the search has ended."
    added = [cell for cell in cells if cell.draft < 0]
    return (
        f"put {' and '.join(_quoted([cell]) for cell in added)}; the search goes on." if added else "changed its mind."
    )


def _mask_caption(model: TraceModel, row: int, cells: list[Cell]) -> str:
    masked = sum(cell.kind == "masked" for cell in cells)
    if masked:
        return f"predicted {_count(len(cells), 'token', 's')}; the {masked} least sure will be masked again."
    return f"settled {'the' if len(cells) == 1 else 'all'} {_count(len(cells), 'token', 's')}."


_ORIGINS = {
    "source": "copied from the source",
    "prompt": "copied from the source",
    "ngram": "n-gram",
    "lexicon": "lexicon",
    "head": "draft head",
    "pool": "seen earlier in the sentence",
    "model": "another model's output",
}


SCORES = frozenset({"ngram", "lexicon", "head"})
"""Origins that score tokens, alone or summed, rather than copy them."""


def origin(name: str) -> str:
    """Source of drafts in words: ``ngram+lexicon`` as ``n-gram + lexicon``."""
    return " + ".join(_ORIGINS.get(part, visible(part)) for part in name.split("+"))


def origin_legend(name: str) -> str:
    """Legend of drafts from a source."""
    return f"drafted by {origin(name)}" if SCORES.issuperset(name.split("+")) else origin(name)


def lane_name(index: int) -> str:
    """``lane 1``: hypotheses of a beam by rank, open ones before finished ones."""
    return f"lane {index + 1}"


def share(model: TraceModel, active: int | None) -> str:
    """Tokens scored, and their share of the vocabulary: ``312 · 4.3%``."""
    if active is None:
        return ""
    share_of = f" · {_tenths(100 * active / model.vocabulary)}" if model.vocabulary else ""
    return f"{active:,}{share_of}"


def percent(model: TraceModel, active: int) -> str:
    """Share of the vocabulary scored, or the number of tokens if the vocabulary's size is unknown."""
    if model.vocabulary is None:
        return f"{active:,}"
    share_of = 100 * active / model.vocabulary
    return f"{share_of:.0f}%" if share_of >= 9.95 else _tenths(share_of)


def _tenths(percent: float) -> str:
    """Percent with a decimal, never 0.0% for more than nothing."""
    return "<0.1%" if 0 < percent < 0.05 else f"{percent:.1f}%"


def cluster_words(model: TraceModel, cluster: int, most: int = 60) -> str:
    """The words of a cluster's active set as one line, with the number of those not listed."""
    cluster_of = model.clusters.get(cluster)
    if cluster_of is None:
        return "The trace does not say which tokens its active set holds."
    tokens = cluster_of["tokens"][:most]
    unlisted = cluster_of["size"] - len(tokens)
    listed = "  ".join(model.label(token).text for token in tokens)
    return f"{listed}  and {unlisted:,} more" if unlisted > 0 else listed


def _quoted(cells: list[Cell]) -> str:
    labels = [cell.label for cell in cells if cell.label.text != END]
    text = join(labels)
    quoted = [f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + ELLIPSIS}”"] if labels else []
    if len(labels) < len(cells):
        quoted.append("the end")
    return " and ".join(quoted)


def beyond(model: TraceModel) -> str:
    """Number of computed positions that are not drawn, in words; empty if none."""
    undrawn = model.beyond
    if not undrawn:
        return ""
    if model.complete:
        verb = "was" if undrawn == 1 else "were"
        return f"In the whole run, {_count(undrawn, 'position', 's')} beyond the end {verb} computed too."
    return f"+{_count(undrawn, 'more position', 's')}."


def summary(model: TraceModel, rows: range) -> tuple[str, str]:
    """Text of a still picture of a whole run: the name of a pass, or an empty string, and the sentence."""
    row = highlight(model, rows)
    if len(model.new_columns(row)) == 1 and not model.late:
        all_rows = len(rows) == model.rows
        return "", f"{'No pass' if all_rows else 'None of these passes'} settled more than one token."
    return pass_name(model, row), caption(model, row)


def highlight(model: TraceModel, rows: range) -> int:
    """The pass that the text of a still picture describes: the first of those that settled most."""
    return max(rows, key=lambda row: (len(model.new_columns(row)), -row))


def _count(number: int, singular: str, ending: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + ending}"
