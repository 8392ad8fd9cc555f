"""The page on what splitting changes: its rows are right where a law is at hand, and wrong ones would be seen."""

from __future__ import annotations

import pytest

from commeff.experiments.studies.splitting import exactness, volumes
from commeff.experiments.studies.splitting.exactness import FEW, differences

pytestmark = pytest.mark.slow  # of a study, which nobody installs


def test_differences_are_rounding_and_something_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "METHODS", {name: exactness.METHODS[name] for name in ("psgd", exactness.CLIPPED)})
    rows = differences(FEW[:1])
    assert [row["method"] for row in rows] == ["psgd", exactness.CLIPPED, f"{exactness.CLIPPED}, clipped at 0.6"]
    assert all(0 <= row["difference"] <= 1e-12 and row["moved"] > 0.02 for row in rows)
    monkeypatch.setattr(exactness, "STEPS", 3)
    stacked = exactness._stacked(FEW[0], "psgd")
    monkeypatch.setattr(exactness, "STEPS", 4)
    monkeypatch.setattr(exactness, "_stacked", lambda place, method: stacked)
    assert all(row["difference"] > 1e-4 for row in differences(FEW[:1])), "a step less would not be seen"


def test_axes_carry_their_formulas_and_torch_counts_as_much() -> None:
    for row in volumes.axis_rows():
        assert row["by formula"] == row["by our axes"] == row["by torch's operations"] > 0, row["split"]


def test_activations_are_within_three_per_cent() -> None:
    assert all(1 <= row["ratio"] <= 1.03 for row in volumes.activation_rows())
