"""What ranks of one worker saved apart: statistics of their own, and a file of which one rank alone is in need."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from commeff import Communicator, methods
from commeff.sharding import Mesh
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import CheckpointRefused
from commeff.training.resume import resume
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.task import objective
from commeff.training.trainer import train
from tests.commeff.sharding.test_rounding import Narrow
from tests.commeff.sharding.test_trainer import SGD, Tokens
from tests.commeff.training.test_shared_checkpoints import alone
from tests.laws.processes import on_processes


class Normed(Tokens):
    """Shard ranks have other samples, of which batch normalisation keeps statistics."""

    workers = 1

    def model(self):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()

    def batch(self, step, workers):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(1, 8, 5, generator=generator).double()
        return inputs, torch.randint(3, (1, 8), generator=generator)

    def inputs_targets(self, inputs, targets):
        return (inputs,), targets

    def criterion(self, outputs, targets, vocabulary=None):
        return F.cross_entropy(outputs, targets)

    def calibration(self):
        return [(self.batch(0, [0])[0][0],)]


def gone(folder, steps):
    """This rank's parameters and statistics after so many steps."""
    mesh, task = Mesh(shard=2), Normed()
    worker = on_mesh(task, mesh, zero=1)
    communicator = Communicator(group=mesh.group("worker"))
    checkpoints = Checkpoints(folder, every=1)
    train(
        task,
        methods.diloco(SGD, period=3),
        communicator,
        RunSettings(steps=steps),
        worker=worker,
        checkpoints=checkpoints,
    )
    return {"parameters": worker.parameters.clone()} | {name: b.clone() for name, b in worker.buffers.items()}


def harm(folder, step, numbers):
    """Change a bit of numbers that the second rank alone needs, in a checkpoint."""
    dist.barrier()
    if dist.get_rank():
        content, changed = numbers.numpy().tobytes(), (-numbers).numpy().tobytes()
        for file in folder.glob(f"step-{step}*.1.pt"):
            before = file.read_bytes()
            assert content in before
            file.write_bytes(before.replace(content, changed))
    dist.barrier()


def test_each_rank_goes_on_with_its_own_statistics_and_all_pass_over_what_one_cannot_read(tmp_path):
    def member():
        whole = gone(tmp_path / "whole", 4)
        gone(tmp_path / "parts", 3)
        found = [whole, gone(tmp_path / "parts", 4)]
        third = gone(tmp_path / "torn", 3)["parameters"]
        harm(tmp_path / "torn", 3, third[0, -3:])
        found.append(gone(tmp_path / "torn", 4))
        for step, row in ((4, whole["parameters"]), (3, third)):
            harm(tmp_path / "torn", step, row[0, -3:])
        with pytest.raises(CheckpointRefused, match=r"latest\.pt cannot be read .*checksum.* and .* cannot be read"):
            gone(tmp_path / "torn", 4)
        return found

    first, second = on_processes(2, member)
    statistics = [name for name in first[0] if name.endswith("running_mean")]
    assert statistics
    assert not any(torch.equal(first[0][name], second[0][name]) for name in statistics)
    for whole, *others in (first, second):
        for other in others:
            assert all(torch.equal(whole[name], other[name]) for name in whole)


def test_scaled_gradients_leave_when_they_are_known_to_be_finite():
    def member():
        called = {}
        for precision in ("bf16", "fp16"):
            task, mesh = Narrow(), Mesh(shard=2)
            worker, spans = on_mesh(task, mesh, zero=3, precision=precision), list[tuple[int, int]]()
            half, d = worker.layout.fields[4].start, worker.layout.d
            listener = partial(lambda spans, *span: spans.append(span), spans)
            told = objective(task, None), [task.batch(0, worker.workers)], 0, 0.0, [(0, half), (half, d)]
            worker.compute(*told, listener)
            called[precision] = bool(spans)
        return called

    assert on_processes(2, member) == [{"bf16": True, "fp16": False}] * 2


def test_an_origin_without_a_checkpoint_is_refused(tmp_path):
    run = alone(tmp_path / "run", steps=1)
    with pytest.raises(CheckpointRefused, match="must have a checkpoint, got none; go on from another run"):
        resume(run, None, None, 2, tmp_path / "none")
