"""DistributedOptimizer in a plain loop: the method on real processes, as it is on simulated workers."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from commeff import Communicator, DistributedOptimizer, Strategy, methods, topologies
from commeff.compressors import ScaledSign
from commeff.replicas import Stacked
from tests.laws.processes import on_processes, through_a_file

STEPS = 6
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
METHODS = {
    "psgd": lambda n: methods.psgd(SGD),
    "dsgd": lambda n: methods.dsgd(SGD, topologies.ring(n)),
    "local_sgd": lambda n: methods.local_sgd(SGD, period=3),
    "mem_sgd": lambda n: methods.mem_sgd(SGD, ScaledSign()),
}


def net(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 2)).double()


def batch(step: int, worker: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + worker)
    return torch.randn(8, 5, generator=generator).double(), torch.randint(2, (8,), generator=generator)


def loss(model: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(inputs), targets)


def row(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def simulated(strategy: Strategy, n: int) -> tuple[Tensor, float]:
    replicas, communicator = Stacked(net, range(n)), Communicator(workers=n)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STEPS):
        pairs = [batch(communicator.step, worker) for worker in range(n)]
        together = tuple(torch.stack(part) for part in zip(*pairs, strict=True))
        gradients, _ = replicas.compute(loss, [together], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradients, communicator))
    return replicas.parameters, communicator.ledger.wire_bytes


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("n", [2, 3])
def test_a_plain_loop_is_the_simulation(name: str, n: int) -> None:
    def loop() -> tuple[Tensor, Tensor, float]:
        rank = torch.distributed.get_rank()
        model = net(seed=rank)  # all begin as rank 0's
        optimizer = DistributedOptimizer(model, METHODS[name](n))
        for step in range(STEPS):
            (optimizer if step % 2 else model).zero_grad()  # the model's own throws the gradients away
            loss(model, *batch(step, rank)).backward()
            optimizer.step()
        return row(model), row(optimizer.average_into(net())), optimizer.communicator.ledger.wire_bytes

    wanted, sent = simulated(METHODS[name](n), n)
    for worker, (own, mean, billed) in enumerate(on_processes(n, loop)):
        assert torch.allclose(own, wanted[worker], rtol=0, atol=1e-12)
        assert torch.allclose(mean, wanted.mean(0), rtol=0, atol=1e-12)
        assert billed == sent > 0


def test_parallel_sgd_is_ddp_with_a_torch_optimizer() -> None:
    def both() -> tuple[Tensor, Tensor]:
        rank = torch.distributed.get_rank()
        mine, theirs = net(), net()
        optimizer = DistributedOptimizer(mine, methods.psgd(SGD))
        wrapped = DistributedDataParallel(theirs)
        other = SGD(theirs.parameters())
        for step in range(STEPS):
            for model, steps in ((mine, optimizer), (wrapped, other)):
                steps.zero_grad()
                loss(model, *batch(step, rank)).backward()
                steps.step()
        return row(mine), row(theirs)

    for mine, theirs in on_processes(2, both):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_a_model_under_ddp_or_the_first_fsdp_is_refused() -> None:
    def wrapped() -> None:
        for keep in (False, True):
            sharded = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=keep)
            for model in (sharded, nn.Sequential(sharded, nn.Linear(2, 2).double())):
                with pytest.raises(ValueError, match=r"^(0 of )?the model is .*fully_shard \(FSDP2\).* mesh=$"):
                    DistributedOptimizer(model, methods.psgd(SGD))
        with pytest.raises(ValueError, match=r"give model\.module"):
            DistributedOptimizer(DistributedDataParallel(net()), methods.psgd(SGD))

    on_processes(2, wrapped)


@pytest.mark.parametrize("bucket_mb", [0, 1e-4])
def test_a_missing_gradient_is_refused(bucket_mb: float) -> None:
    """It would count as zero: a method would go on as if the loss did not depend on the parameter."""

    def loop() -> None:
        for used in ([False], [True, False]):
            model = net().append(nn.Linear(2, 2).double())
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=bucket_mb)
            for whole in used:
                loss(model if whole else model[:-1], *batch(0, 0)).backward()
                if whole:
                    optimizer.step()
                    optimizer.zero_grad()
            with pytest.raises(ValueError, match=r"must have a gradient, got none for 4\.weight, 4\.bias: a step"):
                optimizer.step()

    on_processes(2, loop)


def test_a_loop_goes_on_from_its_state() -> None:
    def stopped() -> tuple[Tensor, Tensor]:
        rank = torch.distributed.get_rank()
        model = net()
        optimizer = DistributedOptimizer(model, METHODS["mem_sgd"](2))
        for step in range(STEPS):
            if step == 2:
                saved, parameters = optimizer.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
            optimizer.step(lambda step=step: _backward(optimizer, model, step, rank))
        again = net()
        again.load_state_dict(parameters)
        resumed = DistributedOptimizer(again, METHODS["mem_sgd"](2))
        resumed.load_state_dict(through_a_file(saved))
        for step in range(2, STEPS):
            resumed.step(lambda step=step: _backward(resumed, again, step, rank))
        return row(model), row(again)

    for whole, resumed in on_processes(2, stopped):
        assert torch.equal(whole, resumed)


def _backward(optimizer: DistributedOptimizer, model: nn.Module, step: int, rank: int) -> Tensor:
    optimizer.zero_grad()
    value = loss(model, *batch(step, rank))
    value.backward()
    return value


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_processes_without_a_group_is_told_what_to_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "2")
    with pytest.raises(ValueError, match=r"start with torchrun and call torch\.distributed\.init_process_group"):
        DistributedOptimizer(net(), methods.psgd(SGD))


@pytest.mark.parametrize(
    ("model", "strategy", "words"),
    [
        (net().parameters(), methods.psgd(SGD), "model must be an nn.Module, or a list of them, got a Parameter: "),
        (net(), SGD, "strategy must be a method, got a partial: .* give methods.psgd"),
    ],
)
def test_what_a_torch_optimizer_would_be_given_is_refused_in_a_sentence(model: Any, strategy: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        DistributedOptimizer(model, strategy)


@pytest.mark.parametrize("name", ["dsgd", "local_sgd", "awc"])
@pytest.mark.parametrize("model_first", [True, False])
def test_a_saved_worker_goes_on_as_itself(name: str, model_first: bool) -> None:
    """Also where the workers' parameters differ, and whichever is restored first, the model or the optimizer."""
    builders = METHODS | {"awc": lambda n: methods.dsgd(SGD, topologies.ring(n), order="awc")}

    def loop() -> tuple[Tensor, Tensor]:
        rank, model = torch.distributed.get_rank(), net()
        optimizer = whole = DistributedOptimizer(model, builders[name](2))
        saved: Any = None
        for step in range(STEPS):
            if step == 2:
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            optimizer.zero_grad()
            loss(model, *batch(step, rank)).backward()
            optimizer.step()
        undisturbed, model = row(model), net(seed=5)
        if model_first:
            model.load_state_dict(saved[0])
        optimizer = DistributedOptimizer(model, builders[name](2))
        optimizer.zero_grad()  # what set out is dropped when a state is loaded
        optimizer.load_state_dict(saved[1])
        for step in range(2, STEPS):
            optimizer.zero_grad()
            loss(model, *batch(step, rank)).backward()
            optimizer.step()
        assert optimizer.communicator.ledger.wire_bytes == whole.communicator.ledger.wire_bytes > 0
        return undisturbed, row(model)

    for undisturbed, resumed in on_processes(2, loop):
        assert torch.equal(undisturbed, resumed)


