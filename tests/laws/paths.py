"""Trajectories of small problems, and recursions to hold against them."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from commeff import Communicator, Layout, topologies
from commeff.core import scheduled
from commeff.laws import slope as heterogeneous_slope
from commeff.laws import start

N, D, STEPS = 6, 10, 30
SGD, HEAVY = partial(torch.optim.SGD, lr=0.1), partial(torch.optim.SGD, lr=0.05, momentum=0.9)
DROP = scheduled(SGD, partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[7, 15], gamma=0.1))
RATES = [0.1] * 7 + [0.01] * 8 + [0.001] * 15
MEAN = topologies.complete(N)  # W = J
APART = topologies.from_matrices([np.eye(N)])  # W = I
RING = topologies.ring(N)
EXPONENTIAL = topologies.exponential(N)


def slope(x, step):
    return heterogeneous_slope(x, step, range(x.shape[0]))


def drive(strategy, steps=STEPS, n=N, d=D, layout=None, slope=slope, watch=lambda strategy: None):
    communicator, x = Communicator(workers=n, seed=1), start(n, d)
    strategy.start(x, layout or Layout.flat(d), communicator)
    path, seen = [x], []
    for communicator.step in range(steps):
        x = strategy.step(x, slope(x, communicator.step), communicator, lambda y: slope(y, communicator.step))
        path.append(x)
        seen.append(watch(strategy))
    return torch.stack(path), seen


def equal(strategy, other, tolerance=1e-12, **options):
    left, right = drive(strategy, **options)[0], drive(other, **options)[0]
    assert (left - right).abs().max() <= tolerance, f"they differ by {(left - right).abs().max():.1e}"


def follows(path, update, tolerance=1e-12):
    """x^{k+1} = update(k, x^0 .. x^k) along a path."""
    for k in range(len(path) - 1):
        assert (path[k + 1] - update(k, path)).abs().max() <= tolerance, (
            f"at step {k} off by {(path[k + 1] - update(k, path)).abs().max():.1e}"
        )


def mean(v):
    return v.mean(0, keepdim=True).expand_as(v)


def dense(topology):
    return torch.from_numpy(topology.at(0).dense())
