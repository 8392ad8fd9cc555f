"""The order in which the stages of a pipeline compute micro-batches: schedules of `torch.distributed.pipelining`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class StageOrder(NamedTuple):
    """One way to order the work of a pipeline.

    Attributes
    ----------
    kind : str
        What `torch.distributed.pipelining` calls it.
    chunks : int
        Stages that each rank has.
    turns : bool
        The stages go to and fro over the ranks, in a V; else they begin anew at the first rank.
    splits : bool
        Backward comes in two halves, gradients of inputs and of parameters, so that stage 3 of ZeRO must keep
        parameters gathered, and torch 2.13 holds a third of what a forward has kept until the batch has ended.
    rounds : bool
        Micro-batches go in rounds of as many as there are ranks, or a few more, all alike.
    few : str, optional
        What runs instead when there are fewer micro-batches than ranks, if it must be another.
    """

    kind: str
    chunks: int = 1
    turns: bool = False
    splits: bool = False
    rounds: bool = False
    few: str | None = None

    def ranks(self, size: int) -> list[int]:
        """The rank of each stage.

        >>> SCHEDULES["interleaved"].ranks(2), SCHEDULES["zbv"].ranks(2)
        ([0, 1, 0, 1], [0, 1, 1, 0])
        """
        ranks = list(range(size))
        return [rank for chunk in range(self.chunks) for rank in (ranks[::-1] if self.turns and chunk % 2 else ranks)]


SCHEDULES = {
    "gpipe": StageOrder("GPipe"),  # arXiv 1811.06965
    "1f1b": StageOrder("1F1B", few="GPipe"),  # arXiv 1806.03377
    "interleaved": StageOrder("Interleaved1F1B", chunks=2, rounds=True),  # arXiv 2104.04473
    "zero_bubble": StageOrder("InterleavedZeroBubble", chunks=2, splits=True, rounds=True),  # ZB1P of arXiv 2401.10241
    "zbv": StageOrder("ZBVZeroBubble", chunks=2, turns=True, splits=True),  # section 6 there
}


def unfit(schedule: str, size: int, micro_batches: int) -> Iterator[str]:
    """Why a schedule cannot run so many micro-batches on so many ranks, in a line."""
    if schedule not in SCHEDULES:
        yield f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}"
    if micro_batches < 1:
        yield f"micro_batches must be at least 1, got {micro_batches}"
    elif (
        schedule in SCHEDULES and SCHEDULES[schedule].rounds and micro_batches % (rounds := micro_batches // size or 1)
    ):
        yield (
            f"micro_batches must be a multiple of the {rounds} rounds that {schedule} makes on {size} ranks, got "
            f"{micro_batches}: take a multiple of pipeline = {size}"
        )
