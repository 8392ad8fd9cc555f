"""Exactness: a method over models that are split over tensor parallel ranks is the method over whole models."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from commeff import Communicator, DistributedOptimizer, Layout, methods, topologies
from commeff.compressors import QSGD, Dense, Natural, PerTensor, RandomK, ScaledSign, TopK
from commeff.compressors.laws import concrete
from commeff.experiments.tasks.language import GPT, Llama, gpt_plan, llama_plan
from commeff.replicas import Stacked
from commeff.sharding import (
    Axis,
    ColumnParallel,
    HeadParallel,
    Mesh,
    ParallelInput,
    RowParallel,
    SequenceParallel,
    VocabularyParallel,
    cross_entropy,
    split,
)
from commeff.sharding.parts import Part
from commeff.sharding.pieces import on_pieces
from commeff.sharding.tensor import ColumnLinear
from commeff.transforms import clipped
from tests.commeff.sharding.whole import parts_of_whole, shards_of
from tests.laws.processes import by_case, on_processes

STEPS, VOCABULARY = 4, 64
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS = {
    "psgd": lambda n: methods.psgd(SGD),
    "dsgd": lambda n: methods.dsgd(SGD, topologies.ring(n)),
    "gossip_pga": lambda n: methods.gossip_pga(SGD, topologies.ring(n), period=3),
    "diloco": lambda n: methods.diloco(SGD, period=2),
    "streaming_diloco": lambda n: methods.streaming_diloco(SGD, period=2, fragments=2),
    "power_sgd": lambda n: methods.power_sgd(SGD, rank=2),
    "qsgd": lambda n: methods.compressed_sgd(SGD, QSGD(levels=7)),
    "natural": lambda n: methods.compressed_sgd(SGD, Natural()),
    "sign": lambda n: methods.mem_sgd(SGD, ScaledSign()),
    "random_k": lambda n: methods.ef21(SGD, RandomK(ratio=0.3, scaled=False, shared=True)),
    "sharded": lambda n: methods.double_squeeze(partial(SGD, lr=0.4), ScaledSign(), server="sharded"),
}
ON_PIECES = {  # what acts on each piece as on a vector of its own
    "mem_sgd": lambda n: methods.mem_sgd(SGD, TopK(ratio=0.1)),
    "ef21": lambda n: methods.ef21(SGD, TopK(ratio=0.1)),
    "choco": lambda n: methods.choco(SGD, topologies.ring(n), TopK(ratio=0.1)),
    "double_squeeze": lambda n: methods.double_squeeze(SGD, RandomK(ratio=0.1)),
}


def llama(**changes):
    torch.manual_seed(1)
    shape = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "inner": 64} | changes
    return Llama(VOCABULARY, **shape).double()


def gpt():
    torch.manual_seed(2)
    model = GPT(VOCABULARY, layers=2, heads=4, width=32, context=16, bias=True).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # biases and norms that are not 0 and 1
    return model


MODELS = {  # how a whole model is made, and its plan
    "llama": (llama, llama_plan),
    "llama tied": (partial(llama, tied=True), llama_plan),
    "gpt": (gpt, gpt_plan),
}


def batch(step, worker):
    generator = torch.Generator().manual_seed(100 * step + worker)
    return torch.randint(VOCABULARY, (2, 9), generator=generator)


def whole_loss(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def on_one_process(make, strategy, n, clip=None, parted=lambda strategy, layout: strategy):
    """The replicas after STEPS steps of whole models, stacked in this process."""
    communicator = Communicator(workers=n)
    replicas = Stacked(make, communicator.workers)
    first = replicas.parameters.clone()
    strategy = clipped(parted(strategy, replicas.layout), clip)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STEPS):
        tokens = torch.stack([batch(communicator.step, worker) for worker in range(n)])
        gradient, _ = replicas.compute(whole_loss, [(tokens,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    assert (replicas.parameters - first).abs().max() > 0.02, "nothing moved: the comparison says nothing"
    return replicas


def on_a_mesh(make, plan, strategy, workers, tensor, sequence, clip=None, pieces=None, shard=1):
    """What each rank holds after the same steps: {name: piece}, and how it was cut."""
    mesh = Mesh(worker=workers, tensor=tensor, shard=shard)
    axis, model = mesh.axis("tensor"), make()
    cuts = split(model, plan(model), axis, sequence=sequence)
    optimizer = DistributedOptimizer(model, strategy, mesh=mesh, zero=0, pieces=pieces, bucket_mb=0.01, clip=clip)
    for step in range(STEPS):
        tokens = batch(step, mesh.coordinates["worker"])
        optimizer.zero_grad()
        cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], axis).backward()
        optimizer.step()
    sent = sum(each.bytes for each in axis.family)
    return mesh.coordinates["worker"], {n: p.detach() for n, p in model.named_parameters()}, cuts, sent


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
@pytest.mark.parametrize("name", MODELS)
def test_two_workers_of_two_ranks_train_as_two_whole_models(name, sequence):
    agrees(name, "diloco", 2, 2, sequence)


@pytest.fixture(scope="module")
def outcomes():
    """By rank, what every method on Llama came to: starting processes costs more than a method."""

    def member(case):
        if case in WIDTHS:
            name, tensor = case
            return on_a_mesh(llama, llama_plan, narrow(name), 2, tensor, False, shard=2 // tensor)
        only = "own" if case in ON_PIECES else None
        return on_a_mesh(llama, llama_plan, (METHODS | ON_PIECES)[case](2), 2, 2, not only, pieces=only)

    return on_processes(4, lambda: by_case([*METHODS, *ON_PIECES, *WIDTHS], member))


class UnderWay(TorchDispatchMode):
    """The shapes of matrices that are multiplied while something that `posts` has begun is under way."""

    def __init__(self):
        super().__init__()
        self.shapes, self._count = Counter(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if self._count and function is torch.ops.aten.mm.default:
            self.shapes[tuple(out.shape)] += 1
        return out

    def posts(self, post):
        def posted(*args):
            self._count += 1
            arrival = post(*args)

            def wait():
                self._count -= 1
                return arrival()

            return wait

        return posted


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_weights_are_computed_while_those_of_inputs_are_summed(name):
    def member(sequence):
        make, plan = MODELS[name]
        axis, model, mode = Mesh(tensor=2).axis("tensor"), make(), UnderWay()
        split(model, plan(model), axis, sequence=sequence)
        axis._all_reduce, axis._reduce_scatter = mode.posts(axis._all_reduce), mode.posts(axis._reduce_scatter)
        with mode:
            cross_entropy(model(batch(0, 0)[:, :-1]), batch(0, 0)[:, 1:], axis).backward()
        columns = [module.weight for module in model.modules() if isinstance(module, ColumnLinear)]
        return mode.shapes, Counter(tuple(weight.shape) for weight in columns)

    for ways in on_processes(2, lambda: [member(sequence) for sequence in (False, True)]):
        for multiplied, columns in ways:
            assert multiplied == columns
            assert columns.total() > 4


NARROW = ("float16", "bfloat16")
WIDTHS = [(name, tensor) for name in NARROW for tensor in (1, 2)]


def narrow(name):
    return methods.mem_sgd(SGD, Dense(name))


@pytest.mark.parametrize("name", NARROW)
def test_what_travels_in_16_bits_does_so_in_pieces_as_in_wholes(outcomes, name):
    """Rounding is that of as many processes: one that adds all workers' rounds elsewhere, by a unit at the end."""
    wholes = {rank[name, 1][0]: rank[name, 1][1] for rank in outcomes}
    replicas = on_one_process(llama, narrow(name), 2)
    for worker, pieces, cuts, _ in (rank[name, 2] for rank in outcomes):
        for field in replicas.layout.fields:
            whole = wholes[worker][field.name]
            assert (pieces[field.name] - cuts[field.name].take(whole)).abs().max() <= 1e-12
            row = replicas.parameters[worker, field.start : field.stop].view(field.shape)
            assert (whole - row).abs().max() <= torch.finfo(getattr(torch, name)).eps / 10


