"""How the ranks of a worker compute a gradient together: the seam between a run and whatever splits a model.

`commeff.replicas.ShardedWorker` puts the parameters of a `Computation` into a row, deals a worker's minibatches, and
asks for gradients and, in an evaluation, for what is read off outputs. Pipelines, stage 3 of ZeRO, recomputation and
half precision are other computations, or one around another; neither the trainer nor a method knows which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from commeff.sharding.collectives import Axis
from commeff.sharding.vocabulary import IGNORED

Batch = tuple[Tensor, ...]
Scores = Callable[[Tensor, Any, Axis | None], Tensor]


class Objective(NamedTuple):
    """A loss in its two halves, which may lie on different ranks: criterion(model(*inputs), targets).

    Attributes
    ----------
    inputs_targets : callable
        Takes the tensors of a minibatch (b, ...) to the model's inputs, a tuple, and whatever the criterion needs.
    criterion : callable
        The mean loss, given outputs as the last rank of the model has them (logits split by vocabulary, say), and the
        targets; where these are torch.long, over those that are not `IGNORED`.
    """

    inputs_targets: Callable[..., tuple[Batch, Any]]
    criterion: Callable[[Any, Any], Tensor]


def weighed(loss: Tensor, targets: Any, every: Any) -> Tensor:
    """The mean loss of some targets times how much more of them count than of every target.

    The mean over equal shares of a batch is that of the batch then, whatever share has targets that are `IGNORED`.
    Targets of another type than torch.long count alike.

    >>> batch = torch.tensor([1, IGNORED, 2, 3])
    >>> losses = [weighed(torch.tensor(mean), share, batch) for mean, share in zip((4.0, 1.0), batch.chunk(2))]
    >>> torch.stack(losses).mean()  # of 4, and of two losses whose mean is 1
    tensor(2.)
    """
    if not isinstance(every, Tensor) or every.dtype != torch.long:
        return loss
    here, everywhere = ((part != IGNORED).double().mean() for part in (targets, every))
    some = here > 0  # else there is no mean
    return loss.where(some, 0) * (here / everywhere).where(some, 0).to(loss)


class Computation(Protocol):
    """One rank's share of its worker's forward and backward.

    Attributes
    ----------
    parameters : dict of str to nn.Parameter
        All that this rank trains, by the names that they have in the whole model, in the order of the row. Their data
        and gradients become views of the row.
    modules : sequence of nn.Module
        What lies at this rank, for buffers and for the modes of training and evaluation.
    passes : int
        How many times one call of `backward` adds to the gradient of each parameter, after which it is final and can
        be sent while others are computed: 1, or the number of micro-batches. 0: only when the call returns.
    late : set of str
        The parameters whose gradients are final only when the call returns, whatever the passes.
    vocabulary : Axis or None
        The ranks that the outputs are split over, along their last dimension, when the criterion gets them.
    """

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]: ...

    modules: Sequence[nn.Module]
    passes: int
    late: Set[str]
    vocabulary: Axis | None

    def backward(self, objective: Objective, batch: Batch, weight: float) -> Tensor:
        """Forward and backward of one minibatch (b, ...), this rank's share of its worker's.

        Adds `weight` times the gradient of the mean loss to every parameter's `.grad`. All ranks of the worker call it
        at once. Gives the mean loss, a scalar without a gradient; of a pipeline, 0 at all stages but one.
        """

    def forward(self, read: Callable[[Tensor], Tensor], *inputs: Tensor) -> Tensor:
        """What `read` makes of the outputs, at all ranks of the worker, which all call it; for evaluation.

        It gets outputs as a criterion does, where a criterion would get them.
        """


class OnePass:
    """A model whose forward and backward run in one go: it is whole, or split over tensor ranks.

    Parameters
    ----------
    model : nn.Module
        The model, or this rank's piece of it.
    vocabulary : Axis, optional
        The ranks that the outputs are split over, along their last dimension.

    Examples
    --------
    >>> from torch.nn import functional as F
    >>> computation = OnePass(nn.Linear(2, 3))
    >>> objective = Objective(lambda x, y: ((x,), y), F.cross_entropy)
    >>> computation.backward(objective, (torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)), 0.5).shape
    torch.Size([])
    >>> computation.parameters["weight"].grad.shape, computation.forward(Tensor.argmax, torch.zeros(4, 2)).shape
    (torch.Size([3, 2]), torch.Size([]))
    """

    passes = 1
    late: Set[str] = frozenset()

    def __init__(self, model: nn.Module, vocabulary: Axis | None = None) -> None:
        self._model, self.vocabulary = model, vocabulary
        self.modules: Sequence[nn.Module] = (model,)
        self.parameters: Mapping[str, nn.Parameter] = {
            name: p for name, p in model.named_parameters() if p.requires_grad
        }

    def backward(self, objective: Objective, batch: Batch, weight: float) -> Tensor:
        """As `Computation` has it."""
        inputs, targets = objective.inputs_targets(*batch)
        loss = objective.criterion(self._model(*inputs), targets)
        (loss * weight).backward()
        return loss.detach()

    def forward(self, read: Callable[[Tensor], Tensor], *inputs: Tensor) -> Tensor:
        """As `Computation` has it."""
        return read(self._model(*inputs))


class Scored(nn.Module, ABC):
    """A model that lies on several ranks or elsewhere, whose outputs are scored where they are."""

    @abstractmethod
    def score(self, scores: Scores, inputs: Batch, targets: Any) -> Tensor:
        """As the function `score`."""


def score(model: nn.Module, scores: Scores, inputs: Batch, targets: Any) -> Tensor:
    """scores(model(*inputs), targets, None), (b, ...), without whole outputs of a model that lies on several ranks.

    All of its ranks call it. `scores` runs where outputs are, on the samples whose outputs these are, and only what it
    gives is sent.

    Parameters
    ----------
    model : nn.Module
        What `evaluate` of a task gets.
    scores : callable
        Takes outputs (b, ...), targets, and the ranks that the outputs are split over, along their last dimension, or
        None. Gives numbers of each sample, (b, ...).
    inputs : tuple of (b, ...)
        What the model gets.
    targets : tensors (b, ...)
        What `scores` gets beside the outputs.

    Examples
    --------
    >>> hits = lambda outputs, targets, vocabulary: outputs.argmax(-1) == targets
    >>> score(nn.Identity(), hits, (torch.eye(2),), torch.zeros(2))
    tensor([ True, False])
    """
    return model.score(scores, inputs, targets) if isinstance(model, Scored) else scores(model(*inputs), targets, None)
