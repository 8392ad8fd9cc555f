"""`resume_from=FOLDER`: a run that begins where another one has come to, on any mesh and with any number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.config.registry import current, split
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.reading import parse_yaml, read_mapping
from commeff.experiments.run.store import RunFolder
from commeff.training.checkpoint import OLD, Checkpoints
from commeff.training.documents import CheckpointRefused


def origin_of(config: Mapping[str, Any], run: RunFolder) -> str | None:
    """The run that this one goes on from, and its step, in words; None if it has checkpoints of its own by now.

    Raises
    ------
    ConfigError : it cannot go on from there.
    """
    if _has_any(run.path):
        return None
    folder = Path(config["resume_from"])
    try:
        theirs = current(read_mapping(folder / "config.yaml", parse_yaml))
        method = theirs["method"]["_target_"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _fault("be the folder of a run", folder, "has no configuration: give one that is in a store") from None
    if RunFolder(folder).busy:
        raise _fault("have ended", folder, "is under way: stop it, or wait for it")
    if not _has_any(folder):
        raise _fault("have a checkpoint", folder, "has none: stop it by Ctrl-C, or let it end")
    ours = config["method"]["_target_"]
    if method != ours:
        name = split(method)[1]
        raise _fault(f"be of this run's method, {split(ours)[1]}", folder, f"is of {name}: give method={name}")
    try:
        step = Checkpoints(folder / "checkpoints", run=run_id(theirs)).step() or 0
    except CheckpointRefused as refusal:
        raise ConfigError([f"resume_from: {refusal}"]) from None
    if step > config["steps"]:
        raise ConfigError([f"steps must be at least {step}, got {config['steps']}: {folder.name} stands there"])
    return f"{folder.name} at step {step}"


def _has_any(folder: Path) -> bool:
    return any((folder / "checkpoints" / name).exists() for name in ("latest.pt", "previous.pt", OLD))


def _fault(must: str, folder: Path, got: str) -> ConfigError:
    return ConfigError([f"resume_from must {must}, got {folder}, which {got}"])
