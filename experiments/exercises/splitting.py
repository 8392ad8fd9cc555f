"""A model over several GPUs: the memory and the traffic of ZeRO, and the order of a 1F1B pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def _zero_memory(
    parameters: int,
    layer: int,
    gpus: int,
    stage: int,
    states: tuple[int, int, int] = STATES["bf16"],
    divided: tuple[int, int, int] = (3, 2, 1),
    gathered: int = 2,
    gathers_above: int = 1,
) -> float:
    shares = [gpus if stage >= first else 1 for first in divided]
    whole = gathered * states[0] * layer if stage == 3 and gpus > gathers_above else 0
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


def _zero_traffic(
    parameters: int,
    gpus: int,
    stage: int,
    ways: tuple[int, int, int, int] = (2, 2, 2, 3),
    share: Callable[[int], float] = lambda n: (n - 1) / n,
) -> float:
    return ways[stage] * share(gpus) * parameters


def _ordered(stage: int, stages: int, micro_batches: int) -> list[str]:
    return [f"{task.what}{task.micro_batch}" for task in order("1f1b", stages, micro_batches)[stage]]


def _orders(*pipes: tuple[int, int]) -> Callable[[Solution], dict[str, Any]]:
    return lambda solution: {
        f"stage {stage} of {p}, {m} micro-batches": solution(stage, p, m) for p, m in pipes for stage in range(p)
    }


def _one_f_one_b(
    stage: int,
    stages: int,
    micro_batches: int,
    ahead: Callable[[int, int, int], int] = lambda i, p, m: p - i - 1,
    clipped: bool = True,
    turned: bool = False,
    drained: bool = True,
) -> list[str]:
    warm = ahead(stage, stages, micro_batches)
    warm = min(warm, micro_batches) if clipped else warm
    words = [f"F{i}" for i in range(warm)]
    for i in range(micro_batches - warm):
        words += [f"F{i + warm}", f"B{i}"]
    rest = range(max(micro_batches - warm, 0), micro_batches) if drained else range(0)
    return words + [f"B{i}" for i in (reversed(rest) if turned else rest)]


def _idle(stages: int, micro_batches: int) -> float:
    """The idle share in the event loop, where B takes twice as long as F."""
    return play("1f1b", micro_batches, [1.0] * stages, [2.0] * stages).seconds / (3.0 * micro_batches) - 1


def _bubble(stages: int, micro_batches: int, idle: Callable[[int, int], float] = lambda p, m: (p - 1) / m) -> float:
    return idle(stages, micro_batches)


def _bubbles(solution: Solution) -> dict[str, Any]:
    return {f"{p} stages, {m} micro-batches": solution(p, m) for p, m in PIPES}


ZERO_MEMORY: Mapping[str, Any] = {
    "the fp32 copy of the weights is missing: Adam has 12 bytes, two moments and that copy": {"states": (2, 4, 8)},
    "Adam has 12 bytes, and not 4: two moments and a copy of the weights, all in fp32": {"states": (2, 4, 4)},
    "gradients have 4 bytes: they are summed in fp32 (ZeRO's paper has 2)": {"states": (2, 2, 12)},
    "these are the 16 bytes of ZeRO's paper: here gradients have 4, and two layers are whole at stage 3": {
        "states": (2, 2, 12),
        "gathered": 0,
    },
    "one GPU alone gathers nothing: it has no whole layers beside its weights": {"gathers_above": 0},
    "weights have 2 bytes: the fp32 copy is Adam's": {"states": (4, 4, 12)},
    "the order is turned round: stage 1 divides the optimizer, 2 gradients too": {"divided": (1, 2, 3)},
    "stage 1 divides gradients too: that is stage 2": {"divided": (3, 1, 1)},
    "stage 3 leaves the weights whole: it divides them too": {"divided": (4, 2, 1), "gathered": 0},
    "no layer is whole at stage 3: the one at work and the next are gathered": {"gathered": 0},
    "one layer is whole at stage 3: the next is gathered meanwhile": {"gathered": 1},
}
ZERO_TRAFFIC: Mapping[str, Any] = {
    "stage 3 sends 3 times: weights are gathered twice, forward and backward": {"ways": (2, 2, 2, 2)},
    "stages 1 and 2 send as much as stage 0: an all-gather of weights follows": {"ways": (2, 1, 1, 3)},
    "an all-reduce is counted once: it is a reduce-scatter and an all-gather": {"ways": (1, 2, 2, 3)},
    "(n - 1)/n is missing: a GPU keeps its own share": {"share": lambda n: 1},
    "it is the sum over all GPUs: count what one sends": {"share": lambda n: n - 1},
}
ONE_F_ONE_B: Mapping[str, Any] = {
    "one forward too many in the warm-up: stage i has p - i - 1": {"ahead": lambda i, p, m: p - i},
    "one forward too few in the warm-up: stage i has p - i - 1": {"ahead": lambda i, p, m: max(p - i - 2, 0)},
    "every stage warms up with p - 1: stage i with p - i - 1": {"ahead": lambda i, p, m: p - 1},
    "stages are counted from the wrong end: the first warms up most, with p - 1": {"ahead": lambda i, p, m: i},
    "all forwards come before all backwards: that is GPipe": {"ahead": lambda i, p, m: m},
    "there is no warm-up: one micro-batch would be in the pipeline at a time": {"ahead": lambda i, p, m: 0},
    "more forwards than micro-batches: the warm-up is at most m": {"clipped": False},
    "the last backwards come in turned order: first in, first out": {"turned": True},
    "the backwards of the warm-up are missing: they end the step": {"drained": False},
}
BUBBLE: Mapping[str, Any] = {
    "this is the idle share of the whole step: divide by the ideal time": {"idle": lambda p, m: (p - 1) / (m + p - 1)},
    "p micro-batches are waited for: it is p - 1": {"idle": lambda p, m: p / m},
    "p - 1 is counted twice: p - 1 forwards and p - 1 backwards are (p - 1) (F + B)": {
        "idle": lambda p, m: 2 * (p - 1) / m
    },
    "this is idle time in micro-batches: divide by m": {"idle": lambda p, m: p - 1},
}

ASSIGNMENTS = (
    Assignment(
        "zero_memory",
        _zero_memory,
        (
            Law("at stage 0 every GPU has all, as `commeff.planner` counts", _memory(0)),
            Law("stage 1 divides the optimizer, stage 2 gradients too", _memory(1, 2)),
            Law("stage 3 divides all, and has two layers whole", _memory(3)),
        ),
        _zero_memory,
        ZERO_MEMORY,
    ),
    Assignment(
        "zero_traffic",
        _moved,
        (Law("`zero_traffic` is what a ring moves in a step", _traffic),),
        _zero_traffic,
        ZERO_TRAFFIC,
        "zero_memory",
    ),
    Assignment(
        "one_f_one_b",
        _ordered,
        (
            Law("with many micro-batches it is the order of `commeff.planner`", _orders(*PIPES[:3])),
            Law("the same with fewer micro-batches than stages", _orders(*PIPES[3:])),
        ),
        _one_f_one_b,
        ONE_F_ONE_B,
    ),
    Assignment(
        "bubble", _idle, (Law("`bubble` is idle time over ideal time", _bubbles),), _bubble, BUBBLE, "one_f_one_b"
    ),
)
