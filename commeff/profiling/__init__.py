"""What a strategy sends and remembers, found by playing it: the one description of a method.

`profile(strategy, layout, workers)` plays any strategy, plug-ins too, as one process of n on tensors without memory,
and writes down what it would send in each step. Planner, `commeff scale` and reports price that; there is no other list
of what methods send.

>>> from functools import partial
>>> import torch
>>> from commeff import Layout, methods
>>> p = profile(methods.local_sgd(partial(torch.optim.SGD, lr=0.1), period=8), Layout.flat(1_000_000), workers=16)
>>> p.period, [operation.kind for operation in p.operations(7)], p.operations(6)
(8, ['all_reduce'], ())
>>> p.payload_bytes, p.wire_bytes
(500000.0, 937500.0)
"""

from commeff.profiling.attended import Attended, attended
from commeff.profiling.profile import Profile, profile
from commeff.profiling.rehearsal import Operation

__all__ = ["Attended", "Operation", "Profile", "attended", "profile"]
