"""The most memory of a run's first process, from its own code, played on tensors that take none.

Beside what lives at once, a process has holes. glibc's cache of a thread holds up to seven cut ends of each size, and a
freed block beside one is too small for the next tensor (`commeff.compressors.scratch.keep_freed_memory`). Temporaries
of three rows beside a row took 6.1 rows after 4 steps, and no more after 24; with glibc.malloc.tcache_count=0 they took
4.2. How many ends lie there depends on the rest of the process, so HOLES is assumed: measured holes were 0.4 to 1.5.
"""

from __future__ import annotations

import os
import resource
import sys
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from commeff.communicator import Communicator
from commeff.core.strategy import Strategy
from commeff.experiments.run.local import model_bytes
from commeff.experiments.tasks.shapes import shapes_only
from commeff.profiling import Profile
from commeff.profiling.live import preserved
from commeff.profiling.rehearsal import Blank
from commeff.replicas import ShardedWorker
from commeff.replicas.engines import engine_in
from commeff.sharding.played import alone
from commeff.sharding.schedules import SCHEDULES
from commeff.training.evaluation import measure_final, yardsticks_of_pieces
from commeff.training.on_device import OnDevice
from commeff.training.run import Run
from commeff.training.run_state import collect
from commeff.training.task import Task, objective

ATEN = torch.ops.aten
HOLES = 0.5  # of the bytes that come and go


