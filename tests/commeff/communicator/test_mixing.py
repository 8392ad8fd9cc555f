"""Mixing in place is the matrix product, for every graph and for weights of any kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from commeff import Communicator, topologies
from commeff.communicator import mixing
from commeff.compressors import Dense

RANDOM = np.random.default_rng(0).random((7, 7)) * (np.random.default_rng(1).random((7, 7)) < 0.5) + 1e-3
GRAPHS = {
    "ring": topologies.ring(9),
    "exponential": topologies.exponential(12),
    "one-peer": topologies.one_peer_exponential(8),
    "star": topologies.star(6),
    "complete": topologies.complete(5),
    "matching": topologies.random_matching(8, seed=0),
    "dense": topologies.from_matrices([RANDOM / RANDOM.sum(1, keepdims=True)]),
    "swap": topologies.from_matrices([np.eye(4)[[1, 2, 3, 0]]]),
    "nobody": topologies.from_matrices([np.eye(3)]),
    "alone": topologies.ring(1),
}


def test_rows_that_come_in_are_mixed_block_by_block(monkeypatch):
    monkeypatch.setattr(mixing, "LEAST", 5)
    monkeypatch.setattr(mixing, "MOST", 5)
    weights, rows = torch.tensor([[0.5, 0, 0.25, 0.25], [0.5, -0.25, 0, 0.75]]).double(), torch.randn(4, 13).double()
    program = mixing.InPlace.of([[(j, w) for j, w in enumerate(row) if w] for row in weights.tolist()])
    torch.testing.assert_close(program.run(rows[:2].clone(), [*rows[2:]]), weights @ rows)


@pytest.mark.parametrize("name", GRAPHS)
def test_mix_is_the_matrix_product(name, monkeypatch):
    monkeypatch.setattr(mixing, "LEAST", 5)
    monkeypatch.setattr(mixing, "MOST", 5)
    topology = GRAPHS[name]
    communicator, x = Communicator(workers=topology.n), torch.randn(topology.n, 13, dtype=torch.float64)
    for step in range(3):
        w = torch.from_numpy(topology.at(step).dense())
        message = Dense().compress(x, communicator.random("mix"))
        fresh = communicator.mix(message, topology.at(step))
        torch.testing.assert_close(fresh, w @ x, rtol=0, atol=1e-14)
        assert fresh.data_ptr() != x.data_ptr()
        own = x.clone()
        message = Dense().compress(own, communicator.random("mix"))
        mixed = communicator.mix(message, topology.at(step), out=own)
        assert mixed.data_ptr() == own.data_ptr()
        assert torch.equal(mixed, fresh)


def test_a_weight_of_zero_takes_nothing_not_even_infinity():
    x = torch.tensor([[torch.inf], [1.0]])
    assert mixing.InPlace.of([[(1, 1.0)], [(1, 1.0)]]).run(x).tolist() == [[1.0], [1.0]]


def test_a_ring_keeps_three_rows_whatever_its_size():
    for n in (5, 50):
        rows = [[*zip(*row, strict=True)] for row in topologies.ring(n).at(0).rows]
        assert mixing.InPlace.of(rows).slots == 3


def test_a_topology_of_another_size_is_refused():
    communicator = Communicator(workers=4)
    with pytest.raises(ValueError, match="run's 4 workers, got one of 3"):
        communicator.mix(Dense().compress(torch.zeros(4, 2), communicator.random("")), topologies.ring(3).at(0))


def test_a_process_without_rows_mixes_none() -> None:
    assert mixing.InPlace.of([]).run(torch.empty(0, 5)).shape == (0, 5)
