"""from_graph: the four weights, and that the fastest are."""

from __future__ import annotations

from math import cos, pi

import networkx as nx
import numpy as np
import pytest

from commeff.topologies import MixingMatrix, from_graph

IRREGULAR = [
    nx.lollipop_graph(5, 4),
    nx.karate_club_graph(),
    nx.barbell_graph(4, 1),
    nx.balanced_tree(2, 3),
    nx.gnp_random_graph(16, 0.4, seed=1),
]
EDGE_TRANSITIVE = [
    nx.cycle_graph(5),
    nx.cycle_graph(8),
    nx.star_graph(6),
    nx.hypercube_graph(3),
    nx.complete_graph(7),
    nx.complete_bipartite_graph(3, 5),
    nx.petersen_graph(),
]


def support(graph: nx.Graph) -> np.ndarray:
    return nx.to_numpy_array(graph, nodelist=sorted(graph), weight=None) != 0


@pytest.mark.parametrize("graph", IRREGULAR + EDGE_TRANSITIVE, ids=str)
@pytest.mark.parametrize("weights", ["metropolis", "max_degree", "uniform", "fastest"])
def test_messages_travel_along_edges_only(graph: nx.Graph, weights: str) -> None:
    dense = from_graph(graph, weights).at(0).dense()
    off = ~np.eye(len(dense), dtype=bool)
    assert not dense[off & ~support(graph)].any()
    if weights != "fastest":
        assert (dense[off & support(graph)] > 0).all()


@pytest.mark.parametrize("graph", IRREGULAR, ids=str)
def test_formulas(graph: nx.Graph) -> None:
    adjacency = support(graph).astype(float)
    degrees = adjacency.sum(axis=1)
    laplacian = np.diag(degrees) - adjacency
    wanted = np.eye(len(degrees)) - laplacian / (1 + degrees.max())
    np.testing.assert_allclose(from_graph(graph, "max_degree").at(0).dense(), wanted, atol=1e-15)
    wanted = (adjacency + np.eye(len(degrees))) / (1 + degrees[:, None])
    np.testing.assert_allclose(from_graph(graph, "uniform").at(0).dense(), wanted, atol=1e-15)
    wanted = adjacency / (1 + np.maximum(degrees[:, None], degrees))
    wanted += np.diag(1 - wanted.sum(axis=1))
    np.testing.assert_allclose(from_graph(graph).at(0).dense(), wanted, atol=1e-15)
    np.testing.assert_allclose(from_graph(graph, "metropolis").at(0).dense(), wanted, atol=1e-15)


@pytest.mark.parametrize("graph", [nx.cycle_graph(7), nx.hypercube_graph(3), nx.petersen_graph()], ids=str)
def test_on_regular_graphs_three_rules_agree(graph: nx.Graph) -> None:
    metropolis, uniform, max_degree = (
        from_graph(graph, rule).at(0).dense() for rule in ("metropolis", "uniform", "max_degree")
    )
    np.testing.assert_allclose(metropolis, uniform, atol=1e-15)
    np.testing.assert_allclose(metropolis, max_degree, atol=1e-15)


@pytest.mark.parametrize("graph", EDGE_TRANSITIVE, ids=str)
def test_fastest_where_all_edges_are_alike(graph: nx.Graph) -> None:
    """One weight for all, 2 / (l_2 + l_n) by the Laplacian's extreme eigenvalues: rho = (l_n - l_2) / (l_n + l_2)."""
    eigenvalues = np.linalg.eigvalsh(nx.laplacian_matrix(graph, weight=None).toarray().astype(float))
    low, high = eigenvalues[1], eigenvalues[-1]
    assert from_graph(graph, "fastest").at(0).rho == pytest.approx((high - low) / (high + low), abs=1e-8)


@pytest.mark.parametrize("n", [2, 3, 4, 9, 20])
def test_fastest_on_a_path(n: int) -> None:
    """Boyd, Diaconis, Sun and Xiao: weights 1/2 on every edge, rho = cos(pi / n)."""
    assert from_graph(nx.path_graph(n), "fastest").at(0).rho == pytest.approx(cos(pi / n), abs=1e-8)


@pytest.mark.parametrize("graph", IRREGULAR, ids=str)
def test_no_other_weights_are_faster(graph: nx.Graph) -> None:
    """rho is convex in the weights: a point that no small step improves is the best there is."""
    best = from_graph(graph, "fastest").at(0)
    assert best.symmetric
    assert best.rho < from_graph(graph, "metropolis").at(0).rho
    assert best.rho < from_graph(graph, "max_degree").at(0).rho
    random = np.random.default_rng(0)
    upper = np.triu(support(graph))
    for size in (1e-1, 1e-3, 1e-5):
        for _ in range(50):
            change = np.where(upper, random.standard_normal(upper.shape), 0) * size
            change += change.T
            change -= np.diag(change.sum(axis=1))
            assert MixingMatrix(best.dense() + change).rho >= best.rho - 1e-9


def test_directed_columns_share_equally() -> None:
    graph = nx.DiGraph([(0, 1), (0, 2), (1, 2), (2, 0), (1, 0), (2, 3), (3, 1)])
    dense = from_graph(graph).at(0).dense()
    sends = support(graph).T + np.eye(4)
    np.testing.assert_allclose(dense, sends / sends.sum(axis=0), atol=1e-15)
    np.testing.assert_array_equal(dense, from_graph(graph, "uniform").at(0).dense())


def test_worker_numbers_are_node_numbers_if_there_are_any() -> None:
    scrambled = nx.Graph([(2, 0), (3, 2), (1, 3)])
    assert set(from_graph(scrambled).at(0).received(2)) == {0, 2, 3}
    named = nx.Graph([("hub", "a"), ("hub", "b")])
    assert set(from_graph(named).at(0).received(0)) == {0, 1, 2}
    assert set(from_graph(named).at(0).received(2)) == {0, 2}


def test_loops_weights_and_parallel_edges_do_not_count() -> None:
    plain = from_graph(nx.path_graph(3)).at(0).dense()
    looped = nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 2)])
    looped.add_edge(1, 2, weight=5.0)
    np.testing.assert_array_equal(from_graph(looped).at(0).dense(), plain)


def test_fastest_weights_stop_at_the_rounding_error() -> None:
    """On the bull graph Newton's steps become noise before the last accuracy is reached."""
    assert from_graph(nx.bull_graph(), "fastest").at(0).rho == pytest.approx(0.5**0.5, abs=1e-8)


@pytest.mark.parametrize("number", range(3, 7))
def test_fastest_weights_are_no_slower_than_metropolis_on_any_small_graph(number: int) -> None:
    for graph in nx.graph_atlas_g():
        if len(graph) == number and nx.is_connected(graph):
            fastest, metropolis = (from_graph(graph, rule).at(0).rho for rule in ("fastest", "metropolis"))
            assert fastest <= metropolis + 1e-8, graph.name
