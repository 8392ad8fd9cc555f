"""Who takes part: averages, weights and memories of those who are there, against their equations."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
import torch

from commeff import Communicator, Layout, methods, scheduled, topologies
from commeff.communicator import view
from commeff.compressors import Dense, DenseMessage, Natural, TopK
from commeff.core.presence import rows_of
from commeff.sharding.precision import step_of_finite
from commeff.topologies.failures import without_workers
from commeff.transforms import PushSum
from tests.laws.processes import on_processes

N, D, LR = 5, 7, 0.1
SGD = partial(torch.optim.SGD, lr=LR)
MASKS = ("11111", "10110", "01011", "00000", "00100", "11110")


def rows(seed):
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def present(step):
    return torch.tensor([letter == "1" for letter in MASKS[step]])


def drive(strategy, watch=lambda strategy, communicator: None):
    """The rows after steps in which absent workers have parameters and gradients that are not numbers."""
    communicator, x = Communicator(workers=N, seed=1), rows(0)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(len(MASKS)):
        communicator.begin(communicator.step, present=present(communicator.step))
        away = ~present(communicator.step)
        gradient, poisoned = rows(communicator.step + 1), x.clone()
        gradient[away] = poisoned[away] = torch.nan
        after = strategy.step(poisoned, gradient, communicator)
        assert after[away].isnan().all()
        assert after[~away].isfinite().all()
        x = torch.where(away[:, None], x, after)
        watch(strategy, communicator)
    return x, communicator


def test_the_mean_gradient_is_that_of_those_who_are_there():
    x, _ = drive(methods.psgd(SGD))
    expected = rows(0)
    for step in range(len(MASKS)):
        there = present(step)
        expected[there] -= LR * rows(step + 1)[there].mean(0)
    assert (x - expected).abs().max() <= 1e-12


@pytest.mark.parametrize("graph", [topologies.ring(N), topologies.exponential(N), topologies.star(N)])
def test_the_weight_of_an_absent_neighbour_goes_to_the_diagonal(graph):
    x, _ = drive(methods.dsgd(SGD, graph))
    expected = rows(0)
    for step in range(len(MASKS)):
        there = present(step)
        moved = expected - LR * rows(step + 1) * there[:, None]
        expected = torch.from_numpy(without_workers(graph.at(step), there.numpy()).dense()) @ moved
    assert (x - expected).abs().max() <= 1e-12


def test_what_the_absent_alone_remember_stays():
    """Workers 0 and 1 end a period; then the others are there, whose outer optimizer has not yet stepped."""
    strategy, communicator, x = methods.diloco(SGD, period=2), Communicator(workers=N, seed=1), rows(0)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step, letters in enumerate(("11000", "11000", "00111")):
        communicator.begin(communicator.step, present=torch.tensor([letter == "1" for letter in letters]))
        x = strategy.step(x, rows(communicator.step + 1), communicator)
    remembered = strategy.parameters.inner.outer.state
    assert remembered["aged"].tolist() == [True, True, False, False, False]
    assert remembered["0.momentum_buffer"][:2].abs().min() > 0


def test_an_overflow_at_a_worker_who_is_absent_keeps_nobody_from_a_step():
    strategy, communicator, x = methods.psgd(SGD), Communicator(workers=N), rows(0)
    strategy.start(x, Layout.flat(D), communicator)
    there = torch.tensor([worker > 1 for worker in range(N)])
    communicator.begin(0, present=there)
    after = step_of_finite(
        strategy, x.clone(), rows(1), communicator, torch.tensor([worker != 0 for worker in range(N)])
    )
    assert (after[there] != x[there]).all()
    after = strategy.step(x, rows(1), communicator, moving=torch.tensor([worker < 4 for worker in range(N)]))
    moved = (after != x).all(1).tolist()
    assert moved == [False, False, True, True, False], "who is absent does not move in any case"


def test_push_sum_loses_no_mass():
    import networkx

    graph = topologies.from_graph(networkx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 3), (1, 4)]))
    moved = torch.zeros(D, dtype=torch.float64)

    def whole(strategy, communicator):
        push = strategy.parameters
        moved.sub_(LR * rows(communicator.step + 1)[present(communicator.step)].sum(0))
        assert float(push.weight.sum()) == pytest.approx(N)
        assert (push.numerator.sum(0) - rows(0).sum(0) - moved).abs().max() <= 1e-12

    drive(methods.sgp(SGD, graph), whole)


def test_senders_keep_what_the_absent_would_have_got():
    """Also where rows sum to 1 as well, as those of a directed graph that balances do."""
    graph, communicator, v, there = topologies.exponential(N), Communicator(workers=N), rows(0), present(1)
    push_sum, more = PushSum(graph), rows(1)
    push_sum.start(v, Layout.flat(D), communicator)
    communicator.begin(0, present=there)
    with rows_of(push_sum, there, D):
        found = push_sum(torch.cat([v, more], 1)[there], view(communicator, among=there))
    assert (push_sum.numerator.sum(0) - v.sum(0)).abs().max() <= 1e-12
    assert (found[:, D:].sum(0) - more[there].sum(0)).abs().max() <= 1e-12, "sums that travel with them"


@pytest.mark.parametrize(
    ("method", "known"),
    [(partial(methods.ef21, compressor=TopK(k=2)), "public"), (partial(methods.diana, compressor=Natural()), "shift")],
)
def test_what_all_know_is_the_mean_of_everybody_who_was_ever_there(method, known):
    """EF21 with partial participation (arXiv 2110.03294): an absent worker's difference is 0, its vector stays."""

    def mean(strategy, communicator):
        average = strategy.gradients
        assert (getattr(average, known).mean(0) - average.mean[0]).abs().max() <= 1e-12

    drive(method(SGD), mean)


