"""Sophia: what its estimates are, who gets them, that a run with it resumes, and where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from commeff import Communicator, Layout, Local, Strategy, methods, topologies
from commeff.adapters.optimizer import DistributedOptimizer
from commeff.experiments.tasks import Digits, Quadratic
from commeff.laws import LAYOUT, WORKERS, slope, start
from commeff.laws.engines import rehearse
from commeff.optimizers import SophiaG, SophiaH
from commeff.optimizers.curvature import Oracle
from commeff.profiling.profile import profile
from commeff.replicas import Stacked
from commeff.training.checkpoint import Checkpoints
from commeff.training.oracle import BatchOracle
from commeff.training.recorder import Recorder
from commeff.training.settings import RunSettings
from commeff.training.trainer import train

G: Callable[[Any], torch.optim.Optimizer] = partial(SophiaG, lr=0.1, weight_decay=0.0, interval=3)
H: Callable[[Any], torch.optim.Optimizer] = partial(SophiaH, lr=0.1, weight_decay=0.0, interval=3)
METHODS: dict[str, Callable[[Any], Strategy]] = {
    "psgd": methods.psgd,
    "dsgd": lambda optimizer: methods.dsgd(optimizer, topologies.ring(WORKERS)),
    "local_sgd": lambda optimizer: methods.local_sgd(optimizer, period=2),
}


class Bowl(Oracle):
    """The quadratics of the laws, whose Hessians are diagonal: 1 + 0.3 i + 0.05 column."""

    def __init__(self, workers: Any, step: int) -> None:
        self.workers, self.step = list(workers), step

    def diagonal(self, x: Tensor) -> Tensor:
        ids = torch.tensor(self.workers, dtype=x.dtype)[:, None]
        return (1 + 0.3 * ids + 0.05 * torch.arange(x.shape[1], dtype=x.dtype)).expand_as(x)

    def __call__(self, x: Tensor) -> Tensor:
        return slope(x, self.step, self.workers)

    def gauss_newton(self, x: Tensor) -> Tensor:
        return self.diagonal(x)

    def hessian_product(self, x: Tensor, v: Tensor) -> Tensor:
        return self.diagonal(x) * v


def drive(strategy: Strategy, communicator: Communicator, steps: int = 7) -> Tensor:
    x = start()[list(communicator.workers)]
    communicator.ledger.record()
    strategy.start(x, LAYOUT, communicator)
    path = []
    for communicator.step in range(steps):
        oracle = Bowl(communicator.workers, communicator.step)
        x = strategy.step(x, oracle(x), communicator, oracle)
        path.append(x.clone())
    return torch.stack(path)


@pytest.mark.parametrize("optimizer", [G, H], ids=["G", "H"])
@pytest.mark.parametrize("name", METHODS)
def test_on_a_quadratic_it_uses_the_exact_diagonal(name: str, optimizer: Any) -> None:
    """h after k estimates is (1 - b2^k) times the Hessian's diagonal: the mean over workers where gradients travel."""
    strategy, communicator = METHODS[name](optimizer), Communicator(workers=WORKERS, seed=3)
    x = start()
    strategy.start(x, LAYOUT, communicator)
    local = strategy.local
    assert isinstance(local, Local)
    for communicator.step in range(7):
        oracle = Bowl(range(WORKERS), communicator.step)
        x = strategy.step(x, oracle(x), communicator, oracle)
        exact = oracle.diagonal(x)
        expected = exact.mean(0).expand_as(x) if name == "psgd" else exact
        estimates = communicator.step // 3 + 1
        torch.testing.assert_close(local.state["0.hessian"], (1 - 0.99**estimates) * expected, rtol=0, atol=1e-12)


