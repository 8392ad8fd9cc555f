"""The cause of a difference between two runs that should be equal, where it is no fault but the order of sums."""

from __future__ import annotations

from commeff.laws.problem import WORKERS, MethodCase, plain_run, run

ROUNDINGS = (1e-15, -1e-15, 3e-15)  # of gradients near 1
CHANCE = 100.0  # times as far as those move a run, others may


def order_of_sums(case: MethodCase, difference: float) -> str:
    """What to do where roundings of one gradient move a run about as far as it differs; "" where they do not."""
    whole = plain_run(case)[0]
    moved = max(float((run(case.build(WORKERS), push=push)[0] - whole).abs().max()) for push in ROUNDINGS)
    if not max(difference, 1e-12) < moved * CHANCE:
        return ""
    return (
        f"sums in another order: {ROUNDINGS[0]:g} more in one gradient moves a run by {moved:.1e}, so roundings "
        "decide; take no sign, largest entry or quotient of a difference that is 0 but for rounding"
    )
