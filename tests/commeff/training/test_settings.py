"""What a run is, in one description."""

from __future__ import annotations

from functools import partial
from inspect import signature

import pytest
import torch

from commeff import Communicator, RunSettings, methods, train
from commeff.compressors import TopK
from commeff.experiments.tasks import Digits
from commeff.optimizers import SophiaH
from commeff.training.participation import Participation


def test_train_takes_a_run_as_one_description() -> None:
    assert len(signature(train).parameters) <= 10


@pytest.mark.parametrize(("settings", "every"), [(RunSettings(400), 20), (RunSettings(7), 1), (RunSettings(400, 3), 3)])
def test_rows_come_twenty_times_unless_it_is_said(settings: RunSettings, every: int) -> None:
    assert settings.rows_every == every


def test_a_share_of_all_is_no_absence() -> None:
    assert RunSettings(1, participation=Participation(4)).absences is None
    assert RunSettings(1, participation=(half := Participation(4, share=0.5))).absences is half


def ended(**settings) -> dict:
    task, method = Digits(3, seed=0), methods.mem_sgd(partial(torch.optim.SGD, lr=0.1), TopK(ratio=0.1))
    summary = train(task, method, Communicator(workers=3), RunSettings(steps=6, **settings))
    return {name: value for name, value in summary.items() if name != "seconds"}


def test_compiled_models_train_as_plain_ones_do_and_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, graphs = ended(), []
    torch._dynamo.reset()
    monkeypatch.setattr(
        torch, "compile", partial(torch.compile, backend=lambda graph, _: graphs.append(graph) or graph)
    )
    assert ended(compiled=True) == plain
    assert len(graphs) == 2, "there is one for training and one for evaluation, whatever the number of workers"


def test_curvature_is_that_of_the_plain_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def sophia(**settings):
        method = methods.psgd(partial(SophiaH, lr=0.01, interval=2))
        summary = train(Digits(2, seed=0), method, Communicator(workers=2), RunSettings(steps=4, **settings))
        return summary["train_loss"]

    plain = sophia()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    assert sophia(compiled=True) == pytest.approx(plain, rel=1e-6)


def test_models_that_are_one_batched_graph_are_not_compiled() -> None:
    with pytest.raises(ValueError, match="engine must be loop for compiled models, got vmap"):
        RunSettings(6, engine="vmap", compiled=True)
