"""Seconds and bytes of runs from which some workers are absent, against closed forms."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Layout, methods, topologies
from commeff.cluster import Cluster
from commeff.cluster.billing import Billing
from commeff.cluster.modelled import modelled, modelled_present
from commeff.profiling import Operation, attended, profile

N, STEPS, COMPUTE = 4, 6, 0.5
SGD = partial(torch.optim.SGD, lr=0.1)
LAYOUT = Layout.flat(100_000)
MASKS = ("1111", "1110", "1110", "0000", "0100", "1111")


def play(strategy, masks=MASKS):
    whole = profile(strategy, LAYOUT, N)
    sent = attended(strategy, LAYOUT, whole, lambda step: torch.tensor([m == "1" for m in masks[step]]), STEPS)
    return whole, sent


def price(kind, size, members, cluster):
    operation = Operation(0, "", kind, size, 0.0, 1, 1)
    return Billing(cluster, len(members), members=tuple(members)).seconds(operation)


@pytest.mark.parametrize(
    "strategy",
    [methods.psgd(SGD), methods.dsgd(SGD, topologies.ring(N), order="awc"), methods.local_sgd(SGD, period=2)],
    ids=["psgd", "dsgd", "local_sgd"],
)
def test_if_all_are_there_it_is_the_run_of_all(strategy):
    cluster = Cluster.named("ethernet_1g", gpus=N)
    whole, sent = play(strategy, ["1111"] * STEPS)
    expected = modelled(whole, cluster, steps=STEPS, compute=COMPUTE)
    found = modelled_present(sent, cluster, steps=STEPS, compute=COMPUTE)
    assert found.by_step.tolist() == pytest.approx(expected.by_step.tolist())


def test_a_step_takes_those_who_are_there_as_long_as_they_need():
    """Worker 3 returns in step 5 to what worker 1 has, as 0 and 2 do; nobody computes in step 3."""
    cluster, size = Cluster.named("ethernet_1g", gpus=N), 4.0 * LAYOUT.d
    found = modelled_present(play(methods.psgd(SGD))[1], cluster, steps=STEPS, compute=COMPUTE)
    some, back = price("all_reduce", size, [0, 1, 2], cluster), price("from_server", size, [1, 0, 2, 3], cluster)
    assert found.sent["all_reduce"][1:5].tolist() == pytest.approx([some, some, 0, 0])
    assert found.sent["from_server"].tolist() == pytest.approx([0, 0, 0, 0, 0, back])
    assert found.computing[:, 0].tolist() == [COMPUTE, COMPUTE, COMPUTE, 0, COMPUTE, COMPUTE]
    assert found.by_step[4] - found.by_step[0] == pytest.approx(2 * some + 3 * COMPUTE)


def test_gossip_is_priced_where_its_workers_sit():
    """On a ring over two nodes of eight, 6 and 7 are neighbours on one node, 7 and 8 on two."""
    cluster, strategy = Cluster.named("v100_25g", gpus=16), methods.dsgd(SGD, topologies.ring(16))
    whole = profile(strategy, LAYOUT, 16)
    seconds = {}
    for pair in ((6, 7), (7, 8)):
        there = torch.tensor([worker in pair for worker in range(16)])
        sent = attended(strategy, LAYOUT, whole, lambda step, there=there: there, 1)
        seconds[pair] = modelled_present(sent, cluster, steps=1).total
        (operation,) = sent.operations(0)
        assert operation.wire_bytes == operation.payload_bytes == 4 * LAYOUT.d * 2 / 16
    assert 0 < seconds[6, 7] < seconds[7, 8]


def test_steps_that_were_not_played_repeat_later_ones():
    _, sent = play(methods.psgd(SGD))
    assert [sent.played(step) for step in (5, 6, 7, 8, 9)] == [5, 3, 4, 5, 3]
    assert [op.step for op in sent.operations(8)] == [8, 8]
    assert sent.members(sent.operations(8)[0]) == (1, 0, 2, 3)
    assert sent.senders(sent.operations(8)[0]) == 3
