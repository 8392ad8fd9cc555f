"""The store: one folder a run, named after what decides its result; files are written by rename."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import yaml

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import deciding
from commeff.experiments.run.reading import own_file, read_json, read_text
from commeff.files import regular, rewrite
from commeff.require import did_you_mean

VERSION = 1  # of the store's layout
STATES = ("done", "diverged", "failed", "oom", "timeout", "killed", "skipped", "running", "queued")
FINISHED = ("done", "diverged")
BAD = ("failed", "timeout", "oom", "killed")
MARKS = ("config.yaml", "status.json", "metrics.jsonl")  # a folder with one of these is a run's
COUNTS = ("restarts", "preemptions")  # in status.json, once they are not 0
NUMBERS = ("step", "steps", "pid", "time", "wall", *COUNTS)  # there too
TEXTS = ("state", "error", "reason", "host", "origin")
SILENCE = 600.0  # seconds after which a run on another machine counts as dead


def check_store(store: Path) -> None:
    """Refuse a folder that is no store, or one of another version."""
    if store.exists() and not store.is_dir():
        raise ValueError(f"a store must be a folder that holds one folder a run, got the file {store}")
    if not store.is_dir():
        raise ValueError(f"there is no store {store}; `commeff train --store {store}` makes one")
    check_version(store)


def check_grid(store: Path, name: str | None) -> dict[str, Path]:
    """The grid files of a store by name; refuse a name that none has, none where there are several, and a
    store without runs."""
    files = {path.stem: path for path in sorted((store / "grids").glob("*.json"))}
    if not files and not any((path / mark).is_file() for path in store.iterdir() for mark in MARKS):
        raise ValueError(f"{store} holds no runs; `commeff train --store {store}` makes one")
    if name is None and len(files) > 1:
        raise ValueError(f"--grid must name one of the {len(files)} grids of {store}; choose from {', '.join(files)}")
    if name is not None and name not in files:
        instead = f"{did_you_mean(name, files)}; it holds {', '.join(files)}" if files else "; it holds none"
        raise ValueError(f"{store} holds no grid {name!r}{instead}")
    return files


def check_version(store: Path) -> None:
    """Refuse a store that another version of commeff has written; grids stamp theirs by `stamp`."""
    if (store / "store.json").is_dir():
        raise ConfigError([f"{store / 'store.json'} must be a file, got a folder: remove it or choose another --store"])
    version = read_json(store / "store.json").get("version", VERSION)
    if version != VERSION:
        raise ConfigError(
            [
                f"store {store} has version {version}, this commeff knows version {VERSION}; "
                "update commeff or choose another --store"
            ]
        )


def stamp(store: Path) -> None:
    """Write the layout's version into a store that has none."""
    store.mkdir(parents=True, exist_ok=True)
    if not (store / "store.json").exists():
        rewrite(store / "store.json", json.dumps({"version": VERSION}) + "\n", shared=True)


