"""Where the rows of a run go beside its metrics.jsonl: `log=tensorboard`, `log=wandb`, `log=[wandb,mlflow]`."""

from commeff.experiments.sinks.rows import LoggedRows, unavailable
from commeff.experiments.sinks.sink import SINKS

__all__ = ["SINKS", "LoggedRows", "unavailable"]
