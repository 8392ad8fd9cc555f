"""Loops as people write them: what they mean is what happens, or it is refused in a line."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from commeff import DistributedOptimizer, Strategy, methods, scheduled, topologies
from commeff.communicator.wire.records import broadcast_state
from commeff.compressors import TopK
from tests.commeff.adapters.loops import ADAMW, SGD, complaint, inputs, loss, net, row, train
from tests.laws.processes import on_processes, through_a_file

SMALL = 1e-4  # megabytes: several buckets


def test_nanogpt_s_loop_writes_the_rate_first_and_forgets_gradients_last() -> None:
    """What is posted at `zero_grad` must not keep a rate that is written before backward from being taken."""

    def loop() -> list[Tensor]:
        ends = []
        for wrap in (False, True):
            model = net()
            called = DistributedDataParallel(model) if wrap else model
            optimizer: Any = (
                SGD(model.parameters()) if wrap else DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
            )
            for step in range(4):
                for group in optimizer.param_groups:
                    group["lr"] = 0.1 / (step + 1)
                loss(called, step).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            ends.append(row(model))
        return ends

    for mine, theirs in on_processes(2, loop):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_a_rate_written_before_backward_is_that_of_the_memory_in_each_bucket() -> None:
    def loop() -> list[Tensor]:
        ends = []
        for megabytes in (0, SMALL):
            model = net()
            build = methods.mem_sgd(SGD, TopK(ratio=1.0))
            optimizer = DistributedOptimizer(model, build, bucket_mb=megabytes)
            for step in range(4):
                for group in optimizer.param_groups:
                    group["lr"] = 0.1 / (step + 1)
                loss(model, step).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            ends.append(row(model))
        return ends

    for whole, buckets in on_processes(2, loop):
        assert torch.allclose(whole, buckets, rtol=0, atol=1e-12)


def test_one_rank_that_goes_backward_twice_at_first_keeps_all_from_sending_early() -> None:
    def loop() -> list[Tensor]:
        ends = []
        for megabytes in (0, SMALL):
            model = net()
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            for step in range(3):
                optimizer.zero_grad()
                passes = 2 if step else 2 - torch.distributed.get_rank()
                for each in range(passes):
                    (loss(model, 10 * step + each) / passes).backward()
                optimizer.step()
            ends.append(row(model))
        return ends

    for whole, buckets in on_processes(2, loop):
        assert torch.allclose(whole, buckets, rtol=0, atol=1e-12)


def test_a_backward_pass_that_was_broken_off_is_forgotten() -> None:
    """Nothing has been sent yet, since the last layers' gradients go first: `zero_grad` begins anew."""

    def loop() -> list[Tensor]:
        ends = []
        for broken in (False, True):
            model = net()
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
            for step in range(3):
                if broken and step:  # the first one shows that gradients may be sent early
                    optimizer.zero_grad()
                    inputs(step).matmul(model[0].weight.T).sum().backward()  # of the last bucket alone
                optimizer.zero_grad()
                loss(model, step).backward()
                optimizer.step()
            ends.append(row(model))
        return ends

    for plain, again in on_processes(2, loop):
        assert torch.equal(plain, again)


def test_gradients_are_made_zero_if_they_are_not_to_be_none() -> None:
    """Then a layer that is not used has a gradient of zero, at one rank or all, as with torch's optimizers."""

    def loop() -> list[Tensor]:
        ends = []
        for megabytes in (0, SMALL):
            model = net()
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            train(model, optimizer, 2)
            for step in range(2, 4):
                (optimizer if step % 2 else model).zero_grad(set_to_none=False)
                assert not any(bool(parameter.grad.any()) for parameter in model.parameters())
                used = model if torch.distributed.get_rank() else model[:3]
                used(inputs(step)).square().mean().backward()
                optimizer.step()
            ends.append(row(model))
        return ends

    (mine, early), (other, _) = on_processes(2, loop)
    assert torch.equal(mine, other)
    assert torch.allclose(mine, early, rtol=0, atol=1e-12)


