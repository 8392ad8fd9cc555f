"""ZeRO stage 1: ranks that share a worker's states train as one process that has them all."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from commeff import Communicator, DistributedOptimizer, methods, topologies
from commeff.compressors import RandomK, TopK
from commeff.compressors.parts import Part
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.parallelism import Axis, Mesh, cross_entropy, split
from commeff.parallelism.zero import SharedRow
from commeff.replicas import Stacked
from commeff.transforms import clipped, on_pieces
from tests.laws.processes import on_processes

STEPS, VOCABULARY = 4, 64
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS = {
    "psgd": lambda n: methods.psgd(SGD),
    "dsgd": lambda n: methods.dsgd(SGD, topologies.ring(n)),
    "diloco": lambda n: methods.diloco(SGD, period=2),
    "mem_sgd": lambda n: methods.mem_sgd(SGD, TopK(ratio=0.1)),
    "choco": lambda n: methods.choco(SGD, topologies.ring(n), RandomK(ratio=0.2), gamma=0.2),
}


def llama():
    torch.manual_seed(1)
    return Llama(VOCABULARY, layers=2, width=32, heads=4, kv_heads=2, inner=64).double()


def batch(step, worker):
    generator = torch.Generator().manual_seed(100 * step + worker)
    return torch.randint(VOCABULARY, (6, 9), generator=generator)


def whole_loss(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def on_one_process(method, n, shard, clip):
    communicator, strategy = Communicator(workers=n), METHODS[method](n)
    replicas = Stacked(llama, communicator.workers)
    first, layout = replicas.parameters.clone(), replicas.layout
    if strategy.scope != "coordinate":
        rows = [SharedRow(layout.d, Axis("shard", shard, rank)) for rank in range(shard)]
        spans = [(row.start, row.stop) for row in rows]
        parts = [Part(f"everywhere, shard {r}", [span], layout.slice(*span)) for r, span in enumerate(spans)]
        strategy = on_pieces(strategy, parts)
    strategy = clipped(strategy, clip)
    strategy.start(replicas.parameters, layout, communicator)
    for communicator.step in range(STEPS):
        tokens = torch.stack([batch(communicator.step, worker) for worker in range(n)])
        gradient, _ = replicas.compute(whole_loss, [(tokens,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    assert (replicas.parameters - first).abs().max() > 0.02, "nothing moved: the comparison says nothing"
    return replicas.parameters


def on_a_mesh(method, workers, shard, clip):
    mesh, model = Mesh(worker=workers, shard=shard), llama()
    if mesh.coordinates["shard"]:
        torch.manual_seed(7)
        model = Llama(VOCABULARY, layers=2, width=32, heads=4, kv_heads=2, inner=64).double()  # begins as rank 0's
    optimizer = DistributedOptimizer(
        model, METHODS[method](workers), mesh=mesh, pieces="own", clip=clip, bucket_mb=0.01
    )
    for step in range(STEPS):
        share = batch(step, mesh.coordinates["worker"]).chunk(shard)[mesh.coordinates["shard"]]
        optimizer.zero_grad()
        whole_loss(model, share).backward()
        optimizer.step()
    row = torch.cat([p.detach().flatten() for p in model.parameters()])
    momentum = optimizer.state_dict()["strategy"]["parts"]["local"]["rows"]
    numbers = sum(
        value.numel()
        for value in torch.utils._pytree.tree_leaves(momentum)
        if torch.is_tensor(value) and value.numel() > 1
    )
    return mesh.coordinates["worker"], row, numbers, mesh.axis("shard").bytes


CASES = [*((method, None) for method in METHODS), ("psgd", 0.6), ("diloco", 0.6), ("mem_sgd", 0.6)]


@pytest.fixture(scope="module")
def outcomes():
    """By rank, what all cases came to: starting processes costs more than a case."""
    return on_processes(4, lambda: {case: on_a_mesh(case[0], 2, 2, case[1]) for case in CASES})


@pytest.mark.parametrize(("method", "clip"), CASES)
def test_ranks_that_share_states_train_as_one_process(outcomes, method, clip):
    expected, ranks = on_one_process(method, 2, 2, clip), [rank[method, clip] for rank in outcomes]
    assert sorted(worker for worker, *_ in ranks) == [0, 0, 1, 1]
    for worker, row, _, _ in ranks:
        assert (row - expected[worker]).abs().max() <= 1e-12


def test_states_and_bytes_are_their_formulas():
    """A third of the momentum at each rank; a reduce-scatter and an all-gather of the padded row a step."""
    d = sum(p.numel() for p in llama().parameters())
    width = -(-d // 3)
    assert 3 * width > d, "nothing is padded"
    outcomes = on_processes(3, lambda: on_a_mesh("psgd", 1, 3, None))
    assert [numbers for _, _, numbers, _ in outcomes] == [width, width, d - 2 * width]
    assert [sent for *_, sent in outcomes] == [STEPS * 2 * 8 * 2 * width] * 3


@pytest.mark.slow
def test_tensor_and_shard_ranks_together():
    def member():
        mesh, model = Mesh(worker=2, shard=2, tensor=2), llama()
        cuts = split(model, llama_plan(model), mesh.axis("tensor"), sequence=True)
        optimizer = DistributedOptimizer(model, METHODS["diloco"](2), mesh=mesh, clip=0.6)
        for step in range(STEPS):
            share = batch(step, mesh.coordinates["worker"]).chunk(2)[mesh.coordinates["shard"]]
            optimizer.zero_grad()
            cross_entropy(model(share[:, :-1]), share[:, 1:], mesh.axis("tensor")).backward()
            optimizer.step()
        return mesh.coordinates["worker"], {n: p.detach() for n, p in model.named_parameters()}, cuts

    communicator, strategy = Communicator(workers=2), clipped(METHODS["diloco"](2), 0.6)
    replicas = Stacked(llama, communicator.workers)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STEPS):
        tokens = torch.stack([batch(communicator.step, worker) for worker in range(2)])
        gradient, _ = replicas.compute(whole_loss, [(tokens,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    for worker, pieces, cuts in on_processes(8, member):
        for field in replicas.layout.fields:
            whole = replicas.parameters[worker, field.start : field.stop].view(field.shape)
            assert (pieces[field.name] - cuts[field.name].take(whole)).abs().max() <= 1e-12


def test_what_is_frozen_begins_as_at_the_first_rank_too():
    def member():
        mesh = Mesh(worker=2, shard=2)
        torch.manual_seed(dist.get_rank())
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        model[1].requires_grad_(False)
        DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh)
        with pytest.raises(ValueError, match="group must not be given beside mesh"):
            DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh, group=mesh.group("worker"))
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first, *others = on_processes(4, member)
    assert all(torch.equal(first, other) for other in others)


def test_a_row_too_short_to_share_is_refused():
    with pytest.raises(ValueError, match="shard = 4 ranks need a longer row than 5 numbers"):
        SharedRow(5, Axis("shard", 4, 0))
