"""Clusters described, and seconds from messages. Modelled, never measured.

`hardware` and `cluster` say what there is: links, GPUs, nodes, from YAML files; `network` how nodes are
wired. `groups` says where workers sit, `collectives` what their collectives and exchanges cost: the one price of a
message. `simulation` puts every message on its links: the law that the formulas obey, and the price of gossip over any
graph. `billing` prices operations of a ledger or a profile, `modelled` a whole run; `progress` lets workers wait for
whom they hear from.

>>> from commeff.cluster import Cluster
>>> Cluster.named("h100_400g", gpus=64)  # doctest: +ELLIPSIS
Cluster(name='h100_400g', gpus=64, gpu=GPU(name='H100-SXM5-80GB', ...
"""

from commeff.cluster.cluster import Cluster, names
from commeff.cluster.hardware import GPU, PRECISIONS, Link
from commeff.cluster.network import Crossbar, FatTree, Network, Rails, Traffic

__all__ = ["GPU", "PRECISIONS", "Cluster", "Crossbar", "FatTree", "Link", "Network", "Rails", "Traffic", "names"]
