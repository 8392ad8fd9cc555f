"""Seconds of a step on different numbers of processes, which take turns in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist

from commeff import Communicator, DistributedOptimizer, Strategy
from commeff.communicator.wire.group import timeout_of
from commeff.compressors.scratch import keep_freed_memory
from commeff.experiments.measure.forks import on_forks, time_in_turns
from commeff.experiments.planning.scale.subjects import CLASSES, SGD, Step, TimedModel, loop
from commeff.experiments.tasks.models import seeded

LOCAL = "local"


class ScalingCase(NamedTuple):
    """One contestant: the first n processes.

    Attributes
    ----------
    n : of how many processes.
    batch : samples on each.
    method : by its name, or `LOCAL` for steps without communication.
    """

    n: int
    batch: int
    method: str


def seconds(
    subject: TimedModel,
    cases: Sequence[ScalingCase],
    build: Callable[[ScalingCase], tuple[Strategy, str]],
    rounds: int,
    steps: int,
) -> dict[ScalingCase, float]:
    """Seconds of a step in each case, at the slowest process, medians over rounds.

    All cases take turns in one run, so what else the machine does slows them alike. Processes that a case leaves out
    wait.

    Parameters
    ----------
    subject : what is trained.
    cases : what takes turns.
    build : the strategy of a case that is not local steps, and the collective of its averages.
    rounds, steps : of blocks, and of steps in a block.
    """
    most = max(case.n for case in cases)

    def step(case: ScalingCase, group: dist.ProcessGroup | None) -> Step:
        draw = torch.Generator().manual_seed(dist.get_rank())
        inputs = torch.randn(case.batch, *subject.inputs[1:], generator=draw)
        batch = inputs, torch.randint(CLASSES, (case.batch,), generator=draw)
        model = seeded(subject.model, 0)
        if case.method == LOCAL:
            return loop(model, SGD(model.parameters()), batch)
        strategy, collective = build(case)
        optimizer = DistributedOptimizer(model, strategy, group=group, bucket_mb=0, collective=collective)
        return loop(model, optimizer, batch, minibatches=strategy.accumulate)

    def measure(communicator: Communicator) -> dict[str, list[float]]:
        groups = {n: dist.new_group(range(n), timeout=timeout_of()) for n in sorted({case.n for case in cases})}
        takes_part = {case: dist.get_rank() < case.n for case in cases}
        contestants = {str(case): step(case, groups[case.n]) if takes_part[case] else (lambda: None) for case in cases}
        return time_in_turns(contestants, rounds, steps)

    keep_freed_memory()
    times = on_forks(most, most, measure)
    return {case: median(times[str(case)]) / steps for case in cases}
