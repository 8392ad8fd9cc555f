"""The drop-in over models that their user has split: FSDP2, tensor parallelism and pipelines of torch's own."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache, partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

from commeff import Communicator, DistributedOptimizer, Layout, methods
from commeff.compressors import QSGD, TopK
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.replicas import Stacked
from commeff.sharding import Axis, split
from commeff.sharding.borrowed import placements_of, shard_of
from commeff.sharding.foreign import Workers, local
from commeff.sharding.parts import Part
from commeff.sharding.pieces import on_pieces
from commeff.transforms import clipped
from tests.laws.processes import on_processes, through_a_file

STEPS, CLIP = 4, 0.2
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS = {
    "psgd": lambda: methods.psgd(SGD),
    "diloco": lambda: methods.diloco(SGD, period=2),
    "streaming_diloco": lambda: methods.streaming_diloco(SGD, period=2, fragments=2),
    "power_sgd": lambda: methods.power_sgd(SGD, rank=2),
    "qsgd": lambda: methods.compressed_sgd(SGD, QSGD(levels=7)),
}
ON_PIECES = {  # what acts on each piece as on a vector of its own
    "mem_sgd": lambda: methods.mem_sgd(SGD, TopK(ratio=0.1)),
}


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return self.weight * x


def net():
    """Nothing divides evenly by two ranks but what tensor parallelism cuts."""
    torch.manual_seed(0)
    layers = {
        "first": nn.Linear(5, 12),
        "norm": nn.LayerNorm(12),
        "second": nn.Linear(12, 10),
        "third": nn.Linear(10, 7),
        "gain": Gain(),
        "last": nn.Linear(7, 3),
    }
    return nn.Sequential(OrderedDict(layers)).double()


def tied():
    """The same with one more layer, which stands before and behind the cut of a pipeline."""
    first, norm, *rest = net().named_children()
    turn = nn.Linear(12, 12).double()
    return nn.Sequential(OrderedDict([first, norm, ("turn", turn), ("again", turn), *rest]))


def batch(step, worker):
    generator = torch.Generator().manual_seed(100 * step + worker)
    return torch.randn(8, 5, generator=generator).double(), torch.randint(3, (8,), generator=generator)


def loss(model, inputs, targets):
    return F.cross_entropy(model(inputs), targets)


@cache
def mesh_of(*names):
    return init_device_mesh("cpu", (2,) * len(names), mesh_dim_names=names)


class Forked:
    """A worker's model as its user has split it over two ranks, and a backward pass over a batch."""

    net = staticmethod(net)

    def __init__(self, *inner):
        self.mesh = mesh_of("dp_replicate", *inner)
        self.worker, self.rank = (self.mesh.get_local_rank(name) for name in ("dp_replicate", inner[0]))
        self.inner, self.model = self.mesh[inner[0]], self.net()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(self.worker)  # all workers begin as the first
        self.parts = [self.model]


class Sharded2(Forked):
    shard = staticmethod(fully_shard)

    def __init__(self):
        super().__init__("dp_shard")
        for module in (*self.model, self.model):
            self.shard(module, mesh=self.inner, reshard_after_forward=False)

    def backward(self, inputs, targets):
        loss(self.model, inputs.chunk(2)[self.rank], targets.chunk(2)[self.rank]).backward()


class Tensor2(Forked):
    def __init__(self):
        super().__init__("tp")
        parallelize_module(self.model, self.inner, {"second": ColwiseParallel(), "third": RowwiseParallel()})

    def backward(self, inputs, targets):
        loss(self.model, inputs, targets).backward()


