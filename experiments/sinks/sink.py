"""Where rows can go: TensorBoard, Weights & Biases, MLflow, each by the package of its name.

A sink is made with the run's folder, its configuration and the step that it goes on from. `write` takes the numbers of
one evaluation; `close` waits until what is on its way has arrived.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST = 500  # characters of a setting in MLflow


class TensorBoard:
    """Event files in the run's folder; what was written there after `step` is hidden.

    `tensorboard --logdir runs` shows a store.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
        lines = [f"    {key}: {value}" for key, value in flat(config).items()]
        self._writer.add_text("config", "\n".join(lines), step)

    def write(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            if name != "step":
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Project WANDB_PROJECT (commeff unless set), a run a run. WANDB_MODE=offline needs no network.

    The run of the same name goes on where there is one; steps that it has are kept as they are.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], step: int) -> None:
        import wandb

        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "commeff"),
            id=folder.name,
            name=folder.name,
            resume="allow",
            dir=str(folder),
            config=flat(config),
            settings=quiet,
        )

    def write(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """Experiment MLFLOW_EXPERIMENT_NAME (commeff unless set) at MLFLOW_TRACKING_URI.

    The run that is tagged with the folder's name goes on, or a new one begins. Files need no server
    (MLFLOW_ALLOW_FILE_STORE=true MLFLOW_TRACKING_URI=file:mlruns); databases need the whole package.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], step: int) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "commeff")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        tagged = self._client.search_runs([experiment], f"tags.commeff = '{folder.name}'", max_results=1)
        if tagged:
            self._id = tagged[0].info.run_id
            return
        self._id = self._client.create_run(experiment, run_name=folder.name, tags={"commeff": folder.name}).info.run_id
        for key, value in flat(config).items():
            self._client.log_param(self._id, key, str(value)[:LONGEST])

    def write(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            if name != "step":
                self._client.log_metric(self._id, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._id)


Sink = TensorBoard | WeightsAndBiases | MLflow
SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and plain values, as every sink takes settings.

    >>> flat({"method": {"_target_": "commeff.methods.psgd"}, "steps": 3})
    {'method': 'commeff.methods.psgd', 'steps': 3}
    """
    settings: dict[str, Any] = {}
    for name, value in config.items():
        key = prefix.rstrip(".") if name == "_target_" else f"{prefix}{name}"
        if name != "_partial_":
            settings |= flat(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return settings