@pytest.mark.parametrize("method", METHODS)
def test_a_method_over_pieces_is_the_method_over_whole_models(outcomes, method):
    """On Llama: the gradient of GPT's key biases is zero but for rounding, and signs would be those of rounding."""
    compare([rank[method] for rank in outcomes], "llama", method, 2, 2)


@pytest.mark.parametrize("method", ON_PIECES)
def test_a_compressor_acts_on_pieces_as_on_parts_of_a_whole_vector(outcomes, method):
    compare([rank[method] for rank in outcomes], "llama", method, 2, 2)


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
def test_four_ranks_share_two_heads_of_keys(sequence):
    agrees("llama", "psgd", 1, 4, sequence)


@pytest.mark.parametrize(("method", "sequence"), [("natural", True), ("diloco", False)])
def test_a_clip_sees_the_norm_of_the_whole_gradient(method, sequence):
    """Copied columns count once: at norms that bite at every step, ranks that clipped their pieces would drift.

    Buckets that leave early are rounded as those that do not.
    """
    agrees("gpt", method, 2, 2, sequence, clip=0.6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dsgd", "gossip_pga"])
def test_four_workers_of_two_ranks_gossip(method):
    agrees("llama", method, 4, 2, sequence=True)


def agrees(name, method, workers, tensor, sequence, clip=None):
    make, plan = MODELS[name]
    strategy = METHODS[method](workers)
    ranks = on_processes(workers * tensor, lambda: on_a_mesh(make, plan, strategy, workers, tensor, sequence, clip))
    compare(ranks, name, method, workers, tensor, clip)


def compare(ranks, name, method, workers, tensor, clip=None):
    """Every rank holds its pieces of the models that one process makes."""
    make, plan = MODELS[name]
    build = (METHODS | ON_PIECES)[method]

    def parted(strategy, layout):
        model = make()
        cuts = [shards_of(model, plan(model), Axis("tensor", tensor, rank)) for rank in range(tensor)]
        return on_pieces(strategy, parts_of_whole(layout, cuts))

    reference = on_one_process(make, build(workers), workers, clip, parted if method in ON_PIECES else lambda s, _: s)
    whole = {f.name: reference.parameters[:, f.start : f.stop] for f in reference.layout.fields}
    shapes = {f.name: f.shape for f in reference.layout.fields}
    held = dict.fromkeys(shapes, 0)
    for worker, pieces, cuts, _ in ranks:
        assert list(pieces) == list(shapes)
        for key, piece in pieces.items():
            expected = cuts[key].take(whole[key][worker].view(shapes[key]))
            assert (piece - expected).abs().max() <= 1e-12, (key, worker)
            held[key] += piece.numel() / cuts[key].copies
    assert all(held[key] == workers * torch.Size(shapes[key]).numel() for key in shapes), "a coordinate is at no rank"


@pytest.mark.parametrize(("tensor", "sequence"), [(2, False), (2, True), (4, False), (4, True)])
def test_bytes_of_the_tensor_axis_are_the_formula(tensor, sequence):
    """4 L + 2 all-reduces of b t d numbers (gathers and scatters cost as much), and 3 numbers a token for the loss.

    With sequence parallelism, the gradients of 2 L + 1 norms are summed beside them; where ranks have the same of the 2
    KV heads, the gradients of its keys and values, 2 d d/heads numbers a layer, over those ranks.
    """
    layers, width, head, (b, t) = 2, 32, 8, (2, 8)
    outcomes = on_processes(tensor, lambda: on_a_mesh(llama, llama_plan, METHODS["psgd"](1), 1, tensor, sequence))
    numbers = (4 * layers + 2) * b * t * width + 3 * b * t + sequence * (2 * layers + 1) * width
    copies = tensor // 2
    sent = 2 * (tensor - 1) / tensor * numbers + 2 * (copies - 1) / copies * layers * 2 * head * width
    assert [sent_by for _, _, _, sent_by in outcomes] == [STEPS * 8 * sent] * tensor


def test_the_loss_is_that_of_the_whole_model():
    tokens = batch(0, 0)

    def member():
        axis, model = Mesh(tensor=2).axis("tensor"), gpt()
        split(model, gpt_plan(model), axis, sequence=True)
        return cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], axis).item()

    assert on_processes(2, member) == pytest.approx([whole_loss(gpt(), tokens).item()] * 2, abs=1e-14)


