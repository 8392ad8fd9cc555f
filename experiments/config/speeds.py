"""How fast workers compute on a run's simulated clock: what cannot be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.config.meshes import mesh_size
from commeff.experiments.config.settings import RUN
from commeff.require import did_you_mean

LEAST, MOST = 1e-9, 1e6  # seconds of a step; times that a straggler takes have the same bounds
KEYS = ("step_time", "spread", "straggler", "links")  # they mean something with speeds alone

NAMED = Path(__file__).parents[2] / "cluster" / "named"  # whose links may be taken


def clocked(config: Mapping[str, Any]) -> bool:
    """Whether a run has a simulated clock; old configurations have none.

    >>> clocked({}), clocked({"speeds": "drawn"})
    (False, True)
    """
    return config.get("speeds") is not None


def speed_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for what the keys of the clock cannot be, and for what does not go with one."""
    speeds, n = config["speeds"], config["workers"]
    if speeds is None:
        moved = [key for key in KEYS if config[key] != RUN[key].default]
        return [f"speeds must be given with {key}={config[key]}, got none: say speeds=constant" for key in moved]
    faults = []
    if isinstance(speeds, list) and not all(_fits(line, n) for line in speeds):
        line = next(line for line in speeds if not _fits(line, n))
        faults.append(
            f"speeds must name workers from 0 to {n - 1} and seconds from {LEAST:g} to {MOST:,.0f}, got {line}: "
            "correct the file"
        )
    for key in ("step_time", "straggler"):
        if not LEAST <= config[key] <= MOST:
            faults.append(
                f"{key} must lie from {LEAST:g} to {MOST:,.0f}, got {config[key]}: the clock counts nanoseconds"
            )
    if config["spread"] != RUN["spread"].default and speeds != "drawn":
        faults.append(f"spread must go with speeds=drawn, got spread={config['spread']} with speeds={speeds}")
    if config["links"] is not None and not (NAMED / f"{config['links']}.yaml").is_file():
        names = sorted(path.stem for path in NAMED.glob("*.yaml"))
        meant = did_you_mean(config["links"], names)
        faults.append(f"no cluster {config['links']!r} for links{meant}; choose from {', '.join(names)}")
    if mesh_size(config) > 1:
        faults.append("mesh must have degrees of 1 with speeds, got a mesh of more: the clock is of whole workers")
    for key in ("participation", "dropout", "availability"):
        if config[key] != RUN[key].default:
            faults.append(
                f"{key} must be {RUN[key].default} with speeds, got {config[key]}: the clock is of all workers"
            )
    return faults


def _fits(line: Any, n: int) -> bool:
    whole = isinstance(line, list) and len(line) == 2 and type(line[0]) is int
    return whole and 0 <= line[0] < n and type(line[1]) in (int, float) and LEAST <= line[1] <= MOST
