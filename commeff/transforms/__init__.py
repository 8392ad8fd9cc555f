"""Transforms: stateful maps (w, d) -> (w, d) that may talk, and the encoders they talk with."""

from commeff.transforms.averaging import Average, Gossip, ThroughServer
from commeff.transforms.blocks import Blocks, blocked
from commeff.transforms.encoders import ErrorFeedback, Plain, Warmup, as_encoder, dense
from commeff.transforms.feedback import EF21, Smooth
from commeff.transforms.gossiping import Ahead, Choco, Tracking
from commeff.transforms.outer import Outer, RelativeTo
from commeff.transforms.powersgd import PowerSGD
from commeff.transforms.timing import Every, Scaled

__all__ = [
    "EF21",
    "Ahead",
    "Average",
    "Blocks",
    "Choco",
    "ErrorFeedback",
    "Every",
    "Gossip",
    "Outer",
    "Plain",
    "PowerSGD",
    "RelativeTo",
    "Scaled",
    "Smooth",
    "ThroughServer",
    "Tracking",
    "Warmup",
    "as_encoder",
    "blocked",
    "dense",
]