class RunFolder:
    """The folder of one run: config.yaml, env.json, status.json, metrics.jsonl, checkpoints/, at the end summary.json.

    A topology from a file is kept in graphs.json.

    Parameters
    ----------
    path : of the folder, which need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._state_before: str | None = None  # the state in which a claim has found it, until it runs

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Hold the run for this process, if no other does; True if so. The kernel releases it however the process ends.

        Where the file system has no locks, status.json decides. A folder with links to folders in it is refused: a run
        would write into those, too.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for linked in (entry for entry in self.path.iterdir() if entry.is_symlink() and entry.is_dir()):
            raise OSError(errno.ELOOP, f"{linked.name} is a link, through which nothing is written", str(self.path))
        with open(self.path / "lock", "w", opener=regular) as lock:
            claimed = self._locked(lock)
            self._state_before = self.read("status.json").get("state") if claimed else None
            yield claimed

    def _locked(self, lock: IO[str]) -> bool:
        """Try to lock; a few times, since others may look at the lock for a moment."""
        for _ in range(4):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                return self.state != "running"
        return False

    @property
    def busy(self) -> bool:
        """Whether a process holds the run."""
        try:
            with open(self.path / "lock", opener=own_file) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError:
            return self.state == "running"
        return False

    def create(self, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Write the configuration and the environment of the run."""
        rewrite(self.path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
        self.write("env.json", environment)

    def write(self, name: str, payload: Mapping[str, Any]) -> None:
        """Write a JSON file; numbers that are not finite become null."""
        text = json.dumps({key: finite(value) for key, value in payload.items()}, indent=2)
        rewrite(self.path / name, text + "\n")

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file, {} where there is none that can be read; of status.json only what is of its kind."""
        content = read_json(self.path / name)
        return typed(content) if name == "status.json" else content

    def mark(self, state: str, **facts: Any) -> None:
        """Write the state of the run, one of `STATES`, into status.json.

        Two counts are kept from mark to mark: how often the run was started again (`restarts`), and before how many of
        these starts it had been stopped by a signal or had died (`preemptions`): the state was "killed" or "running".
        So is `origin`, the run and step that this one goes on from.

        Parameters
        ----------
        state : the new state.
        facts : what else to write, such as step, steps and error.
        """
        before = self.read("status.json")
        counts = {name: before[name] if isinstance(before.get(name), int) else 0 for name in COUNTS}
        if state == "running" and self._state_before is not None:
            counts["restarts"] += 1
            counts["preemptions"] += self._state_before in ("killed", "running")
            self._state_before = None
        place = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        record = {name: count for name, count in counts.items() if count}
        record |= {"origin": before["origin"]} if "origin" in before else {}
        self.write("status.json", {"state": state, **record, **facts, **place})

    def fail(self, error: str, state: str = "failed") -> None:
        """Mark a run that did not come to its end, unless another process holds it or nothing can be written."""
        with suppress(OSError), self.claimed() as claimed:
            if claimed and self.state not in FINISHED:
                status = self.read("status.json")
                self.mark(
                    state, **{key: status[key] for key in ("step", "steps", "wall") if key in status}, error=error
                )

    def result(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The summary of a finished run, None of any other.

        Parameters
        ----------
        config : of the run.

        Raises
        ------
        ConfigError : if the run is finished and its summary, its configuration or its rows are damaged.
        """
        if self.state not in FINISHED:
            return None
        summary, name, fault = self.read("summary.json"), "summary.json", "is damaged"
        try:
            if "state" in summary:
                name = "config.yaml"
                text = read_text(self.path / name)
                names = {line.partition(":")[0] for line in text.splitlines()}
                if text.endswith("\n") and {*deciding(config)} <= names:
                    name = "metrics.jsonl"
                    if json.loads(read_text(self.path / name).split("\n")[-2])["step"] >= summary.get("steps", 0):
                        return summary
        except FileNotFoundError:
            fault = "is missing"
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass
        damage = f"{self.path / name} {fault}, though the run is finished"
        raise ConfigError([f"{damage}; remove {self.path} to run it again"])

    @property
    def state(self) -> str:
        """The state in status.json; a running one whose process is gone, or elsewhere long silent, was killed."""
        status = self.read("status.json")
        return state_of(status, status.get("state") not in FINISHED or bool(self.read("summary.json")))


def state_of(status: Mapping[str, Any], summarised: bool) -> str:
    """The state of a run.

    Parameters
    ----------
    status : what its status.json holds.
    summarised : whether it has a summary, without which it is not finished.
    """
    state = str(status.get("state", "queued"))
    if state in FINISHED and not summarised:
        return "killed"
    if state not in STATES:
        return "failed"
    if state != "running":
        return state
    if not {"host", "pid", "time"} <= status.keys():
        return "killed"
    local = status["host"] == socket.gethostname()
    lives = _alive(status["pid"]) if local else time.time() - status["time"] < SILENCE
    return "running" if lives else "killed"


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have.

    >>> finite(1.5), finite(math.nan), finite("text")
    (1.5, None, 'text')
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value


def typed(status: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a status.json that there are, without those that are no number, or no text, where they must be.

    >>> typed({"state": "running", "pid": "1; ls", "step": 3, "time": True, "error": ["why"]})
    {'state': 'running', 'step': 3}
    """

    def fits(name: str, fact: Any) -> bool:
        if name in NUMBERS:
            return isinstance(fact, (int, float)) and not isinstance(fact, bool) and fact >= 0
        return isinstance(fact, str) if name in TEXTS else fact is not None

    return {name: fact for name, fact in status.items() if fits(name, fact)}


def _alive(pid: int) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
