"""What a loop does to gradients and weights behind torch's back is what happens, or is refused in a line."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from commeff import Communicator, DistributedOptimizer, Local, Strategy, Transform, methods, topologies
from commeff.communicator import Handle
from commeff.compressors import TopK
from commeff.core.strategy import Stages
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Mesh, Objective, OnePass, cross_entropy, split
from commeff.sharding.pipeline import Pipeline
from commeff.transforms.gossiping import Ahead
from tests.commeff.adapters.loops import SGD, complaint, loss, net, row, train
from tests.laws.processes import by_case, on_processes

SMALL = 1e-4  # megabytes: several buckets


def clip_in_place(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)


def replace(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = 0.5 * parameter.grad


CHANGES = (clip_in_place, replace)


def drop(model: nn.Module) -> None:
    model.zero_grad()


def make_zero(model: nn.Module) -> None:
    model.zero_grad(set_to_none=False)


def step(model: nn.Module, optimizer: Any, at: int, passes: int = 1, between: Any = None, after: Any = None) -> None:
    optimizer.zero_grad()
    for each in range(passes):
        (loss(model, 10 * at + each) / passes).backward()
        if each + 1 < passes and between:
            between(model)
    if after:
        after(model)
    optimizer.step()


def test_gradients_changed_before_the_step_are_refused_whatever_the_way() -> None:
    """Before the first step none is sent yet, later all are; where they stay with their worker, they are its own."""

    def loop() -> list[str]:
        found = []
        for build, megabytes in (
            (methods.psgd, SMALL),
            (methods.psgd, 25.0),
            (methods.psgd, 0),
            (partial(methods.local_sgd, period=2), SMALL),
        ):
            for change, steps in product(CHANGES, (0, 2)):
                model = net()
                optimizer = DistributedOptimizer(model, build(SGD), bucket_mb=megabytes)
                train(model, optimizer, steps)
                found.append(complaint(lambda m=model, o=optimizer, c=change: step(m, o, 7, after=c)))
        return found

    for found in on_processes(2, loop):
        assert all("gradients were changed between backward and step" in words for words in found[:8]), found
        assert found[8:] == ["fine"] * 8


SPLIT = {  # axis, stage of ZeRO, megabytes, and what is said when gradients are clipped by hand
    "tensor": ("tensor", 0, 25.0, "gradients were changed"),
    "tensor, free": ("tensor", 0, 0, "fine"),
    "stages": ("pipeline", 0, 25.0, "fine"),
    **{f"zero {zero}": ("shard", zero, 25.0, "gradients were changed") for zero in (0, 1, 2)},
    **{f"zero {zero}, early": ("shard", zero, 0.001, "gradients were changed") for zero in (0, 1)},
    **{f"zero {zero}, free": ("shard", zero, 0, "fine") for zero in (0, 1)},
}

ONCE = ("zero 0, early", "zero 1, early", "zero 2")


def on_two_ranks(case: str, clips: Any) -> str:
    """Five steps of local SGD by a worker on two ranks, who may clip (in the fourth alone if `clips` is 3)."""
    axis, zero, megabytes, _ = SPLIT[case]
    mesh = Mesh(**{axis: 2})
    torch.manual_seed(1)
    model = Llama(64, layers=2, width=16, heads=4, kv_heads=1, inner=32, tied=True).double()
    split(model, llama_plan(model), tensor := mesh.axis("tensor"))
    objective = Objective(lambda t: ((t[:, :-1],), t[:, 1:]), lambda out, t: cross_entropy(out, t, tensor))
    worker: Any = OnePass(model, tensor)
    if axis == "pipeline":
        worker = Pipeline(model, LLAMA_LAYERS, mesh.axis(axis), micro_batches=2)
    optimizer = DistributedOptimizer(
        model, methods.local_sgd(SGD, period=2), mesh=mesh, zero=zero, bucket_mb=megabytes, clip=None if clips else 0.1
    )

    def steps() -> None:
        for at in range(5):
            optimizer.zero_grad()
            worker.backward(objective, (torch.arange(9.0).long().repeat(4, 1),), 1.0)
            if clips is True or (clips == 3 and at == 3):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    return complaint(steps)


def test_ranks_of_a_worker_clip_together() -> None:
    """Each would clip by the norm of what it has."""

    def member() -> Any:
        return by_case(
            [*product(SPLIT, (True, False)), *((name, 3) for name in ONCE)], lambda case: on_two_ranks(*case)
        )

    for clipped in on_processes(2, member):
        for name, (*_, words) in SPLIT.items():
            assert words in clipped[name, True], (name, clipped[name, True])
            assert clipped[name, False] == "fine", name
        assert all("gradients were changed" in clipped[name, 3] for name in ONCE), "in the fourth step alone"


def test_after_a_scaler_and_once_sent_nothing_is_changed_either() -> None:
    """A GradScaler that divides at the step looks at numbers before, which it leaves as they are."""

    def loop() -> list[str]:
        model = net()
        optimizer, scaler = DistributedOptimizer(model, methods.psgd(SGD)), torch.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(loss(model, 0)).backward()
        scaled = complaint(lambda: (clip_in_place(model), scaler.step(optimizer)))
        optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
        train(model, optimizer, 2)

        def move(model: nn.Module) -> None:
            optimizer.param_groups[0]["lr"] = 0.01

        return [scaled, complaint(lambda: step(model, optimizer, 7, after=move))]

    for scaled, moved in on_processes(2, loop):
        assert "gradients were changed" in scaled
        assert "options of parameter groups must not change between backward and step" in moved


def test_passes_of_parts_of_a_model_add_up_unless_dropped() -> None:
    """The second pass of a step leaves a layer out; with a graph of their own, gradients are new tensors."""

    def loop() -> list[Tensor]:
        ends = []
        for between, megabytes in product((drop, make_zero), (SMALL, 0)):
            model = net()
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            for at in range(3):
                step(model, optimizer, at, passes=2, between=between)
            ends.append(row(model))
        for megabytes in (SMALL, 0):
            model = net().append(nn.Linear(2, 2, bias=False).double())
            nn.init.eye_(model[4].weight)
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            for at in range(3):
                optimizer.zero_grad()
                loss(model, at).backward()
                loss(model[:-1], at).backward()
                loss(model, at + 5).backward(create_graph=True)
                optimizer.step()
            ends.append(row(model).clone())
        return ends

    for found in on_processes(2, loop):
        for guarded, free in (found[:2], found[2:4], found[4:]):
            assert torch.allclose(guarded, free, rtol=0, atol=1e-12)


BUILDERS: dict[str, Callable[[], Strategy]] = {
    "psgd": lambda: methods.psgd(SGD),
    "diloco": lambda: methods.diloco(SGD, period=2),
    "choco": lambda: methods.choco(SGD, topologies.ring(2), TopK(k=9)),
    "awc": lambda: methods.dsgd(SGD, topologies.ring(2), order="awc"),
    "d2": lambda: methods.d2(SGD, topologies.ring(2)),
    "mem_sgd": lambda: methods.mem_sgd(SGD, TopK(k=9)),
}


def written(model: nn.Module) -> None:
    for mine, other in zip(model.parameters(), net(seed=4).parameters(), strict=True):
        mine.data.copy_(other)


LOADS: dict[str, Callable[[nn.Module], Any]] = {
    "load_state_dict": lambda model: model.load_state_dict(net(seed=4).state_dict()),
    "data": written,
}


def test_weights_that_are_loaded_before_the_first_step_are_where_a_method_begins() -> None:
    def begun(build: Callable[[], Strategy], load: Any = None) -> Tensor:
        model = net(seed=1 if load else 4)
        optimizer = DistributedOptimizer(model, build(), groups=lambda name, p: int(p.ndim < 2))
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 3)
        if load:
            optimizer.zero_grad()  # what sets out here is of other weights
            load(model)
        train(model, optimizer, 4, scheduler=scheduler)
        return row(model)

    def loop() -> list[Tensor]:
        return [torch.stack([begun(build, load) for load in (None, *LOADS.values())]) for build in BUILDERS.values()]

    for ends in on_processes(2, loop):
        for name, (plain, *loaded) in zip(BUILDERS, ends, strict=True):
            assert all(torch.equal(plain, each) for each in loaded), name


class Slow(Transform):
    """Gives vectors back, and notes whether what has set out was waited for."""

    def __init__(self) -> None:
        self.arrived: list[bool] = []

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        sent, number = vectors.clone(), len(self.arrived)
        self.arrived.append(False)

        def arrive() -> Tensor:
            self.arrived[number] = True
            return sent

        return (yield Handle(arrive))


def test_what_travels_when_weights_are_replaced_is_waited_for_and_dropped() -> None:
    """Else what was posted to receive it would be freed under it."""

    def loop() -> list[Tensor]:
        plain, model, slow = net(seed=4), net(), Slow()
        train(plain, DistributedOptimizer(plain, Strategy(Local(SGD))), 3)
        optimizer = DistributedOptimizer(model, Strategy(Local(SGD), parameters=Ahead(slow)))
        optimizer.zero_grad()
        LOADS["load_state_dict"](model)
        loss(model, 0).backward()
        optimizer.step()
        assert slow.arrived == [True, True], "one of the old weights, one of the new"
        saved = copy.deepcopy(optimizer.state_dict())
        train(model, optimizer, 1, start=5)
        optimizer.zero_grad()
        optimizer.load_state_dict(saved)
        assert slow.arrived == [True] * 4
        train(model, optimizer, 2, start=1)
        return [row(plain), row(model)]

    for plain, replaced in on_processes(2, loop):
        assert torch.allclose(plain, replaced, rtol=0, atol=1e-12)


def test_weights_that_are_loaded_by_some_or_in_the_middle_of_a_run_are_refused() -> None:
    def loop() -> list[list[str]]:
        found: dict[str, list[str]] = {name: [] for name in BUILDERS}
        for name, build in BUILDERS.items():
            model = net()
            optimizer = DistributedOptimizer(model, build())
            if torch.distributed.get_rank():
                LOADS["load_state_dict"](model)
            found[name].append(complaint(lambda m=model, o=optimizer: train(m, o, 1)))
            model = net()
            optimizer = DistributedOptimizer(model, build())
            train(model, optimizer, 1)
            kept = copy.deepcopy(model.state_dict())
            LOADS["load_state_dict"](model)  # an average to evaluate, say
            model.load_state_dict(kept)
            found[name].append(complaint(lambda m=model, o=optimizer: train(m, o, 1)))
            model[3].load_state_dict(net(seed=4)[3].state_dict())
            found[name].append(complaint(lambda m=model, o=optimizer: train(m, o, 1)))
        return [*found.values()]

    for found in on_processes(2, loop):
        for name, (some, swapped, replaced) in zip(BUILDERS, found, strict=True):
            assert "all workers must begin alike" in some, name
            assert swapped == "fine"
            remembers = name not in ("psgd", "mem_sgd")
            assert ("weights must not be loaded in the middle of a run" in replaced) == remembers, (name, replaced)


def test_a_state_is_restored_in_any_order_and_with_copies_of_a_model() -> None:
    """The model after the optimizer; and what notices that weights are loaded goes into no copy and no file."""

    def loop() -> None:
        model, again = net(), net(seed=3)
        optimizer = DistributedOptimizer(model, BUILDERS["diloco"]())
        train(model, optimizer, 1)
        average = optimizer.average_into(copy.deepcopy(model))
        average.load_state_dict(net(seed=5).state_dict())
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        assert torch.equal(row(torch.load(file, weights_only=False)), row(model))
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        resumed = DistributedOptimizer(again, BUILDERS["diloco"]())
        resumed.load_state_dict(saved[1])
        again.load_state_dict(saved[0])
        for each, steps in ((model, optimizer), (again, resumed)):
            train(each, steps, 3, start=1)
        assert torch.equal(row(model), row(again))
        resumed.load_state_dict(saved[1])
        again.load_state_dict(net().state_dict())
        assert "weights must not be loaded" in complaint(lambda: train(again, resumed, 1))

    on_processes(2, loop)


def test_a_state_loaded_between_backward_and_step_is_where_a_loop_goes_on() -> None:
    """What has left of other gradients, in buckets or before them, is dropped; the gradients themselves stay."""

    def begun(build: Callable[[], Strategy], way: dict[str, Any]) -> tuple[nn.Module, DistributedOptimizer, Any]:
        model = net()
        optimizer = DistributedOptimizer(model, build(), **way)
        train(model, optimizer, 2)
        saved = copy.deepcopy(optimizer.state_dict())
        train(model, optimizer, 1, start=2)
        optimizer.zero_grad()
        loss(model, 5).backward()
        return model, optimizer, saved

    def weights(model: nn.Module) -> Tensor:
        return torch.cat([getattr(p, "full_tensor", lambda p=p: p)().detach().flatten() for p in model.parameters()])

    def loop() -> None:
        free: dict[str, Any] = {"bucket_mb": 0}
        meshed = [{"bucket_mb": SMALL, "mesh": Mesh(shard=2), "zero": zero} for zero in (2, 3)]
        for name in ("psgd", "mem_sgd", "awc"):
            build = BUILDERS[name]
            model, _, saved = begun(build, free)
            other = net()
            reference = DistributedOptimizer(other, build(), **free)
            reference.load_state_dict(saved)
            for mine, gradient in zip(other.parameters(), [p.grad for p in model.parameters()], strict=True):
                mine.grad = gradient
            reference.step()
            for way in (free, {"bucket_mb": SMALL}, *(meshed if name == "psgd" else [])):
                model, optimizer, saved = begun(build, way)
                optimizer.load_state_dict(saved)
                optimizer.step()
                assert torch.allclose(weights(model), row(other), rtol=0, atol=1e-12), (name, way)
                model, optimizer, saved = begun(build, way)
                optimizer.load_state_dict(saved)
                train(model, optimizer, 2, start=2)
                whole = net()
                undisturbed = DistributedOptimizer(whole, build(), **way)
                train(whole, undisturbed, 4)
                assert torch.equal(weights(model), weights(whole)), (name, way)
                sent = [each.communicator.ledger.wire_bytes for each in (optimizer, undisturbed)]
                assert sent[0] == sent[1]

    on_processes(2, loop)


def test_weights_that_the_method_has_elsewhere_are_refused() -> None:
    """It would put its own back."""

    def loop() -> list[str]:
        found = []
        for zero in (1, 2):
            settings: Any = {"mesh": Mesh(shard=2), "zero": zero, "precision": "bf16"}
            part, x = nn.Linear(7, 2), torch.ones(2, 7, dtype=torch.bfloat16)
            optimizer = DistributedOptimizer(part, methods.psgd(SGD), **settings)

            def act(part: nn.Module = part, optimizer: Any = optimizer, x: Tensor = x) -> None:
                part(x).float().square().mean().backward()
                optimizer.step()

            found.append(complaint(act))
            part.load_state_dict(nn.Linear(7, 2).state_dict())
            found.append(complaint(act))
        return found

    for fine, refused, also_fine, also_refused in on_processes(2, loop):
        assert fine == also_fine == "fine"
        assert "parameters must not be written into, got weight, bias changed" in refused
        assert refused == also_refused


def test_an_optimizer_that_is_made_again_is_alone() -> None:
    """As when a cell of a notebook is run again: the first one, though it may have sent early, hears nothing more."""

    def loop() -> list[Tensor]:
        ends = []
        for steps, again in product((0, 2), (True, False)):
            model = net()
            first = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
            train(model, first, steps)
            if not again:
                state, model = model.state_dict(), net()
                model.load_state_dict(state)
            second = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=SMALL)
            train(model, second, 3)
            if again:
                assert "must have one optimizer" in complaint(first.step) or "elsewhere" in complaint(first.step)
            ends.append(row(model))
        return ends

    for ends in on_processes(2, loop):
        assert torch.equal(*ends[:2])
        assert torch.equal(*ends[2:])
