"""Laws of the quadratics: the optimum is stationary, heterogeneity, conditioning and noise are what was asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from commeff.experiments.tasks import Quadratic


def at(task: Quadratic, x: torch.Tensor) -> torch.nn.Module:
    model = task.model()
    torch.nn.utils.vector_to_parameters(x, model.parameters())
    return model


def gradients(task: Quadratic, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    """(n, d): the workers' stochastic gradients at x, by automatic differentiation of the loss."""
    rows = []
    for worker in range(task.workers):
        model = at(task, x)
        loss = task.loss(model, *(part[0] for part in task.batch(step, [worker])))
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        rows.append(torch.nn.utils.parameters_to_vector(gradient))
    return torch.stack(rows)


@pytest.mark.parametrize("equal_curvature", [False, True])
@pytest.mark.parametrize(("workers", "dimension"), [(1, 1), (1, 5), (4, 1), (8, 30)])
def test_the_optimum_is_stationary(workers: int, dimension: int, equal_curvature: bool) -> None:
    task = Quadratic(workers, 3, dimension, condition=100.0, zeta=5.0, equal_curvature=equal_curvature)
    assert gradients(task, task.optimum).mean(0).norm() < 1e-12
    report = task.evaluate(at(task, task.optimum))
    assert report["val_loss"] == report["distance"] == 0.0


def test_reports_are_the_definitions() -> None:
    task = Quadratic(4, 1, 6, zeta=3.0)
    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def objective(x: torch.Tensor) -> float:
        batch = task.batch(0, range(4))
        losses = [task.loss(at(task, x), *(part[i] for part in batch)) for i in range(4)]
        return torch.stack(losses).mean().item()

    report = task.evaluate(at(task, x))
    assert report["train_loss"] == pytest.approx(objective(x), rel=1e-14)
    assert report["val_loss"] == pytest.approx(objective(x) - objective(task.optimum), rel=1e-12)
    assert report["distance"] == pytest.approx(float((x - task.optimum).norm()), rel=1e-14)


@pytest.mark.parametrize("zeta", [0.0, 0.5, 20.0])
def test_heterogeneity_is_the_spread_of_gradients_at_the_optimum(zeta: float) -> None:
    task = Quadratic(6, 0, 10, zeta=zeta)
    assert float(gradients(task, task.optimum).square().sum(1).mean().sqrt()) == pytest.approx(zeta, abs=1e-12)


def test_every_worker_has_the_condition_number_asked_for() -> None:
    task = Quadratic(5, 0, 12, condition=50.0)
    assert torch.allclose(task.curvatures.amax(1) / task.curvatures.amin(1), torch.tensor(50.0, dtype=torch.float64))
    assert not torch.equal(task.curvatures[0], task.curvatures[1])
    assert len(Quadratic(5, 0, 12, equal_curvature=True).curvatures.unique(dim=0)) == 1


def test_noise_is_pure_blind_to_the_other_workers_and_has_variance_sigma_squared() -> None:
    task, again = (Quadratic(4, 9, 50, sigma=3.0) for _ in range(2))
    walked = torch.stack([task.batch(step, range(4))[2][:, 0] for step in range(400)])  # (steps, n, d)
    for step in (399, 0, 37, 38, 5):
        assert torch.equal(again.batch(step, [3, 1])[2][:, 0], walked[step, [3, 1]])
    assert len(walked.flatten(0, 1).unique(dim=0)) == 1600
    assert float(walked.square().sum(-1).mean()) == pytest.approx(9.0, rel=0.02)
    assert float(walked.mean((0, 1)).norm()) < 5 * 3 / 1600**0.5
    spread = gradients(task, task.optimum, step=7) - task.curvatures * (task.optimum - task.centres)
    torch.testing.assert_close(spread, walked[7], rtol=0, atol=1e-12)


def test_gradient_descent_reaches_the_optimum() -> None:
    task = Quadratic(8, 2, 10, condition=5.0, zeta=2.0)
    x = torch.zeros(10, dtype=torch.float64)
    for step in range(300):
        x = x - gradients(task, x, step).mean(0)
    assert task.evaluate(at(task, x))["distance"] < 1e-12


def test_fixed_point_of_gossip_with_equal_curvatures() -> None:
    """algorithms.md 2.1: x = (I - W (I - gamma a))^-1 W gamma a b for f_i = (a / 2) (x - b_i)^2, on a ring of five."""
    task = Quadratic(5, 0, 3, condition=1.0, zeta=4.0, equal_curvature=True)
    ring, gamma = torch.tensor(np.eye(5) + np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)) / 3, 0.3
    x = torch.zeros(5, 3, dtype=torch.float64)
    for _ in range(300):
        x = ring @ (x - gamma * task.curvatures * (x - task.centres))
    closed = torch.linalg.solve(torch.eye(5, dtype=torch.float64) - (1 - gamma) * ring, gamma * ring @ task.centres)
    torch.testing.assert_close(x, closed, rtol=0, atol=1e-12)
    torch.testing.assert_close(x.mean(0), task.optimum, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 2, "dimension": 0}, "dimension must be at least 1"),
        ({"workers": 2, "condition": 0.5}, "condition must be at least 1"),
        ({"workers": 2, "sigma": -1.0}, "sigma must be at least 0"),
        ({"workers": 2, "zeta": float("nan")}, "zeta must be at least 0"),
        ({"workers": 2, "seed": -1}, "seed must be at least 0"),
        ({"workers": 2, "dtype": "int8"}, "dtype must be one of float32, float64"),
    ],
)
def test_refusals(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Quadratic(**wrong)


def test_columns_only_shape_the_point() -> None:
    vector, matrix = Quadratic(4, 1, 6, zeta=3.0, sigma=1.0), Quadratic(4, 1, 6, zeta=3.0, sigma=1.0, columns=2)
    assert [p.shape for task in (vector, matrix) for p in task.model().parameters()] == [(6,), (3, 2)]
    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gradients(vector, x, 5), gradients(matrix, x, 5))
    assert vector.evaluate(at(vector, x)) == matrix.evaluate(at(matrix, x))
    with pytest.raises(ValueError, match="columns must divide dimension, got 4 and 6"):
        Quadratic(4, 1, 6, columns=4)
