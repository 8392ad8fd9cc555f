"""Laws of the least squares: the optimum is stationary, reports are the definitions, noise is what was asked."""

from __future__ import annotations

import pytest
import torch

from commeff.experiments.tasks import LeastSquares
from commeff.experiments.tasks.laws import check


def at(task: LeastSquares, x: torch.Tensor) -> torch.nn.Module:
    model = task.model()
    torch.nn.utils.vector_to_parameters(x, model.parameters())
    return model


def gradients(task: LeastSquares, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    """(n, d): of each worker's loss at x."""
    rows = []
    for worker in range(task.workers):
        model = at(task, x)
        loss = task.loss(model, *(part[0] for part in task.batch(step, [worker])))
        rows.append(torch.autograd.grad(loss, list(model.parameters()))[0])
    return torch.stack(rows)


def test_the_optimum_is_stationary_and_the_least_value_is_there() -> None:
    task = LeastSquares(4, seed=2, dimension=6, rows=8)
    assert gradients(task, task.optimum).mean(0).norm() < 1e-10
    report = task.evaluate(at(task, task.optimum))
    assert report["val_loss"] == report["distance"] == 0.0
    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = [task.loss(at(task, x), *(part[i] for part in task.batch(0, range(4)))).item() for i in range(4)]
    assert task.evaluate(at(task, x))["train_loss"] == pytest.approx(sum(losses) / 4)
    assert task.evaluate(at(task, 2 * task.optimum))["relative"] == pytest.approx(1.0)
    assert task.evaluate(at(task, x))["train_loss"] > report["train_loss"] > 0


def test_curvature_and_noise_are_what_was_asked() -> None:
    task, quiet = LeastSquares(300, dimension=10, sigma=2.0), LeastSquares(300, dimension=10)
    constants = task.constants()
    assert constants["mu"] == pytest.approx(50, rel=0.1)
    assert constants["L_max"] < 50 * (1 + 0.2**0.5 + 0.3) ** 2
    noise = torch.cat([task.batch(step, range(300))[3] - quiet.batch(step, range(300))[3] for step in range(4)])
    assert float(noise.square().sum(-1).mean()) == pytest.approx(4.0, rel=0.1)
    assert torch.equal(task.batch(3, [7])[3], task.batch(3, range(300))[3][7:8])
    check(LeastSquares)


def test_one_problem_with_other_noise() -> None:
    one, other = (LeastSquares(6, seed=seed, sigma=1.0, data_seed=0) for seed in (0, 1))
    assert torch.equal(one.optimum, other.optimum)
    assert torch.equal(one.hessians, LeastSquares(6, seed=0).hessians)
    assert not torch.equal(one.batch(0, range(6))[3], other.batch(0, range(6))[3])


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows must be at least 3, got 2"):
        LeastSquares(4, dimension=10, rows=2)
