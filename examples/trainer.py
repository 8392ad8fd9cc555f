"""A training loop in the manner of torchtitan's: a mesh of named axes, parts of a model, a container of optimizers.

    torchrun --nproc-per-node 4 examples/trainer.py

The method comes in where the optimizers are made (`ours` instead of `theirs`); the loop stays as it is.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from commeff import DistributedOptimizer, methods
from commeff.experiments.tasks.language import Llama

ADAMW = partial(torch.optim.AdamW, lr=3e-3)
DIMS = {"dp_replicate": 2, "dp_shard": 2}  # two replicas of the model, each on two ranks


class OptimizersContainer:
    def __init__(self, parts, optimizer):
        self.optimizers = [optimizer(part.parameters()) for part in parts]

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def theirs(parts, mesh):
    return OptimizersContainer(parts, ADAMW)


def ours(parts, mesh):
    return DistributedOptimizer(parts, methods.diloco(ADAMW, period=10), mesh=mesh, axis="dp_replicate")


def batch(step, rank):
    """Sequences that count up from anywhere, by ones or twos."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    start, stride = torch.randint(64, (8, 1), generator=generator), torch.randint(1, 3, (8, 1), generator=generator)
    return (start + stride * torch.arange(17)) % 64


def train(build_optimizers, dims, steps):
    mesh = init_device_mesh("cpu", tuple(dims.values()), mesh_dim_names=tuple(dims))
    torch.manual_seed(0)
    model = Llama(64, layers=2, width=32, heads=4, inner=64)
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh["dp_shard"])  # not dp_replicate: that axis is the method's
    model_parts = [model]
    optimizers = build_optimizers(model_parts, mesh)
    losses = []
    for step in range(steps):
        tokens = batch(step, dist.get_rank())
        optimizers.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizers.step()
        losses.append(loss.item())
    return model_parts, losses


def main():
    dist.init_process_group("gloo")
    _, losses = train(ours, DIMS, steps=60)
    for step in range(0, len(losses), 10):
        print(f"rank {dist.get_rank()}, step {step}: loss {losses[step]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
