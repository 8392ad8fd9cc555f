"""What tables measure without training a model: how fast workers agree, and how far compressors are off.

A measurement is a function of a resolved configuration, as `train` would have it, and gives numbers by name. It is kept
in the store of its table.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from commeff.communicator import Communicator
from commeff.compressors import Layout, WorkerRandom
from commeff.experiments.config import build
from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.registry import plugins_in, split
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.runs import FACTS, TableRun, machine_of
from commeff.experiments.run.origins import plugin_info
from commeff.experiments.run.reading import read_json
from commeff.experiments.run.store import stamp
from commeff.experiments.run.system import sys_info
from commeff.files import rewrite, unlinked
from commeff.transforms import PowerSGD

EXACT = 1e-10  # the part of a disagreement that is none
LONGEST = 4_000  # steps
DRAWS = 64  # vectors that a compressor is tried on
MATRICES = 32  # that PowerSGD is tried on
VERSION = 3  # of what measurements mean


def consensus(config: Mapping[str, Any]) -> dict[str, float]:
    """Measure the topology by repeated averaging without gradients.

    rho = ||W - J|| of the first matrix; rate = the factor a step by which a disagreement falls, at its worst, over one
    period (for one that never repeats, that of random vectors until ten digits agree); exact_after = steps until all
    agree to ten digits, infinite if that takes more than a period; degree = neighbours that a worker sends to, at most.
    """
    topology = build.topology(config)
    matrices = [topology.at(step) for step in range(topology.period or 1)]
    rho, degree = matrices[0].rho, float(max(matrix.degree for matrix in matrices))
    numbers = {"rho": rho, "gap": 1 - rho, "degree": degree}
    if topology.period is None:
        rng = np.random.default_rng(int(config["seed"]))
        x = rng.standard_normal((topology.n, 8))
        x -= x.mean(0)
        start, steps = np.linalg.norm(x), 0
        while np.linalg.norm(x) > EXACT * start and steps < LONGEST:  # below, what is left is rounding
            x = topology.at(steps).sparse() @ x
            steps += 1
        return numbers | {"rate": float((np.linalg.norm(x) / start) ** (1 / steps)), "exact_after": math.inf}
    if topology.period == 1:  # a normal matrix has powers of its norm
        return numbers | {"rate": rho, "exact_after": 1.0 if rho < EXACT else math.inf}
    disagreement = np.eye(topology.n) - 1 / topology.n
    for matrix in matrices:
        disagreement = matrix.sparse() @ disagreement
    worst = float(np.linalg.norm(disagreement, 2))
    done = worst < EXACT
    rate = 0.0 if done else worst ** (1 / topology.period)
    return numbers | {"rate": rate, "exact_after": float(topology.period) if done else math.inf}


def compression(config: Mapping[str, Any]) -> dict[str, float]:
    """Measure the compressor on random vectors of d = task.dimension numbers.

    error = mean of |C(v) - v|^2 / |v|^2 over Gaussian v, heavy_error over vectors whose i-th number is of size 1/i, and
    bias = |mean of C(v) over draws - v|^2 / |v|^2 of one Gaussian v; bits a number; bound = omega where C is unbiased,
    1 - delta where it is contractive. Of v = (1, 0.6, ..., 0.6): mean = what 0.6 becomes in the mean, up = the part
    of these numbers that becomes larger.
    """
    compressor = build.part(config, "compressor")
    d, seed = int(config["task"]["dimension"]), int(config["seed"])
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(DRAWS, d, generator=generator, dtype=torch.float32)
    heavy = normal / torch.arange(1, d + 1, dtype=torch.float32)
    compressor = compressor.bind(Layout.flat(d))
    messages = {
        name: compressor.compress(vectors, WorkerRandom(seed, range(DRAWS), 0, (name,)))
        for name, vectors in (("error", normal), ("heavy_error", heavy), ("same", normal[:1].expand(DRAWS, d).clone()))
    }
    numbers = {
        name: float(((messages[name].decode() - v).square().sum(1) / v.square().sum(1)).double().mean())
        for name, v in (("error", normal), ("heavy_error", heavy))
    }
    middle = messages["same"].decode().mean(0)
    numbers["bias"] = float((middle - normal[0]).square().sum() / normal[0].square().sum())
    example = torch.full((DRAWS, d), 0.6)
    example[:, 0] = 1.0
    decoded = compressor.compress(example, WorkerRandom(seed, range(DRAWS), 0, ("example",))).decode()[:, 1:]
    numbers |= {"mean": float(decoded.double().mean()), "up": float((decoded > example[:, 1:]).double().mean())}
    numbers["bits"] = 8 * float(messages["error"].wire_bytes.double().mean()) / d
    omega, delta = compressor.omega(d), compressor.delta(d)
    if omega is not None:
        return numbers | {"bound": omega, "omega": omega}
    return numbers | ({"bound": 1 - delta, "delta": delta} if delta is not None else {})


def gossip(config: Mapping[str, Any]) -> dict[str, float]:
    """Measure the method by `steps` steps without gradients from Gaussian rows of d = task.dimension numbers.

    With D_t = sum_i |x_i - mean|^2 after t steps: rate = the factor a step by which D falls, over the second half of
    the steps; worst = the largest (D_t / E_0)^(1/t), where E_0 = D_0 + sum_i |x_i|^2 also counts public copies that
    begin at zero; per_digit = steps, and bytes_per_digit = payload, in which D falls to a tenth; drift = how far the
    mean went, relative to its norm.
    """
    strategy, n, d = build.strategy(config), int(config["workers"]), int(config["task"]["dimension"])
    communicator = Communicator(workers=n, seed=int(config["seed"]))
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(int(config["seed"])), dtype=torch.float64)
    mean, still = x.mean(0), torch.zeros_like(x)
    spreads = [float((x - mean).square().sum())]
    start = spreads[0] + float(x.square().sum())
    strategy.start(x.clone(), Layout.flat(d), communicator)
    for communicator.step in range(int(config["steps"])):
        x = strategy.step(x, still, communicator)
        spreads.append(float((x - x.mean(0)).square().sum()))
        if not EXACT**2 < spreads[-1] / spreads[0] < 1 / EXACT:  # below, what is left is rounding; above, it diverges
            break
    errors, half = np.array(spreads), (len(spreads) - 1) // 2
    rate = float((errors[-1] / errors[half]) ** (1 / max(1, len(spreads) - 1 - half)))
    numbers = {"rate": rate, "drift": float((x.mean(0) - mean).norm() / mean.norm())}
    numbers |= {"worst": float(((errors[1:] / start) ** (1 / np.arange(1, len(errors)))).max())}
    numbers |= {"per_digit": -math.log(10) / math.log(rate) if 0 < rate < 1 else math.inf}
    sent = communicator.ledger.payload_bytes / (communicator.step + 1)
    return numbers | {"bytes_per_digit": sent * numbers["per_digit"]}


def low_rank(config: Mapping[str, Any]) -> dict[str, float]:
    """Measure the error of PowerSGD's P Q^T after `steps` rounds on one matrix, each from the last Q, nothing fed back.

    error = mean of |P Q^T - M|^2 / |M|^2 over Gaussian matrices M of the shape of the task's parameter, best = that of
    the nearest matrix of rank r, by its singular values; heavy_... the same over M of singular values 1, 1/2, 1/3 and
    so on. bound holds from one round on, in the mean over the first Q: the least of (1 + k / (r - k - 1)) times the
    best error of rank k, 2 <= k <= r - 2 (arXiv 0909.4061, theorem 10.5), or 1.
    """
    transform = build.strategy({**config, "bucket_mb": 0}).gradients  # in one piece
    shapes = [tuple(p.shape) for p in build.part(config, "task").model().parameters()]
    if not isinstance(transform, PowerSGD) or len(shapes) != 1 or len(shapes[0]) != 2:
        raise ValueError(
            "low_rank must have method=power_sgd and a task of one matrix, such as quadratic: give task.columns"
        )
    rank, seed, layout = transform.rank, int(config["seed"]), Layout.of([("x", shapes[0])])
    generator, samples = torch.Generator().manual_seed(seed), dict[str, list[float]]()
    for draw in range(MATRICES):
        normal = torch.randn(shapes[0], generator=generator, dtype=torch.float64)
        left, sizes, right = torch.linalg.svd(normal, full_matrices=False)
        heavy = 1 / torch.arange(1, len(sizes) + 1, dtype=torch.float64)
        for kind, matrix, spectrum in (("", normal, sizes), ("heavy_", left * heavy @ right, heavy)):
            communicator = Communicator(workers=1, seed=MATRICES * seed + draw)
            v = matrix.reshape(1, -1)
            transform.start(torch.zeros_like(v), layout, communicator)
            for communicator.step in range(int(config["steps"])):
                transform.error.zero_()
                out = transform(v, communicator)
            tails = [float(spectrum[k:].square().sum() / spectrum.square().sum()) for k in range(rank + 1)]
            numbers = {"error": float((out - v).square().sum() / v.square().sum()), "best": tails[rank]}
            numbers["bound"] = min((1 + k / max(1, rank - k - 1)) * tails[k] for k in (0, *range(2, rank - 1)))
            for name, number in numbers.items():
                samples.setdefault(kind + name, []).append(number)
    return {name: float(np.mean(numbers)) for name, numbers in samples.items()}


Measure = Callable[[Mapping[str, Any]], dict[str, float]]
KINDS: Mapping[str, Measure] = {kind.__name__: kind for kind in (consensus, compression, gossip, low_rank)}


def measured(plan: TableRun) -> Results:
    """The results of a table: of every case with every seed, measured or as the store has them."""
    stamp(plan.store)
    unlinked(plan.store / "measured").mkdir(exist_ok=True)
    results, here = list[CaseResult](), sys_info()
    for case in plan.cases:
        runs = {}
        for seed in plan.table.seeds:
            config = plan.config(case, seed)
            if plan.table.measure == "modelled":  # in no time, so that it need not be kept
                run = Observation(plan.pricing.planned(config), machine=_machine(here, config))
            else:
                run = _stored(plan, config, here)
            runs[seed] = run.with_metrics(plan.table.derived)
        results.append(replace(case, runs=runs))
    return Results(plan.table, results)


def _machine(here: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    """What makes a measurement: this machine, and the plug-ins of a configuration, for which git is asked."""
    return machine_of({**here, "plugins": plugin_info(config)})


def _stored(plan: TableRun, config: Mapping[str, Any], here: Mapping[str, str]) -> Observation:
    """The numbers of a case, from the store if it has them."""
    key = json.dumps([VERSION, plan.table.measure, config], sort_keys=True)
    for target in plugins_in(config):  # which counts by its code, wherever it lies
        key = key.replace(json.dumps(target), json.dumps([split(target)[1], source_digest(target)]))
    file = plan.store / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    stored = _read(file)
    if stored is None:
        numbers, machine = KINDS[plan.table.measure](config), _machine(here, config)
        finite = {k: v if math.isfinite(v) else str(float(v)) for k, v in numbers.items()}  # JSON has no others
        rewrite(file, json.dumps({"numbers": finite, "machine": machine}, indent=1) + "\n", shared=True)
        stored = Observation(numbers, machine=machine)
    return stored


def _read(file: Path) -> Observation | None:
    """A measurement in the store, None where there is none, or a damaged one."""
    content = read_json(file)
    try:
        numbers = {name: float(value) for name, value in content["numbers"].items()}
        machine = {fact: str(value) for fact, value in content["machine"].items()}
    except (KeyError, AttributeError, TypeError, ValueError):
        return None
    return Observation(numbers, machine=machine) if numbers and {*FACTS} <= machine.keys() else None