def test_trackers_sum_to_the_last_gradients():
    def sums(strategy, communicator):
        tracking = strategy.gradients
        assert (tracking.tracked.sum(0) - tracking.last_gradient.sum(0)).abs().max() <= 1e-12

    def carried(strategy, communicator):
        assert (strategy.local.carried.sum(0) - strategy.local.last_gradient.sum(0)).abs().max() <= 1e-12

    drive(methods.gradient_tracking(SGD, topologies.ring(N)), sums)
    drive(methods.push_diging(SGD, topologies.exponential(N)), carried)


def test_the_corrections_of_scaffold_are_of_the_periods_that_a_worker_took_part_in():
    """Worker 1 misses the second of three periods: its correction moves when the second begins, and not after."""
    strategy, communicator, x = methods.scaffold(SGD, period=2), Communicator(workers=N, seed=1), rows(0)
    strategy.start(x, Layout.flat(D), communicator)
    drifts = []
    for communicator.step in range(8):
        communicator.begin(
            communicator.step, present=torch.tensor([w != 1 or communicator.step not in (3, 4, 5) for w in range(N)])
        )
        if communicator.step == 6:
            x = x[:1].repeat(N, 1)  # who returns has what the others agree on, which is not where it once ended
        x = strategy.step(x, rows(communicator.step + 1), communicator)
        drifts.append(strategy.local.drift.clone())
        assert drifts[-1].sum(0).abs().max() <= 1e-12 or communicator.step >= 4
    assert not torch.equal(drifts[2][1], drifts[1][1])
    assert all(torch.equal(later[1], drifts[2][1]) for later in drifts[3:]), "it did not end the second period"
    assert not torch.equal(drifts[4][0], drifts[3][0])


def test_a_step_without_anybody_is_a_step_of_the_clock():
    halving = methods.psgd(scheduled(SGD, partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)))
    _, _ = drive(halving)
    assert halving.local.lr == LR / 2 ** len(MASKS)


def test_those_who_are_there_are_billed():
    graph = topologies.ring(N)
    for strategy in (methods.psgd(SGD), methods.dsgd(SGD, graph), methods.double_squeeze(SGD, Dense())):
        _, communicator = drive(strategy)
        up = [row for row in communicator.ledger.rows if row.kind != "from_server"]
        for row in up:
            there = present(row.step).numpy()
            alone = there.sum() == 1 and row.kind != "to_server"
            senders = without_workers(graph.at(0), there).out_degrees > 0 if row.kind == "mix" else there
            assert row.payload_bytes * N == pytest.approx(0 if alone else 8 * D * senders.sum())
        assert {row.step for row in up} == {0, 1, 2, 4, 5}
        for row in (row for row in up if row.kind == "all_reduce"):
            there = int(present(row.step).sum())
            assert row.wire_bytes * N == pytest.approx(2 * (there - 1) * 8 * D)


def test_means_over_samples_are_unbiased_and_vary_as_theory_says():
    """Over all subsets of S: E mean = mean, Var = (N - S) / (N - 1) / S of the workers' variance."""
    v, size = rows(3), 2
    communicator = Communicator(workers=N)
    found = []
    for chosen in combinations(range(N), size):
        here = view(communicator, among=torch.tensor([worker in chosen for worker in range(N)]))
        found.append(here.average(Dense().compress(v[list(chosen)], here.random("up")))[0])
    means = torch.stack(found)
    assert (means.mean(0) - v.mean(0)).abs().max() <= 1e-12
    assert (means.var(0, correction=0) - (N - size) / (N - 1) / size * v.var(0, correction=0)).abs().max() <= 1e-12


def test_methods_that_need_everybody_say_so():
    for strategy in (methods.choco(SGD, topologies.ring(N), TopK(k=2)), methods.dasgd(SGD, period=2, delay=1)):
        with pytest.raises(
            ValueError, match=r"every worker must take part in each step of this method.*participation=1"
        ):
            drive(strategy)


def test_every_process_has_to_know_who_takes_part():
    communicator = Communicator(workers=N)
    with pytest.raises(ValueError, match="present must be a truth value for each of the 5 workers"):
        communicator.begin(0, present=torch.ones(3, dtype=torch.bool))
    communicator.begin(0, present=torch.ones(N, dtype=torch.bool))
    assert communicator.context.active is None


def test_the_mean_of_one_reaches_a_process_that_hosts_nobody_present():
    def member():
        one = view(Communicator(), among=torch.tensor([False, True]))
        return one.post_average(DenseMessage.of(torch.full((len(one.workers), 2), 5.0)), rows=1).wait().tolist()

    assert on_processes(2, member) == [[[5.0, 5.0]]] * 2
