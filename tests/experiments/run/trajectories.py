"""What two runs have measured, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def rows(folder: Path) -> list[dict[str, Any]]:
    """The measurements of a run, but for the seconds."""
    return [_timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same(mine: Path, theirs: Path) -> None:
    """Both runs are done, and have measured the same up to rounding."""
    for one, other in zip(rows(mine), rows(theirs), strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)
    own, wanted = (_timeless(json.loads((folder / "summary.json").read_text())) for folder in (mine, theirs))
    assert own.pop("state") == wanted.pop("state") == "done"
    assert own == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.endswith("seconds")}
