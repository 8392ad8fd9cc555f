"""The laws of `topologies.laws` hold of every constructor, unasked; and who sends to whom, in closed form."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from commeff import topologies
from commeff.topologies import MixingMatrix, Topology
from commeff.topologies.laws import LAWS, MATRIX_LAWS, TopologyCase, cases

OURS = sorted(set(topologies.__all__) - {"MixingMatrix", "Topology"})
DIRECTED = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 1), (1, 3), (3, 0)])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", OURS)
def test_law(name: str, law: Callable[[TopologyCase], None]) -> None:
    for case in cases(getattr(topologies, name)):
        law(case)


@pytest.mark.parametrize("law", MATRIX_LAWS, ids=lambda law: law.__name__)
def test_law_on_weights_whose_columns_alone_sum_to_one(law: Callable[[TopologyCase], None]) -> None:
    law(TopologyCase("from_graph(directed)", lambda: topologies.from_graph(DIRECTED), 4))


def test_every_constructor_is_tried_at_several_sizes() -> None:
    sizes = {name: {case.build().n for case in cases(getattr(topologies, name))} for name in OURS}
    assert {name for name, found in sizes.items() if len(found) < 3} == {"from_graph", "from_matrices"}


@pytest.mark.parametrize("name", sorted(set(OURS) - {"from_graph", "failing_links"}))
def test_named_topologies_are_doubly_stochastic_and_nonnegative(name: str) -> None:
    for case in cases(getattr(topologies, name)):
        topology = case.build()
        for step in range(min(topology.period or 6, 64)):
            assert topology.at(step).doubly_stochastic
            assert (topology.at(step).dense() >= 0).all()


@pytest.mark.parametrize("name", OURS)
def test_matrices_are_kept_and_a_period_is_no_longer_than_it_must_be(name: str) -> None:
    for case in cases(getattr(topologies, name)):
        topology = case.build()
        assert topology.at(4) is topology.at(4)
        if topology.n > 4 and topology.period != 1:  # two workers, or groups, can only pair in one way
            first = topology.at(0).dense()
            assert any((topology.at(step).dense() != first).any() for step in range(1, topology.period or 20))


# Who sends to whom ------------------------------------------------------------------------------------------------

SENDERS: dict[str, tuple[Topology, Callable[[int, int], set[int]]]] = {
    "complete": (topologies.complete(6), lambda i, k: set(range(6))),
    "ring": (topologies.ring(7), lambda i, k: {i, (i + 1) % 7, (i - 1) % 7}),
    "star": (topologies.star(5), lambda i, k: set(range(5)) if i == 0 else {0, i}),
    "hypercube": (topologies.hypercube(16), lambda i, k: {i, i ^ 1, i ^ 2, i ^ 4, i ^ 8}),
    "torus": (
        topologies.torus(3, 5),
        lambda i, k: {i, (i + 5) % 15, (i - 5) % 15, i // 5 * 5 + (i + 1) % 5, i // 5 * 5 + (i - 1) % 5},
    ),
    "grid": (
        topologies.grid(3, 4),
        lambda i, k: {j for j in range(12) if abs(i // 4 - j // 4) + abs(i % 4 - j % 4) <= 1},
    ),
    "exponential": (topologies.exponential(11), lambda i, k: {(i + s) % 11 for s in (0, 1, 2, 4, 8)}),
    "one_peer": (topologies.one_peer_exponential(11), lambda i, k: {i, (i + 2 ** (k % 4)) % 11}),
    "symmetric_exponential": (
        topologies.symmetric_exponential(11),
        lambda i, k: {(i + s) % 11 for s in (0, 1, 2, 4, 8, -1, -2, -4, -8)},
    ),
    "inner_outer": (  # two steps in a pair, then one among the five of equal place
        topologies.inner_outer(5, topologies.complete(2), topologies.ring(5), inner_steps=2),
        lambda i, k: {i // 2 * 2, i // 2 * 2 + 1} if k % 3 < 2 else {i, (i + 2) % 10, (i - 2) % 10},
    ),
    "hierarchical": (
        topologies.hierarchical(5, topologies.complete(2), topologies.exponential(5)),
        lambda i, k: {2 * ((i // 2 + s) % 5) + m for s in (0, 1, 2, 4) for m in (0, 1)},
    ),
}


@pytest.mark.parametrize("name", SENDERS)
def test_each_worker_hears_exactly_its_neighbours(name: str) -> None:
    topology, senders = SENDERS[name]
    for step in range(6):
        for worker in range(topology.n):
            assert set(topology.at(step).received(worker)) == senders(worker, step)


def spread(matrix: MixingMatrix, start: int) -> set[int]:
    """Who holds something after one round if only `start` held anything before."""
    return {int(i) for i in np.flatnonzero(matrix.dense() @ np.eye(matrix.n)[start])}


def test_directed_messages_go_backwards_along_the_offsets() -> None:
    """i receives from i + 2^t, hence j reaches j - 2^t: the transpose has the same rho, yet other iterates."""
    static, one_peer = topologies.exponential(11).at(0), topologies.one_peer_exponential(11).at(2)
    assert spread(static, 6) == {6, 5, 4, 2, (6 - 8) % 11}
    assert spread(one_peer, 6) == {6, 6 - 4}
    reverse = MixingMatrix(static.dense().T)
    assert reverse.rho == pytest.approx(static.rho, abs=1e-14)
    assert spread(reverse, 6) != spread(static, 6)


def test_an_edge_of_a_directed_graph_is_a_message() -> None:
    matrix = topologies.from_graph(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 3), (3, 0)])).at(0)
    assert spread(matrix, 0) == {0, 1, 3}
    assert matrix.sent(0) == pytest.approx({0: 1 / 3, 1: 1 / 3, 3: 1 / 3})
    assert matrix.column_stochastic
    assert not matrix.row_stochastic


def test_push_sum_on_a_directed_graph_finds_the_mean() -> None:
    dense = topologies.from_graph(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 3), (3, 0)])).at(0).dense()
    values, weights = np.array([4.0, -1.0, 7.0, 2.0]), np.ones(4)
    for _ in range(200):
        values, weights = dense @ values, dense @ weights
    np.testing.assert_allclose(values / weights, 3.0, atol=1e-12)
    assert weights.sum() == pytest.approx(4)
