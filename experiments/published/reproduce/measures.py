"""What tables measure without training a model: how fast topologies average, and how far compressors are off.

A measurement is a function of a resolved configuration, as `train` would have it, and gives numbers by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from commeff.compressors import Layout, WorkerRandom
from commeff.experiments.config import build

EXACT = 1e-10  # the part of a disagreement that is none
LONGEST = 4_000  # steps
DRAWS = 64  # vectors that a compressor is tried on


def consensus(config: Mapping[str, Any]) -> dict[str, float]:
    """Of the topology: repeated averaging without gradients.

    rho = ||W - J|| of the first matrix; rate = the factor a step by which a disagreement falls, at its worst, over one
    period (for one that never repeats, that of random vectors until ten digits agree); exact_after = steps until all
    agree to ten digits, infinite if that takes more than a period; degree = neighbours that a worker sends to, at most.
    """
    topology = build.topology(config)
    matrices = [topology.at(step) for step in range(topology.period or 1)]
    found = {"rho": matrices[0].rho, "gap": 1 - matrices[0].rho}
    found |= {"degree": float(max(matrix.degree for matrix in matrices))}
    disagreement = np.eye(topology.n) - 1 / topology.n
    if topology.period is None:
        rng = np.random.default_rng(int(config["seed"]))
        x = rng.standard_normal((topology.n, 8))
        x -= x.mean(0)
        start, steps = np.linalg.norm(x), 0
        while np.linalg.norm(x) > EXACT * start and steps < LONGEST:  # below, what is left is rounding
            x = topology.at(steps).sparse() @ x
            steps += 1
        return found | {"rate": float((np.linalg.norm(x) / start) ** (1 / steps)), "exact_after": math.inf}
    if topology.period == 1:  # a normal matrix has powers of its norm
        return found | {"rate": matrices[0].rho, "exact_after": 1.0 if matrices[0].rho < EXACT else math.inf}
    for matrix in matrices:
        disagreement = matrix.sparse() @ disagreement
    worst = float(np.linalg.norm(disagreement, 2))
    done = worst < EXACT
    rate = 0.0 if done else worst ** (1 / topology.period)
    return found | {"rate": rate, "exact_after": float(topology.period) if done else math.inf}


def compression(config: Mapping[str, Any]) -> dict[str, float]:
    """Of the compressor, on random vectors of d = task.dimension numbers.

    error = mean of |C(v) - v|^2 / |v|^2 over Gaussian v, heavy_error over vectors whose i-th number is of size 1/i, and
    bias = |mean of C(v) over draws - v|^2 / |v|^2 of one Gaussian v; bits a number; bound = omega where C is unbiased,
    1 - delta where it is contractive.
    """
    compressor = build.compressor(config)
    d, seed = int(config["task"]["dimension"]), int(config["seed"])
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(DRAWS, d, generator=generator, dtype=torch.float32)
    heavy = normal / torch.arange(1, d + 1, dtype=torch.float32)
    compressor = compressor.bind(Layout.flat(d))
    messages = {
        name: compressor.compress(vectors, WorkerRandom(seed, range(DRAWS), 0, (name,)))
        for name, vectors in (("error", normal), ("heavy_error", heavy), ("same", normal[:1].expand(DRAWS, d).clone()))
    }
    found = {
        name: float(((messages[name].decode() - v).square().sum(1) / v.square().sum(1)).double().mean())
        for name, v in (("error", normal), ("heavy_error", heavy))
    }
    middle = messages["same"].decode().mean(0)
    found["bias"] = float((middle - normal[0]).square().sum() / normal[0].square().sum())
    found["bits"] = 8 * float(messages["error"].wire_bytes.double().mean()) / d
    omega, delta = compressor.omega(d), compressor.delta(d)
    if omega is not None:
        return found | {"bound": omega, "omega": omega}
    return found | ({"bound": 1 - delta, "delta": delta} if delta is not None else {})


KINDS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, float]]] = {
    "consensus": consensus,
    "compression": compression,
}
