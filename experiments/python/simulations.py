"""`commeff.simulate`: a model, a loss and a data set of your own under a method, without a task class."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, default_collate

from commeff.core import Strategy
from commeff.core.state import Stateful, walk
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.python.results import TrainedRun
from commeff.experiments.python.runs import train_given
from commeff.experiments.tasks import Samples, Supervised

HELD_BACK = 10  # one of so many samples, to validate on
LIBRARIES = ("torch", "commeff")  # whose code is not that of a run

Loss = Callable[[Tensor, Tensor], Tensor]


def simulate(
    model: nn.Module,
    dataset: Dataset[Any],
    loss: Loss = nn.functional.cross_entropy,
    *,
    validation: Dataset[Any] | None = None,
    workers: int = 8,
    batch: int = 32,
    partition: str = "iid",
    alpha: float = 0.3,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    store: str | Path = "runs",
    plugins: Sequence[str] = (),
    progress: bool = True,
    **keys: Any,
) -> TrainedRun:
    """Train a model of your own on data of your own with simulated workers, as `commeff.run` trains a task.

        torch.manual_seed(0)
        result = commeff.simulate(
            model=nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)),
            dataset=TensorDataset(inputs, labels),
            method="dsgd",
            topology="ring",
            workers=8,
            steps=200,
        )

    The data are kept in memory, drawn once. Where targets are whole numbers and outputs have a column for each class,
    accuracies are measured too.

    The run's name follows from the settings, the code of the model and of the loss, the model's parameters and the
    data: the same call goes on with it, or reads what it gave. So give the random numbers a seed before the model is
    made.

    Parameters
    ----------
    model : nn.Module
        What every worker begins with. It is copied, and stays as it is.
    dataset : Dataset
        Of pairs (input, target), with a length; a target is a number.
    loss : callable
        loss(outputs, targets): the mean over a minibatch, or a number of each sample.
    validation : Dataset, optional
        What to validate on; a random tenth of `dataset`, which is held back, unless given.
    workers : int
        n, among whom the data are dealt.
    batch : int
        The samples of one worker's minibatch.
    partition, alpha : str, float
        How the data are dealt: "iid", "dirichlet" by `alpha`, or "shards", by label.
    name : str, optional
        Stands for code that cannot be read, such as a class that was typed into an interpreter: another name whenever
        that changes.
    settings, store, plugins, progress, **keys
        As in `commeff.run`.

    Raises
    ------
    ValueError
        What cannot be run, a line for each reason.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError([f"model must be a torch.nn.Module, got a {type(model).__name__}"])
    if "task" in keys:
        raise ConfigError(["task must be left out: model, dataset and loss are one"])
    train = _samples(dataset, "dataset")
    if validation is None:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
        held_back = -(-len(train) // HELD_BACK)
        train, held = train.at(order[held_back:]), train.at(order[:held_back])
    else:
        held = _samples(validation, "validation")
    task = _Simulated(
        model,
        loss,
        train,
        held,
        workers=workers,
        seed=keys.get("seed", 0),
        batch=batch,
        partition=partition,
        alpha=alpha,
    )
    method = keys.get("method")
    if callable(method) and not isinstance(method, Strategy):
        keys["method"] = method = method(workers)
    tensors = (*model.state_dict().values(), train.inputs, train.targets, held.inputs, held.targets)
    contents = [*_sources([*model.modules(), loss, *_inside(method)], name), *map(_of_tensor, tensors)]
    identity = {
        "given": name or type(task).__name__,
        "model": type(model).__name__,
        "batch": batch,
        "partition": partition,
        "alpha": alpha,
        "digest": hashlib.sha256(b"".join(contents)).hexdigest()[:16],
    }
    return train_given({**(settings or {}), **keys, "task": task}, store, None, plugins, progress, identity)


class _Simulated(Supervised):
    """A task made of a model, a loss and samples."""

    def __init__(self, model: nn.Module, loss: Loss, train: Samples, validation: Samples, **options: Any) -> None:
        super().__init__(train, validation, **options)
        self._model, self._loss = copy.deepcopy(model), loss

    def model(self) -> nn.Module:
        return copy.deepcopy(self._model)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample. A loss that is a mean is repeated for each, which leaves the mean the same."""
        return self._loss(outputs, targets).expand(len(targets))

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        classes = not targets.is_floating_point() and outputs.ndim == 2
        return outputs.argmax(-1) == targets if classes else None


def _samples(dataset: Any, word: str) -> Samples:
    """A data set in memory."""
    if isinstance(dataset, TensorDataset):
        pair: Any = dataset.tensors
    else:
        try:
            pair = default_collate([dataset[i] for i in range(len(dataset))])
        except (TypeError, NotImplementedError, IndexError) as error:
            raise ConfigError([f"{word} must have a length, and items of tensors or numbers, got {error}"]) from error
    if len(pair) != 2 or not all(isinstance(part, Tensor) for part in pair) or pair[1].ndim != 1:
        raise ConfigError([f"{word} must give pairs (input, target), each target a number; write a Task for others"])
    return Samples(*pair)


def _sources(parts: Sequence[Any], name: str | None) -> Iterator[bytes]:
    """The source code of a run's parts, without libraries; `name` stands for a part without source."""
    for part in parts:
        code = part if inspect.isfunction(part) or inspect.isclass(part) else type(part)
        if code.__module__.partition(".")[0] in LIBRARIES:
            yield repr(part).encode() if isinstance(part, nn.Module) else code.__qualname__.encode()
            continue
        try:
            yield inspect.getsource(code).encode()
        except (OSError, TypeError):
            if name is None:
                fault = f"name must be given, got none: {code.__qualname__} has no source that says what it does"
                raise ConfigError([fault]) from None


def _inside(method: Any) -> Iterator[Any]:
    """The parts of a method that is an object, and the functions that they were given."""
    for _, part in walk(method) if isinstance(method, Stateful) else ():
        yield part
        yield from (value for value in vars(part).values() if inspect.isfunction(value))


def _of_tensor(tensor: Tensor) -> bytes:
    """The digest of dtype, shape and numbers."""
    plain = tensor.detach().cpu().contiguous()
    numbers = plain.flatten().view(torch.uint8).numpy()
    return hashlib.sha256(f"{plain.dtype}{tuple(plain.shape)}".encode() + numbers.tobytes()).digest()
