"""A recorder that passes every row on. What fails on the way to others costs a line, never the run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commeff.experiments.escape import visible
from commeff.experiments.sinks.sink import SINKS, Sink
from commeff.training.recorder import Recorder


def unavailable(log: str | Sequence[str] | None) -> list[str]:
    """A line for each sink that is not there, or whose package is not.

    >>> unavailable(["tensorbord"])
    ["log must name some of tensorboard, wandb, mlflow, got 'tensorbord'"]
    """
    lines = []
    for name in named(log):
        if name not in SINKS:
            lines.append(f"log must name some of {', '.join(SINKS)}, got {name!r}")
        elif find_spec(name) is None:
            lines.append(f"log={name} needs the package {name}, which is not here: pip install 'commeff[{name}]'")
    return lines


def named(log: str | Sequence[str] | None) -> list[str]:
    """The names in a value of the key `log`, each once.

    >>> named(None), named("wandb"), named(["wandb", "mlflow", "wandb"])
    ([], ['wandb'], ['wandb', 'mlflow'])
    """
    return [*dict.fromkeys([log] if isinstance(log, str) else log or ())]


class LoggedRows(Recorder):
    """metrics.jsonl, and the same rows to sinks, which are opened with the first of them.

    Parameters
    ----------
    folder : of the run.
    config : its configuration, whose key `log` names the sinks.
    """

    def __init__(self, folder: str | Path, config: Mapping[str, Any]) -> None:
        super().__init__(folder)
        self._config, self._step = config, 0
        self._waiting, self._sinks = named(config.get("log")), dict[str, Sink]()

    def write(self, row: dict[str, Any]) -> None:
        """Add one row."""
        super().write(row)
        for name in self._waiting:
            self._tried(name, partial(self._open, name))
        self._waiting = []
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, (int, float))}
        for name, sink in [*self._sinks.items()]:
            self._tried(name, partial(sink.write, int(row["step"]), numbers))

    def rewind(self, step: int) -> None:
        """Forget the rows after `step`; sinks are told where the run goes on from."""
        super().rewind(step)
        self._step = step

    def close(self) -> None:
        """No more rows will come."""
        for name, sink in [*self._sinks.items()]:
            self._tried(name, sink.close)
        self._sinks = {}

    def _open(self, name: str) -> None:
        if name not in SINKS:  # a list of cells may name anything
            raise ValueError(*unavailable(name))
        self._sinks[name] = SINKS[name](self.path.parent, self._config, self._step)

    def _tried(self, name: str, act: Callable[[], None]) -> None:
        """The run is worth more than its picture elsewhere: a sink that fails is left out from there on."""
        try:
            act()
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            print(visible(f"log={name} stopped ({type(error).__name__}: {reason}); the run goes on"), file=sys.stderr)
            self._sinks.pop(name, None)
