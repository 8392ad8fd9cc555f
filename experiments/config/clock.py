"""The simulated clock of a run, from its configuration: the same on every process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from commeff.cluster.billing import Billing, message_bytes
from commeff.cluster.cluster import Cluster
from commeff.cluster.events import InStep, OutOfStep, free
from commeff.cluster.places import Place
from commeff.cluster.simulation import exchange
from commeff.cluster.speeds import Speeds
from commeff.core.events import EventClock, WaitsFor
from commeff.core.properties import own_pace
from commeff.core.strategy import Strategy
from commeff.experiments.tasks.shapes import shapes_only
from commeff.profiling import Profile, profile
from commeff.replicas import Stacked
from commeff.training.task import Task


def event_clock(config: Mapping[str, Any], task: Task, strategy: Strategy) -> EventClock:
    """When workers finish their gradients; links take no time unless a cluster is named."""
    n, links = config["workers"], config["links"]
    cluster = None if links is None else Place(links, Cluster.named(links)).holding(n)
    with shapes_only():
        one = Stacked(task.model, range(1))
    paced, sent = own_pace(strategy), None
    if paced is not None and config["attack"] is not None:
        raise ValueError(
            f"attack must be left out for an asynchronous method with speeds, got {config['attack']}: liars look "
            "at the gradients of all workers, which are not there together"
        )
    if paced is None or cluster is not None:
        settings = {"seed": config["seed"], "collective": config["collective"], "dtype": one.parameters.dtype}
        sent = profile(strategy, one.layout, n, **settings)
    if paced is not None:
        lone = 0.0 if cluster is None or sent is None else lone_exchange(sent, cluster, paced.waits_for)
        return OutOfStep(speeds_of(config), paced.waits_for, lone)
    assert sent is not None
    price = free if cluster is None else Billing(cluster, n).seconds
    return InStep(speeds_of(config), sent, steps=config["steps"], price=price)


def speeds_of(config: Mapping[str, Any]) -> Speeds:
    """How long each worker computes."""
    kind, trace = config["speeds"], defaultdict[int, list[float]](list)
    for worker, seconds in kind if isinstance(kind, list) else ():
        trace[worker].append(seconds)
    spread = config["spread"] if kind == "drawn" else 0.0
    n, seconds, straggler, seed = (config[key] for key in ("workers", "step_time", "straggler", "seed"))
    return Speeds(n, seconds, spread, straggler, kind == "staggered", dict(trace), seed)


def lone_exchange(sent: Profile, cluster: Cluster, waits_for: WaitsFor) -> float:
    """Seconds of one worker's exchange, as if nobody else sent: between the first worker and the last."""
    ends, seconds = np.array([0, sent.workers - 1]), 0.0
    if sent.workers == 1:
        return seconds
    for operation in sent.operations(waits_for.period - 1):
        heard = 1.0 if operation.matrix is None else float(operation.matrix.in_degrees.max())
        seconds += exchange(cluster, ends[1:], ends[:1], heard * message_bytes(operation), operation.rounds)
    return seconds
