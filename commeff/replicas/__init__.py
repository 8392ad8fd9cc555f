"""The models of the hosted workers."""

from commeff.replicas.low import LowStacked
from commeff.replicas.mixed import MixedStacked
from commeff.replicas.sharded import ShardedWorker
from commeff.replicas.stacked import Stacked
from commeff.replicas.vmapped import Vmapped

__all__ = ["LowStacked", "MixedStacked", "ShardedWorker", "Stacked", "Vmapped"]
