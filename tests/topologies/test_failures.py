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
