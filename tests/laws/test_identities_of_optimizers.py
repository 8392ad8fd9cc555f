"""Closed forms and identities of the optimizers that are ours, in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from commeff import Layout, Local, laws, methods
from commeff.core import scheduled
from commeff.laws import start
from commeff.optimizers import (
    LAMB,
    LARS,
    Adam8bit,
    AdamSAGE,
    EMAMomentum,
    FedAdam,
    FedYogi,
    Lion,
    MuonWithAdamW,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
    UncorrectedAdam,
)
from commeff.optimizers.adaptive import _read, _rounded, _table
from tests.laws import paths
from tests.laws.paths import SGD, N, drive, mean, slope

D = 12
Factory = Callable[[Any], torch.optim.Optimizer]
DRAW = torch.Generator().manual_seed(0)
START = torch.randn(D, dtype=torch.float64, generator=DRAW)
GRADIENTS = [torch.randn(D, dtype=torch.float64, generator=DRAW) for _ in range(8)]


def steps(factory: Factory, gradients: list[Tensor] = GRADIENTS, start: Tensor = START) -> Tensor:
    """(steps, d): the parameters after each step, with the given gradients."""
    x = torch.nn.Parameter(start.clone())
    optimizer, found = factory([x]), []
    for gradient in gradients:
        x.grad = gradient.clone()
        optimizer.step()
        found.append(x.detach().clone())
    return torch.stack(found)


def close(left: Tensor, right: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=tolerance)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_lectures_momentum_is_torchs_at_a_smaller_rate(decay: float) -> None:
    """torch.optim.SGD(lr, momentum=b, dampening=b) is not the same: its first step is not damped."""
    ours = steps(partial(EMAMomentum, lr=0.2, momentum=0.9, weight_decay=decay))
    close(ours, steps(partial(torch.optim.SGD, lr=0.2 * (1 - 0.9), momentum=0.9, weight_decay=decay)))
    damped = steps(partial(torch.optim.SGD, lr=0.2, momentum=0.9, dampening=0.9, weight_decay=decay))
    close((START - damped[0]) * (1 - 0.9), START - ours[0])
    assert (damped - ours).abs().max() > 0.1


def test_the_lectures_momentum_in_a_method_with_a_schedule() -> None:
    """Rates that a schedule moves, and memories in units of the rate, see the same ratio."""
    halving = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
    ours = methods.psgd(scheduled(partial(EMAMomentum, lr=0.2, momentum=0.9), halving))
    theirs = methods.psgd(scheduled(partial(torch.optim.SGD, lr=0.2 * (1 - 0.9), momentum=0.9), halving))
    close(laws.run(ours)[0], laws.run(theirs)[0])


def test_adam_without_correction_by_hand() -> None:
    m = v = torch.zeros(D, dtype=torch.float64)
    x, expected = START, []
    for g in GRADIENTS:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        x = x - 0.05 * (m / (v.sqrt() + 1e-8) + 0.1 * x)
        expected.append(x)
    found = steps(partial(UncorrectedAdam, lr=0.05, betas=(0.9, 0.99), weight_decay=0.1))
    close(found, torch.stack(expected))
    first = START - steps(partial(UncorrectedAdam, lr=0.05, eps=0.0))[0]
    corrected = START - steps(partial(torch.optim.Adam, lr=0.05, eps=0.0))[0]
    close(first / corrected, torch.full_like(START, 0.1 / 0.001**0.5), 1e-9)


@pytest.mark.parametrize("initial", [None, 0.0, 0.5])
@pytest.mark.parametrize("rule", [FedAdam, FedYogi])
def test_federated_servers_by_hand(rule: type, initial: float | None) -> None:
    """As arXiv 2003.00295, Algorithm 2, from v = tau^2; as public implementations, which begin with v = 0."""
    tau = 0.2
    m, v, x = torch.zeros_like(START), torch.full_like(START, tau**2 if initial is None else initial), START
    for g in GRADIENTS:
        m = 0.9 * m + (1 - 0.9) * g
        v = v - 0.01 * g**2 * torch.sign(v - g**2) if rule is FedYogi else 0.99 * v + 0.01 * g**2
        x = x + 0.05 * -m / (v.sqrt() + tau)
    close(steps(partial(rule, lr=0.05, eps=tau, initial=initial))[-1], x)
    server = partial(rule, lr=0.05, eps=tau, initial=initial)
    close(drive(methods.fedopt(SGD, period=3, server=server))[0], _served(rule, tau, initial))


def _served(rule: type, tau: float, initial: float | None) -> Tensor:
    """Local SGD of 3 steps, after which the server takes the mean of what workers moved."""
    a = x = start(N, paths.D)
    path, m, v = [x], torch.zeros_like(a), torch.full_like(a, tau**2 if initial is None else initial)
    for k in range(paths.STEPS):
        x = x - 0.1 * slope(x, k)
        if k % 3 == 2:
            moved = mean(x) - a
            m = 0.9 * m + 0.1 * moved
            v = v - 0.01 * moved**2 * (v - moved**2).sign() if rule is FedYogi else 0.99 * v + 0.01 * moved**2
            a = x = a + 0.05 * m / (v.sqrt() + tau)
        path.append(x)
    return torch.stack(path)


def test_sage_is_adam_times_what_has_not_settled() -> None:
    """The authors' AdamW-SAGE corrects s for its start too. Nothing is unsettled at first, nor ever with b3 = 0."""
    assert torch.equal(steps(partial(AdamSAGE, lr=0.05))[0], START)
    assert torch.equal(steps(partial(AdamSAGE, lr=0.05, betas=(0.9, 0.999, 0.0)))[-1], START)
    m = v = s = torch.zeros(D, dtype=torch.float64)
    x = START
    for t, g in enumerate(GRADIENTS, 1):
        m, v, sensitivity = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, (x * g).abs()
        s = 0.75 * s + 0.25 * sensitivity
        settled = s / (1 - 0.75**t)
        step = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        x = x - 0.05 * step * (sensitivity - settled).abs() / (settled + 1e-16)
    close(steps(partial(AdamSAGE, lr=0.05))[-1], x)
    assert (x - START).abs().min() > 0.01


