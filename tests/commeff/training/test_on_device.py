"""A task on another device than its data is the same task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from inspect import isabstract
from pathlib import Path
from typing import Any

import pytest
import torch

from commeff import Communicator, methods
from commeff.compressors import TopK
from commeff.experiments import tasks
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.system import check_device, own_device
from commeff.experiments.tasks import Digits, Quadratic
from commeff.training.checkpoint import Checkpoints
from commeff.training.on_device import OnDevice
from commeff.training.oracle import SamplingTask
from commeff.training.settings import RunSettings
from commeff.training.task import DividedTask, LabelledTask, PartitionedTask, Task
from commeff.training.trainer import train

ADAM = partial(torch.optim.Adam, lr=0.01)


def digits() -> Task:
    """With BatchNorm, so that there is something to calibrate."""
    return Digits(4, seed=1, model="mlp", hidden=8, norm="batch", batch=8)


def trained(task: Task, folder: Path | None = None, stop: int = 100) -> dict[str, Any]:
    steps = iter(range(100))
    summary = train(
        task,
        methods.mem_sgd(ADAM, TopK(ratio=0.1)),
        Communicator(workers=4),
        RunSettings(steps=12, evaluate_every=4),
        checkpoints=Checkpoints(folder, 100) if folder else None,
        should_stop=lambda: next(steps) == stop,
    )
    return {name: value for name, value in summary.items() if name != "seconds"}


@pytest.mark.parametrize("make", [digits, lambda: Quadratic(4)])
def test_on_the_device_of_its_data_nothing_changes(make) -> None:
    assert trained(OnDevice(make(), "cpu")) == trained(make())


def protocols(of: type = Task) -> Iterator[type]:
    """What a task may have beside what every task has."""
    for kind in of.__subclasses__():
        if getattr(kind, "_is_protocol", False):
            yield kind
            yield from protocols(kind)


KINDS = [kind for kind in vars(tasks).values() if hasattr(kind, "evaluate") and not isabstract(kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_on_a_device_has_every_protocol_of_its_task(kind) -> None:
    """Built without its data: protocols are names."""
    task = type(kind.__name__, (kind,), {"__init__": lambda self: None, "workers": 2, "size": 0, "sizes": [3, 4]})()
    there = OnDevice(task, "cpu")
    assert {name for name in dir(kind) if name[0] != "_"} <= {*dir(there)}
    assert {SamplingTask, PartitionedTask} < {*protocols()}
    for protocol in protocols():
        assert isinstance(there, protocol) == isinstance(task, protocol), protocol
    assert there.sizes is task.sizes


def test_a_task_on_a_device_has_no_protocol_that_its_task_lacks() -> None:
    assert not isinstance(OnDevice(Quadratic(2), "cpu"), PartitionedTask | LabelledTask | DividedTask)


def test_workers_weigh_as_many_samples_as_they_have_and_liars_stay_on_the_device() -> None:
    task, communicator = Digits(3, seed=0, model="linear"), Communicator(workers=3)
    train(OnDevice(task, "cpu"), methods.psgd(ADAM), communicator, RunSettings(steps=1))
    assert communicator.context.samples.tolist() == list(task.sizes)
    assert len({*task.sizes}) > 1
    assert next(OnDevice(task, "meta").with_liars(1).model().parameters()).is_meta


def test_models_batches_and_calibration_are_moved() -> None:
    task = OnDevice(digits(), "meta")
    tensors = [*task.model().parameters(), *task.model().buffers(), *task.batch(0, [0, 1])]
    tensors += [part for batch in task.calibration() for part in batch]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_a_gpu_that_is_not_there_is_refused() -> None:
    if torch.cuda.device_count():
        pytest.skip("there is one")
    with pytest.raises(ConfigError, match="sees no GPU here; choose device=cpu"):
        own_device("cuda")


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [own_device("cuda", rank).index for rank in range(4)] == [0, 1, 0, 1]
    check_device("cuda", nproc=2)
    with pytest.raises(ConfigError, match="nproc must be at most 2, got 3"):
        check_device("cuda", nproc=3)


def test_only_another_device_than_the_cpu_names_a_run() -> None:
    config = {"method": {"_target_": "commeff.methods.psgd"}, "task": {"_target_": "commeff.experiments.tasks.Digits"}}
    assert run_id(config | {"device": "cpu"}) == run_id(config) != run_id(config | {"device": "cuda"})


@pytest.mark.gpu
def test_a_gpu_trains_as_the_cpu_does_and_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    here = trained(digits())
    trained(OnDevice(digits(), "cuda"), tmp_path, stop=5)
    there = trained(OnDevice(digits(), "cuda"), tmp_path)
    held = 4 * 4 * sum(2 * parameter.numel() for parameter in digits().model().parameters())  # bytes, with gradients
    assert held < there.pop("peak_memory_bytes") < 2**30
    assert there.keys() == here.keys()
    for name in ("train_loss", "val_loss", "consensus_distance"):
        assert there[name] == pytest.approx(here[name], rel=1e-2)
    assert there["payload_bytes"] == here["payload_bytes"]
