"""Laws of the costs: limits, order, and that placed collectives are the formulas where nothing is shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from commeff import topologies
from commeff.cluster import Cluster, Crossbar, FatTree, Link, Rails, costs, placed

LINK = Link(bandwidth=1e9, latency=1e-4)
SIZE = 1e7
FORMULAS = {
    "ring": (costs.ring, placed.ring),
    "halving_doubling": (costs.halving_doubling, placed.halving_doubling),
    "tree": (costs.tree, placed.tree),
    "binomial_tree": (costs.binomial_tree, placed.binomial_tree),
    "all_gather": (costs.all_gather, placed.all_gather),
}
Formula = Callable[[float, int, Link], float]


def flat(n: int, link: Link = LINK) -> Cluster:
    """n workers, one a node, on a crossbar."""
    return replace(Cluster.named("ethernet_1g", gpus=n), inter=link, intra=link, network=Crossbar())


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13])
def test_on_a_crossbar_a_placed_collective_is_its_formula(name: str, n: int) -> None:
    formula, on_cluster = FORMULAS[name]
    assert on_cluster(flat(n), n, SIZE) == pytest.approx(formula(SIZE, n, LINK), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", FORMULAS)
def test_latency_alone_and_bandwidth_alone_are_the_two_terms(name: str) -> None:
    formula: Formula = FORMULAS[name][0]
    instant, endless = replace(LINK, latency=0.0), replace(LINK, bandwidth=1e30)
    both = formula(SIZE, 8, instant) + formula(SIZE, 8, endless)
    assert formula(SIZE, 8, LINK) == pytest.approx(both)
    assert formula(2 * SIZE, 8, instant) == pytest.approx(2 * formula(SIZE, 8, instant))
    assert formula(2 * SIZE, 8, endless) == pytest.approx(formula(SIZE, 8, endless))


@pytest.mark.parametrize("name", FORMULAS)
def test_a_faster_link_is_never_slower_and_more_workers_are_never_faster(name: str) -> None:
    formula: Formula = FORMULAS[name][0]
    speeds = [formula(SIZE, 8, replace(LINK, bandwidth=b)) for b in np.geomspace(1e6, 1e12, 20)]
    assert all(a >= b for a, b in pairwise(speeds))
    powers = [formula(SIZE, n, LINK) for n in (1, 2, 4, 8, 16, 32, 64)]
    assert powers[0] == 0
    assert all(a <= b for a, b in pairwise(powers))


def test_ring_and_halving_move_the_same_bytes_and_differ_in_rounds() -> None:
    instant, endless = replace(LINK, latency=0.0), replace(LINK, bandwidth=1e30)
    assert costs.ring(SIZE, 64, instant) == pytest.approx(costs.halving_doubling(SIZE, 64, instant))
    assert costs.ring(0, 64, endless) / costs.halving_doubling(0, 64, endless) == pytest.approx(63 / 6)
    assert costs.tree(SIZE, 64, instant) == pytest.approx(2 * SIZE / LINK.bandwidth)


def test_a_burst_passes_once() -> None:
    bursty = replace(LINK, burst=1e6)
    assert costs.point_to_point(5e5, bursty) == LINK.latency
    saved = costs.ring(SIZE, 8, LINK) - costs.ring(SIZE, 8, bursty)
    assert saved == pytest.approx(1e6 / LINK.bandwidth)
    assert placed.ring(flat(8, bursty), 8, SIZE) == pytest.approx(costs.ring(SIZE, 8, bursty))


def test_the_shaped_network_of_the_project_is_met() -> None:
    """Namespaces and tbf at 200 Mbit/s, 10 MB, a burst of 256 KiB: measured ms."""
    shaped = flat(8, Link(bandwidth=200e6 / 8 * 1448 / 1514, latency=5e-4, burst=2**18))
    one_peer, ring = topologies.one_peer_exponential(8).at(0), topologies.ring(8).at(0)
    assert 1e3 * placed.ring(shaped, 8, 1e7) == pytest.approx(771, rel=0.1)
    assert 1e3 * placed.gossip(shaped, one_peer, 1e7) == pytest.approx(429, rel=0.1)
    assert 1e3 * placed.gossip(shaped, ring, 1e7) == pytest.approx(1024, rel=0.25)
    assert 1e3 * placed.all_gather(shaped, 8, 2e5) == pytest.approx(52, rel=0.15)


def test_shards_divide_what_a_server_receives() -> None:
    instant = replace(LINK, latency=0.0)
    whole = costs.server(SIZE, 16, instant)
    assert whole == pytest.approx(2 * 15 * SIZE / LINK.bandwidth)
    for shards in (1, 2, 4, 8, 16):
        once = placed.to_server(flat(16, instant), 16, SIZE, shards)
        assert 2 * once == pytest.approx(whole / shards)
        assert 2 * once == pytest.approx(costs.server(SIZE, 16, instant, shards))
    assert costs.server(SIZE, 16, instant, 16) == pytest.approx(costs.ring(SIZE, 16, instant))
    assert costs.server(SIZE, 16, instant, 1000, apart=True) == pytest.approx(2 * SIZE / LINK.bandwidth)
    with pytest.raises(ValueError, match="17 server shards on 16"):
        costs.server(SIZE, 16, instant, 17)


@pytest.mark.parametrize(
    "topology",
    [
        topologies.ring(16),
        topologies.torus(4, 4),
        topologies.one_peer_exponential(16),
        topologies.exponential(16),
        topologies.star(16),
    ],
)
def test_gossip_by_load_is_the_degree_times_the_size_where_no_link_is_shared(topology: topologies.Topology) -> None:
    matrix = topology.at(0)
    assert placed.gossip(flat(16), matrix, SIZE) == pytest.approx(costs.gossip(SIZE, matrix.degree, LINK))


def test_hierarchical_beats_the_flat_ring_when_a_node_has_more_nics_or_a_faster_inside() -> None:
    for name in ("a100_selene", "a100_4nic", "h100_400g"):
        cluster = Cluster.named(name, gpus=64)
        for size in (1e3, 1e6, 1e9):
            assert placed.hierarchical(cluster, 64, size) < placed.ring(cluster, 64, size)
    single = replace(Cluster.named("a100_selene", gpus=64), nics=1, network=Crossbar())
    inside = costs.ring(1e9, 8, single.intra)
    assert placed.hierarchical(single, 64, 1e9) <= placed.ring(single, 64, 1e9) + inside


@pytest.mark.parametrize("name", ["v100_25g", "a100_selene", "a100_4nic"])
def test_placed_hierarchical_is_its_formula(name: str) -> None:
    cluster = Cluster.named(name, gpus=32)
    formula = costs.hierarchical(SIZE, 4, 8, cluster.intra, cluster.inter_share)
    assert placed.hierarchical(cluster, 32, SIZE) == pytest.approx(formula)
    inside = Cluster.named(name, gpus=8)
    assert placed.hierarchical(inside, 8, SIZE) == pytest.approx(costs.ring(SIZE, 8, inside.intra))


@pytest.mark.parametrize("nics", [1, 2, 4, 8])
def test_gpus_of_a_node_share_its_nics(nics: int) -> None:
    instant = replace(LINK, latency=0.0)
    node = replace(Cluster.named("a100_selene", gpus=16), nics=nics, inter=instant)
    first = np.arange(8)
    for network in (Crossbar(), Rails()):
        cluster = replace(node, network=network)
        assert placed.exchange(cluster, first, first + 8, SIZE) == pytest.approx(8 / nics * SIZE / LINK.bandwidth)
        assert placed.exchange(cluster, first[:1], first[:1] + 8, SIZE) == pytest.approx(SIZE / LINK.bandwidth)
    assert node.inter_share.bandwidth == pytest.approx(nics / 8 * LINK.bandwidth)


def test_rails_keep_the_message_on_the_rail_of_its_destination() -> None:
    node = replace(Cluster.named("a100_selene", gpus=16), inter=replace(LINK, latency=0.0))
    sources, destinations = np.array([0, 1, 2]), np.array([9, 9, 10])
    assert placed.exchange(node, sources, destinations, SIZE) == pytest.approx(2 * SIZE / LINK.bandwidth)


def test_messages_to_oneself_and_of_nobody_cost_nothing() -> None:
    nobody = np.arange(0)
    assert placed.exchange(flat(4), np.arange(4), np.arange(4), SIZE) == 0
    assert placed.exchange(flat(4), nobody, nobody, SIZE) == 0
    assert placed.all_reduce(flat(4), 1, SIZE) == 0


def test_three_levels_of_switches_oversubscribe_where_the_tree_is_thin() -> None:
    """4 hosts a leaf, 4 leaves a pod, full leaves, pods 4:1: neighbours in a pod are not slowed, other pods are."""
    tree, hosts = FatTree((4, 4), (4, 1), hop=0.5), np.arange(64)
    assert tree.oversubscription == 4
    loads = {away: tree.traffic(hosts, (hosts + away) % 64, np.ones(64)) for away in (4, 16)}
    assert loads[16] == (4.0, 6)
    inside = hosts // 16 * 16 + (hosts + 4) % 16
    assert tree.traffic(hosts, inside, np.ones(64)) == (1.0, 4)
    leaf = hosts // 4 * 4 + (hosts + 1) % 4
    assert tree.traffic(hosts, leaf, np.ones(64)) == (1.0, 2)


def test_routes_follow_from_the_destination_alone() -> None:
    """Destinations equal modulo 4 share an uplink whoever sends; sources equal modulo 4 do not."""
    tree = FatTree((16,), (4,))
    some, same = np.array([0, 1, 2, 3]), np.array([0, 4, 8, 12])
    assert tree.traffic(some, 16 + same, np.ones(4)).load == 4
    assert tree.traffic(same, 16 + some, np.ones(4)).load == 1


def test_what_does_not_fit_is_refused() -> None:
    for call, said in (
        (lambda: placed.all_reduce(flat(4), 8, SIZE), "8 workers were asked for on 4 GPUs"),
        (lambda: placed.all_reduce(flat(4), 4, SIZE, "butterfly"), "choose of ring"),
        (lambda: placed.all_reduce(flat(4), 0, SIZE), "0 workers were asked for"),
        (lambda: placed.gossip(flat(4), topologies.ring(8).at(0), SIZE), "8 workers on 4 GPUs"),
        (lambda: placed.hierarchical(Cluster.named("v100_25g", gpus=16), 12, SIZE), "full nodes"),
        (lambda: costs.ring(SIZE, 0, LINK), "at least 1"),
        (lambda: Link(bandwidth=-1.0, latency=0.0), "above 0"),
        (lambda: costs.Codec(expansion=10, encode=0, decode=1), "above 0"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
