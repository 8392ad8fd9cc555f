"""A `commeff` for shell scripts: a small program that lets a fork of the test process run the command in its place.

The program hands over its words, environment, folder and streams; signals that it gets go on to the fork, it ends as
the fork ends, and the fork ends with it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.forks import in_fork, preload, run_command
from tests.owned import fork

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
words = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
signals = [signal.SIGINT, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
socket.send_fds(line, [len(words).to_bytes(8, "big")], [0, 1, 2])
line.sendall(words)
pid = int(line.recv(100))
for number in signals:
    signal.signal(number, lambda number, frame: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
code = int(line.recv(100))
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def commands(folder: Path) -> Iterator[None]:
    """The program `commeff` in a folder; whatever it has started ends with the context."""
    address, program = str(folder / "commeff.socket"), folder / "commeff"
    program.write_text(PROGRAM.format(python=os.path.realpath("/proc/self/exe"), address=address))
    program.chmod(0o755)
    preload()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        server = fork()
        if not server:
            in_fork(partial(_serve, listener), [listener.fileno()])
        try:
            yield
        finally:
            os.kill(server, signal.SIGTERM)
            os.waitpid(server, 0)


def _serve(listener: socket.socket) -> None:
    """Fork for every program that connects, until SIGTERM."""
    lines: dict[int, socket.socket] = {}  # pid -> the program that waits for it
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    with selectors.DefaultSelector() as selector:
        for source in (listener, wake):
            selector.register(source, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in selector.select():
                    if key.fileobj is listener:
                        line, _ = listener.accept()
                        pid = _begin(line)
                        lines[pid] = line
                        selector.register(line, selectors.EVENT_READ, pid)
                    elif key.fileobj == wake:
                        os.read(wake, 4096)
                    elif key.data in lines:  # says nothing: it has ended
                        os.kill(key.data, signal.SIGKILL)
                        selector.unregister(key.fileobj)
                for pid, status in _ended():
                    with suppress(OSError):
                        lines[pid].sendall(str(os.waitstatus_to_exitcode(status)).encode())
                    with suppress(KeyError):
                        selector.unregister(lines[pid])
                    lines.pop(pid).close()
        finally:
            for pid in lines:
                os.kill(pid, signal.SIGKILL)


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _begin(line: socket.socket) -> int:
    head, streams, _, _ = socket.recv_fds(line, 8, 3)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += line.recv(size - len(text))
    child = fork()
    if not child:
        _become(streams, *json.loads(text))
    for stream in streams:
        os.close(stream)
    line.sendall(str(child).encode())
    return child


def _become(streams: list[int], words: list[str], environment: dict[str, str], folder: str) -> Any:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    in_fork(partial(run_command, words))
