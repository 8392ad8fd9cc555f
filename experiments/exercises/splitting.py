"""A model over several GPUs: the memory and the traffic of ZeRO, and the order of a 1F1B pipeline."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from commeff.cluster import Cluster
from commeff.cluster.collectives import ring
from commeff.cluster.groups import Groups
from commeff.experiments.exercises.assignment import Assignment, Law, Solution
from commeff.planner import Model
from commeff.planner.policies import STATES
from commeff.planner.timeline import order, play

MODELS = (Model(4, 64, 4, 32, 100), Model(32, 4096, 32, 2048, 32000, gated=True))
PIPES = ((1, 3), (2, 4), (4, 8), (4, 2))  # stages and micro-batches


def _memory(*stages: int) -> Callable[[Solution], dict[str, Any]]:
    def measure(solution: Solution) -> dict[str, Any]:
        answers = {}
        for stage, model, gpus in product(stages, MODELS, (1, 8, 64)):
            parameters, layer = model.parameters, model.layer_parameters
            asked = f"{parameters} parameters, {layer} in a layer, on {gpus} GPUs at stage {stage}"
            answers[asked] = solution(parameters, layer, gpus, stage)
        return answers

    return measure


def _zero_memory(parameters: int, layer: int, gpus: int, stage: int) -> float:
    """Weights, gradients and Adam's states, each divided from a stage on; two layers are whole at stage 3."""
    states = STATES["bf16"]
    whole = 2 * states[0] * layer if stage == 3 and gpus > 1 else 0
    shares = [gpus if stage >= first else 1 for first in (3, 2, 1)]
    return sum(held * parameters / share for held, share in zip(states, shares, strict=True)) + whole


def _moved(parameters: int, gpus: int, stage: int) -> float:
    groups = Groups.first(Cluster.named("h100_400g", gpus=8), gpus)
    return float(ring(groups, 3 if stage == 3 else 2).bytes) * parameters


def _traffic(solution: Solution) -> dict[str, Any]:
    return {
        f"1,000,000 parameters on {gpus} GPUs at stage {stage}": solution(10**6, gpus, stage)
        for stage in range(4)
        for gpus in (1, 2, 8)
    }


def _ordered(stage: int, stages: int, micro_batches: int) -> list[str]:
    return [f"{task.what}{task.micro_batch}" for task in order("1f1b", stages, micro_batches)[stage]]


def _orders(*pipes: tuple[int, int]) -> Callable[[Solution], dict[str, Any]]:
    return lambda solution: {
        f"stage {stage} of {p}, {m} micro-batches": solution(stage, p, m) for p, m in pipes for stage in range(p)
    }


def _idle(stages: int, micro_batches: int) -> float:
    """The idle share in the event loop, where B takes twice as long as F."""
    return play("1f1b", micro_batches, [1.0] * stages, [2.0] * stages).seconds / (3.0 * micro_batches) - 1


def _bubbles(solution: Solution) -> dict[str, Any]:
    return {f"{p} stages, {m} micro-batches": solution(p, m) for p, m in PIPES}


ASSIGNMENTS = (
    Assignment(
        "zero_memory",
        _zero_memory,
        (
            Law("at stage 0 every GPU has all, as `commeff.planner` counts", _memory(0)),
            Law("stage 1 divides the optimizer, stage 2 gradients too", _memory(1, 2)),
            Law("stage 3 divides all, and has two layers whole", _memory(3)),
        ),
    ),
    Assignment(
        "zero_traffic",
        _moved,
        (Law("`zero_traffic` is what a ring moves in a step", _traffic),),
        "zero_memory",
    ),
    Assignment(
        "one_f_one_b",
        _ordered,
        (
            Law("with many micro-batches it is the order of `commeff.planner`", _orders(*PIPES[:3])),
            Law("the same with fewer micro-batches than stages", _orders(*PIPES[3:])),
        ),
    ),
    Assignment("bubble", _idle, (Law("`bubble` is idle time over ideal time", _bubbles),), "one_f_one_b"),
)
