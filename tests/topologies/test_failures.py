"""The weights of what is absent go to the diagonal, and the sums that matter stay."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from commeff import topologies
from commeff.topologies import MixingMatrix, Topology
from commeff.topologies.failures import without_links, without_workers

DIRECTED = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 1), (1, 3), (3, 0), (4, 5), (5, 0), (0, 4), (3, 4)])
GRAPHS: dict[str, Topology] = {
    "ring": topologies.ring(6),
    "grid": topologies.grid(2, 3),
    "exponential": topologies.exponential(6),
    "directed": topologies.from_graph(DIRECTED),
}
DRAW = np.random.default_rng(0)


def by_hand(dense: np.ndarray, lost: np.ndarray, columns: bool) -> np.ndarray:
    out = dense.copy()
    for i, j in zip(*np.nonzero(lost & (dense != 0)), strict=True):
        if i != j:
            end = j if columns else i
            out[end, end] += out[i, j]
            out[i, j] = 0
    return out


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("keep", ["rows", "columns"])
def test_the_weight_of_a_lost_message_goes_to_its_receiver_or_its_sender(name: str, keep: str) -> None:
    matrix = GRAPHS[name].at(0)
    if not (matrix.row_stochastic if keep == "rows" else matrix.column_stochastic):
        pytest.skip("these sums are not 1")
    for _ in range(20):
        lost = DRAW.random((6, 6)) < 0.4
        links = matrix.off_diagonal.tocoo()
        found = without_links(matrix, lost[links.row, links.col], keep)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.dense(), by_hand(matrix.dense(), lost, keep == "columns"), rtol=0, atol=1e-15)
        assert found.row_stochastic if keep == "rows" else found.column_stochastic


@pytest.mark.parametrize("name", GRAPHS)
def test_who_is_absent_neither_sends_nor_receives(name: str) -> None:
    matrix = GRAPHS[name].at(0)
    for _ in range(20):
        present = DRAW.random(6) < 0.6
        found = without_workers(matrix, present)
        dense = found.dense()
        np.testing.assert_array_equal(dense[~present], np.eye(6)[~present])
        np.testing.assert_array_equal(dense[:, ~present], np.eye(6)[:, ~present])
        assert found.row_stochastic or found.column_stochastic
        if matrix.symmetric:
            assert found.symmetric
            assert found.doubly_stochastic


def test_push_sum_weights_keep_their_columns() -> None:
    matrix = GRAPHS["directed"].at(0)
    assert without_workers(matrix, np.arange(6) != 2).column_stochastic
    assert without_workers(GRAPHS["exponential"].at(0), np.arange(6) != 2, keep="columns").column_stochastic


def test_nothing_lost_is_the_same_matrix() -> None:
    matrix = GRAPHS["ring"].at(0)
    assert without_workers(matrix, np.ones(6, dtype=bool)) is matrix
    assert without_workers(matrix, np.zeros(6, dtype=bool)).dense().tolist() == np.eye(6).tolist()
    assert without_links(MixingMatrix(np.eye(2)), []).dense().tolist() == np.eye(2).tolist()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda matrix: without_links(matrix, [True]), "lost must say of each of the 12 messages"),
        (lambda matrix: without_workers(matrix, [True]), "present must say of each of the 6 workers"),
    ],
)
def test_what_does_not_fit_is_refused(call: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        call(GRAPHS["ring"].at(0))  # type: ignore[operator]


@pytest.mark.parametrize("name", GRAPHS)
def test_links_fail_as_often_as_they_should(name: str) -> None:
    """E W = (1 - p) W + p I, by the mean of many steps; symmetric weights stay symmetric and doubly stochastic."""
    whole, draws, p = GRAPHS[name].at(0), 300, 0.3
    network = topologies.failing_links(GRAPHS[name], p, seed=4)
    mean = np.zeros((6, 6))
    for step in range(draws):
        matrix = network.at(step)
        mean += matrix.dense() / draws
        assert not whole.symmetric or (matrix.symmetric and matrix.doubly_stochastic)
        assert (matrix.row_stochastic, matrix.column_stochastic) != (False, False)
        assert not ((matrix.dense() != 0) & (whole.dense() == 0)).any()
    deviation = np.sqrt(p * (1 - p) / draws) * np.abs(whole.dense() - np.eye(6)).max() * 6
    np.testing.assert_allclose(mean, (1 - p) * whole.dense() + p * np.eye(6), atol=5 * deviation)


def test_without_failures_it_is_the_network_itself() -> None:
    assert topologies.failing_links(GRAPHS["ring"], 0.0, seed=1).at(7) is GRAPHS["ring"].at(7)


def test_push_sum_finds_the_mean_though_links_fail() -> None:
    """Columns keep their sums, so that nothing is lost; with the rows' sums the mean would move."""
    network = topologies.failing_links(GRAPHS["exponential"], 0.4, seed=2, push_sum=True)
    values, weights = np.arange(6.0), np.ones(6)
    for step in range(200):
        assert network.at(step).column_stochastic
        values, weights = network.at(step).dense() @ values, network.at(step).dense() @ weights
    np.testing.assert_allclose(values / weights, 2.5, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: topologies.failing_links(topologies.ring(4), 1.0, seed=0), r"p must lie in \[0, 1\), got 1.0"),
        (lambda: topologies.failing_links(topologies.ring(4), 0.1, seed=-1), "seed must be at least 0, got -1"),
        (
            lambda: topologies.failing_links(
                topologies.from_matrices([[[0.5, 0.5], [0.2, 0.8]]]), 0.1, seed=0, push_sum=True
            ),
            "columns must sum to 1 for push_sum",
        ),
        (
            lambda: topologies.inner_outer(3, topologies.ring(2), topologies.ring(4)),
            "groups must be outer.n = 4, got 3",
        ),
    ],
)
def test_what_no_network_is_is_refused(call: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        call()  # type: ignore[operator]
