"""The mean over shares of a batch, at shard ranks or one after the other, is that of the batch, or is refused."""

from __future__ import annotations

import math
from functools import partial
from math import prod

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from commeff import Communicator, DistributedOptimizer, methods
from commeff.sharding import Axis, Mesh
from commeff.sharding.computation import weighed
from commeff.sharding.fit import batch_faults
from commeff.sharding.pieces import fitted
from commeff.sharding.vocabulary import IGNORED
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from tests.commeff.sharding.test_trainer import SGD, Tokens
from tests.laws.processes import by_case, on_processes

CASES = {
    "shards": ({"shard": 2}, {"zero": 1}),
    "micro-batches": ({"pipeline": 2}, {"micro_batches": 3}),
    "both": ({"shard": 2, "pipeline": 2}, {"micro_batches": 3, "zero": 2}),
    "shards of pieces": ({"shard": 2, "tensor": 2}, {"zero": 3}),
}


class Masked(Tokens):
    """Of one sample no target counts, of others all, some or one."""

    workers = 1
    hidden = torch.tensor([8, 0, 3, 7, 5, 0])

    def inputs_targets(self, tokens):
        inputs, targets = super().inputs_targets(tokens[..., :9])
        hidden = tokens[:, 9:]
        return inputs, targets.masked_fill(torch.arange(8) < hidden, -100)

    def batch(self, step, workers):
        (tokens,) = super().batch(step, workers)
        return (torch.cat((tokens, self.hidden.roll(step)[None, :, None]), -1),)


def losses(degrees, given):
    """The losses on a mesh, or of a whole worker without one."""
    task, settings = Masked(), RunSettings(3, evaluate_every=2)
    if degrees is None:
        summary = train(task, methods.psgd(SGD), Communicator(workers=1), settings)
    else:
        mesh = Mesh(**degrees)
        worker = on_mesh(task, mesh, **given)
        strategy = fitted(methods.psgd(SGD), worker.partition, "own")
        summary = train(task, strategy, Communicator(group=mesh.group("worker")), settings, worker=worker)
    return {name: value for name, value in summary.items() if "loss" in name}


@pytest.mark.parametrize("ranks", [2, 4])
def test_targets_that_do_not_count_weigh_as_in_the_whole_batch(ranks):
    cases = [case for case, (degrees, _) in CASES.items() if prod(degrees.values()) == ranks]
    whole = losses(None, {})
    assert {"minibatch_loss", "val_loss"} <= set(whole)
    for found in on_processes(ranks, lambda: by_case(cases, lambda case: losses(*CASES[case]))):
        assert all(of == pytest.approx(whole, rel=1e-12) for of in found.values())


def test_what_has_no_targets_that_count_weighs_nothing_and_other_targets_count_alike():
    nothing, loss = torch.full((2,), IGNORED), torch.tensor(math.nan, requires_grad=True)
    assert weighed(loss, nothing, nothing) == 0
    assert weighed(loss, nothing, torch.tensor([IGNORED, IGNORED, 1, 2])) == 0
    for dtype in (torch.float64, torch.int32):
        assert weighed(torch.tensor(3.0), nothing.to(dtype), torch.ones(4, dtype=dtype)) == 3


def test_shares_that_are_not_equal_are_refused():
    with pytest.raises(ValueError, match="the length of dimension 0 must be a multiple of shard = 4, got 10"):
        Axis("shard", 4).part(torch.zeros(10, 3), 0)
    (fault,) = batch_faults(10, 4, 1)
    assert fault.startswith("batch must be a multiple of shard x micro_batches = 4 x 1, got 10")


@pytest.mark.parametrize("zero", [0, 2])
def test_in_a_loop_of_ones_own_the_loss_of_a_share_is_weighed_by_its_length(zero):
    torch.manual_seed(0)
    batch, model = torch.randn(7, 4), nn.Linear(4, 3)
    whole = nn.Linear(4, 3)
    whole.load_state_dict(model.state_dict())
    F.mse_loss(whole(batch), batch[:, :3]).backward()
    expected = [p.detach() - 0.1 * p.grad for p in whole.parameters()]

    def member():
        mesh = Mesh(shard=2)
        optimizer = DistributedOptimizer(model, methods.psgd(partial(torch.optim.SGD, lr=0.1)), mesh=mesh, zero=zero)
        own = batch.chunk(2)[mesh.coordinates["shard"]]
        (F.mse_loss(model(own), own[:, :3]) * (2 * len(own) / len(batch))).backward()
        optimizer.step()
        return [p.detach() for p in model.parameters()]

    for found in on_processes(2, member):
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-7)
