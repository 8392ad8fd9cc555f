"""What a process of a run saves, and what it takes of a checkpoint that another mesh may have written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from commeff.communicator.ledger import TOTALS, whole
from commeff.core.addresses import Address
from commeff.parallelism.boxes import Whereabouts
from commeff.parallelism.saved import Held, needed
from commeff.parallelism.stored import Foreign, Savers, Stored
from commeff.training.named import Anew, MemoryLoader, MemorySaver, Named

if TYPE_CHECKING:
    from commeff.training.run import Run

LOG = logging.getLogger(__name__)

EQUAL = ("counted", "step", "seconds", "exposed", "samples", "row", "began")  # what is one for a whole run


@dataclass
class Found:
    """What a process has read of a checkpoint, before anything changes.

    Attributes
    ----------
    state : dict
        What is no tensor.
    parameters : (w, d)
        The process's rows.
    memories : MemoryLoader or Anew
        What the strategy gets.
    buffers : dict of str to (w, ...)
        Those of the process's models that were saved.
    numbers : dict of str to Tensor
        What the process counts for itself.
    parts : dict of str to dict of str to Tensor
        What else belongs to its worker, such as a loss scale.
    """

    state: Mapping[str, Any]
    parameters: Tensor
    memories: MemoryLoader | Anew
    buffers: dict[str, Tensor]
    numbers: dict[str, Tensor]
    parts: dict[str, dict[str, Tensor]] = field(default_factory=dict)


class OwnState:
    """A process's part of a run's state. All processes make it at once.

    Parameters
    ----------
    run : Run
        The run.
    ranks : Savers
        All its processes.
    """

    def __init__(self, run: Run, ranks: Savers) -> None:
        self._run, self._ranks, self._where = run, ranks, run.replicas.where
        self._workers = [f"worker{worker}" for worker in run.communicator.workers]
        self._degrees = dict(run.replicas.degrees)
        self._pieces = _pieces(self._degrees)
        self._at = Address(self._where.spans)
        self._model = model_at(self._where)
        self._shapes: dict[str, tuple[int, ...]] = {}
        for shapes in ranks.all(dict(self._where.shapes)):
            self._shapes |= {name: tuple(shape) for name, shape in shapes.items()}

    def collected(self) -> tuple[dict[str, Held], dict[str, Any]]:
        """The tensors of which this process has boxes, in memory of their own, and what is no tensor."""
        run, named = self._run, Named(self._where.lent, self._run.communicator.workers)
        saver, replicas = MemorySaver(named), run.replicas.state_dict()
        run.strategy.drain()
        run.strategy.exchange(self._at, saver)
        saver.rows(self._model, replicas["parameters"])
        for name, rows in replicas["buffers"].items():
            for worker, row in zip(self._workers, rows, strict=True):
                named.whole(f"{worker}/buffers/{self._ranks.rank % self._pieces}/{name}", row)
        for name, part in _parts(replicas).items():
            for key, numbers in part.items():
                for worker, number in zip(self._workers, _each(numbers), strict=True):
                    named.whole(f"{worker}/{name}/{key}", number)
        for name, numbers in self._numbers(replicas).items():
            every = named.held.setdefault(f"ranks/{name}", Held((self._ranks.size, len(numbers))))
            every.put((self._ranks.rank, 0), numbers[None])
        for held in named.held.values():
            held.boxes = {at: box.detach().to("cpu", copy=True) for at, box in held.boxes.items()}
        about = {"workers": run.communicator.n, "mesh": self._degrees}
        return named.held, about | {"run": {name: getattr(run, name) for name in EQUAL}, "strategy": saver.values}

    def _numbers(self, replicas: Mapping[str, Any]) -> dict[str, Tensor]:
        """What this process counts for itself: losses since the last row, and what was sent."""
        ledger = self._run.communicator.ledger
        numbers = {"losses": self._run.losses, "ledger": torch.tensor([getattr(ledger, name) for name in TOTALS])}
        axes = {f"axes/{name}": torch.tensor(family) for name, family in replicas.get("axes", {}).items()}
        return {name: value.flatten().double().cpu() for name, value in (numbers | axes).items()}

    def read(self, stored: Stored, state: Mapping[str, Any], method: str) -> Found:
        """What this process goes on with; nothing is changed yet.

        Raises
        ------
        Foreign
            It is a checkpoint of another model or method.
        """
        self._same_model(stored)
        same = state["workers"] == self._run.communicator.n
        if same and method != self._run.method:
            raise Foreign(f"must be of the method {self._run.method}, got one of {method}")
        return self._continued(stored, state) if same else self._averaged(stored, state)

    def _same_model(self, stored: Stored) -> None:
        start = "worker0/model/"
        saved = {name[len(start) :]: kind.shape for name, kind in stored.kinds.items() if name.startswith(start)}
        own = {name: shape or (1,) for name, shape in self._shapes.items()}
        for name in sorted(saved.keys() | own.keys()):
            if saved.get(name) != own.get(name):
                mine, other = own.get(name, "no tensor"), saved.get(name, "none")
                raise Foreign(f"must be of this run's model, in which {name} is {mine}, got one where it is {other}")

    def _continued(self, stored: Stored, state: Mapping[str, Any]) -> Found:
        run, named = self._run, Named(self._where, self._run.communicator.workers)
        memories = MemoryLoader(named, stored.kinds, state["strategy"], run.replicas.parameters.device)
        run.strategy.drain()
        run.strategy.exchange(self._at, memories)
        memories.rows(self._model, run.replicas.parameters)
        place = self._ranks.rank % self._pieces if state["mesh"] == self._degrees else 0
        buffers = {}
        for name, rows in run.replicas.state_dict()["buffers"].items():
            names = [f"{worker}/buffers/{place}/{name}" for worker in self._workers]
            if all(stored.kinds.get(each, None) == (tuple(rows.shape[1:]), rows.dtype) for each in names):
                buffers[name] = torch.empty_like(rows, device="cpu")
                for each, row in zip(names, buffers[name], strict=True):
                    named.whole(each, row)
        parts: dict[str, dict[str, Tensor]] = {}
        for name, part in _parts(run.replicas.state_dict()).items():
            for key in (key for key in part if f"{self._workers[0]}/{name}/{key}" in stored.kinds):
                numbers = parts.setdefault(name, {})[key] = torch.empty(len(self._workers), dtype=torch.float64)
                for worker, number in zip(self._workers, numbers, strict=True):
                    named.whole(f"{worker}/{name}/{key}", number)
        tables = self._tables(stored, named)
        _read(stored, named.held)
        memories.arrived = True
        parameters = memories.rows(self._model, run.replicas.parameters)
        return Found(state, parameters, memories, buffers, self._own_numbers(tables, state), parts)

    def _averaged(self, stored: Stored, state: Mapping[str, Any]) -> Found:
        """The mean of all workers' parameters; memories begin anew."""
        rows, named = self._run.replicas.parameters, Named(self._where, [])
        mean = mean_row(stored, self._where, state["workers"])
        tables = self._tables(stored, named)
        _read(stored, named.held)
        numbers = self._own_numbers(tables, state)
        return Found(state, mean.to(rows).expand_as(rows), Anew(state["strategy"]), {}, numbers)

    def _tables(self, stored: Stored, named: Named) -> dict[str, Tensor]:
        """(processes, numbers): where what each process counted for itself is to be read to."""
        tables = {}
        for name, kind in stored.kinds.items():
            if name.startswith("ranks/"):
                tables[name.removeprefix("ranks/")] = table = torch.empty(kind.shape, dtype=kind.dtype)
                named.whole(name, table)
        return tables

    def _own_numbers(self, tables: Mapping[str, Tensor], state: Mapping[str, Any]) -> dict[str, Tensor]:
        """This process's numbers: as they were on this mesh; on another, those of a worker stay what they were."""
        alike = state["mesh"] == self._degrees and tables["losses"].shape[1] == len(self._workers)
        if alike and all(len(table) == self._ranks.size for table in tables.values()):
            return {name: table[self._ranks.rank] for name, table in tables.items()}
        share = _pieces(state["mesh"]) / self._pieces
        means = {name: table.mean(0) * (1 if name == "losses" else share) for name, table in tables.items()}
        return means | {"losses": means["losses"].mean().expand(len(self._workers))}

    def take(self, found: Found) -> None:
        """Go on with what was read; all processes call it."""
        run, values = self._run, found.state["run"]
        for name in EQUAL:
            setattr(run, name, values[name])
        run.losses = found.numbers["losses"].to(run.losses)
        totals = dict(zip(TOTALS, map(whole, found.numbers["ledger"].tolist()), strict=True))
        run.communicator.ledger.load_state_dict(totals)
        replicas = run.replicas.state_dict()
        if "axes" in replicas:
            replicas["axes"] = {n: _family(f, found.numbers.get(f"axes/{n}")) for n, f in replicas["axes"].items()}
        replicas["parameters"] = found.parameters
        replicas["buffers"] |= found.buffers
        for name, part in found.parts.items():
            replicas[name] |= {key: _like(replicas[name][key], numbers) for key, numbers in part.items()}
        run.replicas.load_state_dict(replicas)
        if isinstance(found.memories, Anew):
            run.strategy.start(run.replicas.parameters, run.replicas.layout, run.communicator)
            if not self._ranks.rank:
                LOG.warning(
                    "the checkpoint is of %d workers, the run of %d: all begin at the mean of its parameters, and what "
                    "the method and its optimizers remember begins anew",
                    found.state["workers"],
                    run.communicator.n,
                )
        run.strategy.exchange(self._at, found.memories)


