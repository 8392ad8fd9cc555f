"""What a strategy promises to parts it does not know, and what it refuses."""

from __future__ import annotations

import copy
from functools import partial

import networkx as nx
import pytest
import torch

from commeff import Communicator, ErrorFeedback, Layout, Local, LocalStep, Strategy, Transform, methods, topologies
from commeff.compressors import Dense, DenseMessage, TopK
from commeff.core import GradientComparison, Grouped, overlap, scheduled
from commeff.core.properties import scope_of
from commeff.laws import LAYOUT, cases, run, slope, start
from commeff.transforms import Average, Blocks, Choco, Every, Gossip, Warmup, attacked, blocked, bucketed, clipped

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
PLAIN = partial(torch.optim.SGD, lr=0.05)
RING = topologies.ring(4)


class SeesAveraging(LocalStep):
    """Remembers its last output, and how far the next input is from it: what averaging did."""

    def __init__(self):
        self.lr = 0.1

    def start(self, x, layout):
        self.last, self.moves = x.clone(), []

    def __call__(self, x, gradient, active=None):
        self.moves.append(float((x - self.last).abs().max()))
        self.last = x - self.lr * gradient
        return self.last


def test_a_local_step_sees_what_averaging_did():
    local = SeesAveraging()
    run(Strategy(local, parameters=Gossip(RING)))
    assert min(local.moves[1:]) > 1e-3


class Halved(GradientComparison):
    """Half of every gradient is sent, and x is looked at."""

    def start(self, x, layout):
        self.seen = []

    def __call__(self, x, gradient, communicator, oracle, moving):
        self.seen.append(x.clone())
        return gradient / 2


def test_a_comparison_stands_before_what_is_sent_whatever_is_wrapped_around_it():
    plain = run(methods.psgd(partial(torch.optim.SGD, lr=0.025)))[0]
    for wrapped in (
        lambda strategy: strategy,
        lambda strategy: bucketed(strategy, 1e-5),
        lambda strategy: blocked(strategy, [9]),
        lambda strategy: clipped(strategy, 1e9),
        lambda strategy: attacked(strategy, "sign_flip", 0),
    ):
        strategy = wrapped(Strategy(Local(PLAIN), gradients=Average(), comparison=Halved()))
        torch.testing.assert_close(run(strategy)[0], plain, rtol=0, atol=1e-12)
        assert torch.equal(strategy.comparison.seen[0], start())


def test_what_is_compared_is_not_sent_before_it_has_been():
    for comparison in (None, Halved()):
        strategy = bucketed(Strategy(Local(PLAIN), gradients=Average(), comparison=comparison), 1e-5)
        communicator, x = Communicator(workers=4), start()
        strategy.start(x, LAYOUT, communicator)
        assert bool(overlap.awaited(strategy)) == (comparison is None)
        assert overlap.ready(strategy, slope(x, 0), 0, LAYOUT.d, communicator) == (comparison is None)


class SumOfChanges(Transform):
    """A transform as a reader writes it: no start, a compressor as it is, in the words of design.md."""

    def __init__(self, compressor):
        self.compressor = compressor

    def __call__(self, vectors, communicator):
        return communicator.average(self.compressor.compress(vectors, communicator.random("up")))


def test_a_raw_compressor_counts_for_the_scope():
    strategy = Strategy(Local(SGD), gradients=SumOfChanges(TopK(ratio=0.5)))
    assert scope_of(strategy.gradients) == "whole"
    with pytest.raises(ValueError, match="works on the whole vector"):
        run(blocked(strategy, [9]))
    run(blocked(Strategy(Local(SGD), gradients=SumOfChanges(Dense())), [9]))


def test_warmup_counts_its_own_messages():
    """Inside Every(2) the first message is still the dense one."""
    seen = []

    class Watched(Average):
        def stages(self, vectors, communicator):
            message = self.encoder.encode(vectors, communicator, "up")
            seen.append(len(message.parts))
            return (yield communicator.post_average(message))

    run(Strategy(Local(SGD), parameters=Every(2, Watched(Warmup(Dense(), 1, TopK(ratio=1.0))))), steps=6)
    assert seen == [1, 2, 2]


