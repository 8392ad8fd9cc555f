"""What ranks of one axis of the mesh do together, forward and backward, and the bytes that it costs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
import torch.fx.node
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from commeff.communicator.wire.group import timeout_of

Arrival = Callable[[], Tensor]  # waits for what ranks do together, and gives the result
Function = Callable[[Tensor], Tensor]
Posted = Callable[[Tensor], Arrival]
Factors = list[tuple[int, Tensor, Tensor]]  # passes of backward, gradients of a linear layer's outputs, and its inputs

ALONG = -2  # the dimension of (b, t, d) by which sequence parallelism deals activations

_AXES = WeakValueDictionary[str, "Axis"]()  # by the names that compiled code has for them
_NUMBERS = count()
_REDUCTIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


def group_of(*ranks: int) -> Any:
    """A process group of some of the run's processes; at the same time all others make groups of theirs."""
    return dist.new_group(ranks, timeout=timeout_of(), use_local_synchronization=True)


class Axis:
    """One axis of the mesh, as the rank sees it: its group, its place in it, and what it has sent there.

    Attributes
    ----------
    name : str
        The name of the axis.
    size, rank : int
        How many ranks the group has, and which one this is.
    bytes : float
        What this rank has sent in the group: 2 (n-1)/n of a tensor for a sum, (n-1)/n of the longer side for a gather
        or a scatter.
    waited : float
        Seconds that this rank has stood still for the others; on a GPU, the host's.
    """

    def __init__(self, name: str, size: int = 1, rank: int = 0, group: Any = None) -> None:
        self.name, self.size, self.rank, self.group = name, size, rank, group
        self.bytes = self.waited = 0.0
        self._among: dict[tuple[int, ...], Axis] = {}
        self._key = f"{name} {next(_NUMBERS)}"
        _AXES[self._key] = self

    def __deepcopy__(self, _: Any) -> Axis:
        return self  # a copy of a model meets the same ranks, by the same group

    @property
    def ranks(self) -> list[int]:
        """The processes of the group, by their ranks in the run."""
        return dist.get_process_group_ranks(self.group) if self.group is not None else []

    def among(self, ranks: Sequence[int]) -> Axis:
        """The axis of some of its ranks, or of the others where this one is none of them; all ask for it at once.

        NCCL makes a group by splitting one that is there, which all of its ranks do or none.
        """
        key = tuple(rank for rank in range(self.size) if (rank in ranks) == (self.rank in ranks))
        if len(key) == self.size:
            return self
        if key not in self._among:
            self._among[key] = self._part(key)
        return self._among[key]

    @property
    def family(self) -> list[Axis]:
        """The axis and those within and `among` it."""
        return [self, *self._among.values()]

    def reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        """The sum (or "max") over the ranks, at every rank, without a gradient. Of a rehearsal nobody else hears."""
        return self.post_reduce(x, op)()

    def post_reduce(self, x: Tensor, op: str = "sum", given: bool = False) -> Arrival:
        """`reduce`, begun now, in the memory of x where that is given; what is returned waits for it."""
        if self.size == 1 or (x.is_meta and self.group is not None):
            return partial(_same, x)
        if torch.compiler.is_compiling():
            return partial(_same, _compiled(x, self._key, op))
        x = x.contiguous() if given else x.clone(memory_format=torch.contiguous_format)
        self.sent(2 * x.nbytes * (self.size - 1) / self.size)
        return partial(self._arrived, self._all_reduce(x, op))

    def gather(self, x: Tensor, dim: int) -> Tensor:
        """The ranks' tensors one after the other along `dim`, without a gradient."""
        if self.size == 1:
            return x
        gathered = self.post_gather(x)()
        return gathered if dim == 0 else torch.cat(gathered.chunk(self.size), dim)

    def scatter(self, x: Tensor, dim: int) -> Tensor:
        """This rank's part along `dim` of the sum over the ranks, without a gradient."""
        return self.post_sum_parts(x, dim)()

    def post_sum_parts(self, x: Tensor, dim: int) -> Arrival:
        """`scatter`, begun now; what is returned waits for it."""
        if self.size == 1:
            return partial(_same, x)
        self._check(x, dim)
        return self.post_scatter(torch.cat(x.chunk(self.size, dim)))

    def post_scatter(self, x: Tensor) -> Arrival:
        """`scatter` along the first dimension, begun now; what is returned waits for it. x must stay as it is."""
        if torch.compiler.is_compiling():
            return partial(_same, _compiled(x, self._key, "scatter"))
        self.sent(x.nbytes * (self.size - 1) / self.size)
        return partial(self._arrived, self._reduce_scatter(x))

    def post_gather(self, x: Tensor, out: Tensor | None = None) -> Arrival:
        """`gather` along the first dimension, begun now, into `out` where it is given; what is returned waits for it.
        x must stay as it is.
        """
        if torch.compiler.is_compiling():
            return partial(_same, _compiled(x, self._key, "gather"))
        self.sent(x.nbytes * (self.size - 1))
        return partial(self._arrived, self._all_gather(x, out))

    def part(self, x: Tensor, dim: int) -> Tensor:
        """This rank's part along `dim` of what all ranks have alike."""
        self._check(x, dim)
        return x.chunk(self.size, dim)[self.rank]

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        """Make x that of one rank, in place. It happens once, and is not counted.

        What is on the meta device has no numbers; each rank is to make its own, the same as others do.
        """
        if self.size > 1 and not x.is_meta:
            dist.broadcast(x, group=self.group, group_src=source)

    def send(self, x: Tensor, to: int) -> Any:
        """Send x to a rank; gives what waits until x has left."""
        self.sent(x.nbytes)
        return dist.isend(x.contiguous(), group=self.group, group_dst=to)

    def receive(self, x: Tensor, source: int) -> Arrival:
        """What a rank sends, asked for now, in the memory of x; what is returned waits for it."""
        return partial(_after, dist.irecv(x, group=self.group, group_src=source), x)

    def _part(self, ranks: Sequence[int]) -> Axis:
        return Axis(self.name, len(ranks), ranks.index(self.rank), group_of(*(self.ranks[rank] for rank in ranks)))

    def _check(self, x: Tensor, dim: int) -> None:
        if x.shape[dim] % self.size:
            raise ValueError(
                f"the length of dimension {dim % x.ndim} must be a multiple of {self.name} = {self.size}, got "
                f"{x.shape[dim]}: each rank takes an equal part; pad it, or take another degree"
            )

    def sent(self, count: float) -> None:
        """Count bytes that this rank sends."""
        self.bytes += count

    def _all_reduce(self, x: Tensor, op: str) -> Arrival:
        return partial(_after, self.group.allreduce([x], _REDUCTIONS[op]), x)

    def _all_gather(self, x: Tensor, out: Tensor | None) -> Arrival:
        x = x.contiguous()
        out = x.new_empty((self.size * x.shape[0], *x.shape[1:])) if out is None else out
        return partial(_after, self.group._allgather_base(out, x), out)

    def _reduce_scatter(self, x: Tensor) -> Arrival:
        if x.device.type == "cpu":  # gloo would sum all of it at every rank, and keep a part
            parts = torch.empty_like(x)
            received = partial(_after, self.group.alltoall_base(parts, x, [], []), parts)
            return lambda: received().unflatten(0, (self.size, -1)).sum(0)
        out = x.new_empty((x.shape[0] // self.size, *x.shape[1:]))
        return partial(_after, self.group._reduce_scatter_base(out, x), out)

    def _arrived(self, arrival: Arrival) -> Tensor:
        begin = time.perf_counter()
        out = arrival()
        self.waited += time.perf_counter() - begin
        return out


@torch.library.custom_op("commeff::together", mutates_args=(), schema="(Tensor x, str axis, str kind) -> Tensor")
def _compiled(x: Tensor, axis: str, kind: str) -> Tensor:
    """What ranks do together where torch.compile sees no more than that: as elsewhere it is counted and awaited."""
    here = _AXES[axis]
    post = {"gather": here.post_gather, "scatter": here.post_scatter}.get(kind, partial(here.post_reduce, op=kind))
    return post(x)()


# A rank that drops what only others use would leave them waiting.
torch.fx.node.has_side_effect(torch.ops.commeff.together.default)


@_compiled.register_fake
def _(x: Tensor, axis: str, kind: str) -> Tensor:
    if kind in _REDUCTIONS:
        return x.new_empty(x.shape)  # of a number, too
    size, (length, *others) = _AXES[axis].size, x.shape
    return x.new_empty((length * size if kind == "gather" else length // size, *others))


def _after(work: Any, out: Tensor) -> Tensor:
    work.wait()
    return out


class _Conjugate(torch.autograd.Function):
    """One function forward and another one backward; gradients of weights are computed while that is under way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Function, adjoint: Posted, *weights: Tensor) -> Tensor:
        ctx.adjoint, ctx.factors_of = adjoint, {weight: Factors() for weight in weights}
        out = f(x)
        return out.view_as(out) if out is x else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        arrival = ctx.adjoint(gradients[0])
        weights = [*map(_multiplied, ctx.factors_of.values())]
        return arrival(), None, None, *weights


class Products(torch.autograd.Function):
    """A linear layer, of which backward keeps the factors of the gradient of its weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        ctx.factors.append((torch._C._current_graph_task_id(), gradient, x))
        bias = _matrix(gradient).sum(0) if ctx.needs_input_grad[2] else None
        return gradient @ weight, None, bias, None


def factors_of(weight: Tensor, x: Tensor) -> Factors | None:
    """Where the gradient of a weight that multiplies x is to be kept: only if x is what has entered shared work."""
    waiting: dict[Tensor, Factors] = getattr(x.grad_fn, "factors_of", {})
    return waiting.get(weight)


def _multiplied(factors: Factors) -> Tensor | None:
    """The gradient of a weight, in this pass of backward: an earlier one may have stopped before it came here."""
    now = torch._C._current_graph_task_id()
    products = [_matrix(gradient).mT @ _matrix(x) for task, gradient, x in factors if task == now]
    factors.clear()
    return reduce(torch.add, products) if products else None


def _matrix(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _same(x: Tensor) -> Tensor:
    return x


def summed_gradient(axis: Axis, gradient: Tensor | None) -> Tensor | None:
    """The sum of the ranks' shares of a parameter's gradient; None where nothing has used the parameter."""
    return None if gradient is None else axis.reduce(gradient)


def copy_in(x: Tensor, axis: Axis, weights: Iterable[Tensor] = ()) -> Tensor:
    """x, which all ranks have alike, enters work that they share; its gradient is the sum of theirs.

    Backward is an all-reduce, during which gradients of weights are computed of their factors. The conjugate of
    `sum_out` (f and g of arXiv 1909.08053).
    """
    return _Conjugate.apply(x, _same, axis.post_reduce, *weights)


def sum_out(x: Tensor, axis: Axis) -> Tensor:
    """The sum of the ranks' shares of a result, by an all-reduce; the gradient of each share is that of the sum.

    The sum takes the memory of x, which no other gradient may need, unless a mode of torch may keep it, as selective
    checkpointing does.
    """
    if axis.size == 1:
        return x
    given = torch.compiler.is_compiling() or not torch._C._len_torch_dispatch_stack()
    return _Conjugate.apply(x, lambda x: axis.post_reduce(x, given=given)(), partial(partial, _same))


def gather_in(x: Tensor, axis: Axis, weights: Iterable[Tensor] = ()) -> Tensor:
    """(b, t/n, d) at each rank -> (b, t, d), which enters work that they share (arXiv 2205.05198).

    Forward gathers, backward scatters the sum of the gradients, during which those of weights are computed.
    """
    gather, scatter = partial(axis.gather, dim=ALONG), partial(axis.post_sum_parts, dim=ALONG)
    return _Conjugate.apply(x, gather, scatter, *weights)


def scatter_out(x: Tensor, axis: Axis) -> Tensor:
    """The sum of the ranks' shares (b, t, d), of which each keeps its own (b, t/n, d). The conjugate of `gather_in`."""
    gather = partial(partial, axis.gather, dim=ALONG)
    return _Conjugate.apply(x, partial(axis.scatter, dim=ALONG), gather)
