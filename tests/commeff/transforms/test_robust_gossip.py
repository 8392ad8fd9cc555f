"""Gossip with liars: the operation that hears neighbours one by one, self-centred clipping, and a rule of one's own."""

from __future__ import annotations

import math
from functools import partial

import networkx
import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy, methods, topologies
from commeff.communicator import view
from commeff.compressors import DenseMessage, TopK
from commeff.core import Traits
from commeff.core.properties import sends
from commeff.laws import LAYOUT, MethodCase, acts_on_pieces, is_the_same_on_every_engine, leaves_the_absent_alone
from commeff.laws.engines import rehearse
from commeff.optimizers import SophiaH
from commeff.profiling import profile
from commeff.sharding.pieces import exact_on_pieces
from commeff.transforms import RobustGossip, attacked
from commeff.transforms.robust_gossip import NeighbourRule, SelfCentredClipping

N, D = 6, 5
SGD = partial(torch.optim.SGD, lr=0.1)
DIRECTED = topologies.from_matrices(
    [[[0.5, 0.5, 0, 0, 0, 0], [0.2, 0.4, 0.4, 0, 0, 0], [0, 0, 1, 0, 0, 0]] + [[1 / 6] * 6] * 3]
)
GRAPHS = {"ring": topologies.ring(N), "star": topologies.star(N), "directed": DIRECTED}


def rows(seed=0):
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hear(communicator, graph, encode=DenseMessage.of):
    heard = neighbours(communicator, encode(rows()[list(communicator.workers)]), graph)
    return heard.vectors, heard.weights, communicator.ledger.rows, dict(communicator.transport.sent)


def neighbours(communicator, message, graph):
    """What a rule gets in the place of the weighted sum."""
    heard = []

    def rule(found):
        heard.append(found)
        return message.decode()

    assert torch.equal(communicator.mix(message, graph.at(0), combine=rule), message.decode())
    return heard[0]


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("processes", [1, 2, N])
def test_neighbours_are_heard_one_by_one_for_the_bill_of_their_sum(graph, processes):
    matrix, x = graph.at(0), rows()
    found = rehearse(processes, N, lambda communicator: hear(communicator, graph))
    vectors, weights = (torch.cat([part[i] for part in found]) for i in (0, 1))
    mixed = rehearse(processes, N, lambda mine: (mine.mix(DenseMessage.of(x[list(mine.workers)]), matrix), mine))
    for i in range(N):
        others = {j: weight for j, weight in matrix.received(i).items() if j != i}
        assert weights[i].tolist() == [*others.values()] + [0.0] * (int(matrix.in_degrees.max()) - len(others))
        assert torch.equal(vectors[i], x[[*others] + [i] * (weights.shape[1] - len(others))])
    for (_, _, bill, sent), (_, communicator) in zip(found, mixed, strict=True):
        assert bill == communicator.ledger.rows
        assert sent == dict(communicator.transport.sent)


def test_compressed_messages_are_heard_as_they_are_decoded():
    def encode(x):
        return TopK(k=2).compress(x, Communicator(workers=len(x)).random("up"))

    for processes in (1, 3):
        found = rehearse(processes, N, lambda communicator: hear(communicator, GRAPHS["ring"], encode))
        heard = torch.cat([vectors for vectors, *_ in found])
        assert torch.equal(heard[2, 0], encode(rows()).decode()[1])


def test_who_is_absent_is_not_heard():
    here = view(Communicator(workers=N), among=torch.tensor([True, False, True, True, True, True]))
    heard = neighbours(here, DenseMessage.of(rows()[here.workers]), GRAPHS["ring"])
    expected = torch.tensor([[1, 0], [1, 0], [1, 1], [1, 1], [1, 1]], dtype=torch.float64) / 3
    assert torch.allclose(heard.weights, expected)
    assert torch.equal(heard.vectors[1, 0], rows()[3])


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize(
    "rule", [SelfCentredClipping(0), SelfCentredClipping(tau=math.inf), SelfCentredClipping(2, 1e9)]
)
def test_who_is_never_clipped_gossips(graph, rule):
    communicator = Communicator(workers=N)
    transform = RobustGossip(graph, rule)
    transform.start(rows(), Layout.flat(D), communicator)
    expected = torch.from_numpy(graph.at(0).dense()) @ rows()
    assert (transform(rows(), communicator) - expected).abs().max() <= 1e-12


