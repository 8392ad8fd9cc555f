"""What ranks of an axis do together is the same where it is compiled, in 16 bits too, and leaves what it is given."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from commeff import DistributedOptimizer, methods
from commeff.communicator.wire.group import Processes, timeout_of
from commeff.experiments.studies.splitting.account import Account
from commeff.sharding import Mesh
from commeff.sharding.collectives import _compiled, copy_in, gather_in, scatter_out, sum_out
from commeff.sharding.played import PlayedAxis
from tests.laws.processes import on_processes
from tests.owned import PATIENCE

N = 3


def drawn(rank, *shape):
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(rank)).double()


def test_sums_gathers_and_scatters_leave_what_they_are_given():
    def member():
        axis = Mesh(tensor=N).axis("tensor")
        every = [drawn(rank, 2, 4, 6).transpose(1, 2) for rank in range(N)]  # strided
        for dtype in (torch.float64, torch.bfloat16):
            own = every[axis.rank].to(dtype)
            with Account() as account:
                before = axis.bytes
                assert torch.equal(axis.reduce(own), sum(every).to(dtype))
                assert torch.equal(axis.reduce(own, "max"), torch.stack(every).amax(0).to(dtype))
                for dim in (0, 1, 2):
                    assert torch.equal(axis.gather(own, dim), torch.cat(every, dim).to(dtype))
                assert torch.equal(axis.scatter(own, 1), axis.part(sum(every), 1).to(dtype))
            assert torch.equal(own, every[axis.rank].to(dtype))
            assert account.sent(axis.group) == axis.bytes - before > 0

    on_processes(N, member)


def test_who_waits_in_any_group_gives_up_after_the_time_of_the_run():
    """Groups of a mesh, of a part of an axis, of who saves, and of FSDP: torch's own would wait for half an hour."""

    def member():
        mesh = Mesh(shard=2, tensor=2)
        model = nn.Linear(4, 4)
        optimizer = DistributedOptimizer(model, methods.psgd(torch.optim.SGD), mesh=Mesh(shard=4), zero=3)
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        Processes.beside()
        axis = Mesh(tensor=4).axis("tensor")
        axis.among([0, 1])
        groups = dist.distributed_c10d._world.pg_map
        assert len(groups) > 2 + len(mesh.inner)
        return {timeout_of(group).total_seconds() for group in groups}

    assert on_processes(4, member) == [{PATIENCE}] * 4


def test_compiled_code_reduces_a_number():
    axis = PlayedAxis("tensor", size=2)
    largest = torch.compile(lambda x: axis.reduce(x.sum(), "max"), backend="aot_eager", fullgraph=True)
    assert torch.equal(largest(torch.ones(3)), torch.tensor(3.0))
    assert axis.bytes == 4


@pytest.mark.parametrize("kind", ["sum", "max", "gather", "scatter"])
def test_the_compiler_knows_what_shape_comes(kind):
    axis = PlayedAxis("tensor", size=2)
    torch.library.opcheck(_compiled, (torch.ones(4, 3), axis._key, kind), test_utils=("test_schema", "test_faketensor"))


def test_a_rank_sends_what_it_does_not_use_itself():
    axis = PlayedAxis("tensor", size=2)
    compiled = torch.compile(lambda x: (axis.reduce(x), 2 * x)[1], backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert axis.bytes == 12


@pytest.mark.slow
def test_compiled_code_does_the_same_and_is_counted():
    def member():
        axis = Mesh(tensor=2).axis("tensor")
        weight = drawn(axis.rank, 4, 4).requires_grad_()

        def loss(x):
            x = scatter_out(gather_in(x, axis) @ weight, axis)
            return sum_out(copy_in(x, axis).relu() @ weight, axis).square().sum()

        found = []
        for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
            axis.bytes = 0.0
            value = function(drawn(5, 2, 6, 4))
            (gradient,) = torch.autograd.grad(value, weight)
            found.append((value.detach(), gradient, torch.tensor(axis.bytes)))
        assert all(map(torch.equal, *found))
        assert axis.bytes > 0

    on_processes(2, member)
