"""Model FLOPs and their share of a GPU's peak: closed forms for any network, and one share on every engine and mesh."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from commeff.cluster import hardware
from commeff.cluster.hardware import gpu_called, gpus
from commeff.experiments.config.compose import compose
from commeff.experiments.run import runner
from commeff.experiments.run.runner import run_one
from commeff.experiments.tasks import Digits, Quadratic
from commeff.experiments.tasks.models import ARCHITECTURES, NetworkSettings, cnn, mlp
from commeff.experiments.tasks.shapes import shapes_only
from commeff.experiments.tasks.work import minibatch_flops, sample_seconds

PEAK = {"fp32": "1 GFLOP/s", "bf16": "4 GFLOP/s"}
LAYERS, CONTEXT, WIDTH, KV_WIDTH, INNER, VOCABULARY, BATCH = 3, 16, 96, 48, 256, 256, 4  # of llama_300k
MATRICES = VOCABULARY * WIDTH + LAYERS * (2 * WIDTH * (WIDTH + KV_WIDTH) + 3 * WIDTH * INNER)
SAMPLE = CONTEXT * (6 * MATRICES + 12 * LAYERS * WIDTH * CONTEXT)  # FLOPs of a sequence
SMALL = ("task=language", "model=llama_300k", f"task.context={CONTEXT}", f"task.batch={BATCH}", "task.probe=64")
RUNS = {
    "loop": ("workers=2",),
    "vmap": ("workers=2", "engine=vmap"),
    "processes": ("workers=4", "nproc=2"),
    "accumulated": ("workers=2", "method=neolithic", "method.rounds=2"),
    "half of them": ("workers=4", "participation=0.5"),
    "tensor": ("mesh.tensor=2", "mesh.worker=2"),
    "shard": ("mesh.shard=2", "zero=2"),
    "stages": ("mesh.pipeline=2", "micro_batches=2", "recompute=full"),
    "bf16": ("workers=2", "precision=bf16_mixed"),
}


def made_up(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """A table of one GPU, and a process that takes its CPU for a GPU of this name."""
    table = {"mine": {"name": "M1", "device": "Maker M1", "memory": "1 GiB", "memory_bandwidth": 1e9, "peak": PEAK}}
    monkeypatch.setattr(hardware, "gpus", lambda: table)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: device)
    monkeypatch.setattr(runner, "sample_seconds", lambda task, precision, _: sample_seconds(task, precision, "cuda"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text"
    path.write_bytes(bytes(range(256)) * 16)
    return path


def rows(text: Path, folder: Path, *words: str) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    config = compose([*SMALL, f"task.data={text}", "steps=4", "evaluate_every=2", *words])
    run_one(config, folder)
    return config, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", RUNS)
def test_the_share_of_a_row_is_that_of_all_its_processes_since_the_row_before(
    name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(monkeypatch, "Maker M1")
    config, found = rows(text, tmp_path, *RUNS[name])
    peak = (4e9 if name == "bf16" else 1e9) * config["nproc"]
    before = {"samples": 0, "seconds": 0.0}
    assert len(found) == 2
    for row in found:
        samples, seconds = (row[key] - before[key] for key in ("samples", "seconds"))
        assert row["mfu"] == pytest.approx(samples * SAMPLE / (seconds * peak), rel=1e-9)
        before = row


def test_there_is_none_on_another_device_for_another_type_or_of_a_task_that_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up(monkeypatch, "Maker M1")
    task = Digits(2, seed=0)
    seconds = 647168 / 32 / 1e9
    assert sample_seconds(task, "fp32", "cuda") == pytest.approx(seconds)
    assert sample_seconds(task, "bf16", "cuda") == pytest.approx(seconds / 4)
    assert sample_seconds(task, "fp32", "cpu") is None
    assert sample_seconds(task, "fp16", "cuda") is None, "the table has no peak of it"
    assert sample_seconds(Digits(2, seed=0, dtype="float64"), "fp32", "cuda") is None
    assert sample_seconds(Quadratic(workers=2), "fp32", "cuda") is None
    for device in ("Maker M1 Laptop", "M1"):
        made_up(monkeypatch, device)
        assert sample_seconds(task, "fp32", "cuda") is None


def test_a_run_on_a_cpu_has_none(tmp_path: Path) -> None:
    assert "mfu" not in run_one(compose(["task=quadratic", "steps=2"]), tmp_path)


@pytest.mark.parametrize("build", [mlp, cnn, ARCHITECTURES["resnet18"].build], ids=["mlp", "cnn", "resnet"])
def test_a_network_of_images_costs_three_times_its_products_but_for_the_gradient_of_the_images(
    build: Callable[[NetworkSettings], nn.Module],
) -> None:
    """Counted beside it by hooks on a network with numbers: an output costs two FLOPs for each input that it reads."""
    network, products = NetworkSettings(channels=3, size=32, classes=10, width=16, norm="batch"), list[int]()

    def count(module: nn.Module, _: Any, out: Tensor) -> None:
        products.append(2 * out.numel() * module.weight[0].numel())  # type: ignore[index,union-attr]

    x, y, real = torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long), build(network)
    for module in real.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.register_forward_hook(count)
    real(x)
    with shapes_only():
        model = build(network)
    flops = minibatch_flops(model, lambda model, x, y: cross_entropy(model(x), y), x, y)
    assert flops == 3 * sum(products) - products[0]


def test_every_gpu_of_the_table_is_the_only_one_of_its_device() -> None:
    devices = {key: content["device"] for key, content in gpus().items() if "device" in content}
    assert gpus().keys() - devices.keys() == {"cpu", "tpu_v5p"}  # of neither does torch say a name
    assert all(gpu_called(device) == hardware.read_gpu("gpu", key) for key, device in devices.items())
