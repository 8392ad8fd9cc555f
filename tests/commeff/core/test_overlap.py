"""What travels while something else is done: buckets, delays, nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from commeff import Communicator, DistributedOptimizer, Local, Strategy, Transform, laws, methods, topologies
from commeff.communicator.wire.shared_memory import SWITCH
from commeff.communicator.wire.transport import SMALL
from commeff.compressors import Layout, Natural, ScaledSign, TopK
from commeff.core import Chain, Keep, overlap
from commeff.core.components import Stages
from commeff.core.properties import is_rowwise
from commeff.replicas.arrivals import Arrivals
from commeff.sharding.precision import step_of_finite
from commeff.transforms import (
    EF21,
    Ahead,
    Average,
    BatchedPowerSGD,
    Blocks,
    Buckets,
    Choco,
    Delayed,
    Every,
    Exchange,
    Gossip,
    Outer,
    PowerSGD,
    Tracking,
    bucketed,
)
from tests.laws.processes import on_processes

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
PLAIN = partial(torch.optim.SGD, lr=0.05)


def trajectory(strategy: Strategy) -> torch.Tensor:
    return laws.run(strategy)[0]


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_delayed_averaging_is_its_recursion(delay: int) -> None:
    found = trajectory(Strategy(Local(PLAIN), parameters=Delayed(Average(), delay)))
    x, moved = laws.start(), []
    for step in range(laws.STEPS):
        x = x - 0.05 * laws.slope(x, step)
        moved.append(x)
        if step >= delay:
            old = moved[step - delay]
            x = x + old.mean(0) - old
        assert (found[step] - x).abs().max() <= 1e-12


def test_what_arrives_late_is_finished_with_the_clock_of_its_own_step() -> None:
    """Two gossips in a row over a graph that changes: the second begins when the delay is over."""
    graph, delay = topologies.one_peer_exponential(4), 1
    found = trajectory(Strategy(Local(PLAIN), parameters=Delayed(Chain(Gossip(graph), Gossip(graph)), delay)))
    x, moved = laws.start(), []
    for step in range(laws.STEPS):
        x = x - 0.05 * laws.slope(x, step)
        moved.append(x)
        if step >= delay:
            once, old = torch.from_numpy(graph.at(step - delay).dense()), moved[step - delay]
            x = x + once @ (once @ old) - old
        assert (found[step] - x).abs().max() <= 1e-12


def test_without_a_delay_dasgd_is_local_sgd() -> None:
    delayed, plain = methods.dasgd(SGD, period=3, delay=0), methods.local_sgd(SGD, period=3)
    assert torch.equal(trajectory(delayed), trajectory(plain))
    later = trajectory(methods.dasgd(SGD, period=3, delay=1))
    assert torch.equal(later[:3], trajectory(Strategy(Local(SGD)))[:3])
    assert not torch.equal(later[3], later[2])


def test_a_state_saved_under_way_does_not_disturb_the_run() -> None:
    undisturbed = trajectory(methods.dasgd(SGD, period=2, delay=1))
    strategy, communicator, x = methods.dasgd(SGD, period=2, delay=1), Communicator(workers=4, seed=3), laws.start()
    strategy.start(x, laws.LAYOUT, communicator)
    for communicator.step in range(laws.STEPS):
        x = strategy.step(x, laws.slope(x, communicator.step), communicator)
        saved = [rows for name, rows in strategy.state_dict().items() if name.startswith("parameters/corrections/")]
        assert sum(rows[0].numel() for rows in saved) == laws.LAYOUT.d
        assert all(rows.shape[:2] == (4, 1) for rows in saved)
        assert torch.equal(x, undisturbed[communicator.step])


@pytest.mark.parametrize("name", ["awc", "dasgd", "streaming_diloco"])
def test_a_state_loaded_while_a_message_travels_is_gone_on_with(name: str) -> None:
    """Nothing of what was on its way is used."""
    build = {
        "awc": lambda: methods.dsgd(SGD, topologies.ring(4), order="awc"),
        "dasgd": lambda: methods.dasgd(SGD, period=2, delay=1),
        "streaming_diloco": lambda: methods.streaming_diloco(SGD, period=4, fragments=2, exchange=Exchange(delay=1)),
    }[name]
    undisturbed = trajectory(build())
    strategy, communicator, x = build(), world(), laws.start()
    strategy.start(x, laws.LAYOUT, communicator)
    saved: Any = None
    for communicator.step in [0, 1, 2, 3, 4, 2, 3, 4, 5]:
        if communicator.step == 2 and saved is None:
            saved = x.clone(), strategy.state_dict()
        elif communicator.step == 2:
            x = saved[0]
            strategy.load_state_dict(saved[1])
        x = strategy.step(x, laws.slope(x, communicator.step), communicator)
        assert torch.equal(x, undisturbed[communicator.step])
        if communicator.step == 4:
            strategy.post(x, communicator)


RING = topologies.ring(4)
INNER = {
    "choco": lambda: Choco(RING, ScaledSign(), 0.3),
    "power_sgd": lambda: PowerSGD(1),
    "batched power_sgd": lambda: BatchedPowerSGD(1),
    "outer": lambda: Every(2, Outer(Local(PLAIN), Average())),
    "tracking": lambda: Tracking(Gossip(RING)),
    "ef21": lambda: EF21(ScaledSign()),
    "buckets": lambda: Buckets(Average(), 50e-6),
}


@pytest.mark.parametrize("delay", [1, 2, 3])
@pytest.mark.parametrize("name", INNER)
def test_saving_the_state_of_any_delay_changes_nothing(name: str, delay: int) -> None:
    def found(save: bool) -> torch.Tensor:
        strategy, communicator, x = (
            Strategy(Local(PLAIN), parameters=Delayed(INNER[name](), delay)),
            world(),
            laws.start(),
        )
        strategy.start(x, laws.LAYOUT, communicator)
        for communicator.step in range(laws.STEPS):
            x = strategy.step(x, laws.slope(x, communicator.step), communicator)
            if save:
                strategy.state_dict()
        return x

    assert torch.equal(found(save=True), found(save=False))


def world() -> Communicator:
    return Communicator(workers=4, seed=3)


@pytest.mark.parametrize("delay", [1, 2])
def test_a_delayed_choco_preserves_the_mean(delay: int) -> None:
    strategy, communicator = Strategy(Local(PLAIN), parameters=Delayed(INNER["choco"](), delay)), world()
    x = laws.start() + torch.arange(4.0, dtype=torch.float64)[:, None]
    mean = x.mean(0)
    strategy.start(x, laws.LAYOUT, communicator)
    for communicator.step in range(8):
        x = strategy.step(x, torch.zeros_like(x), communicator)
        assert (x.mean(0) - mean).abs().max() <= 1e-12


@pytest.mark.parametrize("outer", [topologies.ring(3), topologies.exponential(2), topologies.one_peer_exponential(2)])
@pytest.mark.parametrize("q", [1, 2, 4])
def test_nodes_that_share_their_gossip_mix_as_the_product_graph(outer: topologies.Topology, q: int) -> None:
    n = outer.n * q
    product = topologies.hierarchical(outer.n, topologies.complete(q), outer)
    shared, ledger = laws.run(methods.hierarchical_dsgd(SGD, outer), n=n)
    whole, _ = laws.run(Strategy(Local(SGD), parameters=Gossip(product)), n=n)
    assert (shared - whole).abs().max() <= 1e-12
    bytes_a_step, degree = 8 * laws.LAYOUT.d, outer.at(0).out_degrees.mean()
    sent = laws.STEPS * bytes_a_step * (2 * (q - 1) + degree) / q
    assert ledger.ledger.wire_bytes == pytest.approx(sent, rel=1e-12)


def test_nodes_that_do_not_divide_the_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of the 3 nodes of the topology, got 4"):
        trajectory(methods.hierarchical_dsgd(SGD, topologies.ring(3)))


def spans(sizes: list[int], megabytes: float, inner: Average | None = None) -> list[int]:
    layout = Layout.of([(f"t{i}", (size,)) for i, size in enumerate(sizes)])
    buckets = Buckets(inner or Average(), megabytes)
    buckets.start(torch.zeros(1, layout.d), layout, Communicator(workers=1))
    return [b - a for a, b in buckets._spans]


def test_buckets_hold_whole_tensors_and_the_first_to_go_is_small() -> None:
    million = 1_000_000  # numbers, of 4 bytes
    assert spans([million] * 5, 25) == [5 * million], "what fits into one bucket stays together"
    assert spans([million] * 5, 8) == [2 * million, 2 * million, million]
    assert spans([million] * 5 + [1000] * 10, 8) == [million, 2 * million, 2 * million, 10_000]
    assert spans([5 * million, 1000], 8) == [5 * million, 1000], "a large tensor is not cut"
    assert spans([million] * 5, 8, Average(TopK(k=3))) == [5 * million], "top-k needs the whole vector"
    with pytest.raises(ValueError, match=r"bucket_mb must lie in \(0, inf\], got -1"):
        Buckets(Average(), -1)


@pytest.mark.parametrize("build", [lambda: methods.power_sgd(SGD, 1), lambda: methods.ef21(SGD, Natural())])
def test_a_saved_state_does_not_know_of_buckets(build) -> None:
    plain, parted = build(), bucketed(build(), 50e-6)
    layout = Layout.of([("a", (3, 4)), ("b", (5,)), ("c", (4, 3))])
    for strategy in (plain, parted):
        communicator = Communicator(workers=2)
        x = torch.zeros(2, layout.d, dtype=torch.float64)
        strategy.start(x, layout, communicator)
        for communicator.step in range(3):
            x = strategy.step(x, torch.sin(x + torch.arange(layout.d) + communicator.step), communicator)
    one, other = plain.state_dict(), parted.state_dict()
    assert one.keys() == other.keys()
    memories = [name for name in one if name.startswith("gradients/")]
    assert memories
    for name in memories:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-12)
    plain.load_state_dict(parted.state_dict())
    parted.load_state_dict(plain.state_dict())


def sums_posted(size: int) -> list[int]:
    """How many all-reduces there have been after each of three buckets of so many numbers is ready, and at the end."""
    posted, all_reduce = [0], torch.distributed.all_reduce
    layout = Layout.of([(f"t{i}", (size,)) for i in range(3)])
    communicator = Communicator()
    buckets, v = Buckets(Average(), 4e-6 * size), torch.full((1, layout.d), 1.0 + torch.distributed.get_rank())
    buckets.start(torch.zeros_like(v), layout, communicator)

    def counted(*arguments: Any, **options: Any) -> Any:
        posted[0] += 1
        return all_reduce(*arguments, **options)

    torch.distributed.all_reduce = counted
    found = []
    for field in reversed(layout.fields):
        buckets.ready(v, field.start, field.stop, communicator)
        found.append(posted[0])
    assert torch.equal(buckets(v, communicator), torch.full_like(v, 1.5))
    torch.distributed.all_reduce = all_reduce
    return [*found, posted[0]]


def test_small_buckets_wait_for_each_other_and_large_ones_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert on_processes(2, lambda: [sums_posted(10), sums_posted(SMALL // 4)]) == [[[0, 0, 0, 1], [1, 2, 3, 3]]] * 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_sums_by_shared_memory_can_be_waited_for_in_any_order(order: tuple[int, ...]) -> None:
    def run() -> list[list[float]]:
        transport, rank = Communicator().transport, torch.distributed.get_rank()
        waits = [transport.sum(torch.full((SMALL,), 10.0**i * (rank + 1))) for i in range(3)]
        arrived = {i: waits[i]() for i in order}
        return [arrived[i].unique().tolist() for i in range(3)]

    assert on_processes(3, run) == [[[6.0], [60.0], [600.0]]] * 3


def test_arrivals_are_told_by_span_and_a_cut_tensor_goes_with_the_next() -> None:
    models = [nn.ParameterList(torch.zeros(size) for size in (2, 3, 4)) for _ in range(2)]
    layout = Layout.of([(str(size), (size,)) for size in (2, 3, 4)])
    arrivals = Arrivals([dict(model.named_parameters()) for model in models], layout, [(0, 2), (2, 7), (7, 9)])
    heard: list[tuple[int, int]] = []
    arrivals.listen(lambda start, stop: heard.append((start, stop)))
    for model, expected in zip(models, ([], [(2, 9), (0, 2)]), strict=True):
        sum(parameter.sum() for parameter in model).backward()
        assert sorted(heard, reverse=True) == expected


def test_where_nothing_travels_there_are_no_buckets() -> None:
    assert isinstance(bucketed(methods.dsgd(SGD, topologies.ring(4)), 25).gradients, Keep)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3)).double()


def data(rank: int) -> torch.Tensor:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(rank)).double()


def test_the_drop_in_sends_while_backward_runs() -> None:
    def loop() -> list[tuple[float, torch.Tensor]]:
        found = []
        for megabytes in (0, 0.5e-3):
            model = net()
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            for _ in range(4):
                optimizer.zero_grad()
                model(data(torch.distributed.get_rank())).square().sum().backward()
                optimizer.step()
            weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
            found.append((optimizer.communicator.ledger.messages, weights))
        return found

    for (plain, x), (early, y) in on_processes(2, loop):
        assert (plain, early) == (4, 16)
        assert torch.allclose(x, y, rtol=0, atol=1e-12)


def complaint(megabytes: float, change: str) -> str:
    """What is said in the second step when gradients are clipped after backward, or made twice."""
    model, inputs = net(), data(torch.distributed.get_rank())
    optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
    optimizer.step(lambda: model(inputs).square().sum().backward())
    optimizer.zero_grad()
    try:
        for _ in range(2 if change == "twice" else 1):
            model(inputs).square().sum().backward()
        if change == "zero":
            optimizer.zero_grad()
        if change == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        if change == "replace":
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "fine"


def test_gradients_that_were_sent_may_not_change() -> None:
    changes = ("nothing", "twice", "clip", "replace", "zero")
    found = on_processes(2, lambda: [complaint(size, change) for size in (0.5e-3, 0) for change in changes])
    for nothing, twice, clip, replace, zero, *in_one_piece, dropped in found:
        assert nothing == "fine"
        assert "came a second time" in twice
        assert "changed between backward and step" in clip
        assert "changed between backward and step" in replace
        assert "zero_grad was called after backward" in zero
        assert all("bucket_mb=0" in said for said in (twice, clip, replace, zero))
        assert in_one_piece == ["fine"] * 4
        assert "every trainable parameter must have a gradient" in dropped


def test_gradients_are_the_users_where_nothing_averages_them_or_it_is_said() -> None:
    """Accumulation, a skipped step and clipping."""

    def loop(build: Callable[[], Strategy]) -> torch.Tensor:
        model, inputs = net(), data(torch.distributed.get_rank())
        strategy = build()
        averaged = {} if is_rowwise(strategy.gradients) else {"bucket_mb": 0.0}
        optimizer = DistributedOptimizer(model, strategy, **averaged)
        for step in range(4):
            optimizer.zero_grad(set_to_none=True)
            for _ in range(2):
                (model(inputs).square().sum() / 2).backward()
            if step == 2:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    for build in (lambda: methods.psgd(SGD), lambda: methods.dsgd(SGD, topologies.ring(2))):
        one, other = on_processes(2, lambda build=build: loop(build))
        assert torch.allclose(one, other, rtol=0, atol=1e-12), "all begin alike, and two in a ring average"


@pytest.mark.parametrize("change", ["clip", "replace"])
def test_what_is_averaged_may_not_be_changed_by_hand_however_large_the_model(change: str) -> None:
    """In the first step, when nothing has been sent, and in one bucket, of which nothing is ever sent early."""

    def loop() -> list[str]:
        found = []
        for megabytes in (25.0, 0.5e-3):
            model, inputs = net(), data(torch.distributed.get_rank())
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            for step in range(2):
                optimizer.zero_grad()
                model(inputs).square().sum().backward()
                if step == (megabytes == 25.0):
                    if change == "clip":
                        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
                    else:
                        for parameter in model.parameters():
                            parameter.grad = torch.zeros_like(parameter)
                    with pytest.raises(RuntimeError, match=r"another average; to clip them, give clip=NORM"):
                        optimizer.step()
                    found.append(f"refused at {step}")
                    break
                optimizer.step()
        return found

    assert on_processes(2, loop) == [["refused at 1", "refused at 0"]] * 2


def test_accumulation_does_not_depend_on_the_number_of_buckets() -> None:
    """The first step shows that gradients come several times; a last step of fewer is no other thing."""

    def loop() -> list[tuple[int, torch.Tensor]]:
        found = []
        for megabytes in (25.0, 0.5e-3, 0.0):
            model, inputs = net(), data(torch.distributed.get_rank())
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), bucket_mb=megabytes)
            for passes in (3, 3, 1):
                optimizer.zero_grad()
                for i in range(passes):
                    (model(inputs + i).square().sum() / passes).backward()
                optimizer.step()
            weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
            found.append((optimizer.communicator.ledger.messages, weights))
        return found

    for found in on_processes(2, loop):
        messages, (first, *others) = zip(*found, strict=True)
        assert messages == (3, 12, 3)
        assert all(torch.allclose(first, other, rtol=0, atol=1e-12) for other in others)


class LouderAverage(Average):
    def __call__(self, vectors: torch.Tensor, communicator: Communicator) -> torch.Tensor:
        return 2 * super().__call__(vectors, communicator)


class LouderGossip(Gossip):
    def __call__(self, vectors: torch.Tensor, communicator: Communicator) -> torch.Tensor:
        return 2 * super().__call__(vectors, communicator)


def test_a_subclass_that_overrides_call_is_called_in_blocks_and_in_place_too() -> None:
    cuts = [laws.LAYOUT.d // 2]
    plain = Strategy(Local(SGD), LouderAverage(), LouderGossip(RING))
    parted = Strategy(Local(SGD), Blocks(LouderAverage(), cuts), LouderGossip(RING))
    expected = laws.run(plain)[0]
    assert torch.equal(laws.run(parted, donate=True)[0], expected)
    assert not torch.equal(laws.run(Strategy(Local(SGD), Average(), Gossip(RING)))[0], expected)


@pytest.mark.parametrize("donate", [False, True])
def test_a_mean_in_blocks_takes_the_memory_of_a_lone_row_only_where_it_is_given(donate: bool) -> None:
    communicator, width = Communicator(workers=1), laws.LAYOUT.d
    strategy, x = Strategy(Local(SGD), Blocks(LouderAverage(), [3, width // 2])), torch.ones(1, width)
    strategy.start(x, laws.LAYOUT, communicator)
    given = torch.arange(1.0, width + 1)[None]
    gradient = given.clone()
    moved = strategy.step(x.clone(), gradient, communicator, donate=donate)
    torch.testing.assert_close(moved, x - 0.05 * (2 * given))
    assert torch.equal(gradient, 2 * given if donate else given)


class LouderStages(Gossip):
    def stages(self, vectors: torch.Tensor, communicator: Communicator) -> Stages:
        return 2 * (yield from super().stages(vectors, communicator))


def test_a_subclass_that_overrides_stages_is_called_in_place_too() -> None:
    ends = [laws.run(Strategy(Local(SGD), parameters=LouderStages(RING)), donate=donate)[0] for donate in (False, True)]
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], laws.run(Strategy(Local(SGD), parameters=Gossip(RING)))[0])


def test_nothing_is_sent_early_where_a_worker_is_absent() -> None:
    def step(posts: bool) -> list[Any]:
        communicator, strategy = Communicator(workers=4), Strategy(Local(PLAIN), parameters=Ahead(Gossip(RING)))
        x = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
        strategy.start(x.clone(), Layout.flat(3), communicator)
        communicator.begin(0, present=torch.tensor([True, True, False, True]))
        if posts:
            strategy.post(x, communicator)
        x = strategy.step(x, torch.ones_like(x), communicator)
        return [x.tolist(), communicator.ledger.messages, communicator.ledger.wire_bytes]

    assert step(True) == step(False)


def test_no_bucket_leaves_before_the_step_where_a_worker_is_absent() -> None:
    communicator, strategy = Communicator(workers=4), bucketed(methods.psgd(SGD), 50e-6)
    layout = Layout.of([("a", (3, 4)), ("b", (5,)), ("c", (4, 3))])
    gradient = torch.ones(4, layout.d)
    strategy.start(torch.zeros_like(gradient), layout, communicator)
    for present in (torch.tensor([True, True, False, True]), None):
        communicator.begin(communicator.step, present=present)
        assert overlap.ready(strategy, gradient, 0, layout.d, communicator) == (present is None)


class Early(Transform):
    """A transform of a user that starts early."""

    def __init__(self) -> None:
        self.posted: list[int] = []

    def post(self, x: torch.Tensor, communicator: Communicator) -> None:
        self.posted.append(communicator.step)

    def __call__(self, vectors: torch.Tensor, communicator: Communicator) -> torch.Tensor:
        return vectors


def test_a_transform_of_a_user_is_posted_if_it_has_post() -> None:
    early = Early()
    laws.run(Strategy(Local(SGD), parameters=Every(2, early)), steps=5)
    assert early.posted == [1, 3]
    laws.run(Strategy(Local(SGD), parameters=Average()), steps=1)


def test_a_transform_of_nothing_says_what_to_write() -> None:
    class Empty(Transform):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define __call__ or stages"):
        laws.run(Strategy(Local(SGD), Empty()), steps=1)


def test_a_step_that_is_left_out_leaves_nothing_under_way() -> None:
    """Buckets that have set out with a gradient that overflowed are not those of the next step."""
    strategy = Strategy(Local(PLAIN), gradients=Buckets(Average(), 50e-6))
    communicator, x = Communicator(workers=4), laws.start()
    strategy.start(x, laws.LAYOUT, communicator)
    assert overlap.ready(strategy, torch.full_like(x, torch.inf), 0, laws.LAYOUT.d, communicator)
    kept = step_of_finite(strategy, x.clone(), torch.full_like(x, torch.inf), communicator, finite=False)
    communicator.step, gradient = 1, laws.slope(x, 1)
    assert torch.equal(kept, x)
    moved = strategy.step(x, gradient, communicator)
    assert (moved - (x - 0.05 * gradient.mean(0))).abs().max() <= 1e-12


@pytest.mark.parametrize(("workers", "shared"), [(1, True), (2, False)])
def test_a_lone_workers_mean_takes_no_memory_in_buckets_either(workers, shared):
    communicator, gradient = Communicator(workers=workers), torch.ones(workers, 40)
    buckets = Buckets(Average(), 50e-6)
    buckets.start(gradient, Layout.of([(name, (10,)) for name in "abcd"]), communicator)
    assert len(buckets.blocks) > 1
    assert buckets(gradient, communicator).is_set_to(gradient) == shared


class Doubled(Keep):
    def __call__(self, vectors, communicator):
        return 2 * vectors


def test_blocks_of_which_some_stay_where_they_are_are_joined():
    communicator, v = Communicator(workers=1), torch.arange(4.0)[None]
    blocks = Blocks(Keep(), [2])
    blocks.start(v, Layout.flat(4), communicator)
    blocks.blocks = (Keep(), Doubled())
    assert blocks(v, communicator).tolist() == [[0.0, 1.0, 4.0, 6.0]]


def test_blocks_of_meta_tensors_have_no_memory_to_compare():
    v, blocks = torch.empty(1, 4, device="meta"), Blocks(Keep(), [2])
    blocks.start(v, Layout.flat(4), Communicator(workers=1))
    assert blocks(v, Communicator(workers=1)).shape == (1, 4)
