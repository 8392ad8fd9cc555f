"""`commeff.simulate` is a run of the task that a model, a loss and a data set are."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset
from typer.testing import CliRunner

import commeff
from commeff import methods, topologies
from commeff.experiments.cli import app
from commeff.experiments.tasks import Samples, Supervised

INPUTS = torch.randn(240, 6, generator=torch.Generator().manual_seed(3))
LABELS = (INPUTS.sum(1) > 0).long()
TRAIN, HELD = TensorDataset(INPUTS[:200], LABELS[:200]), TensorDataset(INPUTS[200:], LABELS[200:])
PLUG = Path("unplugged")


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Counted(Dataset[Any]):
    """As `TRAIN`, item by item."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return INPUTS[i], int(LABELS[i])


class Same(Supervised):
    """The task that `simulate` makes, as one writes it."""

    def __init__(self) -> None:
        samples = (Samples(INPUTS[:200], LABELS[:200]), Samples(INPUTS[200:], LABELS[200:]))
        super().__init__(*samples, workers=4, seed=0, batch=8)

    def model(self) -> nn.Module:
        return net()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(-1) == targets


def net(width: int = 8) -> Net:
    torch.manual_seed(0)
    return Net(width)


def interrupting(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, with a Ctrl-C at the first minibatch where the plug is out."""
    if outputs.requires_grad and PLUG.exists():
        PLUG.unlink()
        os.kill(os.getpid(), signal.SIGINT)
    return F.cross_entropy(outputs, targets)


def simulated(store: Path, **other: Any) -> commeff.experiments.python.TrainedRun:
    given = {"model": net(), "dataset": TRAIN, "validation": HELD, "workers": 4, "batch": 8, "steps": 6}
    return commeff.simulate(**given | {"evaluate_every": 2, "store": store, "progress": False} | other)


def timeless(metrics: pd.DataFrame) -> pd.DataFrame:
    return metrics[[column for column in metrics if "seconds" not in column]]


@pytest.mark.parametrize("dataset", [TRAIN, Counted()], ids=["tensors", "items"])
def test_it_is_the_run_of_the_task_that_one_would_write(tmp_path: Path, dataset: Dataset[Any]) -> None:
    words = {"method": "dsgd", "topology": "ring", "steps": 6, "evaluate_every": 2, "progress": False}
    found = simulated(tmp_path, dataset=dataset, **words)
    written = commeff.run(task=Same(), folder=tmp_path / "written", **words)
    pd.testing.assert_frame_equal(timeless(found.metrics), timeless(written.metrics), rtol=1e-5)
    assert {"val_accuracy", "wire_bytes"} <= {*found.summary}


def test_the_same_call_reads_it_and_other_contents_are_another_run(tmp_path: Path) -> None:
    first = simulated(tmp_path)
    before = (first.path / "summary.json").stat().st_mtime_ns
    assert (simulated(tmp_path).path / "summary.json").stat().st_mtime_ns == before
    sgd = partial(torch.optim.SGD, lr=0.1)
    others: list[dict[str, Any]] = [
        {"model": net(9)},
        {"model": Net()},  # other random numbers
        {"dataset": TensorDataset(INPUTS[:200] + 1, LABELS[:200])},
        {"validation": None},
        {"loss": lambda outputs, targets: F.cross_entropy(outputs, targets, label_smoothing=0.1)},
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.2)},
        {"name": "second"},
        {"batch": 9},
        {"partition": "shards"},
        {"settings": {"optimizer.lr": 0.3}},
        {"method": methods.psgd(sgd)},
        {"method": lambda n: methods.dsgd(sgd, topologies.ring(n))},
        {"method": methods.psgd(lambda parameters: torch.optim.SGD(parameters, lr=0.2))},
        {"method": methods.psgd(lambda parameters: torch.optim.SGD(parameters, lr=0.3))},
    ]
    assert len({simulated(tmp_path, steps=1, **other).path for other in others} | {first.path}) == len(others) + 1


def test_an_interrupted_one_goes_on_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = simulated(tmp_path / "whole", loss=interrupting)
    PLUG.touch()
    stopped = simulated(tmp_path / "store", loss=interrupting)
    assert (stopped.state, len(stopped.metrics)) == ("killed", 0)
    again = simulated(tmp_path / "store", loss=interrupting)
    assert again.path.name == whole.path.name
    pd.testing.assert_frame_equal(timeless(again.metrics), timeless(whole.metrics))
    told = CliRunner().invoke(app, ["report", str(tmp_path / "store"), "--out", str(tmp_path / "report")])
    assert (told.exit_code, "unknown" in told.output) == (0, False), told.output
    assert "**model**: Net" in (tmp_path / "report" / "report.md").read_text()


def test_a_name_stands_for_code_without_a_source(tmp_path: Path) -> None:
    typed: dict[str, Any] = {"F": F, "__name__": "__main__"}
    code = "def loss(outputs, targets):\n    return F.cross_entropy(outputs, targets)"
    exec(compile(code, "<typed>", "exec"), typed)
    with pytest.raises(ValueError, match="name must be given, got none: loss has no source"):
        simulated(tmp_path, loss=typed["loss"])
    assert simulated(tmp_path, loss=typed["loss"], name="typed").config["task"]["given"] == "typed"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"model": Net}, "model must be a torch.nn.Module, got a type"),
        ({"dataset": TensorDataset(INPUTS)}, r"dataset must give pairs \(input, target\)"),
        ({"dataset": TensorDataset(INPUTS, INPUTS)}, "each target a number"),
        ({"dataset": iter(())}, "dataset must have a length"),
        ({"task": "digits"}, "task must be left out"),
        ({"nproc": 2}, "nproc must be 1 for objects"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"methd": "psgd"}, "unknown key 'methd'; did you mean method"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path: Path, other: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        simulated(tmp_path / "store", **other)
    assert not (tmp_path / "store").exists()
