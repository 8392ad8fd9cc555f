"""MixingMatrix as a value, its large spectra, and what constructors refuse."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from math import cos, pi
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from commeff import topologies
from commeff.topologies import MixingMatrix, ring
from tests.owned import run


def test_it_is_a_value_nobody_can_change() -> None:
    given = sparse.csr_array(np.full((2, 2), 0.5))
    matrix = MixingMatrix(given)
    given.data[:] = 7
    matrix.dense()[0, 0] = 7
    matrix.sparse().data[:] = 7
    matrix.received(0)[0] = 7
    np.testing.assert_array_equal(matrix.dense(), 0.5)
    with pytest.raises(FrozenInstanceError):
        matrix.n = 3  # type: ignore[misc]


def test_it_hashes_by_identity() -> None:
    first, second = MixingMatrix(np.eye(2)), MixingMatrix(np.eye(2))
    assert first != second
    assert {first: "kept"}[first] == "kept"


def test_any_sparse_input_becomes_canonical() -> None:
    coo = sparse.coo_array(([0.25, 0.25, 0.5, 0.0, 1.0], ([0, 0, 0, 1, 1], [1, 1, 0, 0, 1])), shape=(2, 2))
    matrix = MixingMatrix(coo)
    assert matrix.rows == (((0, 1), (0.5, 0.5)), ((1,), (1.0,)))
    assert matrix.row_stochastic
    assert not matrix.column_stochastic


def test_topologies_travel_between_processes() -> None:
    redrawn = topologies.random_matching(7, seed=4)
    for topology in (ring(5), redrawn, topologies.lazy(redrawn)):
        copy = pickle.loads(pickle.dumps(topology))
        for step in (3, 0, 9):
            np.testing.assert_array_equal(copy.at(step).dense(), topology.at(step).dense())


def test_another_process_draws_the_same_graphs() -> None:
    """The hash seed is what differs between Python processes; nothing may hang on it."""
    program = (
        "import hashlib; from commeff import topologies as t\n"
        "drawn = [t.random_regular(20, 3, seed=5), t.erdos_renyi(20, 0.3, seed=5), t.random_matching(20, seed=5),\n"
        "         t.d_equistatic(20, 4, seed=5), t.od_equidyn(20, 0.5, seed=5)]\n"
        "print(hashlib.sha256(b''.join(x.at(6).dense().tobytes() for x in drawn)).hexdigest())"
    )
    root = Path(topologies.__file__).parents[1]
    answers = {
        run(
            [sys.executable, "-c", program],
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(answers) == 1


# Spectra of large matrices ----------------------------------------------------------------------------------------


def test_ten_thousand_workers_need_no_dense_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topologies.MixingMatrix, "dense", None)
    assert topologies.exponential(10_000).at(0).rho == pytest.approx(1 - 2 / 15, abs=1e-12)
    assert ring(10_000).at(0).rho == pytest.approx(1 / 3 + 2 / 3 * cos(2 * pi / 10_000), abs=1e-12)


def test_lanczos_meets_the_closed_forms() -> None:
    torus, star = topologies.torus(40, 40).at(0), topologies.star(1500).at(0)
    assert torus.shifts is None
    assert star.shifts is None
    assert torus.rho == pytest.approx((3 + 2 * cos(2 * pi / 40)) / 5, abs=1e-9)
    assert torus.lambda_min == pytest.approx(-3 / 5, abs=1e-9)
    assert star.rho == pytest.approx(1 - 1 / 1500, abs=1e-9)
    directed = topologies.hierarchical(2, topologies.exponential(600), topologies.complete(2)).at(0)
    scrambled = np.random.default_rng(0).permutation(1200)
    hidden = MixingMatrix(directed.sparse()[scrambled][:, scrambled])
    assert hidden.shifts is None
    assert not hidden.symmetric
    assert hidden.rho == pytest.approx(topologies.exponential(600).at(0).rho, abs=1e-9)
    for uneven in (nx.star_graph(1099), nx.star_graph(1099).to_directed()):
        matrix = topologies.from_graph(uneven, "uniform").at(0)
        assert not matrix.doubly_stochastic
        assert matrix.rho == pytest.approx(np.linalg.norm(matrix.dense() - 1 / 1100, 2), abs=1e-9)


# Refusals ---------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: topologies.complete(0), "complete: n must be at least 1, got 0"),
    (lambda: topologies.ring(0), "ring: n must be at least 1, got 0"),
    (lambda: topologies.ring(-3), "at least 1"),
    (lambda: topologies.star(0), "star: n must be at least 1, got 0"),
    (lambda: topologies.exponential(0), "exponential: n must be at least 1, got 0"),
    (lambda: topologies.one_peer_exponential(0), "one_peer_exponential: n must be at least 1, got 0"),
    (lambda: topologies.torus(1, 7), r"use ring\(7\)"),
    (lambda: topologies.torus(3, 0), "torus: cols must be at least 1, got 0"),
    (lambda: topologies.grid(0, 3), "grid: rows must be at least 1, got 0"),
    (lambda: topologies.hypercube(12), "n must be a power of two, got 12"),
    (lambda: topologies.hypercube(0), "hypercube: n must be at least 1, got 0"),
    (lambda: topologies.base_graph(0, 1), "base_graph: n must be at least 1, got 0"),
    (lambda: topologies.base_graph(4, 0), "base_graph: k must be at least 1, got 0"),
    (lambda: topologies.random_matching(0, 0), "random_matching: n must be at least 1, got 0"),
    (lambda: topologies.random_matching(4, -1), "seed must be at least 0, got -1"),
    (lambda: topologies.d_equistatic(4, 0, 0), "d_equistatic: m must be at least 1, got 0"),
    (lambda: topologies.od_equidyn(4, 0, 0), r"od_equidyn: eta must lie in \(0, 1\], got 0"),
    (lambda: topologies.od_equidyn(4, 1.5, 0), r"in \(0, 1\], got 1.5"),
    (lambda: topologies.erdos_renyi(4, 2, 0), r"erdos_renyi: p must lie in \(0, 1\], got 2"),
    (lambda: topologies.erdos_renyi(50, 0.001, 0), "must be connected, got none among 100 draws; raise p"),
    (lambda: topologies.random_regular(5, 3, 0), "n \\* degree even"),
    (lambda: topologies.random_regular(4, 4, 0), "degree must be below n = 4"),
    (lambda: topologies.random_regular(4, 1, 0), "raise the degree"),
    (lambda: topologies.hierarchical(3, ring(2), ring(4)), "groups must be outer.n = 4, got 3"),
    (lambda: topologies.from_graph(nx.Graph()), "must have a node for every worker, got none"),
    (lambda: topologies.from_graph(nx.empty_graph(3)), "must be connected, got 3 components"),
    (lambda: topologies.from_graph(nx.DiGraph([(0, 1), (1, 2)])), "must be connected, got 3 components"),
    (
        lambda: topologies.from_graph(nx.DiGraph([(0, 1), (1, 0)]), "metropolis"),
        "weights of directed graphs must be one of uniform, got 'metropolis'",
    ),
    (
        lambda: topologies.from_graph(nx.path_graph(3), "metropolic"),
        "must be one of metropolis, uniform.* got 'metropolic'",
    ),
    (lambda: topologies.from_matrices([]), "at least one matrix"),
    (lambda: topologies.from_matrices([np.eye(2), np.eye(3)]), r"all of one size, got sizes \[2, 3\]"),
    (lambda: MixingMatrix(np.ones((2, 3)) / 3), r"must be square, .* got shape \(2, 3\)"),
    (lambda: MixingMatrix([[0.5, 0.4], [0.5, 0.5]]), "must sum to 1, got neither"),
    (lambda: MixingMatrix([[np.nan, 1.0], [0.0, 1.0]]), "NaN"),
    (lambda: ring(4).at(0).received(4), r"worker must lie in \[0, 3\], got 4"),
    (lambda: ring(4).at(0).sent(-1), "got -1"),
    (lambda: topologies.exponential(5).at(0).lambda_min, "symmetric"),
]


@pytest.mark.parametrize(("ask", "answer"), REFUSED, ids=[answer for _, answer in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(ask: Callable[[], object], answer: str) -> None:
    with pytest.raises(ValueError, match=answer) as refusal:
        ask()
    assert "\n" not in str(refusal.value)


def test_numbers_of_workers_are_integers() -> None:
    with pytest.raises(TypeError, match=r"ring: n must be an integer of at least 1, got 8.0"):
        topologies.ring(8.0)  # type: ignore[arg-type]
    assert topologies.ring(np.int64(8)).n == 8
