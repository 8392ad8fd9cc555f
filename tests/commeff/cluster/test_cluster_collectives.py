"""Laws of the one price of a message: the formulas are the simulation of every message, their limits, their order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from commeff import topologies
from commeff.cluster import Cluster, Crossbar, FatTree, Link, Rails, collectives, simulation
from commeff.cluster.groups import Groups
from tests.commeff.cluster import simulated

LINK = Link(bandwidth=1e9, latency=1e-4)
SIZE = 1e7
NODES = ("v100_25g", "a100_selene", "a100_4nic", "h100_400g")
THIN = (
    FatTree((64,), (16,)),
    FatTree((16,), (4,)),
    Rails(FatTree((4,), (1,))),
    Rails(FatTree((2, 4), (1, 2))),
)
PATTERNS = (
    topologies.ring(16),
    topologies.torus(4, 4),
    topologies.one_peer_exponential(16),
    topologies.exponential(16),
    topologies.star(16),
)


def flat(n: int, link: Link = LINK) -> Cluster:
    """n workers, one a node, on a crossbar."""
    return replace(Cluster.named("ethernet_1g", gpus=n), inter=link, intra=link, network=Crossbar())


def instant(node: str, gpus: int, network: FatTree | Rails) -> Cluster:
    """Nodes without latencies on another network."""
    cluster = Cluster.named(node, gpus=gpus)
    quick = {name: replace(getattr(cluster, name), latency=0.0, burst=0.0) for name in ("intra", "inter")}
    return replace(cluster, network=network, **quick)


def price(name: str, cluster: Cluster, n: int, size: float = SIZE) -> float:
    """An all-reduce of the first n workers, alone on the cluster."""
    return float(collectives.all_reduce(Groups.first(cluster, n), size, name))


@pytest.mark.parametrize("name", collectives.ALL_REDUCE)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 40])
def test_on_a_crossbar_every_formula_is_the_simulation_of_its_messages(name: str, n: int) -> None:
    expected = simulated.ALL_REDUCE[name](flat(n), n, SIZE)
    assert price(name, flat(n), n) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", collectives.ALL_REDUCE)
@pytest.mark.parametrize("cluster", NODES)
def test_in_nodes_that_share_nics_too_full_and_partly_filled(name: str, cluster: str) -> None:
    there = Cluster.named(cluster, gpus=64)
    for n in (1, 2, 3, 5, 8, 9, 11, 12, 15, 16, 17, 24, 27, 40, 48, 64):
        if name == "tree" and n > 8 and n % 8:
            continue  # which trees a library builds there is its own affair
        for size in (1e3, SIZE):
            expected = simulated.ALL_REDUCE[name](there, n, size)
            assert price(name, there, n, size) == pytest.approx(expected, rel=1e-12, abs=1e-15), n


@pytest.mark.parametrize("name", ["ring", "one_ring", "tree", "hierarchical"])
def test_in_nodes_of_six_behind_three_nics_too(name: str) -> None:
    there = replace(Cluster.named("a100_4nic"), per_node=6, nics=3, gpus=36)
    for n in (2, 5, 6, 7, 9, 12, 15, 20, 36):
        if name != "tree" or n < 6 or n % 6 == 0:
            assert price(name, there, n) == pytest.approx(simulated.ALL_REDUCE[name](there, n, SIZE), rel=1e-12), n


@pytest.mark.parametrize("network", [Crossbar(1e-5), FatTree((16,), (16,), 1e-5), FatTree((4, 4), (4, 4), 1e-5)])
def test_hops_of_the_longest_path_are_latency(network: Crossbar | FatTree) -> None:
    there = replace(flat(64), network=network)
    for name in ("ring", "hierarchical", "tree"):
        assert price(name, there, 64) == pytest.approx(simulated.ALL_REDUCE[name](there, 64, SIZE), rel=1e-12)


@pytest.mark.parametrize("node", ["ethernet_10g", "v100_25g", "a100_4nic", "h100_400g"])
@pytest.mark.parametrize("network", THIN)
def test_on_oversubscribed_networks_too(node: str, network: FatTree | Rails) -> None:
    """All but trees, of which at most twice as much is taken to leave a switch as leaves it, and never less."""
    there = instant(node, 128, network)
    for n in (16, 64, 128):
        for name in collectives.ALL_REDUCE:
            expected = simulated.ALL_REDUCE[name](there, n, SIZE)
            most = (2.0 if name == "tree" else 1.0) * expected
            assert (1 - 1e-12) * expected <= price(name, there, n) <= (1 + 1e-12) * most, (name, n)
        groups = Groups.first(there, n)
        assert float(collectives.all_to_all(groups, SIZE)) == pytest.approx(simulated.all_to_all(there, n, SIZE))
        for shards in (1, n):
            expected = simulated.to_server(there, n, SIZE, shards)
            assert float(collectives.to_server(groups, SIZE, shards)) == pytest.approx(expected)


@pytest.mark.parametrize("network", [*THIN, Rails(FatTree((4,), (1,)), pxn=False)])
@pytest.mark.parametrize(
    ("size", "stride"), [(128, 1), (16, 8), (8, 8), (4, 8), (2, 8), (8, 16), (2, 64), (64, 2), (32, 1), (8, 4)]
)
def test_groups_that_talk_at_once_share_the_uplinks(network: FatTree | Rails, size: int, stride: int) -> None:
    """Rings leave a switch once, all-to-alls with all that is under other switches, or without PXN on other rails."""
    for predicted, expected in together(instant("h100_400g", 128, network), size, stride):
        assert predicted == pytest.approx(expected)


@pytest.mark.parametrize("nodes", [5, 10])
@pytest.mark.parametrize(("size", "stride"), [(16, 8), (8, 16), (4, 8), (8, 8), (64, 2), (2, 8), (3, 8), (16, 1)])
def test_switches_that_end_in_the_middle_of_groups_are_left_at_both_ends(nodes: int, size: int, stride: int) -> None:
    """By large groups and by small ones, of which the others stay: predicted are 1 to 2 times the seconds."""
    there = instant("h100_400g", 240 // (size * stride) * size * stride, Rails(FatTree((nodes,), (1,))))
    for predicted, expected in together(there, size, stride):
        assert (1 - 1e-12) * expected <= predicted <= (2 + 1e-12) * expected
    apart = replace(there, network=replace(there.network, pxn=False))
    for predicted, expected in together(apart, size, stride):
        assert 0.9 * expected <= predicted <= (2 + 1e-12) * expected


def together(there: Cluster, size: int, stride: int) -> list[tuple[float, float]]:
    """Predicted and simulated seconds of all groups at once: all-to-alls, and messages to the next node."""
    groups = Groups.strided(there, size, stride)
    members = np.arange(there.gpus).reshape(-1, size, stride).transpose(0, 2, 1).reshape(-1, size)
    sends, gets = (np.ravel(members[:, ids]) for ids in (np.repeat(np.arange(size), size), np.tile(range(size), size)))
    onward = np.roll(members, -int(groups.inside), axis=1).ravel()
    return [
        (float(collectives.all_to_all(groups, SIZE)), simulation.exchange(there, sends, gets, SIZE / size)),
        (float(collectives.point_to_point(groups, SIZE)), simulation.exchange(there, members.ravel(), onward, SIZE)),
    ]


def test_uplinks_of_one_large_group_and_of_nodes_cut_by_switches() -> None:
    for predicted, expected in together(instant("h100_400g", 48, Rails(FatTree((4,), (1,)))), 6, 8):
        assert predicted == pytest.approx(expected)
    for predicted, expected in together(instant("a100_4nic", 128, Rails(FatTree((4,), (1,)), pxn=False)), 128, 1):
        assert predicted == pytest.approx(expected)
    for predicted, expected in together(instant("h100_400g", 32, FatTree((12,), (4,))), 4, 8):
        assert expected <= (1 + 1e-12) * predicted <= 1.1 * expected


def test_uplinks_of_a_group_alone() -> None:
    there, ids = instant("ethernet_10g", 16, FatTree((4,), (1,))), np.array([0, 1, 2, 3, 8, 9])
    expected = simulation.exchange(there, np.repeat(ids, 6), np.tile(ids, 6), SIZE / 6)
    assert float(collectives.all_to_all(Groups.of(there, ids.tolist()), SIZE)) == pytest.approx(expected)
    there = instant("h100_400g", 32, Rails(FatTree((4,), (1,)), pxn=False))
    expected = simulated.all_to_all(there, 16, SIZE)
    assert float(collectives.all_to_all(Groups.first(there, 16), SIZE)) == pytest.approx(expected)
    for pxn in (True, False):
        there = instant("h100_400g", 32, Rails(FatTree((4,), (1,)), pxn))
        expected = simulation.exchange(there, np.arange(32), (np.arange(32) + 9) % 32, SIZE)
        assert float(collectives.neighbours(Groups.first(there, 32), SIZE)) == pytest.approx(expected)


def test_uplinks_of_folds_and_of_single_rings() -> None:
    there, ids = instant("ethernet_10g", 16, FatTree((4,), (1,))), np.arange(16)
    expected = simulated.halving_doubling(there, 12, SIZE)
    assert price("halving_doubling", there, 12) == pytest.approx(expected)
    expected = simulation.exchange(there, ids, (ids + 4) % 16, SIZE / 4, rounds=6)
    assert float(collectives.all_reduce(Groups.strided(there, 4, 4), SIZE, "one_ring")) == pytest.approx(expected)
    assert [Rails(FatTree((4,), (1,)), pxn).longest_path(2) for pxn in (True, False)] == [2, 4]


def test_only_ports_in_use_load_the_links_up() -> None:
    """Of four NICs behind two GPUs two are idle, and so are the links of their rails, or their ways up a tree."""
    for network in (Rails(FatTree((4,), (1,))), FatTree((16,), (4,))):
        there = replace(instant("h100_400g", 128, network), per_node=2, nics=4, gpus=16)
        for predicted, expected in together(there, 2, 8):
            assert predicted == pytest.approx(expected)


@pytest.mark.parametrize(("size", "stride"), [(8, 8), (4, 16), (8, 1), (2, 32), (16, 4), (4, 2)])
def test_groups_that_talk_at_once_share_the_nics(size: int, stride: int) -> None:
    """All groups simulated together: rings by all members of a node, and messages of each to another node."""
    there = Cluster.named("a100_4nic", gpus=64)
    groups = Groups.strided(there, size, stride)
    members = np.arange(64).reshape(-1, size, stride).transpose(0, 2, 1).reshape(-1, size)
    g = int(groups.inside)
    orders = [
        np.concatenate([np.roll(part, -entry) for part in row.reshape(-1, g)]) for row in members for entry in range(g)
    ]
    here, after = np.concatenate(orders), np.concatenate([np.roll(order, -1) for order in orders])
    rings = g if size > g else 1
    pairs = (here, after) if rings > 1 else (members.ravel(), np.roll(members, -1, axis=1).ravel())
    simulated = simulation.exchange(there, *pairs, SIZE / size / rings, 2 * (size - 1))
    assert float(collectives.all_reduce(groups, SIZE, "ring")) == pytest.approx(simulated)
    away = np.roll(members, -g if size > g else -1, axis=1).ravel()
    simulated = simulation.exchange(there, members.ravel(), away, SIZE)
    assert float(collectives.point_to_point(groups, SIZE)) == pytest.approx(simulated)


def test_an_all_gather_of_unequal_messages_waits_for_the_longest() -> None:
    messages = np.random.default_rng(0).uniform(0, SIZE, 13)
    for n in (1, 2, 7, 13):
        gathered = float(collectives.all_gather(Groups.first(flat(13), n), messages[:n].max(), "ring"))
        assert gathered == pytest.approx(simulated.all_gather(flat(13), n, messages[:n]))
    equal = simulated.all_gather(flat(13), 13, SIZE)
    assert float(collectives.all_gather(Groups.first(flat(13), 13), SIZE)) == pytest.approx(equal)


@pytest.mark.parametrize("n", [2, 3, 8, 13])
def test_a_reduce_scatter_is_half_a_ring_and_has_n_minus_one_latencies(n: int) -> None:
    groups = Groups.first(flat(n), n)
    half = float(collectives.reduce_scatter(groups, SIZE))
    assert 2 * half == pytest.approx(price("ring", flat(n), n))
    assert half == pytest.approx((n - 1) * (LINK.latency + SIZE / n / LINK.rate))
    assert half == pytest.approx(float(collectives.all_gather(groups, SIZE / n)))


@pytest.mark.parametrize(
    ("n", "depth"), [(2, 1), (3, 2), (4, 2), (5, 3), (9, 4), (13, 4), (16, 4), (17, 5), (1000, 10)]
)
def test_trees_take_the_next_whole_number_of_levels(n: int, depth: int) -> None:
    for name in ("tree", "binomial_tree"):
        assert price(name, flat(n), n, 0.0) == pytest.approx(2 * depth * LINK.latency)


@pytest.mark.parametrize("n", range(1, 40))
def test_two_trees_reach_everybody_and_nobody_is_inside_both(n: int) -> None:
    children, above, depth = simulated.double_tree(n)
    assert len(children) == 2 * (n - 1)
    for part in (slice(0, n - 1), slice(n - 1, None)):
        assert len({*children[part].tolist()}) == n - 1
    inside = [{*above[part].tolist()} for part in (slice(0, n - 1), slice(n - 1, None))]
    assert len(inside[0] & inside[1]) <= 1 + n % 2
    assert np.bincount(above, minlength=1).max(initial=0) <= (3 if n % 2 else 2)
    assert depth == int(np.ceil(np.log2(n)))


@pytest.mark.parametrize("cluster", [*NODES, "ethernet_1g"])
def test_auto_is_the_cheapest_of_what_a_library_has(cluster: str) -> None:
    for n in (1, 2, 8, 16, 24, 64):
        there = Cluster.named(cluster, gpus=64)
        groups = Groups.first(there, n)
        for size in (0.0, 1e3, 1e6, 1e9):
            each = [price(name, there, n, size) for name in ("ring", "tree", "hierarchical")]
            assert price("auto", there, n, size) == min(each)
            halves = [float(collectives.reduce_scatter(groups, size, name)) for name in ("ring", "hierarchical")]
            assert float(collectives.reduce_scatter(groups, size)) == min(halves)
    assert price("auto", flat(64), 64, 1e3) == price("tree", flat(64), 64, 1e3) < price("ring", flat(64), 64, 1e3)
    assert price("auto", flat(8), 8, 1e9) == price("ring", flat(8), 8, 1e9) < price("tree", flat(8), 8, 1e9)


def test_one_formula_prices_one_group_and_many() -> None:
    there, numbers = Cluster.named("a100_4nic", gpus=64), np.array([1, 2, 8, 9, 16, 27, 64])
    for name in ("auto", *collectives.ALL_REDUCE):
        together = collectives.all_reduce(Groups.first(there, numbers), SIZE, name)
        assert together.tolist() == pytest.approx([price(name, there, n) for n in numbers.tolist()], rel=1e-12), name


@pytest.mark.parametrize("name", collectives.ALL_REDUCE)
def test_latency_alone_and_bandwidth_alone_are_the_two_terms(name: str) -> None:
    instant, endless = (flat(8, link) for link in (replace(LINK, latency=0.0), replace(LINK, bandwidth=1e30)))
    assert price(name, flat(8), 8) == pytest.approx(price(name, instant, 8) + price(name, endless, 8))
    assert price(name, instant, 8, 2 * SIZE) == pytest.approx(2 * price(name, instant, 8))
    assert price(name, endless, 8, 2 * SIZE) == pytest.approx(price(name, endless, 8))


@pytest.mark.parametrize("name", ["auto", *collectives.ALL_REDUCE])
def test_a_faster_link_is_never_slower_and_more_workers_are_never_faster(name: str) -> None:
    speeds = [price(name, flat(8, replace(LINK, bandwidth=b)), 8) for b in np.geomspace(1e6, 1e12, 20)]
    assert all(a >= b for a, b in pairwise(speeds))
    powers = [price(name, flat(64), n) for n in (1, 2, 4, 8, 16, 32, 64)]
    assert powers[0] == 0
    assert all(a <= b for a, b in pairwise(powers))


def test_ring_and_halving_move_the_same_bytes_and_differ_in_rounds() -> None:
    instant, endless = (flat(64, link) for link in (replace(LINK, latency=0.0), replace(LINK, bandwidth=1e30)))
    assert price("ring", instant, 64) == pytest.approx(price("halving_doubling", instant, 64))
    assert price("ring", endless, 64, 0) / price("halving_doubling", endless, 64, 0) == pytest.approx(63 / 6)
    assert price("tree", instant, 64) == pytest.approx(2 * SIZE / LINK.rate)


def test_headers_slow_every_operation_by_their_share() -> None:
    instant = replace(LINK, latency=0.0)
    plain, heavy = (Groups.first(flat(8, link), 8) for link in (instant, replace(instant, efficiency=0.8)))
    for name in collectives.ALL_REDUCE:
        slow, fast = (collectives.all_reduce(groups, SIZE, name) for groups in (heavy, plain))
        assert float(slow) == pytest.approx(float(fast) / 0.8)
    for operation in (collectives.all_gather, collectives.server, collectives.neighbours):
        assert float(operation(heavy, SIZE)) == pytest.approx(float(operation(plain, SIZE)) / 0.8)


@pytest.mark.parametrize("cluster", NODES)
def test_lines_are_the_limit_of_small_bursts(cluster: str) -> None:
    plain = Cluster.named(cluster, gpus=64)
    bursty = replace(plain, intra=replace(plain.intra, burst=1e-9), inter=replace(plain.inter, burst=1e-9))
    for n in (1, 2, 8, 12, 64):
        for name in ("auto", *collectives.ALL_REDUCE):
            assert price(name, bursty, n) == pytest.approx(price(name, plain, n), rel=1e-9), (name, n)


def test_a_burst_passes_once() -> None:
    bursty = replace(LINK, burst=1e6)
    assert float(collectives.point_to_point(Groups.first(flat(8, bursty), 8), 5e5)) == LINK.latency
    saved = price("ring", flat(8), 8) - price("ring", flat(8, bursty), 8)
    assert saved == pytest.approx(1e6 / LINK.bandwidth)
    assert simulated.ring(flat(8, bursty), 8, SIZE) == pytest.approx(price("ring", flat(8, bursty), 8))
    assert price("hierarchical", flat(8, bursty), 8) == pytest.approx(price("ring", flat(8, bursty), 8))


def test_the_shaped_network_of_the_project_is_met() -> None:
    """Namespaces and tbf at 200 Mbit/s, 10 MB, a burst of 256 KiB: measured ms."""
    shaped = flat(8, Link(bandwidth=200e6 / 8, latency=5e-4, burst=2**18, efficiency=1448 / 1514))
    one_peer, ring = topologies.one_peer_exponential(8).at(0), topologies.ring(8).at(0)
    assert 1e3 * price("one_ring", shaped, 8, 1e7) == pytest.approx(771, rel=0.1)
    assert 1e3 * simulation.gossip(shaped, one_peer, 1e7) == pytest.approx(429, rel=0.1)
    assert 1e3 * simulation.gossip(shaped, ring, 1e7) == pytest.approx(1024, rel=0.25)
    gathered = float(collectives.all_gather(Groups.first(shaped, 8), 2e5))
    assert 1e3 * gathered == pytest.approx(52, rel=0.15)


def test_shards_divide_what_a_server_receives() -> None:
    there = flat(16, replace(LINK, latency=0.0))
    groups = Groups.first(there, 16)
    whole = float(collectives.server(groups, SIZE))
    assert whole == pytest.approx(2 * 15 * SIZE / LINK.bandwidth)
    for shards in (1, 2, 4, 8, 16):
        once = simulated.to_server(there, 16, SIZE, shards)
        assert 2 * once == pytest.approx(whole / shards)
        assert 2 * once == pytest.approx(float(collectives.server(groups, SIZE, shards)))
    assert float(collectives.server(groups, SIZE, 16)) == pytest.approx(price("ring", there, 16))
    with pytest.raises(ValueError, match="shards must be 1 to the 16 workers, got 17"):
        collectives.server(groups, SIZE, 17)


@pytest.mark.parametrize("cluster", NODES)
def test_a_server_among_gpus_of_nodes_receives_through_its_nics(cluster: str) -> None:
    for n, shards in ((8, 1), (8, 8), (16, 1), (16, 16), (64, 1), (64, 8), (64, 64)):
        there = Cluster.named(cluster, gpus=64)
        formula = float(collectives.to_server(Groups.first(there, n), SIZE, shards))
        assert formula == pytest.approx(simulated.to_server(there, n, SIZE, shards)), (n, shards)


@pytest.mark.parametrize("cluster", NODES)
def test_an_all_to_all_sends_every_message_through_its_nic(cluster: str) -> None:
    there = Cluster.named(cluster, gpus=64)
    for n in (1, 2, 8, 16, 64):
        formula = float(collectives.all_to_all(Groups.first(there, n), 1e3 * SIZE))  # so that latencies do not count
        assert formula == pytest.approx(simulated.all_to_all(there, n, 1e3 * SIZE), rel=2e-3), n


@pytest.mark.parametrize("topology", PATTERNS)
def test_gossip_is_the_degree_times_the_size_where_no_link_is_shared(topology: topologies.Topology) -> None:
    matrix = topology.at(0)
    formula = float(collectives.neighbours(Groups.first(flat(16), 16), SIZE, matrix.degree))
    assert simulation.gossip(flat(16), matrix, SIZE) == pytest.approx(formula)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 100])
def test_nobody_has_more_neighbours_than_there_are_others(degree: int) -> None:
    seconds = float(collectives.neighbours(Groups.first(flat(4), 4), SIZE, degree))
    others = min(degree, 3)
    assert seconds == pytest.approx((others > 0) * LINK.latency + others * SIZE / LINK.rate)
    assert float(collectives.neighbours(Groups.first(flat(4), 1), SIZE, degree)) == 0


def test_neighbours_far_away_share_an_oversubscribed_network() -> None:
    tree = replace(flat(256, replace(LINK, latency=0.0)), network=FatTree((16,), (4,)))
    far = simulation.exchange(tree, np.arange(256), (np.arange(256) + 64) % 256, SIZE)
    assert float(collectives.neighbours(Groups.first(tree, 256), SIZE)) == pytest.approx(far)


def test_rings_through_all_nics_and_hierarchies_beat_one_ring() -> None:
    for name in ("a100_selene", "a100_4nic", "h100_400g"):
        cluster = Cluster.named(name, gpus=64)
        for size in (1e6, 1e9):
            assert max(price("hierarchical", cluster, 64, size), price("ring", cluster, 64, size)) < price(
                "one_ring", cluster, 64, size
            )
    single = replace(Cluster.named("a100_selene", gpus=64), nics=1, network=Crossbar())
    inside = price("ring", single.with_gpus(8), 8, 1e9)
    assert price("hierarchical", single, 64, 1e9) <= price("one_ring", single, 64, 1e9) + inside


@pytest.mark.parametrize("nics", [1, 2, 4, 8])
def test_gpus_of_a_node_share_its_nics(nics: int) -> None:
    instant = replace(LINK, latency=0.0)
    node = replace(Cluster.named("a100_selene", gpus=16), nics=nics, inter=instant)
    first = np.arange(8)
    for network in (Crossbar(), Rails()):
        cluster = replace(node, network=network)
        assert simulation.exchange(cluster, first, first + 8, SIZE) == pytest.approx(8 / nics * SIZE / LINK.bandwidth)
        assert simulation.exchange(cluster, first[:1], first[:1] + 8, SIZE) == pytest.approx(SIZE / LINK.bandwidth)


def test_rails_keep_the_message_on_the_rail_of_its_destination() -> None:
    node = replace(Cluster.named("a100_selene", gpus=16), inter=replace(LINK, latency=0.0))
    sources, destinations = np.array([0, 1, 2]), np.array([9, 9, 10])
    assert simulation.exchange(node, sources, destinations, SIZE) == pytest.approx(2 * SIZE / LINK.bandwidth)


def test_messages_to_oneself_and_of_nobody_cost_nothing() -> None:
    nobody = np.arange(0)
    assert simulation.exchange(flat(4), np.arange(4), np.arange(4), SIZE) == 0
    assert simulation.exchange(flat(4), nobody, nobody, SIZE) == 0
    assert price("auto", flat(4), 1) == 0


def test_three_levels_of_switches_oversubscribe_where_the_tree_is_thin() -> None:
    """4 hosts a leaf, 4 leaves a pod, full leaves, pods 4:1: neighbours in a pod are not slowed, other pods are."""
    tree, hosts = FatTree((4, 4), (4, 1), hop=0.5), np.arange(64)
    assert tree.thin(nics=1) == [(16, 4)]
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
    eight = topologies.ring(8).at(0)
    for call, text in (
        (lambda: price("ring", flat(4), 8), "workers on ethernet_1g must be 1 to 4, got 8"),
        (lambda: price("butterfly", flat(4), 4), "algorithm must be one of auto, ring"),
        (lambda: price("ring", flat(4), 0), "must be 1 to 4, got 0"),
        (lambda: simulation.gossip(flat(4), eight, SIZE), "must be 1 to 4, got 8"),
        (lambda: simulated.to_server(flat(4), 4, SIZE, 5), "shards must be 1 to the 4 workers, got 5"),
        (lambda: simulated.tree(Cluster.named("v100_25g", gpus=16), 12, SIZE), "must fill nodes of 8, got 12"),
        (lambda: Link(bandwidth=-1.0, latency=0.0), "bandwidth must be above 0, got -1.0"),
        (lambda: Link(bandwidth=1.0, latency=0.0, efficiency=1.1), r"efficiency must lie in \(0, 1\], got 1.1"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
