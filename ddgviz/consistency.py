"""Checks of well-formed runs for contradictions; each error names its pass and place."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ddgviz.schema import Iteration, Lane, fail


def check_row(
    iteration: Iteration, row: int, before: Sequence[Lane], known: Collection[int], source: object = None
) -> None:
    """Refuse a pass that no decoder can have made.

    Parameters
    ----------
    iteration : Iteration
    row : int
        Its place among the passes, from 0.
    before : sequence of Lane
        The beam's hypotheses after the previous pass.
    known : collection of int
        Ids whose text is in the trace.
    source : list of str
        Pieces of the source.

    Raises
    ------
    ValueError
        If a token has no text, a probability is none, a status contradicts its tokens, a draft comes from a place that the
        source lacks, or a hypothesis has no parent.
    """
    pass_name = f"pass {row + 1}"
    length = len(source) if isinstance(source, list) else 0
    if outside := [place for place in iteration.sources if place is not None and place >= length]:
        raise fail(f'"sources" of {pass_name} name places in the source, which has {length} pieces', outside[0])
    for place, slot in enumerate(iteration.slots):
        at = f"slot {slot} of {pass_name}"
        draft, token, status = iteration.drafts[place], iteration.tokens[place], iteration.status[place]
        for name, value in (("draft", draft), ("token", token)):
            if value >= 0 and value not in known:
                raise fail(f'"pieces" has no text for the {name} at {at}', value)
        probability = iteration.probabilities[place]
        if probability is not None and not 0 <= probability <= 1.0001:
            raise fail(f'"probabilities" are from 0 to 1, at {at} too', probability)
        if status == "changed" and token == draft:
            raise fail(
                f'Status "changed" says that the token at {at} differs from its draft', f"token {token} for both"
            )
        if status == "settled" and token < 0:
            raise fail(f"A settled slot has a token, {at} too", token)
    _check_lanes(iteration.lanes, row, before, known)


def _check_lanes(lanes: Sequence[Lane], row: int, before: Sequence[Lane], known: Collection[int]) -> None:
    """Refuse a hypothesis that neither extends an open one by a token nor is an earlier finished one."""
    grown = {lane.tokens for lane in before if not lane.finished} or {()}
    finished = {lane.tokens for lane in before if lane.finished}
    for number, lane in enumerate(lanes, 1):
        name = f"lane {number} of pass {row + 1}"
        if missing := [token for token in lane.tokens if token not in known]:
            raise fail(f'"pieces" has no text for a token of {name}', missing[0])
        parentless = row > 0 and lane.tokens[:-1] not in grown and lane.tokens not in finished
        if parentless or not lane.tokens:
            raise fail(f"A hypothesis goes on from an open one of the pass before; {name} does not", list(lane.tokens))


def check_output(
    hypotheses: Sequence[Mapping[str, Any]], settled: Iterable[tuple[int, int]], known: Collection[int]
) -> None:
    """Refuse an output that contradicts the tokens settled by the passes.

    Parameters
    ----------
    hypotheses : sequence of dict
        Best first.
    settled : iterable of (int, int)
        Slots with the tokens settled there.
    known : collection of int
        Ids whose text is in the trace.
    """
    for number, hypothesis in enumerate(hypotheses, 1):
        for position, token in enumerate(hypothesis["tokens"]):
            if token not in known:
                raise fail(f'"pieces" has no text for the token at position {position} of hypothesis {number}', token)
    if not hypotheses or hypotheses[0].get("stop") == "interrupted":
        return
    tokens = hypotheses[0]["tokens"]
    placed = {slot if slot >= 0 else slot + len(tokens): token for slot, token in settled}
    for position, token in sorted(placed.items()):
        if not 0 <= position < len(tokens):
            raise fail(f"A settled token is one of the output's {len(tokens)}", f"token {token} at position {position}")
        if tokens[position] != token:
            wrong = f"Position {position} of the output is token {tokens[position]}"
            raise fail(wrong, f"token {token} settled there")
    if placed and (missing := [position for position in range(len(tokens)) if position not in placed]):
        raise fail(f"Every token of a finished output was settled by a pass, position {missing[0]} too", "none")


def check_ends(edges: Sequence[Mapping[str, Any]], length: int) -> None:
    """Refuse edges of positions that the output does not have."""
    for edge in edges:
        if edge["to"] >= length:
            raise fail(f"An edge joins tokens of the output, which has {length}", dict(edge))
