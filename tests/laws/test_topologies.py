"""Laws every topology keeps. A new public constructor enters by a line in CASES; without one, the first test fails."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from commeff import topologies
from commeff.topologies import MixingMatrix, Topology

Make = Callable[[], Topology]

ROTATION = [np.roll(np.eye(5), shift, axis=1) for shift in (1, 2)]
SIZES = (1, 2, 3, 4, 5, 8, 12, 13)

CASES: dict[str, list[Make]] = {
    "complete": [lambda n=n: topologies.complete(n) for n in SIZES],
    "ring": [lambda n=n: topologies.ring(n) for n in SIZES],
    "torus": [lambda s=s: topologies.torus(*s) for s in ((2, 2), (2, 4), (3, 3), (3, 5), (4, 4))],
    "grid": [lambda s=s: topologies.grid(*s) for s in ((1, 1), (1, 5), (2, 2), (3, 4), (5, 5))],
    "star": [lambda n=n: topologies.star(n) for n in SIZES],
    "hypercube": [lambda n=n: topologies.hypercube(n) for n in (1, 2, 4, 8, 16)],
    "exponential": [lambda n=n: topologies.exponential(n) for n in SIZES],
    "one_peer_exponential": [lambda n=n: topologies.one_peer_exponential(n) for n in SIZES],
    "base_graph": [lambda n=n, k=k: topologies.base_graph(n, k) for n in SIZES for k in (1, 2, 3)],
    "d_equistatic": [lambda n=n, m=m: topologies.d_equistatic(n, m, seed=3) for n in SIZES for m in (1, 4)],
    "od_equidyn": [lambda n=n, eta=eta: topologies.od_equidyn(n, eta, seed=3) for n in SIZES for eta in (0.5, 1)],
    "random_matching": [lambda n=n: topologies.random_matching(n, seed=3) for n in SIZES],
    "erdos_renyi": [lambda n=n: topologies.erdos_renyi(n, 0.6, seed=3) for n in SIZES],
    "random_regular": [lambda s=s: topologies.random_regular(*s, seed=3) for s in ((1, 0), (2, 1), (8, 3), (9, 4))],
    "hierarchical": [
        lambda: topologies.hierarchical(4, topologies.complete(2), topologies.ring(4)),
        lambda: topologies.hierarchical(3, topologies.exponential(5), topologies.one_peer_exponential(3)),
        lambda: topologies.hierarchical(2, topologies.random_matching(4, seed=1), topologies.complete(2)),
    ],
    "from_graph": [
        lambda w=w: topologies.from_graph(nx.lollipop_graph(4, 3), w)
        for w in ("metropolis", "uniform", "max_degree", "fastest")
    ]
    + [lambda: topologies.from_graph(nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 1), (1, 3), (3, 0)]))],
    "from_matrices": [lambda: topologies.from_matrices(ROTATION)],
    "lazy": [
        lambda: topologies.lazy(topologies.ring(6)),
        lambda: topologies.lazy(topologies.one_peer_exponential(6)),
        lambda: topologies.lazy(topologies.od_equidyn(6, 0.5, seed=2)),
    ],
}

every_case = pytest.mark.parametrize(
    "make", [pytest.param(make, id=f"{name}-{i}") for name, makes in CASES.items() for i, make in enumerate(makes)]
)


def steps(topology: Topology) -> range:
    return range(topology.period or 6)


def test_the_table_is_complete() -> None:
    assert set(CASES) == set(topologies.__all__) - {"MixingMatrix", "Topology"}


@every_case
def test_rows_or_columns_sum_to_one_and_weights_are_what_is_said(make: Make) -> None:
    topology = make()
    for step in steps(topology):
        matrix = topology.at(step)
        dense = matrix.dense()
        rows, columns = (np.allclose(dense.sum(axis), 1, rtol=0, atol=1e-12) for axis in (1, 0))
        assert (matrix.row_stochastic, matrix.column_stochastic) == (rows, columns)
        assert rows or columns
        assert matrix.doubly_stochastic == (rows and columns)
        assert matrix.symmetric == np.allclose(dense, dense.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"from_graph"}))
def test_named_topologies_are_doubly_stochastic_and_nonnegative(name: str) -> None:
    for make in CASES[name]:
        topology = make()
        for step in steps(topology):
            assert topology.at(step).doubly_stochastic
            assert (topology.at(step).dense() >= 0).all()


@every_case
def test_sizes_and_views_agree_with_the_dense_matrix(make: Make) -> None:
    topology = make()
    for step in steps(topology):
        matrix = topology.at(step)
        dense = matrix.dense()
        off = dense - np.diag(np.diag(dense))
        assert dense.shape == (topology.n, topology.n) == (matrix.n, matrix.n)
        assert dense.dtype == np.float64
        np.testing.assert_array_equal(matrix.sparse().toarray(), dense)
        np.testing.assert_array_equal(matrix.off_diagonal.toarray(), off)
        assert matrix.off_diagonal.nnz == np.count_nonzero(off)
        np.testing.assert_array_equal(matrix.out_degrees, np.count_nonzero(off, axis=0))
        np.testing.assert_array_equal(matrix.in_degrees, np.count_nonzero(off, axis=1))
        assert matrix.degree == matrix.out_degrees.max()
        for worker in range(topology.n):
            assert matrix.received(worker) == {int(j): dense[worker, j] for j in np.flatnonzero(dense[worker])}
            assert matrix.sent(worker) == {int(i): dense[i, worker] for i in np.flatnonzero(dense[:, worker])}
            assert matrix.rows[worker] == (tuple(matrix.received(worker)), tuple(matrix.received(worker).values()))
            assert matrix.columns[worker] == (tuple(matrix.sent(worker)), tuple(matrix.sent(worker).values()))


@every_case
def test_matrices_are_pure_functions_of_the_step(make: Make) -> None:
    first, second = make(), make()
    asked = [0, 7, 3, 7, 0, 12, 3, 100]
    forward = {step: first.at(step).dense() for step in sorted(asked)}
    for step in asked:
        np.testing.assert_array_equal(first.at(step).dense(), forward[step])
        np.testing.assert_array_equal(second.at(step).dense(), forward[step])


@every_case
def test_period_tells_the_truth(make: Make) -> None:
    topology = make()
    if topology.period is None:
        assert topology.at(4) is topology.at(4)
        differ = any((topology.at(step).dense() != topology.at(0).dense()).any() for step in range(1, 20))
        assert differ or topology.n <= 2
    else:
        cycle = [topology.at(step) for step in range(topology.period)]
        assert all(topology.at(step + 3 * topology.period) is cycle[step] for step in range(topology.period))
        assert topology.period == 1 or any((m.dense() != cycle[0].dense()).any() for m in cycle[1:])


@every_case
def test_rho_is_the_norm_and_bounds_the_disagreement(make: Make) -> None:
    topology = make()
    x = np.random.default_rng(0).standard_normal(topology.n)
    for step in steps(topology):
        matrix = topology.at(step)
        dense = matrix.dense()
        assert matrix.rho == pytest.approx(np.linalg.norm(dense - 1 / topology.n, 2), abs=1e-12)
        assert matrix.spectral_gap == 1 - matrix.rho
        if matrix.column_stochastic:
            assert (dense @ x).mean() == pytest.approx(x.mean(), abs=1e-14)
        if matrix.doubly_stochastic:
            assert np.linalg.norm(dense @ x - x.mean()) <= matrix.rho * np.linalg.norm(x - x.mean()) + 1e-13
        if matrix.symmetric:
            assert matrix.lambda_min == pytest.approx(np.linalg.eigvalsh(dense)[0], abs=1e-12)


@every_case
def test_circulants_are_recognised_and_only_they(make: Make) -> None:
    for matrix in (topology.at(step) for topology in [make()] for step in steps(topology)):
        dense = matrix.dense()
        rotated = np.array([np.roll(row, -worker) for worker, row in enumerate(dense)])
        if matrix.shifts is None:
            assert (rotated != rotated[0]).any()
        else:
            np.testing.assert_array_equal(rotated, np.broadcast_to(rotated[0], rotated.shape))
            assert matrix.shifts == {int(s): rotated[0, s] for s in np.flatnonzero(rotated[0])}


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
