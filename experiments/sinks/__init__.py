"""Where the rows of a run go beside its metrics.jsonl: `log=tensorboard`, `log=wandb`, `log=[wandb,mlflow]`."""

from commeff.experiments.sinks.rows import SINKS, LoggedRows, Sink, unavailable

__all__ = ["SINKS", "LoggedRows", "Sink", "unavailable"]