def test_parts_draw_numbers_of_their_own():
    parts = [Part("a", [(0, 50)], Layout.flat(50)), Part("b", [(50, 100)], Layout.flat(50))]
    strategy = on_pieces(methods.compressed_sgd(SGD, RandomK(ratio=0.2)), parts)
    communicator, x = Communicator(workers=1), torch.zeros(1, 100)
    strategy.start(x, Layout.flat(100), communicator)
    first, second = strategy.step(x, torch.ones(1, 100), communicator).chunk(2, 1)
    assert first.count_nonzero() == second.count_nonzero() == 10
    assert not torch.equal(first, second)


COPIED = ("mem_sgd", "sign", "qsgd", "power_sgd")


@pytest.fixture(scope="module")
def copied():
    """By rank, what every method left of the copies."""
    return on_processes(2, lambda: by_case(COPIED, lambda method: copies((METHODS | ON_PIECES)[method](1), 1)))


@pytest.mark.parametrize("method", COPIED)
def test_copies_stay_equal(copied, method):
    """Norm weights lie at both ranks; one selection or a scale of each rank's own would part them."""
    first, second = (rank[method] for rank in copied)
    assert len(first) == 5
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def copies(strategy, workers):
    """What both tensor ranks hold of this worker, after 20 steps."""
    mesh, model = Mesh(worker=workers, tensor=2), llama()
    split(model, llama_plan(model), mesh.axis("tensor"))
    optimizer = DistributedOptimizer(model, strategy, mesh=mesh, pieces="own")
    for step in range(20):
        tokens = batch(step, mesh.coordinates["worker"])
        optimizer.zero_grad()
        cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], mesh.axis("tensor")).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters() if p.cut.copies > 1]