class Peak(TorchDispatchMode):
    """Counts the tensors that are made inside, those on the device "meta" as if they lay in memory.

    What is read of a meta tensor is 1, and its copy elsewhere zeros. The copy of a batch on "meta" stands for it.

    Attributes
    ----------
    most : bytes that were there at once.

    Examples
    --------
    >>> x = torch.empty(1000, device="meta")
    >>> with Peak() as peak:
    ...     y = (x + 1).square()
    ...     z = y[:500], bool(y[0] > 0)
    >>> peak.most, z[1]
    (8000, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0
        self._live: dict[int, tuple[Any, int]] = {}  # by address: a weak reference, and bytes

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if inputs and any(tensor.is_meta for tensor in inputs):
            if function is ATEN._local_scalar_dense.default:
                return torch.ones((), dtype=inputs[0].dtype).item()
            if function is ATEN.equal.default:
                return True
            if function is ATEN._to_copy.default and torch.device(kwargs.get("device") or "meta").type != "meta":
                dtype = kwargs.get("dtype") or inputs[0].dtype
                return torch.zeros((), dtype=dtype, device=kwargs["device"]).expand(inputs[0].shape)
        result = function(*args, **kwargs)
        places = {tensor.untyped_storage()._cdata for tensor in inputs}
        made = [value for value in tree_leaves(result) if isinstance(value, Tensor)]
        for tensor in made:
            if tensor.untyped_storage()._cdata not in places:
                stands_for = inputs[0] if tensor.is_meta and inputs and not inputs[0].is_meta else None
                self._add(tensor.untyped_storage(), stands_for)
        return result

    def _add(self, storage: Any, stands_for: Tensor | None) -> None:
        """Count memory until it is gone. What stands for another keeps that instead."""
        address, size = storage._cdata, 0 if stands_for is not None else storage.nbytes()

        def forget(_: Any, original: Tensor | None = stands_for) -> None:
            self._now -= self._live.pop(address)[1]

        self._live[address] = weakref.ref(storage, forget), size
        self._now += size
        self.most = max(self.most, self._now)


def resident() -> tuple[int, int]:
    """Bytes of this process in memory: now, and the most so far. The latter stands for both where nothing tells."""
    unit = 1 if sys.platform == "darwin" else 1024
    most = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = Path("/proc/self/statm")
    return (int(pages.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if pages.exists() else most), most


class _Shapes(OnDevice):
    """The task with models that have no numbers."""

    def model(self) -> nn.Module:
        with shapes_only():
            return self._task.model()


def most_bytes(
    config: Mapping[str, Any],
    task: Task,
    strategy: Strategy,
    traffic: Profile,
    held: int,
    worker: ShardedWorker | None = None,
) -> int | None:
    """Bytes that the first process has at once beside its data: of models, steps, evaluations and checkpoints. One step
    of each kind is played, of all workers, and those after a checkpoint while its copy is there. Evaluation over
    several stages is left out: it needs what the last one sends. None where that needs numbers.

    Parameters
    ----------
    config : of a run.
    task, strategy : its own.
    traffic : the profile of the strategy.
    held : bytes that stay between two steps.
    worker : its piece of one, played, where workers lie on several processes.
    """
    played = _Shapes(task, "meta")
    before = 0 if worker is None else _between(config, worker)
    writers = config["nproc"] if worker is None else 1  # whose states the first process copies
    try:
        with preserved(strategy), _stages_alone(config, worker), Peak() as peak:
            run, loss = _whole(config, played, strategy) if worker is None else _piece(config, played, strategy, worker)
            batches = run.draw(played)
            gradient = run.gradient(loss, batches, config["l2"])
            copies: list[Tensor] = []
            for run.communicator.step in _steps(traffic, config["steps"]):
                run.update(played, batches, gradient, config["l2"])
                if 0 < config["checkpoint_every"] < config["steps"]:
                    _copy(run, writers, copies)
            del batches
            if evaluated := worker is None or worker.mesh.degrees["pipeline"] == 1:
                run.record(played, None)
            _copy(run, writers, copies)
            if evaluated:
                measure_final(played, run.replicas, run.communicator, run.began)
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    most = before + peak.most
    return round(most + HOLES * max(0, most - held))


def _whole(config: Mapping[str, Any], task: Task, strategy: Strategy) -> tuple[Run, Any]:
    """The run at its start, and the loss, where workers are whole models."""
    communicator = _communicator(config, config["nproc"])
    replicas = engine_in(config["precision"], config["engine"])(task.model, communicator.workers, config["seed"])
    return Run.start(replicas, strategy, communicator), task.loss


def _piece(config: Mapping[str, Any], task: Task, strategy: Strategy, worker: ShardedWorker) -> tuple[Run, Any]:
    """The same where workers lie on several processes."""
    communicator, nproc = _communicator(config, config["workers"]), config["nproc"]
    run = Run.start(worker, strategy, communicator, Communicator(nproc, transport=Blank(nproc, 0)))
    if worker.mesh.degrees["pipeline"] == 1:
        run.began = yardsticks_of_pieces(task, worker, communicator)
    return run, objective(task, worker.computation.vocabulary)


def _between(config: Mapping[str, Any], worker: ShardedWorker) -> int:
    """Bytes of parameters and gradients that are there in every step.

    Stage 3 is played as stage 2. It has its shards, and gathers what no unit has, and two units: one computes, the next
    one is on its way. Backward drops none before the last micro-batch, so with several it has all of them.
    """
    if config["zero"] < 3:
        return sum(model_bytes(worker).values())
    from commeff.sharding.fully import units  # with FSDP, which takes half as long to import as torch

    (model,) = worker.computation.modules
    stays = SCHEDULES[config["mesh"]["schedule"]].splits or config["micro_batches"] > 1
    sizes = sorted(sum(p.nbytes for p in unit.parameters()) for unit in units(model))
    whole = sum(p.nbytes for p in worker.computation.parameters.values())
    return 2 * worker.parameters.nbytes + whole - (0 if stays else sum(sizes[:-2]))


def _stages_alone(config: Mapping[str, Any], worker: ShardedWorker | None) -> AbstractContextManager[None]:
    """Of the stages of a pipeline only this rank's compute."""
    if worker is None or config["mesh"]["pipeline"] * config["micro_batches"] == 1:
        return nullcontext()
    return alone(worker.mesh.axis("pipeline"))


def _communicator(config: Mapping[str, Any], processes: int) -> Communicator:
    transport = Blank(processes, 0) if processes > 1 else None
    return Communicator(config["workers"], config["seed"], collective=config["collective"], transport=transport)


def _copy(run: Run, writers: int, copies: list[Tensor]) -> None:
    """Make those of a checkpoint, in place of the last one's."""
    copies.clear()
    tensors = [box for boxes in collect(run)["tensors"].values() for box in boxes.boxes.values()]
    copies.extend(tensor.clone() for _ in range(writers) for tensor in tensors)


def _steps(traffic: Profile, steps: int) -> list[int]:
    """The first two steps, and the first of each kind of those that follow."""
    kinds = {tuple(op[1:5] for op in traffic.steps[step]): step for step in sorted(traffic.steps, reverse=True)}
    return sorted(step for step in {0, 1, *kinds.values()} if step < steps)
