"""Flower's servers: averages, adaptive optimizers and robust rules of what all workers hand in."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from commeff import methods
from commeff.experiments.studies.peers.problem import WORKERS, Compared, difference, flat, network, train, trained
from commeff.optimizers import FedYogi
from commeff.transforms.robust import Krum, Median, RobustRule, TrimmedMean

INNER = partial(torch.optim.SGD, lr=0.1)
EXACT, PERIOD, TINY = 1e-9, 4, 1e-30
MANY, LIARS = 11, 2  # vectors that rules are given, and those of them that are 1,000 times too long


def comparisons() -> Iterator[Compared]:
    """The comparisons one after the other; every process calls it."""
    try:
        from flwr.server import strategy as flower
        from flwr.server.strategy import aggregate
    except ImportError as missing:
        words = f"{missing}; pip install flwr"
        yield Compared("flwr", "local_sgd, fedopt, robust_sgd", "FedAvg, FedAdam, ...", None, EXACT, words)
        return
    logging.getLogger("flwr").setLevel(logging.ERROR)
    row = partial(Compared, f"flwr {version('flwr')}")
    decay = {"beta_1": 0.9, "beta_2": 0.99, "initial_parameters": _parameters(flat(network()))}
    adam = partial(torch.optim.Adam, lr=0.01, betas=(0.9, 0.99), eps=TINY)
    yogi = partial(FedYogi, lr=0.01, initial=0.0)
    servers = [
        ("local_sgd(period=4)", methods.local_sgd(INNER, PERIOD), "FedAvg", flower.FedAvg(), ""),
        (
            "fedopt(period=4, server=Adam)",
            methods.fedopt(INNER, PERIOD, adam),
            "FedAdam",
            flower.FedAdam(eta=0.01, tau=TINY, **decay),
            "torch's Adam; Flower's rounds counted from 0: from 1 it corrects the first by 1 - 0.9^2, not 1 - 0.9",
        ),
        (
            "fedopt(period=4, server=FedYogi)",
            methods.fedopt(INNER, PERIOD, yogi),
            "FedYogi",
            flower.FedYogi(eta=0.01, tau=1e-3, **decay),
            "v = 0 at first, where the paper has tau^2 or more",
        ),
    ]
    for call, method, name, strategy, remark in servers:
        yield row(call, name, difference(trained(method), _server(strategy)), EXACT, remark)
    rows = torch.randn(MANY, 50, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rows[:LIARS] *= 1e3
    handed = [([vector.numpy()], 1) for vector in rows]
    rules: list[tuple[str, RobustRule, str, list[Any]]] = [
        ("Median()", Median(), "FedMedian", aggregate.aggregate_median(handed)),
        ("TrimmedMean(f=2)", TrimmedMean(LIARS), "FedTrimmedAvg", aggregate.aggregate_trimmed_avg(handed, 0.2)),
        ("Krum(f=2)", Krum(LIARS), "Krum", aggregate.aggregate_krum(handed, LIARS, 0)),
    ]
    for call, rule, name, expected in rules:
        rule.start(rows, MANY)
        gap = abs(rule(rows)[0] - torch.as_tensor(expected[0])).max()
        yield row(
            call, name, float(gap / rows[LIARS:].abs().max()), EXACT, "11 vectors, 2 of them 1,000 times too long"
        )


def _parameters(vector: Tensor) -> Any:
    from flwr.common import ndarrays_to_parameters

    return ndarrays_to_parameters([vector.numpy()])


def _server(strategy: Any) -> Tensor:
    """The parameters, by a server that every process plays for itself with what all have handed in."""
    from flwr.common import Code, FitRes, Status, parameters_to_ndarrays

    model = network()
    steps = itertools.count(1)

    def update() -> None:
        step = next(steps)
        if step % PERIOD:
            return
        handed = [flat(model) for _ in range(WORKERS)]
        dist.all_gather(handed, flat(model))
        fits = [(None, FitRes(Status(Code.OK, ""), _parameters(parameters), 1, {})) for parameters in handed]
        answer, _ = strategy.aggregate_fit(step // PERIOD - 1, fits, [])
        torch.nn.utils.vector_to_parameters(torch.as_tensor(parameters_to_ndarrays(answer)[0]), model.parameters())

    return train(model, INNER(model.parameters()), update)
