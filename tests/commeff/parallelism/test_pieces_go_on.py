"""What ranks of one worker saved apart: statistics of their own, and a file of which one rank alone is in need."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from commeff import Communicator, methods
from commeff.compressors import Layout
from commeff.core.addresses import Address
from commeff.parallelism import Mesh
from commeff.parallelism.boxes import Whereabouts
from commeff.parallelism.saved import Held, copy
from commeff.training.checkpoint import CheckpointRefused, Checkpoints
from commeff.training.mesh_checkpoints import pointed
from commeff.training.named import MemoryLoader, Named
from commeff.training.origin import Origin
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.task import objective
from commeff.training.trainer import train
from tests.commeff.parallelism.test_mesh_checkpoints import alone
from tests.commeff.parallelism.test_rounding import Narrow
from tests.commeff.parallelism.test_trainer import SGD, Tokens
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


def harm(folder, names, numbers):
    """Change a bit of numbers that the second rank alone needs, in some of the last checkpoints."""
    dist.barrier()
    if dist.get_rank():
        content, changed = numbers.numpy().tobytes(), (-numbers).numpy().tobytes()
        for step in pointed(folder)[names]:
            file = step / "__1_0.distcp"
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
        harm(tmp_path / "torn", slice(1), third[0, -3:])
        found.append(gone(tmp_path / "torn", 4))
        for i, row in enumerate((whole["parameters"], third)):
            harm(tmp_path / "torn", slice(i, i + 1), row[0, -3:])
        with pytest.raises(CheckpointRefused, match=r"step-4 cannot be read .*checksum.* and .* cannot be read"):
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


def test_boxes_that_differ_or_are_missing_are_refused():
    held = Held((2, 2))
    held.put((0, 0), torch.ones(1, 2))
    held.put((0, 0), torch.ones(1, 2))
    with pytest.raises(ValueError, match=r"must be one tensor, got two different ones at \(0, 0\)"):
        held.put((0, 0), torch.zeros(1, 2))
    whole = Held((2, 2))
    whole.put((0, 0), torch.empty(2, 2))
    with pytest.raises(ValueError, match="the saved x must have 4 numbers that are needed here, got 2"):
        copy({"x": held}, {"x": whole})


def test_a_state_that_lacks_a_memory_is_refused():
    named = Named(Whereabouts.of(Layout.flat(2)), [0])
    with pytest.raises(ValueError, match="the saved state must hold gradients/period, got none: it is another"):
        MemoryLoader(named, {}, {"period": 3}).shared(Address.of(2).child("gradients").child("period"), 3)


def test_an_origin_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointRefused, match="must have a checkpoint by tensor, got none; go on from another run"):
        Origin(tmp_path / "none").restore(alone(tmp_path / "run", steps=1))
