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
from commeff.compressors import Compressor, DenseMessage, Layout
from commeff.core import saving
from commeff.core.strategy import Encoder
from commeff.transforms.encoders import as_encoder


class HookState:
    """The memory of `average_hook`: an encoder for each bucket, the clock, and what has been sent.

        from commeff.adapters.ddp_hook import HookState, average_hook

        model = DistributedDataParallel(Net())
        model.register_comm_hook(HookState(ErrorFeedback(TopK(ratio=0.01))), average_hook)

    The first step is averaged densely, since DDP lays out its buckets anew after it; a bucket that changes later begins
    with empty memory. `state_dict` holds this worker's memories: a restarted run takes one dense step and then goes on
    with them, if its buckets are the same.

    Parameters
    ----------
    encoder : Encoder or Compressor
        What each bucket is sent by, such as `ErrorFeedback(TopK(ratio=0.01))`.
    seed : int
        The key of its randomness.
    group : ProcessGroup, optional
        The processes; the default group unless given.

    Attributes
    ----------
    communicator : Communicator
        With the ledger, and the clock `step`, which counts backward passes.
    encoders : dict of int to Encoder
        The encoder of each bucket, by its index.
    """

    def __init__(self, encoder: Encoder | Compressor, *, seed: int = 0, group: Any = None) -> None:
        self.communicator = Communicator(seed=seed, group=group)
        self._encoder, self.encoders = as_encoder(encoder), dict[int, Encoder]()
        self._places: dict[int, tuple[int, ...]] = {}  # which parameters a bucket held when its encoder began
        self._layouts: dict[int, Layout] = {}
        self._pending: list[tuple[Future[Tensor], Handle]] = []
        self._first: int | None = None  # the step of the first backward pass
        self._saved: dict[int, dict[str, Any]] = {}

    def post(self, bucket: torch.distributed.GradBucket) -> Handle:
        """Send one bucket; nobody waits yet."""
        vectors, number = bucket.buffer()[None], bucket.index()
        communicator = self.communicator.child(f"bucket{number}")
        communicator.context.device = vectors.device
        self._first = communicator.step if self._first is None else self._first
        if communicator.step == self._first:
            return communicator.post_average(DenseMessage.of(vectors))
        places = tuple(parameter.data_ptr() for parameter in bucket.parameters())
        if self._places.get(number) != places:
            self._places[number] = places
            layout = Layout.of([(str(i), tuple(p.shape)) for i, p in enumerate(bucket.parameters())])
            self.encoders[number] = copy.deepcopy(self._encoder)
            self.encoders[number].start(torch.zeros_like(vectors), layout, communicator)
            self._layouts[number] = layout
            if number in self._saved:
                saving.load(self.encoders[number], layout, self._saved.pop(number))
        return communicator.post_average(self.encoders[number].encode(vectors, communicator, "up"))

    def state_dict(self) -> dict[str, Any]:
        """The clock, and this worker's memory of each bucket."""
        buckets = {number: saving.save(encoder, self._layouts[number]) for number, encoder in self.encoders.items()}
        return {"step": self.communicator.step, "buckets": buckets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with what `state_dict` gave on the process of the same rank; call it before the first backward pass."""
        self.communicator.step, self._saved = state["step"], dict(state["buckets"])


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
