"""What buckets, parts and optimizers remember goes through named tensors; the laws say so of methods."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch

from commeff import Communicator, Layout, methods, topologies
from commeff.compressors import Natural, TopK
from commeff.compressors.parts import Part
from commeff.core import Grouped, Strategy
from commeff.core.addresses import Address
from commeff.core.factories import scheduled
from commeff.laws.problem import slope
from commeff.parallelism.boxes import Whereabouts
from commeff.parallelism.saved import Held, copy, kinds
from commeff.training.named import Anew, MemoryLoader, MemorySaver, Named
from commeff.transforms import Buckets, clipped, on_pieces

WORKERS = 3
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
LAYOUT = Layout.of([("matrix", (4, 3)), ("cube", (2, 3, 2)), ("number", ()), ("vector", (5,))], groups=[0, 1, 0, 0])
PARTS = [
    Part("left", [(0, 6), (13, 25), (28, 30)], Layout.of([("matrix", (6,)), ("rest", (12,)), ("vector", (2,))])),
    Part("right", [(6, 13), (25, 28)], Layout.of([("matrix", (7,)), ("vector", (3,))])),
]
GROUPS = ({}, {"momentum": 0.0})
HALVING = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)


def buckets(strategy: Strategy) -> Strategy:
    return Strategy(strategy.local, Buckets(strategy.gradients, 1e-4), strategy.parameters)


STRATEGIES = {
    "buckets": lambda: buckets(methods.mem_sgd(SGD, Natural())),
    "parts": lambda: on_pieces(methods.mem_sgd(SGD, TopK(ratio=0.3)), PARTS),
    "parts of rounds": lambda: on_pieces(methods.sparse_loco(SGD, TopK(ratio=0.3), period=2), PARTS),
    "clipped server": lambda: clipped(methods.double_squeeze(SGD, TopK(ratio=0.3)), 0.5),
    "fragments": lambda: methods.streaming_diloco(SGD, period=3, fragments=2),
    "adam": lambda: methods.dsgd(partial(torch.optim.AdamW, lr=0.01), topologies.ring(WORKERS)),
    "adafactor": lambda: methods.diloco(partial(torch.optim.Adafactor, lr=0.01), period=2),
    "groups": lambda: methods.psgd(Grouped(SGD, GROUPS)),
    "power_sgd": lambda: methods.power_sgd(SGD, rank=1),
}


def begun(strategy):
    communicator = Communicator(workers=WORKERS, seed=3)
    x = torch.linspace(-1, 2, LAYOUT.d, dtype=torch.float64).expand(WORKERS, -1).clone()
    strategy.start(x, LAYOUT, communicator)
    return x, communicator


def go_on(strategy, x, communicator, steps):
    for communicator.step in steps:
        x = strategy.step(x, slope(x, communicator.step, range(WORKERS)), communicator)
    return x


def saved(strategy) -> MemorySaver:
    strategy.drain()
    saver = MemorySaver(Named(Whereabouts.of(LAYOUT), range(WORKERS)))
    strategy.exchange(Address.of(LAYOUT.d), saver)
    return saver


@pytest.mark.parametrize("name", STRATEGIES)
def test_memories_saved_by_the_names_of_tensors_make_the_same_run(name):
    whole = STRATEGIES[name]()
    expected = go_on(whole, *begun(whole), range(6))
    stopped, fresh = STRATEGIES[name](), STRATEGIES[name]()
    x = go_on(stopped, *begun(stopped), range(3))
    saver = saved(stopped)
    _, communicator = begun(fresh)
    wanted = Named(Whereabouts.of(LAYOUT), range(WORKERS))
    loader = MemoryLoader(wanted, kinds(saver.named.held), saver.values)
    fresh.exchange(Address.of(LAYOUT.d), loader)
    copy(saver.named.held, wanted.held)
    loader.arrived = True
    fresh.exchange(Address.of(LAYOUT.d), loader)
    assert torch.equal(go_on(fresh, x, communicator, range(3, 6)), expected)
    unread = saver.named.held.keys() - wanted.held.keys()
    assert all("/state/step/" in key for key in unread), "one count of steps stands for those of all tensors"


def test_names_tell_worker_path_and_tensor():
    strategy = methods.diloco(SGD, period=2)
    go_on(strategy, *begun(strategy), range(3))
    named = saved(strategy).named.held
    assert named["worker2/parameters/inner/anchor/cube"].shape == (2, 3, 2)
    assert "worker0/local/state/momentum_buffer/vector" in named
    strategy = STRATEGIES["clipped server"]()
    begun(strategy)
    assert "server/gradients/inner/inner/down/error/matrix" in saved(strategy).named.held


def test_what_is_saved_does_not_know_of_buckets_and_parts():
    names = []
    for strategy in (methods.mem_sgd(SGD, Natural()), buckets(methods.mem_sgd(SGD, Natural()))):
        go_on(strategy, *begun(strategy), range(2))
        names.append({name: held.shape for name, held in saved(strategy).named.held.items()})
    assert names[0] == names[1]
    parts = STRATEGIES["parts"]()
    go_on(parts, *begun(parts), range(2))
    assert names[0] == {name: held.shape for name, held in saved(parts).named.held.items()}


def test_a_schedule_goes_on_where_memories_begin_anew():
    strategies = [methods.diloco(scheduled(SGD, HALVING), period=2) for _ in range(2)]
    for strategy in strategies:
        begun(strategy)
    go_on(strategies[0], *begun(strategies[0]), range(3))
    strategies[1].exchange(Address.of(LAYOUT.d), Anew(saved(strategies[0]).values))
    assert [strategy.local.lr for strategy in strategies] == [0.05 / 8] * 2
    assert not strategies[1].local.state["aged"].any()


def test_boxes_are_the_places_of_columns():
    whole = torch.arange(float(LAYOUT.d))
    for start, stop in [(0, LAYOUT.d), *pairwise(range(0, LAYOUT.d, 7)), (5, 27), (13, 14)]:
        covered = 0
        for box in Whereabouts.of(LAYOUT).boxes([(start, stop)]):
            (field,) = (f for f in LAYOUT.fields if f.name == box.tensor)
            there = whole[field.start : field.stop].view(box.shape)
            for dim, (offset, size) in enumerate(zip(box.offsets, box.sizes, strict=True)):
                there = there.narrow(dim, offset, size)
            assert torch.equal(there.flatten(), whole[start:stop][box.start : box.stop])
            covered += box.stop - box.start
        assert covered == stop - start


def test_one_name_for_two_tensors_is_refused():
    held = Held((2,))
    held.put((0,), torch.ones(2))
    held.put((0,), torch.ones(2))
    with pytest.raises(ValueError, match="must be one tensor, got two different ones"):
        held.put((0,), torch.zeros(2))


@pytest.mark.parametrize(
    ("saved_there", "words"),
    [
        ({}, "must hold x, got none"),
        ({"x": (Held((3,)), 3)}, r"x must have shape \(2,\), got \(3,\)"),
        ({"x": (Held((2,)), 1)}, "x must have 2 numbers that are needed here, got 1"),
    ],
)
def test_what_is_not_there_is_refused(saved_there, words):
    for held, length in saved_there.values():
        held.put((0,), torch.ones(length))
    wanted = Held((2,))
    wanted.put((0,), torch.zeros(2))
    with pytest.raises(ValueError, match=words):
        copy({name: held for name, (held, _) in saved_there.items()}, {"x": wanted})
