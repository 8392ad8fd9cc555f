"""TensorBoard: event files in the run's folder. `tensorboard --logdir runs` shows a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.sinks.rows import Sink, flat


class _Events:
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


def open_sink(folder: Path, config: Mapping[str, Any], step: int) -> Sink:
    """Event files in `folder`/tensorboard; what was written there after `step` is hidden."""
    return _Events(folder, config, step)
