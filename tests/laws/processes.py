"""Runs a function on n forked processes joined by a gloo group, with torch imported once."""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=60)


def on_processes(n: int, function: Callable[[], Any]) -> list[Any]:
    """[function() at rank 0, ..., at rank n - 1]; an error at any rank is raised here with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(rank, n, function, Path(folder)) for rank in range(n)]
        for child in children:
            os.waitpid(child, 0)
        answers = []
        for rank in range(n):
            answer = Path(folder, f"answer{rank}")
            if not answer.exists():
                raise RuntimeError(f"rank {rank} ended without an answer")
            good, value = pickle.loads(answer.read_bytes())
            if not good:
                raise AssertionError(f"rank {rank} failed:\n{value}")
            answers.append(value)
        return answers


def _fork(rank: int, n: int, function: Callable[[], Any], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(str(folder / "store"), n)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=TIMEOUT)
        answer = True, function()
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answer = False, traceback.format_exc()
    Path(folder, f"answer{rank}").write_bytes(pickle.dumps(answer))
    os._exit(0)
