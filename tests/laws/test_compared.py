"""Gradients of a step's batch at another point: the trainer's oracle, and where methods that need it are refused."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch

from commeff import Communicator, methods
from commeff.adapters.optimizer import DistributedOptimizer
from commeff.compressors import Dense, RandomK
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.tasks import Digits
from commeff.replicas import Stacked
from commeff.training.oracle import BatchOracle
from commeff.training.settings import RunSettings
from commeff.training.trainer import train

SGD = partial(torch.optim.SGD, lr=0.05)


def test_the_gradient_elsewhere_is_that_of_a_step_which_begins_there() -> None:
    """L2, dropout and BatchNorm and all, bit for bit; and nothing of the step is touched."""
    task = Digits(2, seed=1, model="mlp", hidden=8, norm="batch", dropout=0.5, batch=8)
    here, there = (Stacked(task.model, range(2), seed=5) for _ in range(2))
    x = here.parameters + 0.1 * torch.randn(here.parameters.shape, generator=torch.Generator().manual_seed(0))
    batches = [task.batch(3, range(2)), task.batch(4, range(2))]
    gradient, _ = here.compute(task.loss, batches, step=3, l2=0.1)
    before, own = deepcopy(here.state_dict()), gradient.clone()
    there.load(x)
    expected, _ = there.compute(task.loss, batches, step=3, l2=0.1)
    found = BatchOracle(task, here, batches, 3, l2=0.1)
    assert torch.equal(found(x), expected)
    assert not torch.equal(expected, own)
    assert torch.equal(gradient, own)
    assert torch.equal(found(here.parameters.clone()), own)
    after = here.state_dict()
    assert torch.equal(after["parameters"], before["parameters"])
    assert all(torch.equal(after["buffers"][name], value) for name, value in before["buffers"].items())


def test_a_run_of_differences_that_lose_nothing_is_a_run_of_parallel_sgd() -> None:
    """Where every step has the whole data, and weight decay is in the loss."""

    def final(strategy: Any) -> float:
        task = Digits(2, seed=1, model="linear", batch=4, dtype="float64")
        batch = task.batch(0, range(2))
        task.batch = lambda step, workers: batch  # type: ignore[method-assign]
        found = train(task, strategy, Communicator(workers=2), RunSettings(steps=12, l2=0.01, evaluate_every=12))
        return float(found["train_loss"])

    plain = final(methods.psgd(SGD))
    assert final(methods.marina(SGD, Dense(), probability=0.2)) == pytest.approx(plain, rel=1e-12)
    assert final(methods.lasg(SGD, threshold=0.0)) == pytest.approx(plain, rel=1e-12)
    assert final(methods.psgd(partial(torch.optim.SGD, lr=0.04))) != pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("method", ["marina", "lasg"])
def test_where_nobody_knows_other_gradients_it_is_said(method: str) -> None:
    with pytest.raises(ConfigError, match=r"gradients at another point.*are only known of whole models in 32 bits"):
        build(compose([f"method={method}", "task=digits", "workers=2", "precision=bf16"]))


def test_a_training_loop_of_ones_own_knows_no_other_gradients() -> None:
    with pytest.raises(ValueError, match=r"the method must need nothing but gradients where they are.*commeff\.train"):
        DistributedOptimizer(torch.nn.Linear(2, 1), methods.marina(SGD, RandomK(k=1)))