def test_a_frozen_copy_can_be_evaluated() -> None:
    def loop() -> Tensor:
        model, copied = net(), net(seed=3).requires_grad_(False)
        return row(DistributedOptimizer(model, methods.psgd(SGD)).average_into(copied)) - row(model)

    assert all(not difference.any() for difference in on_processes(2, loop))


@pytest.mark.parametrize("calibrated", [False, True])
def test_an_average_model_is_right_to_evaluate(calibrated: bool) -> None:
    """Its statistics are the workers' mean, or, calibrated, those that it sees itself; the same at every process."""

    def loop() -> tuple[Tensor, Tensor, Tensor]:
        rank = torch.distributed.get_rank()
        model, average = net(), net(seed=5)
        optimizer = DistributedOptimizer(model, METHODS["local_sgd"](2))
        for step in range(4):
            _backward(optimizer, model, step, rank)
            optimizer.step()
        loader = [batch(step, rank) for step in range(3)] if calibrated else None
        optimizer.average_into(average, calibrate=loader)
        if calibrated:  # the plain mean over the batches of what the average model's norm gets
            with torch.no_grad():
                seen = torch.stack([average[0](inputs).mean(0) for inputs, _ in loader])
            own = seen.mean(0)
        else:
            own = model[1].running_mean
        for name, value in model.state_dict().items():
            assert average.state_dict()[name].shape == value.shape
        assert int(average[1].num_batches_tracked) == (3 if calibrated else 4)
        return own, average[1].running_mean, torch.cat([value.flatten() for value in average.state_dict().values()])

    (one, mean, first), (other, _, second) = on_processes(2, loop)
    assert torch.allclose(mean, (one + other) / 2, rtol=0, atol=1e-12)
    assert not torch.allclose(one, other, rtol=0, atol=1e-6)
    assert torch.equal(first, second)
