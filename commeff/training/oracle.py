"""The oracle of a run: gradients of a step's batches elsewhere, and the curvature of its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from commeff.compressors import WorkerRandom
from commeff.core.properties import learner_of
from commeff.core.strategy import Strategy
from commeff.optimizers.curvature import Oracle
from commeff.replicas import Stacked
from commeff.replicas.stacked import trainable
from commeff.sharding import LossLinear
from commeff.training.task import DividedTask, Task

WHOLE = (
    "curvature is only known of whole models in 32 bits, got workers in pieces or precision=bf16|fp16: give "
    "precision=fp32 and each worker one process, or choose another optimizer than Sophia"
)
Batches = Sequence[tuple[Tensor, ...]]
OfOne = Callable[[Any, tuple[Tensor, ...], list[Tensor], Tensor], Sequence[Tensor]]


@runtime_checkable
class SamplingTask(DividedTask, Protocol):
    """A task whose model predicts labels at random."""

    def sampled(self, outputs: Tensor, targets: Any) -> tuple[Any, int]:
        """Targets as the model itself would draw them, from torch's generator, and how many labels they hold."""


class BatchOracle(Oracle):
    """The batches of one step, on the models of a run, which are left as they were.

    Parameters
    ----------
    task : Task
        Whose loss it is.
    replicas : Stacked
        The models of the hosted workers.
    batches : sequence of tuples
        One tuple of (w, b, ...) tensors for each accumulated minibatch.
    step : int
        The clock, which keys what is drawn.
    l2 : float
        l2 x is added to gradients.
    """

    def __init__(self, task: Task, replicas: Stacked, batches: Batches, step: int, l2: float = 0.0) -> None:
        self._task, self._replicas, self._batches, self._step, self._l2 = task, replicas, batches, step, l2

    def __call__(self, x: Tensor) -> Tensor:
        """As the step's own gradients were, with the same dropout."""
        replicas = self._replicas
        with self._elsewhere(x):
            before = replicas.gradients.clone()
            gradients = replicas.compute(self._task.loss, self._batches, self._step, self._l2)[0].clone()
            replicas.gradients.copy_(before)
        return gradients

    def gauss_newton(self, x: Tensor) -> Tensor:
        task = _sampling(self._task)

        def one(model: Any, batch: tuple[Tensor, ...], parameters: list[Tensor], v: Tensor) -> Sequence[Tensor]:
            inputs, targets = task.inputs_targets(*batch)
            outputs = model(*inputs)
            labels, count = task.sampled(outputs.detach(), targets)
            slopes = torch.autograd.grad(task.criterion(outputs, labels), parameters, allow_unused=True)
            return [slope if slope is None else count * slope.square() for slope in slopes]

        return self._of_each(one, x, x)

    def hessian_product(self, x: Tensor, v: Tensor) -> Tensor:
        def one(model: Any, batch: tuple[Tensor, ...], parameters: list[Tensor], v: Tensor) -> Sequence[Tensor]:
            # Neither other kinds of attention nor compiled models can be differentiated twice.
            with sdpa_kernel(SDPBackend.MATH), torch.compiler.set_stance("force_eager"):
                loss = self._task.loss(model, *batch)
                slopes = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
                pieces = v.split([p.numel() for p in parameters])
                along = [(s.flatten() * part).sum() for s, part in zip(slopes, pieces, strict=True) if s is not None]
                total = torch.stack(along).sum()
                if not total.requires_grad:  # a loss that is linear has no curvature
                    return [torch.zeros_like(p) for p in parameters]
                return torch.autograd.grad(total, parameters, allow_unused=True)

        return self._of_each(one, x, v)

    def _of_each(self, one: OfOne, x: Tensor, v: Tensor) -> Tensor:
        out, share = torch.zeros_like(x), 1 / len(self._batches)
        with self._elsewhere(x), torch.random.fork_rng():
            for r, batch in enumerate(self._batches):
                rows = zip(
                    self._replicas.workers, self._replicas.models, *(part.unbind() for part in batch), strict=True
                )
                for i, (worker, model, *parts) in enumerate(rows):
                    torch.manual_seed(self._key(worker, r))
                    parameters: list[Tensor] = [*trainable(model).values()]
                    squares = one(model, tuple(parts), parameters, v[i])
                    blank = [torch.zeros_like(p) if f is None else f for p, f in zip(parameters, squares, strict=True)]
                    out[i].add_(torch.cat([f.detach().flatten() for f in blank]), alpha=share)
        return out

    def _key(self, worker: int, r: int) -> int:
        return int(WorkerRandom(self._replicas.seed, [worker], self._step, ("oracle", r)).bits(1)[0, 0]) & 0x7FFFFFFF

    @contextmanager
    def _elsewhere(self, x: Tensor) -> Iterator[None]:
        """The models stand at x; parameters, gradients and buffers are afterwards as before."""
        replicas = self._replicas
        before = deepcopy(replicas.state_dict())
        replicas.load(x)
        try:
            yield
        finally:
            replicas.load_state_dict(before)


def oracle_of(task: Task, replicas: object, batches: Batches, step: int, l2: float = 0.0) -> BatchOracle:
    """The oracle of a step; of models that lie on one process and compute as they are."""
    if not isinstance(replicas, Stacked) or replicas.finite is not None:
        raise ValueError(WHOLE)
    return BatchOracle(task, replicas, batches, step, l2)


def check_oracle(strategy: Strategy, task: Task, whole: bool) -> None:
    """Refuse what a task cannot tell of its curvature, or nobody can where models are not whole in 32 bits."""
    learner = learner_of(strategy.local)
    if strategy.compares and not whole:
        raise ValueError(
            f"gradients at another point, which {type(strategy.comparison).__name__} compares, are only known of whole "
            "models in 32 bits, got workers in pieces or precision=bf16|fp16: give precision=fp32 and each worker one "
            "process, or take diana"
        )
    if learner is not None and not whole:
        raise ValueError(WHOLE)
    if learner is not None and any(isinstance(module, LossLinear) for module in task.model().modules()):
        raise ValueError(
            "curvature needs whole logits, got task.loss_chunks: leave that out, or take another optimizer"
        )
    if learner is not None and learner.curvature is not None and learner.curvature.kind == "gauss_newton":
        _sampling(task)


def _sampling(task: Task) -> SamplingTask:
    if not isinstance(task, SamplingTask):
        raise ValueError(
            f"the task must draw labels from its model for Sophia-G, got {type(task).__name__}, which does not: choose "
            "optimizer=sophia_h, or define sampled(outputs, targets)"
        )
    return task
