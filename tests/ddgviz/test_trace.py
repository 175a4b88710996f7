"""Reading traces: what is taken, what is refused, and how the grid carries settled tokens down."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kept
import pytest
import simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from ddgviz import graph
from ddgviz.trace import TraceModel, read


class Holder:
    """An object that can tell its trace."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.trace = trace

    def to_dict(self) -> dict[str, Any]:
        return self.trace


def test_every_way_of_passing_a_trace_reads_the_same(small: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(small), encoding="utf-8")
    ways = [small, json.dumps(small), path, str(path), Holder(small), read(small)]
    assert len({read(way).to_json() for way in ways}) == 1


def test_reading_leaves_its_argument_alone(small: dict[str, Any]) -> None:
    before = copy.deepcopy(small)
    read(small)
    assert small == before


def test_a_trace_survives_being_read(any_trace: dict[str, Any]) -> None:
    assert read(any_trace).to_dict() == any_trace


def test_events_and_the_whole_trace_give_the_same_grid(any_trace: dict[str, Any]) -> None:
    model = TraceModel()
    for event in simulate.events(any_trace):
        model.append(event)
    whole = read(any_trace)
    assert model.to_dict() == whole.to_dict()
    assert [model.cells(row) for row in range(model.rows)] == [whole.cells(row) for row in range(whole.rows)]


def test_small_grid(small: dict[str, Any]) -> None:
    model = read(small)
    grid = [[(cell.kind, cell.label.text) for cell in model.cells(row)] for row in range(model.rows)]
    done = [("settled", "Die"), ("settled", "Katze"), ("settled", "schlä"), ("settled", "ft")]
    empty = ("empty", "")
    assert grid == [
        [("new", "Die"), ("draft", "Die"), ("draft", "Katze"), empty, empty, empty],
        [done[0], ("new", "Katze"), ("draft", "schlä"), ("draft", "."), empty, empty],
        [*done[:2], ("new", "schlä"), ("new", "ft"), ("draft", "."), empty],
        [*done, ("new", "."), ("new", "‹end›")],
    ]
    assert model.beyond == 1
    assert [cell.moved for cell in model.cells(1)] == [False, False, True, False, False, False]
    assert model.cells(3)[3].probability == 0.97
    assert model.cells(2)[3].label.continues


def carries_down(model: TraceModel, carry: Callable[[int, int], Any]) -> bool:
    """Whether every settled token stays, with its probability, to the last pass."""
    for column, (row, _) in model.settled.items():
        if column < model.columns:
            first = model.cells(row)[column]
            for later in range(row + 1, model.rows):
                cell = carry(later, column)
                if (cell.kind, cell.token, cell.probability) != ("settled", first.token, first.probability):
                    return False
    return True


