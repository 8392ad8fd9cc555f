"""Commands and fork servers as forks of the test process: a new interpreter imports torch for seconds, a fork has it.

What a user starts is a new interpreter; tests in which that is the point start one by `tests.owned`.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from multiprocessing import forkserver, util
from subprocess import Popen
from types import ModuleType
from typing import Any, NoReturn

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from commeff.experiments.cli import main
from commeff.experiments.grid.local.server import PRELOAD
from tests import owned

GUARD = PRELOAD[0]
SPAWN = util.spawnv_passfds


def command(words: Sequence[str], **options: Any) -> Popen[str]:
    """`commeff WORDS` as a process of its own, with the options of `subprocess.Popen`."""
    preload()
    return owned.start([sys.executable], preexec_fn=partial(in_fork, partial(run_command, words)), **options)


def torchrun(options: Sequence[str], words: Sequence[str], **popen: Any) -> Popen[str]:
    """`torchrun OPTIONS -m commeff WORDS`, whose members are forks too, with the options of `subprocess.Popen`."""
    preload()
    agent = partial(_run_agent, [*options, "-m", "commeff", *words])
    return owned.start([sys.executable], preexec_fn=partial(in_fork, agent), **popen)


def fork_servers() -> None:
    """Let `multiprocessing` fork its fork servers from this process; whatever else it starts, it starts as ever."""
    util.spawnv_passfds = _spawn


def _spawn(path: bytes, words: Sequence[Any], passed: Sequence[int]) -> int:
    if "multiprocessing.forkserver" not in str(words[-1]):
        return SPAWN(path, words, passed)
    preload()
    child = owned.fork()
    if not child:
        in_fork(partial(_serve, words), passed)
    return child


@cache
def preload() -> None:
    """Import here what a command and a fork server would import."""
    for name in PRELOAD:
        if name != GUARD:
            importlib.import_module(name)


def in_fork(work: Callable[[], object], passed: Sequence[int] = ()) -> NoReturn:
    """Do the work in this process, which is left with what a program starts with: no files, no handlers, no server."""
    code = 1
    try:
        owned.tie_again()  # it may lead a group by now
        null = os.open(os.devnull, os.O_RDWR)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in (*passed, owned.kept()):
                with suppress(OSError):
                    os.dup2(null, int(name))  # their owners, which this process has copies of, may still close them
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
        sys.modules["__main__"] = ModuleType("__main__")
        vars(forkserver._forkserver).update(vars(forkserver.ForkServer()))
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def run_command(words: Sequence[str]) -> None:
    """`commeff WORDS` in this process."""
    sys.argv = ["commeff", *words]
    main()


def _run_agent(words: Sequence[str]) -> None:
    SubprocessHandler._popen = _start_member
    run.main(words)


def _start_member(handler: SubprocessHandler, words: Sequence[str], environment: Mapping[str, str]) -> Popen[bytes]:
    def member() -> None:
        os.environ.update(environment)
        run_command(words[words.index("commeff") + 1 :])

    return Popen(words, preexec_fn=partial(in_fork, member), start_new_session=True)


def _serve(words: Sequence[Any]) -> None:
    sys.orig_argv = [os.fsdecode(word) for word in words]
    sys.modules.pop(GUARD, None)
    exec(words[-1], {})
