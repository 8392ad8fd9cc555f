"""Column-parallel layers get the gradients of whole ones, however a module uses them and backward comes to them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from commeff.sharding import ColumnParallel, Mesh, ParallelInput, RowParallel, SequenceParallel, split
from commeff.sharding.deferred import deferred, fill
from tests.laws.processes import by_case, on_processes

WIDTH, INNER = 8, 12
PLAN = {
    "first": SequenceParallel(),
    "halves.*": ParallelInput(),
    "halves.*.up": ColumnParallel(),
    "halves.*.gate": ColumnParallel(),
    "halves.*.down": RowParallel(),
}
# Selective checkpointing that keeps products of matrices, as torchtitan's does.
SAVED = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default, torch.ops.aten.addmm.default])


class Half(nn.Module):
    """A feed-forward, whose `kind` says what is unusual in it."""

    def __init__(self, bias, kind):
        super().__init__()
        self.up, self.gate = (nn.Linear(WIDTH, INNER, bias=bias) for _ in range(2))
        self.down, self.kind = nn.Linear(INNER, WIDTH, bias=bias), kind

    def hidden(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.kind == "autocast"):
            other = x.detach() if self.kind == "detached" else x
            gate = F.silu(self.gate(x))
            return (gate if self.kind == "unused" else gate * self.up(other)).to(x.dtype)

    def forward(self, x):
        again = {"reentrant": True, "checkpoint": False}.get(self.kind)
        hidden = self.hidden(x) if again is None else checkpoint(self.hidden, x, use_reentrant=again)
        return self.down(hidden)


class Net(nn.Module):
    def __init__(self, bias, kind):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.halves = nn.ModuleList(Half(bias, kind) for _ in range(2))
        self.kind = kind

    def layer(self, half, x):
        return (x + half(x)).sin()

    def forward(self, x):
        x = self.first(x)
        for half in self.halves:
            if self.kind == "saved":
                x = checkpoint(self.layer, half, x, use_reentrant=False, context_fn=SAVED)
            else:
                x = self.layer(half, x)
        return x


def loss_of(net, kind):
    x = torch.randn(3, 4, WIDTH, dtype=next(net.parameters()).dtype, generator=torch.Generator().manual_seed(1))
    return net(x[0, 0] if kind == "vector" else x).square().sum()


def backward(net, kind):
    loss = loss_of(net, kind)
    if kind in ("twice", "reentrant", "checkpoint"):
        loss = loss + 2 * loss_of(net, kind)
    if kind == "biases":  # backward that stops before it comes to what has entered
        torch.autograd.grad(loss, [half.up.bias for half in net.halves], retain_graph=True)
    loss.backward()


KINDS = ("plain", "twice", "vector", "detached", "unused", "reentrant", "checkpoint", "saved", "biases")
CASES = [(kind, bias) for kind in (*KINDS, "autocast", "copies") for bias in (True, False) if bias or kind != "biases"]


def made(case):
    kind, bias = case
    net = Net(bias, "unused" if kind == "copies" else kind)
    return net if kind == "autocast" else net.double()


def gradients(case, axis):
    """What this rank has, and the same part of a whole model's."""
    whole, (net, numbers) = made(case), deferred(lambda: made(case))
    split(net, PLAN | ({"halves.*.up": ColumnParallel(units=1, repeat=True)} if case[0] == "copies" else {}), axis)
    fill(net, numbers)
    for each in (whole, net):
        backward(each, case[0])
    pairs = zip(net.parameters(), whole.parameters(), strict=True)
    return [(ours.grad, theirs.grad if theirs.grad is None else ours.cut.take(theirs.grad)) for ours, theirs in pairs]


@pytest.fixture(scope="module")
def outcomes():
    return on_processes(2, lambda: by_case(CASES, partial(gradients, axis=Mesh(tensor=2).axis("tensor"))))


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_whole_model(outcomes, case):
    unused = 0
    for rank in outcomes:
        for ours, theirs in rank[case]:
            if theirs is None:
                assert ours is None
                unused += 1
            else:
                assert theirs.abs().max() > 0.01
                assert (ours - theirs).abs().max() <= (0.1 * theirs.abs().max() if case[0] == "autocast" else 1e-12)
    assert (unused > 0) == (case[0] in ("unused", "copies"))


def test_gradients_of_gradients_are_refused():
    """They would lack the sums over ranks."""

    def member():
        axis = Mesh(tensor=2).axis("tensor")
        for kind in ("plain", "autocast"):  # gradients of weights are computed later, or not
            net = made((kind, True))
            split(net, PLAN, axis)
            (first,) = torch.autograd.grad(loss_of(net, kind), [net.first.weight], create_graph=True)
            with pytest.raises(RuntimeError, match="differentiate twice"):
                first.square().sum().backward()

    on_processes(2, member)


def test_nothing_is_summed_for_an_input_that_needs_no_gradient():
    def member():
        axis, net = Mesh(tensor=2).axis("tensor"), made(("plain", True))
        split(net, PLAN, axis)
        out, sent = net.halves[0](torch.ones(3, WIDTH, dtype=torch.float64)), axis.bytes
        out.sum().backward()
        assert net.halves[0].up.weight.grad is not None
        assert axis.bytes == sent > 0

    on_processes(2, member)
