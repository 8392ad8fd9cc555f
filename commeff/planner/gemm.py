"""Seconds of matrix products on one GPU: a roofline with tiles and waves."""

from __future__ import annotations

import numpy as np

from commeff.cluster import GPU
from commeff.planner.constants import Constants
from commeff.planner.policies import Count, Numbers

TILE = 128  # edge of the output tile that one multiprocessor works on
# Tiles at a time, data sheets of SXM parts; 1 if not known.
MULTIPROCESSORS = {"V100": 80, "A100": 108, "H100": 132, "H200": 132}
WIDTHS = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # bytes of an operand
ALIGNMENT = 16  # bytes: rows that are not multiples of it are loaded at half the width


def seconds_per_flop(gpu: GPU, precision: str, constants: Constants) -> float:
    """1/(peak efficiency) + (width/T) / (operand_ratio x memory bandwidth): a tile of T x T loads 2 T operands for
    every 2 T^2 FLOPs.

    Parameters
    ----------
    precision : of the operands.

    Examples
    --------
    >>> from commeff.cluster import Cluster
    >>> from commeff.planner.constants import MEASURED
    >>> for name in ("a100_selene", "h100_400g"):
    ...     gpu = Cluster.named(name).gpu
    ...     print(name, round(1 / seconds_per_flop(gpu, "fp16", MEASURED) / gpu.peak_flops["fp16"], 1))
    a100_selene 0.7
    h100_400g 0.6
    """
    feed = constants.operand_ratio * gpu.memory_bandwidth
    return 1 / (gpu.peak_flops[precision] * constants.gemm_efficiency) + WIDTHS[precision] / TILE / feed


def gemm_seconds(
    rows: Count, columns: Count, inner: Count, count: Count, gpu: GPU, precision: str, constants: Constants
) -> Numbers:
    """`count` products of (rows x inner) and (inner x columns) at once.

        tiles = count ceil(rows/T) ceil(columns/T),   waves = ceil(tiles / multiprocessors)
        arithmetic = waves multiprocessors 2 T^2 (inner + ramp) x seconds_per_flop
        memory     = width (rows inner + inner columns + rows columns) count / (bandwidth efficiency)
        seconds    = max(arithmetic, memory)

    All multiprocessors wait for the last wave, edges of tiles are computed in vain, and every tile pays a ramp. Rows
    of memory that are not a multiple of 16 bytes halve the rate (a vocabulary of 50257 is slower than one of 50304).

    Parameters
    ----------
    rows : of the first matrix.
    columns : of the second matrix.
    inner : columns of the first matrix, which are rows of the second.
    count : products that run at once.
    precision : of the operands.
    """
    units, width = MULTIPROCESSORS.get(gpu.name.split("-")[0], 1), WIDTHS[precision]
    tiles = count * np.ceil(rows / TILE) * np.ceil(columns / TILE)
    waves = np.ceil(tiles / units)
    odd = (np.asarray(rows) * width % ALIGNMENT) + (columns * width % ALIGNMENT) + (inner * width % ALIGNMENT)
    flops = waves * units * 2 * TILE**2 * (inner + constants.gemm_ramp)
    arithmetic = flops * np.where(odd > 0, 2.0, 1.0) * seconds_per_flop(gpu, precision, constants)
    moved = width * count * (rows * inner + inner * columns + rows * columns)
    return np.maximum(arithmetic, moved / (gpu.memory_bandwidth * constants.memory_efficiency))
