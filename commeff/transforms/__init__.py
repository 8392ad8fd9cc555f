"""Transforms: stateful maps (w, d) -> (w, d) that may talk, and the encoders they talk with."""

from commeff.transforms.averaging import Average, Gossip, ThroughServer
from commeff.transforms.blocks import BUCKET_MB, Blocks, Buckets, Sharded, blocked, bucketed
from commeff.transforms.delayed import Delayed
from commeff.transforms.encoders import ErrorFeedback, Plain, Warmup, as_encoder, dense
from commeff.transforms.feedback import EF21, Smooth
from commeff.transforms.gossiping import Ahead, Choco, Tracking
from commeff.transforms.hierarchical import Hierarchical
from commeff.transforms.outer import Outer, RelativeTo
from commeff.transforms.powersgd import PowerSGD
from commeff.transforms.timing import Every, Scaled

__all__ = [
    "BUCKET_MB",
    "EF21",
    "Ahead",
    "Average",
    "Blocks",
    "Buckets",
    "Choco",
    "Delayed",
    "ErrorFeedback",
    "Every",
    "Gossip",
    "Hierarchical",
    "Outer",
    "Plain",
    "PowerSGD",
    "RelativeTo",
    "Scaled",
    "Sharded",
    "Smooth",
    "ThroughServer",
    "Tracking",
    "Warmup",
    "as_encoder",
    "blocked",
    "bucketed",
    "dense",
]
