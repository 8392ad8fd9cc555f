"""The problem of the catalogue's examples: 4 workers, d = 100 coordinates, and what one line can say of a method."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.local import OptimizerFactory
from commeff.core.strategy import Strategy

WORKERS = 4
LAYOUT = Layout.of([("square", (8, 8)), ("wide", (4, 8)), ("bias", (4,))])

SGD: OptimizerFactory = partial(torch.optim.SGD, lr=0.1)


def same(one: Strategy, other: Strategy, steps: int = 8) -> bool:
    """Whether two methods take every worker along the same path, up to rounding.

    >>> from commeff.methods import local_sgd, psgd
    >>> same(local_sgd(SGD, period=1), psgd(SGD)), same(local_sgd(SGD, period=2), psgd(SGD))
    (True, False)
    """
    left, right = (torch.stack([x for x, _ in _drive(strategy, steps, torch.float64)]) for strategy in (one, other))
    return torch.allclose(left, right, rtol=0, atol=1e-12)


def payloads(strategy: Strategy, steps: int = 1) -> list[float]:
    """The payload of each step: bytes that a worker hands over, 4 for each number of a float32 vector.

    >>> from commeff.methods import local_sgd
    >>> payloads(local_sgd(SGD, period=2), steps=4)
    [0, 400, 0, 400]
    """
    totals = [communicator.ledger.payload_bytes for _, communicator in _drive(strategy, steps, torch.float32)]
    return [after - before for before, after in pairwise([0, *totals])]


def bias(strategy: Strategy, steps: int = 400) -> float:
    """The distance of the workers' mean from the optimum in the end, where gradients carry no noise.

    >>> from commeff.methods import psgd
    >>> bias(psgd(SGD)) < 1e-12
    True
    """
    *_, (x, _) = _drive(strategy, steps, torch.float64)
    curvatures, optima = _problem(x)
    return float((x.mean(0) - (curvatures * optima).sum(0) / curvatures.sum(0)).norm())


def _problem(x: Tensor) -> tuple[Tensor, Tensor]:
    """f_i(x) = sum_c a_ic (x_c - b_ic)^2 / 2: the curvatures a in [0.5, 2] and the optima b, both (w, d)."""
    worker, column = torch.arange(WORKERS, dtype=x.dtype)[:, None], torch.arange(x.shape[1], dtype=x.dtype)
    return 1.25 + 0.75 * torch.sin(2 * worker + column), torch.cos(3 * worker + column)


def _drive(strategy: Strategy, steps: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, Communicator]]:
    """x and the communicator after each step, from x = 0."""
    communicator, x = Communicator(workers=WORKERS, seed=0), torch.zeros(WORKERS, LAYOUT.d, dtype=dtype)
    curvatures, optima = _problem(x)
    strategy.start(x, LAYOUT, communicator)

    def gradients(x: Tensor) -> Tensor:
        return curvatures * (x - optima)

    for communicator.step in range(steps):
        x = strategy.step(x, gradients(x), communicator, gradients)
        yield x.clone(), communicator
