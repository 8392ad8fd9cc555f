"""The story of one process that a launcher has started: prepare, learn whether the run begins, train, leave.

Rank 0 alone holds the run's folder and writes into it; the others write their logs. All end with one exit code, and one
of them prints why.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, redirect_stderr
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from commeff.communicator.wire.group import backend, joined, recorded, store_at, within
from commeff.experiments.config.contained import end_process
from commeff.experiments.config.meshes import place
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.crew import leave
from commeff.experiments.run.launch.logs import Output
from commeff.experiments.run.launch.membership import Membership, with_processes
from commeff.experiments.run.launch.rendezvous import Facts, MemberLost, Rendezvous
from commeff.experiments.run.local import Train
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.progress import Progress, Stop, reporter, stop_on_signals
from commeff.experiments.run.runner import RunFailed, claim, make_train, prepare, supervise
from commeff.experiments.run.store import RunFolder, check_version
from commeff.experiments.run.system import launch_info, own_device, timeout_seconds, whereabouts
from commeff.training.documents import CheckpointRefused

INTERRUPTED, MISUSED = 130, 2
GRACE = 3.0  # seconds for rank 0 to say what every rank knows, before a launcher that loses one ends all
T = TypeVar("T")

Finish = Callable[[Path, Mapping[str, Any]], int]


@dataclass(frozen=True)
class Prepared:
    """What a member has prepared: the run's folder, its configuration, and the training itself."""

    run: RunFolder
    config: Mapping[str, Any]
    train: Train


@dataclass(frozen=True)
class Seat:
    """A member at the rendezvous, with its output and the timeout in seconds."""

    member: Membership
    rendezvous: Rendezvous
    output: Output
    timeout: float


def take_part(member: Membership, compose: Callable[[], dict[str, Any]], store: Path, finish: Finish) -> NoReturn:
    """Do this member's share of the run, and end the process.

    Parameters
    ----------
    member : which of the run's processes this is.
    compose : makes the run's configuration.
    store : the folder of runs.
    finish : prints a summary and gives the exit code; rank 0 calls it.
    """
    timeout = timeout_seconds(os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end_process(INTERRUPTED))  # nothing is under way yet
    output = Output(member.rank, member.size)
    prepared = _prepare(member, compose, store, output)
    if prepared is None:
        time.sleep(GRACE if member.rank > 0 else 0.0)
        leave(MISUSED)
    facts = whereabouts() | {"refusal": "", "restarts": member.restarts}
    if isinstance(prepared, str):
        facts["refusal"] = prepared
    else:
        facts |= {"run": prepared.run.path.name, "place": place(prepared.config, member.rank)}
    serves = member.serves and member.rank == 0
    open_store = partial(store_at, member.address, member.port, serve=serves, timeout=timeout)
    try:
        meeting = within(in_time(open_store, timeout), f"commeff/{member.job}")
        rendezvous = Rendezvous(meeting, member.rank, member.size, timeout)
        rendezvous.report(facts)
        seat = Seat(member, rendezvous, output, timeout)
        code = _lead(seat, prepared, finish) if member.rank == 0 else _follow(seat, prepared)
    except Exception as error:  # the store is not there, or no longer
        where = f"{member.address}:{member.port}"
        output.say(f"process {member.rank} of {member.size} at {where}: {' '.join(str(error).split())}")
        output.note(traceback.format_exc())
        code = 1
    leave(code)


def in_time(make: Callable[[], T], seconds: float) -> T:
    """The result of `make`, or `TimeoutError`.

    It runs in a thread, since it may block where no signal reaches it: whoever listens at a port that is taken need not
    answer. Nobody waits for the thread: `leave` ends the process.
    """
    made = ThreadPoolExecutor(1).submit(make)
    if not wait([made], timeout=seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} s; is it up, and is the port free for this run?")
    return made.result()


