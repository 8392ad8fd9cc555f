"""Laws of modelled seconds: max-plus identities of waiting, and ledgers of real strategies on described clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, Strategy, methods, topologies
from commeff.cluster import Cluster, collectives
from commeff.cluster.billing import Billing, Recorded
from commeff.cluster.groups import Groups
from commeff.cluster.modelled import Modelled, modelled
from commeff.cluster.progress import Heard, Times, waited
from commeff.cluster.speeds import drawn
from commeff.communicator import Entry
from commeff.compressors import ScaledSign
from commeff.profiling import Operation, profile

N, STEPS, D = 8, 24, 1000
COMPUTE = drawn(mean=0.1, spread=0.5, steps=STEPS, workers=N, seed=3)
ETHERNET = Cluster.named("ethernet_1g", gpus=N)
GROUP = Groups.first(ETHERNET, N)
SGD = partial(torch.optim.SGD, lr=0.1)


def played(rows: list[Entry], topology: topologies.Topology | None = None, **keys: Any) -> Modelled:
    """A ledger on Ethernet."""
    return modelled(Recorded(rows, N, topology), ETHERNET, **{"steps": STEPS, **keys})


def ledger_of(strategy: Strategy) -> list[Entry]:
    """The rows of a run on a quadratic."""
    communicator, x = Communicator(workers=N, seed=0), torch.zeros(N, D, dtype=torch.float32)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(STEPS):
        x = strategy.step(x, x - 1, communicator)
    return communicator.ledger.rows


def finish_times(compute: Times, heard: Sequence[Heard], communication: float = 0.0) -> Times:
    """(steps, n) when each worker has ended each step, all having started at 0.

        t_i  <-  max over j in N_i of (t_j + c_j)  +  s

    for the compute times c of a step, the communication time s, and N_i those that i hears from, itself included.
    """
    ends, now = np.empty_like(compute), np.zeros(compute.shape[1])
    for step, whom in enumerate(heard):
        now = waited(now + compute[step], whom) + communication
        ends[step] = now
    return ends


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
    run = played(ledger_of(methods.psgd(SGD)), compute=COMPUTE, collective="ring")
    each = float(collectives.all_reduce(GROUP, 4 * D, "ring"))
    assert run.communication == pytest.approx(np.full(STEPS, each))
    assert run.total == pytest.approx(COMPUTE.max(1).sum() + STEPS * each)
    assert run.by_step[-1] == run.total


def test_dsgd_costs_its_degree_and_waits_for_neighbours() -> None:
    ring, pairs = topologies.ring(N), topologies.one_peer_exponential(N)
    both = [played(ledger_of(methods.dsgd(SGD, graph)), graph, compute=COMPUTE) for graph in (ring, pairs)]
    for run, degree, graph in zip(both, (2, 1), (ring, pairs), strict=True):
        each = float(collectives.neighbours(GROUP, 4 * D, degree))
        assert run.communication == pytest.approx(np.full(STEPS, each))
        assert run.finish == pytest.approx(finish_times(COMPUTE, matrices(graph), each))


def test_local_sgd_sends_once_a_period() -> None:
    run = played(ledger_of(methods.local_sgd(SGD, period=4)), compute=0.1)
    sent = np.flatnonzero(run.communication)
    assert len(sent) == STEPS // 4
    assert set(np.diff(sent)) == {4}


def test_messages_that_do_not_sum_are_gathered() -> None:
    rows = ledger_of(methods.mem_sgd(SGD, ScaledSign()))
    plain = played(rows)
    message = rows[0].payload_bytes
    assert plain.communication == pytest.approx(np.full(STEPS, float(collectives.all_gather(GROUP, message))))


def test_a_server_is_slower_than_a_ring_and_shards_help() -> None:
    rows = ledger_of(methods.double_squeeze(SGD, ScaledSign()))
    one, four = (played(rows, shards=k).total for k in (1, 4))
    assert one > four
    size = rows[0].payload_bytes
    assert one == pytest.approx(STEPS * float(collectives.server(GROUP, size)))


def test_communication_hides_behind_computing_as_far_as_it_may() -> None:
    rows = ledger_of(methods.psgd(SGD))
    each = float(collectives.all_reduce(GROUP, 4 * D, "ring"))
    for compute in (each / 2, each, 2 * each):
        run = played(rows, compute=compute, overlap=1.0, collective="ring")
        assert run.total == pytest.approx(STEPS * max(each, compute))


def test_faster_networks_and_nearer_workers_are_never_slower() -> None:
    rows = ledger_of(methods.psgd(SGD))
    totals = [
        modelled(Recorded(rows, N), Cluster.named(name, gpus=N), steps=STEPS, compute=COMPUTE).total
        for name in ("ethernet_100m", "ethernet_1g", "v100_25g", "a100_selene")
    ]
    assert sorted(totals, reverse=True) == totals


def test_kinds_of_every_collective_have_seconds_and_others_are_refused() -> None:
    def total(kind: str) -> float:
        return played([Entry(0, "g", kind, 1e6, 1e6, 1, 1)], steps=1).total

    assert total("ring") == pytest.approx(float(collectives.all_reduce(GROUP, 1e6, "one_ring")))
    assert total("tree") == pytest.approx(float(collectives.all_reduce(GROUP, 1e6, "binomial_tree")))
    assert total("all_reduce") == pytest.approx(float(collectives.all_reduce(GROUP, 1e6)))
    assert total("server") == pytest.approx(float(collectives.server(GROUP, 1e6)))
    assert total("to_server") + total("from_server") == pytest.approx(total("server"))
    with pytest.raises(ValueError, match="'pigeon'"):
        total("pigeon")


def test_a_ledger_that_does_not_fit_is_refused() -> None:
    rows = ledger_of(methods.dsgd(SGD, topologies.ring(N)))
    for topology, text in (
        (None, "topology must be given"),
        (topologies.one_peer_exponential(N), "must send the 2 messages a worker"),
        (topologies.ring(4), "topology must have the 8 workers of the run, got 4"),
    ):
        with pytest.raises(ValueError, match=text):
            played(rows, topology)
    for name in ("overlap", "backward"):
        with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\], got 2.0"):
            played(rows, topologies.ring(N), **{name: 2.0})
    assert Recorded(rows, N, topologies.ring(N)).steps == STEPS


def test_one_worker_alone_never_waits() -> None:
    rows = [Entry(step, "gradients", "all_reduce", 0, 0, 0, 0) for step in range(3)]
    assert modelled(Recorded(rows, 1), ETHERNET, steps=3, compute=0.5).total == 1.5


@dataclass(frozen=True)
class Steady:
    """A profile that sends one all-reduce of 1 MB in every step, or in every `period`-th."""

    early: bool = False
    bucketed: bool = False
    delay: int = 0
    period: int = 1
    workers: int = N
    first: int = 0

    def operations(self, step: int) -> tuple[Operation, ...]:
        if step % self.period:
            return ()
        at = step + self.delay
        hiding = {"early": self.early, "bucketed": self.bucketed, "waited": at}
        return (Operation(step, "", "all_reduce", 1e6, 1.75e6, 1, 1, **hiding),)


EACH = float(collectives.all_reduce(GROUP, 1e6))


@pytest.mark.parametrize("ratio", [0.3, 0.9, 1.2, 3.0])
def test_what_leaves_early_hides_behind_computing_and_a_last_bucket_behind_nothing(ratio: float) -> None:
    compute = ratio * EACH
    for steady, room in ((Steady(), 0.0), (Steady(early=True), 1.0), (Steady(bucketed=True), 0.0)):
        run = modelled(steady, ETHERNET, steps=10, compute=compute)
        exposed = max(0.0, EACH - room * compute)
        assert run.exposed == pytest.approx(np.full(10, exposed))
        assert run.total == pytest.approx(10 * (compute + exposed))
        assert run.exposed + run.hidden == pytest.approx(run.communication)
        assert run.communication == pytest.approx(np.full(10, EACH))


@pytest.mark.parametrize("delay", [1, 2, 4])
def test_what_is_waited_for_later_hides_behind_the_steps_in_between(delay: int) -> None:
    for ratio in (0.1, 0.6, 1.5):
        run = modelled(Steady(delay=delay, period=4), ETHERNET, steps=40, compute=ratio * EACH)
        exposed = max(0.0, EACH - delay * ratio * EACH)
        waits = [step % 4 == delay % 4 and step >= delay for step in range(40)]
        assert run.exposed == pytest.approx(np.where(waits, exposed, 0.0))


def test_messages_of_one_worker_follow_each_other() -> None:
    """Delayed by any number of steps, more is sent than the link carries: a step takes what its message takes."""
    for delay in (1, 2, 8):
        run = modelled(Steady(delay=delay), ETHERNET, steps=50, compute=EACH / 4)
        assert np.diff(run.by_step)[20:] == pytest.approx(np.full(29, EACH))


def test_workers_that_are_alike_are_the_limit_of_workers_that_differ() -> None:
    rows, nearly = ledger_of(methods.dsgd(SGD, topologies.ring(N))), np.full((STEPS, N), 0.1)
    nearly[0, 0] += 1e-13
    for keys in ({}, {"overlap": 0.5}):
        alike, differing = (played(rows, topologies.ring(N), compute=c, **keys) for c in (0.1, nearly))
        assert differing.finish == pytest.approx(alike.finish)


PROFILED: dict[str, tuple[Strategy, topologies.Topology | None]] = {
    "psgd": (methods.psgd(SGD), None),
    "local_sgd": (methods.local_sgd(SGD, period=4), None),
    "dsgd": (methods.dsgd(SGD, topologies.one_peer_exponential(N)), topologies.one_peer_exponential(N)),
    "mem_sgd": (methods.mem_sgd(SGD, ScaledSign()), None),
    "double_squeeze": (methods.double_squeeze(SGD, ScaledSign()), None),
}


@pytest.mark.parametrize("name", PROFILED)
def test_a_profile_costs_what_the_ledger_of_its_run_costs(name: str) -> None:
    strategy, topology = PROFILED[name]
    sent = profile(strategy, Layout.flat(D), N)
    keys: dict[str, Any] = {"steps": STEPS, "compute": COMPUTE, "overlap": 0.0}
    ours, theirs = modelled(sent, ETHERNET, **keys), played(ledger_of(strategy), topology, **keys)
    assert ours.communication == pytest.approx(theirs.communication)
    assert ours.finish == pytest.approx(theirs.finish + np.cumsum(ours.coding)[:, None])
    assert (ours.coding > 0).all() == (name in ("mem_sgd", "double_squeeze"))
    assert ours.exposed == pytest.approx(theirs.exposed + ours.coding)
    assert ours.hidden == pytest.approx(theirs.hidden)


@pytest.mark.parametrize("delay", [0, 4, 30])
def test_a_link_that_falls_behind_slowly_is_seen(delay: int) -> None:
    """The last period stands for all to come only once it begins and ends alike: 1 % too much adds up for long."""
    run = modelled(Steady(delay=delay), ETHERNET, steps=4000, compute=EACH / 1.01)
    step = EACH / 1.01 + (EACH if delay == 0 else 0.01 / 1.01 * EACH)
    assert run.total == pytest.approx(4000 * step, rel=0.01)
    assert run.exposed[-1] == pytest.approx(step - EACH / 1.01)


def test_compute_is_refused_below_zero() -> None:
    for compute in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="compute must be seconds, 0 or above"):
            modelled(Steady(), ETHERNET, steps=2, compute=compute)


def test_exposed_is_the_mean_over_workers() -> None:
    """All wait for the slowest: one computes for a second more, so the others stand still for it."""
    compute = np.ones((4, N))
    compute[:, 0] = 2.0
    run = modelled(Steady(), ETHERNET, steps=4, compute=compute)
    assert run.exposed == pytest.approx(np.full(4, EACH + (N - 1) / N))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (N, 2), (1, 2, N)])
def test_compute_of_another_shape_is_refused_in_a_line(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"compute must be one number, or have the shape \({N},\) .* got \("):
        modelled(Steady(), ETHERNET, steps=2, compute=np.ones(shape))


@pytest.mark.parametrize("steps", [-1, 2.5, True])
def test_steps_are_counted(steps: Any) -> None:
    with pytest.raises(ValueError, match=f"steps must be a whole number of at least 0, got {steps}"):
        modelled(Steady(), ETHERNET, steps=steps)


@pytest.mark.parametrize("strategy", [methods.ef21(SGD, ScaledSign()), methods.post_local_sgd(SGD, period=4, begin=9)])
def test_what_repeats_is_priced_as_if_every_step_were_played(strategy: Strategy) -> None:
    """First messages count once: a period that stands for all to come is one of those that repeat."""

    @dataclass
    class Endless:
        """The same profile, which says of no period that it comes again."""

        workers: int = N
        first: int = 0
        period: None = None

        def operations(self, step: int) -> tuple[Operation, ...]:
            return found.operations(step)

    found = profile(strategy, Layout.flat(D), N)
    short, long = (modelled(each, ETHERNET, steps=40, compute=1e-3) for each in (found, Endless()))
    assert short.finish == pytest.approx(long.finish)
    assert short.communication == pytest.approx(long.communication)
    assert short.exposed_by_kind == pytest.approx(long.exposed_by_kind)
    assert {kind: list(each) for kind, each in short.sent.items()} == {k: list(each) for k, each in long.sent.items()}


def test_rounds_follow_each_other_and_are_priced_each() -> None:
    bill = Billing(ETHERNET, N)
    once, thrice = (Operation(0, "", "all_reduce", rounds * 1e6, rounds * 1.75e6, 1, rounds) for rounds in (1, 3))
    assert bill.seconds(thrice) == pytest.approx(3 * bill.seconds(once))


def test_operations_that_differ_in_shards_or_matrix_alone_are_priced_apart() -> None:
    shards = [Operation(0, "", "to_server", 1e6, 1e6, 1, 1, shards=k) for k in (1, 4)]
    near, far = np.eye(16), np.eye(16)
    for i in range(16):
        near[i, [i, i ^ 1]] = far[i, [i, i ^ 8]] = 0.5
    cluster = Cluster.named("a100_selene", gpus=16)
    mixes = [Operation(0, "", "mix", 1e6, 1e6, 1, 1, matrix=topologies.from_matrices([w]).at(0)) for w in (near, far)]
    for where, pair in ((ETHERNET, shards), (cluster, mixes)):
        together = Billing(where, where.gpus)
        apart = [Billing(where, where.gpus).seconds(operation) for operation in pair]
        assert [together.seconds(operation) for operation in pair] == apart
        assert apart[0] != apart[1]
