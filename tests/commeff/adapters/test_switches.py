"""What a loop that was written for DDP may ask of the drop-in, and what it may evaluate and go on from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from commeff import DistributedOptimizer, methods, scheduled, topologies
from commeff.sharding import Mesh
from tests.commeff.adapters.loops import SGD, complaint, inputs, loss, net, row, train
from tests.laws.processes import on_processes, through_a_file

SMALL = 1e-4  # megabytes: several buckets
PASSES = 3


def bytes_sent(optimizer: DistributedOptimizer) -> float:
    return sum(optimizer.communicator.transport.sent.values())


def accumulated(model: Any, optimizer: Any, quiet: Callable[[], Any], steps: int = 3) -> list[int]:
    """Steps of several passes, all but the last within `quiet`; the bytes that each step has sent before it."""
    early = []
    for step in range(steps):
        optimizer.zero_grad()
        ours = isinstance(optimizer, DistributedOptimizer)
        before = bytes_sent(optimizer) if ours else 0
        for each in range(PASSES):
            with quiet() if each < PASSES - 1 else nullcontext():
                (loss(model, 10 * step + each) / PASSES).backward()
        if ours:
            early.append(bytes_sent(optimizer) - before)
        optimizer.step()
    return early


@pytest.mark.parametrize("rounds", [1, PASSES])
def test_the_last_pass_of_a_step_is_sent_while_it_runs(rounds: int) -> None:
    """Of a method that wants several minibatches, too (NEOLITHIC's `accumulate`)."""

    def loop() -> tuple[Tensor, Tensor, list[int]]:
        strategies = [methods.psgd(SGD), methods.psgd(SGD)]
        for strategy in strategies:
            strategy.accumulate = rounds
        models = [net(), net()]
        plain = DistributedOptimizer(models[0], strategies[0], bucket_mb=0)
        accumulated(models[0], plain, nullcontext)
        optimizer = DistributedOptimizer(models[1], strategies[1], bucket_mb=SMALL)
        early = accumulated(models[1], optimizer, optimizer.no_sync)
        return row(models[0]), row(models[1]), early

    for whole, hidden, early in on_processes(2, loop):
        assert torch.allclose(whole, hidden, rtol=0, atol=1e-12)
        assert early[0] == 0, "the first step shows whether gradients are final"
        assert min(early[1:]) > 0


def test_no_sync_may_be_within_no_sync_and_around_zero_grad() -> None:
    """The outermost one ends it."""

    def loop() -> tuple[Tensor, Tensor, list[int], list[int]]:
        models, quiet, early = [net(), net()], [], []
        for model, bucket_mb in zip(models, (0, SMALL), strict=True):
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=bucket_mb)
            for step in range(3):
                before = bytes_sent(optimizer)
                with optimizer.no_sync():
                    optimizer.zero_grad()
                    with optimizer.no_sync():
                        loss(model, 10 * step).backward()
                    loss(model, 10 * step + 1).backward()
                quiet.append(bytes_sent(optimizer) - before)
                loss(model, 10 * step + 2).backward()
                early.append(bytes_sent(optimizer) - before)
                optimizer.step()
        return row(models[0]), row(models[1]), quiet, early

    for whole, hidden, quiet, early in on_processes(2, loop):
        assert torch.allclose(whole, hidden, rtol=0, atol=1e-12)
        assert not any(quiet)
        assert early[:4] == [0] * 4
        assert min(early[4:]) > 0


def test_accumulation_is_that_of_ddp() -> None:
    def loop() -> tuple[Tensor, Tensor]:
        model, other = net(), net()
        optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
        accumulated(model, optimizer, optimizer.no_sync)
        wrapped = DistributedDataParallel(other, broadcast_buffers=False)
        accumulated(wrapped, SGD(other.parameters()), wrapped.no_sync)
        return row(model), row(other)

    for ours, theirs in on_processes(2, loop):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_gradients_that_were_sent_take_no_more() -> None:
    def loop() -> str:
        model = net()
        optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
        train(model, optimizer, 2)
        loss(model, 2).backward()
        return complaint(optimizer.no_sync().__enter__)

    for told in on_processes(2, loop):
        assert told.startswith("RuntimeError: no_sync must be around all passes of a step but the last")


