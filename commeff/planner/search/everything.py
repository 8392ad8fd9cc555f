"""Brute force over all policies with equal stages, the truth; and the layers of the best pipelines cut anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.estimate import StepParts, estimate
from commeff.planner.memory import PipelineStages, memory, micro_batches_in_flight, worker_memory
from commeff.planner.model import Model
from commeff.planner.policies import SCHEDULES, Mask, Policies, PolicySetting
from commeff.planner.policy import Policy
from commeff.planner.search.chain import CutChain, Cuts, dynamic, every
from commeff.planner.search.space import AXES, Rows, Space, Values

MOST_CUTS = 20_000  # of a pipeline that are all tried
RECUT = 12  # pipelines whose layers are cut anew
CUTTABLE = ("gpipe", "1f1b")  # schedules of one chunk whose time the chain's formula gives
DEEP = 512  # layers of the deepest model that is cut anew

Solver = Callable[[CutChain], Cuts]


@dataclass(frozen=True, eq=False)
class ScanResult:
    """The best of what was priced.

    Parameters
    ----------
    even : rows with equal stages that fit, best first.
    to_cut : rows of pipelines whose stages may be unequal, best first, as if layers were infinitely divisible.
    seconds : of the first of `even`, times the steps of its way; infinite if there is none.
    priced : how many policies were.
    smallest : the least share of the memory that any of them fills.
    """

    even: Rows
    to_cut: Rows
    seconds: float
    priced: int
    smallest: float


class Best:
    """The rows with the least values among all that were offered."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.rows, self.values = np.empty((0, len(AXES)), dtype=np.int64), np.empty(0)

    def offer(self, rows: Rows, values: Values) -> None:
        """Take what is among the best, of equal values what came first; infinite ones never are."""
        good = np.flatnonzero(np.isfinite(values))
        if len(good) > self.keep:
            good = good[values[good] <= np.partition(values[good], self.keep - 1)[self.keep - 1]]
        rows, values = np.vstack([self.rows, rows[good]]), np.append(self.values, values[good])
        order = np.argsort(values, kind="stable")[: self.keep]
        self.rows, self.values = rows[order], values[order]


def scan(space: Space, keep: int, budget: int | None = None, constants: Constants = MEASURED) -> ScanResult:
    """Price all policies, or the first `budget` of them.

    With them, pipelines that 1F1B or GPipe could run with unequal stages are priced as if every stage had layers /
    pipeline layers, unless the model has more than `DEEP`.

    Parameters
    ----------
    keep : how many policies to return.
    budget : policies that may be priced; None: all.
    """
    even, to_cut = Best(keep), Best(RECUT)
    priced, smallest = 0, np.inf
    limit, units = space.cluster.gpu.memory_bytes, space.model.units
    for rows in space.blocks(uneven=True):
        policies = space.policies(rows)
        cut = cuttable(policies) & (space.model.layers <= DEEP)
        equal = units % (policies.pipeline * policies.chunks) == 0
        rows = rows[equal | cut][: None if budget is None else budget - priced]
        policies, cut, equal = space.policies(rows), cut[equal | cut][: len(rows)], equal[equal | cut][: len(rows)]
        if not len(rows):
            continue
        prices = estimate(space.model, policies, space.cluster, space.global_batch, constants)
        seconds = prices.step_seconds * space.steps(rows)
        seconds[prices.memory_bytes > limit] = np.inf
        smallest = min(smallest, float(prices.memory_bytes.min()) / limit)
        even.offer(rows[equal], seconds[equal])
        to_cut.offer(rows[cut], seconds[cut])
        priced += len(rows)
        if priced == budget:
            break
    return ScanResult(even.rows, to_cut.rows, float(min(even.values, default=np.inf)), priced, smallest)


def recuts(space: Space, rows: Rows, solve: Solver, constants: Constants = MEASURED) -> list[tuple[Policy, float]]:
    """Policies with layers cut by a solver, and the steps that each needs; only those whose stages come out unequal.

    Parameters
    ----------
    rows : rows of the space: policies as whole numbers.
    solve : finds the best cuts of a chain.
    """
    policies = []
    for policy, steps in space.with_steps(rows):
        cuts = solve(chain(space.model, policy, space.cluster, space.global_batch, constants))
        if cuts is not None and len(set(cuts)) > 1:
            policies.append((replace(policy, stages=cuts), steps))
    return policies


def thorough(pieces: CutChain) -> Cuts:
    """All cuts where they are few; else dynamic programming, which a law holds equal to all cuts."""
    return every(pieces) if pieces.ways <= MOST_CUTS else dynamic(pieces)


def cuttable(policies: Policies) -> Mask:
    """Pipelines whose stages may be unequal."""
    schedules = [SCHEDULES.index(name) for name in CUTTABLE]
    return np.isin(policies.schedule, schedules) & (policies.pipeline > 1)


def chain(
    model: Model, policy: Policy, cluster: Cluster, global_batch: int, constants: Constants = MEASURED
) -> CutChain:
    """Seconds and bytes of every stage with any number of layers.

    Parameters
    ----------
    policy : a policy whose stages are to be cut.

    Examples
    --------
    >>> from commeff.planner.search.chain import dynamic
    >>> model = Model(layers=8, hidden=2048, heads=16, sequence=1024, vocab=256000)
    >>> policy = Policy(pipeline=4, data=2)
    >>> dynamic(chain(model, policy, Cluster.named("a100_selene", gpus=8), global_batch=64))  # a large vocabulary
    (2, 2, 3, 1)
    """
    one = Policies.of([policy])
    setting = PolicySetting(model, cluster, global_batch, constants)
    both = StepParts.both(one, setting)
    p, m = policy.pipeline, int(one.micro_batches(setting)[0])
    stage, n = np.divmod(np.arange(p * model.layers), model.layers)
    n += 1
    first, last = stage == 0, stage == p - 1
    again = stage < policy.recomputing
    passes = np.where(again, *(piece.forward + piece.backward for piece in (of.piece(n) for of in both)))
    seconds = passes + first * both[0].embedding.total + last * both[0].head.total
    in_flight = micro_batches_in_flight(one, setting, stage)
    columns = (n, first.astype(int) + last, first, last, in_flight, again)
    stages = PipelineStages(*(column[None] for column in columns))
    held = memory(one, setting, stages, worker_memory(one, setting, stages))
    fits = (n % model.expert_every == 0) & (sum(held.values()) <= cluster.gpu.memory_bytes)
    return CutChain(seconds.reshape(p, -1), fits.reshape(p, -1), m)
