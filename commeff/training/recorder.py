"""metrics.jsonl: one JSON object a line, in the order of steps, also after a resume."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

from commeff.files import regular, rewrite, writing


class Recorder:
    """Appends rows to `folder/metrics.jsonl`.

    >>> import tempfile
    >>> recorder = Recorder(tempfile.mkdtemp())
    >>> recorder.write({"step": 5, "train_loss": 0.5}); recorder.write({"step": 10, "train_loss": 0.25})
    >>> recorder.rewind(5)
    >>> recorder.rows()
    [{'step': 5, 'train_loss': 0.5}]
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "metrics.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, row: dict[str, Any]) -> None:
        """Add one row, on disk when this returns. What is not finite becomes null, as JSON has it."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with writing(self.path), open(self.path, "a", encoding="utf-8", opener=regular) as file:
            file.write(json.dumps(finite) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rows(self) -> list[dict[str, Any]]:
        """All rows up to the first line that is none; a last line that a crash has cut off is none."""
        if not self.path.exists():
            return []
        with open(self.path, encoding="utf-8", errors="replace", opener=regular) as file:
            lines = file.read().split("\n")[:-1]
        return [*takewhile(lambda row: row is not None, map(_row, lines))]

    def rewind(self, step: int) -> None:
        """Forget the rows after `step`: what comes after a checkpoint will be written again."""
        self.begin([row for row in self.rows() if row["step"] <= step])

    def begin(self, rows: Iterable[dict[str, Any]]) -> None:
        """Have these rows, and no others so far."""
        rewrite(self.path, "".join(json.dumps(row) + "\n" for row in rows))


def _row(line: str) -> Any:
    """The row that a line holds, None if it holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None
