"""A site file describes a SLURM cluster once: what its scripts ask for and do before they begin.

    partition: gpu
    time: 4:00:00
    gpus_per_node: 1
    modules: [python/3.12]
    setup: [source ~/commeff/bin/activate]
    array_limit: 32

`experiments/sites/example.yaml` has every key. It is `--site FILE`, or $COMMEFF_SITE, or ~/.config/commeff/site.yaml.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.reading import Words, read_yaml
from commeff.require import did_you_mean

EXAMPLE = Path(__file__).parents[2] / "sites" / "example.yaml"
WARNING = 120  # seconds before its end in which SLURM warns a task
LEAST = 3 * WARNING  # seconds that a task must be allowed
ENDLESS = 365 * 86_400  # seconds that stand for no limit
TIME = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<first>\d{1,9})(?::(?P<second>\d{1,9}))?(?::(?P<third>\d{1,9}))?")
ASKS = {  # keys that are options of sbatch
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "time": "time",
    "memory": "mem",
    "gpus_per_node": "gpus-per-node",
}
OURS = (
    "array",
    "chdir",
    "cpus-per-task",
    "dependency",
    "job-name",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "open-mode",
    "output",
    "requeue",
    "signal",
)  # options of sbatch that are not the site's

KINDS = {  # what a value must be, by its annotation
    "str | None": "text in one line",
    "int | None": "a whole number",
    "int": "a whole number",
    "tuple[str, ...]": "a list of texts in one line each",
    "Mapping[str, str]": "variables and their values, such as {OMP_PROC_BIND: close}",
}


@dataclass(frozen=True)
class Site:
    """The keys of a site file; None or empty: not set."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: str | None = None
    memory: str | None = None
    gpus_per_node: str | None = None
    cpus_per_task: int | None = None
    processes_per_node: int | None = None
    cells_per_task: int | None = None
    array_limit: int | None = None
    requeues: int = 20
    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None


def find_site(file: Path | None) -> tuple[Site, str]:
    """The given site, or the user's own, or one without any settings; and where it is from."""
    path = file or (Path(os.environ["COMMEFF_SITE"]) if os.environ.get("COMMEFF_SITE") else None)
    default = Path(os.path.expanduser("~/.config/commeff/site.yaml"))  # stays as it is for a user without a home
    path = path or (default if default.is_file() else None)
    if path is None:
        return Site(), f"no site file, so the defaults of the cluster; {EXAMPLE} has every key"
    return read_site(path), f"site {path}"


def read_site(path: Path) -> Site:
    """Read a site file; `ConfigError` lists all its faults."""
    types = {f.name: str(f.type) for f in fields(Site)}
    raw = read_yaml(path, "site file", tuple(types), Words)
    faults = [f"{path.name} has no use for {key!r}{did_you_mean(key, types)}" for key in raw if key not in types]
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key in types and value not in ("", "null", "~"):
            try:
                values[key] = _read(types[key], value)
            except ValueError:
                faults.append(f"{path.name}: {key} must be {KINDS[types[key]]}, got {_format(value)}")
    faults += [f"{path.name}: {fault}" for fault in _unfit(values)]
    if faults:
        raise ConfigError(faults)
    return Site(**values)


def _read(annotation: str, value: Any) -> Any:
    """A value of the file, text or lists and mappings of it, as its annotation says; `ValueError` if it cannot be."""
    match annotation, value:
        case "str | None", str() if "\n" not in value:
            return value
        case "int | None" | "int", str() if re.fullmatch(r"\d+", value):
            return int(value)
        case "tuple[str, ...]", list():
            return tuple(_read("str | None", line) for line in value)
        case "tuple[str, ...]", str():
            return tuple(value.rstrip("\n").split("\n"))
        case "Mapping[str, str]", dict() if all(re.fullmatch(r"[A-Za-z_]\w*", str(name)) for name in value):
            return {str(name): _read("str | None", content) for name, content in value.items()}
    raise ValueError


def _unfit(values: Mapping[str, Any]) -> list[str]:
    """The faults of values that have the right type."""
    counts = ("cpus_per_task", "processes_per_node", "cells_per_task", "array_limit")
    faults = [f"{key} must be at least 1" for key in counts if values.get(key) == 0]
    seconds = _seconds(values["time"]) if "time" in values else LEAST
    if seconds is None:
        faults.append(f"time must be as SLURM has it, such as 4:00:00 or 1-12:00:00, got {values['time']!r}")
    elif seconds < LEAST:
        faults.append(
            f"time must be at least {LEAST // 60} min, got {values['time']}: tasks are warned {WARNING} s before"
        )
    for option in values.get("options", ()):
        name = re.match(r"--([a-z][\w-]*)(?:=|$)", option)
        if name is None:
            faults.append(f"options: {option!r} is no option of sbatch; write --name=value")
        elif name[1] in OURS:
            faults.append(f"options: --{name[1]} is set by commeff; leave it out")
        else:
            faults += [f"options: --{name[1]} is the key {key}" for key, asks in ASKS.items() if asks == name[1]]
    return faults


def _seconds(time: str) -> int | None:
    """A SLURM time in seconds: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].

    >>> [_seconds(t) for t in ("90", "90:30", "4:00:00", "1-12", "2-0:30:00", "UNLIMITED", "0", "soon")]
    [5400, 5430, 14400, 129600, 174600, 31536000, 31536000, None]
    """
    if time.upper() in ("UNLIMITED", "INFINITE"):
        return ENDLESS
    match = TIME.fullmatch(time)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if match["days"] is None and match["third"] is None:  # minutes come first
        hours, minutes, seconds = 0, hours, minutes
    return days * 86_400 + hours * 3600 + minutes * 60 + seconds or ENDLESS


def _format(value: Any) -> str:
    return repr(value) if isinstance(value, str) else "a list" if isinstance(value, list) else "a mapping"