def _prepare(
    member: Membership, compose: Callable[[], dict[str, Any]], store: Path, output: Output
) -> Prepared | str | None:
    """Everything but the training itself, or the reason why not: rank 0 prints each reason once.

    None where the run does not fit its launch. Every process knows that by itself, and rank 0 has said it.
    """
    try:
        with redirect_stderr(sys.stderr if member.rank == 0 else StringIO()):
            config = compose()
        try:
            config = with_processes(config, member.size)
        except ValueError as error:
            if member.rank == 0:
                output.say(str(error))
            return None
        own_device(config["device"], member.local_rank)
        check_version(store)
        run = RunFolder(store / run_id(config))
        return Prepared(run, config, make_train(config, prepare(config), run))
    except (ValueError, OSError) as error:
        return str(error)
    except Exception as error:  # the others learn of it, else they would wait for this one
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _lead(seat: Seat, prepared: Prepared | str, finish: Finish) -> int:
    """Rank 0: decide whether the run begins, and keep its folder."""
    rendezvous, output, stop = seat.rendezvous, seat.output, Stop()
    with ExitStack() as resources:
        try:
            members = rendezvous.reports()
            refusals = _refusals(members)
            if refusals or isinstance(prepared, str):
                raise ConfigError(refusals)
            restarts = max(facts["restarts"] for facts in members)  # torchrun on several hosts counts on each
            wire = backend(prepared.config["device"])
            facts = launch_info(seat.member.launcher, wire, members, restarts, seat.timeout)
            facts["job"] = seat.member.job
            summary = claim(prepared.run, prepared.config, facts, resources)
        except (ConfigError, RunFailed, TimeoutError) as error:
            code = 2 if isinstance(error, ConfigError) else 1
            for line in str(error).splitlines():
                output.say(line)
            rendezvous.decide(code)
            return code
        if summary is not None:
            rendezvous.decide(0)
            print(f"{prepared.run.path} is finished already; its summary:", file=sys.stderr)
            return finish(prepared.run.path, summary)
        with stop_on_signals(stop, again=False):
            output.into(prepared.run.path)
            rendezvous.decide(None)

            def work(progress: Progress, stop: Stop) -> dict[str, Any]:
                return recorded(lambda: _train(seat, prepared, progress, stop))

            try:
                with reporter(prepared.config, prepared.run.path) as progress:
                    summary = supervise(prepared.run, prepared.config["steps"], work, progress, stop)
            except (RunFailed, ConfigError) as error:
                output.note(traceback.format_exc())
                output.say(str(error))
                return 2 if isinstance(error, ConfigError) else 1
        return finish(prepared.run.path, summary)


def _follow(seat: Seat, prepared: Prepared | str) -> int:
    """The other ranks: learn whether the run begins, and train."""
    code, stop = seat.rendezvous.decision(), Stop()
    if code is not None or isinstance(prepared, str):
        return 2 if code is None else code
    with stop_on_signals(stop, again=False):
        seat.output.into(prepared.run.path)
        try:
            summary = recorded(lambda: _train(seat, prepared, lambda step, row: None, stop))
        except Exception as error:
            seat.output.note(traceback.format_exc())
            return 2 if isinstance(error, CheckpointRefused) else 1
    return INTERRUPTED if summary["state"] == "stopped" else 0


def _train(seat: Seat, prepared: Prepared, progress: Progress, stop: Stop) -> dict[str, Any]:
    """Join the group, train, leave it; a failure of any member is raised with its cause."""
    member, rendezvous = seat.member, seat.rendezvous

    def stop_without_launcher() -> None:
        seat.output.note("the launcher is gone; stopping")
        stop.requested = True

    rendezvous.start_heartbeat(stop_without_launcher)
    try:
        device = own_device(prepared.config["device"], member.local_rank)
        with joined(member.rank, member.size, rendezvous.store, seat.timeout, device):
            return prepared.train(True, progress, stop)
    except Exception as error:
        cause, speaks = rendezvous.diagnose(error)
        if speaks and member.rank > 0 and isinstance(cause, MemberLost):
            seat.output.say(f"{cause}; the same command goes on from the last checkpoint")
        raise cause from error


def _refusals(members: list[Facts]) -> list[str]:
    """Every reason not to begin, once; with its process, where rank 0 does not share it."""
    reasons: dict[str, str] = {}
    for rank, facts in enumerate(members):
        for line in facts["refusal"].splitlines():
            reasons.setdefault(line, line if rank == 0 else f"process {rank} on {facts['host']}: {line}")
    strangers = [rank for rank, facts in enumerate(members) if facts.get("run") != members[0].get("run")]
    if strangers and not reasons:
        who = f"process {strangers[0]} on {members[strangers[0]]['host']}"
        return [f"{who} was started for another run than process 0; give all the same settings and plug-ins"]
    return list(reasons.values())
