"""Stages and schedules as `torch.distributed.pipelining` has them; importing it takes as long as importing torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

from commeff.sharding.collectives import Axis
from commeff.sharding.layers import Stage


class Unseen(nn.Module):
    """A stage whose parameters are sharded, which torch is not to know.

    It would scatter the gradients of a whole stage after the stage's last backward. This one scatters those of each
    layer in that backward, as they come, so that they can leave for the other workers meanwhile.
    """

    def __init__(self, stage: FSDPModule) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, *passed: Tensor, inputs: Sequence[Tensor]) -> Any:
        """As the stage."""
        return self.stage(*passed, inputs=inputs)  # type: ignore[operator]

    def goes_backward(self, last: bool) -> None:
        """Gradients are scattered, and parameters dropped, in the last backward of a batch alone."""
        self.stage.set_is_last_backward(last)
        self.stage.set_reshard_after_backward(last)
        self.stage.set_requires_gradient_sync(last)


class CountedStage(PipelineStage):
    """A stage that counts the bytes that it sends, and the seconds in which it computes."""

    axis: Axis
    seconds: float = 0.0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Counts the seconds meanwhile."""
        begin = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begin

    def forward_one_chunk(self, *arguments: Any, **options: Any) -> Any:
        """Forward of a micro-batch."""
        with self.computing():
            return super().forward_one_chunk(*arguments, **options)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Backward of a micro-batch, or its half that gives gradients of inputs."""
        if isinstance(self.submod, Unseen):
            self.submod.goes_backward(last_backward)
        with self.computing():
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """The half that gives gradients of parameters."""
        with self.computing():
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """What goes to the next stage."""
        return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """What goes to the stage before."""
        return self._counted(super().get_bwd_send_ops(bwd_chunk_id))

    def _validate_fwd_outputs(self, outputs: tuple[Tensor, ...]) -> None:
        """Nothing: torch 2.11 would refuse a last stage whose outputs have another shape than what is passed on."""

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Before torch 2.12 also a message to this rank, which gloo refuses, where two stages of a V meet."""
        return [op for op in super()._get_init_p2p_neighbors_ops() if op.group_peer != self.group_rank]

    def _counted(self, sent: list[dist.P2POp]) -> list[dist.P2POp]:
        self.axis.bytes += sum(op.tensor.nbytes for op in sent)
        return sent


def scheduled(
    kind: str,
    stages: Mapping[int, Stage],
    ranks: Sequence[int],
    axis: Axis,
    passed: Tensor,
    micro_batches: int,
    criterion: Callable[[Any, Tensor], Tensor],
) -> Callable[[Sequence[Tensor], Tensor | None], None]:
    """The step of a schedule of this kind over this rank's stages, given inputs and targets.

    Parameters
    ----------
    passed : Tensor
        Has the shape and kind of what goes from stage to stage. Shapes that are given need not be found out by running
        all stages once, and stages need not agree on them.
    """
    run: list[CountedStage] = []
    like = passed.detach().requires_grad_()
    for number, stage in stages.items():
        device = torch.device(passed.device)
        seen = Unseen(stage) if isinstance(stage, FSDPModule) and not stage.gathered else stage
        counted = CountedStage(seen, number, len(ranks), device, input_args=like, output_args=like, group=axis.group)
        counted.axis = axis
        counted.stage_index_to_group_rank = dict(enumerate(ranks))
        run.append(counted)
    cls = get_schedule_class(kind)
    only = issubclass(cls, PipelineScheduleSingle)

    def timed(outputs: Any, index: Tensor) -> Tensor:
        with run[-1].computing():
            return criterion(outputs, index)

    schedule = cls(run[0] if only else run, micro_batches, timed, scale_grads=False)

    def step(inputs: Sequence[Tensor], targets: Tensor | None) -> None:
        """Pass all micro-batches forward and backward; seconds in which no stage computes, the axis has waited."""
        begin, computed = time.perf_counter(), sum(stage.seconds for stage in run)
        schedule.step(target=targets, return_outputs=False, inputs=inputs)
        computed = sum(stage.seconds for stage in run) - computed
        axis.waited += time.perf_counter() - begin - computed

    return step
