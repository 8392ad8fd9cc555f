"""The engine law with tensors on a GPU: over gloo, which carries them through host memory, and NCCL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import tests.laws.test_engines as engines
from commeff import Communicator, laws
from commeff.communicator.wire.group import joined, store_in_file
from tests.owned import PATIENCE, start

ROOT = Path(__file__).parents[2]


def trajectories(early: bool) -> dict[str, torch.Tensor]:
    found = {}
    for name, (build, own) in engines.RUNS.items():
        strategy = engines.bucketed(build(), engines.SIZE) if early else build()
        world = Communicator(workers=laws.WORKERS, seed=3, distributed=True, collective=own)
        found[name] = laws.run(strategy, communicator=world, device="cuda", early=early)[0].cpu()
    return found


def member(rank: int, size: int, backend: str, folder: Path) -> None:
    """What each process does; a fork of a process that has touched the GPU could not."""
    device = "cuda:0" if backend == "nccl" else "cpu"
    with joined(rank, size, store_in_file(folder / "store", size), 120.0, device):
        torch.save([trajectories(early) for early in (False, True)], folder / f"{rank}.pt")


def on_gpu(size: int, backend: str, folder: Path) -> list[list[dict[str, torch.Tensor]]]:
    code = f"from tests.laws.test_engines_gpu import *; member({{}}, {size}, {backend!r}, Path({str(folder)!r}))"
    members = [start([sys.executable, "-c", code.format(rank)], cwd=ROOT) for rank in range(size)]
    assert [process.wait(timeout=PATIENCE) for process in members] == [0] * size
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "backend"), [(2, "gloo"), (4, "gloo"), (1, "nccl")])
def test_tensors_on_a_gpu_take_the_same_way(size: int, backend: str, tmp_path: Path) -> None:
    here = engines.run_all()
    found = on_gpu(size, backend, tmp_path)
    for early in (0, 1):
        for name in engines.RUNS:
            there = torch.cat([result[early][name] for result in found], dim=1)
            assert (there - here[name][0]).abs().max() <= 1e-10, name
