"""The idea: a strategy of three slots, the local steps and transforms that fill them, and steps that correct bias."""

from commeff.core.local import Grouped, Local, scheduled
from commeff.core.strategy import Chain, Encoder, Keep, LocalStep, Stateful, Strategy, Transform

__all__ = [
    "Chain",
    "Encoder",
    "Grouped",
    "Keep",
    "Local",
    "LocalStep",
    "Stateful",
    "Strategy",
    "Transform",
    "scheduled",
]
