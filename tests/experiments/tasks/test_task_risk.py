"""Exact risks: gradients by differences, constants by their definitions, the minimum, both engines."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from commeff import Communicator, methods
from commeff.experiments.tasks import Risk
from commeff.experiments.tasks.laws import check
from commeff.training.settings import RunSettings
from commeff.training.trainer import train

KINDS = [("logistic", "l2"), ("logistic", "nonconvex"), ("square", "l2"), ("square", "nonconvex")]


def test_it_is_a_task() -> None:
    check(Risk)


@pytest.mark.parametrize(("loss", "regulariser"), KINDS)
def test_gradients_are_those_of_the_values_and_both_engines_have_them(loss: str, regulariser: str) -> None:
    task = Risk(3, loss=loss, regulariser=regulariser, strength=0.1)
    x = np.random.default_rng(1).standard_normal((3, 30))
    values, gradients = task._risks.at(range(3), x)
    ahead, small = np.random.default_rng(2).standard_normal((3, 30)), 1e-6
    moved = [task._risks.at(range(3), x + sign * small * ahead)[0] for sign in (1, -1)]
    assert (moved[0] - moved[1]) / (2 * small) == pytest.approx((gradients * ahead).sum(1), rel=1e-6)
    alone = [task._risks.at([i], x[[i]]) for i in range(3)]
    assert np.concatenate([value for value, _ in alone]) == pytest.approx(values)
    assert np.concatenate([gradient for _, gradient in alone]) == pytest.approx(gradients)
    ends = [
        train(
            Risk(3, loss=loss, regulariser=regulariser, strength=0.1),
            methods.psgd(partial(torch.optim.SGD, lr=0.1)),
            Communicator(workers=3, seed=0),
            RunSettings(steps=5, engine=engine),
        )
        for engine in ("loop", "vmap")
    ]
    assert ends[0]["gradient"] == pytest.approx(ends[1]["gradient"], rel=1e-12)


@pytest.mark.parametrize(("loss", "regulariser"), KINDS)
def test_no_curvature_exceeds_the_constants(loss: str, regulariser: str) -> None:
    task = Risk(4, loss=loss, regulariser=regulariser, strength=0.1, partition="shards")
    constants, rng = task.constants(), np.random.default_rng(0)
    assert constants["L"] <= constants["L_tilde"] <= constants["L_max"]
    for _ in range(20):
        x, step = 0.3 * rng.standard_normal(30), 1e-5 * rng.standard_normal(30)
        bend = (task._risks.mean(x + step)[1] - task._risks.mean(x)[1]) @ step / (step @ step)
        assert constants.get("mu", -np.inf) - 1e-6 <= bend <= constants["L"] + 1e-6


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_the_minimum_is_where_the_gradient_vanishes(loss: str) -> None:
    task = Risk(4, loss=loss, strength=1e-2)
    constants = task.constants()
    end = train(
        task,
        methods.psgd(partial(torch.optim.SGD, lr=1 / constants["L"])),
        Communicator(workers=4, seed=0),
        RunSettings(steps=400, engine="vmap"),
    )
    assert end["gradient"] < 1e-8
    assert end["val_loss"] <= end["gradient"] / (2 * constants["mu"]) + 1e-14, "Polyak and Lojasiewicz"


def test_without_regulariser_mu_is_the_least_eigenvalue_that_is_not_zero(tmp_path: Path) -> None:
    (tmp_path / "libsvm").mkdir()
    rows = b"1 3:1\n2 7:0.5\n" * 4062  # two directions of 112 have any curvature
    (tmp_path / "libsvm" / "mushrooms").write_bytes(rows)
    task = Risk(2, data="mushrooms", data_dir=str(tmp_path), loss="square", strength=0.0)
    assert task.constants()["mu"] == pytest.approx(2 * 0.25 / 2, rel=0.05)
    assert task.constants()["L"] == pytest.approx(2 * 1.0 / 2, rel=0.05)


def test_unknown_words_are_refused() -> None:
    for words in ({"data": "iris"}, {"loss": "hinge"}, {"regulariser": "l1"}, {"strength": -1.0}):
        with pytest.raises(ValueError, match=r"must be|not known"):
            Risk(2, **words)  # type: ignore[arg-type]


def test_workers_that_draw_their_own_samples_drift_apart_as_asked() -> None:
    near, far = (Risk(6, data="drawn", rows=2000, dimension=4, drift=drift, strength=0.0) for drift in (0.0, 1.0))
    ends = [task._risks.at(range(6), np.tile(_optimum(task), (6, 1)))[1] for task in (near, far)]
    assert [np.abs(end.mean(0)).max() < 1e-6 for end in ends] == [True, True]  # of f; of each f_i only without drift
    assert np.linalg.norm(ends[0], axis=1).max() < 0.06 < np.linalg.norm(ends[1], axis=1).min()


def test_gradient_noise_is_what_was_asked() -> None:
    noisy, quiet = (Risk(5, seed=2, sigma=sigma) for sigma in (3.0, 0.0))
    noise = torch.cat([noisy.batch(step, range(5))[1] for step in range(40)])
    assert float(noise.square().sum(-1).mean()) == pytest.approx(9.0, rel=0.1)
    assert not quiet.batch(0, range(5))[1].any()
    losses = [task.loss(_moved(task), *(part[0] for part in task.batch(0, [1]))) for task in (noisy, quiet)]
    assert float(losses[0] - losses[1]) == pytest.approx(float(noisy.batch(0, [1])[1].sum()))


def _moved(task: Risk) -> torch.nn.Module:
    """The model at x = (1, ..., 1)."""
    model = task.model()
    torch.nn.utils.vector_to_parameters(torch.ones(task._risks.d, dtype=torch.float64), model.parameters())
    return model


def _optimum(task: Risk) -> np.ndarray:
    x = np.zeros(task._risks.d)
    for _ in range(400):
        x -= 4 * task._risks.mean(x)[1]
    return x
