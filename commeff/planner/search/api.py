"""`search`: the one function in front of all methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from commeff import require
from commeff.cluster import Cluster
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.frameworks import FRAMEWORKS
from commeff.planner.model import Model, count
from commeff.planner.policy import Policy
from commeff.planner.predict import Prediction, predict
from commeff.planner.search.bayes import Bayes
from commeff.planner.search.chain import dynamic, integer
from commeff.planner.search.everything import RECUT, Solver, recuts, scan, thorough
from commeff.planner.search.evolution import Evolution
from commeff.planner.search.guided import EvenPolicies, Problem, RandomSearch, Searcher, drive
from commeff.planner.search.reinforce import Reinforce
from commeff.planner.search.space import Space
from commeff.planner.worker_method import WorkerMethod

SOLVERS: dict[str, Solver] = {"exhaustive": thorough, "dp": dynamic, "ilp": integer}
GUIDED: dict[str, Callable[[Problem, np.random.Generator], Searcher]] = {
    "evolution": Evolution,
    "bayes": Bayes,
    "reinforce": Reinforce,
    "random": RandomSearch,
}
METHODS = (*SOLVERS, *GUIDED)
GUIDED_BUDGET = 1000


class Plan(NamedTuple):
    """A policy that a search found.

    Parameters
    ----------
    policy, prediction : what to run, and what it costs.
    steps : steps to the same loss in units of those of `psgd`, as its way was said to need.
    """

    policy: Policy
    prediction: Prediction
    steps: float = 1.0

    @property
    def step_seconds(self) -> float:
        """Seconds of one optimizer step."""
        return self.prediction.step_seconds

    @property
    def cost(self) -> float:
        """What was made small: seconds of as many steps as do the work of one step of `psgd`."""
        return self.steps * self.prediction.step_seconds


def search(
    model: Model,
    cluster: Cluster,
    global_batch: int,
    budget: int | None = None,
    method: str = "exhaustive",
    *,
    seed: int = 0,
    top: int = 10,
    ways: Sequence[WorkerMethod] = (WorkerMethod(),),
    precision: str = "bf16",
    overlap: str | None = None,
    framework: str | None = None,
    constants: Constants | None = None,
) -> list[Plan]:
    """The fastest policies that fit in memory, best first.

    Parameters
    ----------
    model : the transformer to be trained.
    cluster : the GPUs, all of which a plan uses.
    global_batch : sequences in a step, over all ranks.
    budget : policies that may be priced; by default all of them (exhaustive, dp, ilp) or 1000.
    method : exhaustive prices every policy with equal stages, then cuts the layers of the best 1F1B and GPipe
        pipelines anew, by trying all cuts (or by dynamic programming, where there are more than 20,000); dp and ilp do
        the same and cut by dynamic and by integer programming. evolution, bayes, reinforce and random price some
        policies with equal stages.
    seed : of what is random; the same seed gives the same plans.
    top : most plans to return.
    ways : what the worker axis may do. Without any, all replicas are averaged in every step. A method that
        communicates less is faster in every step and needs more steps: say with `WorkerMethod(steps=...)` how many.
    precision, overlap : of every policy, as in `Policy`.
    framework : one of `FRAMEWORKS`, which runs all of them and says what a policy leaves open, so overlap if not given.
    constants : what a real machine reaches of its data sheet; unless given those of the framework, or `MEASURED`.

    Raises
    ------
    ValueError : if nothing can be laid over the cluster, or nothing that was priced fits.
    """
    require.one_of(METHODS, **{"search method": method})
    count(top=top)
    if budget is not None:
        count(budget=budget)
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be a whole number from 0 on, got {seed!r}")
    space = Space(model, cluster, global_batch, tuple(ways), precision, overlap, framework)
    if constants is None:
        constants = MEASURED if framework is None else FRAMEWORKS[framework].constants
    if method in SOLVERS:
        policies, smallest = _solved(space, budget, SOLVERS[method], top, constants)
    else:
        policies, smallest = _guided(space, budget or GUIDED_BUDGET, method, seed, top, constants)
    plans = [
        Plan(policy, predict(model, policy, cluster, global_batch=global_batch, constants=constants), steps)
        for policy, steps in policies
    ]
    plans = sorted((plan for plan in plans if plan.prediction.fits), key=lambda plan: plan.cost)
    if not plans:
        raise ValueError(nothing(space, smallest))
    return plans[:top]


def _solved(
    space: Space, budget: int | None, solve: Solver, top: int, constants: Constants
) -> tuple[list[tuple[Policy, float]], float]:
    """Every policy, or the first of them; what is cut anew counts as priced."""
    cuts = RECUT if budget is None else min(RECUT, budget // 10)
    ranking = scan(space, top, None if budget is None else budget - cuts, constants)
    recut = recuts(space, ranking.to_cut[:cuts], solve, constants)
    return space.with_steps(ranking.even) + recut, ranking.smallest


def _guided(
    space: Space, budget: int, method: str, seed: int, top: int, constants: Constants
) -> tuple[list[tuple[Policy, float]], float]:
    """The best of what a searcher priced."""
    problem, random = EvenPolicies(space, constants), np.random.default_rng(seed)
    trace = drive(GUIDED[method](problem, random), problem, budget, random)
    rows = trace.rows[np.argsort(trace.values, kind="stable")[:top]]
    return space.with_steps(rows), float("nan") if len(rows) else float("inf")


def nothing(space: Space, smallest: float) -> str:
    """The message of a search that ends without a plan."""
    where = f"{space.cluster.name} with gpus={space.cluster.gpus}"
    if smallest == float("inf"):
        return (
            f"no policy lays global_batch={space.global_batch} over {where}; the batch is to be a multiple of the "
            "data-parallel ranks, heads and layers of the tensor and pipeline ranks"
        )
    memory = space.cluster.gpu.memory_bytes / 2**30
    least = "" if np.isnan(smallest) else f"; the leanest needs {smallest * memory:.0f} GiB"
    return f"no policy that was priced fits in the {memory:.0f} GiB of a GPU, on {where}{least}; take more GPUs"
