"""One optimizer over all rows does what one optimizer a worker would."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Communicator, DistributedOptimizer, Layout, Local, methods
from commeff.compressors import TopK
from commeff.core import Grouped, saving, scheduled
from commeff.core.corrections import D2, ControlVariate, QuasiGlobal
from commeff.core.factories import ELEMENTWISE, decaying_matrices
from commeff.core.properties import require_one_rate
from commeff.optimizers import LAMB, MuonWithAdamW

W, STEPS = 3, 5
LAYOUT = Layout.of([("a", (4, 2)), ("b", (4,)), ("c", (3, 4))], groups=[0, 1, 0])
X = torch.randn(W, LAYOUT.d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def slope(x, k):
    return 0.3 * x + torch.cos(torch.arange(x.numel(), dtype=x.dtype) + k).view_as(x)


def drive(factory, layout=LAYOUT, active=lambda k: None, x=X):
    local, x = Local(factory), x.clone()
    local.start(x, layout)
    for k in range(STEPS):
        x = local(x, slope(x, k), active(k))
    return x


def alone(factory, x):
    """Each worker with its own optimizer over its own tensors, as in any training script."""
    rows = []
    for i, row in enumerate(x):
        tensors = [torch.nn.Parameter(row[f.start : f.stop].view(f.shape).clone()) for f in LAYOUT.fields]
        optimizer = factory(tensors)
        for k in range(STEPS):
            flat = torch.cat([t.detach().flatten() for t in tensors])
            gradient = slope(torch.stack([flat] * W), k)[i]
            for t, f in zip(tensors, LAYOUT.fields, strict=True):
                t.grad = gradient[f.start : f.stop].view(f.shape).clone()
            optimizer.step()
        rows.append(torch.cat([t.detach().flatten() for t in tensors]))
    return torch.stack(rows)


OPTIMIZERS = [partial(kind, lr=0.05) for kind in ELEMENTWISE] + [
    partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, foreach=True),
    partial(torch.optim.AdamW, lr=0.05, weight_decay=0.1, fused=True),
    partial(torch.optim.Adafactor, lr=0.05),
]


@pytest.mark.parametrize("factory", OPTIMIZERS, ids=lambda f: f"{f.func.__name__} {f.keywords}")
def test_all_rows_at_once_is_each_row_alone(factory):
    difference = (drive(factory) - alone(factory, X)).abs().max()
    assert difference <= 1e-12


@pytest.mark.parametrize("factory", OPTIMIZERS, ids=lambda f: f"{f.func.__name__} {f.keywords}")
def test_a_gradient_of_equal_rows_may_be_a_view_of_one_row(factory):
    local, x = Local(factory), X.clone()
    local.start(x, LAYOUT)
    row = torch.randn(1, LAYOUT.d, dtype=torch.float64)
    kept = row.clone()
    other, y = Local(factory), X.clone()
    other.start(y, LAYOUT)
    for _ in range(STEPS):
        x, y = local(x, row.expand(W, -1)), other(y, kept.expand(W, -1).clone())
    assert torch.equal(row, kept), "the optimizer wrote into its gradient"
    torch.testing.assert_close(x, y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("factory", OPTIMIZERS, ids=lambda f: f"{f.func.__name__} {f.keywords}")
def test_idle_rows_neither_move_nor_age(factory):
    """Row 1 sleeps at steps 1 and 3; what it does afterwards is what it would have done without those steps."""
    local, x = Local(factory), X.clone()
    local.start(x, LAYOUT)
    lonely, y = Local(factory), X[1:2].clone()
    lonely.start(y, LAYOUT)
    for k in range(STEPS):
        active = torch.tensor([True, k not in (1, 3), True])
        gradient, before = slope(x, k), x.clone()
        x = local(x, gradient.clone(), active)
        if active[1]:
            y = lonely(y, gradient[1:2].clone())
        else:
            assert torch.equal(x[1], before[1])
        torch.testing.assert_close(x[1], y[0], rtol=0, atol=1e-12)


def test_groups_have_their_own_options():
    factory = Grouped(partial(torch.optim.SGD, lr=0.1), ({"weight_decay": 0.5}, {"lr": 0.0}))
    x = drive(factory)
    assert torch.equal(x[:, 8:12], X[:, 8:12]), "group 1 has learning rate 0"
    assert not torch.equal(x[:, :8], X[:, :8])
    with pytest.raises(ValueError, match="each of the 1 parameter groups, got 2"):
        Local(factory).start(X, Layout.flat(LAYOUT.d))


@pytest.mark.parametrize(
    "factory",
    [
        partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.4),
        partial(torch.optim.AdamW, lr=0.05, weight_decay=0.4),
        partial(torch.optim.AdamW, lr=0.05, weight_decay=0.4, fused=True),
        partial(MuonWithAdamW, lr=0.05, weight_decay=0.4),
        partial(LAMB, lr=0.05, weight_decay=0.4),
    ],
    ids=lambda f: f"{f.func.__name__} {f.keywords}",
)
@pytest.mark.parametrize("idle", [None, 1])
def test_matrices_alone_decay_as_in_two_parameter_groups(factory, idle):
    def by_hand(tensors):
        matrices, vectors = ([t for t in tensors if (t.ndim > 1) == kind] for kind in (True, False))
        return factory([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}])

    expected, everything = alone(by_hand, X), alone(factory, X)
    active = None if idle is None else torch.arange(W) != idle
    x = drive(decaying_matrices(factory), active=lambda k: active)
    kept = torch.arange(W) if active is None else active
    torch.testing.assert_close(x[kept], expected[kept], rtol=0, atol=1e-12)
    assert not torch.allclose(expected, everything, atol=1e-6)
    vector = Layout.of([("b", (LAYOUT.d,))])
    assert torch.equal(drive(decaying_matrices(factory), vector), drive(partial(factory, weight_decay=0.0), vector))


def test_a_driver_with_groups_of_its_own_and_an_optimizer_that_groups_by_shape_are_refused():
    model = torch.nn.Linear(3, 2)
    optimizer = DistributedOptimizer(model, methods.psgd(decaying_matrices(partial(torch.optim.AdamW, lr=0.1))))
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(ValueError, match=r"parameter groups must be \[0, 1\], got options of \[0\]: .*leave"):
        optimizer.step()


def test_what_has_no_weight_decay_is_refused():
    with pytest.raises(ValueError, match="must have a weight_decay for decay=matrices, got Rprop"):
        decaying_matrices(partial(torch.optim.Rprop, lr=0.1))


def test_state_stays_where_it_is_given_and_is_loaded_where_the_rows_are():
    factory = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    local, there = Local(factory), Local(factory)
    local.start(X, LAYOUT)
    local(X.clone(), slope(X, 0))
    saved = saving.save(local, LAYOUT)
    local.state = {name: value.to("meta") if value.ndim > 1 else value for name, value in local.state.items()}
    assert {value.device.type for value in local.state.values() if value.ndim > 1} == {"meta"}
    there.start(X.to("meta"), LAYOUT)
    saving.load(there, LAYOUT, saved)
    assert {value.device.type for value in there.state.values() if value.ndim > 1} == {"meta"}


def test_fused_kernels_are_left_out_without_numbers_only():
    local, there = Local(partial(torch.optim.AdamW, lr=0.1, fused=True)), X.to("meta")
    local.start(there, LAYOUT)
    assert local(there, there.clone()).is_meta
    local.start(X, LAYOUT)
    assert all(optimizer.defaults["fused"] for optimizer in local._optimizers)


@pytest.mark.parametrize("idle", [None, 0, 1])
def test_state_goes_on_bit_by_bit_schedule_included(idle):
    schedule = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[2, 4], gamma=0.1)
    factory = scheduled(partial(torch.optim.Adam, lr=0.05), schedule)
    active = None if idle is None else torch.arange(W) != idle
    whole, x = Local(factory), X.clone()
    whole.start(x, LAYOUT)
    x = whole(x, slope(x, 0), active)
    saved, y = saving.save(whole, LAYOUT), x.clone()
    fresh = Local(factory)
    fresh.start(torch.zeros_like(X), LAYOUT)
    y = fresh(y * 0, y * 0)  # a state of its own, to be replaced
    fresh.start(torch.zeros_like(X), LAYOUT)
    saving.load(fresh, LAYOUT, saved)
    y = x.clone()
    for k in range(1, STEPS):
        x, y = whole(x, slope(x, k), active), fresh(y, slope(y, k), active)
        assert torch.equal(x, y)
        assert whole.lr == fresh.lr


class SlowsDown(torch.optim.SGD):
    """Moves its own rate."""

    def step(self, closure=None):
        super().step(closure)
        self.param_groups[0]["lr"] *= 0.8


def by_hand(parameters):
    """An SGD whose rate somebody else moves after every step."""
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_post_hook(lambda moved, *_: moved.param_groups[0].update(lr=0.08))
    return optimizer


@pytest.mark.parametrize("factory", [partial(SlowsDown, lr=0.1), by_hand], ids=["its own", "somebody's"])
@pytest.mark.parametrize("idle", [False, True])
def test_a_rate_that_something_else_moves_is_refused(factory, idle):
    """The memory of mem_sgd is in units of the rate: at 0.08 instead of 0.1 it would be off by a fifth."""
    active = torch.tensor([True, not idle, True])
    communicator, x = Communicator(workers=W), X.clone()
    strategy = methods.mem_sgd(factory, TopK(k=3))
    strategy.start(x, Layout.flat(LAYOUT.d), communicator)
    communicator.begin(communicator.step, present=active if idle else None)
    x = strategy.step(x, slope(x, 0), communicator)
    communicator.step = 1
    words = r"moved by commeff\.scheduled or options, got \(0\.08\d*,\) .* are \(0\.1,\).*give optimizer=scheduled"
    with pytest.raises(ValueError, match=words):
        strategy.step(x, slope(x, 1), communicator)


@pytest.mark.parametrize("kind", [Local, lambda factory: D2(Local(factory))], ids=["Local", "D2"])
def test_rates_that_are_refused_are_not_taken_over(kind):
    local = kind(partial(torch.optim.SGD, lr=0.1))
    local.start(X.clone(), LAYOUT)
    require_one_rate(local)
    with pytest.raises(ValueError, match="must have one learning rate"):
        local.options = {0: local.options[0], 1: local.options[1] | {"lr": 0.2}}
    assert [options["lr"] for options in local.options.values()] == [0.1, 0.1]


@pytest.mark.parametrize(
    "kind", [partial(QuasiGlobal, beta=0.9, mu=0.9), partial(ControlVariate, period=2)], ids=["h", "c"]
)
def test_a_memory_in_units_of_the_rate_has_one_rate(kind):
    local = kind(Local(partial(torch.optim.SGD, lr=0.1)))
    local.start(X.clone(), LAYOUT)
    with pytest.raises(ValueError, match="must have one learning rate"):
        local.options = {0: local.options[0], 1: local.options[1] | {"lr": 0.2}}


def test_the_last_rate_is_that_of_the_step_taken():
    halved = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    local, x = Local(scheduled(partial(torch.optim.SGD, lr=1.0), halved)), X.clone()
    local.start(x, LAYOUT)
    for k in range(3):
        x = local(x, slope(x, k))
        assert (local.last_lr, local.lr) == (0.5**k, 0.5 ** (k + 1))


def test_a_rate_that_is_scheduled_is_not():
    drive(scheduled(partial(torch.optim.SGD, lr=0.1), partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.8)))


def test_a_long_row_is_stepped_in_parts_to_the_same_numbers(monkeypatch):
    """What an optimizer makes meanwhile is as long as a part; fused kernels make nothing, and take all of it."""
    layout = Layout.of([(name, (2, 2)) for name in "abc"])
    parts, rows = [], []
    for joined in (12, 8):
        monkeypatch.setattr("commeff.core.local.JOINED", joined)
        for fused in (False, True):
            local = Local(partial(torch.optim.AdamW, lr=0.1, fused=fused))
            local.start(X[:, :12], layout)
            parts.append(len(local._runs))
        rows.append(drive(partial(torch.optim.AdamW, lr=0.1), layout, x=X[:, :12]))
    assert parts == [1, 1, 2, 1]
    assert torch.equal(*rows)
