"""`average_into`: whatever a model holds is in the average one, or it is refused in a line."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from commeff import DistributedOptimizer, methods
from tests.commeff.adapters.loops import SGD, complaint, inputs, net, row, train
from tests.laws.processes import on_processes

KINDS = (torch.bool, torch.int64, torch.uint8, torch.float16, torch.bfloat16, torch.float64, torch.complex64)


class Kept(nn.Module):
    """Buffers of all kinds, which differ between workers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()
        own = torch.distributed.get_rank() + 1.0
        for dtype in KINDS:
            self.register_buffer("in_" + str(dtype)[6:], torch.full((2,), own).to(dtype))
        self.register_buffer("scalar", torch.tensor(own), persistent=False)
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("nothing", None)
        self.register_buffer("turned", torch.full((2, 3), own).t())
        self.register_buffer("expanded", torch.full((1,), own).expand(3, 4))

    def forward(self, x: Tensor) -> Any:
        return self.inner(x)


def test_buffers_of_all_kinds_begin_as_those_of_rank_0_and_are_averaged() -> None:
    def loop() -> None:
        model = Kept()
        optimizer = DistributedOptimizer(model, methods.local_sgd(SGD, period=9))
        for name, buffer in model.named_buffers(recurse=False):
            assert (buffer == 1).all(), name
            assert buffer.shape == getattr(Kept(), name).shape
        for buffer in (
            model.in_float16,
            model.in_float64,
            model.scalar,
            model.expanded.narrow(0, 0, 1).narrow(1, 0, 1),
        ):
            buffer.fill_(2.0 * torch.distributed.get_rank())
        for buffer in (model.in_int64, model.in_bool):
            buffer.fill_(2 * torch.distributed.get_rank())
        average = optimizer.average_into(copy.deepcopy(model))
        assert not average.in_int64.any(), "that of rank 0"
        assert not average.in_bool.any()
        for name in ("in_float16", "in_float64", "scalar", "expanded"):
            assert (getattr(average, name) == 1).all(), name
        resumed = Kept()
        DistributedOptimizer(resumed, methods.local_sgd(SGD, period=9)).load_state_dict(optimizer.state_dict())
        for mine, saved in zip(resumed.buffers(), model.buffers(), strict=True):
            assert torch.equal(mine, saved)

    on_processes(2, loop)


def test_what_is_frozen_comes_too() -> None:
    """A frozen part of a model is not in the method, but it is in the model: also where workers have changed theirs."""

    def loop() -> None:
        model, other = net(), net(seed=5)
        model[3].requires_grad_(False)
        optimizer = DistributedOptimizer(model, methods.psgd(SGD))
        train(model, optimizer, 2)
        assert torch.equal(row(optimizer.average_into(other)), row(model))
        with torch.no_grad():  # as a teacher does
            model[3].weight.fill_(2.0 * torch.distributed.get_rank())
        assert (optimizer.average_into(other)[3].weight == 1).all()

    on_processes(2, loop)


def test_a_compiled_model_is_the_model() -> None:
    def loop() -> None:
        model, saved = net(), {}
        for compiled in (False, True):
            called: Any = torch.compile(model, backend="eager") if compiled else model
            optimizer = DistributedOptimizer(called, methods.psgd(SGD))
            if compiled:
                optimizer.load_state_dict(saved)
            train(called, optimizer, 2)
            saved = optimizer.state_dict()
            assert torch.equal(row(optimizer.average_into(net(seed=5))), row(model))
        assert torch.equal(row(optimizer.average_into(torch.compile(net(seed=5)))), row(model))

    on_processes(2, loop)


def test_calibration_leaves_modes_and_momenta_as_they_were() -> None:
    def loop() -> None:
        model = net().insert(0, nn.BatchNorm1d(5, track_running_stats=False)).append(nn.BatchNorm1d(2, momentum=None))
        model.double()
        optimizer = DistributedOptimizer(model, methods.local_sgd(SGD, period=9))
        train(model, optimizer, 2)
        average = copy.deepcopy(model)
        average[2].eval()
        optimizer.average_into(average, calibrate=[inputs(step) for step in range(3)])
        assert [part.training for part in average] == [True, True, False, True, True, True]
        assert [average[0].running_mean, average[5].momentum, average[2].momentum] == [None, None, 0.1]
        assert int(average[5].num_batches_tracked) == int(average[2].num_batches_tracked) == 3

    on_processes(2, loop)


def test_what_cannot_be_the_average_is_refused_in_a_line() -> None:
    def loop() -> list[str]:
        model = net()
        optimizer = DistributedOptimizer(model, methods.local_sgd(SGD, period=9))
        train(model, optimizer, 1)
        before = row(model)
        found = [
            complaint(lambda other=other, batches=batches: optimizer.average_into(other, calibrate=batches))
            for other, batches in (
                (model, None),
                (DistributedDataParallel(net()), None),
                (net()[:2], None),
                (net().append(nn.Linear(2, 2)), None),
                (net(), iter([])),
                (net(), [{"input": inputs(0)}]),
            )
        ]
        assert torch.equal(row(model), before)
        return found

    for found in on_processes(2, loop):
        for words, what in zip(
            (
                "got the one that is trained: workers would go on from their average; give copy.deepcopy(model)",
                "got 0.bias, 0.weight, 1.bias in one of them only: give copy.deepcopy(model), not wrapped",
                "got 3.bias, 3.weight in one of them only",
                "got 4.bias, 4.weight in one of them only",
                "must have at least one minibatch, got none",
                "tuples with the input first, got a dict",
            ),
            found,
            strict=True,
        ):
            assert words in what, what
