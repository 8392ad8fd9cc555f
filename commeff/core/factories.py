"""Factories of torch optimizers: with a schedule, with options by parameter group; and what is asked of their rates.

An `optimizer` is always a factory from a parameter list (or a list of parameter-group dicts) to a
`torch.optim.Optimizer`, such as `functools.partial(torch.optim.SGD, lr=0.1)`. `scheduled`, `Grouped` and
`decaying_matrices` make such factories out of such factories.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

OptimizerFactory = Callable[[Any], Optimizer]

# Their update of a coordinate depends on that coordinate only, so one object can run all workers as one (w, d) tensor.
ELEMENTWISE: tuple[type[Optimizer], ...] = (
    torch.optim.SGD,
    torch.optim.ASGD,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)


@dataclass(frozen=True)
class Scheduled:
    """An optimizer factory with a schedule for its learning rate. Made by `scheduled`."""

    optimizer: OptimizerFactory
    schedule: Callable[[Optimizer], LRScheduler]

    def __call__(self, parameters: Any) -> Optimizer:
        return self.optimizer(parameters)


def scheduled(optimizer: OptimizerFactory, schedule: Callable[[Optimizer], LRScheduler]) -> Scheduled:
    """`optimizer` with a torch learning-rate schedule, moved on by the local step after every update.

    >>> from functools import partial
    >>> from commeff.compressors import Layout
    >>> from commeff.core.local import Local
    >>> halving = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    >>> factory = scheduled(partial(torch.optim.SGD, lr=1.0), halving)
    >>> local = Local(factory)
    >>> local.start(torch.zeros(1, 1), Layout.flat(1))
    >>> [float(local(torch.zeros(1, 1), -torch.ones(1, 1))) for _ in range(3)]
    [1.0, 0.5, 0.25]
    """
    return Scheduled(optimizer, schedule)


@dataclass(frozen=True)
class Grouped:
    """An optimizer factory with options for each parameter group, e.g. `Grouped(adam, ({}, {"weight_decay": 0.0}))`.

    group_of : the group of a tensor by its shape; None: who drives the method says it.
    """

    optimizer: OptimizerFactory
    options: Sequence[dict[str, Any]]
    group_of: Callable[[tuple[int, ...]], int] | None = None

    def __call__(self, groups: list[dict[str, Any]]) -> Optimizer:
        if len(groups) != len(self.options):
            raise ValueError(
                f"options must hold a set for each of the {len(groups)} parameter groups, got {len(self.options)}: "
                "who drives the method says which parameters are in which group; give it groups="
            )
        return self.optimizer([group | chosen for group, chosen in zip(groups, self.options, strict=True)])


def decaying_matrices(optimizer: OptimizerFactory) -> Grouped:
    """`optimizer` whose weight decay moves tensors of two dimensions or more alone: neither biases nor norms.

    >>> from commeff.compressors import Layout
    >>> from commeff.core.local import Local
    >>> local = Local(decaying_matrices(partial(torch.optim.SGD, lr=0.5, weight_decay=1.0)))
    >>> local.start(torch.ones(1, 3), Layout.of([("matrix", (1, 2)), ("bias", (1,))]))
    >>> local(torch.ones(1, 3), torch.zeros(1, 3))
    tensor([[0.5000, 0.5000, 1.0000]])
    """
    sample = sample_of(optimizer)
    if "weight_decay" not in sample.defaults:
        raise ValueError(f"the optimizer must have a weight_decay for decay=matrices, got {type(sample).__name__}")
    return Grouped(optimizer, ({}, {"weight_decay": 0.0}), lambda shape: int(len(shape) < 2))


def grouping(factory: OptimizerFactory) -> Grouped | None:
    """What groups a factory's tensors by their shapes; None: nothing does."""
    while isinstance(factory, (Scheduled, Grouped)):
        if isinstance(factory, Grouped) and factory.group_of is not None:
            return factory
        factory = factory.optimizer
    return None


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Optimizers made inside do not import torch's compiler: more than a second, which refusals need not wait for.

    torch keeps the compiler out of `add_param_group`; it imports it to do so, unless the function says by what it is
    replaced.
    """
    adding = getattr(Optimizer.add_param_group, "__wrapped__", None)
    if adding is None or "torch._dynamo" in sys.modules:
        yield
        return
    setattr(adding, "__dynamo_disable", adding)
    try:
        yield
    finally:
        delattr(adding, "__dynamo_disable")


def sample_of(factory: OptimizerFactory) -> Optimizer:
    """One of the factory's optimizers, to see of what kind they are."""
    while isinstance(factory, (Scheduled, Grouped)):
        factory = factory.optimizer
    with _without_compiler():
        return factory([torch.nn.Parameter(torch.zeros(1, 1))])


def unfused(factory: OptimizerFactory) -> OptimizerFactory:
    """The same without fused kernels, which there are none of on the device "meta".

    >>> unfused(partial(torch.optim.Adam, fused=True))([torch.zeros(1, device="meta")]).defaults["fused"] is None
    True
    """
    if isinstance(factory, (Scheduled, Grouped)):
        return replace(factory, optimizer=unfused(factory.optimizer))
    return partial(factory, fused=None) if isinstance(factory, partial) and factory.keywords.get("fused") else factory


def equal_rates(options: Mapping[int, Mapping[str, Any]]) -> None:
    """Refuse options of parameter groups, as a local step has them, that have different learning rates."""
    rates = tuple(float(chosen["lr"]) for chosen in options.values())
    if len(set(rates)) > 1:
        raise ValueError(
            f"all parameter groups must have one learning rate, got {rates}: "
            "this method remembers in units of it; give all groups the same"
        )
