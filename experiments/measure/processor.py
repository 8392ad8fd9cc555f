"""What one process computes with: matrix products, and the bandwidth of its memory, on one thread."""

from __future__ import annotations

import os

import torch

from commeff.cluster import GPU
from commeff.experiments.measure.timing import one_thread, time_interleaved
from commeff.experiments.run.system import cpu_name

WIDTH = 1024  # of the matrices
ROUNDS = 5
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def peaks(width: int = WIDTH) -> dict[str, float]:
    """FLOP/s by precision: 2 width^3 over the shortest time of a product of two square matrices."""
    draw = torch.Generator().manual_seed(0)
    square = torch.randn(width, width, generator=draw)
    contestants = {}
    for name, dtype in DTYPES.items():
        own = square.to(dtype)
        contestants[name] = lambda own=own: own @ own
    with one_thread():
        seconds = time_interleaved(contestants, ROUNDS)
    return {name: 2 * width**3 / min(own) for name, own in seconds.items()}


def processor(copied: float, share: int, width: int = WIDTH) -> GPU:
    """The processor of one process as `commeff.cluster` describes it.

    copied : bytes per second that are copied: as many are read and as many written, and data sheets count both.
    share : processes on this host, which share its memory.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return GPU(f"one thread of {cpu_name()}", memory / share, 2 * copied, peaks(width))
