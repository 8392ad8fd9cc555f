"""Transforms: stateful maps (w, d) -> (w, d) that may communicate, and the encoders that make their messages.

Those that communicate: `Average`, `Gossip`, `ThroughServer`, and their compressed kin `EF21`, `Diana`, `Choco`,
`DeepSqueeze`, `DCD`, `ECD`, `PowerSGD`. Those that wrap another: `Every`, `Sometimes`, `AdaptivePeriod`, `After` and
`Since` say when it runs, `Weighted` how much each worker counts, `Outer` treats its result as a gradient, `Delayed`,
`MixedIn`, `Pulled` and `Ahead` overlap it with computing, `Blocks`, `Buckets` and `Fragments` run it on blocks of
columns, `Alongside` on the rows and a memory of the local step at once, `OnHost` keeps its memory off the GPU,
`Clipped` bounds the norm of its result. `LazyMean` moves by what `IfChanged` and its kin let through, `Marina` by
`Differences`. `ErrorFeedback` and `Warmup` are encoders. `ParameterServer`, `PairAverage` and `StaleGossip` are for
workers that do not wait for each other.
"""

from commeff.transforms.adaptive import AdaptivePeriod, Growing, Shrinking
from commeff.transforms.asynchronous import PairAverage, ParameterServer, StaleGossip
from commeff.transforms.attacks import Attack, attacked
from commeff.transforms.averaging import Average, Gossip, Partial, Scaled, ThroughServer, Weighted
from commeff.transforms.blocks import BUCKET_MB, Blocks, Buckets, Sharded, blocked, bucketed
from commeff.transforms.clipping import Clipped, clipped
from commeff.transforms.compressed_gossip import DCD, ECD, Choco, DeepSqueeze
from commeff.transforms.decoupled import CosineMomentum, Signed, Striding
from commeff.transforms.delayed import Delayed, Exchange, MixedIn, Pulled
from commeff.transforms.encoders import ErrorControl, ErrorFeedback, Plain, Warmup, as_encoder
from commeff.transforms.feedback import EF21, Diana, Differences, Marina, ServerVariates, Smooth
from commeff.transforms.fragments import Fragments, NamedFragments
from commeff.transforms.gossiping import Ahead, Alongside, Hierarchical, PushSum, Tracking, ordered
from commeff.transforms.lazy import IfBatchChanged, IfChanged, IfMoved, LazyMean
from commeff.transforms.on_host import OnHost
from commeff.transforms.one_bit import Doubling, OneBitAdam, Thinning, ZeroOneAdam
from commeff.transforms.outer import DelayedNesterov, GossipOuter, InUnitsOf, Outer, PerWorkerOuter, ServerOptimizer
from commeff.transforms.powersgd import PowerSGD
from commeff.transforms.powersgd_batched import BatchedPowerSGD
from commeff.transforms.robust import Robust
from commeff.transforms.robust_gossip import RobustGossip
from commeff.transforms.timing import After, Every, Since, Sometimes

__all__ = [
    "BUCKET_MB",
    "DCD",
    "ECD",
    "EF21",
    "AdaptivePeriod",
    "After",
    "Ahead",
    "Alongside",
    "Attack",
    "Average",
    "BatchedPowerSGD",
    "Blocks",
    "Buckets",
    "Choco",
    "Clipped",
    "CosineMomentum",
    "DeepSqueeze",
    "Delayed",
    "DelayedNesterov",
    "Diana",
    "Differences",
    "Doubling",
    "ErrorControl",
    "ErrorFeedback",
    "Every",
    "Exchange",
    "Fragments",
    "Gossip",
    "GossipOuter",
    "Growing",
    "Hierarchical",
    "IfBatchChanged",
    "IfChanged",
    "IfMoved",
    "InUnitsOf",
    "LazyMean",
    "Marina",
    "MixedIn",
    "NamedFragments",
    "OnHost",
    "OneBitAdam",
    "Outer",
    "PairAverage",
    "ParameterServer",
    "Partial",
    "PerWorkerOuter",
    "Plain",
    "PowerSGD",
    "Pulled",
    "PushSum",
    "Robust",
    "RobustGossip",
    "Scaled",
    "ServerOptimizer",
    "ServerVariates",
    "Sharded",
    "Shrinking",
    "Signed",
    "Since",
    "Smooth",
    "Sometimes",
    "StaleGossip",
    "Striding",
    "Thinning",
    "ThroughServer",
    "Tracking",
    "Warmup",
    "Weighted",
    "ZeroOneAdam",
    "as_encoder",
    "attacked",
    "blocked",
    "bucketed",
    "clipped",
    "ordered",
]
