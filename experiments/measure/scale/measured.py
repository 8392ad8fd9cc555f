"""Measured throughput of the processes at hand: forks of one thread each, which share memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from commeff import Strategy, methods
from commeff.compressors import TopK
from commeff.experiments.measure.bench.processes import SUBJECTS, Subject
from commeff.experiments.measure.bench.scaling import LOCAL, Case, seconds
from commeff.experiments.measure.bench.step import SGD
from commeff.experiments.measure.scale.points import Point, Scaling
from commeff.experiments.measure.scale.sending import Choices
from commeff.experiments.run.system import cores
from commeff.topologies import one_peer_exponential

SMALL_FIRST = tuple(reversed(SUBJECTS))  # ResNet-20 sends little for what it computes, the MLP much
ROUNDS = 5


def strategies(choices: Choices, n: int) -> dict[str, Strategy]:
    """The methods by name."""
    return {
        "psgd": methods.psgd(SGD),
        "dsgd": methods.dsgd(SGD, one_peer_exponential(n)),
        "local_sgd": methods.local_sgd(SGD, choices.period),
        "mem_sgd": methods.mem_sgd(SGD, TopK(ratio=choices.ratio)),
    }


def curves(
    processes: Sequence[int],
    names: Sequence[str],
    choices: Choices,
    subjects: Sequence[Subject] = SMALL_FIRST,
    rounds: int = ROUNDS,
) -> list[Point]:
    """Weak and strong scaling of each model by each method. One process is the plain loop, by whatever method.

    Strong scaling divides the batch of one process, and leaves out numbers that do not divide it. A block of steps is a
    period of local_sgd, so it holds one of its averages.
    """
    found = []
    for subject in subjects:
        whole = subject.inputs[0]
        plans: list[tuple[Scaling, int, int]] = [("weak", n, whole) for n in processes]
        plans += [("strong", n, whole // n) for n in processes if whole % n == 0]
        cases = [Case(1, whole, LOCAL)]
        for _, n, batch in plans:
            cases += [Case(n, batch, name) for name in (LOCAL, *names)] if n > 1 else []
        took = seconds(subject, list(dict.fromkeys(cases)), partial(strategies, choices), rounds, steps=choices.period)
        make = partial(point, subject, took)
        found += [make(scaling, n, batch, name) for scaling, n, batch in plans for name in names]
    return found


def point(subject: Subject, took: dict[Case, float], scaling: Scaling, n: int, batch: int, method: str) -> Point:
    """What one case has shown."""
    whole = subject.inputs[0]
    return Point(
        source="measured",
        place=f"{cores()} cores",
        workload=subject.name,
        unit="samples",
        scaling=scaling,
        method=method,
        workers=n,
        gpus=n,
        batch=batch,
        compute=took[Case(n, batch, LOCAL)],
        step=took[Case(n, batch, method if n > 1 else LOCAL)],
        alone=whole / took[Case(1, whole, LOCAL)],
        oversubscribed=n > cores(),
    )
