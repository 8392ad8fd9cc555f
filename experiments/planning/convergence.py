"""Steps to the same loss by published laws of losses."""

from __future__ import annotations

from dataclasses import dataclass

from commeff.planner import WorkerMethod

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


def said(way: WorkerMethod) -> str:
    """The steps that a way needs, in words.

    >>> said(WorkerMethod(steps=1.1)), said(WorkerMethod(steps=lambda workers: workers / 2))
    ('1.10', '1.00, 2.00, 4.00')
    """
    return ", ".join(f"{way.steps_of(workers):.2f}" for workers in (TYPICAL if callable(way.steps) else TYPICAL[:1]))
