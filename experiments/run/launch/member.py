"""The story of one process that a launcher has started: it prepares, hears whether the run begins, trains, leaves.

Rank 0 alone holds the run's folder and writes into it; the others write their logs. They all end with one exit code,
and one of them says why on the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NoReturn, TypeVar

from commeff.communicator.wire.group import Store, backend, joined, recorded, store_at, within
from commeff.experiments.config.build import communicator
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.crew import Stop
from commeff.experiments.run.devices import own_device
from commeff.experiments.run.launch.logs import Output
from commeff.experiments.run.launch.membership import Membership, patience, with_processes
from commeff.experiments.run.launch.rendezvous import Council, Facts
from commeff.experiments.run.local import Progress, Train
from commeff.experiments.run.progress import reporter
from commeff.experiments.run.runner import RunFailed, claim, kept, prepared, stop_signals, training
from commeff.experiments.run.store import RunFolder, check_version, run_id
from commeff.experiments.run.system import launch_info, whereabouts

INTERRUPTED = 130
T = TypeVar("T")

Tell = Callable[[Path, Mapping[str, Any]], int]


@dataclass(frozen=True)
class Ready:
    """What a member has prepared."""

    run: RunFolder
    config: Mapping[str, Any]
    train: Train


@dataclass(frozen=True)
class Seat:
    """A member at the place where they meet."""

    member: Membership
    council: Council
    output: Output
    waits: float


def take_part(member: Membership, composed: Callable[[], dict[str, Any]], store: Path, tell: Tell) -> NoReturn:
    """Do what this member has to do, and end the process.

    composed : makes the run's configuration.  tell : prints a summary and gives the exit code; rank 0 calls it.
    """
    waits = patience(os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(INTERRUPTED))  # nothing is under way yet
    output = Output(member.rank, member.size)
    ready = _prepared(member, composed, store)
    facts = {"refusal": ready} if isinstance(ready, str) else {"refusal": "", "run": ready.run.path.name}
    try:
        meeting = within(in_time(partial(_meeting_place, member, waits), waits), f"commeff/{member.job}")
        council = Council(meeting, member.rank, member.size, waits)
        council.report(whereabouts() | facts | {"restarts": member.restarts})
        seat = Seat(member, council, output, waits)
        code = _lead(seat, ready, tell) if member.rank == 0 else _follow(seat, ready)
    except Exception as error:  # the meeting place is not there, or no longer
        where = f"{member.address}:{member.port}"
        output.say(f"process {member.rank} of {member.size} at {where}: {' '.join(str(error).split())}")
        output.note(traceback.format_exc())
        code = 1
    leave(code)


def leave(code: int) -> NoReturn:
    """End this process at once: everything is on disk, and destructors of a broken group may hang."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _meeting_place(member: Membership, waits: float) -> Store:
    return store_at(member.address, member.port, serve=member.serves and member.rank == 0, timeout=waits)


def in_time(make: Callable[[], T], seconds: float) -> T:
    """What `make` gives. It works in a thread, since it may hang where no signal reaches it: whoever listens at a port
    that is taken need not answer.
    """
    made: Queue[T | Exception] = Queue()

    def work() -> None:
        try:
            made.put(make())
        except Exception as error:
            made.put(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        answer = made.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s; is it up, and is the port free for this run?") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _prepared(member: Membership, composed: Callable[[], dict[str, Any]], store: Path) -> Ready | str:
    """All but the training itself, or why not: rank 0 says each reason once."""
    try:
        with redirect_stderr(sys.stderr if member.rank == 0 else StringIO()):
            config = with_processes(composed(), member.size)
        own_device(config["device"], member.local_rank)
        check_version(store)
        run = RunFolder(store / run_id(config))
        return Ready(run, config, training(config, prepared(config), run))
    except (ValueError, OSError) as error:
        return str(error)
    except Exception as error:  # the others are told, else they would wait for this one
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _lead(seat: Seat, ready: Ready | str, tell: Tell) -> int:
    """Rank 0: decide whether the run begins, and keep its folder."""
    council, output, stop = seat.council, seat.output, Stop()
    with ExitStack() as held:
        try:
            members = council.reports()
            refusals = _refusals(members)
            if refusals or isinstance(ready, str):
                raise ConfigError(refusals)
            restarts = max(facts["restarts"] for facts in members)  # torchrun on several hosts counts on each
            facts = launch_info(seat.member.launcher, backend(ready.config["device"]), members, restarts, seat.waits)
            facts["job"] = seat.member.job
            finished = claim(ready.run, ready.config, facts, held)
        except (ConfigError, RunFailed, TimeoutError) as error:
            code = 2 if isinstance(error, ConfigError) else 1
            for line in str(error).splitlines():
                output.say(line)
            council.dismiss(code)
            return code
        if finished is not None:
            council.dismiss(0)
            print(f"{ready.run.path} is finished already; its summary:", file=sys.stderr)
            return tell(ready.run.path, finished)
        with stop_signals(stop, again=False):
            output.into(ready.run.path)
            council.begin(members)

            def work(progress: Progress, stop: Stop) -> dict[str, Any]:
                return recorded(lambda: _trained(seat, ready, progress, stop))

            try:
                with reporter(ready.config["steps"], ready.run.path) as progress:
                    summary = kept(ready.run, ready.config["steps"], work, progress, stop)
            except RunFailed as error:
                output.note(traceback.format_exc())
                output.say(str(error))
                return 1
        return tell(ready.run.path, summary)


def _follow(seat: Seat, ready: Ready | str) -> int:
    """The other ranks: hear whether the run begins, and train."""
    code, stop = seat.council.verdict(), Stop()
    if code is not None or isinstance(ready, str):
        return 2 if code is None else code
    with stop_signals(stop, again=False):
        seat.output.into(ready.run.path)
        try:
            summary = recorded(lambda: _trained(seat, ready, lambda step, row: None, stop))
        except Exception:
            seat.output.note(traceback.format_exc())
            return 1
    return INTERRUPTED if summary["state"] == "stopped" else 0


def _trained(seat: Seat, ready: Ready, progress: Progress, stop: Stop) -> dict[str, Any]:
    """Join the group, train, leave it; a failure anywhere is told as what it is."""
    member, council = seat.member, seat.council

    def abandoned() -> None:
        seat.output.note("the launcher is gone; stopping")
        stop.asked = True

    council.attend(abandoned)
    try:
        device = own_device(ready.config["device"], member.local_rank)
        with joined(member.rank, member.size, council.store, seat.waits, device):
            return ready.train(communicator(ready.config, distributed=True), progress, stop)
    except Exception as error:
        lost, speaks = council.lost(error)
        if speaks and member.rank > 0:
            seat.output.say(f"{lost}; the same command goes on from the last checkpoint")
        raise lost from error


def _refusals(members: list[Facts]) -> list[str]:
    """Every reason not to begin, once; whose it is, where rank 0 does not share it."""
    found: dict[str, str] = {}
    for rank, facts in enumerate(members):
        for line in facts["refusal"].splitlines():
            found.setdefault(line, line if rank == 0 else f"process {rank} on {facts['host']}: {line}")
    strangers = [rank for rank, facts in enumerate(members) if facts.get("run") != members[0].get("run")]
    if strangers and not found:
        who = f"process {strangers[0]} on {members[strangers[0]]['host']}"
        return [f"{who} was started for another run than process 0; give all the same settings and plug-ins"]
    return list(found.values())
