"""The examples do what their pages say."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import torch

from commeff import DistributedOptimizer, methods
from tests.laws.processes import on_processes

EXAMPLES = Path(__file__).parents[1] / "examples"
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def whole(parts):
    return [parameter.full_tensor().detach().clone() for part in parts for parameter in part.parameters()]


def test_a_trainer_in_torchtitan_s_manner_takes_a_method_where_its_optimizers_are_made():
    """Two replicas on two ranks each under parallel SGD train as one replica on four under SGD."""

    def member():
        torch.set_default_dtype(torch.float64)
        trainer = runpy.run_path(str(EXAMPLES / "trainer.py"))
        train = trainer["train"]
        theirs, before = train(
            lambda parts, _: trainer["OptimizersContainer"](parts, SGD), {"dp_replicate": 1, "dp_shard": 4}, steps=4
        )
        ours, after = train(
            lambda parts, mesh: DistributedOptimizer(parts, methods.psgd(SGD), mesh=mesh), trainer["DIMS"], steps=4
        )
        _, losses = train(trainer["ours"], trainer["DIMS"], steps=12)
        return whole(theirs), whole(ours), before, after, losses

    for theirs, ours, before, after, losses in on_processes(4, member):
        assert all((a - b).abs().max() <= 1e-12 for a, b in zip(theirs, ours, strict=True))
        assert torch.allclose(torch.tensor(before), torch.tensor(after), rtol=0, atol=1e-12)
        assert losses[-1] < 0.9 * losses[0]
