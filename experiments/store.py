"""The store: one folder a run, named after what decides its result; files appear whole, by rename."""

from __future__ import annotations

import hashlib
import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from experiments.targets import source_digest, split

IRRELEVANT = ("checkpoint_every", "data_dir")  # keys that do not decide the result, wherever they stand
FINISHED = ("done", "diverged")
SILENCE = 600.0  # seconds after which a run on another machine counts as dead


def run_id(config: Mapping[str, Any]) -> str:
    """method-task-hash. Equal for equal results: a plug-in counts by its source, not by where it lies.

    >>> config = {"method": {"_target_": "commeff.methods.psgd"}, "task": {"_target_": "experiments.tasks.Digits"}}
    >>> run_id(config)  # doctest: +ELLIPSIS
    'psgd-digits-...'
    >>> run_id(config | {"checkpoint_every": 7}) == run_id(config), run_id(config | {"steps": 6}) == run_id(config)
    (True, False)
    """
    relevant = _relevant(config)
    plugins = {target: [split(target)[1], source_digest(target)] for target in _targets(relevant) if ":" in target}
    text = json.dumps(relevant, sort_keys=True)
    for target, identity in plugins.items():
        text = text.replace(json.dumps(target), json.dumps(identity))
    names = (split(config[part]["_target_"])[1].lower() for part in ("method", "task"))
    return "-".join((*names, hashlib.sha256(text.encode()).hexdigest()[:10]))


def _relevant(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node
    return {name: _relevant(value) for name, value in node.items() if name not in IRRELEVANT}


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from [value] if name == "_target_" else _targets(value)


class RunFolder:
    """One run: config.yaml, env.json, status.json, metrics.jsonl, checkpoints/, and when finished summary.json."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def create(self, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Make the folder and say what runs in it and where."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._replace("config.yaml", yaml.safe_dump(dict(config), sort_keys=False))
        self.write("env.json", environment)

    def write(self, name: str, payload: Mapping[str, Any]) -> None:
        """A JSON file; numbers that are not finite become null."""
        self._replace(name, json.dumps({key: finite(value) for key, value in payload.items()}, indent=2) + "\n")

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file, {} where there is none that can be read."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def mark(self, state: str, **facts: Any) -> None:
        """Say in status.json how the run stands: queued, running, done, diverged, failed or killed."""
        self.write(
            "status.json",
            {"state": state, **facts, "host": socket.gethostname(), "pid": os.getpid(), "time": time.time()},
        )

    @property
    def state(self) -> str:
        """The state in status.json; a running one whose process is gone, or elsewhere long silent, was killed."""
        status = self.read("status.json")
        state = str(status.get("state", "queued"))
        if state in FINISHED and not self.read("summary.json"):
            return "killed"
        if state != "running":
            return state
        here = status["host"] == socket.gethostname()
        lives = _alive(status["pid"]) if here else time.time() - status["time"] < SILENCE
        return "running" if lives else "killed"

    def _replace(self, name: str, text: str) -> None:
        draft = self.path / f".{name}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, self.path / name)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity.

    >>> finite(1.5), finite(math.nan), finite("text")
    (1.5, None, 'text')
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