@pytest.mark.slow
def test_copies_stay_equal_with_every_method_and_compressor():
    """Those that are refused on pieces apart."""
    kinds = [kind for kind in concrete() if kind.__module__.startswith("commeff.compressors.")]
    every = {name: build(2) for name, build in (METHODS | ON_PIECES).items()} | {
        repr(sample): methods.mem_sgd(partial(SGD, lr=0.01), sample) for kind in kinds for sample in kind.samples()
    }

    def member():
        found = {}
        for name, strategy in every.items():
            with suppress(ValueError):
                found[name] = copies(strategy, 2)
        return found

    ranks = on_processes(4, member)
    assert set(METHODS | ON_PIECES) < set(ranks[0])
    for first, second in (ranks[:2], ranks[2:]):
        for name, tensors in first.items():
            assert all(torch.equal(a, b) for a, b in zip(tensors, second[name], strict=True)), name


def test_ranks_begin_as_the_first_and_what_is_frozen_may_be_thawed():
    def member():
        axis, model = Mesh(tensor=2).axis("tensor"), gpt()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(axis.rank).requires_grad_(False)
        cuts = split(model, gpt_plan(model), axis, sequence=True)
        model.requires_grad_()
        tokens = batch(0, 0)
        cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], axis).backward()
        return {name: (parameter.grad, cuts[name]) for name, parameter in model.named_parameters()}

    whole = gpt()
    whole_loss(whole, batch(0, 0)).backward()
    for gradients in on_processes(2, member):
        for name, parameter in whole.named_parameters():
            gradient, cut = gradients[name]
            assert (gradient - cut.take(parameter.grad)).abs().max() <= 1e-12, name


def test_a_loss_in_16_bits_is_taken_in_32():
    logits, targets = torch.randn(40, 64).bfloat16(), torch.randint(64, (40,))
    loss = cross_entropy(logits, targets, Axis("tensor"))
    assert loss.dtype == torch.float32
    assert torch.isclose(loss, F.cross_entropy(logits.float(), targets), atol=1e-6)


@pytest.mark.parametrize("ignored", [-100, 7])
def test_positions_to_be_ignored_do_not_count(ignored):
    logits, targets = torch.randn(2, 5, 8).double(), torch.randint(7, (2, 5))
    targets[0, 2:] = ignored
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    (loss := cross_entropy(ours, targets, Axis("tensor"), ignore_index=ignored)).backward()
    expected = F.cross_entropy(theirs.flatten(0, 1), targets.flatten(), ignore_index=ignored)
    expected.backward()
    assert torch.isclose(loss, expected, atol=1e-14)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-14)


