"""What `diloco` and `streaming_diloco` add to their papers' loop, each against its equation in float64: a start in
step, an average that arrives late and is mixed in, numbers of 8 and 4 bits, fragments by name, an anchor on the host.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy, laws, methods, profile
from commeff.core import Keep
from commeff.laws import MethodCase
from commeff.transforms import After, Average, Doubling, Every, Exchange, MixedIn, OnHost, Outer
from commeff.transforms.on_host import HOST
from tests.laws.paths import HEAVY, SGD, STEPS, D, N, drive, equal, mean, slope

LAYERS = Layout.of([("embed.weight", (4,)), ("blocks.0.w", (2,)), ("blocks.1.w", (3,)), ("norm", (1,))])
NAMES = [["embed", "blocks.1"], ["blocks.0", "norm"]]  # neither is a run of neighbours
OUTER = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
VARIANTS = {
    "begun late": partial(methods.diloco, SGD, period=2, begin=3),
    "delayed": partial(methods.diloco, HEAVY, period=3, exchange=Exchange(delay=2, mixing=0.5)),
    "begun late, delayed, 8 bits": partial(methods.diloco, SGD, period=3, begin=2, exchange=Exchange(delay=1, bits=8)),
    "mixed in at once, 4 bits": partial(methods.diloco, SGD, period=2, exchange=Exchange(mixing=0.25, bits=4)),
    "streaming": partial(
        methods.streaming_diloco,
        SGD,
        period=3,
        fragments=[["[!v]*"], ["vector"]],
        begin=2,
        exchange=Exchange(delay=2, mixing=0.5),
    ),
    "streaming, ahead": partial(
        methods.streaming_diloco, SGD, period=4, fragments=2, begin=1, exchange=Exchange(delay=1, mixing=0.5, ahead=1)
    ),
    "streaming, 4 bits, on the host": partial(
        methods.streaming_diloco, SGD, period=2, fragments=2, host=True, exchange=Exchange(bits=4)
    ),
}


def nesterov(a, moved, u):
    u = 0.9 * u + moved
    return a - 0.7 * (moved + 0.9 * u), u


def followed(strategy, begin=0, period=1, delay=0, mixing=0.0, ahead=0, columns=slice(None), **options):
    """The largest distance of a run from the equations, with the plain SGD of rate 0.1."""
    path = drive(strategy, **options)[0][..., columns]
    slopes = [slope(x, k)[..., columns] for k, x in enumerate(drive(strategy, **options)[0])]
    a, u, travelling, far = path[begin], torch.zeros_like(path[0]), {}, 0.0
    for k in range(STEPS):
        g = mean(slopes[k]) if k < begin else slopes[k]
        x = path[k] - 0.1 * g
        if k >= begin and (k + 1 + ahead - begin) % period == 0:
            travelling[k + delay] = x
        if k in travelling:
            a, u = nesterov(a, mean(a - travelling.pop(k)), u)
            x = mixing * x + (1 - mixing) * a
        far = max(far, float((path[k + 1] - x).abs().max()))
    return far


@pytest.mark.parametrize("begin", [1, 4, 5])
def test_before_it_begins_it_is_parallel_sgd_and_the_anchor_is_taken_then(begin: int) -> None:
    assert followed(methods.diloco(SGD, 4, OUTER, begin=begin), begin, period=4) <= 1e-12
    path, parallel = drive(methods.diloco(HEAVY, 4, begin=begin))[0], drive(methods.psgd(HEAVY))[0]
    assert (path[: begin + 1] - parallel[: begin + 1]).abs().max() <= 1e-12
    kept = Strategy(
        Local(SGD),
        After(begin, Keep(), Average()),
        After(begin, Every(4, Outer(Local(OUTER), Average()), offset=-begin), Keep()),
    )
    assert followed(kept, begin, period=4) > 1e-2, "with the first anchor it would jump back"


@pytest.mark.parametrize(("delay", "mixing"), [(0, 0.5), (1, 0.0), (3, 0.5), (4, 0.9)])
@pytest.mark.parametrize("begin", [0, 3])
def test_an_average_arrives_late_and_is_mixed_in(delay: int, mixing: float, begin: int) -> None:
    strategy = methods.diloco(SGD, 5, OUTER, begin=begin, exchange=Exchange(delay=delay, mixing=mixing))
    assert followed(strategy, begin, 5, delay, mixing) <= 1e-12
    assert followed(strategy, begin, 5, delay, mixing + 0.05) > 1e-3
    if delay:
        assert followed(strategy, begin, 5, delay - 1, mixing) > 1e-3


@pytest.mark.parametrize("begin", [0, 3])
def test_what_is_sent_ahead_arrives_where_it_would_be_due(begin: int) -> None:
    late = methods.diloco(SGD, 5, OUTER, begin=begin, exchange=Exchange(delay=2, mixing=0.5, ahead=2))
    assert followed(late, begin, 5, 2, 0.5, ahead=2) <= 1e-12
    assert followed(late, begin, 5, 2, 0.5) > 1e-3
    late = methods.streaming_diloco(SGD, 6, NAMES, OUTER, begin=begin, exchange=Exchange(delay=1, mixing=0.3, ahead=1))
    assert followed(late, begin, 6, 1, 0.3, 3 + 1, [4, 5, 9], layout=LAYERS) <= 1e-12


def torchft(delay: int, alpha: float, steps: int, period: int, gradient: float, inner: float, outer: float):
    """The parameters of two layers after each step, and those that are shared, by torchft's rule of DiLoCo.

    Layers take turns of period / 2 steps. `delay` steps before the end of its turn a layer's move since the shared
    parameters is averaged; at the end the shared ones take the outer step, and the layer's become (1 - alpha) of them
    and alpha of its own. Replicas have equal gradients, so that the mean is each one's own.
    """
    own, shared, moved = [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]
    path, known, turn = [list(own)], [list(shared)], period // 2
    for step in range(1, steps + 1):
        own = [x - inner * gradient for x in own]
        layer = (step - 1) // turn % 2
        if (step - 1) % turn + 1 == turn - delay:
            moved[layer] = shared[layer] - own[layer]
        if step % turn == 0:
            shared[layer] -= outer * moved[layer]
            own[layer] = (1 - alpha) * shared[layer] + alpha * own[layer]
        path.append(list(own))
        known.append(list(shared))
    return torch.tensor(path, dtype=torch.float64), torch.tensor(known, dtype=torch.float64)


# Of pytorch/torchft, test_fixtures/torchft.diloco_regression_test.DiLoCoMockedUpdateTest.test_diloco_mocked_updates_*:
# the parameters of both layers after 15 steps, and what is shared of them after 12.
FIXTURES = {
    (0, 0.0): ([-59.0, -53.0], [-35.0, -47.0]),
    (0, 0.5): ([-40.25, -38.0], [-29.0, -35.0]),
    (0, 1.0): ([-29.0, -29.0], [-23.0, -23.0]),
    (1, 0.0): ([-47.0, -45.0], [-27.0, -39.0]),
    (1, 0.5): ([-35.75, -35.0], [-25.0, -31.0]),
    (1, 1.0): ([-29.0, -29.0], [-23.0, -23.0]),
}


@pytest.mark.parametrize(("delay", "alpha"), FIXTURES)
def test_torchfts_published_runs(delay: int, alpha: float) -> None:
    """Two replicas, two layers of one number, gradients of 2, inner rate 1, outer rate 2, period 6."""
    expected, known = torchft(delay, alpha, 15, 6, 2.0, 1.0, 2.0)
    assert (expected[15].tolist(), known[12].tolist()) == FIXTURES[delay, alpha]
    inner, outer = (partial(torch.optim.SGD, lr=lr) for lr in (1.0, 2.0))
    turns = [["layers.1"], ["layers.0"]]  # in theirs the first layer has the first turn, in ours the last
    strategy = methods.streaming_diloco(
        inner, 6, turns, outer, exchange=Exchange(delay=delay, mixing=alpha, ahead=delay)
    )
    communicator, x = Communicator(workers=2), torch.ones(2, 2, dtype=torch.float64)
    strategy.start(x, Layout.of([("layers.0.weight", (1,)), ("layers.1.weight", (1,))]), communicator)
    for communicator.step in range(15):
        x = strategy.step(x, torch.full_like(x, 2.0), communicator)
        assert (x - expected[communicator.step + 1]).abs().max() <= 1e-12


@pytest.mark.parametrize(("bits", "levels", "block"), [(8, 127, 256), (4, 7, 64)])
def test_numbers_are_rounded_without_bias_and_billed_by_their_bits(bits: int, levels: int, block: int) -> None:
    plain = partial(torch.optim.SGD, lr=1.0)
    strategy, d = methods.diloco(SGD, 2, plain, exchange=Exchange(bits=bits)), 1000
    communicator, x = Communicator(workers=N, seed=5), torch.zeros(N, d, dtype=torch.float64)
    strategy.start(x, Layout.flat(d), communicator)
    errors, centres = [], torch.sin(torch.arange(N * d, dtype=torch.float64)).view(N, d)
    for communicator.step in range(40):
        anchor, g = strategy.parameters.inner.anchor.clone(), x - centres
        moved = x - 0.1 * g
        x = strategy.step(x, g, communicator)
        if communicator.step % 2 == 0:
            assert (x - moved).abs().max() <= 1e-12
            continue
        scale = torch.stack([v.abs().amax(-1) for v in (anchor - moved).split(block, -1)], -1).amax()
        error = (x - mean(moved)).abs()
        assert error.max() <= scale / levels + 1e-12
        assert error.max() > 1e-6
        errors.append((x - mean(moved))[0] * levels / scale)
    assert torch.stack(errors).mean().abs() < 4 / (len(errors) * d * N) ** 0.5
    rounds, blocks = 20, -(-d // block)
    assert communicator.ledger.payload_bytes == rounds * (d * bits // 8 + 8 * blocks)  # scales as wide as the numbers


def test_fragments_are_named_and_take_turns_wherever_their_columns_lie() -> None:
    strategy = methods.streaming_diloco(SGD, 6, NAMES, OUTER)
    path, _ = drive(strategy, layout=LAYERS)
    columns = [[0, 1, 2, 3, 6, 7, 8], [4, 5, 9]]
    for k in range(STEPS):
        spread = (path[k + 1] - path[k + 1].mean(0)).abs().amax(0)
        for fragment, own in enumerate(columns):
            due = (k + 1 + 3 * fragment) % 6 == 0
            assert (spread[own] <= 1e-12).all() == due
    for fragment, own in enumerate(columns):
        late = methods.streaming_diloco(SGD, 6, NAMES, OUTER, begin=2, exchange=Exchange(delay=2, mixing=0.3))
        assert followed(late, 2, 6, 2, 0.3, 3 * fragment, own, layout=LAYERS) <= 1e-12
    equal(methods.streaming_diloco(SGD, 6, [["*"]], OUTER), methods.diloco(SGD, 6, OUTER), layout=LAYERS)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_law(name: str, law) -> None:
    law(MethodCase(name, lambda n: VARIANTS[name]()))


def test_what_is_not_asked_for_changes_nothing() -> None:
    for method in (methods.diloco, methods.streaming_diloco):
        same = method(SGD, 4, begin=0, host=False, exchange=Exchange(delay=0, mixing=0.0, bits=None, ahead=0))
        equal(same, method(SGD, 4), tolerance=0)
        twin = method(SGD, 4)
        drive(twin)
        assert str(same.state_dict()) == str(twin.state_dict())  # names, and values too
        assert not isinstance(same.parameters, MixedIn)
        assert isinstance(same.gradients, Keep)


def test_the_profile_tells_when_what_is_sent_is_waited_for_and_what_lies_on_the_host() -> None:
    found = profile(
        methods.diloco(SGD, period=10, begin=4, exchange=Exchange(delay=3, bits=8)), Layout.flat(10**9), workers=8
    )
    assert found.operations(2)[0].payload_bytes == 4 * 10**9
    assert not found.operations(12)
    (sent,) = found.operations(13)
    assert (sent.waited, sent.payload_bytes) == (16, 10**9 + 4 * -(-(10**9) // 256))
    here, there = (profile(methods.diloco(SGD, host=host), Layout.flat(1000), workers=4) for host in (False, True))
    assert sum(here.memory_bytes.values()) == sum(there.memory_bytes.values()) == 8000  # the anchor and its momentum
    assert (here.host_bytes, there.host_bytes) == (0, 8000)


def test_the_memory_is_moved_there_and_back_around_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = []
    move = OnHost._move

    def noted(self, device):
        self._on_accelerator = True  # as on a GPU
        moves.append(device)
        move(self, device)

    monkeypatch.setattr(OnHost, "_move", noted)
    equal(
        methods.diloco(SGD, 5, OUTER, host=True, exchange=Exchange(delay=2)),
        methods.diloco(SGD, 5, OUTER, exchange=Exchange(delay=2)),
        tolerance=0,
    )
    assert moves[0] == HOST
    assert len(moves) == 1 + 2 * (STEPS // 5) - 1  # the last one has not arrived


@pytest.mark.gpu
def test_on_a_gpu_the_anchor_is_on_the_host_between_rounds() -> None:
    strategy = methods.diloco(SGD, 3, OUTER, host=True)
    there = laws.run(strategy, device="cuda")[0]
    outer = strategy.parameters.inner.inner
    for _ in range(2):
        assert outer.anchor.device == HOST
        assert all(value.device == HOST for value in outer.outer.state.values())
        strategy.load_state_dict(strategy.state_dict())
    assert (there.cpu() - laws.run(methods.diloco(SGD, 3, OUTER))[0]).abs().max() <= 1e-10


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: methods.diloco(SGD, begin=-1), "begin must be a whole number of at least 0"),
        (lambda: methods.diloco(SGD, 4, exchange=Exchange(delay=4)), "delay must be a whole number from 0 to 3, got 4"),
        (lambda: methods.diloco(SGD, exchange=Exchange(delay=1, mixing=1.1)), r"mixing must lie in \[0, 1\], got 1.1"),
        (lambda: methods.diloco(SGD, 4, exchange=Exchange(ahead=4)), "ahead must be a whole number from 0 to 3, got 4"),
        (
            lambda: methods.streaming_diloco(SGD, 4, exchange=Exchange(ahead=-1)),
            "ahead must be a whole number from 0 to 3, got -1",
        ),
        (lambda: methods.diloco(SGD, exchange=Exchange(bits=2)), "bits must be 8 or 4, or None, got 2"),
        (lambda: methods.diloco(SGD, "3"), "period must be a whole number of at least 1, got '3'"),
        (
            lambda: methods.diloco(SGD, exchange={"delay": 1}),
            "exchange must be made by Exchange, got {'delay': 1}",
        ),
        (lambda: methods.zero_one_adam(SGD, updates=Doubling()), "updates must be made by Thinning, got Doubling"),
        (lambda: methods.zero_one_adam(SGD, meetings=None), "meetings must be made by Doubling, got None"),
        (lambda: methods.streaming_diloco(SGD, fragments=["a", "b"]), "lists of module names, got"),
        (lambda: methods.streaming_diloco(SGD, fragments=[]), "at least 1, got 0"),
        (
            lambda: drive(methods.streaming_diloco(SGD, fragments=[["embed"], ["blocks.*"]]), layout=LAYERS),
            "'norm' in none",
        ),
        (
            lambda: drive(methods.streaming_diloco(SGD, fragments=[["*"], ["norm"]]), layout=LAYERS),
            "'norm' in 2 of them",
        ),
        (
            lambda: drive(methods.streaming_diloco(SGD, fragments=[["*", "head"]]), layout=LAYERS),
            "got 'head': no tensor",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(build, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason) as refusal:
        build()
    assert "\n" not in str(refusal.value)
    assert LAYERS.d == D
