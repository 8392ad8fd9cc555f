"""Figures of SimGrid 3.32 for 100 MB models on 25 Gb/s links, beside this library's bytes on the busiest link.

The tree has 16 hosts on each leaf switch, with 16 uplinks (full) or 4 (4:1 oversubscribed), as many leaves as the hosts
need and one spine for each uplink; 25 us a link; routes by destination modulo k. That it is this tree follows from the
figures: one-peer gossip at distance 1, 2, 4, 8, 16, ... loads an uplink with 1, 1, 1, 2, 4, ... messages only if a leaf
has 16 hosts and 4 uplinks. The model of "100 MB" is ResNet-50's 25.5 million float32 numbers.

Which random permutations SimGrid saw is not recorded. Those of two seeds stand for them, whose busiest uplinks carry 7
and 9 messages, as the figures say: 34 % of NumPy's seeds do for 256 hosts, 52 % for 1024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from commeff import topologies
from commeff.cluster import Cluster, Crossbar, FatTree, Link, Network
from commeff.cluster.simulation import exchange, gossip

MODEL = 25.5e6 * 4  # bytes
LINK = Link(bandwidth=25e9 / 8, latency=0.0)  # latency is in the links of the path
HOP = 25e-6
NETWORKS = {"crossbar": Crossbar(HOP), "fat tree": FatTree((16,), (16,), HOP), "4:1 tree": FatTree((16,), (4,), HOP)}
SEEDS = {256: 0, 1024: 1}  # of the random permutations


def hosts(count: int, network: Network) -> Cluster:
    """Hosts of one worker each on a network."""
    return replace(Cluster.named("ethernet_1g", gpus=count), name="hosts", inter=LINK, intra=LINK, network=network)


def ring_all_reduce(count: int, network: Network) -> float:
    """A ring in the order of the hosts."""
    workers = np.arange(count)
    return exchange(hosts(count, network), workers, np.roll(workers, -1), MODEL / count, 2 * (count - 1))


def gossip_rounds(count: int, network: Network) -> list[float]:
    """Seconds of each round of one-peer exponential gossip.

    >>> [round(1e3 * seconds, 1) for seconds in gossip_rounds(256, NETWORKS["4:1 tree"])]
    [32.7, 32.7, 32.7, 65.4, 130.7, 130.7, 130.7, 130.7]
    """
    topology = topologies.one_peer_exponential(count)
    return [gossip(hosts(count, network), topology.at(step), MODEL) for step in range(topology.period or 0)]


def of_rounds(pick: Callable[[list[float]], Any], count: int, network: Network) -> float:
    """What is picked of the rounds of one-peer gossip: the slowest, their mean, or a certain one."""
    return float(pick(gossip_rounds(count, network)))


def permutation(count: int, network: Network) -> float:
    """Every host sends to one other, drawn at random."""
    drawn = np.random.default_rng(SEEDS[count]).permutation(count)
    return exchange(hosts(count, network), np.arange(count), drawn, MODEL)


def parameter_server(count: int, network: Network) -> float:
    """All hosts send to one server among them, and back."""
    workers = np.arange(count)
    return 2 * exchange(hosts(count, network), workers, np.zeros_like(workers), MODEL)


@dataclass(frozen=True)
class SimulatedFigure:
    """A simulated figure.

    Attributes
    ----------
    hosts, case, network : what was simulated.
    simulated : ms that SimGrid gives.
    compute : the function (hosts, network) -> seconds that computes it here.
    """

    hosts: int
    case: str
    network: str
    simulated: float
    compute: Callable[[int, Network], float]

    @property
    def ours(self) -> float:
        """The figure computed here, in ms."""
        return 1e3 * self.compute(self.hosts, NETWORKS[self.network])


FIGURES = (
    SimulatedFigure(256, "ring all-reduce", "crossbar", 90.5, ring_all_reduce),
    SimulatedFigure(256, "ring all-reduce", "fat tree", 116.0, ring_all_reduce),
    SimulatedFigure(256, "ring all-reduce", "4:1 tree", 116.0, ring_all_reduce),
    SimulatedFigure(1024, "ring all-reduce", "crossbar", 167.5, ring_all_reduce),
    SimulatedFigure(256, "one-peer gossip, slowest round", "crossbar", 32.7, partial(of_rounds, max)),
    SimulatedFigure(1024, "one-peer gossip, slowest round", "crossbar", 32.7, partial(of_rounds, max)),
    SimulatedFigure(256, "one-peer gossip, slowest round", "4:1 tree", 130.7, partial(of_rounds, max)),
    SimulatedFigure(1024, "one-peer gossip, slowest round", "4:1 tree", 130.7, partial(of_rounds, max)),
    SimulatedFigure(256, "random permutation", "4:1 tree", 228.6, permutation),
    SimulatedFigure(1024, "random permutation", "4:1 tree", 293.9, permutation),
    SimulatedFigure(256, "one parameter server", "crossbar", 16.6e3, parameter_server),
    SimulatedFigure(1024, "one parameter server", "crossbar", 66.8e3, parameter_server),
    *(
        SimulatedFigure(
            256, f"one-peer gossip, distance {2**step}", "4:1 tree", simulated, partial(of_rounds, itemgetter(step))
        )
        for step, simulated in enumerate((32.7, 32.7, 32.7, 65.4, 130.7, 130.7, 130.7, 130.7))
    ),
    SimulatedFigure(256, "one-peer gossip, mean round", "4:1 tree", 85.8, partial(of_rounds, np.mean)),
)