def test_a_sixteen_bit_all_reduce_rounds_here_as_on_a_wire():
    communicator = Communicator(workers=4)
    v = torch.full((4, 2), 40000.0)
    v[0] += 1.0
    message = Dense("float16").compress(v, communicator.random("up"))
    assert communicator.average(message).tolist() == [[40000.0, 40000.0]] * 4
    assert communicator.ledger.rows[0].kind == "all_reduce"
    assert communicator.ledger.payload_bytes == 4


def test_oracle_is_offered_and_x_left_alone():
    strategy, communicator, x = methods.psgd(SGD), Communicator(workers=4), start()
    strategy.start(x, LAYOUT, communicator)
    strategy.step(x, slope(x, 0), communicator, lambda at: slope(at, 0))
    assert torch.equal(x, start())


def test_handles_can_be_waited_for_twice():
    communicator, x = Communicator(workers=4), start()
    message = DenseMessage.of(x)
    handle = communicator.post_mix(message, RING.at(0))
    assert torch.equal(handle.wait(), handle.wait())
    torch.testing.assert_close(communicator.post_average(message).wait(), communicator.average(message))


def test_muon_runs_tensor_by_tensor():
    layout, communicator, x = Layout.of([("a", (4, 4)), ("b", (2, 3))]), Communicator(workers=2), torch.zeros(2, 22)
    strategy = methods.psgd(partial(torch.optim.Muon, lr=0.1))
    strategy.start(x, layout, communicator)
    assert strategy.step(x, torch.randn(2, 22), communicator).abs().max() > 0
    assert scope_of(strategy.local) == "tensor"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_power_sgd_factors_narrow_vectors(dtype):
    communicator, x = Communicator(workers=2), torch.zeros(2, LAYOUT.d, dtype=dtype)
    strategy = methods.power_sgd(partial(torch.optim.SGD, lr=0.1), rank=1)
    strategy.start(x, LAYOUT, communicator)
    assert strategy.step(x, torch.ones_like(x), communicator).dtype == dtype


DIRECTED = topologies.from_graph(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]))
REFUSED = {
    "sums over senders": (lambda: methods.dsgd(SGD, DIRECTED), "does not average"),
    "no topology": (lambda: methods.dsgd(SGD, "ring"), "must be a Topology, got"),
    "no compressor": (lambda: methods.mem_sgd(SGD, "topk"), "contractive|compressor"),
    "optimizer object": (
        lambda: methods.psgd(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)),
        "give a factory",
    ),
    "lbfgs": (lambda: methods.psgd(torch.optim.LBFGS), "choose another"),
    "period": (lambda: methods.local_sgd(SGD, period=2.5), "whole number"),
    "true": (lambda: methods.local_sgd(SGD, period=True), "whole number of at least 1, got True"),
    "true own steps": (lambda: methods.quorum_local_sgd(SGD, period=True), "whole number of at least 1, got True"),
    "factory": (lambda: Strategy(SGD), "local must be a local step, got a partial: .* Local\\("),
    "decay": (lambda: ErrorFeedback(TopK(k=1), decay=5), "in \\[0, 1\\], got 5"),
    "warm-up": (lambda: Warmup(Dense(), -3, Dense()), "at least 0, got -3"),
    "order": (lambda: methods.dsgd(SGD, RING, order="tca"), "order must be 'atc' or 'awc', got 'tca'"),
    "first": (
        lambda: methods.ef21(SGD, TopK(k=1), first="none"),
        "first must be one of dense, compressed, got 'none'",
    ),
    "gamma": (lambda: methods.choco(SGD, RING, TopK(k=1), gamma=0.0), "\\(0, 1\\]"),
    "rounds": (lambda: methods.neolithic(SGD, TopK(k=1), rounds=0), "at least 1"),
    "changing": (lambda: run(methods.choco(SGD, topologies.one_peer_exponential(4), TopK(k=1))), "fixed weights"),
    "size": (lambda: run(methods.choco(SGD, topologies.ring(5), TopK(k=1))), "4 workers, got one of 5"),
    "eigenvalue": (lambda: methods.d2(SGD, RING), "lazy"),
    "too many": (lambda: run(methods.mem_sgd(SGD, TopK(k=100))), "k <= 12"),
    "cuts": (lambda: run(Strategy(Local(SGD), gradients=Blocks(Average(), [3, 2]))), "cuts must increase"),
    "rates": (lambda: _two_rates(), "one learning rate"),
}