words = st.lists(st.sampled_from(["▁a", "▁b", "c", "▁d"]), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(words, st.integers(1, 8), st.booleans(), st.data())
def test_settled_tokens_stay(said: list[str], width: int, block: bool, data: st.DataObject) -> None:
    needs = {slot: data.draw(st.lists(st.integers(0, max(0, slot - 1)), max_size=2)) for slot in range(1, len(said))}
    model = read(simulate.jacobi(said, needs, width=width, block=block))
    assert carries_down(model, lambda row, column: model.cells(row)[column])
    assert [cell.token for cell in model.cells(model.rows - 1)] == list(model.tokens)


def test_forgetting_settled_tokens_is_noticed(garden: dict[str, Any]) -> None:
    model = read(garden)
    forgetful = copy.copy(model)
    forgetful.settled = {}
    assert not carries_down(model, lambda row, column: forgetful.cells(row)[column])


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
def test_unknown_probabilities_are_drawn_as_nothing(small: dict[str, Any], nothing: float | None) -> None:
    small["iterations"][0]["probabilities"] = [nothing] * 3
    assert [cell.probability for cell in read(small).cells(0)][:3] == [None] * 3


def test_columns_of_a_run_in_progress_are_those_within_reach() -> None:
    events = simulate.events(simulate.long_block())
    model = TraceModel()
    for event in events[:3]:
        model.append(event)
    assert (model.columns, model.beyond) == (40, 25)
    for event in events[3:]:
        model.append(event)
    assert (model.columns, model.beyond) == (23, 63)


def test_an_interrupted_run_shows_its_drafts(garden: dict[str, Any]) -> None:
    garden["iterations"] = garden["iterations"][:2]
    garden["hypotheses"] = [{"tokens": [2, 3], "score": None, "stop": "interrupted"}]
    model = read(garden)
    assert not model.complete
    assert model.columns == 6


def test_beam_settles_in_its_last_pass() -> None:
    model = read(simulate.beam())
    kinds = [{cell.kind for cell in model.cells(row)} for row in range(model.rows)]
    assert kinds[-1] == {"new"}
    assert all(kind <= {"draft", "empty"} for kind in kinds[:-1])


def change(path: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """A trace with one thing changed, or left out."""

    def apply(trace: dict[str, Any]) -> dict[str, Any]:
        *way, last = path.split(".")
        place: Any = trace
        for step in way:
            place = place[int(step)] if step.isdigit() else place[step]
        if last.isdigit():
            place[int(last)] = value
        elif value is KeyError:
            del place[last]
        else:
            place[last] = value
        return trace

    return apply


BAD: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda trace: [trace], r"Not a decoding trace: expected a dict.*, got 'list'\. Record"),
    (lambda trace: json.dumps(trace)[:-40], r"The trace is not whole JSON, got .*characters.*\. It may be cut short"),
    (lambda trace: "/nowhere/trace.json", r"A trace is read from .*file, got '/nowhere/trace\.json'\. Check the path"),
    (change("format", "other"), r"Not a decoding trace: .*, got 'other'\. Pass the JSON"),
    (change("version", 2), r"ddgviz reads version 1 of the trace, got 'version 2'\. Update ddgviz"),
    (change("version", None), r"ddgviz reads version 1 of the trace, got 'version None'\. Record"),
    (change("source", KeyError), r'The trace needs an object "source", got None\. Record'),
    (change("end", "2"), r"The trace needs a list of integers as \"end\", got '2'\. Record"),
    (change("pieces", KeyError), r"The trace needs \"pieces\", got 'none'\. Record"),
    (change("pieces", {"x": "y"}), r'"pieces" gives a text for each token id, got .*\. Record'),
    (change("iterations", KeyError), r'The trace needs a list "iterations", got None\. Record'),
    (change("iterations.1", 7), r"A pass is an object, got 7\. Record"),
    (change("iterations.1.slots", KeyError), r'list of integers as "slots" of pass 2, got None\. Record'),
    (change("iterations.1.slots", [3, 2, 1]), r'"slots" of pass 2 must be ascending .*, got \[3, 2, 1\]\. Record'),
    (change("iterations.1.slots", [1, 2, 10**9]), r'"slots" of pass 2 must be .*, got .*\. Record'),
    (change("iterations.1.tokens", [6]), r"\"tokens\" of pass 2 needs one entry for each .* got '1 entries'\. Record"),
    (change("iterations.1.probabilities", [0.5]), r"\"probabilities\" of pass 2 .* got '1 entries'\. Record"),
    (
        change("iterations.1.status", ["settled", "sure", "draft"]),
        r"\"status\" of pass 2 knows .*, got 'sure'\. Record",
    ),
    (change("iterations.1.call", 0), r"Passes come in order, after 0, got '\"call\": 0'\. Record"),
    (
        change("iterations.3.slots", [3, 5, 6]),
        r"Slot 3 was settled as token 8 and must stay, got '9 in pass 4'\. Record",
    ),
    (change("hypotheses", None), r'The trace needs a list "hypotheses", got None\. Record'),
    (change("greedy", {"calls": 3}), r'"greedy" is null, or has .*, got .*\. Record'),
    (change("edges", [{"from": 0}]), r"An edge has .*, got .*\. Record"),
]


