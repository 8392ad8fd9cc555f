"""The account of what libraries send agrees with our own counters, and with the formulas."""

from __future__ import annotations

import torch
import torch.distributed as dist

from commeff import Communicator, topologies
from commeff.communicator.wire.shared_memory import SWITCH
from commeff.compressors import DenseMessage, Layout
from commeff.experiments.studies.splitting.account import Account, live_bytes
from commeff.sharding import Mesh, cross_entropy, split
from commeff.sharding.zero import BucketedRow
from tests.commeff.sharding.test_tensor import batch, llama, llama_plan
from tests.laws.processes import on_processes


def tensor_bytes(sequence):
    """What the account and the axis have counted for a step forward and backward, forward alone first."""
    mesh, model = Mesh(tensor=2), llama()
    axis, tokens = mesh.axis("tensor"), batch(0, 0)
    split(model, llama_plan(model), axis, sequence=sequence)
    with Account() as account:
        loss = cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], axis)
        forward = account.sent(axis.group)
        loss.backward()
    return forward, account.sent(axis.group), axis.bytes


def shard_bytes():
    """The same of a step of ZeRO-1 over a row of 101 numbers."""
    axis, model = Mesh(shard=2).axis("shard"), torch.nn.Linear(100, 1)
    layout = Layout.of([("weight", (1, 100)), ("bias", (1,))])
    row = BucketedRow(dict(model.named_parameters()), layout, axis, zero=1)
    row.begin()
    with Account() as account:
        row.load(row.finish())
    return account.sent(axis.group), axis.bytes


def worker_bytes(monkeypatch):
    """What the account and the transport have counted for an average and a gossip, over the network."""
    monkeypatch.setenv(SWITCH, "0")
    mesh = Mesh(worker=2)
    communicator, x = Communicator(group=mesh.group("worker")), DenseMessage.of(torch.ones(1, 100))
    with Account() as account:
        communicator.average(x)
        communicator.mix(x, topologies.ring(2).at(0))
    return account.sent(mesh.group("worker")), dict(communicator.transport.sent)


def plain_bytes():
    """One of each kind of torch.distributed's own operations, on 8 numbers of 4 bytes."""
    rank, x = dist.get_rank(), torch.ones(8)
    each = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather([torch.empty(8), torch.empty(8)], x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.empty(16), x),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.empty(4), x),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.empty(8), x),
        "broadcast": lambda: dist.broadcast(x, src=0),
        "send": lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0),
        "barrier": lambda: dist.barrier(),
    }
    counted = {}
    for name, operation in each.items():
        with Account() as account:
            operation()
        counted[name] = account.sent(dist.group.WORLD)
    return counted


def test_what_is_counted_is_what_our_axes_count_and_the_formula(monkeypatch):
    def member():
        return tensor_bytes(False), tensor_bytes(True), shard_bytes(), worker_bytes(monkeypatch), plain_bytes()

    layers, width, (b, t) = 2, 32, (2, 8)
    for rank, (plain, sequence, shard, worker, each) in enumerate(on_processes(2, member)):
        for name, (forward, both, axis), norms in (("tensor", plain, 0), ("sequence", sequence, 2 * layers + 1)):
            assert both == axis == 8 * ((4 * layers + 2) * b * t * width + 3 * b * t + norms * width), name
            assert forward < both, "backward is not seen"
        assert shard == (2 * 4 * 51,) * 2
        assert worker == (400 + 400, {"all_reduce": 400, "mix": 400})
        sent = {"all_reduce": 32, "all_gather": 32, "all_gather_into_tensor": 32, "reduce_scatter_tensor": 16}
        assert each == sent | {"all_to_all_single": 16, "broadcast": 16, "send": 32 * (rank == 0), "barrier": 0}


def test_the_census_counts_each_memory_once():
    before = live_bytes()
    x = torch.zeros(1000, dtype=torch.float64)
    views = [x, x.view(10, 100), x[:5], torch.nn.Parameter(x)]
    assert live_bytes() - before == 8000
    assert live_bytes(apart=views[:1]) == before
    x.untyped_storage().resize_(0)
    assert live_bytes() == before
