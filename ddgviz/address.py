"""A trace in an address: the content of a page, packed into the fragment, which browsers do not send to servers."""

import base64
import json
import zlib
from typing import Any

from ddgviz import words
from ddgviz.schema import fail
from ddgviz.trace import TraceModel, read
from ddgviz.verdict import judge, pair_of

MIME = "application/vnd.ddgviz+json"
"""MIME type under which a notebook saves a picture for a page to play: ``packed``, the content of a page as text."""
LONGEST = 32_000
"""Characters of a packed trace in an address, at most."""


def link(trace: Any, page: str) -> str:
    """The address that shows a trace on a page of `ddgviz.save`, in place of the page's own trace.

    The trace is in the fragment, after ``#``, which browsers do not send. Probabilities are rounded to two digits, as they are
    drawn; margins and times are left out.

    Parameters
    ----------
    trace : anything that `read` takes, or a comparison
    page : str
        Address of the page.

    Raises
    ------
    ValueError
        If the trace is damaged, or too long for an address.
    """
    packed = pack_text(contents(trace))
    if len(packed) > LONGEST:
        wrong = f"An address holds a trace of at most {LONGEST:,} characters"
        raise fail(wrong, f"{len(packed):,}", "Save the page and share its file: ddgviz.save(trace, 'picture.html').")
    return f"{page.partition('#')[0]}#trace={packed}"


def contents(trace: Any) -> dict[str, Any]:
    """The content of a page: ``pictures``, each with ``trace``, ``words`` and ``match``, and a ``verdict`` on two of them."""
    pair = pair_of(trace)
    if pair is None:
        return {"pictures": [_picture(read(trace), [])], "verdict": ""}
    verdict = judge(*pair)
    return {
        "pictures": [_picture(*traced) for traced in zip(pair, verdict.matches, strict=True)],
        "verdict": verdict.text,
    }


def _picture(model: TraceModel, match: list[int]) -> dict[str, Any]:
    return {"trace": model.to_dict(), "words": words.spoken(model, range(model.rows)), "match": match}


def pack_text(data: dict[str, Any]) -> str:
    """The content of a page as characters that an address may hold: rounded, deflated, in base 64."""
    pictures = [picture | {"trace": _slim(picture["trace"])} for picture in data["pictures"]]
    text = json.dumps(data | {"pictures": pictures}, separators=(",", ":"), allow_nan=False, sort_keys=True)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(text.encode()) + packer.flush()
    return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def unpack_text(packed: str) -> dict[str, Any]:
    """The content of a page that `pack_text` has packed."""
    text = zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), -15)
    return json.loads(text)


def representation(trace: Any) -> dict[str, Any]:
    """The data that a notebook saves beside the picture of a trace or a comparison, by MIME type; empty if it is too long."""
    packed = pack_text(contents(trace))
    return {MIME: {"packed": packed}} if len(packed) <= LONGEST else {}


def _slim(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace without what is not drawn, and without the texts of tokens, which are among the words."""
    rows = [
        {key: value for key, value in row.items() if key not in ("margins", "seconds", "positions")}
        | {"margins": None, "probabilities": _rounded(row.get("probabilities"))}
        for row in trace["iterations"]
    ]
    return {key: value for key, value in trace.items() if key not in ("pieces", "clusters", "edges")} | {
        "iterations": rows
    }


def _rounded(values: list[float | None] | None) -> list[float | None] | None:
    return None if values is None else [None if value is None else float(f"{value:.4g}") for value in values]