def test_one_of_several_is_to_be_chosen(small: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"One trace is drawn, got 'a list of 2'\. Pass one of them"):
        read([Holder(small), Holder(small)])


@pytest.mark.parametrize(("damage", "message"), BAD)
def test_damage_is_named_shown_and_answered(
    small: dict[str, Any], damage: Callable[[dict[str, Any]], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(damage(small))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"event": "iteration"}, r"A run is a start.*, got '\"iteration\" before the start'\. Send"),
        ({"event": "other"}, r"An event is .*, got 'other'\. Events are described"),
        ([], r"An event is .*, got None\. Events"),
    ],
)
def test_events_out_of_order(event: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TraceModel().append(event)


def test_a_start_clears(small: dict[str, Any], garden: dict[str, Any]) -> None:
    model = read(garden)
    for event in simulate.events(small):
        model.append(event)
    assert model.to_dict() == small


def test_what_has_a_trace_is_read_too() -> None:
    class Result:
        trace = simulate.garden()

    assert read(Result()).to_dict() == simulate.garden()


def form(trace: dict[str, Any]) -> tuple[Any, ...]:
    """What was run and what was recorded of it, whatever the model said."""
    chosen = [trace["settings"][key] for key in ("decoder", "projection")]
    rows = [{key: value is None for key, value in row.items()} for row in trace["iterations"]]
    assert all(row == rows[0] for row in rows)
    return trace["source"]["text"], chosen, trace.keys(), trace["settings"].keys(), rows[0]


def test_kept_traces_are_what_is_recorded_today() -> None:
    runs = kept.runs()
    assert sorted(runs) == kept.NAMES
    for name, run in runs.items():
        assert form(kept.trace(name)) == form(read(run).to_dict()), f"{name}: python tests/ddgviz/kept.py"


@pytest.mark.parametrize("slot", [-10, -12, -6])
def test_slots_from_the_end_name_tokens_of_the_output_once(slot: int) -> None:
    trace = kept.trace("both_ends")
    trace["iterations"][3]["slots"][1] = slot
    with pytest.raises(ValueError, match=r"names a token that no other slot names, got 'slot -\d+ of 9 tokens"):
        read(trace)


def test_an_edge_leads_to_the_right() -> None:
    trace = simulate.measured()
    trace["edges"].append({"from": 6, "to": 4, "strength": 0.5})
    with pytest.raises(ValueError, match="An edge leads from a position to a later one, got"):
        read(trace)


def test_a_refused_end_changes_nothing(garden: dict[str, Any]) -> None:
    model = TraceModel()
    *events, end = simulate.events(garden)
    for event in events:
        model.append(event)
    with pytest.raises(ValueError, match="An edge has"):
        model.append(end | {"edges": [{"from": 1}]})
    assert not model.complete and not model.finished
    model.append(end)
    assert model.to_dict() == garden


def test_weak_edges_give_way_to_strong_ways() -> None:
    trace = simulate.garden()
    found = [(0, 1, 0.9), (1, 2, 0.8), (0, 2, 0.5), (0, 3, 0.9), (2, 3, 0.3)]
    trace["edges"] = [{"from": a, "to": b, "strength": s} for a, b, s in found]
    kept = {(edge.source, edge.target) for edge in graph.edges(read(trace))}
    assert kept == {(0, 1), (1, 2), (0, 3), (2, 3)}
    assert len(graph.edges(read(trace), redundant=True)) == 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("both_ends", [(0, 1), (7, 6), (1, 2), (6, 5), (2, 3), (5, 4)]),
        ("both_ends_even", [(0, 1), (8, 7), (1, 2), (7, 6), (2, 3), (6, 5), (5, 4)]),
    ],
)
def test_the_arcs_of_both_ends_lead_inward(name: str, expected: list[tuple[int, int]]) -> None:
    found = [(edge.source, edge.target) for edge in graph.edges(read(kept.trace(name)))]
    assert found == expected