def _each(numbers: Tensor | float) -> Tensor:
    """(w,): a number of each hosted worker, or that of the only one."""
    return torch.as_tensor(numbers, dtype=torch.float64).reshape(-1)


def _like(own: Tensor | float, numbers: Tensor) -> Tensor | float:
    """Numbers of the hosted workers in the form of a process's own."""
    return numbers.to(own) if isinstance(own, Tensor) else type(own)(numbers.item())


def _parts(replicas: Mapping[str, Any]) -> dict[str, Mapping[str, Tensor | float]]:
    """What a worker's models remember beside tensors and counts, as numbers by name."""
    return {name: part for name, part in replicas.items() if name not in ("parameters", "buffers", "axes")}


def model_at(where: Whereabouts) -> Address:
    """Under which names parameters are saved."""
    return replace(Address(where.spans), path="model", name="model")


def mean_row(stored: Stored, where: Whereabouts, workers: int) -> Tensor:
    """(1, d): the mean of all workers' parameters, in float64; those of one worker at a time are in memory."""
    at = model_at(where)
    mean = torch.zeros(1, at.width, dtype=torch.float64)
    for worker in range(workers):
        named, row = Named(where, [worker]), torch.empty_like(mean[0])
        named.put(f"worker{worker}", at, row)
        _read(stored, named.held)
        mean += row / workers
    return mean


def _read(stored: Stored, wanted: Mapping[str, Held]) -> None:
    try:
        items = needed(wanted, stored.tensors)
    except ValueError as error:
        raise Foreign(str(error)) from None
    stored.read(items, wanted)


def _pieces(degrees: Mapping[str, int]) -> int:
    """Over how many processes a worker lies."""
    return prod(degrees.values()) // degrees.get("worker", 1)


def _family(mine: list[list[float]], saved: Tensor | None) -> list[list[float]]:
    """Bytes and seconds of an axis and those within it; from another mesh, all of them are the axis's."""
    if saved is None:
        return mine
    pairs = saved.reshape(-1, 2)
    return pairs.tolist() if len(pairs) == len(mine) else [pairs.sum(0).tolist(), *([0.0, 0.0] for _ in mine[1:])]