def test_lion_by_hand_and_without_memory() -> None:
    m, x = torch.zeros(D, dtype=torch.float64), START
    for g in GRADIENTS:
        x = x - 0.05 * ((0.9 * m + 0.1 * g).sign() + 0.1 * x)
        m = 0.99 * m + 0.01 * g
    close(steps(partial(Lion, lr=0.05, weight_decay=0.1))[-1], x)
    signs = START - 0.05 * torch.stack(GRADIENTS).sign().cumsum(0)
    close(steps(partial(Lion, lr=0.05, betas=(0.0, 0.0))), signs)


@pytest.mark.parametrize(
    "factory", [partial(LARS, lr=2.0, trust=0.05), partial(LAMB, lr=0.1, eps=0.0)], ids=["LARS", "LAMB"]
)
def test_trust_ratios_do_not_feel_the_scale(factory: Factory) -> None:
    """Gradients c times as large change nothing; parameters c times as large move c times as far; the first step is lr
    trust |x| long."""
    plain = steps(factory)
    close(steps(factory, [100 * g for g in GRADIENTS]), plain)
    close(steps(factory, start=100 * START), 100 * plain, 1e-10)
    assert torch.linalg.vector_norm(plain[0] - START).item() == pytest.approx(0.1 * START.norm().item(), abs=1e-12)
    nothing = steps(factory, start=torch.zeros_like(START))[0]  # without a length of its own, the plain step
    assert nothing.abs().max() > 0


def test_lamb_is_adam_where_the_ratio_is_one() -> None:
    """With x as long as Adam's step, 1e-12; at zero, the ratio is 1 by definition."""
    zero = torch.zeros_like(START)
    close(
        steps(partial(LAMB, lr=0.05, eps=1e-8), start=zero)[0], steps(partial(torch.optim.Adam, lr=0.05), start=zero)[0]
    )


def test_lars_of_one_coordinate_moves_by_its_size() -> None:
    found = steps(partial(LARS, lr=1.0, momentum=0.0, trust=0.5), [torch.tensor([3.0])] * 3, torch.tensor([8.0]))
    assert found.flatten().tolist() == [4.0, 2.0, 1.0]


def test_lars_counts_decay_as_a_gradient() -> None:
    """3 - 0.5 * 3 / (1 + 2 * 3) * (1 + 2 * 3): in the ratio and in the step."""
    factory = partial(LARS, lr=1.0, momentum=0.0, trust=0.5, weight_decay=2.0)
    x, gradient = torch.tensor([3.0, 4.0]), torch.tensor([0.6, 0.8])
    found = steps(factory, [gradient], x)
    close(found[0], x - 0.5 * 5 / (1 + 2 * 5) * (gradient + 2 * x))


def test_schedule_free_takes_gradients_at_y_and_gives_the_average_x() -> None:
    """z is SGD, x its plain average for a constant rate, y = (1 - b) z + b x."""
    y = torch.nn.Parameter(START.clone())
    optimizer, z, x = ScheduleFreeSGD([y], lr=0.3, momentum=0.8), START, START
    for t, g in enumerate(GRADIENTS, 1):
        y.grad = g.clone()
        optimizer.step()
        z = z - 0.3 * g
        x = x + (z - x) / t
        close(y.detach(), 0.2 * z + 0.8 * x)
        close(optimizer.averaged(y.detach(), optimizer.state[y], optimizer.param_groups[0]), x)


def test_schedule_free_adamw_by_hand() -> None:
    y = torch.nn.Parameter(START.clone())
    optimizer = ScheduleFreeAdamW([y], lr=0.3, betas=(0.9, 0.99), weight_decay=0.1)
    v, z, x, total = torch.zeros_like(START), START, START, 0.0
    for t, g in enumerate(GRADIENTS, 1):
        lr = 0.3 * min(1.0, t / 3)  # a warm-up: steps weigh lr^2
        optimizer.param_groups[0]["lr"] = lr
        before = y.detach().clone()
        y.grad = g.clone()
        optimizer.step()
        v = 0.99 * v + 0.01 * g * g
        z = z - lr * (g / ((v / (1 - 0.99**t)).sqrt() + 1e-8) + 0.1 * before)
        total += lr**2
        x = x + lr**2 / total * (z - x)
        close(y.detach(), 0.1 * z + 0.9 * x)


