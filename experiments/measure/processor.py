"""What one process computes with: matrix products, and the bandwidth of its memory, on one thread or a GPU."""

from __future__ import annotations

import os
from statistics import median

import torch

from commeff.cluster import GPU
from commeff.experiments.measure.timing import time_interleaved
from commeff.experiments.run.system import cpu_name

WIDTH = 1024  # of the matrices
ROUNDS = 5
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def peaks(width: int = WIDTH, device: torch.device | str = "cpu") -> dict[str, float]:
    """FLOP/s by precision: 2 width^3 over the shortest time of a product of two square matrices."""
    draw = torch.Generator().manual_seed(0)
    square = torch.randn(width, width, generator=draw).to(device)
    contestants = {}
    for name, dtype in DTYPES.items():
        matrix = square.to(dtype)
        contestants[name] = lambda matrix=matrix: matrix @ matrix
    seconds = time_interleaved(contestants, ROUNDS, device=device)
    return {name: 2 * width**3 / min(times) for name, times in seconds.items()}


def copied_bytes(length: int, device: torch.device | str) -> float:
    """Bytes per second of a copy of so many numbers."""
    vector = torch.zeros(length, device=device)
    copy = torch.empty_like(vector)
    seconds = time_interleaved({"copy": lambda: copy.copy_(vector)}, ROUNDS, device=device)
    return vector.nbytes / median(seconds["copy"])


def processor(copied: float, share: int, width: int = WIDTH, device: torch.device | str = "cpu") -> GPU:
    """The processor of one process as `commeff.cluster` describes it.

    copied : bytes per second that are copied: as many are read and as many written, and data sheets count both.
    share : processes on this host, which share its memory.
    """
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return GPU(properties.name, properties.total_memory, 2 * copied, peaks(width, device))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return GPU(f"one thread of {cpu_name()}", memory / share, 2 * copied, peaks(width))
