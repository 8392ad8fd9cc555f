"""Runs in which not everybody takes part: who is drawn, who returns to what, what is measured and billed."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Communicator, methods, topologies
from commeff.compressors import Layout
from commeff.core.properties import is_rowwise
from commeff.training.participation import Participation
from commeff.training.returning import attend

N = 5
ADAM = partial(torch.optim.Adam, lr=0.05)


def slope(x, step):
    ids = torch.arange(len(x), dtype=x.dtype)[:, None]
    return (1 + 0.2 * ids) * (x - torch.sin(ids + torch.arange(x.shape[1]))) + 0.1 * torch.cos(torch.tensor(step + 1.0))


def test_as_many_as_asked_for_take_part_in_a_round():
    who = Participation(10, seed=3, share=0.34, period=3)
    rounds = [who.present(step) for step in range(30)]
    assert {int(there.sum()) for there in rounds} == {3}
    assert all(torch.equal(rounds[i], rounds[i // 3 * 3]) for i in range(30))
    often = torch.stack([who.present(3 * k) for k in range(1000)]).double().mean(0)
    assert (often - 0.3).abs().max() <= 4 * (0.21 / 1000) ** 0.5
    assert int(Participation(10, share=0.01).present(0).sum()) == 1
    assert int(Participation(10, share=0.19).present(0).sum()) == 2


def test_failures_are_as_frequent_as_asked_for():
    who = Participation(100, dropout=0.1)
    share = torch.stack([who.present(step) for step in range(100)]).double().mean()
    assert share == pytest.approx(0.9, abs=4 * (0.09 / 1e4) ** 0.5)


def test_a_trace_says_who_is_available():
    who = Participation(3, trace=((0, 0, 2), (2, 1, 3), (0, 5, 6)))
    assert [step for step in range(7) if who.present(step)[0]] == [0, 1, 5]
    assert [step for step in range(7) if who.present(step)[2]] == [1, 2]
    assert all(who.present(step)[1] for step in range(7))


def test_who_is_there_was_drawn_and_is_available_and_did_not_fail():
    given = {"share": 0.5, "dropout": 0.2, "trace": ((1, 0, 20), (2, 10, 30))}
    whole = Participation(6, seed=3, **given)
    parts = [Participation(6, seed=3, **{name: value}) for name, value in given.items()]
    for step in range(40):
        assert torch.equal(whole.present(step), torch.stack([part.present(step) for part in parts]).all(0))


def test_impossible_numbers_are_refused():
    for given, words in (
        ({"share": 0.0}, "participation must lie in"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"trace": ((9, 0, 1),)}, "availability must name workers from 0 to 4"),
        ({"trace": ((0, 3, 3),)}, "start < stop"),
    ):
        with pytest.raises(ValueError, match=words):
            Participation(N, **given)


def drive(strategy, masks, returns=True, samples=None):
    """Rows after steps of those who are there; who returns gets what the others agree on."""
    communicator, x = Communicator(workers=N, seed=1), torch.ones(N, 3, dtype=torch.float64)
    communicator.context.samples = samples
    strategy.start(x, Layout.flat(3), communicator)

    def there(step):
        return torch.tensor([letter == "1" for letter in masks[step]])

    for communicator.step in range(len(masks)):
        communicator.begin(communicator.step, present=there(communicator.step))
        if returns:
            x = attend(strategy, x, communicator, there)
        x = strategy.step(x, slope(x, communicator.step), communicator)
    return x, communicator


@pytest.mark.parametrize(
    "method",
    [
        partial(methods.psgd, ADAM),
        partial(methods.diloco, ADAM, period=1),
        partial(methods.fedopt, ADAM, period=1),
        partial(methods.slowmo, partial(torch.optim.SGD, lr=0.1), period=1),
    ],
    ids=["psgd", "diloco", "fedopt", "slowmo"],
)
def test_who_returns_goes_on_as_if_it_had_been_there(method):
    """Workers of one model: after a return all who are there have the same rows, and the same memories."""
    strategy = method()
    x, communicator = drive(strategy, ("11111", "10110", "00011", "11111", "11111", "11111"))
    assert (x - x[0]).abs().max() <= 1e-12
    apart, _ = drive(method(), ("11111", "10110", "00011", "11111", "11111", "11111"), returns=False)
    assert (apart - apart[0]).abs().max() > 1e-4
    bills = [row for row in communicator.ledger.rows if row.path == "return"]
    assert [row.step for row in bills] == [2, 3]
    assert bills[0].messages == 1 / N
    assert bills[0].payload_bytes * N >= 3 * 8
    # the parameters, two moments of Adam and the 4 bytes of a count
    if not strategy.timetable().period or is_rowwise(strategy.parameters):
        assert bills[0].payload_bytes * N == pytest.approx(3 * 3 * 8 + 4)


def test_what_the_first_step_agreed_on_outlives_steps_without_anybody():
    x, communicator = drive(methods.psgd(ADAM), ("10110", "00000", "00000", "11111"))
    assert (x - x[0]).abs().max() <= 1e-12
    assert [row.step for row in communicator.ledger.rows if row.path == "return"] == [3]


def test_fedavg_in_a_loop_of_ones_own_is_fedavg():
    """McMahan's: in each round some clients begin at the server's model, and their mean is the next."""
    rounds, period, sizes = ("11010", "00111", "10001", "01110"), 3, torch.arange(1.0, N + 1, dtype=torch.float64)
    masks = [letters for letters in rounds for _ in range(period)]
    method = partial(methods.fedavg, partial(torch.optim.SGD, lr=0.05), period=period)
    server = torch.ones(3, dtype=torch.float64)
    for number, letters in enumerate(rounds):
        clients = server.repeat(N, 1)
        for step in range(number * period, (number + 1) * period):
            clients = clients - 0.05 * slope(clients, step)
        share = sizes * torch.tensor([letter == "1" for letter in letters])
        server = share / share.sum() @ clients
    there = torch.tensor([letter == "1" for letter in masks[-1]])
    found, alone = (drive(method(), masks, returns, sizes)[0][there] for returns in (True, False))
    assert (found - server).abs().max() <= 1e-12
    assert (alone - server).abs().max() > 1e-3


def test_rows_of_gossip_never_agree():
    assert not methods.dsgd(ADAM, topologies.ring(N)).agrees()
    pga = methods.gossip_pga(ADAM, topologies.ring(N), period=3)
    assert [pga.agrees(step) for step in range(4)] == [False, False, True, False]
    assert pga.agrees()
    local = methods.local_sgd(ADAM, period=2)
    assert [local.agrees(step) for step in range(4)] == [False, True, False, True]