class Pipeline2(Forked):
    """The first rank has the first layers and the last one, by a loop of the user's own."""

    def __init__(self):
        super().__init__("pp")
        layers = dict(self.model.named_children())
        names = [["first", "norm"], ["second", "third", "gain", "last"]][self.rank]
        self.parts = [nn.Sequential(OrderedDict({name: layers[name]})) for name in names]
        self.group, self.other = self.inner.get_group(), 1 - self.rank

    def backward(self, inputs, targets):
        if self.rank == 0:
            x = self.through(inputs)
            dist.send(x.detach(), group=self.group, group_dst=1)
            dist.recv(gradient := torch.empty_like(x), group=self.group, group_src=1)
            x.backward(gradient)
        else:
            dist.recv(x := torch.empty(8, 12).double(), group=self.group, group_src=0)
            F.cross_entropy(self.through(x.requires_grad_()), targets).backward()
            dist.send(x.grad, group=self.group, group_dst=0)

    def through(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Tied2(Pipeline2):
    """Both stages have a layer, and the user adds up what they find of its gradient."""

    net = staticmethod(tied)

    def __init__(self):
        super().__init__()
        self.parts.insert((2, 0)[self.rank], nn.Sequential(OrderedDict(turn=self.model.turn)))

    def backward(self, inputs, targets):
        super().backward(inputs, targets)
        for parameter in self.model.turn.parameters():
            dist.all_reduce(parameter.grad, group=self.group)


class Sharded2Tensor2(Forked):
    def __init__(self):
        super().__init__("dp_shard", "tp")
        parallelize_module(self.model, self.mesh["tp"], {"second": ColwiseParallel(), "third": RowwiseParallel()})
        for module in (*self.model, self.model):
            fully_shard(module, mesh=self.mesh["dp_shard"])

    def backward(self, inputs, targets):
        loss(self.model, inputs.chunk(2)[self.rank], targets.chunk(2)[self.rank]).backward()


SPLITS = {"fsdp": Sharded2, "tensor": Tensor2, "pipeline": Pipeline2, "tied": Tied2}


def trained(worker, method):
    """What this rank holds of each tensor after some steps, and where it lies."""
    strategy, pieces = (METHODS | ON_PIECES)[method](), "own" if method in ON_PIECES else None
    optimizer = DistributedOptimizer(worker.parts, strategy, mesh=worker.mesh, pieces=pieces, clip=CLIP)
    named = {name: parameter for part in worker.parts for name, parameter in part.named_parameters()}
    workers = Workers(worker.mesh, "dp_replicate")
    words = {name: workers.words(home) for name, home in placements_of(named, workers)[1].items()}
    for step in range(STEPS):
        optimizer.zero_grad()
        worker.backward(*batch(step, worker.worker))
        optimizer.step()
    pieces = [(words[name], (name, shard_of(p)), local(p).clone()) for name, p in named.items()]
    return worker.worker, pieces, optimizer.copied


CASES = [(split, method) for split in SPLITS for method in ("psgd", "diloco", "mem_sgd")]
CASES += [(split, "power_sgd") for split in SPLITS]
CASES += [("fsdp", "qsgd"), ("pipeline", "streaming_diloco")]


@pytest.fixture(scope="module")
def outcomes():
    return on_processes(4, lambda: {case: trained(SPLITS[case[0]](), case[1]) for case in CASES})


def columns(layout, what):
    """The columns of the whole model that a rank holds of a tensor."""
    name, shard = what
    (field,) = (field for field in layout.fields if field.name == name)
    places = torch.arange(field.start, field.stop).view(field.shape)
    for dim, spans in enumerate(shard.runs):
        places = torch.cat([places.narrow(dim, a, b - a) for a, b in spans] or [places.narrow(dim, 0, 0)], dim)
    return places


def parts(layout, ranks):
    found = {}
    for _, pieces, _ in ranks:
        own = {}
        for words, what, _ in pieces:
            own.setdefault(words, []).append((what[0], columns(layout, what)))
        found |= own
    return [
        Part(
            words,
            [(c, c + 1) for _, places in tensors for c in places.flatten().tolist()],
            Layout.of([(name, places.shape) for name, places in tensors]),
        )
        for words, tensors in found.items()
    ]


@pytest.mark.parametrize(("split", "method"), CASES)
def test_two_workers_train_as_two_whole_models(outcomes, split, method):
    compare([rank[split, method] for rank in outcomes], method, SPLITS[split].net)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["psgd", "power_sgd", "mem_sgd", "qsgd"])
def test_two_workers_that_are_sharded_and_split_train_as_two_whole_models(method):
    compare(on_processes(8, lambda: trained(Sharded2Tensor2(), method)), method)


def compare(ranks, method, net=net):
    replicas, communicator = Stacked(net, range(2)), Communicator(workers=2)
    first, strategy = replicas.parameters.clone(), (METHODS | ON_PIECES)[method]()
    if method in ON_PIECES:
        strategy = on_pieces(strategy, parts(replicas.layout, ranks[: len(ranks) // 2]))
    strategy = clipped(strategy, CLIP)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STEPS):
        pairs = [batch(communicator.step, worker) for worker in range(2)]
        gradient, _ = replicas.compute(loss, [tuple(map(torch.stack, zip(*pairs, strict=True)))], communicator.step)
        assert gradient.norm(dim=1).min() > CLIP, "clipping does not bite"
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    assert (replicas.parameters - first).abs().max() > 0.02
    covered = torch.zeros_like(replicas.parameters)
    for worker, pieces, _ in ranks:
        for _, what, values in pieces:
            places = columns(replicas.layout, what)
            assert (values - replicas.parameters[worker, places]).abs().lt(1e-12).all(), (what[0], worker)
            covered[worker, places] = 1
    assert covered.all()


def plain(**changes):
    torch.manual_seed(3)
    return nn.Sequential(OrderedDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2)} | changes))


def refused(words, model, mesh, **given):
    with pytest.raises(ValueError, match=words):
        DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh, **given)


