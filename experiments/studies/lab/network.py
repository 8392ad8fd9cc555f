"""Nodes on a switch, made on this machine: one network namespace for each, links of a given rate between them.

Every node has a veth pair to a bridge in a namespace of its own. A token bucket (`tc tbf`) on both ends of the pair
limits what the node sends and what it receives. It adds no delay, so these are slow networks and not long ones. TCP is
plain Reno that does not begin slowly again after a pause: what is measured is the link, and not how BBR, say, learns
its rate.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from commeff.cluster import Cluster, Link
from commeff.experiments.run.orphans import end_with_parent
from commeff.experiments.studies.lab import namespaces

BURST = 2**18  # bytes that a link lets through at once before its rate is felt
GOODPUT = 1448 / 1514  # bytes of a full TCP segment over those of its Ethernet frame
QUEUE = "100ms"  # what may wait in a bucket before it is dropped
LATENCY = 1e-3  # seconds of a message: the scheduling of all processes on few cores, the network adds none
INTERFACE, LAUNCHER = "lab0", "lab"
TCP = {"ipv4/tcp_congestion_control": "reno", "ipv4/tcp_slow_start_after_idle": "0"}
MOST = 200  # nodes; the host part of an address


@dataclass(frozen=True)
class LinkShape:
    """What the links carry.

    Attributes
    ----------
    name : of the network.
    rate : of every node's link, in bits a second.
    slow : of the last node's link, if it has another rate.
    """

    name: str
    rate: float
    slow: float | None = None

    @property
    def title(self) -> str:
        """What a report calls the network.

        >>> NETWORKS["1gbit"].title, NETWORKS["slow_link"].title
        ('1 Gb/s', 'one link of 50 Mb/s, the others 200 Mb/s')
        """
        rate, slow = (
            "" if bits is None else f"{bits / 1e9:g} Gb/s" if bits >= 1e9 else f"{bits / 1e6:g} Mb/s"
            for bits in (self.rate, self.slow)
        )
        return f"one link of {slow}, the others {rate}" if slow else rate

    def rate_of(self, node: int, nodes: int) -> float:
        """The rate of a node's link."""
        return self.slow if self.slow is not None and node == nodes - 1 else self.rate

    def links(self, nodes: int, latency: float = LATENCY) -> list[Link]:
        """Every node's link, for the model.

        >>> [round(link.rate) for link in NETWORKS["slow_link"].links(3)]
        [23910172, 23910172, 5977543]
        """
        rates = [self.rate_of(node, nodes) for node in range(nodes)]
        return [Link(rate / 8, latency, BURST, efficiency=GOODPUT) for rate in rates]

    def cluster(self, nodes: int, latency: float = LATENCY) -> Cluster:
        """The description for the model: all links like the slowest one, which sets the pace of what all wait for.

        >>> link = NETWORKS["slow_link"].cluster(8).inter
        >>> round(link.bandwidth), link.latency, link.burst
        (5977543, 0.001, 262144)
        """
        from commeff.experiments.studies.lab.clocks import slowest  # with torch

        link = slowest(self.links(nodes, latency))
        return replace(Cluster.named("ethernet_1g", gpus=nodes), name=self.name, intra=link, inter=link)


NETWORKS = {
    shape.name: shape
    for shape in (
        LinkShape("100mbit", 100e6),
        LinkShape("200mbit", 200e6),
        LinkShape("1gbit", 1e9),
        LinkShape("slow_link", 200e6, slow=50e6),
    )
}


@dataclass(frozen=True)
class Node:
    """One machine of the lab.

    Attributes
    ----------
    namespace : the path at which processes find it.
    address : of the node in the lab's network.
    """

    namespace: str
    address: str

    def enter(self) -> None:
        """Move this process, which must not have other threads yet, onto the node; it ends with its parent."""
        end_with_parent()
        namespaces.enter(self.namespace)
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE


@contextmanager
def lab(shape: LinkShape, count: int) -> Iterator[list[Node]]:
    """Make nodes on a network of this shape, which exist while the context is open and this process lives.

    Raises
    ------
    ValueError: no lab can be made here, and why.
    """
    if not 2 <= count <= MOST:
        raise ValueError(f"nodes of a lab must be at least 2 and at most {MOST}, got {count}")
    refuse_without_means()
    handles: list[int] = []
    try:
        try:
            nodes = _build(shape, count, handles)
        except OSError as error:
            raise ValueError(f"a network lab cannot be made here: {error}") from error
        yield nodes
    finally:
        for descriptor in handles:
            os.close(descriptor)


def refuse_without_means() -> None:
    """Raise `ValueError` where this process or this machine lacks what a lab needs."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    reason = ""
    if sys.platform != "linux":
        reason = f"it is made of Linux network namespaces, and this is {sys.platform}"
    elif os.geteuid():
        reason = "making network namespaces needs root; run it as root, or in a virtual machine where you are"
    elif missing:
        reason = f"there is no {' and no '.join(missing)} on this machine; install iproute2"
    if reason:
        raise ValueError(f"a network lab cannot be made here: {reason}")


def _build(shape: LinkShape, count: int, handles: list[int]) -> list[Node]:
    """Make the nodes and connect them; `handles` gets the descriptors that keep their namespaces alive."""
    for _ in range(count + 1):
        handles.append(namespaces.create())
    switch, *places = (f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in handles)
    nodes = [Node(place, f"10.0.0.{i + 1}") for i, place in enumerate(places)]
    namespaces.run(switch, ["ip link add switch type bridge", "ip link set switch up"])
    for i, node in enumerate(nodes):
        _connect(switch, node, f"port{i}", shape.rate_of(i, count))
    return nodes


def _connect(switch: str, node: Node, port: str, rate: float) -> None:
    """Connect a node to the switch, with a token bucket at each end."""
    bucket = f"root tbf rate {rate:.0f}bit burst {BURST} latency {QUEUE}"
    namespaces.run(
        switch,
        [
            f"ip link add {port} type veth peer name {INTERFACE} netns {node.namespace}",
            f"ip link set {port} master switch up",
            f"tc qdisc add dev {port} {bucket}",
        ],
    )
    namespaces.run(
        node.namespace,
        [
            "ip link set lo up",
            f"ip address add {node.address}/24 dev {INTERFACE}",
            f"ip link set {INTERFACE} up",
            f"tc qdisc add dev {INTERFACE} {bucket}",
        ],
        TCP,
    )
