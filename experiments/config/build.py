"""From a resolved configuration to objects: the one module that instantiates, and only what the registry knows.

Configurations are plain dicts here: a worker process that reads a run's config.yaml needs neither hydra nor its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from commeff.communicator import Communicator
from commeff.compressors import Compressor
from commeff.core.factories import scheduled
from commeff.core.strategy import Strategy
from commeff.experiments.config.contained import contained, refused
from commeff.experiments.config.misfits import misfits
from commeff.experiments.config.presence import LABEL_FLIP
from commeff.experiments.config.registry import locate
from commeff.experiments.config.rehearsal import (
    communicator,
    cut_as_on_mesh,
    driven,
    event_clock_of,
    rehearse,
    rehearse_on_mesh,
)
from commeff.experiments.config.schema import ConfigError, check_version, meshed, over_mesh
from commeff.replicas.stacked import engine_in
from commeff.topologies import Topology
from commeff.training.oracle import check_oracle
from commeff.training.task import LabelledTask, Task


@dataclass(frozen=True)
class Parts:
    """What a run is made of.

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
    """Build what a node of the configuration describes.

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
            task = _lying(task, config["attackers"])
    if method is None or task is None:
        raise ConfigError(faults + (misfits(config, task) if on_mesh and task is not None else []))
    with refused("optimizer", faults):
        whole = not meshed(config) and config.get("precision", "fp32") == "fp32"
        check_oracle(method, task, whole)
    if faults:
        raise ConfigError(faults)
    if on_mesh:
        with refused("method", faults):
            return Parts(task, method, communicator(config), rehearse_on_mesh(config, task, method))
        raise ConfigError(faults)
    engine = engine_in(config.get("precision", "fp32"), config["engine"])
    with refused("task", faults):
        one = engine(task.model, range(1), config["seed"])
    if faults:
        raise ConfigError(faults)
    with refused("method", faults):
        partition = cut_as_on_mesh(config, task, method) if meshed(config) else None
        strategy = driven(method, config, one, partition)
        size = rehearse(config, one, strategy)
        event_clock_of(config, task, strategy)
    if faults:
        raise ConfigError(faults)
    return Parts(task, strategy, communicator(config), size)


def _lying(task: Task, liars: int) -> Task:
    if not isinstance(task, LabelledTask):
        raise ValueError(
            f"attack=label_flip needs a task of labelled classes, got {type(task).__name__}: choose another attack, or "
            "define with_liars(liars)"
        )
    return task.with_liars(liars)


def topology(config: Mapping[str, Any]) -> Topology:
    """The topology of a configuration alone, for those who only look at it."""
    result = instantiate(config["topology"], {})
    if not isinstance(result, Topology):  # a store may name any known part here
        raise ValueError(f"topology must be one, got a {type(result).__name__}")
    return result


def compressor(config: Mapping[str, Any]) -> Compressor:
    """The compressor of a configuration alone."""
    result: Compressor = instantiate(config["compressor"], {})
    return result


def task(config: Mapping[str, Any]) -> Task:
    """The task of a configuration alone."""
    result: Task = instantiate(config["task"], {})
    return result


def strategy(config: Mapping[str, Any]) -> Strategy:
    """The method of a configuration alone, not started, for those who only look at what it sends."""
    method = _method(config, nullcontext)
    assert method is not None
    return driven(method, config)


def _method(config: Mapping[str, Any], each: Callable[[str], AbstractContextManager[Any]]) -> Strategy | None:
    """The method of a configuration; None if one of its parts was refused within the context of `each` part's name."""
    parts: dict[str, Any] = {}
    names = [name for name in ("compressor", "topology", "optimizer", "schedule") if name in config]
    for name in names:
        with each(name):
            parts[name] = instantiate(config[name], {})
    if len(parts) < len(names):
        return None
    if "schedule" in parts:
        parts["optimizer"] = scheduled(parts["optimizer"], parts["schedule"])
    method = None
    with each("method"):
        check_version("method", config["method"])
        method = instantiate(config["method"], parts)
        if config.get("accumulate") is not None:
            method.accumulate = config["accumulate"]
    return method
