"""`commeff bench processes`: what communication costs in a step of real processes, as a share of what it costs
DistributedDataParallel; PowerSGD against torch's hook; and 16 workers on two processes against one.

All on one machine, where bandwidth is plenty: what is seen is the overhead of the library and of the collectives, not
what a method saves on a network. DDP goes over gloo's loopback; the library shares memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from commeff import Communicator, DistributedOptimizer, ErrorFeedback, Strategy, methods, topologies
from commeff.adapters.ddp_hook import HookState, average_hook
from commeff.compressors import TopK
from commeff.experiments.measure.forks import on_forks, time_in_turns
from commeff.experiments.measure.timing import ratio
from commeff.experiments.studies.bench import hosting
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.subjects import CLASSES, SGD, SUBJECTS, Step, TimedModel, loop
from commeff.experiments.tasks.models import seeded

RANK = 2
PERIOD = 8  # of local SGD; a block of so many steps holds one communication
ONE, MANY = 1000, 0.25  # MB a bucket: one bucket for all gradients, and many
LIMITS = {"psgd": 1.1, "one-peer gossip": 0.8, "one-peer gossip, awc": 0.8, "local_sgd, period 8": 0.25}
LOW_RANK, HOOK = ("power_sgd", "power_sgd, many buckets"), "torch's PowerSGD hook, one bucket"


def strategies(n: int) -> dict[str, Strategy]:
    """The library's contestants, by name."""
    one_peer = topologies.one_peer_exponential(n)
    return {
        "psgd": methods.psgd(SGD),
        "one-peer gossip": methods.dsgd(SGD, one_peer),
        "one-peer gossip, awc": methods.dsgd(SGD, one_peer, order="awc"),
        "local_sgd, period 8": methods.local_sgd(SGD, PERIOD),
        "power_sgd": methods.power_sgd(SGD, RANK),
    }


def make_flat_average(model: nn.Module) -> Callable[[], None]:
    """The mean of all gradients by one all-reduce of one vector, which they are copied into and then views of."""
    parameters = list(model.parameters())
    flat = torch.empty(sum(p.numel() for p in parameters))
    pieces = flat.split([p.numel() for p in parameters])
    views = [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]

    def average() -> None:
        torch.cat([p.grad.flatten() for p in parameters if p.grad is not None], out=flat)
        dist.all_reduce(flat)
        flat.div_(dist.get_world_size())
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view

    return average


def contestants(subject: TimedModel, n: int) -> dict[str, Step]:
    """One step of each contestant, by name: each has its own copy of one model, all have the same batch.

    The two DDPs differ in nothing: how far they are apart tells how far the figures can be trusted. Torch's PowerSGD
    and ours agree in rank, error feedback, warm start and in which tensors they factor (min_compression_rate 1: those
    that it makes smaller), but torch's first two steps average exactly and it does not run on gloo with more than one
    bucket.
    """
    draw, fresh = torch.Generator().manual_seed(dist.get_rank()), partial(seeded, subject.model, 0)
    batch = torch.randn(subject.inputs, generator=draw), torch.randint(CLASSES, subject.inputs[:1], generator=draw)

    def plain(model: nn.Module, average: Callable[[], None] = lambda: None) -> Step:
        return loop(model, SGD(model.parameters()), batch, average)

    by_hand, top_k = fresh(), DistributedDataParallel(fresh())
    top_k.register_comm_hook(HookState(ErrorFeedback(TopK(ratio=0.01))), average_hook)
    steps = {
        "local": plain(fresh()),
        "DDP": plain(DistributedDataParallel(fresh())),
        "DDP, once more": plain(DistributedDataParallel(fresh())),
        "one all-reduce by hand": plain(by_hand, make_flat_average(by_hand)),
        "top 1 % under DDP": plain(top_k),
    }
    for name, strategy in strategies(n).items():
        model = fresh()
        steps[name] = loop(model, DistributedOptimizer(model, strategy), batch)
    split, low_rank = fresh(), methods.power_sgd(SGD, RANK)
    steps[LOW_RANK[1]] = loop(split, DistributedOptimizer(split, low_rank, bucket_mb=MANY), batch)
    hooked = DistributedDataParallel(fresh(), bucket_cap_mb=ONE)
    state = PowerSGDState(None, RANK, start_powerSGD_iter=2, min_compression_rate=1)
    hooked.register_comm_hook(state, powerSGD_hook)
    return steps | {HOOK: plain(hooked)}


def exposed(seconds: Mapping[str, list[float]], name: str) -> float:
    """(t - t_local) / (t_DDP - t_local): the communication that a step waits for, in units of DDP's.

    The medians of t / t_local and of t_DDP / t_local are taken over rounds, each less 1, and then divided. A quotient
    of differences within each round would have a denominator near zero where DDP hides nearly all of its communication,
    and a median of such quotients says little; here what slows a whole round cancels, and noise is divided only once.
    Infinite if DDP was no slower than local steps: there is nothing to compare with.

    >>> exposed({"local": [1.0, 2.0, 1.0], "DDP": [1.5, 3.0, 9.0], "it": [1.25, 2.5, 0.1]}, "it")
    0.5
    """
    unit = ratio(seconds, "DDP", "local") - 1
    return (ratio(seconds, name, "local") - 1) / unit if unit > 0 else math.inf


def compare(subject: TimedModel, n: int, rounds: int, steps: int) -> Iterator[MeasuredRatio]:
    """The figures of one model on n processes, over rounds of so many steps."""

    def measure(communicator: Communicator) -> dict[str, list[float]]:
        everybody = contestants(subject, communicator.n)
        seconds = time_in_turns(everybody, rounds, steps)
        for name, step in everybody.items():
            if not step().isfinite():
                raise ValueError(f"{name} diverged on {subject.name}; its time is not that of ordinary numbers")
        return seconds

    seconds = on_forks(n, n, measure)
    label = f"{subject.name}, {n} processes"
    yield MeasuredRatio(label, "step of DDP / local step", ratio(seconds, "DDP", "local"))
    for name in (name for name in seconds if name not in ("local", "DDP")):
        shown = f"communication, {name} / DDP"
        yield MeasuredRatio(label, shown, exposed(seconds, name), at_most=LIMITS.get(name))
    for name in LOW_RANK:
        yield MeasuredRatio(label, f"step, {name} / {HOOK}", ratio(seconds, name, HOOK), at_most=1.0)


def run(rounds: int = 9, steps: int = PERIOD) -> Iterator[MeasuredRatio]:
    """All models on two and on four processes, and 16 workers on two processes against one."""
    for subject in SUBJECTS:
        for n in (2, 4):
            yield from compare(subject, n, rounds, steps)
    yield from hosting.run(rounds)
