"""A run as named tensors and plain values, from which other processes, and another mesh, go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from math import prod
from string import ascii_letters, digits
from typing import Any

import torch
from torch import Tensor

from commeff.boxes import Boxes, ColumnMap, Shape
from commeff.communicator.ledger import TOTALS, whole
from commeff.core.addresses import Address, BoxNames, NamedBox
from commeff.core.saving import Fresh, MemoryLoader, MemorySaver
from commeff.training.run import Run

LOG = logging.getLogger(__name__)

EQUAL = ("counted", "step", "seconds", "exposed", "samples", "row", "began")  # what is one for a whole run
COUNTED = ("losses", "ledger", "axes")  # what each process counts for itself
MODEL = "model"  # under which parameters are saved
LOCAL = "rank"  # and with a number what each process has for itself


class OtherRun(ValueError):
    """A state that is of another model or method."""


def collect(run: Run) -> dict[str, Any]:
    """What a checkpoint holds of this process: `Boxes` by name as `tensors`, and plain values. Nothing is copied."""
    replicas, where, workers = run.replicas.state_dict(), run.replicas.where, run.communicator.workers
    saver = MemorySaver(BoxNames(where.owned, workers, run.communicator.n))
    run.strategy.drain()
    run.strategy.exchange(Address(where.spans), saver)
    saver.rows(_model(where), replicas["parameters"])
    for name, rows in _local(run, replicas).items():
        saver.put([_named(run, name, rows)], rows)
    about = {"workers": run.communicator.n, "mesh": dict(run.replicas.degrees), "strategy": saver.values}
    return {name: getattr(run, name) for name in EQUAL} | about | {"tensors": saver.saved}


def snapshot(run: Run) -> dict[str, Any]:
    """The same, copied: from a GPU into pinned memory, with one wait for all of it."""
    state = collect(run)
    for boxes in state["tensors"].values():
        boxes.boxes = {at: box.detach().to("cpu", copy=True, non_blocking=True) for at, box in boxes.boxes.items()}
    torch.get_device_module(run.losses.device).synchronize()
    return state


def read_state(
    run: Run, state: Mapping[str, Any], method: str, shapes: Mapping[str, Shape]
) -> tuple[Callable[[], None], Set[str]]:
    """What lets a run go on from a checkpoint, once that is read; until it is called, nothing changes. And the names of
    memories that this process does not use, where some process should.

    Parameters
    ----------
    run : Run
        The run.
    state : mapping
        What is saved of all processes, as `collect` gave it, with tensors in plain lists.
    method : str
        Of the run that saved it, in words.
    shapes : mapping of str to tuple of int
        Of the whole tensors of the run's model.

    Raises
    ------
    OtherRun
        It is a checkpoint of another model or method.
    """
    saved = {name: Boxes(*boxes) for name, boxes in state["tensors"].items()}
    _compare_models(saved, shapes)
    same, where = state["workers"] == run.communicator.n, run.replicas.where
    if same and method != run.method:
        place = next((i for i, pair in enumerate(zip(run.method, method, strict=False)) if len({*pair}) > 1), 0)
        mine, other = (_call_at(place, call) for call in (run.method, method))
        raise OtherRun(f"must be of this run's method, in which there is {mine}, got one where it is {other}")
    values = {name: state[name] for name in EQUAL}
    values["began"] = values["began"] or run.measure_start()
    for name, value in values.items():
        if type(value) is not type(getattr(run, name)):
            raise TypeError(f"{name} is another kind of thing")
    at, replicas = Address(where.spans), run.replicas.state_dict()
    unused: Set[str] = frozenset()
    memories: Fresh | MemoryLoader = Fresh(state["strategy"])
    local = _read_local(run, replicas, saved, state)
    if same:
        memories = MemoryLoader(BoxNames(where, run.communicator.workers, run.communicator.n), saved, state["strategy"])
        run.strategy.drain()
        run.strategy.exchange(at, memories)
        memories.rows(_model(where), replicas["parameters"])
        memories.arrived = True
        parameters = memories.rows(_model(where), replicas["parameters"])
        if state["mesh"] == run.replicas.degrees:
            memory_names = {name for name in saved if not name.startswith(LOCAL)}
            unused = (memory_names | state["strategy"].keys()) - memories.used
    else:
        rows = run.replicas.parameters
        parameters = _mean_row(saved, where, state["workers"]).to(rows).expand_as(rows)

    def go_on() -> None:
        for name, value in values.items():
            setattr(run, name, value)
        run.losses = local["losses"].to(run.losses).expand_as(run.losses)
        totals = dict(zip(TOTALS, map(whole, local["ledger"][0].tolist()), strict=True))
        run.communicator.ledger.load_state_dict(totals)
        run.replicas.load_state_dict(_replicas(replicas, parameters, local))
        if not same:
            run.strategy.start(run.replicas.parameters, run.replicas.layout, run.communicator)
            if not run.everybody.transport.rank:
                LOG.warning(
                    "the checkpoint is of %d workers, the run of %d: all begin at the mean of its parameters, and what "
                    "the method and its optimizers remember begins anew",
                    state["workers"],
                    run.communicator.n,
                )
        run.strategy.exchange(at, memories)

    return go_on, unused


def mean_model(state: Mapping[str, Any], where: ColumnMap) -> Tensor:
    """The mean (d,) of all workers' parameters in a checkpoint, in float64.

    Parameters
    ----------
    state : mapping
        What the checkpoint holds.
    where : ColumnMap
        Of the columns.
    """
    saved = {name: Boxes(*boxes) for name, boxes in state["tensors"].items()}
    _compare_models(saved, where.shapes)
    return _mean_row(saved, where, state["workers"])[0]


def _model(where: ColumnMap) -> Address:
    return Address(where.spans, MODEL, MODEL)


def _mean_row(saved: Mapping[str, Boxes], where: ColumnMap, workers: int) -> Tensor:
    """(1, d): one tensor of all workers at a time is in memory."""
    at = _model(where)
    mean = torch.empty(1, at.width, dtype=torch.float64)
    for box in BoxNames(where).of(at, (workers, at.width), True):
        mean[box.part] = saved[box.name].read(box.offsets, box.sizes).double().mean(0).reshape(1, -1)
    return mean


def _call_at(at: int, words: str) -> str:
    """The innermost call around a place in a strategy's words, or in a piece of code.

    >>> _call_at(14, "Delayed(Every(8, Average()), 2)"), _call_at(29, "Delayed(Every(8, Average()), 2)")
    ('Every(8, Average())', 'Delayed(Every(8, Average()), 2)')
    """
    calls: list[int] = []  # where those begin that are open
    for place, letter in enumerate(words):
        if letter == "(":
            calls.append(place)
        elif letter == ")" and calls:
            begin = calls.pop()
            if begin < at <= place:
                return words[len(words[:begin].rstrip(ascii_letters + digits + "_")) : place + 1]
    return words


def _compare_models(saved: Mapping[str, Boxes], shapes: Mapping[str, Shape]) -> None:
    start = f"{MODEL}/"
    saved_shapes = {name[len(start) :]: boxes.shape[1:] for name, boxes in saved.items() if name.startswith(start)}
    for name in sorted(saved_shapes.keys() | shapes.keys()):
        if saved_shapes.get(name) != shapes.get(name):
            mine, other = shapes.get(name, "no tensor"), saved_shapes.get(name, "none")
            raise OtherRun(f"must be of this run's model, in which {name} is {mine}, got one where it is {other}")


def _local(run: Run, replicas: Mapping[str, Any]) -> dict[str, Tensor]:
    """What a process has for itself, a row for each hosted worker: what it counted, buffers, and loss scales."""
    ledger = [float(getattr(run.communicator.ledger, name)) for name in TOTALS]
    values: dict[str, Any] = {"losses": run.losses, "ledger": [ledger] * len(run.communicator.workers)}
    for part in (part for part in replicas if part != "parameters"):
        values |= {f"{part}/{name}": value for name, value in replicas[part].items()}
    for name, value in values.items():
        if not name.startswith("buffers/"):
            rows = torch.as_tensor(value, dtype=torch.float64, device="cpu")
            values[name] = rows.reshape(1, -1) if name.startswith("axes/") else torch.atleast_1d(rows)
    return values


def _named(run: Run, name: str, rows: Tensor, rank: int | None = None) -> NamedBox:
    """Where such rows are saved: those of each rank of a worker apart."""
    if rank is None:
        rank = run.everybody.transport.rank % _ranks(run.replicas.degrees)
    shape, first = tuple(rows.shape), run.communicator.workers[0]
    return NamedBox(f"{LOCAL}{rank}/{name}", (run.communicator.n, *shape[1:]), (first, *(0 for _ in shape[1:])), shape)


def _read_local(
    run: Run, replicas: Mapping[str, Any], saved: Mapping[str, Boxes], state: Mapping[str, Any]
) -> dict[str, Tensor]:
    """What this process had; on another mesh what the first one had, and of what is counted what a worker had."""
    workers = state["workers"] == run.communicator.n
    same, ranks = workers and state["mesh"] == run.replicas.degrees, _ranks(state["mesh"])
    values: dict[str, Tensor] = {}
    for name, rows in _local(run, replicas).items():
        if name.partition("/")[0] in COUNTED and not same:
            rows_of_ranks = [saved[key].whole() for rank in range(ranks) if (key := f"{LOCAL}{rank}/{name}") in saved]
            share = 1.0 if name == "losses" else ranks / _ranks(run.replicas.degrees)
            values |= {name: torch.cat(rows_of_ranks).mean(0, keepdim=True) * share} if rows_of_ranks else {}
            continue
        box = _named(run, name, rows, None if same else 0)
        boxes = saved[box.name] if same else saved.get(box.name)
        if workers and boxes is not None and (same or (boxes.shape, boxes.dtype) == (box.shape, rows.dtype)):
            if boxes.shape != box.shape:
                raise ValueError(f"{box.name} must have shape {box.shape}, got {boxes.shape}")
            values[name] = boxes.read(box.offsets, box.sizes)
    return values


def _replicas(replicas: Mapping[str, Any], parameters: Tensor, local: Mapping[str, Tensor]) -> dict[str, Any]:
    """The state of the models to go on with."""
    parts = {name: dict(part) for name, part in replicas.items() if name != "parameters"}
    for key, rows in local.items():
        part, _, name = key.partition("/")
        if part == "axes":
            parts[part][name] = _family(parts[part][name], rows)
        elif name:
            before = parts[part][name]
            parts[part][name] = rows.to(before) if isinstance(before, Tensor) else type(before)(rows.item())
    return parts | {"parameters": parameters}


def _ranks(degrees: Mapping[str, int]) -> int:
    """Over how many processes a worker lies."""
    return prod(degrees.values()) // degrees.get("worker", 1)


def _family(current: list[list[float]], saved: Tensor) -> list[list[float]]:
    """Bytes and seconds of an axis and those within it; from another mesh, all of them are the axis's."""
    pairs = saved.reshape(-1, 2)
    return pairs.tolist() if len(pairs) == len(current) else [pairs.sum(0).tolist(), *([0.0, 0.0] for _ in current[1:])]
