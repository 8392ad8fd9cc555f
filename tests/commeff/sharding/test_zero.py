"""ZeRO stage 1: ranks that share a worker's states train as one process that has them all."""

from __future__ import annotations

from functools import partial
from itertools import chain, product

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from commeff import Communicator, DistributedOptimizer, Layout, methods, topologies
from commeff.compressors import QSGD, RandomK, TopK
from commeff.experiments.studies.splitting.account import Account
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.replicas import Stacked
from commeff.sharding import Axis, Mesh, cross_entropy, split
from commeff.sharding.pieces import on_pieces
from commeff.sharding.precision import named_precision
from commeff.sharding.zero import BucketedRow, SingleRow, part_of
from commeff.transforms import clipped
from tests.commeff.sharding.whole import parts_of_whole, shards_of
from tests.laws.processes import by_case, census, on_processes

STEPS, VOCABULARY, BUCKET_MB = 4, 64, 0.01
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS = {
    "psgd": lambda n: methods.psgd(SGD),
    "dsgd": lambda n: methods.dsgd(SGD, topologies.ring(n)),
    "gossip_pga": lambda n: methods.gossip_pga(SGD, topologies.ring(n), period=3),
    "diloco": lambda n: methods.diloco(SGD, period=2),
    "streaming_diloco": lambda n: methods.streaming_diloco(SGD, period=2, fragments=3),
    "power_sgd": lambda n: methods.power_sgd(SGD, rank=2),
    "qsgd": lambda n: methods.compressed_sgd(SGD, QSGD(levels=7)),
    "sparta": lambda n: methods.sparta(SGD, ratio=0.2),
    "mem_sgd": lambda n: methods.mem_sgd(SGD, TopK(ratio=0.1)),
    "choco": lambda n: methods.choco(SGD, topologies.ring(n), RandomK(ratio=0.2), gamma=0.2),
    "ef21": lambda n: methods.ef21(SGD, TopK(ratio=0.1)),
}


def llama():
    torch.manual_seed(1)
    return Llama(VOCABULARY, layers=2, width=32, heads=4, kv_heads=2, inner=64).double()


def batch(step, worker):
    generator = torch.Generator().manual_seed(100 * step + worker)
    return torch.randint(VOCABULARY, (6, 9), generator=generator)


