"""Evidence on the steps that methods need: the rows of convergence.yaml, and published laws of losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.planning.worker_words import read_method
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
class Evidence:
    """A row of convergence.yaml.

    Parameters
    ----------
    name : of the method, in tables.
    way : the method, with the steps that studies assume it to need, and the most workers of the sources.
    range : the least and the most steps to the loss of psgd, in units of its own; None: nothing is known.
    kinds : of both ends: published, measured or assumed.
    why : where they come from.
    measured : the variant of results/converged/steps.csv that measured it.
    parameters, tokens : the largest model, and the most tokens of a step, of the sources; None: any.
    batch : how many times psgd's batch it has; then the range is of tokens.
    baseline : whether it is psgd made cheaper, and no method of its own.
    """

    name: str
    way: WorkerMethod
    range: tuple[float, float] | None = None
    kinds: tuple[str, str] = ("", "")
    why: str = ""
    measured: str | None = None
    parameters: float | None = None
    tokens: float | None = None
    batch: int = 1
    baseline: bool = False

    def among(self, workers: int) -> Evidence:
        """With the steps that its law says of so many workers, where they are more than the most.

        >>> from commeff.experiments.planning.models import sized
        >>> diloco = evidence(sized(1e8))[2]
        >>> [(each.range, each.kinds[1]) for each in (diloco, diloco.among(8), diloco.among(64))]
        [((1.0, 2.69), 'measured'), ((1.0, 2.69), 'measured'), ((1.0, 2.75), 'published')]
        """
        steps = round(self.way.steps_of(workers), 2)
        if self.range is None or not callable(self.way.steps) or steps <= self.range[1]:
            return self
        return replace(self, range=(self.range[0], steps), kinds=(self.kinds[0], "published"))

    def silence(self, parameters: float, tokens: float) -> str:
        """Why nothing is known of a model with so many parameters and tokens a step; "" where something is.

        >>> from commeff.experiments.planning.models import named
        >>> evidence(named("llama2-70b"))[2].silence(7e10, 4e6)
        'its sources end at 10 billion parameters'
        """
        if self.range is None:
            return "no source says how many steps it needs; say it with --steps LEAST,MOST"
        if self.parameters is not None and parameters > self.parameters:
            return f"its sources end at {self.parameters / 1e9:.3g} billion parameters"
        if self.tokens is not None and tokens > self.tokens:
            return f"its sources end at {self.tokens / 1e6:.3g} million tokens a step"
        return ""


def evidence(model: Model) -> list[Evidence]:
    """All rows, psgd the first; laws of losses say how many steps a way needs for the model.

    >>> from commeff.experiments.planning.models import named
    >>> [each.name for each in evidence(named("gpt3-175b"))][-3:]
    ['power_sgd, rank 32', 'psgd, gradients in 16 bits', 'psgd, batch x4']
    """
    rows = yaml.safe_load(Path(__file__).with_name("convergence.yaml").read_text())
    return [_read(row, model.parameters) for row in rows]


def _read(row: dict[str, Any], parameters: float) -> Evidence:
    method, (least, most) = read_method(row["words"].split()), row["range"]
    steps = row.get("assumed", most)
    if "law" in row:
        steps = LossLaw(parameters, *(tuple(row["law"][key]) for key in ("plain", "own", "fitted")))
    way = WorkerMethod(method, steps=steps, most_workers=row.get("workers"))
    others = ("kinds", "why", "measured", "parameters", "tokens", "batch", "baseline")
    name = row.get("title") or way.name
    return Evidence(name, way, (least, most), **{key: row[key] for key in others if key in row})


def assumptions(model: Model) -> list[Evidence]:
    """The methods that studies compare, each weighed by the steps that it needs by a law, or is assumed to need, among
    any workers.

    >>> from commeff.experiments.planning.models import named
    >>> [each.way.steps for each in assumptions(named("gpt3-175b")) if each.way.is_plain]
    [1.0]
    """
    return [replace(row, way=replace(row.way, most_workers=None)) for row in evidence(model) if not row.baseline]


def said(way: WorkerMethod) -> str:
    """The steps that a way needs, in words.

    >>> said(WorkerMethod(steps=1.1)), said(WorkerMethod(steps=lambda workers: workers / 2))
    ('1.10', '1.00, 2.00, 4.00')
    """
    return ", ".join(f"{way.steps_of(workers):.2f}" for workers in (TYPICAL if callable(way.steps) else TYPICAL[:1]))
