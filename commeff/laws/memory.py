"""What a method remembers is declared, so a saved state and a fresh strategy make the same run; and does not grow."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator, Ledger
from commeff.core.strategy import Stateful
from commeff.laws.problem import LAYOUT, STEPS, WORKERS, MethodCase, elsewhere, falling, plain_run, run, slope, start

SPANS = ((8, 24), (160, 480))  # steps; the second tells what grows for ever from a memory that is long, but bounded
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, Ledger)  # not looked into; a ledger bounds its rows itself


def resumes(case: MethodCase) -> None:
    """Saved after any step and loaded into a fresh strategy, it goes on bit by bit."""
    whole, _ = plain_run(case)
    for stop in range(1, STEPS):
        strategy = case.build(WORKERS)
        part, _ = run(strategy, steps=stop)
        state, x = strategy.state_dict(), part[-1].clone()
        fresh, later = case.build(WORKERS), Communicator(workers=WORKERS, seed=3)
        fresh.start(start(), LAYOUT, later)
        fresh.load_state_dict(state)
        forgotten = [*_forgotten(strategy, fresh)]
        for later.step in range(stop, STEPS):
            later.context.losses = falling(later)
            x = fresh.step(x, slope(x, later.step), later, elsewhere(later.step))
            assert torch.equal(x, whole[later.step]), (
                f"{case.name}: resumed after step {stop}, it differs at step {later.step} by "
                f"{float((x - whole[later.step]).abs().max()):.1e}: {_advice(forgotten)}"
            )


def _advice(forgotten: list[tuple[str, str, bool]]) -> str:
    if not forgotten:
        return "it remembers something outside its attributes; keep it in one, named in `rows` or `shared`"
    owner, name, one_row_a_worker = min(forgotten, key=lambda memory: memory[1].startswith("_"))
    kind = "rows" if one_row_a_worker else "shared"
    hidden = ", without the underscore, which marks what is not saved" if name.startswith("_") else ""
    return f"{owner}.{name} is not in the saved state: write {kind} = ({name.lstrip('_')!r},) in class {owner}{hidden}"


def _forgotten(piece: Stateful, fresh: Stateful) -> Iterator[tuple[str, str, bool]]:
    """What a loaded piece holds otherwise than the one that was saved: class, attribute, whether a row a worker."""
    declared = {*piece.rows, *piece.shared}
    parts, twins = dict(piece.parts()), dict(fresh.parts())
    ours = type(piece).__module__.startswith("commeff.")
    for name, value in vars(piece).items():
        if not ours and name not in declared and not _alike(value, vars(fresh).get(name)):
            yield type(piece).__name__, name, isinstance(value, Tensor) and value.shape[:1] == (WORKERS,)
    for name in parts.keys() & twins.keys():
        yield from _forgotten(parts[name], twins[name])


def _alike(value: Any, other: Any) -> bool:
    """Whether two plain values are equal; what is not plain, a part or a callable, is not compared."""
    if isinstance(value, Tensor) or isinstance(other, Tensor):
        return isinstance(value, Tensor) and isinstance(other, Tensor) and torch.equal(value, other)
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(_alike, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_alike(value[key], other[key]) for key in value)
    plain = (int, float, str, type(None))
    return not isinstance(value, plain) or not isinstance(other, plain) or value == other


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
        if isinstance(item, Tensor):
            storage = item.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        inside = gc.get_referents(item)
        references += len(inside)
        front += inside
    return references + sum(storages.values())