def _two_rates():
    layout = Layout.of([("a", (2,)), ("b", (2,))], groups=[0, 1])
    strategy = methods.mem_sgd(Grouped(SGD, ({"lr": 0.0}, {"lr": 0.1})), TopK(k=1))
    strategy.start(torch.zeros(4, 4), layout, Communicator(workers=4))


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_a_reason(name):
    build, reason = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=reason) as refusal:
        build()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("shape", [(4, 7), (1, 12)])
def test_a_gradient_of_another_shape_is_refused(shape):
    strategy, communicator, x = methods.psgd(SGD), Communicator(workers=4), start()
    strategy.start(x, LAYOUT, communicator)
    with pytest.raises(ValueError, match="give one row a worker"):
        strategy.step(x, torch.zeros(shape, dtype=x.dtype), communicator)


def test_a_step_before_the_start_is_refused():
    x = start()
    with pytest.raises(RuntimeError, match=r"^step needs a strategy that has been started: call start\(x, layout"):
        methods.psgd(SGD).step(x, x, Communicator(workers=4))


def test_another_method_s_state_is_refused():
    saved = methods.mem_sgd(SGD, TopK(k=1))
    run(saved)
    other = methods.ef21(SGD, TopK(k=1))
    run(other)
    with pytest.raises(ValueError, match="another method's state"):
        other.load_state_dict(saved.state_dict())


def test_a_schedule_is_part_of_the_strategy():
    local = methods.psgd(scheduled(SGD, partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5))).local
    strategy = Strategy(local)
    run(strategy, steps=2)
    assert strategy.local.lr == 0.05 / 4
    assert strategy.local.last_lr == 0.05 / 2


def test_the_laws_say_when_a_plugin_asks_for_the_unknown():
    def strange(optimizer, secret) -> Strategy:
        return methods.psgd(optimizer)

    with pytest.raises(AssertionError, match="must have defaults for secret, got none"):
        list(cases(strange))


def test_choco_sketch_of_the_design_is_the_library_s():
    class Sketch(Transform):
        rows = ("public", "neighbours")

        def __init__(self, topology, compressor, gamma):
            self.topology, self.compressor, self.gamma = topology, compressor, gamma

        def start(self, v, layout, communicator):
            self.public, self.neighbours = torch.zeros_like(v), torch.zeros_like(v)

        def __call__(self, x, comm):
            change = self.compressor.compress(x - self.public, comm.random("up"))
            self.public += change.decode()
            self.neighbours += comm.mix(change, self.topology.at(comm.step))
            return x + self.gamma * (self.neighbours - self.public)

    sketch = run(Strategy(Local(SGD), parameters=Sketch(RING, TopK(k=3), 0.4)))[0]
    library = run(Strategy(Local(SGD), parameters=Choco(RING, TopK(k=3), 0.4)))[0]
    torch.testing.assert_close(sketch, library, rtol=0, atol=1e-14)


def test_a_copy_of_a_strategy_mixes_the_memory_of_its_own_local_step():
    strategy, x = methods.dmsgd(PLAIN, topologies.ring(3)), torch.eye(3)
    for each in (twin := copy.deepcopy(strategy), strategy):
        communicator = Communicator(workers=3)
        each.start(x, Layout.flat(3), communicator)
        each.step(x, x, communicator)
    before = strategy.local.carried.clone()
    twin.step(x, x, Communicator(workers=3))
    assert torch.equal(strategy.local.carried, before)
    assert not torch.equal(twin.local.carried, before)
    with pytest.raises(TypeError, match="has been started must not be copied"):
        copy.deepcopy(strategy)


class Noded(Transform):
    """A transform over a topology of nodes, each of several workers."""

    def __init__(self, nodes):
        self.nodes = nodes

    def __call__(self, vectors, communicator):
        return vectors


@pytest.mark.parametrize("n", [3, 5])
def test_a_topology_over_another_number_of_workers_is_refused_at_the_start(n):
    with pytest.raises(ValueError, match=f"must connect the run's 4 workers, got one of {n}"):
        run(Strategy(Local(PLAIN), parameters=Gossip(topologies.ring(n))))
    run(Strategy(Local(PLAIN), parameters=Noded(topologies.ring(n))), steps=1)
