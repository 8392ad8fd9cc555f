"""What a method remembers is declared, so a saved state and a fresh strategy make the same run; and does not grow."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from commeff.boxes import Boxes, ColumnMap
from commeff.communicator import Communicator, Ledger
from commeff.core.addresses import Address, BoxNames
from commeff.core.saving import MemoryLoader, MemorySaver
from commeff.core.strategy import Stateful, Strategy
from commeff.laws.engines import rehearse
from commeff.laws.problem import LAYOUT, STEPS, WORKERS, MethodCase, elsewhere, falling, plain_run, run, slope, start

FAR = 100  # where no worker comes that begins within 3 of the optimum
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
        for step, after in enumerate(_go_on(fresh, x, later, stop), stop):
            assert torch.equal(after, whole[step]), (
                f"{case.name}: resumed after step {stop}, it differs at step {step} by "
                f"{float((after - whole[step]).abs().max()):.1e}: {_advice(forgotten)}"
            )


def _go_on(strategy: Strategy, x: Tensor, communicator: Communicator, stop: int) -> Iterator[Tensor]:
    """The rows after each step from `stop` on."""
    for communicator.step in range(stop, STEPS):
        communicator.context.losses = falling(communicator)
        gradients = elsewhere(communicator.step, communicator.workers)
        x = strategy.step(x, gradients(x), communicator, gradients)
        yield x


def resumes_on_other_processes(case: MethodCase) -> None:
    """What two processes have saved lets a process for each worker go on, as checkpoints do it."""
    whole, stop, at = plain_run(case)[0], STEPS // 2, Address.of(LAYOUT.d)

    def names(communicator: Communicator) -> BoxNames:
        return BoxNames(ColumnMap.of(LAYOUT), communicator.workers, WORKERS)

    def save(communicator: Communicator) -> MemorySaver:
        strategy, saver = case.build(WORKERS), MemorySaver(names(communicator))
        run(strategy, steps=stop, communicator=communicator)
        strategy.drain()
        strategy.exchange(at, saver)
        return saver

    def load(communicator: Communicator) -> Tensor:
        strategy, workers = case.build(WORKERS), list(communicator.workers)
        strategy.start(start()[workers], LAYOUT, communicator)
        loader = MemoryLoader(names(communicator), copy.deepcopy(tensors), processes[0].values)
        for loader.arrived in (False, True):
            strategy.exchange(at, loader)
        return torch.stack([*_go_on(strategy, whole[stop - 1, workers], communicator, stop)])

    tensors: dict[str, Boxes] = {}
    try:
        processes = rehearse(2, WORKERS, save)
        for name, boxes in (item for process in processes for item in process.saved.items()):
            for offsets, box in boxes.boxes.items():
                tensors.setdefault(name, Boxes(boxes.shape)).put(offsets, box)
        difference = float((torch.cat(rehearse(WORKERS, WORKERS, load), 1) - whole[stop:]).abs().max())
        fault = f"differs by {difference:.1e}" if not difference <= 1e-12 else ""
    except Exception as error:
        fault = f"fails ({type(error).__name__}: {error})"
    assert not fault, (
        f"{case.name}: saved by 2 processes and loaded by {WORKERS}, it {fault}: name what has a row for each hosted "
        "worker in `rows`, and what is equal on every process, or has communicator.servers rows, in `shared`"
    )


def _advice(forgotten: list[tuple[Stateful, str, bool]]) -> str:
    if not forgotten:
        return "it remembers something outside its attributes; keep it in one, named in `rows` or `shared`"
    piece, name, one_row_a_worker = min(forgotten, key=lambda memory: memory[1].startswith("_"))
    owner, kind = type(piece).__name__, "rows" if one_row_a_worker else "shared"
    names = (*getattr(piece, kind), name.lstrip("_"))
    hidden = ", without the underscore, which marks what is not saved" if name.startswith("_") else ""
    return f"{owner}.{name} is not in the saved state: write {kind} = {names} in class {owner}{hidden}"


def _forgotten(piece: Stateful, fresh: Stateful) -> Iterator[tuple[Stateful, str, bool]]:
    """What a loaded piece holds otherwise than the one that was saved: the piece, attribute, whether a row a worker."""
    declared = {*piece.rows, *piece.shared}
    parts, twins = dict(piece.parts()), dict(fresh.parts())
    built_in = type(piece).__module__.startswith("commeff.")
    for name, value in vars(piece).items():
        if not built_in and name not in declared and not _alike(value, vars(fresh).get(name)):
            yield piece, name, isinstance(value, Tensor) and value.shape[:1] == (WORKERS,)
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
    """What the method and the communicator hold after many steps, they held after a few; and x stays near."""
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
    assert x.abs().max() < FAR, (
        f"{case.name}: after {many} steps on a mild quadratic x has grown to {float(x.abs().max()):.1e}: what feeds an "
        "error back takes contractive(C) in place of a compressor C, or the encoder ErrorFeedback(C)"
    )
    return sizes


def held(roots: list[Any]) -> int:
    """References and bytes of tensors among all that can be reached, code apart.

    >>> held([[0.5, 1.5]]) + 1 == held([[0.5, 1.5, 2.5]])
    True
    """
    visited: dict[int, Any] = {}
    storages: dict[int, int] = {}
    references, front = 0, list(roots)
    while front:
        item = front.pop()
        if id(item) in visited or isinstance(item, CODE):
            continue
        visited[id(item)] = item
        if isinstance(item, Tensor):
            storage = item.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        inside = gc.get_referents(item)
        references += len(inside)
        front += inside
    return references + sum(storages.values())
