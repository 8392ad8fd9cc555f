"""Clusters described, and seconds from messages. Modelled, never measured.

`hardware` and `description` say what there is: links, GPUs, nodes, from YAML files; `network` how nodes are wired.
`costs` are the textbook formulas on one link, `placed` the same operations among workers that share NICs and switches.
`modelled` turns the ledger of a run into seconds, `stragglers` lets workers wait for whom they hear from,
and `clocks` does so over links that differ.

>>> from commeff.cluster import Cluster
>>> Cluster.named("h100_400g", gpus=64)  # doctest: +ELLIPSIS
Cluster(name='h100_400g', gpus=64, gpu=GPU(name='H100-SXM5-80GB', ...
"""

from commeff.cluster.description import names
from commeff.cluster.hardware import GPU, PRECISIONS, Cluster, Link
from commeff.cluster.network import Crossbar, FatTree, Network, Rails, Traffic

__all__ = ["GPU", "PRECISIONS", "Cluster", "Crossbar", "FatTree", "Link", "Network", "Rails", "Traffic", "names"]
