"""Runs with a schedule-free optimizer evaluate its result, and go on from where gradients are taken."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from commeff import Communicator, Layout, Strategy, methods
from commeff.adapters.optimizer import DistributedOptimizer
from commeff.experiments.tasks import Quadratic
from commeff.optimizers import ScheduleFreeSGD
from commeff.training.checkpoint import Checkpoints
from commeff.training.recorder import Recorder
from commeff.training.settings import RunSettings
from commeff.training.trainer import train
from tests.states import parameters

WORKERS, STEPS = 2, 8


def method() -> Strategy:
    return methods.psgd(partial(ScheduleFreeSGD, lr=0.3, momentum=0.8))


def task() -> Quadratic:
    return Quadratic(WORKERS, seed=1)


def by_hand() -> tuple[torch.Tensor, torch.Tensor]:
    """Where gradients are taken, and the result, after all steps; from the same gradients, without the optimizer."""
    own, model = task(), task().model()
    (parameter,) = model.parameters()
    z = x = y = parameter.detach().flatten().clone()
    for step in range(STEPS):
        parameter.data.copy_(y.view_as(parameter))
        batches = own.batch(step, range(WORKERS))
        slopes = []
        for worker in range(WORKERS):
            loss = own.loss(model, *(part[worker] for part in batches))
            slopes.append(torch.autograd.grad(loss, [parameter])[0].flatten())
        z = z - 0.3 * sum(slopes) / WORKERS
        x = x + (z - x) / (step + 1)
        y = 0.2 * z + 0.8 * x
    return y, x


def test_what_is_evaluated_is_the_average_and_what_is_kept_is_not(tmp_path: Path) -> None:
    summary = train(
        task(),
        method(),
        Communicator(workers=WORKERS, seed=2),
        RunSettings(steps=STEPS),
        recorder=Recorder(tmp_path),
        checkpoints=Checkpoints(tmp_path),
    )
    y, x = by_hand()
    model, losses = task().model(), []
    (parameter,) = model.parameters()
    for point in (y, x):
        parameter.data.copy_(point.view_as(parameter))
        losses.append(task().evaluate(model)["train_loss"])
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    assert summary["train_loss"] == pytest.approx(losses[1], rel=1e-5)
    assert summary["local_train_loss"] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(parameters(Checkpoints(tmp_path).load())[0], y, rtol=1e-5, atol=1e-6)


def test_the_rows_are_left_alone_before_the_first_step() -> None:
    strategy, x = method(), torch.ones(WORKERS, 3)
    strategy.start(x, Layout.flat(3), Communicator(workers=WORKERS))
    assert strategy.local.evaluates_elsewhere
    assert torch.equal(strategy.local.evaluated(x), x)


def test_a_model_that_is_not_the_result_is_refused() -> None:
    with pytest.raises(ValueError, match="evaluated where it is trained, got ScheduleFreeSGD"):
        DistributedOptimizer(torch.nn.Linear(2, 1), method())
