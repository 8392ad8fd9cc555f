"""What a search chooses from: policies written as rows of whole numbers, one for each axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff import require
from commeff.cluster import Cluster
from commeff.planner.frameworks import FRAMEWORKS
from commeff.planner.model import Model, count
from commeff.planner.policies import CHOICES, CONTEXTS, RECOMPUTES, SCHEDULES, Mask, Policies
from commeff.planner.policy import Policy
from commeff.planner.refusals import feasible
from commeff.planner.worker_method import WorkerMethod

Rows = NDArray[np.int64]
Values = NDArray[np.float64]
AXES = ("tensor", "pipeline", "micro_batch", "schedule", "zero", "recompute", "sequence_parallel", "workers", "way")
LAYOUT = 3  # the first axes decide most of what is possible
MICRO_BATCHES, CHUNKS = 32, 12  # the largest that are tried
PART = 8192  # tokens of the shortest parts into which a sequence is split over ranks
BLOCK = 1 << 15  # rows looked at together: their arrays stay in the cache


@dataclass(frozen=True, eq=False)
class Space:
    """All policies of a model on a cluster.

    A row holds, for each of `AXES`, the place of its value in `values`. The ranks of data parallelism are what is left
    of the cluster. Where two rows say the same in other words (ZeRO over one rank), only one of them is possible.

    Parameters
    ----------
    ways : what the worker axis may do.
    precision : of every policy.
    framework : one of `FRAMEWORKS`, which says what a policy leaves open, and runs all of them; None: any.
    overlap : of every policy, unless the framework says it; partial with neither.
    """

    model: Model
    cluster: Cluster
    global_batch: int
    ways: Sequence[WorkerMethod] = (WorkerMethod(),)
    precision: str = "bf16"
    overlap: str | None = None
    framework: str | None = None

    def __post_init__(self) -> None:
        count(global_batch=self.global_batch)
        if self.framework is not None:
            require.one_of(FRAMEWORKS, framework=self.framework)
        Policy(precision=self.precision, **self._stage(0)).check_precision(self.cluster.gpu)
        if not self.ways:
            raise ValueError("ways must hold at least one method, got none; give such as [WorkerMethod()]")

    def _stage(self, zero: int) -> dict[str, Any]:
        """The fields that a stage of ZeRO sets."""
        fields: dict[str, Any] = {"zero": zero, "overlap": "partial"}
        if self.framework is not None:
            fields = FRAMEWORKS[self.framework].fields(self.precision, zero)
        return fields if self.overlap is None else {**fields, "overlap": self.overlap}

    @cached_property
    def values(self) -> dict[str, list[dict[str, Any]]]:
        """The fields of a `Policy` that each value of each axis sets."""
        model, gpus = self.model, self.cluster.gpus
        schedules = [{"schedule": name, "chunks": 1} for name in SCHEDULES if name != "interleaved"]
        schedules += [{"schedule": "interleaved", "chunks": v} for v in divisors(model.layers) if 1 < v <= CHUNKS]
        plain: dict[str, Sequence[Any]] = {
            "pipeline": [p for p in divisors(gpus) if p <= model.layers],
            "micro_batch": [b for b in divisors(self.global_batch) if b <= MICRO_BATCHES],
            "recompute": RECOMPUTES,
            "sequence_parallel": (False, True),
            "workers": divisors(gpus),
        }
        axes = {name: [{name: value} for value in choices] for name, choices in plain.items()}
        parts = [c for c in divisors(gpus) if c == 1 or c * PART <= model.sequence]
        tensors = [t for t in divisors(gpus) if model.heads % t == 0]
        spreads = [{"expert": e} for e in divisors(model.experts) if gpus % e == 0] if model.experts > 1 else [{}]
        splits = [
            {"tensor": t, "context": c, "context_by": by, **spread}
            for t, c, by, spread in product(tensors, parts, CONTEXTS, spreads)
            if by == "ring" or (c > 1 and model.heads % (t * c) == 0)
        ]
        axes |= {"zero": [self._stage(zero) for zero in range(4)], "tensor": splits, "schedule": schedules}
        return {**axes, "way": [way.fields for way in self.ways]}

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of every axis."""
        return tuple(len(self.values[axis]) for axis in AXES)

    @cached_property
    def _columns(self) -> list[tuple[int, str, NDArray[Any]]]:
        """For every axis but the last, the fields of `Policies` that it sets, name by name."""
        columns = []
        for i, axis in enumerate(AXES[:-1]):
            for field in self.values[axis][0]:
                values = [value[field] for value in self.values[axis]]
                places = [CHOICES[field].index(value) for value in values] if field in CHOICES else values
                columns.append((i, field, np.array(places)))
        return columns

    @cached_property
    def _most_workers(self) -> NDArray[np.int64]:
        """The most workers that each way allows."""
        return np.array([way.most_workers or self.cluster.gpus for way in self.ways])

    def policies(self, rows: Rows) -> Policies:
        """The policies that rows stand for, as `estimate` takes them."""
        columns: dict[str, Any] = {name: column[rows[:, i]] for i, name, column in self._columns}
        replicas = columns["tensor"] * columns["context"] * columns["pipeline"]
        data = np.maximum(self.cluster.gpus // replicas, 1)
        return Policies(
            data=data,
            method=rows[:, -1],
            methods=tuple(self.ways),
            precision=self.precision,
            **columns,
        )

    def policy(self, row: Rows) -> Policy:
        """The policy that one row stands for."""
        chosen = {
            name: value for axis, i in zip(AXES, row, strict=True) for name, value in self.values[axis][i].items()
        }
        data = self.cluster.gpus // (chosen["tensor"] * chosen["context"] * chosen["pipeline"])
        return Policy(data=data, precision=self.precision, **chosen)

    def with_steps(self, rows: Rows) -> list[tuple[Policy, float]]:
        """The policy that each row stands for, and the steps that it needs."""
        return [(self.policy(row), float(steps)) for row, steps in zip(rows, self.steps(rows), strict=True)]

    def steps(self, rows: Rows) -> NDArray[np.float64]:
        """Steps that each row needs, in units of `psgd`'s."""
        workers = [value["workers"] for value in self.values["workers"]]
        return np.array([[way.steps_of(n) for n in workers] for way in self.ways])[rows[:, -1], rows[:, -2]]

    def possible(self, rows: Rows, uneven: bool = False) -> Mask:
        """Rows that are policies; with `uneven`, those too whose layers could be cut into unequal stages."""
        policies = self.policies(rows)
        within = policies.workers <= self._most_workers[rows[:, -1]]
        for refusal in FRAMEWORKS[self.framework].refusals if self.framework else ():
            within &= ~refusal.holds(policies)
        return within & feasible(self.model, policies, self.cluster, self.global_batch, uneven) & is_canonical(policies)

    def blocks(self, uneven: bool = False) -> Iterator[Rows]:
        """All possible rows, some at a time."""
        layouts, rest = (  # the last column fastest
            np.indices(sizes).reshape(len(sizes), -1).T.copy() for sizes in (self.sizes[:LAYOUT], self.sizes[LAYOUT:])
        )
        policies = self.policies(np.hstack([layouts, np.zeros((len(layouts), len(AXES) - LAYOUT), dtype=np.int64)]))
        whole = policies.tensor * policies.context * policies.pipeline * policies.data == self.cluster.gpus
        layouts = layouts[whole & (self.global_batch % (policies.data * policies.micro_batch) == 0)]
        at_once = max(1, BLOCK // len(rest))
        blocks, count = list[Rows](), 0
        for start in range(0, len(layouts), at_once):
            part = layouts[start : start + at_once]
            rows = np.hstack([np.repeat(part, len(rest), axis=0), np.tile(rest, (len(part), 1))])
            blocks.append(rows[self.possible(rows, uneven)])
            count += len(blocks[-1])
            if count >= BLOCK // 2:
                yield np.vstack(blocks)
                blocks, count = [], 0
        if count:
            yield np.vstack(blocks)


def is_canonical(policies: Policies) -> Mask:
    """False where another policy says the same in plainer words: ZeRO over one rank, sequences split over one, a
    schedule without a pipeline, chunks of one, `psgd` between workers whose ranks share nothing.

    Examples
    --------
    >>> from commeff.planner.policy import Policy
    >>> is_canonical(Policies.of([Policy(tensor=t, sequence_parallel=True) for t in (1, 2)])).tolist()
    [False, True]
    """
    one_f_one_b, interleaved = SCHEDULES.index("1f1b"), SCHEDULES.index("interleaved")
    canonical = (policies.zero == 0) | (policies.shard > 1)
    canonical &= ~policies.sequence_parallel | (policies.tensor > 1)
    canonical &= (policies.pipeline > 1) | (policies.schedule == one_f_one_b)
    canonical &= (policies.chunks > 1) | (policies.schedule != interleaved)
    return canonical & (~policies.plain | (policies.workers == 1) | (policies.zero > 0))


def divisors(number: int) -> list[int]:
    """All divisors of a number in ascending order.

    Parameters
    ----------
    number : at least 1.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]
