"""Stages and schedules as `torch.distributed.pipelining` has them; importing it takes as long as importing torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, _PipelineSchedule, get_schedule_class

from commeff.parallelism.collectives import Axis
from commeff.parallelism.layers import Stage


class CountedStage(PipelineStage):
    """A stage that counts the bytes that it sends."""

    axis: Axis

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """What goes to the next stage."""
        return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """What goes to the stage before."""
        return self._counted(super().get_bwd_send_ops(bwd_chunk_id))

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
) -> _PipelineSchedule:
    """The schedule of this kind over this rank's stages.

    Parameters
    ----------
    passed : Tensor
        Has the shape and kind of what goes from stage to stage. Shapes that are given need not be found out by running
        all stages once, and stages need not agree on them.
    """
    run: list[PipelineStage] = []
    like = passed.detach().requires_grad_()
    for number, stage in stages.items():
        device = torch.device(passed.device)
        each = CountedStage(stage, number, len(ranks), device, input_args=like, output_args=like, group=axis.group)
        each.axis = axis
        each.stage_index_to_group_rank = dict(enumerate(ranks))
        run.append(each)
    cls = get_schedule_class(kind)
    only = issubclass(cls, PipelineScheduleSingle)
    made: _PipelineSchedule = cls(run[0] if only else run, micro_batches, criterion, scale_grads=False)
    return made
