"""The growth law: a long run holds no more than a short one."""

from __future__ import annotations

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from commeff.communicator import Communicator, Ledger
from commeff.laws.problem import LAYOUT, WORKERS, MethodCase, elsewhere, falling, slope, start

SPANS = ((8, 24), (160, 480))  # steps; the second tells what grows for ever from a memory that is long, but bounded
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, Ledger)  # not looked into; a ledger bounds its rows itself


def does_not_grow(case: MethodCase) -> None:
    """What the method and the communicator hold after many steps, they held after a few."""
    for few, many in SPANS:
        before, after = _held_after(case, few, many)
        if after <= before:
            return
    raise AssertionError(
        f"{case.name}: after {few} steps it holds {before} references and bytes, after {many} steps {after}: what is "
        "remembered must have a size that the number of steps does not change"
    )


def _held_after(case: MethodCase, few: int, many: int) -> list[int]:
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    sizes: list[int] = []
    for communicator.step in range(many):
        communicator.context.losses = falling(communicator)
        x = strategy.step(x, slope(x, communicator.step), communicator, elsewhere(communicator.step))
        if communicator.step + 1 in (few, many):
            sizes.append(held([strategy, communicator]))
    return sizes


def held(roots: list[Any]) -> int:
    """References and bytes of tensors among all that can be reached, code apart.

    >>> held([[0.5, 1.5]]) + 1 == held([[0.5, 1.5, 2.5]])
    True
    """
    found: dict[int, Any] = {}
    storages: dict[int, int] = {}
    references, front = 0, list(roots)
    while front:
        item = front.pop()
        if id(item) in found or isinstance(item, CODE):
            continue
        found[id(item)] = item
        if isinstance(item, torch.Tensor):
            storage = item.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        inside = gc.get_referents(item)
        references += len(inside)
        front += inside
    return references + sum(storages.values())
