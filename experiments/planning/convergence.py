"""How many steps each way of communicating needs, in units of psgd's: convergence.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from commeff.experiments.config.method_words import label
from commeff.experiments.planning.question import method_words, read_method
from commeff.planner import Model, WorkerMethod

TYPICAL = (2, 4, 8)  # workers for which steps are said


@dataclass(frozen=True)
class LossLaw:
    """Steps to the same loss, from the published power laws of two losses at 20 tokens a parameter,

        psgd: a N^-alpha,   the method: b N^-beta M^mu,

    with N parameters and M workers. Psgd has the method's loss L at N' = (a / L)^(1 / alpha) parameters, for which it
    computes (N' / N)^2 of the method's work, since tokens go with parameters; the method needs the inverse. Where the
    tokens are the best for the parameters, more work on the same model helps as much to first order, so that steps at
    equal N are as many. Below and above the parameters of the fit, the nearest of those is taken; and no method needs
    fewer than psgd.

    Parameters
    ----------
    parameters : N.
    plain : a, alpha.
    own : b, beta, mu.
    fitted : least and most parameters.

    >>> law = LossLaw(10**9, (18.129, 0.0953), (19.226, 0.0985, 0.0116), (35e6, 2.4e9))
    >>> [round(law(workers), 2) for workers in (2, 8)]
    [1.01, 1.42]
    """

    parameters: float
    plain: tuple[float, float]
    own: tuple[float, float, float]
    fitted: tuple[float, float]

    def __call__(self, workers: int) -> float:
        ratio = self.loss(workers) / self.loss(None)
        return float(max(1.0, ratio ** (2 / self.plain[1])))

    def loss(self, workers: int | None) -> float:
        """Nats a token; None: of psgd."""
        n = min(max(self.parameters, self.fitted[0]), self.fitted[1])
        if workers is None:
            return float(self.plain[0] * n ** -self.plain[1])
        return float(self.own[0] * n ** -self.own[1] * workers ** self.own[2])


@dataclass(frozen=True)
class Assumption:
    """A row of convergence.yaml.

    Parameters
    ----------
    way : the method, and the steps it needs by a law or an assumption.
    measured : the variant of a report that says how many it needed here.
    why : where that comes from.
    """

    way: WorkerMethod
    measured: str | None
    why: str


def assumptions(model: Model) -> list[Assumption]:
    """All rows, for a model.

    >>> from commeff.experiments.planning.question import named
    >>> [a.way.steps for a in assumptions(named("gpt3-175b")) if a.way.is_plain]
    [1.0]
    """
    records = []
    for row in yaml.safe_load(Path(__file__).with_name("convergence.yaml").read_text()):
        law = row.get("law")
        steps = row["assumed"] if law is None else LossLaw(model.parameters, *(tuple(law[key]) for key in LAW))
        way = WorkerMethod(read_method(row["words"].split()), steps=steps)
        records.append(Assumption(way, row["measured"], row["why"]))
    return records


LAW = ("plain", "own", "fitted")


def way_label(way: WorkerMethod) -> str:
    """The words of a way.

    >>> from commeff.experiments.planning.question import named
    >>> way_label(assumptions(named("gpt3-175b"))[-2].way)
    'mem_sgd, top_k, ratio 0.01'
    """
    return label(method_words(way))


def said(way: WorkerMethod) -> str:
    """The steps that a way needs, in words.

    >>> said(WorkerMethod(steps=1.1)), said(WorkerMethod(steps=lambda workers: workers / 2))
    ('1.10', '1.00, 2.00, 4.00')
    """
    return ", ".join(f"{way.steps_of(workers):.2f}" for workers in (TYPICAL if callable(way.steps) else TYPICAL[:1]))
