"""Run by torchrun: psgd in another trainer, beside what that trainer does by itself; then saved and gone on with.

Every process prints the largest difference between parameters.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from commeff import DistributedOptimizer, methods
from commeff.core.local import OptimizerFactory
from commeff.core.strategy import Strategy

ADAMW = partial(torch.optim.AdamW, lr=0.01)


def psgd(optimizer: OptimizerFactory) -> Strategy:
    return methods.psgd(optimizer)


def diloco(optimizer: OptimizerFactory) -> Strategy:
    return methods.diloco(optimizer, period=3)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 5, generator=generator).double()
    return inputs, inputs.sum(1, keepdim=True).sin()


def distance(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def lightning(folder: Path) -> list[float]:
    import lightning.pytorch as pl

    from commeff.adapters.lightning import unwrapped

    class Module(pl.LightningModule):
        def __init__(self, method: Any) -> None:
            super().__init__()
            self.net, self.method = net(), method

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            optimizer = DistributedOptimizer(self, self.method(ADAMW)) if self.method else ADAMW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    def fitted(method: Any, strategy: Any, epochs: int = 4, go_on: Path | None = None) -> tuple[nn.Module, Any]:
        module, loader = Module(method), DataLoader(TensorDataset(*samples()), batch_size=8)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=2,
            strategy=strategy,
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accumulate_grad_batches=2,
            use_distributed_sampler=True,
        )
        trainer.fit(module, loader, ckpt_path=go_on)
        return module.net, trainer

    differences = [distance(fitted(None, "ddp")[0], fitted(psgd, unwrapped())[0])]
    whole, _ = fitted(diloco, unwrapped())
    half, trainer = fitted(diloco, unwrapped(), epochs=2)
    trainer.save_checkpoint(folder / "half.ckpt")
    differences.append(distance(whole, fitted(diloco, unwrapped(), go_on=folder / "half.ckpt")[0]))
    assert distance(whole, half) > 1e-3
    with pytest.raises(ValueError, match="must give DistributedOptimizers here, got AdamW"):
        fitted(None, unwrapped())
    return differences


def transformers(folder: Path) -> list[float]:
    from transformers import Trainer, TrainingArguments

    from commeff.adapters.transformers import trainer_with

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": nn.functional.mse_loss(self.net(inputs), labels)}

    data = [{"inputs": x, "labels": y} for x, y in zip(*samples(), strict=True)]

    def trained(kind: type[Trainer], name: str, steps: int = 8, go_on: bool = False) -> tuple[nn.Module, Trainer]:
        arguments = TrainingArguments(
            output_dir=str(folder / name),
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=8,
            learning_rate=0.01,
            weight_decay=0.1,
            warmup_steps=2,
            max_grad_norm=0.05,
            save_strategy="steps",
            save_steps=4,
            report_to=[],
            disable_tqdm=True,
        )
        model = Model()
        trainer = kind(model=model, args=arguments, train_dataset=data)
        trainer.train(resume_from_checkpoint=str(folder / name / "checkpoint-4") if go_on else None)
        return model, trainer

    ours, trainer = trained(trainer_with(psgd), "psgd")
    differences = [distance(trained(Trainer, "ddp")[0], ours), distance(trainer.average_model(), ours)]
    whole, _ = trained(trainer_with(diloco), "diloco")
    differences.append(distance(whole, trained(trainer_with(diloco), "diloco", go_on=True)[0]))
    return differences


def accelerate(folder: Path) -> list[float]:
    from accelerate import Accelerator

    ends = []
    for method in (None, psgd):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, loader = net(), accelerator.prepare(DataLoader(TensorDataset(*samples()), batch_size=8))
        if method is None:
            called, optimizer = accelerator.prepare(model, ADAMW(model.parameters()))
            assert isinstance(called, nn.parallel.DistributedDataParallel)
        else:
            called = accelerator.prepare_model(model, evaluation_mode=True)  # not wrapped
            optimizer = accelerator.prepare_optimizer(DistributedOptimizer(model, method(ADAMW)))
        for _ in range(2):
            for inputs, labels in loader:
                with accelerator.accumulate(called):
                    accelerator.backward(nn.functional.mse_loss(called(inputs), labels))
                    optimizer.step()
                    optimizer.zero_grad()
        ends.append(model)
    assert distance(ends[0], net()) > 1e-3
    return [distance(*ends)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = {each.__name__: each for each in (lightning, transformers, accelerate)}[sys.argv[1]]
    print(f"\ndifferences {chosen(Path(sys.argv[2]))}", flush=True)
