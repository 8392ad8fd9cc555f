"""When a run counts as diverged, at the edges of the rule."""

from __future__ import annotations

import math
from typing import Any

import pytest

from commeff.training.divergence import APART, WORSE, blown_up, worse

GOOD = {"start_loss": 2.0, "val_loss": 0.5, "train_loss": 0.4, "consensus_distance": 1.0, "parameter_norm": 5.0}
FAR = {"consensus_distance": 5.0 * APART * 1.01}


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({}, ""),
        ({"val_loss": 2.0 * WORSE}, ""),
        ({"val_loss": 2.0 * WORSE * 1.01}, "val_loss 20.2 at the end is more than 10 times the 2 at the start"),
        ({"val_loss": math.nan}, "val_loss nan"),
        ({"train_loss": 1e37}, ""),
        ({"val_loss": None, "train_loss": 1e37}, "train_loss 1e+37"),
        ({"start_loss": 0.0, "val_loss": 1e37}, ""),
        ({"start_loss": None, "val_loss": 1e37}, ""),
        (FAR, "consensus_distance 505 at the end is more than 100 times the norm of the parameters, 5"),
        ({"consensus_distance": 5.0 * APART}, ""),
        (FAR | {"local_val_loss": 0.6}, ""),
        (FAR | {"local_train_loss": 0.6}, ""),
        (FAR | {"local_val_loss": 1e9, "local_train_loss": 0.6}, "consensus_distance"),
        (FAR | {"local_val_loss": None}, "consensus_distance"),
        (FAR | {"local_val_loss": 0.6, "start_loss": 0.0}, "consensus_distance"),
        (FAR | {"parameter_norm": None}, ""),
        ({"consensus_distance": math.nan}, ""),
    ],
)
def test_the_end_is_held_against_the_start(ending: dict[str, Any], reason: str) -> None:
    said = blown_up(GOOD | ending)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


def test_what_is_no_number_is_worse_than_any() -> None:
    assert worse(math.nan, 2.0)
    assert worse(math.inf, 2.0)
    assert not worse(math.inf, -1.0)
