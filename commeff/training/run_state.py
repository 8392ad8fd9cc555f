"""A run as named tensors and plain values, from which other processes, and another mesh, go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from commeff.communicator.ledger import TOTALS, whole
from commeff.compressors.boxes import Boxes, Shape, Whereabouts
from commeff.core.addresses import Address
from commeff.core.saving import BoxNames, Fresh, MemoryLoader, MemorySaver, NamedBox

if TYPE_CHECKING:
    from commeff.training.run import Run

LOG = logging.getLogger(__name__)

EQUAL = ("counted", "step", "seconds", "exposed", "samples", "row", "began")  # what is one for a whole run
MODEL = "model"  # under which parameters are saved


class OtherRun(ValueError):
    """A state that is of another model or method."""


def collect(run: Run) -> dict[str, Any]:
    """What a checkpoint holds of this process: `Boxes` by name as `tensors`, and plain values. Nothing is copied."""
    replicas, where, workers = run.replicas.state_dict(), run.replicas.where, run.communicator.workers
    saver = MemorySaver(BoxNames(where.lent, workers, run.communicator.n))
    run.strategy.drain()
    run.strategy.exchange(Address(where.spans), saver)
    saver.rows(_model(where), replicas["parameters"])
    for name, rows in (_parts(replicas) | _counts(run, replicas)).items():
        saver.put([_place(run, name, rows)], rows)
    about = {"workers": run.communicator.n, "mesh": dict(run.replicas.degrees), "strategy": saver.values}
    return {name: getattr(run, name) for name in EQUAL} | about | {"tensors": saver.saved}


def reader(run: Run, state: Mapping[str, Any], method: str, shapes: Mapping[str, Shape]) -> Callable[[], None]:
    """What lets a run go on from a checkpoint, once that is read; until it is called, nothing changes.

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
        raise OtherRun(f"must be of the method {run.method}, got one of {method}")
    values = {name: state[name] for name in EQUAL}
    values["began"] = values["began"] or run.began
    for name, value in values.items():
        if type(value) is not type(getattr(run, name)):
            raise TypeError(f"{name} is another kind of thing")
    at, replicas = Address(where.spans), run.replicas.state_dict()
    memories: Fresh | MemoryLoader = Fresh(state["strategy"])
    counts, parts = _read_counts(run, replicas, saved, state), dict[str, Tensor]()
    if same:
        memories = MemoryLoader(BoxNames(where, run.communicator.workers, run.communicator.n), saved, state["strategy"])
        run.strategy.drain()
        run.strategy.exchange(at, memories)
        memories.rows(_model(where), replicas["parameters"])
        memories.arrived = True
        parameters = memories.rows(_model(where), replicas["parameters"])
        parts = _read_parts(run, replicas, saved, state)
    else:
        rows = run.replicas.parameters
        parameters = _mean_row(saved, where, state["workers"]).to(rows).expand_as(rows)

    def go_on() -> None:
        for name, value in values.items():
            setattr(run, name, value)
        run.losses = counts["losses"].to(run.losses)
        totals = dict(zip(TOTALS, map(whole, counts["ledger"][0].tolist()), strict=True))
        run.communicator.ledger.load_state_dict(totals)
        run.replicas.load_state_dict(_replicas(replicas, parameters, counts, parts))
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

    return go_on


def mean_model(state: Mapping[str, Any], where: Whereabouts) -> Tensor:
    """The mean (d,) of all workers' parameters in a checkpoint, in float64.

    Parameters
    ----------
    state : mapping
        What the checkpoint holds.
    where : Whereabouts
        Of the columns.
    """
    saved = {name: Boxes(*boxes) for name, boxes in state["tensors"].items()}
    _compare_models(saved, where.shapes)
    return _mean_row(saved, where, state["workers"])[0]


def _model(where: Whereabouts) -> Address:
    return Address(where.spans, MODEL, MODEL)


def _mean_row(saved: Mapping[str, Boxes], where: Whereabouts, workers: int) -> Tensor:
    """(1, d): one tensor of all workers at a time is in memory."""
    at = _model(where)
    mean = torch.empty(1, at.width, dtype=torch.float64)
    for place in BoxNames(where).of(at, (workers, at.width), True):
        mean[place.part] = saved[place.name].read(place.offsets, place.sizes).double().mean(0).reshape(1, -1)
    return mean


def _compare_models(saved: Mapping[str, Boxes], own: Mapping[str, Shape]) -> None:
    start = f"{MODEL}/"
    theirs = {name[len(start) :]: boxes.shape[1:] for name, boxes in saved.items() if name.startswith(start)}
    for name in sorted(theirs.keys() | own.keys()):
        if theirs.get(name) != own.get(name):
            mine, other = own.get(name, "no tensor"), theirs.get(name, "none")
            raise OtherRun(f"must be of this run's model, in which {name} is {mine}, got one where it is {other}")


