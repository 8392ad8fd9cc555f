"""When a run counts as diverged: what it ended with, held against where it began. See docs/trust.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

WORSE = 10.0  # times the loss of the initial model
APART = 100.0  # times the norm of the parameters
IDLE = 0.99  # times the loss of the initial model


def not_finite(row: Mapping[str, float]) -> str:
    """Which measurements of a row are no numbers, in words; "" if all are.

    >>> not_finite({"step": 20, "train_loss": math.inf, "val_loss": math.nan, "lr": 0.1})
    'train_loss and val_loss at step 20 are not finite'
    """
    names = [name for name, value in row.items() if not math.isfinite(value)]
    if not names:
        return ""
    listed = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    return f"{listed} at step {row['step']} {'are' if len(names) > 1 else 'is'} not finite"


def blown_up(summary: Mapping[str, Any]) -> str:
    """Why a run that came to its end with finite numbers has diverged, in words; "" if it has not.

    Only the end counts: what a run survives on its way is no divergence. It has diverged if

    - its loss (`val_loss`, or `train_loss` where there is none) is more than `WORSE` times `start_loss`, which is that
      of the initial model; or if
    - its `consensus_distance` is more than `APART` times `parameter_norm`, and the loss of the workers' own models
      (`local_val_loss` or `local_train_loss`, where there is one) is more than `WORSE` times `start_loss` too: workers
      whose average is near zero may be far from it and good.

    A loss that begins at zero or below has no multiple and is not judged; None stands for what is not finite.

    >>> blown_up({"start_loss": 2.0, "val_loss": 19.0}), blown_up({"val_loss": 1e37})
    ('', '')
    >>> blown_up({"start_loss": 2.0, "val_loss": 1e37})
    'val_loss 1e+37 at the end is more than 10 times the 2 at the start'
    >>> apart = {"consensus_distance": 1e9, "parameter_norm": 5.0, "start_loss": 2.0, "val_loss": 0.5}
    >>> blown_up(apart | {"local_val_loss": 0.6})
    ''
    >>> blown_up(apart | {"local_val_loss": 1e18})
    'consensus_distance 1e+09 at the end is more than 100 times the norm of the parameters, 5'
    """
    start = summary.get("start_loss")
    name = next((name for name in ("val_loss", "train_loss") if summary.get(name) is not None), None)
    if name and worse(summary[name], start):
        return f"{name} {summary[name]:.3g} at the end is more than {WORSE:g} times the {start:.3g} at the start"
    distance, norm = summary.get("consensus_distance"), summary.get("parameter_norm")
    if distance is None or norm is None or not distance > APART * norm:
        return ""
    local = next((summary[name] for name in ("local_val_loss", "local_train_loss") if name in summary), math.inf)
    if start and start > 0 and not worse(local, start):
        return ""
    return (
        f"consensus_distance {distance:.3g} at the end is more than {APART:g} times the norm of the parameters, "
        f"{norm:.3g}"
    )


def learned_nothing(val_loss: float, train_loss: float, start: float) -> bool:
    """Whether a run ended no better than it began: neither loss is more than 1 % below that of the initial model.

    One that overfits has a low loss on what it was trained on; NaN stands for what was not measured.

    >>> learned_nothing(2.3, 2.29, 2.3), learned_nothing(9.0, 0.1, 2.3), learned_nothing(2.3, math.nan, math.nan)
    (True, False, False)
    """
    losses = [loss for loss in (val_loss, train_loss) if not math.isnan(loss)]
    return bool(losses) and start > 0 and min(losses) > IDLE * start


def worse(loss: float | None, start: float | None) -> bool:
    """Whether a loss is out of all proportion to where it began.

    >>> worse(20.0, 2.0), worse(20.1, 2.0), worse(None, 2.0), worse(20.0, 0.0)
    (False, True, True, False)
    """
    if start is None or not start > 0:
        return False
    return loss is None or not loss <= WORSE * start
