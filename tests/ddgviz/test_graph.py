"""The dependency graph: layers, edges and what networkx gets."""

from pathlib import Path
from typing import Any

import kept
import networkx
import pytest
import simulate

import ddgviz
from ddgviz.graph import Edge, edges, layers, meaning, pills, to_networkx
from ddgviz.text import visible
from ddgviz.trace import read


def test_layers_are_tokens_settled_together(small: dict[str, Any]) -> None:
    assert layers(read(small)) == [(0, [0]), (1, [1]), (2, [2, 3]), (3, [4, 5])]
    assert layers(read(small), upto=2) == [(0, [0]), (1, [1])]


def test_settling_order_hangs_each_layer_on_the_one_before(small: dict[str, Any]) -> None:
    expected = [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)]
    assert edges(read(small)) == [Edge(source, target, 1.0) for source, target in expected]


def test_measured_edges_go_first() -> None:
    model = read(simulate.measured())
    assert edges(model)[0] == Edge(0, 1, 0.9)
    assert meaning(model) == "changing the left token would change the right one"
    assert all(edge.target < 4 for edge in edges(model, upto=3))


def test_unmeasured_edges_claim_only_an_order(small: dict[str, Any]) -> None:
    assert meaning(read(small)) == "the right token had to wait for the left one"


def test_beam_search_has_no_layers_to_show() -> None:
    model = read(simulate.beam())
    assert edges(model) == []
    assert pills(model, [0, 1, 2]) == [[0], [1], [2]]


def test_a_beam_over_both_ends_has_no_tokens_settled_at_once() -> None:
    model = read(kept.trace("both_ends_beam"))
    assert pills(model, list(range(11))) == [[column] for column in range(11)]


def test_pills_are_runs_of_neighbours(small: dict[str, Any]) -> None:
    assert pills(read(small), [0, 1, 3, 4, 6]) == [[0, 1], [3, 4], [6]]


def waits(graph: networkx.DiGraph) -> bool:
    """Whether every edge goes from an earlier pass to a later one, and every later token waits for something."""
    passes = networkx.get_node_attributes(graph, "pass")
    forward = all(passes[source] < passes[target] for source, target in graph.edges)
    return forward and all(graph.in_degree(node) or number == 1 for node, number in passes.items())


@pytest.mark.parametrize("name", ["garden", "station", "long_block", "greedy"])
def test_edges_follow_the_passes(name: str) -> None:
    graph = to_networkx(getattr(simulate, name)())
    assert waits(graph)
    assert networkx.is_directed_acyclic_graph(graph)


def test_an_edge_against_time_is_noticed(small: dict[str, Any]) -> None:
    graph = to_networkx(small)
    graph.add_edge(5, 0)
    assert not waits(graph)


def test_networkx_nodes_carry_what_is_known(small: dict[str, Any]) -> None:
    graph = to_networkx(small)
    assert graph.nodes[3] == {"position": 3, "token": "ft", "pass": 3, "probability": 0.97}
    assert graph.edges[1, 3] == {"strength": 1.0}
    assert graph.graph == {"edges": "settling order"}
    assert to_networkx(simulate.measured()).graph == {"edges": "measured"}
    networkx.write_graphml(graph, "/dev/null")


# ------------------------------------------------------------------------------------------------------- graph files


@pytest.mark.parametrize("name", ["garden", "measured", "greedy", "beam", "hostile"])
@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
def test_what_is_written_is_read_back(name: str, suffix: str, tmp_path: Path) -> None:
    trace = getattr(simulate, name)()
    path, expected = ddgviz.save(trace, tmp_path / f"a{suffix}"), to_networkx(trace)
    found = (networkx.read_graphml if suffix == ".graphml" else networkx.read_gexf)(path, node_type=int)
    assert found.is_directed() and set(found.nodes) == set(expected.nodes) and set(found.edges) == set(expected.edges)
    for node, known in expected.nodes(data=True):
        assert found.nodes[node] == known | {"label": known["token"]}
    for source, target, strength in expected.edges(data="strength"):
        edge = found.edges[source, target]
        assert edge["strength"] == edge["weight"] == strength
    assert ddgviz.save(trace, tmp_path / f"b{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
def test_characters_that_xml_cannot_hold(suffix: str, tmp_path: Path) -> None:
    refused = "\x00\x08\x0b\x1f\x7f\x85\ud800\udfff\ufffe\uffff\u2028]]>&<"
    trace = simulate.jacobi([f"▁{character}" for character in refused], {}, width=2)
    path = ddgviz.save(trace, tmp_path / f"a{suffix}")
    found = (networkx.read_graphml if suffix == ".graphml" else networkx.read_gexf)(path, node_type=int)
    assert [found.nodes[slot]["token"] for slot in range(len(refused))] == [visible(c) for c in refused]


def test_a_probability_of_one_is_a_number_like_others(small: dict[str, Any], tmp_path: Path) -> None:
    for row in small["iterations"]:
        row["probabilities"] = [1 if index else 0.5 for index in range(len(row["tokens"]))]
    networkx.read_gexf(ddgviz.save(small, tmp_path / "a.gexf"))
    assert ddgviz.save(small, tmp_path / "a.graphml").read_text(encoding="utf-8").count('attr.name="probability"') == 1


def test_a_day_leaves_no_mark(small: dict[str, Any], tmp_path: Path) -> None:
    assert "lastmodified" not in ddgviz.save(small, tmp_path / "a.gexf").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
def test_a_graph_without_nodes_is_a_file(small: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    path = ddgviz.save(small | {"iterations": [], "hypotheses": []}, tmp_path / f"a{suffix}")
    assert len((networkx.read_graphml if suffix == ".graphml" else networkx.read_gexf)(path)) == 0


@pytest.mark.parametrize("name", ["both_ends", "both_ends_even"])
def test_what_closes_both_ends_hangs_on_nothing(name: str) -> None:
    """The end stands beside the last token, and waited for the middle."""
    grown = read(kept.trace(name))
    assert edges(grown) and all(edge.target < grown.columns - 1 for edge in edges(grown))
