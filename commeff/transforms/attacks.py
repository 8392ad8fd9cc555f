"""Workers who lie: what some send in the place of their gradients, so that rules can be tried against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator, observe
from commeff.compressors import Layout
from commeff.core.strategy import Chain, Strategy, Traits, Transform, with_transforms

AttackName = Literal["sign_flip", "noise", "a_little", "inner_product"]


class Honest(NamedTuple):
    """The liars' knowledge of the others' gradients: mean and standard deviation of each coordinate, (d,)."""

    mean: Tensor
    deviation: Tensor


class Attack(Transform):
    """g_i -> a lie, for the workers i < f; the others' gradients stay.

    sign_flip: -s g_i, s = 1.  noise: g_i + s N(0, 1), s = 10.  a_little: mean - s deviation of the honest gradients,
    coordinate by coordinate, s = 1 (arXiv 1902.06156).  inner_product: -s mean, s = 0.5 (arXiv 1903.03936).
    Liars know everything: what they look up is no part of the method, and not billed. Memory: none.

    Parameters
    ----------
    name : str
        Which lie.
    f : int
        How many lie.
    strength : float, optional
        s.
    """

    traits = Traits(sends=False)

    def __init__(self, name: AttackName, f: int, strength: float | None = None) -> None:
        require.one_of(LIES, attack=name)
        require.at_least(0, attackers=f)
        self.name, self.f, self.strength = name, f, STRENGTHS[name] if strength is None else strength

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        if self.f >= communicator.n:
            raise ValueError(f"attackers must be fewer than the {communicator.n} workers, got {self.f}")

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        others = int(communicator.context.present[self.f :].sum()) / communicator.n
        if not self.f or not others:
            return vectors
        honest = torch.tensor([worker >= self.f for worker in communicator.workers], device=vectors.device)
        mean = observe(communicator, torch.where(honest[:, None], vectors, 0).double()) / others
        square = observe(communicator, torch.where(honest[:, None], vectors.double() - mean, 0).square()) / others
        known = Honest(mean.to(vectors), square.sqrt().to(vectors))
        lies = LIES[self.name](vectors, known, self.strength, communicator)
        return torch.where(honest[:, None], vectors, lies)


def _noise(vectors: Tensor, known: Honest, strength: float, communicator: Communicator) -> Tensor:
    return vectors + strength * communicator.random("noise").normal(vectors.shape[1], dtype=vectors.dtype)


Lie = Callable[[Tensor, Honest, float, Communicator], Tensor]
LIES: Mapping[AttackName, Lie] = {
    "sign_flip": lambda vectors, known, s, communicator: -s * vectors,
    "noise": _noise,
    "a_little": lambda vectors, known, s, communicator: (known.mean - s * known.deviation).expand_as(vectors),
    "inner_product": lambda vectors, known, s, communicator: (-s * known.mean).expand_as(vectors),
}
STRENGTHS: Mapping[AttackName, float] = {"sign_flip": 1.0, "noise": 10.0, "a_little": 1.0, "inner_product": 0.5}
assert set(LIES) == set(get_args(AttackName)) == set(STRENGTHS)


def attacked(strategy: Strategy, name: AttackName, f: int, strength: float | None = None) -> Strategy:
    """The strategy of n workers of whom the first f put lies in the place of their gradients."""
    gradients = Chain(Attack(name, f, strength), strategy.gradients)
    return with_transforms(strategy, gradients, strategy.parameters)
