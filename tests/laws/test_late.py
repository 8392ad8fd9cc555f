"""Everything that processes do together is the same by a group that is as hard to use as NCCL's, and faults are found.

Others' optimizers have these faults: they read sums before they have come, or let some ranks alone make a group. Those
with the name of a thread are described there, and are written anew here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import tests.commeff.adapters.test_drop_in as drop_in
import tests.commeff.sharding.test_evaluation as evaluation
import tests.commeff.sharding.test_pipeline as stages
import tests.commeff.sharding.test_tensor as tensor
import tests.commeff.sharding.test_zero as zero
import tests.laws.test_engines as engines
from commeff.experiments.run.launch.rendezvous import MemberLost
from commeff.sharding import Mesh, collectives
from commeff.testing import NAME, REFUSED, Late, late
from tests.laws.processes import by_case, on_processes

SILENT = {  # nothing is sent by these
    *("abort", "bound_device_id", "boxed", "get_backend", "get_group_store", "get_reconfigure_handle", "group_desc"),
    *("group_name", "name", "rank", "set_timeout", "size", "unbox", "use_pg_for_symm_mem_rendezvous"),
    *(f"{verb}_{when}_hook" for verb in ("register", "unregister") for when in ("abort", "post", "pre")),
    *(f"supports_{what}" for what in ("abort_hooks", "completion_hooks", "reconfigure", "window")),
}
SOON = 2.0  # seconds after which a group has waited for ever
TOGETHER = {  # model, method, schedule, and what else
    **{schedule: ("llama tied", "psgd", schedule, {}) for schedule in ("interleaved", "zero_bubble")},
    "both ends of four": ("llama tied", "diloco", "1f1b", {"worker": 1, "pipeline": 4, "parts": 4, "clip": 0.6}),
    "factors": ("llama", "power_sgd", "zbv", {"parts": 4}),
    "tensor": stages.CASES["tensor"],
    "stage 3": stages.CASES["stage 3, tied"],
}
MADE_TOGETHER = pytest.mark.skipif(  # before torch 2.13
    "default_pg.new_group" not in inspect.getsource(dist.distributed_c10d),
    reason="this torch does not ask a group of all processes for new ones",
)
SHARDS = [("psgd", 0, None), ("mem_sgd", 1, None), ("power_sgd", 2, None), ("diloco", 2, 0.6), ("psgd", 3, None)]


@pytest.mark.parametrize("run", [pytest.param(engines.run_all, marks=pytest.mark.slow), engines.run_early])
def test_every_method_is_the_same_on_it(run: Callable[[], Any]) -> None:
    whole = engines.run_all()
    with late():
        many = on_processes(4, run)
    for name in engines.RUNS:
        trajectory = torch.cat([result[name][0] for result in many], dim=1)
        assert (trajectory - whole[name][0]).abs().max() <= 1e-12, name
        engines.same(engines.merged([result[name][1] for result in many], whole[name][1]), whole[name][1])


@pytest.mark.slow
def test_workers_in_pieces_are_the_same_on_it() -> None:
    def member() -> tuple[Any, Any]:
        in_stages = by_case(TOGETHER, lambda case: stages.in_case(*TOGETHER[case]))
        return in_stages, by_case(SHARDS, lambda case: zero.on_a_mesh(case[0], 2, 2, *case[1:]))

    with late():
        outcomes = on_processes(4, member)
    for case, (*named, options) in TOGETHER.items():
        stages.compare([in_stages[case] for in_stages, _ in outcomes], *named, **options)
    for case in SHARDS:
        zero.agree([in_shards[case] for _, in_shards in outcomes], *case)


@pytest.mark.parametrize(
    "law",
    [
        *(partial(drop_in.test_a_plain_loop_is_the_simulation, name, 3) for name in drop_in.METHODS),
        drop_in.test_parallel_sgd_is_ddp_with_a_torch_optimizer,
        drop_in.test_a_loop_goes_on_from_its_state,
        partial(tensor.agrees, "llama", "natural", 2, 2, True, 0.6),
        evaluation.test_guesses_and_losses_of_parts_are_those_of_whole_logits,
    ],
)
def test_what_holds_of_other_groups_holds_of_it(law: Callable[[], None]) -> None:
    with late():
        law()


def read_before_it_has_come() -> None:
    total = torch.ones(3)
    dist.all_reduce(total, async_op=True)
    assert total.isfinite().all(), "what has not come was read"


def nobody_waits() -> None:
    """OpenNMT-py#2295."""
    gradient = torch.ones(3)
    dist.all_reduce(gradient, async_op=True)
    gradient.div_(dist.get_world_size())


