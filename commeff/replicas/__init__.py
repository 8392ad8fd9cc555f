"""The models of the hosted workers."""

from commeff.replicas.stacked import Stacked
from commeff.replicas.vmapped import Vmapped

__all__ = ["Stacked", "Vmapped"]
