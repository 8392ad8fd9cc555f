"""torchft's local SGD and (streaming) DiLoCo, on this process's worker, all workers being there all the time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from commeff import methods
from commeff.experiments.studies.peers.problem import Compared, difference, network, train, trained
from commeff.transforms import Exchange

INNER = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
OUTER = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
EXACT, PERIOD = 1e-11, 4


class Present:
    """What torchft asks of its manager, of workers who never fail."""

    _use_async_quorum = False

    def __init__(self) -> None:
        self._step = 0

    def allreduce(self, tensor: Tensor, should_quantize: bool = False) -> dist.Work:
        """Begin to average a tensor in place."""
        tensor /= dist.get_world_size()
        return dist.all_reduce(tensor, async_op=True)

    def should_commit(self) -> bool:
        """Nobody has failed: what was averaged counts."""
        self._step += 1
        return True

    def current_step(self) -> int:
        """How many averages have counted."""
        return self._step

    def nothing(self, *_: Any) -> None:
        """Everybody is there, and nobody recovers."""

    start_quorum = register_state_dict_fn = allow_state_dict_read = disallow_state_dict_read = nothing


def comparisons() -> Iterator[Compared]:
    """The comparisons one after the other; every process calls it."""
    try:
        from torchft.local_sgd import DiLoCo, LocalSGD
    except ImportError as missing:
        words = f"{missing}; pip install torchft"
        yield Compared("torchft", "local_sgd, diloco, streaming_diloco", "LocalSGD, DiLoCo", None, EXACT, words)
        return
    row = partial(Compared, f"torchft {version('torchft')}")

    def local() -> Tensor:
        model = network()
        optimizer = INNER(model.parameters())
        with LocalSGD(Present(), model, optimizer, sync_every=PERIOD):
            return train(model, optimizer)

    def diloco(fragments: int, delay: int = 0, alpha: float = 0.0) -> Tensor:
        model = network()
        optimizer, parts = INNER(model.parameters()), [*model] if fragments > 1 else [model]
        outer = [OUTER(part.parameters()) for part in parts]
        late = {"fragment_sync_delay": delay, "fragment_update_alpha": alpha}
        with DiLoCo(Present(), parts, optimizer, outer, sync_every=PERIOD, **late):
            return train(model, optimizer)

    gap = difference(trained(methods.local_sgd(INNER, PERIOD)), local())
    yield row("local_sgd(period=4)", "LocalSGD(sync_every=4)", gap, EXACT, "")
    gap = difference(trained(methods.diloco(INNER, PERIOD, OUTER)), diloco(1))
    yield row("diloco(period=4)", "DiLoCo(sync_every=4)", gap, EXACT, "")
    for delay in (0, 1):
        for alpha in (0.0, 0.5, 1.0):
            parts = [["1"], ["0"]]
            strategy = methods.streaming_diloco(
                INNER, PERIOD, parts, OUTER, exchange=Exchange(delay, alpha, ahead=delay)
            )
            gap = difference(trained(strategy), diloco(2, delay, alpha))
            call = f"streaming_diloco(period=4, delay={delay}, ahead={delay}, mixing={alpha})"
            reference = f"DiLoCo(sync_every=4, fragment_sync_delay={delay}, fragment_update_alpha={alpha})"
            yield row(call, reference, gap, EXACT, "2 fragments; the last is due first" if delay + alpha == 0 else "")
