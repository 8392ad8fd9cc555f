"""`resume_from=FOLDER`: a run that begins where another one has come to, on any mesh and with any number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commeff.experiments.config.build import build
from commeff.experiments.config.registry import current, split
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.reading import parse_yaml, read_mapping
from commeff.experiments.run.store import RunFolder
from commeff.replicas import Stacked
from commeff.training.checkpoint import CheckpointRefused, Checkpoints
from commeff.training.evaluation import yardsticks
from commeff.training.recorder import Recorder
from commeff.training.run import Run

BROUGHT = "origin"  # in a run's folder: a checkpoint by tensor of the run that it goes on from, where that has none


@dataclass(frozen=True)
class StoredOrigin:
    """The run that another one goes on from.

    Attributes
    ----------
    folder : of that run.
    config : what ran there.
    step : of its last checkpoint.
    """

    folder: Path
    config: Mapping[str, Any]
    step: int

    def bring(self, run: RunFolder) -> None:
        """Note in a run's folder where it comes from; a checkpoint of whole workers is written there by tensor."""
        from commeff.training.mesh_checkpoints import pointed

        if not pointed(self.folder / "checkpoints"):
            self._bring_by_tensor(run.path / BROUGHT)
        run.mark("queued", origin=f"{self.folder.name} at step {self.step}")

    def _bring_by_tensor(self, to: Path) -> None:
        from commeff.training.mesh_checkpoints import MeshCheckpoints

        parts = build(self.config)
        replicas = Stacked(parts.task.model, parts.communicator.workers, self.config["seed"])
        state = Run.start(replicas, parts.strategy, parts.communicator)
        _checkpoints(self.folder, self.config).restore(state)
        state.began = yardsticks(parts.task, parts.task.model())
        MeshCheckpoints(_checkpoints(to, self.config)).keep_now(state)
        Recorder(to).begin(Recorder(self.folder).rows())


def origin_folder(config: Mapping[str, Any], run: RunFolder) -> Path:
    """Where the checkpoint by tensor is that a run begins from, unless it has one of its own."""
    brought = run.path / BROUGHT
    return brought if brought.is_dir() else Path(config["resume_from"])


def origin_of(config: Mapping[str, Any], run: RunFolder) -> StoredOrigin | None:
    """The run that this one goes on from; None if it has checkpoints of its own by now.

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
    from commeff.training.mesh_checkpoints import last_step

    try:
        step = last_step(_checkpoints(folder, theirs))
    except CheckpointRefused as refusal:
        raise ConfigError([f"resume_from: {refusal}"]) from None
    if step > config["steps"]:
        raise ConfigError([f"steps must be at least {step}, got {config['steps']}: {folder.name} stands there"])
    return StoredOrigin(folder, theirs, step)


def _checkpoints(folder: Path, config: Mapping[str, Any]) -> Checkpoints:
    return Checkpoints(folder / "checkpoints", run=run_id(config))


def _has_any(folder: Path) -> bool:
    return any((folder / "checkpoints" / name).exists() for name in ("latest", "previous", "latest.pt", "previous.pt"))


def _fault(must: str, folder: Path, got: str) -> ConfigError:
    return ConfigError([f"resume_from must {must}, got {folder}, which {got}"])