def test_schedule_free_on_a_quadratic_ends_at_its_average() -> None:
    """What is evaluated is nearer to the optimum than where noisy gradients are taken."""
    local, y = Local(partial(ScheduleFreeSGD, lr=0.5)), torch.zeros(1, 2000, dtype=torch.float64)
    local.start(y, Layout.flat(2000))
    for _ in range(300):
        y = local(y, y - 1 + torch.randn(y.shape, dtype=y.dtype, generator=DRAW))
    assert (local.evaluated(y) - 1).square().mean() < 0.5 * (y - 1).square().mean()


def test_8_bit_adam_is_adam_where_rounding_is_exact() -> None:
    """A block of equal averages is read back as it was; below zero, where the table ends at -0.993, it is not."""
    gradients = [torch.full_like(START, c) for c in (1.0, 0.3, -0.2, 0.7, 0.1)]
    close(steps(partial(Adam8bit, lr=0.05, block=5), gradients), steps(partial(torch.optim.Adam, lr=0.05), gradients))


def test_8_bits_hold_a_number_to_a_few_percent() -> None:
    """The gaps of the table: 1/64 of the largest magnitude at the most for signs, 1/128 without; tiny values die."""
    values = torch.randn(1000, dtype=torch.float64, generator=DRAW)
    for table, vector in ((_table(True), values), (_table(False), values.square())):
        codes, scales = _rounded(vector, table, 256)
        read = _read(codes, scales, table, 256, torch.float64)
        largest = scales.repeat_interleave(256)[:1000]
        assert ((read - vector).abs() <= (table[1:] - table[:-1]).max() / 2 * largest + 1e-15).all()
        again, _ = _rounded(read, table, 256)
        assert torch.equal(codes, again)
        assert (codes.dtype, scales.shape) == (torch.uint8, (4,))


def test_a_small_square_beside_a_large_one_does_not_make_a_step_explode() -> None:
    """Rounded to zero it would leave m / eps: a step of a million where Adam's is below three."""
    gradients = [torch.tensor([1.0, 1e-4]), *[torch.tensor([1.0, 0.0])] * 5]
    found = steps(partial(Adam8bit, lr=1.0), gradients, torch.zeros(2))
    assert found[:, 1].abs().max() < 5


def test_muon_is_torchs_muon_on_matrices_and_adamw_on_others() -> None:
    matrix = torch.randn(4, 3, dtype=torch.float64, generator=DRAW)
    gradients = [torch.randn(4, 3, dtype=torch.float64, generator=DRAW) for _ in range(4)]
    muon = partial(torch.optim.Muon, lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    close(steps(partial(MuonWithAdamW, lr=0.1), gradients, matrix), steps(muon, gradients, matrix))
    adamw = partial(torch.optim.AdamW, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    close(steps(partial(MuonWithAdamW, lr=0.1)), steps(adamw))
    options = {"momentum": 0.5, "betas": (0.5, 0.5), "weight_decay": 0.3, "lr": 0.2}
    for origin, slopes in ((matrix, gradients), (START, GRADIENTS)):
        own = steps(lambda parameters: MuonWithAdamW([{"params": parameters, **options}]), slopes, origin)
        close(own, steps(partial(MuonWithAdamW, **options), slopes, origin))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda p: EMAMomentum(p, momentum=1.0), r"momentum must lie in \[0, 1\), got 1.0"),
        (lambda p: Lion(p, betas=(0.9, 1.0)), r"betas must lie in \[0, 1\), got 1.0"),
        (lambda p: LAMB(p, eps=-1.0), "eps must be at least 0, got -1.0"),
        (lambda p: LARS(p, trust=-1.0), "trust must be at least 0, got -1.0"),
        (lambda p: Adam8bit(p, block=0), "block must be at least 1, got 0"),
        (lambda p: ScheduleFreeSGD(p, momentum=0.0), r"momentum must lie in \(0, 1\), got 0.0"),
        (lambda p: ScheduleFreeAdamW(p, betas=(1.0, 0.9)), r"betas must lie in \(0, 1\), got 1.0"),
        (lambda p: MuonWithAdamW(p).step(lambda: 0.0), "MuonWithAdamW takes one gradient a step, got a closure"),
        (lambda p: Lion(p).step(lambda: 0.0), "Lion takes one gradient a step, got a closure"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[Any], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make([torch.nn.Parameter(START.clone())])


def test_a_schedule_free_outer_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="outer must be evaluated where it steps, got ScheduleFreeSGD"):
        methods.diloco(partial(torch.optim.SGD, lr=0.1), period=2, outer=partial(ScheduleFreeSGD, lr=0.7))
