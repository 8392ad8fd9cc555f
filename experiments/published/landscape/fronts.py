"""Which methods nobody beats in cost and in result at once, and what the seeds say of each step along that front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commeff.experiments.report.data.statistics import Estimate, estimate, higher_is_better, paired, pareto_front


@dataclass(frozen=True)
class FrontPoint:
    """A method on a front.

    Attributes
    ----------
    method, cost : which, and what it costs.
    value : mean and interval over seeds.
    gain : how much better than the next cheaper one of the front, paired by seed; None for the cheapest.
    """

    method: str
    cost: float
    value: Estimate
    gain: Estimate | None

    @property
    def told_apart(self) -> bool | None:
        """Do the seeds tell it from the next cheaper one? None for the cheapest."""
        return None if self.gain is None else self.gain.tells


def front(costs: Mapping[str, float], values: Mapping[str, Mapping[int, float]], metric: str) -> list[FrontPoint]:
    """The Pareto front by means, cheapest first.

    Parameters
    ----------
    costs : by method.
    values : by method and seed.
    metric : what the values are, which says whether they are to be high.

    >>> values = {"psgd": {0: 0.9, 1: 0.92}, "signs": {0: 0.8, 1: 0.82}, "slow": {0: 0.8, 1: 0.8}}
    >>> found = front({"psgd": 4.0, "signs": 1.0, "slow": 2.0}, values, "test_accuracy")
    >>> [(point.method, round(point.value.mean, 2), point.told_apart) for point in found]
    [('signs', 0.81, None), ('psgd', 0.91, True)]
    """
    names = [name for name in costs if name in values]
    means = {name: found for name in names if (found := estimate(values[name].values()))}
    names = [*means]
    order = pareto_front([costs[name] for name in names], [means[name].mean for name in names], metric)
    sign = 1.0 if higher_is_better(metric) else -1.0
    points: list[FrontPoint] = []
    for i in order:
        name, gain = names[i], None
        if points:
            ours, theirs = (
                {seed: sign * value for seed, value in values[each].items()} for each in (name, points[-1].method)
            )
            gain = paired(ours, theirs)
        points.append(FrontPoint(name, costs[name], means[name], gain))
    return points
