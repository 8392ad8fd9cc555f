"""From a resolved configuration to objects: the one module that instantiates, and only what the registry knows.

Configurations are plain dicts here: a worker process that reads a run's config.yaml needs neither hydra nor its parent.
Before a run begins its strategy takes two steps on vectors without memory, so that what does not fit is refused before
anything is written.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.events import EventClock
from commeff.core.factories import decaying_matrices, sample_of, scheduled
from commeff.core.presence import check_absence
from commeff.core.properties import own_pace
from commeff.core.state import walk
from commeff.core.strategy import Strategy
from commeff.experiments.config.contained import contained, refused, refusing
from commeff.experiments.config.mesh_rehearsal import collecting, cut_as_on_mesh, fit_on_mesh, misfits
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import ConfigError, check_version, meshed, over_mesh
from commeff.experiments.config.settings import LABEL_FLIP, clocked, participates
from commeff.optimizers.curvature import Flat
from commeff.replicas import ShardedWorker, Stacked
from commeff.replicas.engines import engine_in
from commeff.sharding.parts import Part
from commeff.sharding.pieces import fitted
from commeff.topologies import Topology
from commeff.training.oracle import check_oracle
from commeff.training.participation import Participation
from commeff.training.task import LabelledTask, Task
from commeff.transforms import Every, attacked, bucketed, clipped

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """The parts of a run.

    Attributes
    ----------
    task, strategy, communicator : built, not started. Where workers lie on several processes, the strategy is the
        method alone, and each process makes its own communicator.
    checkpoint : bytes of a checkpoint, nearly: parameters, buffers and what the strategy remembers.
    """

    task: Task
    strategy: Strategy
    communicator: Communicator
    checkpoint: int


def instantiate(node: Any, parts: Mapping[str, Any]) -> Any:
    """Build the object that a node of the configuration describes.

    Parameters
    ----------
    node : {"_target_": ...} is a call, or with `_partial_` a function; "${compressor}" is the part of that name. Other
        keys that begin with _ mean nothing, and so does any other ${...}.
    parts : those that may be referred to.

    Raises
    ------
    ValueError : for a name that this command does not know, before anything inside its node is built.

    Examples
    --------

    >>> instantiate({"_target_": "commeff.topologies.torus", "rows": 2, "cols": "${width}"}, {"width": 3}).n
    6
    >>> instantiate({"_target_": "commeff.topologies.ring", "_partial_": True}, {})(4).n
    4
    >>> instantiate({"_target_": "builtins.eval", "source": "1"}, {})
    Traceback (most recent call last):
    commeff.experiments.config.registry.UnknownPart: 'builtins.eval' is unknown here: name its file or module with \