@pytest.mark.parametrize("tau", [None, 0.7])
def test_clipping_is_its_equation(tau):
    graph, f = topologies.from_graph(networkx.Graph([(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (4, 5)])), 1
    communicator, x, matrix = Communicator(workers=N), rows(), graph.at(0)
    transform = RobustGossip(graph, SelfCentredClipping(f, tau))
    transform.start(x, Layout.flat(D), communicator)
    found = transform(x, communicator)
    for i in range(N):
        others = {j: weight for j, weight in matrix.received(i).items() if j != i}
        near = sorted(others, key=lambda j: float((x[j] - x[i]).norm()))
        radius = tau
        if tau is None:
            squares = sum(others[j] * float((x[j] - x[i]).square().sum()) for j in near[:-f])
            radius = math.sqrt(squares / sum(others[j] for j in near[-f:]))
        pulls = [w * (x[j] - x[i]) * min(1, radius / float((x[j] - x[i]).norm())) for j, w in others.items()]
        assert torch.allclose(found[i], x[i] + torch.stack(pulls).sum(0), atol=1e-12)


def end(method, strength, n=8, liars=1):
    """How far the worst of the honest is from the optimum of their mean function."""
    targets = torch.arange(n, dtype=torch.float64)[:, None] / n + torch.zeros(n, D, dtype=torch.float64)
    strategy = attacked(method(topologies.complete(n)), "sign_flip", liars, strength)
    communicator, x = Communicator(workers=n, seed=2), torch.zeros(n, D, dtype=torch.float64)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(60):
        x = strategy.step(x, x - targets, communicator)
    return float((x[liars:] - targets[liars:].mean(0)).abs().max())


def test_with_few_liars_the_error_stays_bounded_as_lies_grow_and_that_of_plain_gossip_does_not():
    gossip = [end(partial(methods.dsgd, SGD), strength) for strength in (1e1, 1e3)]
    assert gossip[1] > 100 * gossip[0]
    for given in ({"f": 1}, {"f": 2}, {"tau": 0.1}):
        found = [end(partial(methods.clipped_gossip, SGD, **given), strength) for strength in (1e1, 1e3, 1e6)]
        assert max(found) <= 0.6, given
    assert end(partial(methods.clipped_gossip, SGD, f=1), 1e6, liars=5) > 1, "more lie than f"


@pytest.mark.parametrize("lie", [1e30, math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_neighbour_is_past_a_radius(lie, dtype):
    x, communicator = rows().to(dtype), Communicator(workers=N)
    x[0] = lie
    transform = RobustGossip(topologies.complete(N), SelfCentredClipping(1))
    transform.start(x, Layout.flat(D), communicator)
    found = transform(x, communicator)
    assert found.dtype == dtype
    assert (found[1:] - x[1:]).abs().max() <= 5


class NearestHalf(NeighbourRule):
    """The mean of each worker's vector and the nearer half of its neighbours': a user's own."""

    traits = Traits(scope="whole")

    def __call__(self, own, heard):
        distances = (heard.vectors - own[:, None]).norm(dim=2).masked_fill(heard.weights == 0, torch.inf)
        half = distances.argsort(dim=1)[:, : (distances.shape[1] + 1) // 2]
        chosen = heard.vectors.gather(1, half[:, :, None].expand(-1, -1, own.shape[1]))
        return torch.cat([own[:, None], chosen], 1).mean(1)


def nearest(n):
    return Strategy(Local(SGD), parameters=RobustGossip(topologies.exponential(n), NearestHalf()))


@pytest.mark.parametrize("law", [is_the_same_on_every_engine, leaves_the_absent_alone])
def test_a_rule_of_ones_own_is_one_class(law):
    law(MethodCase("nearest half", nearest))


def test_clipping_acts_on_pieces_of_rows():
    acts_on_pieces(MethodCase("clipped", lambda n: methods.clipped_gossip(SGD, topologies.ring(n))))
    assert exact_on_pieces(methods.clipped_gossip(SGD, topologies.ring(4)))


def test_the_profile_is_that_of_gossip():
    graph = topologies.ring(N)
    clipped, plain = (profile(method(SGD, graph), LAYOUT, N) for method in (methods.clipped_gossip, methods.dsgd))
    assert clipped.wire_bytes == plain.wire_bytes
    assert [op.kind for op in clipped.operations(3)] == ["mix"]
    assert clipped.operations(3)[0].matrix is graph.at(3)


def test_momentum_of_ones_own_keeps_curvature_at_home():
    strategy, communicator = methods.clipped_gossip(partial(SophiaH, lr=0.1), GRAPHS["ring"], beta=0.9), Communicator(N)
    strategy.start(rows(), Layout.flat(D), communicator)
    assert not sends(strategy.gradients)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SelfCentredClipping(-1), "f must be a whole number of at least 0, got -1"),
        (lambda: SelfCentredClipping(tau=0.0), r"tau must lie in \(0, inf\], got 0.0"),
        (lambda: SelfCentredClipping(tau=math.nan), r"tau must lie in \(0, inf\], got nan"),
        (lambda: methods.clipped_gossip(SGD, topologies.ring(4), beta=1.0), "beta must lie in"),
        (
            lambda: RobustGossip(topologies.ring(4), SelfCentredClipping()),
            "the topology must connect the run's 6 workers",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make().start(rows(), Layout.flat(D), Communicator(workers=N))
