"""The Trainer of Hugging Face's transformers with a method. The package is imported when used."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from commeff.adapters.imports import explain_torchvision
from commeff.adapters.optimizer import DistributedOptimizer
from commeff.core.local import OptimizerFactory
from commeff.core.strategy import Strategy

if TYPE_CHECKING:
    from transformers import Trainer


def trainer_with(method: Callable[[OptimizerFactory], Strategy], base: type[Trainer] | None = None) -> type[Trainer]:
    """A Trainer class that trains by a method.

        MethodTrainer = trainer_with(lambda adamw: methods.diloco(adamw, period=25))
        trainer = MethodTrainer(model=model, args=TrainingArguments(...), train_dataset=data)
        trainer.train()
        model = trainer.average_model()

    The optimizer, its groups, the schedule and `max_grad_norm`, which is the method's `clip`, are those of the
    TrainingArguments. A checkpoint has the optimizer state of each worker, in a file of its own, and the parameters of
    the first one.

    Parameters
    ----------
    method : callable
        The strategy, given the optimizer factory that the arguments describe.
    base : type, optional
        The Trainer to extend; `transformers.Trainer` unless given.
    """
    with explain_torchvision():
        import transformers

        kind_of_trainer: Any = base or transformers.Trainer

    class MethodTrainer(kind_of_trainer):
        """A Trainer that leaves its model unwrapped."""

        optimizer: Any

        def create_accelerator_and_postprocess(self) -> None:
            """An accelerator that wraps no model, and moves none: the Trainer has, before the optimizer was made."""
            super().create_accelerator_and_postprocess()
            prepare = self.accelerator.prepare_model
            self.accelerator.prepare_model = lambda model, **_: prepare(
                model, device_placement=False, evaluation_mode=True
            )

        def create_optimizer(self, model: Any = None) -> Any:
            """The method, with matrices that decay and others that do not."""
            if self.optimizer is None:
                kind, options = self.get_optimizer_cls_and_kwargs(self.args, self.model)
                decaying = self.get_decay_parameter_names(self.model)
                self.optimizer = DistributedOptimizer(
                    self.model,
                    method(partial(kind, **options)),
                    groups=_groups(self.model, decaying, self.args.weight_decay),
                    clip=self.args.max_grad_norm or None,
                    seed=self.args.seed,
                )
            _method_of(self.optimizer)
            return self.optimizer

        def _clip_grad_norm(self, model: Any) -> None:
            """The method clips."""

        def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Tensor:
            """The norm of this worker's own gradient, before it is clipped."""
            return torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])

        def average_model(self) -> Any:
            """A copy of the model that is all workers' average; every process calls it."""
            return _method_of(self.optimizer).average_into(copy.deepcopy(self.accelerator.unwrap_model(self.model)))

        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            super()._save_optimizer_and_scheduler(output_dir)
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            torch.save(self.optimizer.state_dict(), _own_file(output_dir, self.args.process_index))

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            if checkpoint is not None:
                read = partial(torch.load, map_location="cpu", weights_only=True)
                files = [*takewhile(Path.is_file, (_own_file(checkpoint, rank) for rank in count()))]
                same = len(files) == self.args.world_size
                rank = self.args.process_index
                self.optimizer.load_state_dict(read(files[rank]) if same else [*map(read, files)])
                self.lr_scheduler.load_state_dict(read(Path(checkpoint) / "scheduler.pt"))

    return MethodTrainer


def _groups(model: nn.Module, decaying: Iterable[str], decay: float) -> list[dict[str, Any]]:
    """Parameter groups: those of these names, which decay, and all others."""
    names = set(decaying)
    groups: list[dict[str, Any]] = [{"params": [], "weight_decay": decay}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[name not in names]["params"].append(parameter)
    return groups


def _method_of(optimizer: Any) -> DistributedOptimizer:
    """A Trainer's optimizer, which accelerate may have wrapped; another kind is refused."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if not isinstance(inner, DistributedOptimizer):
        raise ValueError(
            f"optimizers= must be left out, got a {type(inner).__name__}: nothing would keep the workers together; the "
            "method is given to trainer_with"
        )
    return inner


def _own_file(folder: str, rank: int) -> Path:
    """The file of a checkpoint in which a process keeps the state of its optimizer."""
    return Path(folder) / f"optimizer_{rank}.pt"