def test_both_ends_move_apart_until_the_length_is_known() -> None:
    model = TraceModel()
    start, *rows, end = simulate.events(kept.trace("both_ends"))
    for event in (start, *rows[:2]):
        model.append(event)
    assert model.columns == 6
    assert [cell.kind for cell in model.cells(1)] == ["settled", "new", "empty", "new", "settled", "empty"]
    for event in (*rows[2:], end):
        model.append(event)
    assert [cell.label.text for cell in model.cells(4)] == [
        "Wie", "glücklich", "bin", "ich", ",", "dich", "wiederzusehen", "!", "‹end›",
    ]  # fmt: skip
    assert model.blocks() == [], "what closes both ends stands alone"


def test_a_beam_over_both_ends_grows_inward_and_settles_at_its_end() -> None:
    model = read(kept.trace("both_ends_beam"))
    assert model.right and not model.beam, "the trace has no lanes"
    *growing, last = [model.cells(row) for row in range(model.rows)]
    for row, cells in enumerate(growing):
        drafts = [cell.column for cell in cells if cell.kind == "draft"]
        assert drafts == [*range(row + 1), *range(9 - row, 10)]
        assert {cell.kind for cell in cells} == {"draft", "empty"}
        assert [cells[column].label for column in drafts] == [last[column].label for column in drafts]
    assert {cell.kind for cell in last} == {"new"}
    assert [cell.label.text for cell in last] == [
        "Die", "Kinder", "spielen", "im", "Garten", "hinter", "dem", "alten", "Haus", ".", "‹end›",
    ]  # fmt: skip
    assert model.blocks() == []


def test_blocks_and_windows_are_outlined() -> None:
    spans = [(b.row, b.end_row, b.column, b.end_column) for b in read(simulate.station()).blocks()]
    assert spans[0] == (0, 4, 0, 6)
    assert [a[1] for a in spans[:-1]] == [b[0] for b in spans[1:]]
    assert all(b.end_row == b.row + 1 for b in read(simulate.garden()).blocks())
    for trace in (simulate.beam(), kept.trace("masks"), simulate.greedy()):
        assert read(trace).blocks() == []


def test_hypotheses_grow_from_their_parents() -> None:
    columns = read(simulate.beam()).lattice()
    assert [len(nodes) for nodes in columns] == [3, 3, 3, 3, 3, 2]
    lane, path = next(index for index, node in enumerate(columns[-1]) if node.best), []
    for nodes in reversed(columns):
        path.append(nodes[lane].label.text)
        lane = nodes[lane].parent
    assert path[::-1] == ["Das", "Haus", "ist", "sehr", "alt", "‹end›"]
    assert lane == -1


def test_picks_of_settled_tokens_come_last() -> None:
    model = read(kept.trace("clustered"))
    picks = model.picks()
    assert [pick.settled for pick in picks] == sorted(pick.settled for pick in picks)
    assert [pick.column for pick in picks if pick.settled] == list(range(12)), "one for each token"
    assert all(pick.active == model.clusters[pick.cluster]["size"] for pick in picks)
    assert [(pick.column, pick.settled) for pick in picks if pick.cluster == 44] == [(10, False), (11, True)]
    assert model.picks(0) == read(simulate.garden()).picks() == []


def test_drafts_of_tables_are_marked_right_or_wrong() -> None:
    model = read(simulate.drafted())
    cells = [cell for row in range(model.rows) for cell in model.cells(row)]
    assert {cell.guess for cell in cells} == {"", "right", "wrong"}
    assert all((cell.guess == "right") == (cell.draft == cell.token) for cell in cells if cell.guess)
    assert not any(cell.guess for row in range(6) for cell in read(simulate.garden()).cells(row))
