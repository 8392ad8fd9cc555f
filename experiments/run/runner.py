"""One run, from a resolved configuration to its summary: idempotent, resumable, and written down from the start."""

from __future__ import annotations

import gc
import os
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from commeff.communicator import Communicator
from commeff.communicator.wire.group import backend, from_first, is_first
from commeff.compressors.compiled import compile_messages
from commeff.compressors.scratch import keep_freed_memory
from commeff.core.strategy import Strategy
from commeff.experiments.config.build import Parts, build, communicator, driven, event_clock_of, participation
from commeff.experiments.config.contained import ProcessEnding, contained, is_interrupt, plugin_files, raised_at
from commeff.experiments.config.mesh_rehearsal import on_mesh_by
from commeff.experiments.config.meshes import degrees
from commeff.experiments.config.registry import plugins_in, targets_in
from commeff.experiments.config.schema import ConfigError, over_mesh
from commeff.experiments.run.launch.rendezvous import MemberLost
from commeff.experiments.run.local import LOCAL, Forks, Train, held_bytes, on_processes
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.origins import GRAPH_FILES, differences, keep_graphs, origin_of, plugin_info
from commeff.experiments.run.progress import Heartbeat, Progress, Stop, stop_on_signals
from commeff.experiments.run.store import RunFolder
from commeff.experiments.run.system import check_device, launch_info, sys_info, timeout_seconds, whereabouts
from commeff.experiments.sinks import LoggedRows
from commeff.experiments.tasks.work import sample_seconds
from commeff.files import regular, sweep
from commeff.replicas import ShardedWorker
from commeff.sharding import Mesh
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import CheckpointRefused
from commeff.training.on_device import OnDevice
from commeff.training.recorder import Recorder
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.task import Task
from commeff.training.trainer import train

PAYS = 1e11  # numbers that a process holds, times steps: plain messages of so many take longer than the compiler
COLLECT = 700, 10, 10  # when Python looks for garbage by itself; commands that only import look more seldom


class RunFailed(RuntimeError):
    """A run that stopped with an error of its own; the traceback is in the folder's error.txt."""


class RunBusy(RunFailed):
    """A run that another process holds."""


def run_one(
    config: Mapping[str, Any],
    folder: str | Path,
    progress: Progress = lambda step, row: None,
    stop: Stop | None = None,
    forks: Forks = LOCAL,
    parts: Parts | None = None,
) -> dict[str, Any]:
    """Run a configuration in `folder`.

    A finished run is not repeated: its summary is read. An interrupted one goes on from its last checkpoint.
    Ctrl-C, a scheduler's SIGTERM or `stop` ends it after the step under way, with a checkpoint; the state is then
    "killed".

    Parameters
    ----------
    config : a resolved configuration, as `compose` makes it.
    folder : of this run; `store / run_id(config)` where there is a store.
    progress : called after every step with the steps done and the last row of measurements.
    stop : set by whoever else may want the run to stop.
    forks : how the processes of a run of several are forked.
    parts : what it is made of, if that is built already.

    Returns
    -------
    summary : what summary.json holds, with the `state`: "done", "diverged" or "killed".

    Raises
    ------
    ConfigError : parts that do not fit, a folder that cannot be written, a finished run whose records are damaged, or a
        checkpoint there that is not this run's; nothing has been written then.
    RunBusy : another process runs it.
    RunFailed : an error during training.
    """
    run = RunFolder(folder)
    if (summary := run.result(config)) is not None:
        return summary
    if config.get("resume_from"):
        origin_of(config, run)  # what cannot be gone on from is refused before anything is built
    parts, stop, several = prepare(config, parts), stop or Stop(), config["nproc"] > 1
    train_here = make_train(config, parts, run)
    check_device(config["device"], config["nproc"])
    wire = backend(config["device"]) if several else "none"
    launcher = forks.launcher if several else "none"
    facts = launch_info(launcher, wire, [whereabouts()], 0, timeout_seconds(os.environ))

    work = partial(on_processes, config, train_here, run, forks=forks) if several else partial(train_here, False)
    with ExitStack() as resources:
        summary = claim(run, config, facts, resources)
        if summary is not None:
            return summary
        with stop_on_signals(stop):
            return supervise(run, config["steps"], work, progress, stop)


def prepare(config: Mapping[str, Any], parts: Parts | None = None) -> Parts:
    """Build the parts of a run, and set this process up for it.

    Where it will fork, it stays at one thread: OpenMP's others would not be there in the forks.
    """
    gc.set_threshold(*COLLECT)
    keep_freed_memory()
    torch.set_num_threads(config["threads"] if config["nproc"] == 1 else 1)
    parts = parts or build(config)
    numbers = config["steps"] * parts.checkpoint / 4 / config["nproc"]
    compile_messages({"on": True, "all": True, "off": False}.get(config.get("compile", "auto"), numbers >= PAYS))
    return parts


