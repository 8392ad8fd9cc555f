"""`commeff bench tensor`: contestants compute the same, and every limit is on a figure."""

from __future__ import annotations

import pytest
import torch

from commeff.experiments.studies.bench.tensor import LIMIT, Shape, contestants, run
from commeff.sharding import Mesh
from tests.laws.processes import on_processes

pytestmark = pytest.mark.slow  # of a study, which nobody installs

SMALL = Shape(layers=1, width=16, heads=2, inner=16, context=4, batch=2, vocabulary=8)


def test_contestants_have_one_loss_and_the_same_pieces_of_one_gradient():
    def member():
        everybody, losses, gradients = contestants(SMALL, Mesh(tensor=2)), {}, {}
        for name, (model, step) in everybody.items():
            losses[name] = float(step())
            pieces = [getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in model.parameters() if p.ndim == 1]
            gradients[name] = torch.cat(pieces)
        return losses, gradients

    for losses, gradients in on_processes(2, member):
        assert list(losses.values()) == pytest.approx([losses["whole"]] * len(losses), abs=1e-6)
        assert all(torch.allclose(gradient, gradients["whole"], atol=1e-6) for gradient in gradients.values())


def test_every_figure_is_measured_and_dtensors_usual_plans_have_a_limit():
    figures = run(SMALL, rounds=1, calls=1)
    assert [figure.at_most for figure in figures] == [None, LIMIT, None, LIMIT]
    assert all(figure.value > 0 for figure in figures)