def written_before_it_has_come() -> None:
    total = torch.ones(3)
    work = dist.all_reduce(total, async_op=True)
    total.zero_()
    work.wait()


def changed_before_it_has_left() -> None:
    parts, mine = torch.empty(4), torch.ones(2)
    work = dist.all_gather_into_tensor(parts, mine, async_op=True)
    mine.zero_()
    work.wait()


def both_receive_first() -> None:
    other, x = 1 - dist.get_rank(), torch.ones(3)
    works = [dist.irecv(torch.empty(3), other), dist.isend(x, other)]
    [work.wait() for work in works]


def both_send_first() -> None:
    """NVIDIA/nccl#479."""
    other, x = 1 - dist.get_rank(), torch.ones(3)
    works = [dist.isend(x, other), dist.irecv(torch.empty(3), other)]
    [work.wait() for work in works]


def some_make_a_group() -> None:
    if dist.get_rank() == 0:
        collectives.group_of(0)
    dist.barrier()


def in_another_order() -> None:
    for ranks in ([0, 1], [1]) if dist.get_rank() else ([1], [0, 1]):
        dist.new_group(ranks)


def fragments_by_ones_own_step() -> None:
    """What meta-pytorch/torchft#206 and #233 prevent: who has joined a step later begins with another fragment."""
    fragments = [torch.ones(3), torch.ones(5)]
    for step in (0, 1):
        dist.all_reduce(fragments[(step + dist.get_rank()) % 2])


@pytest.mark.parametrize("fault", [nobody_waits, both_send_first])
def test_other_groups_hide_them(fault: Callable[[], None]) -> None:
    on_processes(2, fault)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (read_before_it_has_come, "what has not come was read"),
        (nobody_waits, r"nobody has waited for allreduce of \[\(3,\)\]"),
        (fragments_by_ones_own_step, "at once, got, from rank 0 on: allreduce of 12 bytes, allreduce of 20 bytes"),
        (written_before_it_has_come, "somebody wrote where allreduce of .* puts its results"),
        (changed_before_it_has_left, "_allgather_base of .* reads what has been changed before it was done"),
        (both_receive_first, "recv of .* waits for ever"),
        (both_send_first, "send of .* waits for ever"),
        pytest.param(
            some_make_a_group,
            r"a group of \[0\] waits for ever: some processes make none meanwhile",
            marks=MADE_TOGETHER,
        ),
        pytest.param(in_another_order, "waits for ever: some of them make another one meanwhile", marks=MADE_TOGETHER),
    ],
)
def test_faults_that_other_groups_hide_are_found(fault: Callable[[], None], words: str) -> None:
    with late(SOON), pytest.raises(MemberLost, match=words):
        on_processes(2, fault)


def test_no_public_name_of_torchs_group_goes_past_it() -> None:
    """What a later version of torch adds is to be posted, refused, or known to send nothing."""
    names = {name for name in dir(dist.ProcessGroup) if name.islower() and not name.startswith("_")}
    assert names - SILENT <= {*vars(Late)}

    def member() -> None:
        group: Any = dist.group.WORLD
        for name in REFUSED:
            with pytest.raises(NotImplementedError, match=f"has no {name}"):
                getattr(group, name)([torch.ones(3)], 0)
        with pytest.raises(NotImplementedError, match="has no recv_anysource"):
            dist.recv(torch.ones(3))

    with late():
        on_processes(2, member)


def test_it_is_torchs_group_in_all_else() -> None:
    def member() -> tuple[Tensor, ...]:
        rank, there, total = dist.get_rank(), torch.empty(2), torch.ones(2)
        axis = Mesh(worker=2, tensor=2).axis("tensor")
        other = axis.ranks[1 - axis.rank]
        operations = [
            dist.P2POp(dist.irecv, there, other),
            dist.P2POp(dist.isend, torch.full((2,), float(rank)), other),
        ]
        works = dist.batch_isend_irecv([*operations[: 1 - rank % 2], *reversed(operations[1 - rank % 2 :])])
        [work.wait() for work in works]
        dist.all_reduce(total)
        return there, total, axis.gather(torch.full((1,), float(rank)), 0)

    assert dist.Backend.backend_list.count(NAME) <= 1
    with late():
        for rank, (there, total, gathered) in enumerate(on_processes(4, member)):
            assert there.tolist() == [rank ^ 1] * 2
            assert total.tolist() == [4, 4]
            assert gathered.tolist() == [rank & 2, rank & 2 | 1]