def test_a_step_is_that_of_the_paper() -> None:
    """x = x - lr clip(m / (rho h), 1), from gradients and estimates alone."""
    strategy, communicator = methods.psgd(partial(H, betas=(0.9, 0.5), rho=0.7)), Communicator(workers=WORKERS, seed=3)
    path = torch.cat([start()[None], drive(strategy, communicator)])
    m = h = torch.zeros(LAYOUT.d, dtype=torch.float64)
    for k in range(7):
        oracle = Bowl(range(WORKERS), k)
        m = 0.9 * m + 0.1 * oracle(path[k]).mean(0)
        h = 0.5 * h + 0.5 * oracle.diagonal(path[k]).mean(0) if k % 3 == 0 else h
        expected = path[k][0] - 0.1 * (m / (0.7 * h + 1e-15)).clamp(-1, 1)
        torch.testing.assert_close(path[k + 1], expected.expand(WORKERS, -1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_who_hosts_whom_does_not_show(name: str) -> None:
    whole = Communicator(workers=WORKERS, seed=3)
    path = drive(METHODS[name](H), whole)
    for processes in (2, WORKERS):
        found = rehearse(processes, WORKERS, lambda mine: (drive(METHODS[name](H), mine), mine.ledger.rows))
        torch.testing.assert_close(torch.cat([part for part, _ in found], 1), path, rtol=0, atol=1e-12)
        assert all(rows == whole.ledger.rows for _, rows in found)


def test_the_estimates_are_billed_where_they_travel() -> None:
    bills = {}
    for name, method in METHODS.items():
        communicator = Communicator(workers=WORKERS, seed=3)
        drive(method(H), communicator)
        plain = Communicator(workers=WORKERS, seed=3)
        drive(method(partial(torch.optim.SGD, lr=0.1)), plain)
        bills[name] = communicator.ledger.payload_bytes - plain.ledger.payload_bytes
    assert bills == {"psgd": 3 * LAYOUT.d * 8, "dsgd": 0, "local_sgd": 0}


@pytest.mark.parametrize("name", METHODS)
def test_the_profile_says_what_a_run_sends(name: str) -> None:
    expected = profile(METHODS[name](H), LAYOUT, WORKERS, seed=3, dtype=torch.float64)
    communicator = Communicator(workers=WORKERS, seed=3)
    drive(METHODS[name](H), communicator)
    assert expected.exact
    for step in range(7):
        billed = [tuple(row) for row in communicator.ledger.rows if row.step == step]
        assert sorted(billed) == sorted(operation[:7] for operation in expected.operations(step))


def test_idle_workers_learn_nothing() -> None:
    local, x = Local(H), start()
    local.start(x, LAYOUT)
    active = torch.tensor([True, False, True, True])
    local.learn(torch.ones_like(x), active)
    local(x, torch.ones_like(x), active)
    assert local.state["0.hessian"][:, 0].tolist() == pytest.approx([0.01, 0.0, 0.01, 0.01])
    assert local.state["aged"].tolist() == [True, False, True, True]


def test_who_is_absent_has_no_part_in_an_estimate() -> None:
    strategy, communicator, x = methods.psgd(H), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    communicator.begin(0, present=torch.tensor([True, False, True, True]))
    oracle = Bowl(range(WORKERS), 0)
    out = strategy.step(x, oracle(x), communicator, oracle)
    assert torch.equal(out[1], x[1])
    assert isinstance(strategy.local, Local)
    expected = 0.01 * oracle.diagonal(x)[communicator.context.active].mean(0)
    found = strategy.local.state["0.hessian"]
    torch.testing.assert_close(found[0], expected.reshape(found[0].shape), rtol=0, atol=1e-12)
    assert not found[1].any()


# What the trainer's oracle knows -----------------------------------------------------------------------------------


def oracle(task: Any, step: int = 0) -> tuple[BatchOracle, Stacked]:
    replicas = Stacked(task.model, range(2), seed=5)
    return BatchOracle(task, replicas, [task.batch(step, range(2))], step), replicas


def test_products_with_the_hessian_of_a_quadratic_are_exact() -> None:
    task = Quadratic(2, seed=1, dimension=6)
    found, replicas = oracle(task)
    x, v = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    before = replicas.parameters.clone()
    torch.testing.assert_close(found.hessian_product(x, v), task.curvatures * v, rtol=0, atol=1e-12)
    torch.testing.assert_close(found(x), task.curvatures * (x - task.centres), rtol=0, atol=1e-12)
    assert torch.equal(replicas.parameters, before)
    with pytest.raises(ValueError, match="the task must draw labels from its model for Sophia-G, got Quadratic"):
        found.gauss_newton(x)


def test_of_several_minibatches_the_curvature_is_the_mean() -> None:
    task = Digits(2, seed=1, model="mlp", hidden=8, batch=8, dtype="float64")
    batches, replicas = [task.batch(step, range(2)) for step in range(3)], oracle(task)[1]
    x, v = replicas.parameters.clone(), torch.ones_like(replicas.parameters)
    chosen = [batches, *([one] for one in batches)]
    products = [BatchOracle(task, replicas, some, 0).hessian_product(x, v) for some in chosen]
    torch.testing.assert_close(products[0], torch.stack(products[1:]).mean(0), rtol=0, atol=1e-12)


def test_products_with_the_hessian_are_differences_of_gradients() -> None:
    task = Digits(2, seed=1, model="mlp", hidden=4, batch=8, dtype="float64")
    found, replicas = oracle(task)
    x = replicas.parameters.clone()
    v = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    tiny = 1e-5
    difference = (found(x + tiny * v) - found(x - tiny * v)) / (2 * tiny)
    close = (found.hessian_product(x, v) - difference).abs() <= 1e-6 * (1 + difference.abs())
    assert close.double().mean() > 0.99  # where a ReLU turns between the two points, it is no difference


def test_labels_are_drawn_from_the_model_and_give_the_gauss_newton_diagonal() -> None:
    """Of a linear model the mean of many estimates is sum_c p_c (1 - p_c) a^2 per weight, the exact diagonal."""
    task = Digits(2, seed=1, model="linear", batch=4, dtype="float64")
    draws, found = 400, []
    for step in range(draws):
        replicas = Stacked(task.model, range(2), seed=5)
        found.append(BatchOracle(task, replicas, [task.batch(0, range(2))], step).gauss_newton(replicas.parameters))
    mean = torch.stack(found).mean(0)
    model, (inputs, _) = task.model(), task.batch(0, range(2))
    weight = next(p for p in model.parameters() if p.ndim == 2)
    features = inputs.flatten(2)
    scale = features.shape[-1] / weight.shape[1]
    assert scale == 1
    place = next(f for f in Stacked(task.model, range(1)).layout.fields if f.shape == tuple(weight.shape))
    for i in range(2):
        p = model(inputs[i]).softmax(-1)
        exact = torch.einsum("bc,bk->ck", p * (1 - p), features[i].square()) / len(inputs[i])
        guess = mean[i, place.start : place.stop].view(place.shape)
        assert (guess - exact).abs().max() <= 0.25 * exact.max()
        assert abs(float((guess.sum() / exact.sum()).detach()) - 1) <= 0.05


def test_batch_statistics_and_random_streams_are_left_alone() -> None:
    task = Digits(2, seed=1, model="mlp", hidden=8, norm="batch", dropout=0.2, batch=8)
    found, replicas = oracle(task)
    before, drawn = deepcopy(replicas.state_dict()), torch.get_rng_state()
    first = found.gauss_newton(replicas.parameters)
    assert torch.equal(first, found.gauss_newton(replicas.parameters)), "what is drawn must follow from the step"
    found.hessian_product(replicas.parameters, torch.ones_like(replicas.parameters))
    assert torch.equal(drawn, torch.get_rng_state())
    after = replicas.state_dict()
    assert torch.equal(before["parameters"], after["parameters"])
    assert all(torch.equal(before["buffers"][name], after["buffers"][name]) for name in before["buffers"])


@pytest.mark.parametrize("optimizer", [G, H], ids=["G", "H"])
def test_a_stopped_run_ends_where_it_would_have(tmp_path: Path, optimizer: Any) -> None:
    def run(folder: Path, stop: int | None = None) -> dict[str, Any]:
        taken = iter(range(8))
        return train(
            Digits(2, seed=1, model="mlp", hidden=8, norm="batch", dropout=0.2, batch=8),
            methods.psgd(optimizer),
            Communicator(workers=2, seed=2),
            RunSettings(steps=7),
            recorder=Recorder(folder),
            checkpoints=Checkpoints(folder),
            should_stop=lambda: next(taken) == stop,
        )

    whole = run(tmp_path / "whole")
    assert run(tmp_path / "parts", 4)["state"] == "stopped"
    parts = run(tmp_path / "parts")
    assert {k: v for k, v in whole.items() if k != "seconds"} == {k: v for k, v in parts.items() if k != "seconds"}


# What is refused ----------------------------------------------------------------------------------------------------


def test_without_an_oracle_it_is_refused() -> None:
    strategy, communicator, x = methods.psgd(H), Communicator(workers=2), torch.zeros(2, 3)
    strategy.start(x, Layout.flat(3), communicator)
    with pytest.raises(ValueError, match="SophiaH must know the curvature of the loss, got no oracle"):
        strategy.step(x, x, communicator)
    with pytest.raises(ValueError, match="got an oracle of gradients alone"):
        strategy.step(x, x, communicator, lambda point: point)
    with pytest.raises(ValueError, match="must need nothing but gradients, got SophiaH"):
        DistributedOptimizer(nn.Linear(2, 1), methods.psgd(H))
    with pytest.raises(ValueError, match="outer must need nothing but gradients, got SophiaH"):
        methods.diloco(partial(torch.optim.SGD, lr=0.1), period=2, outer=H)
    with pytest.raises(ValueError, match="a SGD must ask for curvature"):
        Local(partial(torch.optim.SGD, lr=0.1)).learn(x)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rho": 0.0}, r"rho must lie in \(0, inf\]"),
        ({"interval": 0}, "interval must be at least 1"),
        ({"betas": (1.0, 0.9)}, "betas"),
    ],
)
def test_what_is_out_of_range_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SophiaG([nn.Parameter(torch.zeros(2))], **options)