def whole_loss(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def columns(zero, layout, shard):
    """The columns that each rank updates."""
    axes = [Axis("shard", shard, rank) for rank in range(shard)]
    if zero < 3:
        parameters = {field.name: nn.Parameter(torch.zeros(field.shape).double()) for field in layout.fields}
        return [BucketedRow(parameters, layout, axis, megabytes=BUCKET_MB).spans for axis in axes]
    last = [field for field in layout.fields if not field.name.startswith("blocks.")]  # backward finishes them last
    blocks = [field for field in layout.fields if field.name.startswith("blocks.")]
    return [[part_of(f.start, f.stop, axis) for f in (*last, *blocks)] for axis in axes]


def on_one_process(method, n, shard, zero, clip):
    communicator, strategy = Communicator(workers=n), METHODS[method](n)
    replicas = Stacked(llama, communicator.workers)
    first, layout = replicas.parameters.clone(), replicas.layout
    cuts = [shards_of(llama(), llama_plan(llama()), Axis("tensor"))]
    parts = parts_of_whole(layout, cuts, shares=lambda piece: columns(zero, piece, shard))
    strategy = on_pieces(strategy, parts)
    strategy = clipped(strategy, clip)
    strategy.start(replicas.parameters, layout, communicator)
    for communicator.step in range(STEPS):
        tokens = torch.stack([batch(communicator.step, worker) for worker in range(n)])
        gradient, _ = replicas.compute(whole_loss, [(tokens,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    assert (replicas.parameters - first).abs().max() > 0.02, "nothing moved: the comparison says nothing"
    return replicas.parameters


def on_a_mesh(method, workers, shard, zero, clip):
    mesh, model = Mesh(worker=workers, shard=shard), llama()
    if mesh.coordinates["shard"]:
        torch.manual_seed(7)
        model = Llama(VOCABULARY, layers=2, width=32, heads=4, kv_heads=2, inner=64).double()  # begins as rank 0's
    optimizer = DistributedOptimizer(
        model, METHODS[method](workers), mesh=mesh, zero=zero, pieces="own", clip=clip, bucket_mb=BUCKET_MB
    )
    for step in range(STEPS):
        share = batch(step, mesh.coordinates["worker"]).chunk(shard)[mesh.coordinates["shard"]]
        optimizer.zero_grad()
        whole_loss(model, share).backward()
        optimizer.step()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    row = torch.cat([p.detach().flatten() for p in whole])
    state = optimizer.state_dict()["strategy"]
    momentum = [value for name, value in state.items() if name.startswith("local/state/")]
    numbers = sum(
        value.numel()
        for value in torch.utils._pytree.tree_leaves(momentum)
        if torch.is_tensor(value) and value.numel() > 1
    )
    return mesh.coordinates["worker"], row, numbers, mesh.axis("shard").bytes


EVERY = [(method, zero, None) for method in METHODS for zero in (1, 2, 3)]
SOME = ("psgd", "diloco", "mem_sgd", "power_sgd")
CASES = [
    ("psgd", 0, None),
    *((method, 1, None) for method in METHODS),
    *((method, zero, None) for method in SOME for zero in (2, 3)),
    *((method, zero, 0.6) for method, zero in (("psgd", 1), ("diloco", 2), ("mem_sgd", 3))),
]


@pytest.fixture(scope="module")
def outcomes():
    """By rank, what all cases came to: starting processes costs more than a case."""
    return on_processes(4, lambda: by_case(CASES, lambda case: on_a_mesh(case[0], 2, 2, *case[1:])))


@pytest.mark.parametrize(("method", "zero", "clip"), CASES)
def test_ranks_that_share_states_train_as_one_process(outcomes, method, zero, clip):
    agree([rank[method, zero, clip] for rank in outcomes], method, zero, clip)


@pytest.mark.slow
def test_every_method_at_every_stage():
    cases = [*EVERY, *((method, zero, 0.8) for method in SOME for zero in (1, 2, 3))]
    outcomes = on_processes(4, lambda: by_case(cases, lambda case: on_a_mesh(case[0], 2, 2, *case[1:])))
    for case in cases:
        agree([rank[case] for rank in outcomes], *case)


def agree(ranks, method, zero, clip):
    expected = on_one_process(method, 2, 2, zero, clip)
    assert sorted(worker for worker, *_ in ranks) == [0, 0, 1, 1]
    for worker, row, _, _ in ranks:
        assert (row - expected[worker]).abs().max() <= 1e-12


def test_states_and_bytes_are_their_formulas():
    """A third of the momentum at each rank; a reduce-scatter and an all-gather of every padded bucket a step."""
    layout = Stacked(llama, [0]).layout
    outcomes = on_processes(3, lambda: [on_a_mesh("psgd", 1, 3, zero, None) for zero in (1, 2)])
    for zero, ranks in zip((1, 2), zip(*outcomes, strict=True), strict=True):
        held = columns(zero, layout, 3)
        assert [numbers for _, _, numbers, _ in ranks] == [sum(b - a for a, b in spans) for spans in held]
        padded = sum(3 * (b - a) for a, b in held[0])
        assert padded > layout.d, "nothing is padded"
        assert [sent for *_, sent in ranks] == [STEPS * 2 * 8 * padded * 2 / 3] * 3
    assert len(held[0]) > 3, "there is one bucket alone"


PSI_PARTS = {0: (16, 0), 1: (8, 8), 2: (4, 12), 3: (0, 16)}  # bytes a parameter, at every rank and shared


def kept(zero, precision="fp32"):
    """Bytes that live after a step of AdamW, and parameters."""
    before, mesh = census(), Mesh(shard=2)
    model = Llama(320, layers=2, width=192, heads=4, inner=512)
    adam = methods.psgd(partial(torch.optim.AdamW, lr=0.01))
    psi = sum(p.numel() for p in model.parameters())
    optimizer = DistributedOptimizer(model, adam, mesh=mesh, zero=zero, precision=precision, bucket_mb=1.0)
    optimizer.zero_grad()
    whole_loss(model, batch(0, 0)[:2]).backward()
    optimizer.step()
    return census() - before, psi


def test_what_lives_between_steps_is_the_formula_of_the_stage():
    for rank in on_processes(2, lambda: by_case(PSI_PARTS, kept)):
        for zero, (everywhere, shared) in PSI_PARTS.items():
            live, psi = rank[zero]
            assert psi > 1e6
            assert live == pytest.approx((everywhere + shared / 2) * psi, rel=0.02), zero


@pytest.mark.parametrize("again", [SingleRow.begin, SingleRow.forget, SingleRow.finish])
def test_what_leaves_in_32_bits_is_this_steps_whatever_left_before(again):
    """Each gradient is once taken early and once at the end, after a step that was taken, dropped or begun anew."""
    named = {name: nn.Parameter(torch.ones(2)) for name in "ab"}
    row = SingleRow(named, Layout.of([(name, (2,)) for name in "ab"]), Axis("shard"), named_precision("bf16"))
    with torch.no_grad():
        for value, early in ((1.0, (2, 4)), (2.0, (0, 2))):
            for parameter in named.values():
                parameter.grad = torch.full_like(parameter, value)
            row.arrived(*early)
            if value == 1.0:
                again(row)
        assert torch.equal(row.finish(), torch.full((1, 4), 2.0))


class Allocated(TorchDispatchMode):
    """The sizes of new memory, in bytes."""

    def __init__(self):
        super().__init__()
        self.sizes, self._known = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        out = function(*args, **(kwargs or {}))
        for x in (x for x in tree_leaves(out) if isinstance(x, torch.Tensor)):
            if x.untyped_storage().data_ptr() not in given:
                self.sizes.append(x.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize(("zero", "d", "most"), [(0, 10_001, 1), (1, 10_001, 3), (1, 10_000, 2)])
def test_ranks_that_reduce_a_row_and_gather_it_copy_it_no_more_often_than_it_travels(zero, d, most):
    """A sum has memory of its own; gradients that leave, parts of them that come, and gathered parameters, which come
    into the row itself where ranks share it evenly.
    """

    def member():
        mesh, layout = Mesh(shard=2), Layout.flat(d)
        named = {"x": nn.Parameter(torch.arange(float(d)))}
        row = BucketedRow(named, layout, mesh.axis("shard"), zero=zero)
        row.begin()
        x = row.parameters + 1
        with Allocated() as allocated, torch.no_grad():
            row.finish()
            row.load(x)
        assert torch.equal(row._row[0], torch.arange(float(d)) + 1)
        return allocated.sizes

    for sizes in on_processes(2, member):
        assert sum(size >= 4 * 10_000 for size in sizes) == most, sizes


def order_of_sending(zero, precision="fp32"):
    """How many blocks were out, of how many, whenever gradients arrived: (columns, before, after). In the second step,
    as the first one of stages 0 and 1 shows that gradients are final.
    """
    model, found = llama(), []
    optimizer = DistributedOptimizer(
        model, METHODS["psgd"](1), mesh=Mesh(shard=2), zero=zero, precision=precision, bucket_mb=BUCKET_MB
    )
    blocks, gradients = optimizer.strategy.gradients, optimizer._gradients
    arrived = gradients._arrived

    def recorded(start, stop):
        before = len(blocks._flows)
        arrived(start, stop)
        during = torch._C._current_graph_task_id() >= 0
        found.append((optimizer._row._layout.slice(start, stop).fields[0].name, before, len(blocks._flows), during))

    gradients._arrived = recorded
    for step in range(2):
        found.clear()
        optimizer.zero_grad()
        whole_loss(model, batch(step, 0)).backward()
        optimizer.step()
    return found, [optimizer._row.spans, blocks._spans]


SENDING = [*((zero, "fp32") for zero in range(4)), *product((0, 1), ("bf16", "bf16_reduce_fp32"))]


@pytest.fixture(scope="module")
def sending():
    return on_processes(2, lambda: by_case(SENDING, lambda case: order_of_sending(*case)))[0]


@pytest.mark.parametrize(("zero", "precision"), SENDING)
def test_blocks_leave_while_others_are_computed(sending, zero, precision):
    """Results are equal when nothing overlaps, so no other law sees the order of the row."""
    found, (_, blocks) = sending[zero, precision]
    out = [after for _, _, after, _ in found]
    assert out == sorted(out)
    assert all(during for *_, during in found)
    assert len(blocks) > 6
    if zero == 3:  # units arrive as blocks.1, blocks.0 and the rest, each of which is out before the next one
        inside = [before for name, before, *_ in found if not name.startswith("blocks.")]
        assert min(inside) >= len(blocks) - 2, "blocks wait for the unit that backward finishes last"
        assert out[-1] == len(blocks)
    else:
        assert out[-1] >= len(blocks) - 2, "more than the two last buckets are left at the end of backward"


def fully_bytes():
    """What the account and the axis have counted for a step of stage 3, and parameters."""
    axis = (mesh := Mesh(shard=2)).axis("shard")
    model = llama()
    numbers = sum(p.numel() for p in model.parameters())
    optimizer = DistributedOptimizer(model, METHODS["psgd"](1), mesh=mesh, zero=3)
    optimizer.communicator.step = 3  # before others ranks tell each other what they must have alike
    optimizer.zero_grad()
    with Account() as account:
        whole_loss(model, batch(0, 0)).backward()
        optimizer.step()
    return account.sent(axis.group), axis.bytes, numbers


def test_stage_3_sends_three_halves():
    """Parameters forward and backward, gradients once; a root that stayed gathered would send less."""
    for account, axis, numbers in on_processes(2, fully_bytes):
        assert account == axis == 3 * 8 * numbers / 2


@pytest.mark.slow
@pytest.mark.parametrize("zero", [2, 3])
def test_four_workers_gossip(zero):
    ranks = on_processes(8, lambda: on_a_mesh("gossip_pga", 4, 2, zero, 1.5))
    expected = on_one_process("gossip_pga", 4, 2, zero, 1.5)
    assert (expected[0] - expected[1]).abs().max() > 1e-4, "workers do not differ"
    for worker, row, _, _ in ranks:
        assert (row - expected[worker]).abs().max() <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("method", ["psgd", "diloco", "mem_sgd", "streaming_diloco", "power_sgd", "qsgd"])
def test_tensor_and_shard_ranks_together(method, zero):
    def member():
        mesh, model = Mesh(worker=2, shard=2, tensor=2), llama()
        cuts = split(model, llama_plan(model), mesh.axis("tensor"), sequence=True)
        optimizer = DistributedOptimizer(
            model, METHODS[method](2), mesh=mesh, zero=zero, pieces="own", clip=0.6, bucket_mb=BUCKET_MB
        )
        for step in range(STEPS):
            share = batch(step, mesh.coordinates["worker"]).chunk(2)[mesh.coordinates["shard"]]
            optimizer.zero_grad()
            cross_entropy(model(share[:, :-1]), share[:, 1:], mesh.axis("tensor")).backward()
            optimizer.step()
        whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in model.named_parameters()}
        return mesh.coordinates["worker"], {n: p.detach() for n, p in whole.items()}, cuts

    communicator, strategy = Communicator(workers=2), METHODS[method](2)
    replicas = Stacked(llama, communicator.workers)
    cuts = [shards_of(llama(), llama_plan(llama()), Axis("tensor", 2, rank)) for rank in range(2)]
    shares = partial(columns, zero, shard=2)
    strategy = on_pieces(strategy, parts_of_whole(replicas.layout, cuts, shares=shares))
    strategy = clipped(strategy, 0.6)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STEPS):
        tokens = torch.stack([batch(communicator.step, worker) for worker in range(2)])
        gradient, _ = replicas.compute(whole_loss, [(tokens,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    for worker, pieces, cuts in on_processes(8, member):
        for field in replicas.layout.fields:
            whole = replicas.parameters[worker, field.start : field.stop].view(field.shape)
            assert (pieces[field.name] - cuts[field.name].take(whole)).abs().max() <= 1e-12


def test_what_is_frozen_begins_as_at_the_first_rank_too():
    def member():
        mesh = Mesh(worker=2, shard=2)
        torch.manual_seed(dist.get_rank())
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        model[1].requires_grad_(False)
        DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh)
        with pytest.raises(ValueError, match="group must not be given beside mesh"):
            DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh, group=mesh.group("worker"))
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first, *others = on_processes(4, member)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("zero", [1, 2])
def test_a_row_too_short_to_share_is_refused(zero):
    with pytest.raises(ValueError, match="shard = 4 ranks need a longer row than 5 numbers"):
        BucketedRow({"x": nn.Parameter(torch.ones(5))}, Layout.flat(5), Axis("shard", 4, 0), zero=zero)


def test_sparse_gradients_are_as_if_they_were_dense_at_every_stage():
    def weights(zero, megabytes, sparse):
        torch.manual_seed(0)
        mesh, model = Mesh(shard=2), nn.Sequential(nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 1))
        optimizer = DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh, zero=zero, bucket_mb=megabytes)
        for step in range(3):
            optimizer.zero_grad()
            model(mesh.axis("shard").part(torch.arange(4) + step, 0)).square().sum().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    def member():
        ways = product((0, 1, 2), (0, 0.00005))
        return [[weights(zero, megabytes, sparse) for sparse in (False, True)] for zero, megabytes in ways]

    for dense, sparse in chain(*on_processes(2, member)):
        assert torch.equal(dense, sparse)


def test_gradients_that_were_set_to_zero_count_where_they_stay_until_the_step():
    def member():
        for zero in (0, 1):
            mesh, model = Mesh(shard=2), nn.ModuleList(nn.Linear(3, 1) for _ in range(2))
            optimizer = DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh, zero=zero, bucket_mb=0.00001)
            optimizer.zero_grad(set_to_none=False)
            assert all(not parameter.grad.any() for parameter in model.parameters())
            used, unused = ([parameter.clone() for parameter in layer.parameters()] for layer in model)
            model[0](torch.ones(2, 3)).sum().backward()
            optimizer.step()
            assert not any(torch.equal(a, b) for a, b in zip(used, model[0].parameters(), strict=True))
            assert all(torch.equal(a, b) for a, b in zip(unused, model[1].parameters(), strict=True))

    on_processes(2, member)
