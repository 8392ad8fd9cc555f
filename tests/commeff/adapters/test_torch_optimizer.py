"""DistributedOptimizer as a torch optimizer: groups, schedulers, GradScaler, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from commeff import DistributedOptimizer, Strategy, methods, scheduled, topologies
from commeff.compressors import TopK
from commeff.core.factories import Grouped
from commeff.sharding import Mesh
from tests.laws.processes import on_processes

STEPS = 6
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
ADAMW = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5)
COSINE = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=STEPS)
ONE_CYCLE = partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=STEPS)


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 2)).double()


def loss(model: Any, step: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + torch.distributed.get_rank())
    out: Tensor = model(torch.randn(8, 5, generator=generator).to(dtype)).square().mean()
    return out


def row(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def decayed(model: nn.Module) -> list[dict[str, Any]]:
    """nanoGPT's groups: matrices decay, all else does not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0, "lr": 0.02}]


def against_ddp(
    mine: Callable[[nn.Module], DistributedOptimizer],
    theirs: Callable[[nn.Module], torch.optim.Optimizer],
    scheduler: Callable[[Any], Any] | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Where both end: psgd, and DDP with the same optimizer and scheduler."""

    def both() -> tuple[Tensor, Tensor]:
        ends = []
        for make, wrap in ((mine, lambda model: model), (theirs, DistributedDataParallel)):
            model = net()
            wrapped = wrap(model)
            optimizer = make(model)
            moves = scheduler(optimizer) if scheduler else None
            for step in range(STEPS):
                optimizer.zero_grad()
                loss(wrapped, step).backward()
                optimizer.step()
                if moves is not None:
                    moves.step()
            assert not torch.equal(row(model), row(net()))
            ends.append(row(model))
        return ends[0], ends[1]

    return on_processes(2, both)


@pytest.mark.parametrize(("factory", "scheduler"), [(SGD, COSINE), (SGD, ONE_CYCLE), (ADAMW, COSINE)])
def test_torchs_schedulers_move_it_as_they_move_any(factory: Any, scheduler: Any) -> None:
    """One-cycle moves momentum too."""
    for mine, theirs in against_ddp(
        lambda model: DistributedOptimizer(model, methods.psgd(factory), bucket_mb=1e-4),
        lambda model: factory(model.parameters()),
        scheduler,
    ):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("by_number", [False, True])
def test_groups_are_those_of_torch(by_number: bool) -> None:
    def mine(model: nn.Module) -> DistributedOptimizer:
        groups = (lambda name, p: int(p.ndim < 2)) if by_number else decayed(model)
        optimizer = DistributedOptimizer(model, methods.psgd(ADAMW), groups=groups, bucket_mb=1e-4)
        optimizer.param_groups[1].update(weight_decay=0.0, lr=0.02)  # written later, it holds as well
        assert [len(group["params"]) for group in optimizer.param_groups] == [2, 4]
        return optimizer

    for one, other in against_ddp(mine, lambda model: ADAMW(decayed(model)), COSINE):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_what_a_group_is_not_given_is_the_method_s() -> None:
    def loop() -> list[float]:
        model, grouped = net(), Grouped(ADAMW, ({"weight_decay": 0.3}, {"weight_decay": 0.2}))
        groups = [{key: value for key, value in group.items() if key != "weight_decay"} for group in decayed(model)]
        optimizer = DistributedOptimizer(model, methods.psgd(grouped), groups=groups)
        return [group["weight_decay"] for group in optimizer.param_groups]

    assert on_processes(1, loop) == [[0.3, 0.2]]


def test_a_memory_is_in_units_of_the_rate_that_a_scheduler_has_moved() -> None:
    """mem_sgd under torch's scheduler is mem_sgd with the same schedule of its own."""

    def both() -> tuple[Tensor, Tensor]:
        halved = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
        ends = []
        for factory, moves in ((SGD, halved), (scheduled(SGD, halved), None)):
            model = net()
            optimizer = DistributedOptimizer(model, methods.mem_sgd(factory, TopK(k=9)))
            scheduler = moves(optimizer) if moves else None
            for step in range(STEPS):
                optimizer.zero_grad()
                loss(model, step).backward()
                optimizer.step()
                if scheduler:
                    scheduler.step()
            assert optimizer.param_groups[0]["lr"] == 0.05 / 8
            ends.append(row(model))
        return ends[0], ends[1]

    for mine, own in on_processes(2, both):
        assert torch.equal(mine, own)


def test_what_it_remembers_is_shown_by_parameter() -> None:
    def loop() -> None:
        model, alone = net(), net()
        optimizer, other = (
            DistributedOptimizer(model, methods.dsgd(ADAMW, topologies.ring(1))),
            ADAMW(alone.parameters()),
        )
        assert isinstance(optimizer, torch.optim.Optimizer)
        assert optimizer.defaults["weight_decay"] == 0.5
        for step in range(2):
            for each, steps in ((model, optimizer), (alone, other)):
                steps.zero_grad()
                loss(each, step).backward()
                steps.step()
        for mine, its in zip(model.parameters(), alone.parameters(), strict=True):
            assert optimizer.state[mine].keys() == other.state[its].keys()
            for name, value in other.state[its].items():
                assert torch.equal(optimizer.state[mine][name], value)

    on_processes(1, loop)


class Scaled(nn.Module):
    """A model with a number for a parameter, and with one that has the name of something else that is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.settings = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x * self.settings).sum()


def test_what_it_remembers_has_the_parameter_s_shape_whatever_its_name() -> None:
    def loop() -> None:
        model, alone = Scaled(), Scaled()
        optimizer, other = DistributedOptimizer(model, methods.psgd(ADAMW)), ADAMW(alone.parameters())
        for each, steps in ((model, optimizer), (alone, other)):
            each(torch.arange(3.0)).backward()
            steps.step()
        for mine, its in zip(model.parameters(), alone.parameters(), strict=True):
            shown = {name: (value.shape, value.tolist()) for name, value in optimizer.state[mine].items()}
            assert shown == {name: (value.shape, value.tolist()) for name, value in other.state[its].items()}

    on_processes(1, loop)


def test_only_of_a_parameter_that_is_here_as_a_whole_it_shows_what_it_remembers() -> None:
    """Of a tensor that shard ranks cut, a rank has the states of its own piece, which has not the parameter's shape."""

    def loop() -> set[str]:
        model = net()
        optimizer = DistributedOptimizer(model, methods.psgd(ADAMW), mesh=Mesh(shard=2), zero=1)
        loss(model, 0).backward()
        optimizer.step()
        named = {parameter: name for name, parameter in model.named_parameters()}
        assert all(each["exp_avg"].shape == parameter.shape for parameter, each in optimizer.state.items())
        return {named[parameter] for parameter in optimizer.state}

    first, second = on_processes(2, loop)
    assert first == {"0.weight"}
    assert second == {"1.weight", "1.bias", "3.weight", "3.bias"}


SCALED: dict[str, tuple[Callable[[], Strategy], bool]] = {  # whether all workers leave out the step together
    "psgd": (lambda: methods.psgd(SGD), True),
    "mem_sgd": (lambda: methods.mem_sgd(SGD, TopK(k=9)), True),
    "local_sgd": (lambda: methods.local_sgd(SGD, period=2), False),
}


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("method", SCALED)
def test_a_grad_scaler_takes_it(method: str, by_hand: bool) -> None:
    """With no overflow, steps are those without; one at rank 0 leaves out a step, of all where gradients meet."""
    build, together = SCALED[method]

    def loop() -> list[Tensor]:
        ends = []
        for left_out, scaled in (((), False), ((), True), ((2,), True), ((2,), False)):
            model, rank = net(), torch.distributed.get_rank()
            optimizer = DistributedOptimizer(model, build(), bucket_mb=1e-4)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
            for step in range(4):
                if not scaled and step in left_out and together:
                    continue
                optimizer.zero_grad()
                value = loss(model, step)
                broken = scaled and step in left_out and rank == 0
                scaler.scale(value * (float("inf") if broken else 1)).backward()
                if by_hand and scaled:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
            assert row(model).isfinite().all()
            ends.append(row(model))
        return ends

    for plain, scaled, skipped, without in on_processes(2, loop):
        assert torch.allclose(plain, scaled, rtol=0, atol=1e-12)
        if together:
            assert torch.allclose(skipped, without, rtol=0, atol=1e-12)
        assert not torch.allclose(skipped, plain, rtol=0, atol=1e-6)


def complaint(change: Callable[[nn.Module, DistributedOptimizer], Any], **settings: Any) -> str:
    model = net()
    model[3].bias.requires_grad_(False)
    optimizer = DistributedOptimizer(model, methods.psgd(settings.pop("factory", SGD)), **settings)
    loss(model, 0).backward()
    try:
        change(model, optimizer)
        optimizer.step()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "fine"


def unscaled_and_clipped(model: nn.Module, optimizer: DistributedOptimizer) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(torch.ones(1))
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    scaler.step(optimizer)


def test_what_does_not_fit_is_refused_in_a_line() -> None:
    halved = partial(torch.optim.lr_scheduler.StepLR, step_size=2)

    def loop() -> list[str]:
        return [
            complaint(lambda model, optimizer: None),
            complaint(lambda model, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})),
            complaint(lambda model, optimizer: model.half()),
            complaint(
                lambda model, optimizer: optimizer.param_groups[0].update(lr=1.0), factory=scheduled(SGD, halved)
            ),
            complaint(unscaled_and_clipped),
        ]

    for fine, another, moved, twice, clipped in on_processes(1, loop):
        assert "clip=NORM (after a GradScaler too)" in clipped
        assert fine == "fine"
        assert "parameter groups must be given at the beginning" in another
        assert "must stay where the optimizer has put them, got 0.weight, 0.bias, 1.weight and 2 more" in moved
        assert "two would move one rate" in twice


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (lambda model: decayed(model)[:1], r"every parameter once, got 0\.bias in 0"),
        (lambda model: [{"params": model.parameters()}, {"params": model[0].parameters()}], r"got 0\.weight in 2"),
        (lambda model: [{"params": [nn.Parameter(torch.zeros(1))]}], "got 1 others"),
        (lambda model: [{"params": model.parameters(), "weight_decy": 0.1}], "got weight_decy: it has lr, "),
        (lambda model: lambda name, p: 3, r"0, 1, \.\.\., got \[3\]"),
    ],
)
def test_groups_that_are_none_are_refused(groups: Any, words: str) -> None:
    def loop() -> None:
        model = net()
        with pytest.raises(ValueError, match=words):
            DistributedOptimizer(model, methods.psgd(SGD), groups=groups(model))

    on_processes(1, loop)


def test_rates_of_groups_may_not_differ_where_one_is_the_unit() -> None:
    def loop() -> None:
        model = net()
        with pytest.raises(ValueError, match="must have one learning rate"):
            DistributedOptimizer(
                model,
                methods.mem_sgd(SGD, TopK(k=9)),
                groups=[
                    {"params": model[0].parameters(), "lr": 0.1},
                    {"params": model[1:].parameters()},
                ],
            )
        optimizer = DistributedOptimizer(net(), methods.mem_sgd(SGD, TopK(k=9)), groups=lambda name, p: int(p.ndim < 2))
        optimizer.param_groups[1]["lr"] = 0.1
        with pytest.raises(ValueError, match="must have one learning rate"):
            optimizer.zero_grad()

    on_processes(1, loop)
