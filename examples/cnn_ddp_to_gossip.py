"""A CNN with BatchNorm and a cosine schedule, under DistributedDataParallel or under any method.

    torchrun --nproc-per-node 4 examples/cnn_ddp_to_gossip.py            # ddp: the script as it was
    torchrun --nproc-per-node 4 examples/cnn_ddp_to_gossip.py dsgd       # gossip on a ring
    torchrun --nproc-per-node 4 examples/cnn_ddp_to_gossip.py power_sgd --save state.pt   # and again: it goes on

Three things change, in `prepare` and `evaluate`: the model is not wrapped, the optimizer is a DistributedOptimizer, and
what is evaluated is the workers' average. Digits come with scikit-learn; a run takes seconds.
"""

import argparse
import copy
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from commeff import DistributedOptimizer, compressors, methods, topologies

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
METHODS = {
    "psgd": lambda n: methods.psgd(SGD),
    "dsgd": lambda n: methods.dsgd(SGD, topologies.ring(n)),
    "diloco": lambda n: methods.diloco(SGD, period=8),
    "mem_sgd": lambda n: methods.mem_sgd(SGD, compressors.TopK(ratio=0.05)),
    "power_sgd": lambda n: methods.power_sgd(SGD, rank=2),
}


def cnn():
    torch.manual_seed(0)
    block = lambda a, b: (nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())  # noqa: E731
    return nn.Sequential(*block(1, 16), *block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def data():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.get_default_dtype())[:, None].unflatten(-1, (8, 8)) / 16
    labels = torch.tensor(labels)
    train, test = TensorDataset(images[:1440], labels[:1440]), TensorDataset(images[1440:], labels[1440:])
    return train, DataLoader(test, batch_size=128)


def prepare(model, method):
    """The model to call, and its optimizer."""
    if method == "ddp":
        return DistributedDataParallel(model), SGD(model.parameters())
    return model, DistributedOptimizer(model, METHODS[method](dist.get_world_size()))


def evaluate(model, optimizer, loader, test):
    if isinstance(optimizer, DistributedOptimizer):
        model = optimizer.average_into(copy.deepcopy(model), calibrate=loader)
    model.eval()
    with torch.no_grad():
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in test)
    model.train()
    return right / len(test.dataset)


def train(method, epochs, save=None):
    train_set, test = data()
    sampler = DistributedSampler(train_set)  # shuffles, by epoch
    loader = DataLoader(train_set, batch_size=64, sampler=sampler, drop_last=True)
    model = cnn()
    called, optimizer = prepare(model, method)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    begin, file = 0, save and save.with_suffix(f".rank{dist.get_rank()}")  # a worker has a state of its own
    if file and file.exists():
        state = torch.load(file)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        begin = state["epoch"]
    for epoch in range(begin, epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(called(images), labels).backward()
            optimizer.step()
        scheduler.step()
        if file:
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            torch.save({name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch + 1}, file)
    return model, evaluate(model, optimizer, loader, test)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="?", default="ddp", choices=["ddp", *METHODS])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--save", type=Path, help="where checkpoints go, and are gone on with")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    _, accuracy = train(arguments.method, arguments.epochs, arguments.save)
    if dist.get_rank() == 0:
        print(f"{arguments.method}: test accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
