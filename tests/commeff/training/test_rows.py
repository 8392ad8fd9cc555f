"""What an engineer looks for in the rows of a run beside its losses: the gradient's norm and a GPU's memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from commeff import Communicator, methods
from commeff.core.strategy import Strategy
from commeff.training.checkpoint import Checkpoints
from commeff.training.participation import Participation
from commeff.training.recorder import Recorder
from commeff.training.run import peak_memory
from commeff.training.settings import RunSettings
from commeff.training.trainer import train
from commeff.transforms import bucketed, clipped
from tests.laws.processes import on_processes

WORKERS, STEPS, MUCH = 4, 6, 1e9
SGD = partial(torch.optim.SGD, lr=0.0)
METHODS = {"psgd": lambda: methods.psgd(SGD), "local_sgd": lambda: methods.local_sgd(SGD, period=2)}


class Slopes:
    """The gradient of worker i in step t is t + 1 times the i-th of these, wherever it stands."""

    workers, size = WORKERS, 0
    directions = torch.tensor([[3.0, 4.0], [-3.0, 4.0], [0.0, 1.0], [0.0, -5.0]], dtype=torch.float64)

    def model(self) -> nn.Module:
        model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        nn.init.ones_(model.weight)
        return model

    def batch(self, step: int, workers: Any) -> tuple[Tensor, ...]:
        return ((step + 1) * self.directions[list(workers)][:, None],)

    def loss(self, model: Any, x: Tensor) -> Tensor:
        return model(x).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {}

    def test(self, model: nn.Module) -> dict[str, float]:
        return {}

    def calibration(self) -> list[tuple[Tensor, ...]]:
        return []


def rows(
    strategy: Strategy, folder: Path, communicator: Communicator | None = None, stop: int = STEPS, **settings: Any
) -> list[dict[str, Any]]:
    steps = iter(range(STEPS + 1))
    train(
        Slopes(),
        strategy,
        communicator or Communicator(workers=WORKERS),
        RunSettings(steps=STEPS, evaluate_every=2, **settings),
        recorder=Recorder(folder),
        checkpoints=Checkpoints(folder),
        should_stop=lambda: next(steps) == stop,
    )
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in Recorder(folder).rows()]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("clip", [0.5, MUCH])
def test_the_norm_is_that_of_the_average_or_the_mean_of_the_workers_own(name: str, clip: float, tmp_path: Path) -> None:
    """Of the last step alone, before it is clipped: sizes are (0, 1) and 5, 5, 1, 5 in the first step."""
    found = [row["gradient_norm"] for row in rows(clipped(METHODS[name](), clip), tmp_path)]
    assert found == pytest.approx([step * {"psgd": 1.0, "local_sgd": 4.0}[name] for step in (2, 4, 6)], rel=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("megabytes", [0, 8e-6])
def test_it_is_the_same_on_processes(name: str, megabytes: float, tmp_path: Path) -> None:

    def member() -> list[float]:
        communicator = Communicator(workers=WORKERS, distributed=True)
        strategy = clipped(bucketed(METHODS[name](), megabytes), 0.5)
        own = tmp_path / str(communicator.transport.rank)
        return [row["gradient_norm"] for row in rows(strategy, own, communicator)]

    here = [row["gradient_norm"] for row in rows(clipped(METHODS[name](), 0.5), tmp_path / "here")]
    for there in on_processes(2, member):
        assert there == pytest.approx(here, rel=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("stop", [3, 4])
def test_a_run_goes_on_with_the_rows_that_it_would_have_had(name: str, stop: int, tmp_path: Path) -> None:
    whole = rows(clipped(METHODS[name](), 0.5), tmp_path / "whole")
    assert len(rows(clipped(METHODS[name](), 0.5), tmp_path / "parts", stop=stop)) < len(whole)
    assert rows(clipped(METHODS[name](), 0.5), tmp_path / "parts") == whole


@pytest.mark.parametrize(
    ("clip", "settings"),
    [(None, {}), (0.5, {"participation": Participation(WORKERS, share=0.5)}), (0.5, {"precision": "fp16"})],
    ids=["nothing clips", "some are absent", "gradients may overflow"],
)
def test_there_is_none_where_no_norm_is_at_hand(clip: float | None, settings: dict[str, Any], tmp_path: Path) -> None:
    found = rows(clipped(METHODS["psgd"](), clip), tmp_path, **settings)
    assert len(found) == 3
    assert not [row for row in found if "gradient_norm" in row]


def test_the_memory_is_that_of_the_own_gpu_and_nothing_is_said_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = {torch.device("cuda", 0): 5, torch.device("cuda", 1): 7}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", allocated.__getitem__)
    assert peak_memory(torch.device("cuda", 1)) == {"peak_memory_bytes": 7}
    assert peak_memory(torch.device("cpu")) == {}