def test_what_the_user_has_split_must_leave_the_workers_to_the_method():
    def member():
        mesh = mesh_of("dp_replicate", "dp_shard")
        here = dist.get_rank() // 2 * 2
        for meshes in (mesh, init_device_mesh("cpu", (4,)), mesh["dp_replicate"]):  # HSDP, everybody, the workers
            model = fully_shard(plain(), mesh=meshes)
            refused(
                rf"a worker, \[{here}, {here + 1}\], must have a.weight to themselves, got a DTensor over", model, mesh
            )
        sharded = fully_shard(plain(), mesh=mesh["dp_shard"])
        refused("mesh must be given for a model of DTensors, got none", sharded, None)
        refused(
            "must name the workers' axis of the mesh, one of dp_replicate, dp_shard, got 'dp'", sharded, mesh, axis="dp"
        )
        refused("must have all 4 processes, got one of 2", plain(), mesh["dp_replicate"])
        refused("axis dp_shard is the method's", sharded, mesh, axis="dp_shard")
        refused("zero must be left out where the user has split the model, got 3", sharded, mesh, zero=3)
        refused("group must not be given beside mesh", sharded, mesh, group=mesh.get_group("dp_shard"))
        ddp = nn.parallel.DistributedDataParallel(plain(), process_group=mesh.get_group("dp_shard"))
        refused("the model is wrapped in DistributedDataParallel", ddp, mesh)
        refused(
            "1 of the model is wrapped in DistributedDataParallel", nn.Sequential(plain(), replicate(plain())), mesh
        )
        refused("must have memory, got a.weight on meta", plain().to("meta"), mesh)
        split(model := Llama(8, layers=1, width=8, heads=2, inner=8), llama_plan(model), Axis("tensor"))
        refused(r"that split\(...\) has cut needs mesh=Mesh\(...\), got a DeviceMesh", model, mesh)

    on_processes(4, member)


def test_what_should_be_copies_must_be_equal():
    def member():
        mesh = mesh_of("dp_replicate", "pp")
        rank = mesh.get_local_rank("pp")
        torch.manual_seed(rank)
        words = "copies of 0.weight must be equal, got other values at pp 0 than elsewhere of everywhere"
        refused(words, nn.Sequential(nn.Linear(2, 2)), mesh)  # stages whose names do not tell them apart
        words = r"a name must name one tensor, got 0.weight of shapes \(2, 2\) and \(2, 3\)"
        refused(words, nn.Sequential(nn.Linear(2 + rank, 2)), mesh)
        model = plain()
        optimizer = DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh)
        model(torch.full((2, 3), 1.0 + rank)).square().sum().backward()
        with pytest.raises(ValueError, match=r"copies of a.weight must get the same gradient, got norms .* at pp"):
            optimizer.step()

    on_processes(4, member)


def test_other_dtypes_are_copied_and_the_row_is_their_master():
    def member():
        model = plain(b=nn.Linear(4, 2).bfloat16())
        optimizer = DistributedOptimizer(
            [model.a, model.b], methods.psgd(partial(torch.optim.SGD, lr=2e-4)), mesh=mesh_of("dp_replicate")
        )
        assert optimizer.copied == 2 * 10
        first = model.b.bias.clone()
        for _ in range(40):
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        moved = first - model.b.bias
        row = optimizer.state_dict()["parameters"]
        assert row.dtype == torch.float32
        assert torch.equal(row[0, -2:].bfloat16(), model.b.bias)
        assert model.a.weight.data_ptr() != row.data_ptr()
        return moved.float()

    for moved in on_processes(2, member):
        assert torch.allclose(moved, torch.full((2,), 40 * 2e-4), rtol=0.3), "steps below a 16-bit spacing were lost"


def test_a_sharded_loop_goes_on_from_its_state():
    def member():
        worker, goes_on = Sharded2(), Sharded2()
        optimizer, other = (
            DistributedOptimizer(w.model, METHODS["diloco"](), mesh=w.mesh, clip=CLIP) for w in (worker, goes_on)
        )
        for step in range(STEPS):
            if step == 2:
                with torch.no_grad():
                    goes_on.model(batch(0, 0)[0])  # leaves gathered parameters behind
                other.load_state_dict(through_a_file(optimizer.state_dict()))
            for each, steps in ((worker, optimizer), (goes_on, other)):
                steps.zero_grad()
                each.backward(*batch(step, each.worker))
                if steps is optimizer or step >= 2:
                    steps.step()
        with torch.no_grad():
            (mean := Sharded2().model)(batch(0, 0)[0])
        optimizer.average_into(mean)
        pairs = zip(worker.model.parameters(), goes_on.model.parameters(), mean.parameters(), strict=True)
        return [[local(p).clone() for p in each] for each in pairs]

    for rank in on_processes(4, member):
        assert all(torch.equal(own, resumed) and torch.equal(own, mean) for own, resumed, mean in rank)
