"""One run on several processes of this machine, which share its workers and talk over gloo; and what a process holds
between two steps: its piece of a worker, and what the method remembers of it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.wire.group import backend
from commeff.core.strategy import Strategy
from commeff.experiments.config.meshes import place
from commeff.experiments.run.crew import Fork, crew
from commeff.experiments.run.launch.logs import Output
from commeff.experiments.run.progress import Progress, Stop, Throttled
from commeff.experiments.run.store import RunFolder
from commeff.experiments.run.system import launch_info, own_device, timeout_seconds, whereabouts
from commeff.profiling.live import measure_memory
from commeff.replicas import ShardedWorker

Train = Callable[[bool, Progress, Stop], dict[str, Any]]  # on one process of several, or alone


@dataclass(frozen=True)
class Forks:
    """How the processes of a run are forked.

    Attributes
    ----------
    launcher : what env.json calls it.
    prepare : called first in each, with its rank.
    """

    launcher: str = "local"
    prepare: Callable[[int], None] = lambda rank: None


LOCAL = Forks()


def on_processes(
    config: Mapping[str, Any],
    train: Train,
    run: RunFolder,
    progress: Progress,
    stop: Stop,
    forks: Forks = LOCAL,
) -> dict[str, Any]:
    """Train on `nproc` forks; the summary of rank 0.

    The forks hold the lock of the run's folder, so nobody else runs it while one of them lives.
    """
    timeout = timeout_seconds(os.environ)

    def member(fork: Fork) -> dict[str, Any]:
        torch.set_num_threads(config["threads"])
        output = Output(fork.rank, fork.size)
        output.into(run.path)

        report = Throttled(fork.report) if fork.rank == 0 else lambda step, row: None
        try:
            with fork.group(timeout, own_device(config["device"], fork.rank)):
                return train(True, report, fork.stop)
        except Exception:
            output.note(traceback.format_exc())
            raise

    def name(rank: int) -> str:
        where = place(config, rank)
        return f"process {rank}, {where}," if where else f"process {rank}"

    with crew(config["nproc"], member, forks.prepare, name) as members:
        places = [whereabouts() | {"pid": pid} for pid in members.pids]
        facts = launch_info(forks.launcher, backend(config["device"]), places, 0, timeout)
        run.write("env.json", run.read("env.json") | facts)
        return members.results(progress, stop)[0]


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the memory of tensors, that which several share once. Those on the meta device have sizes, too."""
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def model_bytes(worker: ShardedWorker) -> dict[str, int]:
    """Bytes of parameters and of gradients. The shards of stage 3 lie in its row."""
    parameters = [p for p in worker.computation.parameters.values() if not hasattr(p, "_local_tensor")]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return {
        "parameters": storage_bytes([worker.parameters, *parameters]),
        "gradients": storage_bytes([worker.gradients, *gradients]),
    }


def held_bytes(worker: ShardedWorker, strategy: Strategy) -> int:
    """Bytes of parameters, gradients and the method's memory, as they lie there."""
    return sum(model_bytes(worker).values()) + sum(measure_memory(strategy, (worker.parameters,)).values())
