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
            steps=5,
            engine=engine,
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
        steps=400,
        engine="vmap",
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
