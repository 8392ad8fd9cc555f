"""What the communicator bills, and whose randomness it hands out."""

from __future__ import annotations

import pytest
import torch

from commeff import Communicator, topologies
from commeff.communicator import observe, view
from commeff.compressors import Dense

N, D = 6, 10
X = torch.randn(N, D, dtype=torch.float64)


def message(communicator):
    return Dense().compress(X, communicator.random("up"))


def test_a_method_sees_at_most_24_names():
    names = [name for name in dir(Communicator(workers=2)) if not name.startswith("_")]
    assert len(names) <= 24, names


@pytest.mark.parametrize("name", ["losses", "samples", "active"])
def test_what_belongs_to_the_context_cannot_be_written_beside_it(name):
    """Where nobody would read it."""
    with pytest.raises(AttributeError, match=name):
        setattr(Communicator(workers=N), name, torch.ones(N))


def test_each_operation_is_billed_by_its_formula():
    communicator = Communicator(workers=N)
    size = 8 * D
    communicator.average(message(communicator))
    communicator.mix(message(communicator), topologies.ring(N).at(0))
    communicator.gather(message(communicator))
    communicator.to_server(message(communicator))
    communicator.from_server(message(communicator).select(slice(0, 1)))
    wire = {row.kind: row.wire_bytes for row in communicator.ledger.rows}
    assert wire == {
        "all_reduce": 2 * (N - 1) / N * size,
        "mix": 2 * size,
        "all_gather": (N - 1) * size,
        "to_server": size,
        "from_server": size,
    }
    assert communicator.ledger.payload_bytes == 5 * size
    assert communicator.ledger.rounds == 5


def test_a_star_is_billed_its_mean_degree():
    communicator = Communicator(workers=N)
    communicator.mix(message(communicator), topologies.star(N).at(0))
    assert communicator.ledger.wire_bytes == 2 * (N - 1) / N * 8 * D


def test_a_message_that_nobody_receives_is_not_billed():
    """Worker 0 is read by all others, worker 1 by worker 0, and the others by nobody."""
    weights = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0, 0, 0.5]]
    communicator, sent = Communicator(workers=4), Dense().compress(X[:4], Communicator(workers=4).random("up"))
    communicator.mix(sent, topologies.from_matrices([weights]).at(0))
    (row,) = communicator.ledger.rows
    assert (row.payload_bytes, row.wire_bytes, row.messages) == (8 * D * 2 / 4, 8 * D * (3 + 1) / 4, (3 + 1) / 4)
    communicator.mix(sent, topologies.from_matrices([[[float(i == j) for j in range(4)] for i in range(4)]]).at(0))
    assert communicator.ledger.rows[-1][3:6] == (0, 0, 0), "and where all are on their own, nothing is"


def test_observing_is_free():
    communicator = Communicator(workers=N)
    torch.testing.assert_close(observe(communicator, X), X.mean(0))
    assert communicator.ledger.payload_bytes == 0


def test_the_path_keys_randomness_and_labels_the_ledger():
    communicator = Communicator(workers=N, seed=5)
    left, right = communicator.child("left"), communicator.child("right")
    assert not torch.equal(left.random("up").uniform(4), right.random("up").uniform(4))
    assert torch.equal(
        left.random("up").uniform(4), Communicator(workers=N, seed=5).child("left").random("up").uniform(4)
    )
    assert torch.equal(left.random("up").uniform(4)[:, 1:], view(left, 1).random("up").uniform(3))
    left.child("deep").average(message(communicator))
    assert communicator.ledger.rows[0].path == "left/deep"


def test_views_share_the_clock_and_its_randomness_moves_with_it():
    communicator = Communicator(workers=N)
    before = communicator.child("a").random("up").uniform(4)
    communicator.step = 3
    assert communicator.child("a").step == 3
    assert not torch.equal(before, communicator.child("a").random("up").uniform(4))


def test_the_server_draws_its_own_numbers():
    communicator = Communicator(workers=N)
    drawn = communicator.server.random("up").uniform(4)
    assert drawn.shape == (1, 4)
    assert not any(torch.equal(drawn[0], row) for row in communicator.random("up").uniform(4))


def test_a_view_of_a_view_has_those_who_are_in_both():
    some, others = torch.tensor([True, True, False, True]), torch.tensor([False, True, True, True])
    seen = view(view(Communicator(workers=4), among=some), among=others)
    assert (seen.n, seen.workers) == (2, [1, 3])


def test_who_is_absent_has_finished_nothing():
    communicator = Communicator(workers=3)
    communicator.begin(0, present=torch.tensor([True, True, False]), finished=torch.tensor([True, False, True]))
    assert communicator.context.finished.tolist() == [True, False, False]
    assert communicator.context.moving.tolist() == [True, False, False]


def test_no_workers_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Communicator(workers=0)


@pytest.mark.parametrize("send", ["average", "mix", "gather", "to_server", "from_server"])
def test_what_is_no_message_is_refused_with_what_to_send(send):
    given = (topologies.ring(3).at(0),) if send == "mix" else ()
    with pytest.raises(TypeError, match=r"must be a Message, got a Tensor: send a tensor as it is by DenseMessage.of"):
        getattr(Communicator(workers=3), send)(torch.zeros(3, 2), *given)
