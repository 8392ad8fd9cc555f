"""What a run sends in which not everybody takes part: its method played with those who are there, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.communicator.mixing import MixPlan
from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.optimizers.curvature import Flat
from commeff.profiling.live import preserved
from commeff.profiling.profile import SMALL, Profile
from commeff.profiling.rehearsal import Operation
from commeff.topologies import MixingMatrix
from commeff.topologies.failures import Sums, without_workers
from commeff.training.returning import RETURN, attend, returns

SHORT, LONG, WORK = 64, 1024, 1 << 14  # steps that are played, the fewer the more workers there are: so many of all

Present = Callable[[int], Tensor]


@dataclass(frozen=True)
class Attended:
    """What workers send in each step of a run in which some are absent; a `commeff.cluster.billing.Schedule`.

    Bytes and messages are means over all n workers, as in a ledger.

    Attributes
    ----------
    workers : n.
    sent : the operations of each step that was played.
    there : who took part in it.
    back : who has what those who return get, and these; empty if nobody does.
    repeats : of a longer run, the last so many of them come again.
    note : what was assumed, where a run's ledger may say something else; else "".
    """

    workers: int
    sent: tuple[tuple[Operation, ...], ...]
    present: tuple[tuple[int, ...], ...]
    back: tuple[tuple[int, ...], ...]
    repeats: int
    note: str = ""

    first: int = 0
    period: int | None = None

    def played(self, step: int) -> int:
        """The step that stands for this one."""
        beyond = step - len(self.sent)
        return step if beyond < 0 else len(self.sent) - self.repeats + beyond % self.repeats

    def operations(self, step: int) -> Sequence[Operation]:
        """The operations of a step, in order."""
        played = self.played(step)
        return [operation.moved(step - played) for operation in self.sent[played]]

    def members(self, operation: Operation) -> tuple[int, ...]:
        """The workers that an operation connects."""
        return (self.back if operation.path == RETURN else self.present)[self.played(operation.step)]

    def senders(self, operation: Operation) -> int:
        """The number of workers it is billed to."""
        return len(self.members(operation)) - (operation.path == RETURN)


def attended(
    strategy: Strategy,
    layout: Layout,
    whole: Profile,
    present: Present,
    steps: int,
    *,
    seed: int = 0,
    collective: str = "auto",
    dtype: torch.dtype = torch.float32,
) -> Attended:
    """Play a run on meta tensors, which have shapes and no memory.

    Parameters
    ----------
    strategy : any that does without some workers; it is left as it was found.
    layout : of a row.
    whole : its profile, which says what steps send in which everybody takes part.
    present : (n,) bool, who takes part in a step.
    steps : of the run.
    seed, collective, dtype : as of `profile`.
    """
    n = whole.workers
    count = min(steps, max(SHORT, min(LONG, WORK // n)))
    period = strategy.timetable().period or 1
    repeats = max(1, count // 2 // period) * period
    note = [whole.note] if whole.note else []
    if count < steps:
        note.append(f"{count} of {steps} steps were played, of which the last {repeats} come again")

    def play(device: str) -> list[list[Operation]]:
        """The operations of each step."""
        communicator, sent = _Watched(n, seed, collective=collective), []
        x = torch.zeros(n, layout.d, dtype=dtype, device=device)
        with preserved(strategy):
            strategy.start(x, layout, communicator)
            for communicator.step in range(count):
                x = attend(strategy, x, communicator, present)
                x = strategy.step(x, torch.zeros_like(x), communicator, Flat())
                sent.append(communicator.take_operations())
        return sent

    try:
        sent = play("meta")
    except (NotImplementedError, RuntimeError, TypeError):
        if layout.d > SMALL:
            raise
        sent = play("cpu")
    for step, operations in enumerate(sent):
        if bool(present(step).all()):  # also what computing hides
            sent[step] = [op for op in operations if op.path == RETURN] + list(whole.operations(step))
    ids = [_ids(present(step)) for step in range(count)]
    back = [(pair[1], *_ids(pair[0])) if (pair := returns(strategy, present, step)) else () for step in range(count)]
    return Attended(n, tuple(map(tuple, sent)), tuple(ids), tuple(back), min(repeats, count), "; ".join(note))


def _ids(workers: Tensor) -> tuple[int, ...]:
    return tuple(workers.nonzero().flatten().tolist())


class _Watched(Communicator):
    """A communicator that writes down every operation, with those who mix."""

    def __init__(self, workers: int, seed: int = 0, collective: str = "auto") -> None:
        super().__init__(workers, seed, collective=collective)
        self._matrices: list[MixingMatrix] = []

    def _mixing(self, matrix: MixingMatrix, keep: Sums | None) -> MixPlan:
        present = self.context.present
        self._matrices.append(matrix if bool(present.all()) else without_workers(matrix, present.numpy(), keep))
        return super()._mixing(matrix, keep)

    def take_operations(self) -> list[Operation]:
        """The operations since the last call."""
        matrices = iter(self._matrices)
        operations = [
            Operation(*row, matrix=next(matrices) if row.kind == "mix" else None, waited=row.step, posted=row.step)
            for row in self.ledger.rows
        ]
        self.ledger.rows.clear()
        self._matrices.clear()
        return operations
