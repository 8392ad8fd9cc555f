"""The event loop: plays a pipeline schedule over (stage, micro-batch) and says when everything happens.

The order of a schedule is a list, for every stage, of (what, micro-batch, chunk): F forward, B backward, W gradients of
weights where a schedule splits the backward pass. Where all stages are equal, `bubble_seconds` is its closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from commeff.planner.policies import Numbers

MOST_TASKS = 500_000  # forward passes of pieces that are played: some seconds
SAME = 1e-10  # share by which seconds differ that count as equal


class StageTask(NamedTuple):
    """A piece of work of one stage.

    Attributes
    ----------
    what : F, B or W.
    micro_batch : which one, from 0.
    chunk : which piece of the stage, from 0.
    """

    what: str
    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True)
class Event:
    """A task that ran.

    Attributes
    ----------
    stage : which ran it.
    task : what ran.
    start : second at which it started.
    end : second at which it ended.
    """

    stage: int
    task: StageTask
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The tasks of every stage in one step, with their times.

    Parameters
    ----------
    events : by stage, in order.
    seconds : until the last task ended.
    """

    events: list[list[Event]]
    seconds: float


def play(
    schedule: str,
    micro_batches: int,
    forward: Sequence[float],
    backward: Sequence[float],
    weights: Sequence[float] | None = None,
    chunks: int = 1,
    once: Sequence[float] | None = None,
) -> Timeline:
    """Run a schedule.

    Parameters
    ----------
    forward, backward : seconds of one micro-batch on every piece of the model in order; piece c p + i is chunk c of
        stage i. `backward` is the whole backward pass.
    weights : of `backward`, the gradients of weights, which zero_bubble does later.
    once : seconds for which each stage alone has to wait after its last backward pass, shared over its chunks.

    >>> play("1f1b", 8, [1.0] * 4, [2.0] * 4).seconds, (8 + 4 - 1) * 3.0
    (33.0, 33.0)
    """
    if micro_batches * len(forward) > MOST_TASKS:
        raise ValueError(
            f"micro-batches x pieces must be at most {MOST_TASKS:,} in the event loop, got {micro_batches} x "
            f"{len(forward)}; take fewer, or equal stages, which have a formula"
        )
    stages = len(forward) // chunks
    split = schedule == "zero_bubble"
    late = list(weights) if split and weights is not None else [0.0] * len(forward)
    lasts = {"F": list(forward), "B": [b - w for b, w in zip(backward, late, strict=True)], "W": late}
    orders = order(schedule, stages, micro_batches, chunks)
    ended: dict[tuple[str, int, int], float] = {}
    events: list[list[Event]] = [[] for _ in range(stages)]
    clocks, remaining = [0.0] * stages, sum(len(tasks) for tasks in orders)
    while remaining:
        before = remaining
        for stage, tasks in enumerate(orders):
            while len(events[stage]) < len(tasks):
                task = tasks[len(events[stage])]
                piece = task.chunk * stages + stage
                ready = _ready(task, piece, len(forward), ended, schedule == "naive")
                if ready is None:
                    break
                start = max(ready, clocks[stage])
                clocks[stage] = ended[task.what, task.micro_batch, piece] = start + lasts[task.what][piece]
                events[stage].append(Event(stage, task, start, clocks[stage]))
                if once is not None and task.what == "B" and task.micro_batch == micro_batches - 1:
                    clocks[stage] += once[stage] / chunks
                remaining -= 1
        if remaining == before:
            raise ValueError(
                f"micro-batches must come in rounds of the stages with chunks, got schedule={schedule} with {stages} "
                f"stages and {micro_batches} micro-batches: it waits for itself; take a multiple of the stages"
            )
    return Timeline(events, max(clocks))