def _parts(replicas: Mapping[str, Any]) -> dict[str, Tensor]:
    """What the hosted workers' models remember beside their parameters: buffers, and numbers such as a loss scale."""
    found = {f"buffers/{name}": rows for name, rows in replicas["buffers"].items()}
    for part, numbers in _numbers(replicas).items():
        found |= {f"{part}/{name}": torch.as_tensor(value).double().reshape(-1) for name, value in numbers.items()}
    return found


def _counts(run: Run, replicas: Mapping[str, Any]) -> dict[str, Tensor]:
    """What this process counts for itself, with a row for each hosted worker: losses since the last row, and bytes."""
    ledger, w = run.communicator.ledger, len(run.communicator.workers)
    found = {"losses": run.losses, "ledger": torch.tensor([getattr(ledger, name) for name in TOTALS]).expand(w, -1)}
    for name, family in replicas.get("axes", {}).items():
        found[f"axes/{name}"] = torch.tensor(family).flatten().expand(w, -1)
    return {name: rows.double().cpu() for name, rows in found.items()}


def _numbers(replicas: Mapping[str, Any]) -> dict[str, Mapping[str, Tensor | float]]:
    return {name: part for name, part in replicas.items() if name not in ("parameters", "buffers", "axes")}


def _place(run: Run, name: str, rows: Tensor, rank: int | None = None) -> NamedBox:
    """Where such rows are saved: those of each rank of a worker apart."""
    if rank is None:
        rank = run.everybody.transport.rank % _ranks(run.replicas.degrees)
    shape, first = tuple(rows.shape), run.communicator.workers[0]
    return NamedBox(f"rank{rank}/{name}", (run.communicator.n, *shape[1:]), (first, *(0 for _ in shape[1:])), shape)


def _read_parts(
    run: Run, replicas: Mapping[str, Any], saved: Mapping[str, Boxes], state: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Those that were saved of this rank; on another mesh, of the first one."""
    found = {}
    for name, rows in _parts(replicas).items():
        place = _place(run, name, rows, None if state["mesh"] == run.replicas.degrees else 0)
        boxes = saved.get(place.name)
        if boxes is not None and (boxes.shape, boxes.dtype) == (place.shape, rows.dtype):
            found[name] = boxes.read(place.offsets, place.sizes)
    return found


def _read_counts(
    run: Run, replicas: Mapping[str, Any], saved: Mapping[str, Boxes], state: Mapping[str, Any]
) -> dict[str, Tensor]:
    """What this process had counted; on another mesh, what a worker had stays what it was."""
    if (state["workers"], state["mesh"]) == (run.communicator.n, run.replicas.degrees):
        places = {name: _place(run, name, rows) for name, rows in _counts(run, replicas).items()}
        for place in places.values():
            if saved[place.name].shape != place.shape:
                raise ValueError(f"{place.name} must have shape {place.shape}, got {saved[place.name].shape}")
        return {name: saved[place.name].read(place.offsets, place.sizes) for name, place in places.items()}
    found, ranks = {}, _ranks(state["mesh"])
    for name in (key.removeprefix("rank0/") for key in saved if key.startswith(("rank0/axes/", "rank0/ledger"))):
        each = torch.stack([saved[f"rank{rank}/{name}"].whole() for rank in range(ranks)])
        found[name] = each.mean((0, 1))[None] * (ranks / _ranks(run.replicas.degrees))
    losses = torch.stack([saved[f"rank{rank}/losses"].whole() for rank in range(ranks)])
    return found | {"losses": losses.mean().expand(len(run.communicator.workers))}


def _replicas(
    replicas: dict[str, Any], parameters: Tensor, counts: Mapping[str, Tensor], parts: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The state of the models to go on with."""
    given = replicas | {"parameters": parameters, "buffers": dict(replicas["buffers"])}
    if "axes" in replicas:
        given["axes"] = {name: _family(own, counts.get(f"axes/{name}")) for name, own in replicas["axes"].items()}
    for name, rows in parts.items():
        part, key = name.split("/", 1)
        given[part] = given[part] | {key: _like(replicas[part][key], rows)}
    return given


def _like(own: Tensor | float, rows: Tensor) -> Tensor | float:
    """Numbers in the form of a process's own."""
    return rows.to(own) if isinstance(own, Tensor) else type(own)(rows.item())


def _ranks(degrees: Mapping[str, int]) -> int:
    """Over how many processes a worker lies."""
    return prod(degrees.values()) // degrees.get("worker", 1)


def _family(own: list[list[float]], saved: Tensor | None) -> list[list[float]]:
    """Bytes and seconds of an axis and those within it; from another mesh, all of them are the axis's."""
    if saved is None:
        return own
    pairs = saved.reshape(-1, 2)
    return pairs.tolist() if len(pairs) == len(own) else [pairs.sum(0).tolist(), *([0.0, 0.0] for _ in own[1:])]
