"""Communication-efficient data-parallel training: x <- parameters(local(x, gradients(g))) on the matrix of all workers'
vectors.

Three methods as three fillings of the sandwich; `methods` holds the whole catalogue:

    parallel SGD   Strategy(Local(optimizer), gradients=Average())
    gossip SGD     Strategy(Local(optimizer), parameters=Gossip(topology))
    DiLoCo         Strategy(Local(optimizer), parameters=Every(16, Outer(Local(nesterov), Average())))

`Strategy` and the kinds of its parts (`Transform`, `LocalStep`, `Encoder`) are in `commeff.core`, the parts themselves
in `commeff.transforms`, messages in `commeff.compressors`, graphs in `commeff.topologies`. `train` runs a strategy on a
task, `DistributedOptimizer` puts a method into your own loop, `average_hook` an encoder under DDP, `profile` says what
a strategy sends. `run`, `grid` and `load` are the command line from Python: results as pandas DataFrames;
`simulate` is a run of a model and data of your own. Names are imported when they are first used, so that `import
commeff` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commeff import compressors, methods, topologies
    from commeff.adapters.ddp_hook import HookState, average_hook
    from commeff.adapters.optimizer import DistributedOptimizer
    from commeff.communicator import Communicator
    from commeff.compressors import Layout
    from commeff.core import Encoder, Local, LocalStep, Strategy, Transform, scheduled
    from commeff.experiments.python import grid, load, run, simulate
    from commeff.profiling.profile import profile
    from commeff.training.settings import RunSettings
    from commeff.training.trainer import train
    from commeff.transforms import Average, ErrorFeedback, Every, Gossip, Outer

try:
    __version__ = version("commeff")
except PackageNotFoundError:  # a source tree that nobody has installed
    __version__ = "0+unknown"

_HOMES = {
    "Average": "commeff.transforms",
    "Communicator": "commeff.communicator",
    "DistributedOptimizer": "commeff.adapters.optimizer",
    "Encoder": "commeff.core",
    "ErrorFeedback": "commeff.transforms",
    "Every": "commeff.transforms",
    "Gossip": "commeff.transforms",
    "HookState": "commeff.adapters.ddp_hook",
    "Layout": "commeff.compressors",
    "Local": "commeff.core",
    "LocalStep": "commeff.core",
    "Outer": "commeff.transforms",
    "RunSettings": "commeff.training.settings",
    "Strategy": "commeff.core",
    "Transform": "commeff.core",
    "average_hook": "commeff.adapters.ddp_hook",
    "grid": "commeff.experiments.python",
    "load": "commeff.experiments.python",
    "profile": "commeff.profiling",
    "run": "commeff.experiments.python",
    "scheduled": "commeff.core",
    "simulate": "commeff.experiments.python",
    "train": "commeff.training.trainer",
}

__all__ = [
    "Average",
    "Communicator",
    "DistributedOptimizer",
    "Encoder",
    "ErrorFeedback",
    "Every",
    "Gossip",
    "HookState",
    "Layout",
    "Local",
    "LocalStep",
    "Outer",
    "RunSettings",
    "Strategy",
    "Transform",
    "average_hook",
    "compressors",
    "grid",
    "load",
    "methods",
    "profile",
    "run",
    "scheduled",
    "simulate",
    "topologies",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"commeff.{name}")
    raise AttributeError(f"module 'commeff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
