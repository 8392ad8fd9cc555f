"""Dropout over shard ranks: masks of their own, which follow from seed, step, worker and shard."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from commeff.compressors import WorkerRandom
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.tasks.language import GPT
from commeff.sharding import Mesh
from commeff.training.sharding import on_mesh
from commeff.training.task import objective
from tests.commeff.sharding import test_trainer
from tests.laws.processes import on_processes

SEED = 5


class Dropping(test_trainer.Tokens):
    """A GPT that drops a third, whose samples are all the same."""

    def model(self):
        torch.manual_seed(1)
        return GPT(64, layers=2, heads=2, width=16, context=8, dropout=0.3).double()

    def batch(self, step, workers):
        return (super().batch(step, workers)[0][:, :1].expand(-1, 4, -1),)


def on_shards(zero):
    """This rank's losses of steps 0, 1 and again 1, the gradient of step 1, and the loss without dropout."""
    task = Dropping()
    worker = on_mesh(task, Mesh(shard=2), zero=zero, seed=SEED)
    losses, rows = [], []
    for step in (0, 1, 1):
        gradient, loss = worker.compute(objective(task, None), [task.batch(7, [0])], step)
        losses.append(loss.item())
        rows.append(worker._row.whole(gradient.clone())[0])
    names = [name for name, _ in task.model().named_parameters()]
    assert list(worker.computation.parameters) == names
    worker.models[0].eval()
    return losses, rows[1:], task.evaluate(worker.models[0])["val_loss"]


def expected(step):
    """Losses of both shards of worker 0, and their mean gradient, by one process that draws as they do."""
    task, model = Dropping(), Dropping().model()
    losses = []
    for shard, share in enumerate(task.batch(7, [0])[0][0].chunk(2)):
        key = WorkerRandom(SEED, [0], step, ("dropout", 0, "pipeline 0", f"shard {shard}")).bits(1)
        torch.manual_seed(int(key[0, 0]) & 0x7FFFFFFF)
        losses.append(F.cross_entropy(model(share[:, :-1]).flatten(0, 1), share[:, 1:].flatten()))
    torch.stack(losses).mean().backward()
    return [loss.item() for loss in losses], torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.fixture(scope="module")
def outcomes():
    return on_processes(2, lambda: {zero: on_shards(zero) for zero in range(4)})


@pytest.mark.parametrize("zero", range(4))
def test_masks_follow_from_the_place_and_the_step(outcomes, zero):
    (first, other), gradient = expected(1)
    for rank, own in enumerate((first, other)):
        losses, (row, again), evaluated = outcomes[rank][zero]
        assert losses[1] == pytest.approx(own, abs=1e-12)
        assert losses[2] == losses[1] != losses[0], "the step has its masks, whatever was drawn before"
        assert torch.equal(row, again)
        assert (row - gradient).abs().max() <= 1e-12
        assert evaluated == outcomes[0][0][2], "an evaluation drops nothing"
    assert abs(first - other) > 1e-3, "two shards of the same samples draw the same"


@pytest.mark.parametrize("mesh", ["mesh.tensor=2", "mesh.pipeline=2"])
def test_dropout_over_other_ranks_is_refused_with_the_way_out(tmp_path, mesh):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 16)
    words = ["task=language", f"task.data={tmp_path / 'text'}", "task.context=16", "task.dropout=0.1"]
    with pytest.raises(ConfigError, match="split the worker over shard ranks alone"):
        build(compose([*words, mesh]))
    assert build(compose([*words, "mesh.shard=2"])).checkpoint > 0