def claim(
    run: RunFolder, config: Mapping[str, Any], facts: Mapping[str, Any], resources: ExitStack
) -> dict[str, Any] | None:
    """Hold the run's folder as long as `resources` is open, and write there what runs.

    Parameters
    ----------
    run, config : the folder and the configuration of the run.
    facts : how its processes were started, for env.json.
    resources : closes when the run ends.

    Returns
    -------
    summary : of the run if it is finished already, else None.
    """
    sweep()
    try:
        claimed = resources.enter_context(run.claimed())
        if (summary := run.result(config)) is not None:
            return summary
        if not claimed:
            who = run.read("status.json").get("pid", "unknown")
            raise RunBusy(f"{run.path} is running in process {who}; wait for it, or stop it first")
        checkpoints = Checkpoints(run.path / "checkpoints", run=run_id(config))
        checkpoints.check()
        origin = origin_of(config, run) if config.get("resume_from") else None
        plugins = plugin_info(config) if plugins_in(config) else {}
        run.create(config, {**sys_info(), **facts, **({"plugins": plugins} if plugins else {})})
        if not {*targets_in(config)}.isdisjoint(GRAPH_FILES):
            keep_graphs(config, run.path)
        if origin:
            run.mark("queued", origin=origin)
    except CheckpointRefused as error:
        raise ConfigError([str(error)]) from None
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError([f"{run.path} cannot be written ({reason}); choose another --store"]) from None
    return None


def supervise(
    run: RunFolder, steps: int, work: Callable[[Progress, Stop], dict[str, Any]], progress: Progress, stop: Stop
) -> dict[str, Any]:
    """Do the work of a run that this process holds, and keep its folder current: state, summary or error."""
    beat = Heartbeat(run, steps, progress, run.read("status.json").get("wall", 0.0))
    try:
        (run.path / "error.txt").unlink(missing_ok=True)
        run.mark("running", step=0, steps=steps, wall=beat.wall)
        summary = work(beat, stop)
        if summary["state"] == "stopped":
            summary |= {"state": "killed"}
        else:
            run.write("summary.json", summary)
        wall = max(beat.wall, summary.get("seconds", 0.0))
        why = {"reason": summary["reason"]} if "reason" in summary else {}
        run.mark(summary["state"], step=summary["steps"], steps=steps, **why, wall=wall)
    except CheckpointRefused as error:
        run.mark("killed")
        raise ConfigError([f"{error}{differences(run)}"]) from None
    except BaseException as error:
        if is_interrupt(error):
            run.mark("killed")
            raise
        kind = "" if isinstance(error, (MemberLost, ProcessEnding)) else f"{type(error).__name__}: "
        where = raised_at(error, plugin_files())
        with suppress(OSError):  # a full disk takes neither
            with open(run.path / "error.txt", "w", encoding="utf-8", opener=regular) as file:
                file.write(traceback.format_exc())
            run.mark("oom" if _out_of_memory(error) else "failed", error=kind + str(error) + where)
        raise RunFailed(f"{kind}{' '.join(str(error).split())}{where}; see {run.path / 'error.txt'}") from error
    return summary


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is that memory ran out; torch has a type for it on GPUs only."""
    if error is None:
        return False
    of_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
    return of_memory or _out_of_memory(error.__cause__)


def make_train(config: Mapping[str, Any], parts: Parts, run: RunFolder) -> Train:
    """The function that every process of a run calls to train; rank 0 writes."""

    def train_here(distributed: bool, progress: Progress, stop: Stop) -> dict[str, Any]:
        task = parts.task
        if config["device"] != "cpu":
            task = OnDevice(task, torch.device("cuda", torch.cuda.current_device()))
        recorder: Recorder | None = None
        if not distributed or is_first():
            recorder = LoggedRows(run.path, config) if config.get("log") else Recorder(run.path)
        with ExitStack() as resources:
            resources.enter_context(contained())
            if isinstance(recorder, LoggedRows):
                resources.enter_context(closing(recorder))
            if config.get("profile") and recorder:
                from commeff.experiments.run.tracing import traced

                progress = resources.enter_context(traced(progress, run.path / "trace.json", config["profile"]))
            strategy, everybody, worker = _placed(config, parts, task, distributed)
            kind = _ReadByFirst if distributed and worker is None else Checkpoints
            summary = train(
                task,
                strategy,
                everybody,
                RunSettings(
                    steps=config["steps"],
                    evaluate_every=config["evaluate_every"],
                    engine=config["engine"],
                    precision=config.get("precision", "fp32"),
                    compiled=config.get("compile") == "all",
                    l2=config["l2"],
                    participation=participation(config, strategy),
                    event_clock=event_clock_of(config, task, strategy),
                    sample_seconds=sample_seconds(parts.task, config.get("precision", "fp32"), config["device"]),
                    origin=config.get("resume_from"),
                ),
                worker=worker,
                recorder=recorder,
                checkpoints=kind(run.path / "checkpoints", config["checkpoint_every"], run_id(config)),
                progress=progress,
                should_stop=lambda: stop.requested,
            )
            return summary | ({"held_bytes": held_bytes(worker, strategy)} if worker else {})

    return train_here


def _placed(
    config: Mapping[str, Any], parts: Parts, task: Task, distributed: bool
) -> tuple[Strategy, Communicator, ShardedWorker | None]:
    """The parts that a process of a run trains with; a worker of its own where each lies on several processes."""
    if not distributed or not over_mesh(config):
        return parts.strategy, communicator(config, distributed=True) if distributed else parts.communicator, None
    mesh = Mesh(**degrees(config), device=config["device"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "micro_batches=")  # the rehearsal has said it
        worker = on_mesh(task, mesh, **on_mesh_by(config))
    strategy = driven(parts.strategy, config, worker)
    return strategy, communicator(config, distributed=True, group=mesh.group("worker")), worker


class _ReadByFirst(Checkpoints):
    """Checkpoints that rank 0 reads for everybody: all go on from one step, whatever their hosts see of the disk."""

    def document(self, run: str) -> dict[str, Any] | None:
        return from_first(partial(super().document, run))