@pytest.mark.parametrize("stranger", [-1, 64])
def test_a_token_beyond_the_vocabulary_is_refused(stranger):
    with pytest.raises(IndexError, match=rf"tokens must be in 0 \.\.\. 63, got {stranger}"):
        cross_entropy(torch.zeros(1, 2, 32), torch.tensor([[3, stranger]]), Axis("tensor", 2, 1))


def refuse(make, plan, size, words, change=lambda model, plan: plan):
    model = make()
    with pytest.raises(ValueError, match=words) as refusal:
        split(model, change(model, dict(plan(model))), Axis("tensor", size, 0))
    return str(refusal.value)


def test_what_does_not_divide_is_refused_all_at_once_in_a_line_however_many_layers_have_it():
    said, deep = (
        refuse(partial(llama, inner=40, layers=layers), llama_plan, 16, "tensor = 16 must divide") for layers in (2, 5)
    )
    assert said == deep
    assert len([line for line in said.splitlines() if "queries" in line or "gate" in line]) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model, plan: plan | {"blocks.*.qweries": ColumnParallel()}, "got 'blocks.*.qweries': no name matches"),
        (lambda model, plan: {k: v for k, v in plan.items() if k != "norm"}, "lacks that of norm.weight"),
        (lambda model, plan: plan | {"norm": RowParallel()}, "RowParallel must name a linear layer, got norm"),
        (
            lambda model, plan: plan | {"norm": VocabularyParallel()},
            "must name an embedding or a linear layer, got norm",
        ),
        (
            lambda model, plan: {k: v for k, v in plan.items() if k != "blocks.*.attention"},
            "got blocks.[*].*queries in none",
        ),
        (lambda model, plan: plan | {"blocks.*.gate": ColumnParallel(units=5)}, "5 units must divide the 64 outputs"),
        (lambda model, plan: plan | {"blocks.*.gate": ColumnParallel(parts=3)}, "3 times 21 units must divide the 64"),
        (lambda model, plan: plan | {"head": ParallelInput()}, "modules that share a tensor must be split alike"),
        (
            lambda model, plan: plan | {"blocks.*.project": SequenceParallel()},
            "must lie outside of .* got blocks.[*].*it Hea",
        ),
        (
            lambda model, plan: plan | {"blocks.1": ParallelInput()},
            "must lie in no other, got blocks.1.*tion in blocks.1:",
        ),
        (lambda model, plan: plan | {"norm": HeadParallel()}, "HeadParallel layer must lie in a .* got norm in none"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(change, words):
    refuse(partial(llama, tied=True), llama_plan, 2, words, change)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: setattr(model, "tokens", nn.Embedding(64, 32, padding_idx=0)), "got tokens with padding_idx=0"),
        (lambda model: setattr(model.blocks[0].attention.project, "__class__", Doubled), "project, Doubled: change"),
        (lambda model: split(model, llama_plan(model), Axis("tensor")), "must be whole, got one that was split before"),
    ],
    ids=["options", "another forward", "twice"],
)
def test_a_model_that_splitting_would_change_is_refused(change, words):
    def make():
        model = llama()
        change(model)
        return model

    refuse(make, llama_plan, 2, words)


