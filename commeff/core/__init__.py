"""The idea: x <- parameters(local(x, gradients(g))), one `Strategy` of three slots.

`strategy` has the strategy and what fills its slots: `Transform` for `gradients` and `parameters`, `LocalStep` for
`local`, `Encoder` for what a transform sends. `local` runs torch's optimizers as local steps; `corrections` has those
that remember what averaging did (D2, quasi-global momentum, control variates). Transforms that communicate are in
`commeff.transforms`.
"""

from commeff.core.factories import Grouped, scheduled
from commeff.core.local import Local
from commeff.core.state import Timetable, Traits
from commeff.core.strategy import Chain, Encoder, GradientComparison, Keep, LocalStep, Stateful, Strategy, Transform

__all__ = [
    "Chain",
    "Encoder",
    "GradientComparison",
    "Grouped",
    "Keep",
    "Local",
    "LocalStep",
    "Stateful",
    "Strategy",
    "Timetable",
    "Traits",
    "Transform",
    "scheduled",
]
