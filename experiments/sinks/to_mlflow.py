"""MLflow: experiment MLFLOW_EXPERIMENT_NAME (commeff unless set) at MLFLOW_TRACKING_URI.

Files need no server (MLFLOW_ALLOW_FILE_STORE=true MLFLOW_TRACKING_URI=file:mlruns); databases need the whole package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.sinks.rows import Sink, flat

LONGEST = 500  # characters of a setting


class _MlflowRun:
    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
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


def open_sink(folder: Path, config: Mapping[str, Any], step: int) -> Sink:
    """The run that is tagged with the folder's name, or a new one."""
    return _MlflowRun(folder, config)