class Normed(nn.Module):
    """A feed-forward with a norm before it, and one of groups of four of what is between its layers."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(8), nn.LayerNorm(4)
        self.widen, self.project = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, other=0.0):
        inner = self.between(self.widen(self.before(x + other)).unflatten(-1, (-1, 4)))
        return self.project(inner.flatten(-2).relu())


NORMED = {"0": VocabularyParallel(), "1": ParallelInput(), "1.*widen": ColumnParallel(), "1.*project": RowParallel()}


def normed():
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(8, 8), Normed(), nn.Linear(8, 8)).double()


def test_norms_inside_shared_work_are_those_of_the_whole_model():
    """Each rank has a share of their gradients."""
    plan = NORMED | {"1.be*": HeadParallel(), "2": SequenceParallel()}
    tokens, whole = torch.arange(8)[None], normed()
    whole(tokens).square().sum().backward()

    def member():
        model = normed()
        cuts = split(model, plan, Mesh(tensor=2).axis("tensor"))
        model(tokens).square().sum().backward()
        gradients = {name: (cuts[name], parameter.grad) for name, parameter in model.named_parameters()}
        with pytest.raises(ValueError, match="must get its input by position, got none"):
            model[1](x=model[0](tokens))
        with pytest.raises(ValueError, match="must get one input that has a gradient, the first"):
            model[1](model[0](tokens), model[0](tokens))
        return gradients

    for gradients in on_processes(2, member):
        for name, parameter in whole.named_parameters():
            cut, gradient = gradients[name]
            torch.testing.assert_close(gradient, cut.take(parameter.grad), rtol=0, atol=1e-12)
            assert gradient.abs().max() > 1e-3, name


def test_dropout_is_refused():
    refuse(lambda: GPT(64, 1, 4, 32, 16, dropout=0.1), gpt_plan, 2, "dropout must be 0")


def test_a_mesh_of_another_size_than_the_run_is_refused():
    def member():
        with pytest.raises(ValueError, match="as there are processes, 2, got worker 2 x tensor 2 = 4"):
            Mesh(worker=2, tensor=2)
        with pytest.raises(ValueError, match="tensor must be at least 1, got 0"):
            Mesh(tensor=0)
        return Mesh(tensor=2).coordinates["tensor"]

    assert on_processes(2, member) == [0, 1]


def test_a_sequence_that_cannot_be_dealt_is_refused():
    def member():
        mesh = Mesh(tensor=2)
        model = llama()
        split(model, llama_plan(model), mesh.axis("tensor"), sequence=True)
        replicated = llama()
        split(replicated, llama_plan(replicated) | {"tokens": SequenceParallel()}, mesh.axis("tensor"), sequence=True)
        for each in (model, replicated):
            with pytest.raises(ValueError, match="length of dimension 1 must be a multiple of tensor = 2, got 7"):
                each(torch.zeros(2, 7, dtype=torch.long))

    on_processes(2, member)


MUON = partial(torch.optim.Muon, lr=0.1)
REFUSED = [
    (methods.mem_sgd(SGD, TopK(ratio=0.1)), None, "one with TopK, which works on whole vectors"),
    (methods.mem_sgd(SGD, PerTensor(ScaledSign())), None, "one with PerTensor, which works on whole tensors"),
    (methods.sparse_loco(SGD, QSGD(7, bucket=64)), None, "one with QSGD, which works on whole vectors"),
    (methods.compressed_sgd(SGD, RandomK(ratio=0.1)), None, "one with RandomK, which works on whole vectors"),
    (methods.psgd(MUON), "own", "must work on coordinates one by one, got Muon, which works on whole tensors"),
    (methods.diloco(SGD, outer=MUON), None, "one with Muon, which works on whole tensors"),
]


def test_a_method_that_needs_more_than_a_piece_is_refused():
    def member():
        mesh = Mesh(tensor=2)
        model = llama()
        split(model, llama_plan(model), mesh.axis("tensor"))
        for strategy, pieces, words in REFUSED:
            with pytest.raises(ValueError, match=words):
                DistributedOptimizer(model, strategy, mesh=mesh, pieces=pieces)
        with pytest.raises(ValueError, match="mesh must be given for a model that is split"):
            DistributedOptimizer(model, methods.psgd(SGD))
        with pytest.raises(ValueError, match=r"split over the tensor ranks of its mesh, \[\d\], got .* \[0, 1\]"):
            DistributedOptimizer(model, methods.psgd(SGD), mesh=Mesh(worker=2))

    on_processes(2, member)


def test_a_model_on_one_rank_is_left_whole():
    model = llama(tied=True)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    cuts = split(model, llama_plan(model), Axis("tensor"))
    assert isinstance(model.head, nn.Linear)
    assert model.head.weight is model.tokens.weight
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert {cut.copies for cut in cuts.values()} == {1}
