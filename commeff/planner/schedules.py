"""Pipeline schedules: the order of work on every stage, and the closed forms of their bubbles.

Each order is a list, for every stage, of (what, micro-batch, chunk): F forward, B backward, W gradients of weights
where a schedule splits the backward pass. `commeff.planner.timeline` plays an order; the closed forms below equal
what it finds wherever all stages are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commeff.planner.policies import SCHEDULES, Numbers


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


class StageSeconds(NamedTuple):
    """Seconds of one micro-batch on a stage, all chunks together; or on all stages, added up.

    Attributes
    ----------
    forward : forward pass.
    backward : whole backward pass.
    weights : of `backward`: gradients of weights.
    """

    forward: Numbers
    backward: Numbers
    weights: Numbers


def bubble_seconds(
    schedule: Numbers,
    stages: Numbers,
    chunks: Numbers,
    micro_batches: Numbers,
    slowest: StageSeconds,
    total: StageSeconds,
) -> Numbers:
    """Idle seconds of the slowest stage.

    GPipe and 1F1B wait while the first micro-batch passes the other stages and the last one comes back: total -
    slowest, which is (p-1) (F + B) on equal stages (Huang 2019; Narayanan 2019). Interleaved: 1/v of it (Narayanan
    2021). Naive: in every micro-batch. ZB-H1 (Qi 2024) does gradients of weights meanwhile: while the last micro-batch
    comes back, one on each stage that it passes, and those of min(m-1, p-1) that the slowest put off, as far as they
    fit between the passes of a neighbour:

        (p-1) (F + B - W) - min(m-1, p-1) min(W, B - W, F),    one third of 1F1B's where F = B - W = W,

    and at least (p-1) F, as the first micro-batch has to come. All five equal the event loop on equal stages.

    Parameters
    ----------
    schedule : places in `SCHEDULES`.
    stages : stages of the pipeline.
    chunks : pieces of the model on each stage.
    micro_batches : micro-batches of each rank in a step.
    slowest : seconds of a micro-batch on the slowest stage.
    total : seconds of a micro-batch on all stages together.
    """
    forward, backward, late = (
        np.where(stages > 1, all_of - own, 0.0) for all_of, own in zip(total, slowest, strict=True)
    )
    others, neighbours = forward + backward, np.maximum(stages - 1, 1)
    room = np.minimum(slowest.backward - slowest.weights, slowest.forward)
    back = late * (1 - 1 / neighbours) + slowest.weights
    behind = np.minimum(micro_batches - 1, stages - 1) * np.minimum(slowest.weights, room)
    zero_bubble = np.maximum(others - back - behind, forward)
    is_a = [schedule == SCHEDULES.index(name) for name in ("naive", "interleaved", "zero_bubble")]
    return np.select(is_a, [micro_batches * others, others / chunks, zero_bubble], others)


def bubble_share(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Bubble over ideal time on equal stages whose backward pass takes twice the forward pass, half of it for weights.

    Parameters
    ----------
    schedule : one of `SCHEDULES`.
    stages : stages of the pipeline.
    micro_batches : micro-batches of each rank in a step.
    chunks : pieces of the model on each stage.

    Examples
    --------
    >>> [bubble_share(name, 4, 8) for name in ("gpipe", "1f1b", "zero_bubble", "naive")]
    [0.375, 0.375, 0.125, 3.0]
    >>> bubble_share("interleaved", 4, 8, chunks=3)
    0.125
    """
    kind, p, v, m = (np.array(x) for x in (SCHEDULES.index(schedule), stages, chunks, micro_batches))
    stage = StageSeconds(np.array(1.0), np.array(2.0), np.array(1.0))
    return float(bubble_seconds(kind, p, v, m, stage, StageSeconds(*(p * each for each in stage)))) / (
        3.0 * micro_batches
    )


def order(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> list[list[StageTask]]:
    """The tasks of every stage, in the order in which it does them.

    Parameters
    ----------
    schedule : one of `SCHEDULES`.
    stages : stages of the pipeline.
    micro_batches : micro-batches of each rank in a step.
    chunks : pieces of the model on each stage.
    """
    if schedule == "interleaved" and chunks > 1:
        return [_interleaved(stage, stages, micro_batches, chunks) for stage in range(stages)]
    return [
        {"naive": _naive, "gpipe": _gpipe, "zero_bubble": _zero_bubble}.get(schedule, _one_f_one_b)(
            stage, stages, micro_batches
        )
        for stage in range(stages)
    ]


def _naive(stage: int, stages: int, micro_batches: int) -> list[StageTask]:
    return [StageTask(what, i) for i in range(micro_batches) for what in "FB"]


def _gpipe(stage: int, stages: int, micro_batches: int) -> list[StageTask]:
    return [StageTask(what, i) for what in "FB" for i in range(micro_batches)]


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