def test_sparse_gradients_are_as_if_they_were_dense() -> None:
    def loop() -> list[Tensor]:
        ends = []
        for sparse in (False, True):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 1))
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=1e-5)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.tensor([1, 2 + torch.distributed.get_rank()])).square().mean().backward()
                optimizer.step()
            ends.append(row(model))
        return ends

    for dense, sparse in on_processes(2, loop):
        assert torch.equal(dense, sparse)


def test_a_rate_that_is_refused_has_not_been_taken_over() -> None:
    def loop() -> None:
        for strategy in (methods.mem_sgd(SGD, TopK(k=9)), methods.qg_dsgdm(SGD, topologies.ring(2))):
            optimizer = DistributedOptimizer(net(), strategy, groups=lambda name, p: int(p.ndim < 2))
            optimizer.param_groups[1]["lr"] = 0.1
            assert "must have one learning rate, got (0.05, 0.1)" in complaint(optimizer.zero_grad)
            assert [options["lr"] for options in optimizer.strategy.local.options.values()] == [0.05, 0.05]

    on_processes(2, loop)


BUILDERS: dict[str, Callable[[], Strategy]] = {
    "diloco": lambda: methods.diloco(ADAMW, period=3),
    "mem_sgd": lambda: methods.mem_sgd(ADAMW, TopK(k=9)),
    "awc": lambda: methods.dsgd(ADAMW, topologies.ring(2), order="awc"),
}


