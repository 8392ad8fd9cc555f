"""torch's communication hooks of DDP, and its averagers of parameters, on this process's worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

from commeff import DistributedOptimizer, methods
from commeff.compressors import Dense
from commeff.core.state import Stateful
from commeff.experiments.studies.peers.problem import Compared, difference, loss, network, train, trained
from commeff.transforms.powersgd import PowerSGD

PLAIN = partial(torch.optim.SGD, lr=0.1)
SGD = partial(PLAIN, momentum=0.9)
EXACT, SIXTEEN = 1e-11, 2.0**-9  # float64; and float16, whose numbers are 2^-10 apart, relative
PERIOD, BEGIN, RANK = 4, 8, 2
LIBRARY = f"torch {torch.__version__.split('+')[0]}"


def comparisons() -> Iterator[Compared]:
    """The comparisons one after the other; every process calls it."""
    row = partial(Compared, LIBRARY)
    yield row("psgd", "DistributedDataParallel", difference(trained(methods.psgd(SGD)), _ddp()), EXACT, "")
    sixteen = difference(trained(methods.compressed_sgd(SGD, Dense("float16"))), _ddp(fp16_compress_hook))
    remark = "both round what travels; torch's also divides and adds in 16 bits"
    yield row("compressed_sgd(Dense(float16))", "fp16_compress_hook", sixteen, SIXTEEN, remark)
    yield row("power_sgd(rank=2)", "powerSGD_hook", *_low_rank())
    yield row("local_sgd(period=4)", "PeriodicModelAverager(4, warmup_steps=3)", *_local())
    yield row("post_local_sgd(period=4, begin=8)", "PostLocalSGDOptimizer, post_localSGD_hook", *_post_local())


def _ddp(hook: Callable[..., Any] | None = None, state: Any = None) -> Tensor:
    model = DistributedDataParallel(network())
    if hook is not None:
        model.register_comm_hook(state, hook)
    return train(model, SGD(model.parameters()))


def _low_rank() -> tuple[float, float, str]:
    """PowerSGD; both begin with our random factors, where torch would draw its own."""
    first: dict[str, Tensor] = {}

    def remember(optimizer: DistributedOptimizer) -> None:
        parts: list[Stateful] = [optimizer.strategy]
        while not isinstance(parts[0], PowerSGD):
            parts = [*parts[1:], *(inner for _, inner in parts[0].parts())]
        first.update(parts[0].right)

    x = trained(methods.power_sgd(SGD, RANK), remember)
    model = DistributedDataParallel(network())
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}
    state = PowerSGDState(None, RANK, start_powerSGD_iter=2, min_compression_rate=1, orthogonalization_epsilon=0)

    def hook(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        if state.iter == state.start_powerSGD_iter:
            chosen = [first[names[id(p)]] for p in bucket.parameters() if names[id(p)] in first]
            sent = [first[names[id(p)]].new_empty(len(p) * RANK) for p in bucket.parameters() if names[id(p)] in first]
            state.q_memory_dict[bucket.index()] = torch.cat([right.flatten() for right in chosen])
            state.p_memory_dict[bucket.index()] = torch.cat(sent)
        return powerSGD_hook(state, bucket)

    model.register_comm_hook(state, lambda state, bucket: hook(state, bucket))  # DDP does not read such annotations
    for _ in range(state.start_powerSGD_iter):  # DDP lays its buckets out by what it sees in a first step
        loss(model, 0, 0).backward()
    remark = "the same first factors, from the first step on, wherever two factors are smaller than the matrix"
    return difference(x, train(model, SGD(model.parameters()))), EXACT, remark


def _local() -> tuple[float, float, str]:
    model = network()
    averager = PeriodicModelAverager(PERIOD, warmup_steps=PERIOD - 1)
    reference = train(model, SGD(model.parameters()), lambda: averager.average_parameters(model.parameters()))
    x = trained(methods.local_sgd(SGD, PERIOD))
    remark = "torch's averages after step warmup_steps and every 4 later: after the first step, if there are none"
    return difference(x, reference), EXACT, remark


def _post_local() -> tuple[float, float, str]:
    model = DistributedDataParallel(network())
    single = dist.new_subgroups(1)[0]
    model.register_comm_hook(PostLocalSGDState(None, single, BEGIN), post_localSGD_hook)
    averager = PeriodicModelAverager(PERIOD, warmup_steps=BEGIN + PERIOD - 1)
    reference = train(model, PostLocalSGDOptimizer(PLAIN(model.parameters()), averager))
    x = trained(methods.post_local_sgd(PLAIN, PERIOD, BEGIN))
    remark = "without momentum, which is of averaged gradients in torch's first steps and a worker's own in ours"
    return difference(x, reference), EXACT, remark
