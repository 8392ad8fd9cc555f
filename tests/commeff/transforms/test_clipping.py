"""Clipping: the norm that the local step sees, whatever the engine."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from commeff import Communicator, DistributedOptimizer, Layout, methods
from commeff.adapters.ddp_hook import HookState, average_hook
from commeff.compressors import Dense, TopK
from commeff.core import Keep, overlap
from commeff.core.properties import is_rowwise
from commeff.replicas import Stacked
from commeff.transforms import bucketed, clipped
from commeff.transforms.clipping import Clipped
from tests.laws.processes import on_processes

SGD = partial(torch.optim.SGD, lr=1.0)
GRADIENT = torch.tensor([[3.0, 0.0, 4.0], [0.0, -0.3, 0.4], [3.0, -3.0, 0.0]], dtype=torch.float64)


def one_step(strategy, gradient):
    communicator, x = Communicator(workers=len(gradient)), torch.zeros_like(gradient)
    strategy.start(x, Layout.of([("a", (1,)), ("b", (2,))]), communicator)
    return -strategy.step(x, gradient, communicator)


@pytest.mark.parametrize("megabytes", [0, 8e-6], ids=["whole", "in buckets"])
def test_an_average_is_clipped_after_it_was_made(megabytes):
    mean = GRADIENT.mean(0, keepdim=True)
    step = one_step(clipped(bucketed(methods.psgd(SGD), megabytes), 0.5), GRADIENT)
    assert torch.allclose(step, (mean * 0.5 / (mean.norm() + 1e-6)).expand(3, -1), atol=1e-14)


def test_gradients_that_stay_are_clipped_one_by_one():
    step = one_step(clipped(methods.local_sgd(SGD, period=2), 1.0), GRADIENT)
    norms = GRADIENT.norm(dim=1, keepdim=True)
    assert torch.allclose(step, GRADIENT * (1 / (norms + 1e-6)).clamp(max=1), atol=1e-14)
    assert torch.equal(step[1], GRADIENT[1]), "a gradient below the norm is left alone"


def test_what_is_clipped_stays_with_its_worker_where_it_did():
    assert is_rowwise(clipped(methods.local_sgd(SGD, period=2), 1.0).gradients)
    assert not is_rowwise(clipped(methods.psgd(SGD), 1.0).gradients)


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf")])
def test_a_norm_that_bounds_nothing_is_refused(clip):
    with pytest.raises(ValueError, match=r"clip must be (above 0|finite)"):
        clipped(methods.psgd(SGD), clip)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def trained(model, optimizer, clip=None):
    generator, first = torch.Generator().manual_seed(dist.get_rank()), next(model.parameters()).detach().clone()
    for _ in range(4):
        optimizer.zero_grad()
        inputs = torch.randn(5, 6, generator=generator, dtype=torch.float64)
        (model(inputs) ** 2).mean().backward()
        if clip:
            assert nn.utils.clip_grad_norm_(model.parameters(), clip) > clip, "nothing was clipped"
        optimizer.step()
    assert not torch.allclose(next(model.parameters()), first)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_psgd_with_a_clip_is_ddp_with_clip_grad_norm():
    clip = 0.05

    def member():
        momentum = partial(torch.optim.SGD, lr=0.5, momentum=0.9)
        theirs = nn.parallel.DistributedDataParallel(network())
        expected = trained(theirs, momentum(theirs.parameters()), clip)
        model = network()
        optimizer = DistributedOptimizer(model, methods.psgd(momentum), bucket_mb=2e-4, clip=clip)
        assert len(overlap.awaited(optimizer.strategy)) > 1, "no bucket leaves early"
        return float((trained(model, optimizer) - expected).abs().max())

    assert max(on_processes(2, member)) <= 1e-12


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e160), (torch.float64, 1e300), (torch.float32, 1e30)])
def test_huge_gradients_are_scaled_down_and_not_to_zero(dtype: torch.dtype, size: float) -> None:
    gradients, clip = torch.full((2, 5), size, dtype=dtype), Clipped(1.0, Keep())
    clip.start(gradients, Layout.flat(5), Communicator(workers=2))
    assert clip(gradients, Communicator(workers=2)).norm(dim=1).tolist() == pytest.approx([1.0, 1.0], rel=1e-5)


SLOW = partial(torch.optim.SGD, lr=0.5, momentum=0.9)
CLIP = 0.05
CLIPPED = {
    "psgd": lambda: methods.psgd(SLOW),
    "local_sgd": lambda: methods.local_sgd(SLOW, period=2),
    "mem_sgd": lambda: methods.mem_sgd(SLOW, TopK(ratio=0.5)),
}


def inputs(step, worker):
    generator = torch.Generator().manual_seed(10 * step + worker)
    return torch.randn(5, 6, generator=generator, dtype=torch.float64)


def rows_of(models):
    return torch.stack([torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models])


def stacked(name):
    replicas, communicator = Stacked(network, range(2)), Communicator(workers=2)
    strategy = clipped(bucketed(CLIPPED[name](), 2e-4), CLIP)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(4):
        batch = torch.stack([inputs(communicator.step, worker) for worker in range(2)])
        gradients, _ = replicas.compute(lambda model, x: (model(x) ** 2).mean(), [(batch,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradients, communicator))
    return rows_of(replicas.models)


def test_a_clip_is_the_same_in_a_simulation_in_a_drop_in_and_under_the_hook():
    def member():
        ends = {name: network() for name in [*CLIPPED, "hook"]}
        wrapped = nn.parallel.DistributedDataParallel(ends["hook"])
        wrapped.register_comm_hook(HookState(Dense()), average_hook)
        made = {name: DistributedOptimizer(ends[name], CLIPPED[name](), bucket_mb=2e-4, clip=CLIP) for name in CLIPPED}
        made["hook"] = SLOW(wrapped.parameters())
        for step in range(4):
            for name, optimizer in made.items():
                called = wrapped if name == "hook" else ends[name]
                optimizer.zero_grad()
                (called(inputs(step, dist.get_rank())) ** 2).mean().backward()
                if name == "hook":
                    nn.utils.clip_grad_norm_(wrapped.parameters(), CLIP)
                optimizer.step()
        return {name: rows_of([model])[0] for name, model in ends.items()}

    ranks = on_processes(2, member)
    for name in CLIPPED:
        expected = stacked(name)
        for rank, found in enumerate(ranks):
            assert torch.allclose(found[name], expected[rank], rtol=0, atol=1e-12), name
            assert name != "psgd" or torch.allclose(found["hook"], expected[rank], rtol=0, atol=1e-12)
