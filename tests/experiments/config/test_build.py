"""Building a run: its parts fit together before anything is written, and that costs the memory of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from commeff.experiments.config import build as building
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import adopt
from commeff.experiments.config.schema import ConfigError, built_in
from commeff.experiments.grid.plan.expand import Rehearsals
from commeff.experiments.tasks import digits
from commeff.replicas import Stacked

READS_VALUES = """
from commeff import Local, Strategy, Transform
from commeff.core.local import OptimizerFactory

class Reads(Transform):
    def __call__(self, vectors, communicator):
        if float(vectors.sum()) > LIMIT:
            raise ValueError("the sum must be small")
        return vectors

def reads(optimizer: OptimizerFactory) -> Strategy:
    return Strategy(Local(optimizer), parameters=Reads())
"""


@pytest.mark.parametrize("method", built_in("method"))
def test_a_checkpoint_is_estimated_without_numbers(method: str) -> None:
    config = compose([f"method={method}", "task=digits", "model=cnn", "task.norm=batch", "workers=4"])
    parts = build(config)
    workers = Stacked(parts.task.model, range(4))
    held = [workers.parameters, *workers.buffers.values()]
    real = building._take_steps(config, parts.strategy, workers.parameters, workers.layout)
    assert parts.checkpoint == sum(tensor.nbytes for tensor in held) + real


def test_one_model_is_built_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[torch.Tensor] = []
    take = building._take_steps

    def noted(config: Any, strategy: Any, x: torch.Tensor, layout: Any) -> int:
        steps.append(x)
        return take(config, strategy, x, layout)

    monkeypatch.setattr(building, "_take_steps", noted)
    config = compose(["method=choco", "compressor=top_k", "task=digits", "workers=64"])
    task = build(config).task
    assert [(len(x), x.device.type) for x in steps] == [(64, "meta")]

    models = []
    monkeypatch.setattr(task, "model", lambda make=task.model: models.append(make()) or models[-1])
    build(config, task)
    assert len(models) == 1


def test_cells_with_one_task_read_its_data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, load = [], digits.load_digits
    monkeypatch.setattr(digits, "load_digits", lambda dtype: reads.append(dtype) or load(dtype))
    rehearsals = Rehearsals()
    for words in ("optimizer.lr=0.1", "optimizer.lr=0.2", "seed=1", "model=cnn"):
        rehearsals.checkpoint(compose(["method=psgd", "task=digits", words]))
    assert len(reads) == 2


@pytest.mark.parametrize(("limit", "fits"), [("1e9", True), ("-1e9", False)])
def test_a_strategy_that_reads_values_is_rehearsed_with_values(limit: str, fits: bool, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(READS_VALUES.replace("LIMIT", limit))
    config = compose(["method=reads", "task=digits", "workers=2"], adopt([str(file)])[0])
    if fits:
        assert build(config).checkpoint > 0
    else:
        with pytest.raises(ConfigError, match="method: the sum must be small"):
            build(config)


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("schedule.warmup=-3", "schedule: warmup must lie in [0, 1], got -3"),
        ("optimizer.lr=-1", "optimizer: Invalid learning rate: -1"),
    ],
)
def test_a_part_that_refuses_its_arguments_is_named_once(word: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build(compose(["task=quadratic", "schedule=wsd", word]))
    assert [*refused.value.faults] == [fault]
