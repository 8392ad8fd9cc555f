"""Communication-efficient data-parallel training: x <- parameters(local(x, gradients(g))) on the matrix of all workers'
vectors.

`methods` holds the catalogue, `transforms` and `local` the parts it is made of, `Communicator` the workers that talk.
"""

from commeff import methods
from commeff.communicator import Communicator
from commeff.ddp_hook import HookState, average_hook
from commeff.drop_in import DistributedOptimizer
from commeff.local import Grouped, Local, scheduled
from commeff.strategy import Chain, Encoder, Keep, LocalStep, Stateful, Strategy, Transform
from commeff.transforms import ErrorFeedback, Warmup
from compressors import Layout

__all__ = [
    "Chain",
    "Communicator",
    "DistributedOptimizer",
    "Encoder",
    "ErrorFeedback",
    "Grouped",
    "HookState",
    "Keep",
    "Layout",
    "Local",
    "LocalStep",
    "Stateful",
    "Strategy",
    "Transform",
    "Warmup",
    "average_hook",
    "methods",
    "scheduled",
]