def pipeline_seconds(
    schedule: str,
    micro_batches: int,
    forward: Numbers,
    backward: Numbers,
    weights: Numbers,
    chunks: int = 1,
    once: Numbers | None = None,
) -> float:
    """Seconds of `play` without its events.

    GPipe fills and empties at the pace of the slowest stage. 1F1B and ZB-H1 go in rounds of F, B and W on every stage,
    some of which are missing in the first p and the last p rounds. Between those, a round that starts d later on all
    stages ends d later, and one that starts later on some ends earlier on none. So once a round has added equal seconds
    to all ends, each round until the last p adds as many, and if nearly equal ones, up to as small a share.
    """
    m, p = micro_batches, len(forward)
    more = np.zeros(p // chunks) if once is None else once
    if chunks > 1:
        each = forward.tolist(), backward.tolist(), weights.tolist()
        return play(schedule, m, *each, chunks, more.tolist()).seconds
    if schedule in ("naive", "gpipe") or p == 1:
        pace = sum(forward) + sum(backward)
        if schedule == "gpipe":
            pace = max(forward) + np.maximum.accumulate(backward[::-1])[::-1]
        last = sum(forward) + backward[::-1].cumsum()[::-1]  # of the last micro-batch, if alone
        return float(max((m - 1) * pace + last + more))
    place = np.arange(p)
    late = weights * (schedule == "zero_bubble")
    back = backward - late
    above = back.cumsum()
    ended = np.zeros((2, p))  # the last F of each stage, and all that it has done
    i = 1 - p  # the round: F of micro-batch i + p - 1 - stage, B of i, W of i - stage
    while i < m:
        sent, clock = before = ended
        first = i + p - 1 - place
        start = np.maximum(np.append(0.0, sent[:-1]), clock)
        sent = clock = np.where((first >= 0) & (first < m), start + forward, clock)
        if i >= 0:  # B ends after every F below it and the B of all stages on the way
            clock = np.maximum.accumulate((sent + above)[::-1])[::-1] - above + back + late * (i >= place)
        ended, i = np.array([sent, clock]), i + 1
        gained = ended - before
        if p <= i <= m - p and np.ptp(gained) <= SAME * gained.max():
            ended, i = ended + (m - p + 1 - i) * gained.mean(), m - p + 1
    return float(max(ended[1] + late * np.minimum(m, place) + more))


def _ready(
    task: StageTask, piece: int, pieces: int, ended: dict[tuple[str, int, int], float], sequential: bool
) -> float | None:
    """When what a task needs is there; None if not known yet. `sequential`: one micro-batch is in the pipeline."""
    i = task.micro_batch
    if task.what == "W":
        return ended.get(("B", i, piece))
    if task.what == "F" and piece == 0:
        return ended.get(("B", i - 1, 0)) if sequential and i else 0.0
    if task.what == "F":
        return ended.get(("F", i, piece - 1))
    return ended.get(("F", i, piece) if piece == pieces - 1 else ("B", i, piece + 1))


def order(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> list[list[StageTask]]:
    """The tasks of every stage, in the order in which it does them, by one of `SCHEDULES`."""
    if schedule == "naive":
        return [[StageTask(kind, i) for i in range(micro_batches) for kind in "FB"]] * stages
    if schedule == "gpipe":
        return [[StageTask(kind, i) for kind in "FB" for i in range(micro_batches)]] * stages
    if schedule == "interleaved" and chunks > 1:
        return [_interleaved(stage, stages, micro_batches, chunks) for stage in range(stages)]
    of_stage = _zero_bubble if schedule == "zero_bubble" else _one_f_one_b
    return [of_stage(stage, stages, micro_batches) for stage in range(stages)]


def _one_f_one_b(stage: int, stages: int, micro_batches: int) -> list[StageTask]:
    ahead = min(stages - stage - 1, micro_batches)
    tasks = [StageTask("F", i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        tasks += [StageTask("F", i + ahead), StageTask("B", i)]
    return tasks + [StageTask("B", i) for i in range(micro_batches - ahead, micro_batches)]


def _zero_bubble(stage: int, stages: int, micro_batches: int) -> list[StageTask]:
    """ZB-H1: 1F1B, where stage i puts off the gradients of weights by i micro-batches."""
    tasks, done, waiting = [], 0, 0
    for task in _one_f_one_b(stage, stages, micro_batches):
        tasks.append(task)
        if task.what == "B":
            waiting += 1
            if waiting > stage:
                tasks.append(StageTask("W", done))
                done, waiting = done + 1, waiting - 1
    return tasks + [StageTask("W", i) for i in range(done, micro_batches)]


def _interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[StageTask]:
    """Megatron's: micro-batches go in rounds of `stages`, each round through all chunks, forward and backward alike."""
    total = micro_batches * chunks
    ahead = min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages)
    rounds = [(i // (stages * chunks), i // stages % chunks, i % stages) for i in range(total)]
    forward = [StageTask("F", r * stages + place, chunk) for r, chunk, place in rounds]
    backward = [StageTask("B", r * stages + place, chunks - 1 - chunk) for r, chunk, place in rounds]
    tasks = forward[:ahead]
    for i in range(total - ahead):
        tasks += [forward[i + ahead], backward[i]]
    return tasks + backward[total - ahead :]