def decayed(model: nn.Module) -> list[dict[str, Any]]:
    """Groups, the second of which comes first in the model."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [(name, p) for name, p in model.named_parameters() if p.ndim < 2]
    return [{"params": others, "weight_decay": 0.0}, {"params": matrices}]


def test_groups_and_a_scheduler_go_on_in_the_middle_of_a_period() -> None:
    def loop() -> list[tuple[Tensor, Tensor]]:
        ends = []
        for build in BUILDERS.values():

            def begin(model: nn.Module, build: Callable[[], Strategy] = build) -> tuple[DistributedOptimizer, Any]:
                optimizer = DistributedOptimizer(model, build(), groups=decayed(model), bucket_mb=SMALL, clip=0.5)
                return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)

            model = net()
            optimizer, scheduler = begin(model)
            train(model, optimizer, 4, scheduler=scheduler)
            saved = through_a_file(optimizer.state_dict()), copy.deepcopy(scheduler.state_dict())
            train(model, optimizer, 4, start=4, scheduler=scheduler)
            again = net(seed=3)
            optimizer, scheduler = begin(again)
            optimizer.load_state_dict(saved[0])
            scheduler.load_state_dict(saved[1])
            assert optimizer.param_groups[0]["lr"] == scheduler.get_last_lr()[0] < 0.01
            train(again, optimizer, 4, start=4, scheduler=scheduler)
            ends.append((row(model), row(again)))
        return ends

    for ends in on_processes(2, loop):
        assert all(torch.equal(whole, resumed) for whole, resumed in ends)


@pytest.mark.parametrize("name", ["slowmo", "qg_dsgdm", "gradient_tracking", "d2"])
def test_torch_s_scheduler_is_a_schedule_of_the_method_s_own(name: str) -> None:
    """Where a memory is in units of the last rate, or of steps at another one."""
    halved = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
    plain = partial(torch.optim.SGD, lr=0.05)
    more: Any = {"period": 2} if name == "slowmo" else {"topology": topologies.ring(2)}

    def loop() -> list[Tensor]:
        ends = []
        for factory, moves in ((plain, halved), (scheduled(plain, halved), None)):
            model = net()
            optimizer = DistributedOptimizer(model, getattr(methods, name)(factory, **more))
            train(model, optimizer, 7, scheduler=moves(optimizer) if moves else None)
            ends.append(row(model))
        return ends

    for theirs, own in on_processes(2, loop):
        assert torch.equal(theirs, own)


def test_states_of_others_are_refused_before_anything_is_restored() -> None:
    def loop() -> list[str]:
        model = net()
        strategy = partial(methods.local_sgd, SGD, period=5)
        optimizer = DistributedOptimizer(model, strategy())
        train(model, optimizer, 2)
        first = broadcast_state(optimizer.state_dict())
        other = net().append(nn.Linear(2, 2).double())
        mine = net()
        before = row(mine)
        found = []
        for each, state, settings in (
            (net(), first, {}),
            (mine, SGD(net().parameters()).state_dict(), {}),
            (other, optimizer.state_dict(), {}),
            (mine, optimizer.state_dict(), {"groups": decayed(mine)}),
            (mine, optimizer.state_dict() | {"worker": [torch.distributed.get_rank(), 4]}, {}),
        ):
            to = DistributedOptimizer(each, strategy(), **settings)
            found.append(complaint(lambda to=to, state=state: to.load_state_dict(state)))
        assert torch.equal(row(mine), before)
        return found

    for rank, (another, torchs, larger, grouped, of_four) in enumerate(on_processes(2, loop)):
        assert f"must be that of worker {rank} of 2, got that of worker {rank} of 4" in of_four
        assert rank == 0 or "must be that of worker 1 of 2, got that of worker 0 of 2" in another
        assert "of a DistributedOptimizer, got state, param_groups" in torchs
        assert all("of these parameters, buffers and groups, got others" in words for words in (larger, grouped))


def test_what_would_go_wrong_silently_is_refused() -> None:
    def loop() -> list[str]:
        model, twin = net(), net(seed=1)
        strategy = methods.local_sgd(SGD, period=2)
        first, second = DistributedOptimizer(model, strategy), DistributedOptimizer(twin, strategy)
        empty, plain = net(), net()
        empty.register_parameter("none", nn.Parameter(torch.empty(0, dtype=torch.float64)))
        return [
            complaint(lambda: train(twin, second, 1)),
            complaint(lambda: train(model, first, 1)),
            complaint(lambda: copy.deepcopy(second)),
            complaint(lambda: pickle.dumps(second)),
            complaint(lambda: DistributedOptimizer(nn.LazyLinear(3), methods.psgd(SGD))),
            complaint(lambda: DistributedOptimizer(nn.Linear(3, 3, device="meta"), methods.psgd(SGD))),
            complaint(lambda: DistributedOptimizer(empty, methods.psgd(SGD))),
            complaint(lambda: methods.psgd(partial(torch.optim.SparseAdam, lr=0.1))),
            complaint(lambda: DistributedOptimizer(plain, methods.psgd(SGD), groups=list(plain.parameters()))),
            complaint(lambda: DistributedOptimizer(plain, methods.psgd(SGD), groups=[{"lr": 0.1}])),
            complaint(
                lambda: DistributedOptimizer(plain, methods.psgd(SGD), groups=lambda name, p: [None, 0][p.ndim - 1])
            ),
        ]

    for fine, shared, copied, pickled, lazy, meta, empty, sparse, bare, without, numbers in on_processes(2, loop):
        assert fine == "fine"
        assert "a strategy must have one optimizer, got one that another optimizer was made with since" in shared
        assert "TypeError: an optimizer of several processes must not be copied or pickled" in copied
        assert copied == pickled
        assert "got weight of a lazy module: call the model once first" in lazy
        assert "got weight on meta: materialise the model first" in meta
        assert "must have numbers, got none in none: call none.requires_grad_(False)" in empty
        assert "must take dense gradients, got SparseAdam" in sparse
        assert 'must be dicts with "params" and options, got a Parameter without' in bare
        assert "got a dict without" in without
        assert "0, 1, ..., got [0, None]" in numbers
