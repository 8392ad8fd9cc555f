"""Every task's loss only calls its model, so all workers' gradients may come from one vmapped graph or from a loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from commeff.experiments.tasks import Digits, Logistic, Quadratic

WORKERS = 4
TASKS: dict[str, Callable[[str], Any]] = {
    "quadratic": lambda folder: Quadratic(WORKERS, sigma=1.0),
    "linear": lambda folder: Digits(WORKERS, model="linear", dtype="float64"),
    "mlp": lambda folder: Digits(WORKERS, norm="group", weighted=True, dtype="float64"),
    "cnn": lambda folder: Digits(WORKERS, model="cnn", batch=4, dtype="float64"),
    "logistic": lambda folder: Logistic(WORKERS, data="mushrooms", data_dir=folder, l2=0.1, dtype="float64"),
    "logistic weighted": lambda folder: Logistic(
        WORKERS,
        data="mushrooms",
        data_dir=folder,
        bias=False,
        l2=0.1,
        partition="shards",
        weighted=True,
        dtype="float64",
    ),
}


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_one_vmapped_graph_gives_the_gradients_of_the_loop(make: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "mushrooms").write_bytes(b"1 3:1\n2 7:0.5 112:1\n" * 4062)
    task = make(str(tmp_path))
    base = task.model()
    generator = torch.Generator().manual_seed(0)
    rows = {
        name: x.detach() + torch.randn(WORKERS, *x.shape, dtype=x.dtype, generator=generator)
        for name, x in base.named_parameters()
    }
    batch = task.batch(3, range(WORKERS))

    def of_one(parameters: dict[str, Tensor], *parts: Tensor) -> Tensor:
        return task.loss(lambda *inputs: functional_call(base, parameters, inputs), *parts)

    together = vmap(grad(of_one))(rows, *batch)
    for worker in range(WORKERS):
        own = {name: row[worker].clone().requires_grad_() for name, row in rows.items()}
        loss = of_one(own, *(part[worker] for part in batch))
        assert loss.shape == ()
        for name, alone in zip(own, torch.autograd.grad(loss, list(own.values())), strict=True):
            torch.testing.assert_close(together[name][worker], alone, rtol=1e-12, atol=1e-12)
