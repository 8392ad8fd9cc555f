"""Laws of clocks on unequal links: they agree with the model of equal links, are longest paths, and delays spread."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, Strategy, methods, topologies
from commeff.cluster import Cluster, Link
from commeff.cluster.billing import Recorded
from commeff.cluster.modelled import modelled
from commeff.cluster.speeds import drawn
from commeff.communicator import Entry
from commeff.experiments.studies.lab.clocks import clocks, heard
from commeff.topologies import MixingMatrix, Topology

N, STEPS, D = 8, 12, 1000
CLUSTER = Cluster.named("ethernet_1g", gpus=N)
FAST, SLOW = CLUSTER.inter, Link(CLUSTER.inter.bandwidth / 50, CLUSTER.inter.latency)
ONE_SLOW = [FAST] * (N - 1) + [SLOW]
COMPUTE = drawn(mean=1e-4, spread=0.5, steps=STEPS, workers=N, seed=3)
SGD = partial(torch.optim.SGD, lr=0.1)
PEERS, RING = topologies.one_peer_exponential(N), topologies.ring(N)


def ledger_of(strategy: Strategy) -> list[Entry]:
    """The rows of a run on a quadratic."""
    communicator, x = Communicator(workers=N, seed=0), torch.zeros(N, D)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(STEPS):
        x = strategy.step(x, x - 1, communicator)
    return communicator.ledger.rows


RUNS: dict[str, tuple[Strategy, Topology | None]] = {
    "psgd": (methods.psgd(SGD), None),
    "local_sgd": (methods.local_sgd(SGD, 3), None),
    "one-peer": (methods.dsgd(SGD, PEERS), PEERS),
    "ring": (methods.dsgd(SGD, RING), RING),
    "gossip_pga": (methods.gossip_pga(SGD, PEERS, 4), PEERS),
}
LEDGERS = {name: (ledger_of(strategy), topology) for name, (strategy, topology) in RUNS.items()}


def ends(name: str, links: list[Link], compute=COMPUTE) -> np.ndarray:
    rows, topology = LEDGERS[name]
    return clocks(Recorded(rows, N, topology), CLUSTER, links, steps=STEPS, compute=compute)


@pytest.mark.parametrize("name", RUNS)
def test_on_equal_links_nothing_changes(name: str) -> None:
    rows, topology = LEDGERS[name]
    expected = modelled(Recorded(rows, N, topology), CLUSTER, steps=STEPS, compute=COMPUTE).finish
    assert ends(name, [FAST] * N) == pytest.approx(expected)


@pytest.mark.parametrize("name", RUNS)
def test_one_slow_link_costs_something_and_less_than_all_links_being_slow(name: str) -> None:
    fast, mixed, slow = (ends(name, links) for links in ([FAST] * N, ONE_SLOW, [SLOW] * N))
    assert (fast <= mixed).all()
    assert (mixed <= slow).all()
    assert fast[-1].max() < mixed[-1].max()


def test_the_clocks_are_the_longest_paths_through_compute_times_and_links() -> None:
    """Every path worker by worker, step by step: computing at each, then the message to the next, or one's own."""
    n, steps, size = 4, 4, 1e6
    draw = np.random.default_rng(0)
    links = [Link(bandwidth, latency) for bandwidth, latency in draw.uniform(0.5, 2, (n, 2)) * [1e7, 0.05]]
    compute, topology = draw.uniform(0.01, 0.3, (steps, n)), topologies.one_peer_exponential(n)
    rows = [Entry(step, "", "mix", size, size, 1, 1) for step in range(steps)]
    found = clocks(Recorded(rows, n, topology), CLUSTER.with_gpus(n), links, steps=steps, compute=compute)[-1]

    def hop(step: int, sender: int, receiver: int) -> float:
        """Seconds from being ready at one worker to being through at another; -inf if they do not talk."""
        listened = topology.at(step).received(receiver)
        took = [max(links[j].seconds(size), links[receiver].seconds(size)) for j in listened if j != receiver]
        return max(took) if sender in listened else -np.inf

    longest = [-np.inf] * n
    for path in product(range(n), repeat=steps + 1):
        length = sum(compute[k, path[k]] + hop(k, path[k], path[k + 1]) for k in range(steps))
        longest[path[-1]] = max(longest[path[-1]], length)
    assert found == pytest.approx(longest)


def test_a_delay_spreads_by_one_neighbourhood_a_step() -> None:
    rows, topology = LEDGERS["ring"]
    sent = Recorded(rows, N, topology)
    late, fast = (clocks(sent, CLUSTER, links, steps=STEPS) for links in (ONE_SLOW, [FAST] * N))
    for step in range(4):
        delayed = {worker for worker in range(N) if late[step, worker] > fast[step, worker] + 1e-12}
        assert delayed == {(N - 1 + away) % N for away in range(-step - 1, step + 2)}


def test_a_slow_link_that_nobody_uses_costs_nothing() -> None:
    weights = np.eye(N)
    weights[:2, :2] = 0.5
    ready = heard(np.zeros(N), MixingMatrix(weights), 1e6, ONE_SLOW)
    assert ready == pytest.approx([FAST.seconds(1e6)] * 2 + [0.0] * (N - 2))


def test_the_rounds_of_one_operation_follow_each_other() -> None:
    once, thrice = (
        clocks(Recorded([Entry(0, "", "mix", k * 1e6, k * 1e6, k, k)], N, PEERS), CLUSTER, ONE_SLOW, steps=1)
        for k in (1, 3)
    )
    assert thrice.max() == pytest.approx(3 * once.max())
