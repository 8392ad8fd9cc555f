"""Every optimizer of the configuration, within a method that averages gradients and one that gossips: the laws hold.

The identities and closed forms of those that are ours: `test_identities_of_optimizers`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from commeff import Layout, Local, Strategy, laws, methods, topologies
from commeff.core.properties import scope_of
from commeff.experiments.config.build import instantiate
from commeff.experiments.config.schema import built_in, node
from commeff.laws import LAYOUT, STEPS, WORKERS, MethodCase

NAMES = [name for name in built_in("optimizer") if not name.startswith("sophia")]  # ask for curvature: test_sophia
BY = {  # in which method a law is tried: what rows do to each other differs, and costs time
    "averaged": (
        laws.repeats,
        laws.leaves_its_input_alone,
        laws.gives_the_same_when_x_is_donated,
        laws.stays_where_all_agree,
        laws.works_in_blocks,
        laws.acts_on_pieces,
        laws.is_profiled,
    ),
    "gossiped": (laws.resumes, laws.is_the_same_on_every_engine),
}


def factory(name: str, **changed: Any) -> Callable[[Any], torch.optim.Optimizer]:
    """The optimizer as its YAML has it, without weight decay, which moves where no gradient does."""
    written = node("optimizer", name)
    still = {"weight_decay": 0.0} if "weight_decay" in written else {}
    made: Callable[[Any], torch.optim.Optimizer] = instantiate(written | still | changed, {})
    return made


def averaged(name: str, n: int) -> Strategy:
    return methods.psgd(factory(name))


def gossiped(name: str, n: int) -> Strategy:
    return methods.dsgd(factory(name), topologies.lazy(topologies.ring(n)))


METHODS = {"averaged": averaged, "gossiped": gossiped}


@pytest.mark.parametrize(
    ("method", "law"), [(m, law) for m in BY for law in BY[m]], ids=lambda v: getattr(v, "__name__", v)
)
@pytest.mark.parametrize("name", NAMES)
def test_law(name: str, method: str, law: Callable[[MethodCase], None]) -> None:
    law(MethodCase(f"{method}({name})", partial(METHODS[method], name)))


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_at_once_is_each_row_alone(name: str) -> None:
    """Also where the columns are cut, for what works on coordinates; others say that they need whole tensors."""
    local = Local(factory(name))
    pieces = [[field] for field in LAYOUT.fields] if scope_of(local) == "tensor" else []
    cuts = [(f.start, f.stop) for [f] in pieces] or [(0, 2), (2, 7), (7, 12)]
    whole = moved(factory(name), LAYOUT, range(WORKERS), (0, LAYOUT.d))
    for worker in range(WORKERS):
        for start, stop in cuts:
            shapes = [(f.name, f.shape) for f in LAYOUT.fields if (f.start, f.stop) == (start, stop)]
            layout = Layout.of(shapes) if shapes else Layout.flat(stop - start)
            alone = moved(factory(name), layout, [worker], (start, stop))
            torch.testing.assert_close(whole[worker : worker + 1, start:stop], alone, rtol=0, atol=1e-13)


def moved(optimizer: Any, layout: Layout, workers: Any, columns: tuple[int, int]) -> Tensor:
    local, x = Local(optimizer), laws.start()[list(workers), slice(*columns)].clone()
    local.start(x, layout)
    places = torch.arange(*columns)
    for step in range(STEPS):
        x = local(x, laws.slope(x, step, workers, places))
    return x


@pytest.mark.parametrize("name", NAMES)
def test_idle_rows_neither_move_nor_age(name: str) -> None:
    """Worker 1 sleeps at steps 1 and 3; what it does afterwards is what it would have done without those steps."""
    local, x = Local(factory(name)), laws.start()
    local.start(x, LAYOUT)
    alone, y = Local(factory(name)), laws.start()[1:2]
    alone.start(y, LAYOUT)
    for step in range(STEPS):
        active = torch.ones(WORKERS, dtype=torch.bool)
        active[1] = step not in (1, 3)
        x = local(x, laws.slope(x, step), active)
        if active[1]:
            y = alone(y, laws.slope(y, step, [1]))
    torch.testing.assert_close(x[1:2], y, rtol=0, atol=1e-13)
    torch.testing.assert_close(local.evaluated(x)[1:2], alone.evaluated(y), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_it_goes_downhill(name: str) -> None:
    x, target = torch.full((1, 12), 2.0, dtype=torch.float64), torch.linspace(-1, 1, 12, dtype=torch.float64)
    rates = {"lars": 50.0, "schedule_free_sgd": 0.5, "sgd": 0.1, "momentum": 0.05, "adagrad": 0.3, "lion": 0.03}
    rates |= {"lamb": 0.03, "adam_sage": 0.3, "nesterov": 0.05, "adafactor": 0.03, "muon": 0.3}
    local = Local(factory(name, lr=rates.get(name, 0.1)))
    local.start(x, LAYOUT)
    before = (x - target).square().sum()
    for step in range(150):
        x = local(x, (0.5 + step % 2) * (x - target))  # AdamSAGE moves where gradients change
    assert (local.evaluated(x) - target).square().sum() < (0.1 if name != "adam_sage" else 0.4) * before


def test_gradients_that_are_scaled_do_not_reach_the_rows_of_others() -> None:
    """What looks at whole tensors looks at one worker's: a huge gradient elsewhere changes nothing here."""
    for name in NAMES:
        one, other = (Local(factory(name)) for _ in range(2))
        x, y = laws.start(), laws.start()
        one.start(x, LAYOUT)
        other.start(y, LAYOUT)
        for step in range(3):
            gradient = laws.slope(x, step)
            loud = gradient.clone()
            loud[0] *= 1e6
            x, y = one(x, gradient), other(y, loud)
            assert torch.equal(x[1:], y[1:]), name
            y[0] = x[0]
