"""Two steps of a run on vectors that take no memory: what does not fit is refused before anything is written."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.compressors.parts import Part
from commeff.core.curvature import Flat
from commeff.core.events import EventClock
from commeff.core.presence import check_absence
from commeff.core.properties import own_pace
from commeff.core.shapes import shapes_only
from commeff.core.state import Stateful
from commeff.core.strategy import Strategy
from commeff.experiments.config.contained import refused
from commeff.experiments.config.meshes import AXES, degrees
from commeff.experiments.config.misfits import misfits, pass_through, told
from commeff.experiments.config.presence import LABEL_FLIP, participates
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.config.speeds import clocked
from commeff.parallelism.partition import joined
from commeff.parallelism.played import PlayedMesh
from commeff.replicas import ShardedWorker, Stacked
from commeff.training.participation import Participation
from commeff.training.sharding import on_mesh
from commeff.training.task import Task
from commeff.transforms import Every, attacked, bucketed, clipped, fitted

LOG = logging.getLogger(__name__)


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


def rehearse(config: Mapping[str, Any], one: Stacked, strategy: Strategy) -> int:
    """Start the strategy and take two steps of all workers: what does not fit is refused before anything is written.

    One model is there, for its shapes; the workers' vectors are meta tensors, which take no memory. A strategy that
    cannot step without numbers takes the steps with them, and its refusal is the one that counts.

    Returns
    -------
    bytes : of parameters, buffers and memories, which are what a checkpoint holds.
    """
    rows = torch.empty(config["workers"], one.layout.d, dtype=one.parameters.dtype, device="meta")
    try:
        memory = _take_steps(config, strategy, rows, one.layout)
    except Exception:
        memory = _take_steps(config, strategy, one.parameters.repeat(len(rows), 1), one.layout)
    return rows.nbytes + len(rows) * _bytes(one.buffers) + memory


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
    """A line for what the method has and this run does not use."""
    if own_pace(strategy) is not None and not clocked(config):
        yield "speeds is not given: all workers finish together, and the method is its synchronous twin; see speeds="
    periods = [*_periods(strategy)]
    never = [each for each in periods if not any(map(each.due, range(config["steps"])))]
    if never:
        yield (
            f"steps={config['steps']} is too few for a period of {never[0].period} steps: {len(never)} of "
            f"{len(periods)} periodic exchanges never come; give more steps or a shorter period"
        )


def _periods(part: Stateful) -> Iterator[Every]:
    for _, inner in part.parts():
        if isinstance(inner, Every):
            yield inner
        yield from _periods(inner)


def _bytes(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.nbytes
    return sum(map(_bytes, state.values())) if isinstance(state, dict) else 0


def participation(config: Mapping[str, Any], strategy: Strategy) -> Participation | None:
    """Who takes part in which step of a run; None: all in all. A round is what the method repeats."""
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
    from commeff.experiments.config.timing import event_clock  # with the clusters, for runs that have a clock

    return event_clock(config, task, strategy)


def cut_as_on_mesh(config: Mapping[str, Any], task: Task, method: Strategy) -> tuple[Part, ...]:
    """The parts in which ranks of the mesh would hold a worker's row, which is whole here.

    Raises
    ------
    ConfigError : with all that does not fit the mesh.
    """
    if faults := misfits(config, task, method):
        raise ConfigError(faults)
    with warnings.catch_warnings(), told(faults):
        warnings.filterwarnings("ignore", "micro_batches=")  # nobody waits for another
        ranks = [play(config, task, place) for place in places(config)]
    if faults:
        raise ConfigError(faults)
    return joined((rank.layout, rank.partition) for rank in ranks)


def places(config: Mapping[str, Any]) -> list[dict[str, int]]:
    """Where the ranks of the first worker are in the mesh, by axis."""
    by_axis = degrees(config) | {"worker": 1}
    return [dict(zip(AXES, each, strict=True)) for each in product(*(range(by_axis[axis]) for axis in AXES))]


def rehearse_on_mesh(config: Mapping[str, Any], task: Task, method: Strategy) -> int:
    """The same for workers that lie on several processes, as the first rank of each sees it.

    Models and rows are on the meta device, and the mesh is played: no model is made.

    Returns
    -------
    bytes : of all processes' parameters and memories, nearly: ranks need not hold equally much.

    Raises
    ------
    ConfigError : with all that does not fit.
    """
    if faults := misfits(config, task, method):
        raise ConfigError(faults)
    with warnings.catch_warnings(record=True) as warned, refused("task", faults), told(faults):
        worker, *others = [play(config, task, {"pipeline": rank}) for rank in range(degrees(config)["pipeline"])]
        pass_through(config, task, [worker, *others])
    if faults:
        raise ConfigError(faults)
    with told(faults):
        rows = worker.parameters.new_empty(config["workers"], worker.layout.d)
        memory = _take_steps(config, driven(method, config, worker), rows, worker.layout)
    if faults:
        raise ConfigError(faults)
    for line in dict.fromkeys(str(warning.message) for warning in warned):
        LOG.warning(line)
    return config["nproc"] // config["workers"] * (rows.nbytes + memory)


def play(config: Mapping[str, Any], task: Task, place: Mapping[str, int] | None = None) -> ShardedWorker:
    """A rank's piece of a worker, on the meta device, of a run whose workers lie on several processes.

    place : where the rank is, by axis; the first one unless given.
    """
    zero = min(config["zero"], 2)  # stage 3 needs processes, and leaves a rank as many columns
    with shapes_only():
        told = {**on_mesh_by(config), "zero": zero, "precision": "fp32"}
        return on_mesh(task, PlayedMesh(degrees(config), place), **told)


def on_mesh_by(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `on_mesh` is told of a run."""
    told = {name: config[name] for name in ("zero", "precision", "sequence", "micro_batches", "recompute", "seed")}
    return told | {"schedule": config["mesh"]["schedule"]}
