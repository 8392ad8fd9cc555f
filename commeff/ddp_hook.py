"""Any compressor or encoder under torch's DistributedDataParallel, as its communication hook.

DDP reads the annotations of a hook, so they are not strings here.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.futures import Future

from commeff.communicator import Communicator
from commeff.communicator.communicator import Handle
from commeff.strategy import Encoder
from commeff.transforms.encoders import as_encoder, dense
from compressors import Compressor, Layout


class HookState:
    """What `average_hook` remembers: an encoder for each bucket, the clock, and what has been sent.

        model = DistributedDataParallel(Net())
        model.register_comm_hook(commeff.HookState(ErrorFeedback(TopK(ratio=0.01))), commeff.average_hook)

    The first step is averaged densely, since DDP lays out its buckets anew after it; a bucket that changes later begins
    with empty memory. Memories are not checkpointed: a
    restarted run begins with a dense step and empty ones.

    Attributes
    ----------
    communicator : with the ledger and the clock `step`, which counts backward passes.
    encoders : the encoder of each bucket, by its index.
    """

    def __init__(self, encoder: Encoder | Compressor, *, seed: int = 0, group: Any = None) -> None:
        self.communicator = Communicator.per_process(seed, group)
        self._encoder, self.encoders = as_encoder(encoder), dict[int, Encoder]()
        self._places: dict[int, tuple[int, ...]] = {}  # which parameters a bucket held when its encoder began
        self._pending: list[tuple[Future[Tensor], Handle]] = []

    def post(self, bucket: torch.distributed.GradBucket) -> Handle:
        """Send one bucket; nobody waits yet."""
        vectors, number = bucket.buffer()[None], bucket.index()
        communicator = self.communicator.at(f"bucket{number}")
        communicator.device = vectors.device
        if communicator.step == 0:
            return communicator.post_average(dense(vectors))
        places = tuple(parameter.data_ptr() for parameter in bucket.parameters())
        if self._places.get(number) != places:
            self._places[number] = places
            layout = Layout.of([(str(i), tuple(p.shape)) for i, p in enumerate(bucket.parameters())])
            self.encoders[number] = copy.deepcopy(self._encoder)
            self.encoders[number].start(torch.zeros_like(vectors), layout, communicator)
        return communicator.post_average(self.encoders[number].encode(vectors, communicator, "up"))


def average_hook(state: HookState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean over all workers of the encoded bucket. Buckets travel while backward runs; the last one waits for all.

    Sends: one message a bucket, by all-reduce if messages sum, otherwise by all-gather.
    """
    future: Future[Tensor] = Future()
    state._pending.append((future, state.post(bucket)))
    if bucket.is_last():
        for waiting, handle in state._pending:
            waiting.set_result(handle.wait()[0])
        state._pending.clear()
        state.communicator.step += 1
    return future
