"""What buckets, parts and optimizers remember is saved by the names of tensors; the laws say so of methods."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, Layout, methods, topologies
from commeff.boxes import Boxes, ColumnMap
from commeff.compressors import Natural, TopK
from commeff.core import Grouped, Strategy
from commeff.core.addresses import Address, BoxNames
from commeff.core.factories import decaying_matrices, scheduled
from commeff.core.saving import Fresh, MemoryLoader, MemorySaver, boxes_of, is_table
from commeff.laws.problem import slope
from commeff.sharding.parts import Part
from commeff.sharding.pieces import on_pieces
from commeff.transforms import Buckets, clipped
from tests.laws.processes import on_processes, through_a_file

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
    "fragments that count": lambda: methods.streaming_diloco(
        SGD, period=2, fragments=2, outer=partial(torch.optim.Adam, lr=0.1)
    ),
    "adam": lambda: methods.dsgd(partial(torch.optim.AdamW, lr=0.01), topologies.ring(WORKERS)),
    "adafactor": lambda: methods.diloco(partial(torch.optim.Adafactor, lr=0.01), period=2),
    "groups": lambda: methods.psgd(Grouped(SGD, GROUPS)),
    "groups by shape": lambda: methods.psgd(decaying_matrices(partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5))),
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


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_saved_makes_the_same_run(name):
    whole = STRATEGIES[name]()
    expected = go_on(whole, *begun(whole), range(6))
    for stop in (1, 3, 4):
        stopped, fresh = STRATEGIES[name](), STRATEGIES[name]()
        x = go_on(stopped, *begun(stopped), range(stop))
        _, communicator = begun(fresh)
        fresh.load_state_dict(stopped.state_dict())
        assert torch.equal(go_on(fresh, x, communicator, range(stop, 6)), expected), stop


def test_names_tell_path_and_tensor_and_the_first_axis_is_that_of_workers():
    strategy = methods.diloco(SGD, period=2)
    go_on(strategy, *begun(strategy), range(3))
    saved = strategy.state_dict()
    assert saved["parameters/inner/anchor/cube"].shape == (WORKERS, 2, 3, 2)
    assert saved["local/state/momentum_buffer/vector"].shape == (WORKERS, 5)
    strategy = STRATEGIES["clipped server"]()
    begun(strategy)
    assert strategy.state_dict()["gradients/inner/inner/down/error/matrix"].shape == (1, 4, 3)


def test_what_is_saved_does_not_know_of_buckets_and_parts():
    shapes = []
    makes = (lambda: methods.mem_sgd(SGD, Natural()), lambda: buckets(methods.mem_sgd(SGD, Natural())))
    for make in (*makes, STRATEGIES["parts"]):
        strategy = make()
        go_on(strategy, *begun(strategy), range(2))
        saved = strategy.state_dict()
        shapes.append({name: value.shape for name, value in saved.items() if torch.is_tensor(value)})
    assert shapes[0] == shapes[1] == shapes[2]


def test_what_is_saved_is_a_copy_and_what_is_loaded_too():
    strategy, other = STRATEGIES["adam"](), STRATEGIES["adam"]()
    x, communicator = begun(strategy)
    x = go_on(strategy, x, communicator, range(2))
    saved = strategy.state_dict()
    before = {name: value.clone() for name, value in saved.items() if torch.is_tensor(value)}
    begun(other)
    other.load_state_dict(saved)
    for each in (strategy, other):
        go_on(each, x, communicator, range(2, 4))
    assert all(torch.equal(saved[name], value) for name, value in before.items())


def test_values_are_saved_as_they_are_now():
    saver, values = MemorySaver(BoxNames(ColumnMap.of(LAYOUT))), [1]
    saver.shared(Address.of(LAYOUT.d).child("values"), values)
    values.append(2)
    assert saver.values == {"values": [1]}


def test_a_schedule_goes_on_where_memories_begin_anew():
    strategies = [methods.diloco(scheduled(SGD, HALVING), period=2) for _ in range(2)]
    for strategy in strategies:
        begun(strategy)
    go_on(strategies[0], *begun(strategies[0]), range(3))
    strategies[1].exchange(Address.of(LAYOUT.d), Fresh(strategies[0].state_dict()))
    assert [strategy.local.lr for strategy in strategies] == [0.05 / 8] * 2
    assert not strategies[1].local.state["aged"].any()


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        ({}, "must hold gradients/error/x, got none"),
        ({"gradients/error/x": Boxes((3, 3))}, r"gradients/error/x must have shape \(3, 2\), got \(3, 3\)"),
        (
            {"gradients/error/x": Boxes((3, 2), [((0, 0), torch.ones(1, 2))])},
            "gradients/error/x must have 4 numbers that are needed here, got 0",
        ),
    ],
)
def test_what_is_not_there_is_refused(saved, words):
    loader = MemoryLoader(BoxNames(ColumnMap.of(Layout.of([("x", (2,))])), [1, 2], 3), saved, {})
    with pytest.raises(ValueError, match=words):
        loader.rows(Address.of(2).child("gradients").child("error"), torch.zeros(2, 2))


def test_values_that_are_not_there_and_those_that_nobody_knows_are_refused():
    strategy = methods.diloco(SGD, period=2)
    begun(strategy)
    saved, before = strategy.state_dict(), strategy.local.lr
    less = {name: value for name, value in saved.items() if name != "local/settings"}
    with pytest.raises(ValueError, match="must hold local/settings, got none: it is another method's state"):
        strategy.load_state_dict(less)
    with pytest.raises(ValueError, match="must not hold gradients/error: it is another method's state"):
        strategy.load_state_dict(saved | {"gradients/error": torch.ones(2)})
    assert strategy.local.lr == before


def test_before_the_start_there_is_no_state():
    with pytest.raises(RuntimeError, match=r"^state_dict needs a strategy that has been started: call start"):
        methods.psgd(SGD).state_dict()


def test_a_process_that_has_a_part_of_a_tensor_saves_that_part():
    """A server in shards, each with another worker."""

    def half():
        strategy = methods.double_squeeze(SGD, TopK(ratio=0.3), server="sharded")
        communicator = Communicator(workers=2, seed=3, group=dist.group.WORLD)
        x = torch.zeros(1, LAYOUT.d, dtype=torch.float64)
        strategy.start(x, LAYOUT, communicator)
        return strategy, x, communicator

    def taken(strategy, x, communicator, steps):
        for communicator.step in steps:
            x = strategy.step(x, slope(x, communicator.step, communicator.workers), communicator)
        return x

    def member():
        stopped, fresh = half(), half()
        x = taken(*stopped, range(3))
        saved = stopped[0].state_dict()
        parts = [boxes_of(value) for value in saved.values() if is_table(value)]
        fresh[0].load_state_dict(through_a_file(saved))
        same = torch.equal(taken(stopped[0], x, stopped[2], range(3, 6)), taken(fresh[0], x, fresh[2], range(3, 6)))
        return same, [(boxes.shape, sum(box.numel() for box in boxes.boxes.values())) for boxes in parts]

    for same, parts in on_processes(2, member):
        assert same
        assert parts
        assert all(0 < numbers < torch.Size(shape).numel() for shape, numbers in parts)
