"""The models of the hosted workers."""

from commeff.replicas.engines import LowStacked, MixedStacked, Vmapped
from commeff.replicas.sharded import ShardedWorker
from commeff.replicas.stacked import Stacked

__all__ = ["LowStacked", "MixedStacked", "ShardedWorker", "Stacked", "Vmapped"]
