"""Laws of modelled seconds: max-plus identities of waiting, and ledgers of real strategies on described clusters."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, Strategy, methods, topologies
from commeff.cluster import Cluster, costs
from commeff.cluster.modelled import modelled
from commeff.cluster.stragglers import Heard, drawn, finish_times
from commeff.communicator import Entry
from commeff.compressors import ScaledSign

N, STEPS, D = 8, 24, 1000
COMPUTE = drawn(mean=0.1, spread=0.5, steps=STEPS, workers=N, seed=3)
ETHERNET = Cluster.named("ethernet_1g", gpus=N)
SGD = partial(torch.optim.SGD, lr=0.1)


def ledger_of(strategy: Strategy) -> list[Entry]:
    """The rows of a run on a quadratic."""
    communicator, x = Communicator(workers=N, seed=0), torch.zeros(N, D, dtype=torch.float32)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(STEPS):
        x = strategy.step(x, x - 1, communicator)
    return communicator.ledger.rows


def matrices(topology: topologies.Topology) -> list[Heard]:
    return [topology.at(step) for step in range(STEPS)]


def test_an_average_waits_for_the_slowest_in_every_step() -> None:
    ends = finish_times(COMPUTE, [True] * STEPS, 0.01)
    assert ends[-1] == pytest.approx(np.full(N, COMPUTE.max(1).sum() + STEPS * 0.01))


def test_without_communication_workers_take_their_own_time() -> None:
    assert finish_times(COMPUTE, [False] * STEPS)[-1] == pytest.approx(COMPUTE.sum(0))


def test_local_steps_wait_once_a_period() -> None:
    heard = [step % 4 == 3 for step in range(STEPS)]
    blocks = COMPUTE.reshape(STEPS // 4, 4, N).sum(1)
    assert finish_times(COMPUTE, heard)[-1] == pytest.approx(np.full(N, blocks.max(1).sum()))


@pytest.mark.parametrize(
    "topology", [topologies.ring(N), topologies.one_peer_exponential(N), topologies.exponential(N)]
)
def test_gossip_lies_between_nobody_and_everybody(topology: topologies.Topology) -> None:
    gossip = finish_times(COMPUTE, matrices(topology)).max(1)
    nobody, everybody = (finish_times(COMPUTE, [whom] * STEPS).max(1) for whom in (False, True))
    assert (nobody <= gossip + 1e-12).all()
    assert (gossip <= everybody + 1e-12).all()
    assert nobody[-1] < gossip[-1] < everybody[-1]


def test_a_complete_graph_waits_as_an_average_does() -> None:
    complete = finish_times(COMPUTE, matrices(topologies.complete(N)), 0.01)
    assert complete == pytest.approx(finish_times(COMPUTE, [True] * STEPS, 0.01))


def test_the_recursion_is_the_longest_path() -> None:
    """Against the definition: over all chains of who waits for whom, the largest sum."""
    heard = matrices(topologies.exponential(N))[:4]  # directed: who hears is not who is heard
    best = np.zeros(N)
    for step in range(4):
        received = heard[step].dense() > 0  # type: ignore[union-attr]
        best = np.array([max(best[j] + COMPUTE[step, j] for j in np.flatnonzero(received[i])) for i in range(N)])
    assert finish_times(COMPUTE[:4], heard)[-1] == pytest.approx(best)


def test_waiting_is_linear_in_max_plus() -> None:
    """Scaling all times scales the ends; a slower worker makes nobody earlier; later by c in each step, later by c."""
    heard = matrices(topologies.ring(N))
    ends = finish_times(COMPUTE, heard)
    assert finish_times(3 * COMPUTE, heard) == pytest.approx(3 * ends)
    assert finish_times(COMPUTE + 0.5, heard)[-1] == pytest.approx(ends[-1] + 0.5 * STEPS)
    slower = COMPUTE.copy()
    slower[5, 2] += 1.0
    late = finish_times(slower, heard) - ends
    assert (late >= -1e-12).all()
    reached = [int((row > 1e-9).sum()) for row in late]
    assert reached[:5] == [0] * 5
    assert reached[5:9] == [3, 5, 7, 8]


def test_psgd_costs_a_ring_a_step_and_waits_for_all() -> None:
    run = modelled(ledger_of(methods.psgd(SGD)), ETHERNET, N, steps=STEPS, compute=COMPUTE)
    each = costs.ring(4 * D, N, ETHERNET.inter)
    assert run.communication == pytest.approx(np.full(STEPS, each))
    assert run.total == pytest.approx(COMPUTE.max(1).sum() + STEPS * each)
    assert run.by_step[-1] == run.total


def test_dsgd_costs_its_degree_and_waits_for_neighbours() -> None:
    ring, pairs = topologies.ring(N), topologies.one_peer_exponential(N)
    both = [
        modelled(ledger_of(methods.dsgd(SGD, graph)), ETHERNET, N, steps=STEPS, topology=graph, compute=COMPUTE)
        for graph in (ring, pairs)
    ]
    for run, degree, graph in zip(both, (2, 1), (ring, pairs), strict=True):
        each = costs.gossip(4 * D, degree, ETHERNET.inter)
        assert run.communication == pytest.approx(np.full(STEPS, each))
        assert run.finish == pytest.approx(finish_times(COMPUTE, matrices(graph), each))


def test_local_sgd_sends_once_a_period() -> None:
    run = modelled(ledger_of(methods.local_sgd(SGD, period=4)), ETHERNET, N, steps=STEPS, compute=0.1)
    sent = np.flatnonzero(run.communication)
    assert len(sent) == STEPS // 4
    assert set(np.diff(sent)) == {4}


def test_messages_that_do_not_sum_are_gathered_and_a_codec_takes_its_time() -> None:
    rows = ledger_of(methods.mem_sgd(SGD, ScaledSign()))
    plain = modelled(rows, ETHERNET, N, steps=STEPS)
    message = rows[0].payload_bytes
    assert plain.communication == pytest.approx(np.full(STEPS, costs.all_gather(message, N, ETHERNET.inter)))
    codec = costs.Codec(expansion=4 * D / message, encode=1e6, decode=2e6)
    added = modelled(rows, ETHERNET, N, steps=STEPS, codec=codec).communication - plain.communication
    assert added == pytest.approx(np.full(STEPS, 4 * D / 1e6 + (N - 1) * 4 * D / 2e6))


def test_a_server_is_slower_than_a_ring_and_shards_help() -> None:
    rows = ledger_of(methods.double_squeeze(SGD, ScaledSign()))
    one, four = (modelled(rows, ETHERNET, N, steps=STEPS, shards=k).total for k in (1, 4))
    assert one > four
    size = rows[0].payload_bytes
    assert one == pytest.approx(STEPS * costs.server(size, N, ETHERNET.inter))


def test_communication_hides_behind_computing_as_far_as_it_may() -> None:
    rows = ledger_of(methods.psgd(SGD))
    each = costs.ring(4 * D, N, ETHERNET.inter)
    for compute in (each / 2, each, 2 * each):
        run = modelled(rows, ETHERNET, N, steps=STEPS, compute=compute, overlap=1.0)
        assert run.total == pytest.approx(STEPS * max(each, compute))


def test_faster_networks_and_nearer_workers_are_never_slower() -> None:
    rows = ledger_of(methods.psgd(SGD))
    totals = [
        modelled(rows, Cluster.named(name, gpus=N), N, steps=STEPS, compute=COMPUTE).total
        for name in ("ethernet_100m", "ethernet_1g", "v100_25g", "a100_selene")
    ]
    assert sorted(totals, reverse=True) == totals


def test_kinds_of_every_collective_have_seconds_and_others_are_refused() -> None:
    def total(kind: str) -> float:
        return modelled([Entry(0, "g", kind, 1e6, 1e6, 1, 1)], ETHERNET, N, steps=1).total

    link = ETHERNET.inter
    assert total("ring") == pytest.approx(costs.ring(1e6, N, link))
    assert total("tree") == pytest.approx(costs.binomial_tree(1e6, N, link))
    assert total("server") == pytest.approx(costs.server(1e6, N, link))
    with pytest.raises(ValueError, match="'pigeon'"):
        total("pigeon")


def test_a_ledger_that_does_not_fit_is_refused() -> None:
    rows = ledger_of(methods.dsgd(SGD, topologies.ring(N)))
    for keys, said in (
        ({}, "give the topology"),
        ({"topology": topologies.one_peer_exponential(N)}, "2 messages a worker and the given topology 1"),
        ({"topology": topologies.ring(4)}, "topology of 4 workers"),
        ({"topology": topologies.ring(N), "steps": 3}, "steps=4"),
        ({"topology": topologies.ring(N), "overlap": 2.0}, "overlap of 2.0"),
    ):
        with pytest.raises(ValueError, match=said):
            modelled(rows, ETHERNET, N, **{"steps": STEPS, **keys})  # type: ignore[arg-type]


def test_one_worker_alone_never_waits() -> None:
    rows = [Entry(step, "gradients", "all_reduce", 0, 0, 0, 0) for step in range(3)]
    assert modelled(rows, ETHERNET, 1, steps=3, compute=0.5).total == 1.5