@pytest.mark.parametrize("bucket_mb", [0, SMALL])
def test_parameters_that_a_loss_does_not_use_have_a_gradient_of_zero_as_in_ddp(bucket_mb: float) -> None:
    """One process uses a layer, the other does not, and in some steps none."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = net(), nn.Linear(2, 2).double()
            with torch.no_grad():
                self.head.weight.fill_(1.0), self.head.bias.fill_(0.5)

        def forward(self, x: Tensor, use: bool = False) -> Tensor:
            return self.body(x).square().mean() + (self.head(torch.ones(1, 2).double()).square().mean() if use else 0)

    def loop() -> tuple[Tensor, Tensor]:
        plain = partial(torch.optim.SGD, lr=0.05)
        ends = []
        for wrap in (False, True):
            model = Both()
            called: Any = DistributedDataParallel(model, find_unused_parameters=True) if wrap else model
            optimizer: Any = (
                plain(model.parameters())
                if wrap
                else DistributedOptimizer(model, methods.psgd(plain), bucket_mb=bucket_mb, find_unused_parameters=True)
            )
            for step in range(4):
                optimizer.zero_grad()
                called(inputs(step), step == dist.get_rank()).backward()
                optimizer.step()
            ends.append(row(model))
        return ends[0], ends[1]

    for ours, theirs in on_processes(2, loop):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["psgd", "local_sgd"])
def test_the_norm_that_was_clipped_can_be_read(name: str) -> None:
    def loop() -> tuple[float, float, Any, Any]:
        model = net()
        strategy = methods.psgd(SGD) if name == "psgd" else methods.local_sgd(SGD, period=2)
        optimizer = DistributedOptimizer(model, strategy, clip=1e-3, bucket_mb=SMALL)
        before = optimizer.gradient_norm
        loss(model, 0).backward()
        own = torch.cat([p.grad.flatten() for p in model.parameters()])  # type: ignore[union-attr]
        if name == "psgd":
            own = own.clone()
            dist.all_reduce(own)
            own /= 2
        expected = float(own.norm())
        optimizer.step()
        unclipped = DistributedOptimizer(net(), methods.psgd(SGD))
        return expected, float(optimizer.gradient_norm or 0), before, unclipped.gradient_norm

    for expected, norm, before, unclipped in on_processes(2, loop):
        assert norm == pytest.approx(expected, abs=1e-12)
        assert (before, unclipped) == (None, None)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_one_process_that_nothing_has_started_is_one_worker(clip: float | None) -> None:
    """Its loop is that of the plain optimizer."""
    ends = []
    for plain in (True, False):
        model = net()
        optimizer: Any = SGD(model.parameters()) if plain else DistributedOptimizer(model, methods.psgd(SGD), clip=clip)
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 5, generator=generator).double()).square().mean().backward()
            if plain and clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        ends.append(row(model if plain else optimizer.average_into(net())))
    assert optimizer.communicator.n == 1
    assert torch.allclose(*ends, rtol=0, atol=1e-12)


def test_a_job_goes_on_with_another_number_of_workers_from_their_mean() -> None:
    """As `train` does: the mean, the clock and the schedule go on, memories begin anew."""
    decaying = scheduled(SGD, partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5))

    def saved() -> dict[str, Any]:
        model = net()
        optimizer = DistributedOptimizer(model, methods.local_sgd(decaying, period=8))
        train(model, optimizer, 3)
        return through_a_file(optimizer.state_dict())

    states = on_processes(3, saved)
    mean = torch.stack([state["parameters"] for state in states]).mean(0)[0]
    means = torch.stack([state["buffers"]["1.running_mean"] for state in states]).mean(0)

    def again() -> tuple[Tensor, Tensor, float, int, str, Tensor]:
        model = net(seed=1)
        optimizer = DistributedOptimizer(model, methods.local_sgd(decaying, period=8))
        told = complaint(lambda: optimizer.load_state_dict(states[dist.get_rank()]))
        optimizer.load_state_dict(states)
        begun = row(model).clone()
        rate = optimizer.param_groups[0]["lr"]
        train(model, optimizer, 2, start=3)
        return begun, model[1].running_mean.clone(), rate, optimizer.communicator.step, told, row(model)

    for begun, statistics, rate, step, told, end in on_processes(2, again):
        assert torch.allclose(begun, mean, rtol=0, atol=1e-12)
        assert not torch.equal(statistics, means)
        assert rate == pytest.approx(0.05 * 0.5**3)
        assert step == 5
        assert "give load_state_dict a list of all" in told
        assert torch.isfinite(end).all()

    def same() -> bool:
        model = net(seed=1)
        optimizer = DistributedOptimizer(model, methods.local_sgd(decaying, period=8))
        optimizer.load_state_dict(states)
        return torch.equal(row(model), states[dist.get_rank()]["parameters"][0])

    assert all(on_processes(3, same))

    def wrong() -> str:
        optimizer = DistributedOptimizer(net(), methods.local_sgd(decaying, period=8))
        return complaint(lambda: optimizer.load_state_dict(states[1:]))

    assert "states must be those of all workers, in their order" in on_processes(1, wrong)[0]


@pytest.mark.parametrize("split", ["", "FSDP2", "zero=3"])
def test_the_average_is_evaluated_in_place(split: str) -> None:
    """Training goes on as if nobody had looked, and no second model is made."""

    def begun() -> tuple[nn.Module, DistributedOptimizer]:
        model, method = net(), methods.dsgd(SGD, topologies.ring(2 if split else 4))
        if split == "zero=3":
            return model, DistributedOptimizer(model, method, mesh=Mesh(worker=2, shard=2), zero=3)
        if split == "FSDP2":
            mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
            fully_shard(model, mesh=mesh["dp_shard"])
            return model, DistributedOptimizer(model, method, mesh=mesh)
        return model, DistributedOptimizer(model, method)

    def value(model: nn.Module) -> float:
        with torch.no_grad():
            found = float(model.eval()(torch.ones(3, 5).double()).square().mean())
        model.train()
        return found

    def loop() -> tuple[list[float], list[float], set[str]]:
        ends, values, told = [], [], set()
        for looks in (False, True):
            model, optimizer = begun()
            saved = optimizer.state_dict()
            for step in range(4):
                loss(model, step).backward()
                optimizer.step()
                optimizer.zero_grad()
                if looks and step == 1:
                    with optimizer.averaged():
                        values.append(value(model))
                        with optimizer.averaged():
                            values.append(value(model))
                        acts = (optimizer.step, optimizer.zero_grad, optimizer.state_dict)
                        told = {complaint(act) for act in (*acts, partial(optimizer.load_state_dict, saved))}
                    if not split:
                        values.append(value(optimizer.average_into(net())))
            ends.append(value(model))
        return ends, values, told

    found = on_processes(4, loop)
    for (undisturbed, looked_at), values, told in found:
        assert undisturbed == looked_at
        assert values == pytest.approx([values[0]] * len(values), abs=1e-12)
        assert told == {
            "RuntimeError: within averaged() the model is not this worker's: leave it to train, save or load"
        }
    of_shards = len({round(values[0], 12) for _, values, _ in found})
    assert of_shards == (2 if split else 1), "all workers have one average; shard ranks have statistics of their own"
