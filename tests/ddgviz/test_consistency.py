"""What cannot be true of a run is refused, with its place; what numpy and other libraries call numbers is read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import simulate

from ddgviz.trace import TraceModel, read

Change = Callable[[dict[str, Any]], Any]
IMPOSSIBLE: dict[str, tuple[str, Change, str]] = {
    "a token without a text": (
        "garden", lambda t: t["pieces"].pop("4"), r"no text for the token at slot 2 of pass 3, got 4"
    ),
    "a draft without a text": (
        "garden", lambda t: t["iterations"][1]["drafts"].__setitem__(1, 77), r"the draft at slot 2 of pass 2, got 77"
    ),
    "an output without a text": (
        "garden", lambda t: t["hypotheses"].append({"tokens": [2, 88], "stop": "end"}), r"position 1 of hypothesis 2, got 88"
    ),
    "two tokens of the output in another order": (
        "garden", lambda t: swap(t["hypotheses"][0]["tokens"], 1, 2), r"Position 1 of the output is token 4, got 'token 3 settled"
    ),
    "a pass taken out": ("greedy", lambda t: t["iterations"].pop(2), r"settled by a pass, position 2 too, got 'none'"),
    "an output cut short": ("garden", lambda t: t["hypotheses"][0]["tokens"].pop(), r"the output's 9, got 'token 1 at"),
    "positions out of order": ("garden", lambda t: swap(t["iterations"][2]["slots"], 0, 1), "of pass 3 must be ascending"),
    "passes out of order": ("garden", lambda t: swap(t["iterations"], 1, 2), r"must stay|Passes come in order|token"),
    "a probability of three": (
        "garden", lambda t: t["iterations"][3]["probabilities"].__setitem__(0, 3.0), r"at slot 3 of pass 4 too, got 3\.0"
    ),
    "a change that changes nothing": (
        "garden", lambda t: t["iterations"][2]["status"].__setitem__(1, "changed"), r"the token at slot 3 of pass 3 differs"
    ),
    "a lane without a parent": (
        "beam", lambda t: t["iterations"][2]["lanes"][0]["tokens"].__setitem__(0, 5), r"lane 1 of pass 3 does not, got \[5, 3, 4\]"
    ),
    "a lane that nobody ended": (
        "beam", lambda t: t["iterations"][2]["lanes"][1].update(tokens=[3, 1], finished=True), r"lane 2 of pass 3 does not"
    ),
    "an empty lane": ("beam", lambda t: t["iterations"][0]["lanes"][1].update(tokens=[]), r"lane 2 of pass 1 does not"),
    "a lane's token without a text": (
        "beam", lambda t: t["iterations"][1]["lanes"][1].update(tokens=[2, 99]), r"a token of lane 2 of pass 2, got 99"
    ),
    "a dependency beyond the end": (
        "measured", lambda t: t["edges"].append({"from": 3, "to": 12, "strength": 1}), r"the output, which has 10, got"
    ),
}  # fmt: skip


def swap(items: list[Any], one: int, two: int) -> None:
    items[one], items[two] = items[two], items[one]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_refused_by_its_place(name: str) -> None:
    kind, change, said = IMPOSSIBLE[name]
    trace = getattr(simulate, kind)()
    read(trace)
    change(trace)
    with pytest.raises(ValueError, match=said):
        read(trace)


def test_a_stream_is_held_to_the_same(garden: dict[str, Any]) -> None:
    start, first, second, *_ = simulate.events(garden)
    model = TraceModel()
    model.append(start)
    model.append(first)
    with pytest.raises(ValueError, match=r"no text for the token at slot 1 of pass 2, got 9999"):
        model.append(second | {"tokens": [9999, *second["tokens"][1:]]})
    model.append(second)
    assert model.rows == 2, "what was refused has left nothing behind"


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.array, np.float16])
def test_numbers_of_numpy_are_numbers(garden: dict[str, Any], kind: Callable[[Any], Any]) -> None:
    for row in garden["iterations"]:
        row["probabilities"] = kind(row["probabilities"]) if kind is np.array else list(map(kind, row["probabilities"]))
        row["slots"], row["status"] = list(map(np.int64, row["slots"])), list(map(np.str_, row["status"]))
        row["call"] = np.int32(row["call"])
    again = read(read(garden).to_json())
    assert again.cells(0)[0].probability == pytest.approx(0.99, abs=1e-3)


def test_an_unfinished_run_need_not_have_settled_all(garden: dict[str, Any]) -> None:
    garden["hypotheses"] = [{"tokens": [2, 3], "score": None, "stop": "interrupted"}]
    garden["iterations"] = garden["iterations"][:2]
    assert not read(garden).complete
