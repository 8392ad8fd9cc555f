"""Numbers theory promises: rho in closed form, consensus in finite time, contraction in expectation."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import ceil, cos, log, pi

import networkx as nx
import numpy as np
import pytest

from commeff import topologies
from commeff.topologies import Topology
from commeff.topologies.equitopo import paired


def product(topology: Topology, start: int, count: int) -> np.ndarray:
    return reduce(lambda done, step: topology.at(step).dense() @ done, range(start, start + count), np.eye(topology.n))


def is_average(matrix: np.ndarray) -> bool:
    return bool(np.abs(matrix - 1 / len(matrix)).max() < 1e-13)


@pytest.mark.parametrize("n", range(3, 40))
def test_ring(n: int) -> None:
    eigenvalues = [1 / 3 + 2 / 3 * cos(2 * pi * k / n) for k in (1, n // 2)]
    assert topologies.ring(n).at(0).rho == pytest.approx(max(map(abs, eigenvalues)), abs=1e-12)
    np.testing.assert_allclose(topologies.ring(n).at(0).sparse().data, 1 / 3)


def test_small_rings() -> None:
    np.testing.assert_allclose(topologies.ring(1).at(0).dense(), [[1]])
    np.testing.assert_allclose(topologies.ring(2).at(0).dense(), [[0.5, 0.5], [0.5, 0.5]])
    assert topologies.ring(4).at(0).rho == pytest.approx(1 / 3, abs=1e-14)


def test_long_rings_mix_slowly() -> None:
    gap = topologies.ring(1000).at(0).spectral_gap
    assert gap == pytest.approx(4 * pi**2 / (3 * 1000**2), rel=1e-4)


@pytest.mark.parametrize("n", [4, 8, 10, 64])
def test_even_rings_touch_the_edge_of_d2_and_lazy_ones_do_not(n: int) -> None:
    assert topologies.ring(n).at(0).lambda_min == pytest.approx(-1 / 3, abs=1e-13)
    assert topologies.lazy(topologies.ring(n)).at(0).lambda_min == pytest.approx(1 / 3, abs=1e-13)


@pytest.mark.parametrize("m", range(3, 12))
def test_square_torus(m: int) -> None:
    matrix = topologies.torus(m, m).at(0)
    assert matrix.rho == pytest.approx((3 + 2 * cos(2 * pi / m)) / 5, abs=1e-12)
    np.testing.assert_allclose(matrix.sparse().data, 1 / 5)


@pytest.mark.parametrize("n", range(1, 30))
def test_complete_and_star(n: int) -> None:
    assert topologies.complete(n).at(0).rho < 1e-14
    laplacian = nx.laplacian_matrix(nx.star_graph(n - 1)).toarray()
    star = topologies.star(n).at(0)
    np.testing.assert_allclose(star.dense(), np.eye(n) - laplacian / n, atol=1e-15)
    assert star.rho == pytest.approx(1 - 1 / n if n > 2 else 0, abs=1e-13)


@pytest.mark.parametrize("m", range(1, 9))
def test_hypercube(m: int) -> None:
    matrix = topologies.hypercube(2**m).at(0)
    assert matrix.rho == pytest.approx(1 - 2 / (m + 1), abs=1e-12)
    np.testing.assert_allclose(matrix.sparse().data, 1 / (m + 1))


def test_grid_carries_metropolis_weights() -> None:
    for rows, cols in ((1, 4), (2, 3), (4, 5)):
        matrix = topologies.grid(rows, cols).at(0)
        for i in range(matrix.n):
            for j in set(matrix.received(i)) - {i}:
                members = 1 + max(matrix.in_degrees[i], matrix.in_degrees[j])
                assert matrix.received(i)[j] == pytest.approx(1 / members, abs=1e-15)


@pytest.mark.parametrize("n", [*range(2, 70), 127, 128, 129, 243, 1000, 1024, 1025])
def test_exponential(n: int) -> None:
    matrix = topologies.exponential(n).at(0)
    hops = next(m for m in range(n) if 2**m >= n)
    assert matrix.degree == hops
    np.testing.assert_allclose(matrix.sparse().data, 1 / (hops + 1))
    if n % 2 == 0:
        assert matrix.rho == pytest.approx(1 - 2 / (1 + hops), abs=1e-12)
    else:
        assert matrix.rho < 1 - 2 / (1 + hops)


@pytest.mark.parametrize("n", range(1, 34))
def test_one_peer_exponential_is_exact_for_powers_of_two_only(n: int) -> None:
    topology = topologies.one_peer_exponential(n)
    assert topology.period == max(1, ceil(log(n, 2)))
    power_of_two = n in (1, 2, 4, 8, 16, 32)
    for start in range(topology.period):
        assert is_average(product(topology, start, topology.period)) == power_of_two
    assert is_average(product(topology, 0, 3 * topology.period)) == power_of_two
    for step in range(topology.period):
        assert topology.at(step).degree == min(1, n - 1)
        assert set(topology.at(step).sparse().data) == ({0.5} if n > 1 else {1.0})


@pytest.mark.parametrize("n", range(1, 34))
@pytest.mark.parametrize("k", range(1, 5))
def test_base_graph_is_exact_for_every_n(n: int, k: int) -> None:
    topology = topologies.base_graph(n, k)
    assert topology.period is not None
    assert is_average(product(topology, 0, topology.period))
    assert not any(is_average(product(topology, 0, count)) for count in range(1, topology.period))
    assert topology.period <= 2 * log(n) / log(k + 1) + 2 + 1e-12
    for step in range(topology.period):
        assert topology.at(step).symmetric
        assert topology.at(step).degree <= k


BY_HAND = {
    (5, 1): 2 + 1 + 2,  # 5 = 4 + 1: the four average, meet the fifth, average
    (6, 1): 3 + 1,  # 6 = 3 * 2: two threes of 3 = 2 + 1, then across
    (7, 2): 2 + 1 + 1,  # 7 = 2 * 3 + 1
    (12, 2): 3,  # 12 = 3 * 2 * 2
    (8, 1): 3,
    (9, 2): 2,
    (25, 4): 2,
}


@pytest.mark.parametrize(("n", "k"), BY_HAND)
def test_base_graph_periods_by_hand(n: int, k: int) -> None:
    period = BY_HAND[n, k]
    assert topologies.base_graph(n, k).period == period


def test_base_graph_beyond_the_small() -> None:
    for n, k in ((100, 1), (127, 2), (211, 3), (360, 5), (1000, 1)):
        topology = topologies.base_graph(n, k)
        assert topology.period is not None
        assert is_average(product(topology, 0, topology.period))


# Random ------------------------------------------------------------------------------------------------------------


def one_shifts(n: int, eta: float) -> list[np.ndarray]:
    """The matrices of od_equidyn, one for each u = 1 ... n-1, in order of u."""
    topology = topologies.od_equidyn(n, eta, seed=5)
    found = {}
    for step in range(60 * n):
        matrix = topology.at(step)
        (shift,) = set(matrix.shifts or {}) - {0}
        found[shift] = matrix.dense()
    assert sorted(found) == list(range(1, n))
    return [found[shift] for shift in range(1, n)]


@pytest.mark.parametrize("n", [2, 3, 7, 12])
def test_equitopo_averages_to_j_over_all_shifts(n: int) -> None:
    np.testing.assert_allclose(np.mean(one_shifts(n, eta=1), axis=0), 1 / n, atol=1e-15)
    for u, matrix in enumerate(one_shifts(n, eta=1), start=1):
        np.testing.assert_allclose(matrix, (n - 1) / n * np.roll(np.eye(n), u, axis=1) + np.eye(n) / n, atol=1e-15)


@pytest.mark.parametrize("n", [2, 3, 7, 12])
@pytest.mark.parametrize("eta", [1, 0.5])
def test_od_equidyn_contracts_in_expectation(n: int, eta: float) -> None:
    """E |Wx - mean|^2 = factor |x - mean|^2 exactly, for every x, averaging over all u."""
    factor = 1 - 2 / n if eta == 1 else (n - 1) / (2 * n)
    x = np.random.default_rng(1).standard_normal(n)
    after = np.mean([np.sum((matrix @ x - x.mean()) ** 2) for matrix in one_shifts(n, eta)])
    assert after == pytest.approx(factor * np.sum((x - x.mean()) ** 2), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("n", "m"), [(2, 3), (5, 1), (9, 4), (16, 61)])
def test_d_equistatic_is_a_mean_of_m_shifts(n: int, m: int) -> None:
    for seed in range(20):
        shifts = dict(topologies.d_equistatic(n, m, seed).at(0).shifts or {})
        assert shifts.pop(0) == pytest.approx(1 / n, abs=1e-14)
        drawn = np.array(list(shifts.values())) * n * m / (n - 1)
        np.testing.assert_allclose(drawn, drawn.round(), atol=1e-9)
        assert drawn.sum() == pytest.approx(m)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (16, 1), (16, 4), (30, 2), (32, 3)])
def test_equistatic_graphs_are_connected(n: int, m: int) -> None:
    """Even shifts alone would part an even number of workers into two halves that never meet."""
    for draw in (topologies.d_equistatic, topologies.u_equistatic):
        assert max(draw(n, m, seed).at(0).rho for seed in range(100)) < 1 - 1e-6


def test_d_equistatic_keeps_its_promise() -> None:
    """Pr(rho < eps) >= 1 - p, whatever n is."""
    eps, p = 0.6, 0.2
    for n in (16, 200):
        m = ceil(8 / 3 * log(2 * n / p) / eps**2)
        assert np.mean([topologies.d_equistatic(n, m, seed).at(0).rho < eps for seed in range(100)]) >= 1 - p


@pytest.mark.parametrize("n", [2, 6, 7])
def test_matchings_pair_everyone_they_can_and_all_pairs_alike(n: int) -> None:
    topology, draws = topologies.random_matching(n, seed=11), 1000
    total = np.zeros((n, n))
    for step in range(draws):
        matrix = topology.at(step)
        assert matrix.symmetric
        assert matrix.degree == 1
        assert matrix.off_diagonal.nnz == n // 2 * 2
        assert set(matrix.off_diagonal.data) == {0.5}
        total += matrix.off_diagonal.toarray()
    pairs = total[~np.eye(n, dtype=bool)] * 2 / draws
    np.testing.assert_allclose(pairs, (n // 2 * 2) / (n * (n - 1)), atol=0.05)


def test_random_graphs_have_the_asked_edges() -> None:
    edges = [topologies.erdos_renyi(30, 0.5, seed).at(0).off_diagonal.nnz / 2 for seed in range(100)]
    assert np.mean(edges) == pytest.approx(0.5 * 30 * 29 / 2, rel=0.02)
    assert len(set(edges)) > 10
    assert topologies.erdos_renyi(9, 1, seed=0).at(0).rho < 1e-14
    for n, degree in ((10, 3), (11, 4), (6, 5), (12, 2)):
        matrix = topologies.random_regular(n, degree, seed=2).at(0)
        np.testing.assert_array_equal(matrix.out_degrees, degree)
        np.testing.assert_allclose(matrix.sparse().data, 1 / (degree + 1))


SEEDED: list[Callable[[int], Topology]] = [
    lambda seed: topologies.d_equistatic(50, 3, seed),
    lambda seed: topologies.od_equidyn(50, 0.5, seed),
    lambda seed: topologies.random_matching(50, seed),
    lambda seed: topologies.erdos_renyi(50, 0.2, seed),
    lambda seed: topologies.random_regular(50, 3, seed),
]


@pytest.mark.parametrize("make", SEEDED)
def test_every_seed_draws_its_own(make: Callable[[int], Topology]) -> None:
    drawn = [b"".join(make(seed).at(step).dense().tobytes() for step in range(4)) for seed in range(6)]
    assert len(set(drawn)) == len(drawn)


def test_hierarchy_is_inner_then_outer() -> None:
    inner, outer = topologies.exponential(5), topologies.one_peer_exponential(3)
    both = topologies.hierarchical(3, inner, outer)
    x = np.random.default_rng(3).standard_normal((3, 5))
    for step in range(4):
        within = x @ inner.at(step).dense().T
        across = outer.at(step).dense() @ within
        np.testing.assert_allclose((both.at(step).dense() @ x.ravel()).reshape(3, 5), across, atol=1e-15)
        assert both.at(step).rho == pytest.approx(max(inner.at(step).rho, outer.at(step).rho), abs=1e-12)
    assert both.period == 2
    assert topologies.hierarchical(8, topologies.base_graph(3, 1), topologies.base_graph(8, 1)).period == 3
    assert topologies.hierarchical(4, topologies.base_graph(3, 1), topologies.base_graph(4, 1)).period == 6


def test_lazy_is_halfway_to_staying() -> None:
    for topology in (topologies.exponential(6), topologies.base_graph(5, 1), topologies.random_matching(5, seed=0)):
        slow = topologies.lazy(topology)
        assert (slow.n, slow.period) == (topology.n, topology.period)
        for step in range(7):
            np.testing.assert_allclose(slow.at(step).dense(), (np.eye(topology.n) + topology.at(step).dense()) / 2)


@pytest.mark.parametrize("m", range(2, 9))
def test_symmetric_exponential(m: int) -> None:
    matrix = topologies.symmetric_exponential(2**m).at(0)
    assert matrix.symmetric
    assert matrix.degree == 2 * m - 1
    assert matrix.rho == pytest.approx(1 - 2 / m, abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 3), (8, 4), (30, 7)])
def test_u_equistatic_is_d_equistatic_both_ways(n: int, m: int) -> None:
    for seed in range(5):
        directed = topologies.d_equistatic(n, m, seed).at(0)
        both = topologies.u_equistatic(n, m, seed).at(0)
        np.testing.assert_allclose(both.dense(), (directed.dense() + directed.dense().T) / 2, atol=1e-15)
        assert both.rho <= directed.rho + 1e-14
        assert both.degree <= 2 * m


def pairings(n: int, eta: float) -> list[np.ndarray]:
    """Every matrix that ou_equidyn can draw, once."""
    return [paired(n, eta, shift, first).dense() for shift in range(1, n) for first in range(n)]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 9, 16, 17, 32])
def test_ou_equidyn_contracts_in_expectation(n: int) -> None:
    """Over all shifts and first workers, exactly: the squared disagreement shrinks by 2/3 at least, whatever n."""
    mean = np.mean([matrix.T @ matrix for matrix in pairings(n, 0.5)], axis=0)
    assert np.linalg.norm(mean - 1 / n, 2) <= 2 / 3


def test_ou_equidyn_pairs_along_one_shift() -> None:
    topology, seen = topologies.ou_equidyn(9, 0.5, seed=1), set()
    everything = {matrix.tobytes() for matrix in pairings(9, 0.5)}
    for step in range(40):
        matrix = topology.at(step)
        assert matrix.degree == 1
        assert matrix.dense().tobytes() in everything
        seen.add(matrix.dense().tobytes())
    assert len(seen) > 20


@pytest.mark.parametrize("inner_steps", [1, 2, 5])
def test_one_turn_of_inner_and_outer_is_their_product(inner_steps: int) -> None:
    """With fixed graphs: W_outer x W_inner^inner_steps; with exact averages inside and outside, J."""
    inner, outer = topologies.ring(4), topologies.exponential(3)
    turn = topologies.inner_outer(3, inner, outer, inner_steps)
    assert turn.period == inner_steps + 1
    expected = np.kron(outer.at(0).dense(), np.linalg.matrix_power(inner.at(0).dense(), inner_steps))
    np.testing.assert_allclose(product(turn, 0, inner_steps + 1), expected, atol=1e-15)
    assert is_average(product(topologies.inner_outer(3, topologies.complete(4), topologies.complete(3)), 0, 2))


def test_graphs_that_change_go_on_where_they_were() -> None:
    """Two steps inside, one outside: the inner graph of period 3 is through after three turns, the outer after two."""
    inner, outer = topologies.one_peer_exponential(8), topologies.one_peer_exponential(4)
    both = topologies.inner_outer(4, inner, outer, inner_steps=2)
    assert both.period == 18
    inside = [step for step in range(18) if step % 3 < 2]
    for count, step in enumerate(inside):
        np.testing.assert_array_equal(both.at(step).dense(), np.kron(np.eye(4), inner.at(count).dense()))
    for turn in range(6):
        np.testing.assert_array_equal(both.at(3 * turn + 2).dense(), np.kron(outer.at(turn).dense(), np.eye(8)))
