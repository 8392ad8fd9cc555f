"""Clusters for a reader at a terminal: a line on each that ships, and everything about one."""

from __future__ import annotations

from typing import Any

from commeff.cluster import Cluster, names
from commeff.cluster.collectives import all_reduce
from commeff.cluster.groups import Groups
from commeff.cluster.places import read_place

NODES = 8  # of the example


def lines() -> dict[str, str]:
    """A line on each cluster that ships.

    >>> lines()["h100_10g"]
    'nodes of 8 x H100-SXM5-80GB, 1 NIC of 9.56 Gb/s'
    """
    return {name: _line(Cluster.named(name)) for name in names()}


def _line(cluster: Cluster) -> str:
    rate = f"{8e-9 * cluster.inter.rate:.3g} Gb/s"
    return f"nodes of {cluster.per_node} x {cluster.gpu.name}, {cluster.nics} NIC{'s' * (cluster.nics > 1)} of {rate}"


def explained(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """All fields of a shipped cluster or of a YAML file, in bytes, seconds and FLOP/s; and what they come to.

    >>> fields, facts = explained("a100_25g")
    >>> fields["nics"], fields["gpu"]["name"], facts["GB/s of a NIC, as an application gets them"]
    (1, 'A100-SXM4-80GB', 2.989)
    """
    cluster = read_place({"cluster": name}).cluster
    gpus = NODES * cluster.per_node
    example = float(all_reduce(Groups.first(cluster.with_gpus(gpus), gpus), 1e9))
    codecs = "measured where the GPU has a line of codecs, else estimated"
    sources = "comments of commeff/cluster/named/*.yaml, gpus.yaml, one_nic.yaml" if name in names() else name
    return cluster.description(), {
        "cluster": _line(cluster),
        "GB/s of a NIC, as an application gets them": round(cluster.inter.rate / 1e9, 3),
        f"seconds of an all-reduce of 1 GB among {gpus} GPUs": float(f"{example:.3g}"),
        "encoding and decoding": codecs,
        "sources": sources,
    }