--plugin if you trust it
    """
    if isinstance(node, str) and node.startswith("${"):
        if node[2:-1] not in parts:
            raise ValueError(f"{node!r} must refer to one of the parts {', '.join(parts) or '(none here)'}")
        return parts[node[2:-1]]
    if isinstance(node, list):
        return [instantiate(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    target = locate(node.get("_target_"))
    arguments = {name: instantiate(value, parts) for name, value in node.items() if not str(name).startswith("_")}
    if node.get("_partial_"):
        return partial(target, **arguments)
    with contained():
        return target(**arguments)


def build(config: Mapping[str, Any], task: Task | None = None, method: Strategy | None = None) -> Parts:
    """Build the parts of a run, and see that they fit together.

    Parameters
    ----------
    config : a resolved configuration, as `compose` makes it.
    task : what its task describes, if that is built already: data need not be read twice.
    method : likewise, what its method describes.

    Raises
    ------
    ConfigError : with every part that refuses its arguments or does not fit the others.
    """
    faults: list[str] = []
    method = method or _method(config, partial(refused, faults=faults))
    on_mesh = over_mesh(config)
    if faults and not on_mesh:
        raise ConfigError(faults)  # before data are read, which may take seconds
    if task is None:
        with refused("task", faults):
            task = instantiate(config["task"], {})
    if task is not None and config.get("attack") == LABEL_FLIP:
        with refused("attack", faults):
            if not isinstance(task, LabelledTask):
                needed = f"a task of labelled classes, got {type(task).__name__}"
                raise ValueError(
                    f"attack=label_flip needs {needed}: choose another attack, or define with_liars(liars)"
                )
            task = task.with_liars(config["attackers"])
    if method is None or task is None:
        raise ConfigError(faults + (misfits(config, task) if on_mesh and task is not None else []))
    with refusing("optimizer", faults):
        whole = not meshed(config) and config.get("precision", "fp32") == "fp32"
        check_oracle(method, task, whole)
    if on_mesh:
        with refusing("method", faults):
            worker, notes = fit_on_mesh(config, task, method)
            with collecting(faults):
                size = _rehearse(config, worker, driven(copy.deepcopy(method), config, worker))
        for line in notes:
            LOG.warning(line)
        return Parts(task, method, communicator(config), config["nproc"] // config["workers"] * size)
    engine = engine_in(config.get("precision", "fp32"), config["engine"])
    with refusing("task", faults):
        one = engine(task.model, range(1), config["seed"])
    with refusing("method", faults):
        partition = cut_as_on_mesh(config, task, method) if meshed(config) else None
        strategy = driven(method, config, one, partition)
        size = _rehearse(config, one, strategy) + config["workers"] * _bytes(one.buffers)
        event_clock_of(config, task, strategy)
    return Parts(task, strategy, communicator(config), size)


def topology(config: Mapping[str, Any]) -> Topology:
    """The topology of a configuration alone, for those who only look at it."""
    result = instantiate(config["topology"], {})
    if not isinstance(result, Topology):  # a store may name any known part here
        raise ValueError(f"topology must be one, got a {type(result).__name__}")
    return result


def part(config: Mapping[str, Any], name: str) -> Any:
    """The task or the compressor of a configuration alone."""
    return instantiate(config[name], {})


def strategy(config: Mapping[str, Any]) -> Strategy:
    """The method of a configuration alone, not started, for those who only look at what it sends."""
    method = _method(config, nullcontext)
    assert method is not None
    return driven(method, config)


def _method(config: Mapping[str, Any], refusals: Callable[[str], AbstractContextManager[Any]]) -> Strategy | None:
    """The method of a configuration; None if one of its parts was refused within the context `refusals(name)`."""
    parts: dict[str, Any] = {}
    names = [name for name in ("compressor", "topology", "optimizer", "schedule") if name in config]
    for name in names:
        with refusals(name):
            parts[name] = instantiate(config[name], {})
    if len(parts) < len(names):
        return None
    if config.get("decay") == "matrices":
        with refusals("decay"):
            parts["optimizer"] = decaying_matrices(parts["optimizer"])
    if "schedule" in parts:
        sample = None
        with refusals("optimizer"):
            sample = sample_of(parts["optimizer"])
        if sample is None:
            return None
        with refusals("schedule"):
            parts["schedule"](sample)
        parts["optimizer"] = scheduled(parts["optimizer"], parts["schedule"])
    method = None
    with refusals("method"):
        check_version("method", config["method"])
        method = instantiate(config["method"], parts)
        if config.get("accumulate") is not None:
            method.accumulate = config["accumulate"]
    return method


def communicator(config: Mapping[str, Any], distributed: bool = False, group: Any = None) -> Communicator:
    """The workers of a run: all in this process, or dealt to the processes of a group or of the default one."""
    n, seed, collective = config["workers"], config["seed"], config["collective"]
    return Communicator(n, seed, group, distributed=distributed, collective=collective)


def driven(
    method: Strategy,
    config: Mapping[str, Any],
    of: Stacked | ShardedWorker | None = None,
    partition: Sequence[Part] | None = None,
) -> Strategy:
    """A method as a run drives it: in buckets, if one model may make more than one, and clipped.

    Keys that an old configuration lacks change nothing. `partition` is of a whole row that counts as cut.
    """
    if partition is None and of:
        partition = of.partition
    if partition:
        method = fitted(method, partition, config.get("pieces"))
    if config.get("attack") not in (None, LABEL_FLIP):
        method = attacked(method, config["attack"], config["attackers"])
    x, layout = (of.parameters, of.layout) if of else (None, None)
    megabytes = config.get("bucket_mb", 25)
    if x is None or x[:1].nbytes > megabytes * 1e6:
        method = bucketed(method, megabytes, x, layout)
    return method if config.get("clip") is None else clipped(method, config["clip"])


def _rehearse(config: Mapping[str, Any], of: Stacked | ShardedWorker, strategy: Strategy) -> int:
    """Start the strategy and take two steps of all workers: what does not fit is refused before anything is written.

    One model is there, for its shapes; the workers' vectors are meta tensors, which take no memory. A strategy that
    cannot step without numbers takes the steps with them, and its refusal is the one that counts.

    Returns
    -------
    bytes : of parameters and memories, which a checkpoint holds; on a mesh nearly, as ranks need not hold equally much.
    """
    rows = of.parameters.new_empty(config["workers"], of.layout.d, device="meta")
    try:
        memory = _take_steps(config, strategy, rows, of.layout)
    except Exception:
        memory = _take_steps(config, strategy, of.parameters.repeat(len(rows), 1), of.layout)
    return rows.nbytes + memory


def _take_steps(config: Mapping[str, Any], strategy: Strategy, x: Tensor, layout: Layout) -> int:
    """The bytes that a strategy remembers after its first two steps: some methods send another first message."""
    everybody = communicator(config)
    strategy.start(x, layout, everybody)
    if participates(config):
        check_absence(strategy)
    for everybody.step in range(2):
        strategy.step(x, torch.zeros_like(x), everybody, Flat())
    for line in _without_effect(config, strategy):
        LOG.warning(line)
    return _bytes(strategy.state_dict())


def _without_effect(config: Mapping[str, Any], strategy: Strategy) -> Iterator[str]:
    """A line for each feature of the method that this run does not use."""
    if own_pace(strategy) is not None and not clocked(config):
        yield "speeds is not given: all workers finish together, and the method is its synchronous twin; see speeds="
    periods = [part for _, part in walk(strategy) if isinstance(part, Every)]
    never = [part for part in periods if not any(map(part.due, range(config["steps"])))]
    if never:
        yield (
            f"steps={config['steps']} is too few for a period of {never[0].period} steps: {len(never)} of "
            f"{len(periods)} periodic exchanges never come; give more steps or a shorter period"
        )


def _bytes(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.nbytes
    return sum(map(_bytes, state.values())) if isinstance(state, dict) else 0


def participation(config: Mapping[str, Any], strategy: Strategy) -> Participation | None:
    """The workers that take part in each step of a run; None: all in all. A round is what the method repeats."""
    if not participates(config):
        return None
    trace = tuple((worker, start, stop) for worker, start, stop in config["availability"] or ())
    period = (strategy.timetable().period or 1) if strategy.agrees() else 1
    share, dropout = config["participation"], config["dropout"]
    return Participation(config["workers"], config["seed"], share, period, dropout, trace)


def event_clock_of(config: Mapping[str, Any], task: Task, strategy: Strategy) -> EventClock | None:
    """When workers finish their gradients, on a run's simulated clock; None: it has none."""
    if not clocked(config):
        return None
    from commeff.experiments.config.clock import event_clock  # with the clusters, for runs that have a clock

    return event_clock(config, task, strategy)
