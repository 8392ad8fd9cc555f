"""The search for the best policy: seven methods on one interface, at equal budgets.

>>> from commeff.cluster import Cluster
>>> from commeff.planner import Model
>>> model, cluster = Model(24, 2048, 16, 1024, 51200), Cluster.named("a100_selene", gpus=16)
>>> best, second, *rest = search(model, cluster, global_batch=64)
>>> best.step_seconds <= second.step_seconds, best.prediction.fits
(True, True)
"""

from commeff.planner.search.api import METHODS, Plan, search
from commeff.planner.search.space import Space

__all__ = ["METHODS", "Plan", "Space", "search"]
