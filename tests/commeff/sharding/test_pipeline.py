"""Exactness: a method over models that lie in stages on several ranks is the method over whole models."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise, product
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from commeff import Communicator, DistributedOptimizer, Layout, methods, topologies
from commeff.compressors import QSGD, TopK
from commeff.core.properties import scope_of
from commeff.experiments.studies.splitting.account import Account
from commeff.experiments.tasks.language import GPT, Llama, gpt_plan, llama_plan
from commeff.experiments.tasks.language.plans import GPT_LAYERS, LLAMA_LAYERS
from commeff.replicas import Stacked
from commeff.sharding import Axis, Mesh, Objective, cross_entropy, split
from commeff.sharding.layers import ranks_of
from commeff.sharding.pieces import fitted, on_pieces
from commeff.sharding.pipeline import Pipeline
from commeff.sharding.played import PlayedMesh
from commeff.sharding.recompute import recompute
from commeff.sharding.rows import build_row
from commeff.sharding.schedules import SCHEDULES
from commeff.transforms import clipped
from tests.commeff.sharding.test_zero import columns
from tests.commeff.sharding.whole import parts_of_whole, shards_of
from tests.laws.processes import by_case, on_processes
from tests.owned import PATIENCE

STEPS, VOCABULARY, BATCH, CONTEXT = 4, 64, 8, 8
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS = {
    "diloco": lambda n: methods.diloco(SGD, period=2),
    "psgd": lambda n: methods.psgd(SGD),
    "gossip_pga": lambda n: methods.gossip_pga(SGD, topologies.ring(n), period=3),
    "mem_sgd": lambda n: methods.mem_sgd(SGD, TopK(ratio=0.1)),
    "streaming_diloco": lambda n: methods.streaming_diloco(SGD, period=2, fragments=3),
    "power_sgd": lambda n: methods.power_sgd(SGD, rank=2),
    "qsgd": lambda n: methods.compressed_sgd(SGD, QSGD(levels=7)),
    "sparta": lambda n: methods.sparta(SGD, ratio=0.2),
    "ef21": lambda n: methods.ef21(SGD, TopK(ratio=0.1)),
    "choco": lambda n: methods.choco(SGD, topologies.ring(n), TopK(ratio=0.1), gamma=0.2),
}


def llama(**changes):
    torch.manual_seed(1)
    shape = {"layers": 4, "width": 32, "heads": 4, "kv_heads": 2, "inner": 64} | changes
    return Llama(VOCABULARY, **shape).double()


def gpt():
    torch.manual_seed(2)
    return GPT(VOCABULARY, layers=4, heads=4, width=32, context=16, bias=True).double()


MODELS = {
    "llama": (llama, llama_plan, LLAMA_LAYERS),
    "llama tied": (partial(llama, tied=True), llama_plan, LLAMA_LAYERS),
    "gpt": (gpt, gpt_plan, GPT_LAYERS),
    "packed": (partial(llama, separator=0), llama_plan, LLAMA_LAYERS),
}


def batch(step, worker):
    generator = torch.Generator().manual_seed(100 * step + worker)
    return torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=generator)


def inputs_targets(tokens):
    return (tokens[:, :-1],), tokens[:, 1:]


def whole_loss(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def on_a_mesh(
    name,
    method,
    schedule,
    *,
    worker=2,
    pipeline=2,
    shard=1,
    tensor=1,
    parts=2,
    clip=None,
    twice=False,
    again=None,
    zero=1,
):
    """What each rank holds after STEPS steps, and what its pipeline has come to."""
    mesh = Mesh(worker=worker, pipeline=pipeline, shard=shard, tensor=tensor)
    make, plan, layers = MODELS[name]
    model, axis = make(), mesh.axis("tensor")
    cuts = split(model, plan(model), axis, sequence=tensor > 1)
    recompute(model, layers, again or "none", axis)
    stages = mesh.axis("pipeline")
    stages.bytes = 0.0
    piped = Pipeline(model, layers, stages, schedule=schedule, micro_batches=parts, vocabulary=axis)
    optimizer = DistributedOptimizer(
        model, METHODS[method](worker), mesh=mesh, zero=zero, pieces="own", bucket_mb=0.01, clip=clip
    )
    objective = Objective(inputs_targets, lambda logits, targets: cross_entropy(logits, targets, axis))
    losses = []
    for step in range(STEPS):
        tokens = batch(step, mesh.coordinates["worker"]).chunk(shard)[mesh.coordinates["shard"]]
        optimizer.zero_grad()
        for part in tokens.chunk(2) if twice else [tokens]:
            losses.append(piped.backward(objective, (part,), 0.5 if twice else 1.0).item())
        optimizer.step()
    assert stages.waited > 0
    sent = stages.bytes, mesh.axis("shard").bytes
    outputs = piped.forward(lambda logits: axis.gather(logits, -1), batch(9, 0)[:, :-1])
    whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in model.named_parameters()}
    assert list(piped.parameters) == list(whole)
    return mesh.coordinates, {name: p.detach() for name, p in whole.items()}, cuts, losses, sent, outputs


def on_one_process(name, method, n, clip=None, parted=lambda strategy, layout: strategy):
    """The replicas after STEPS steps of whole models, stacked in this process."""
    communicator, make = Communicator(workers=n), MODELS[name][0]
    replicas = Stacked(make, communicator.workers)
    first = replicas.parameters.clone()
    strategy = clipped(parted(METHODS[method](n), replicas.layout), clip)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    losses = []
    for communicator.step in range(STEPS):
        tokens = torch.stack([batch(communicator.step, worker) for worker in range(n)])
        gradient, loss = replicas.compute(whole_loss, [(tokens,)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
        losses.append(loss.tolist())
    assert (replicas.parameters - first).abs().max() > (0.001 if clip else 0.02), "nothing moved: it says nothing"
    return replicas, losses


def compare(ranks, name, method, schedule, *, worker=2, pipeline=2, shard=1, tensor=1, clip=None, zero=1, **_):
    """Every rank holds its pieces of the models that one process makes."""
    make, plan, layers = MODELS[name]
    n = worker
    assert len(ranks) == worker * pipeline * shard * tensor
    homes = ranks_of(make(), layers, SCHEDULES[schedule].ranks(pipeline))

    def parted(strategy, layout):
        model = make()
        cuts = [shards_of(model, plan(model), Axis("tensor", tensor, rank)) for rank in range(tensor)]
        shares = partial(columns, zero, shard=shard) if zero == 3 else None
        return on_pieces(strategy, parts_of_whole(layout, cuts, homes, shares))

    replicas, losses = on_one_process(name, method, n, clip, parted)
    held = {field.name: 0 for field in replicas.layout.fields}
    lost = torch.zeros(STEPS, n)
    for where, pieces, cuts, own, _, outputs in ranks:
        for field in replicas.layout.fields:
            if where["pipeline"] in homes[field.name]:
                cut, whole = cuts[field.name], replicas.parameters[where["worker"], field.start : field.stop]
                difference = pieces[field.name] - cut.take(whole.view(field.shape))
                assert difference.abs().max() <= 1e-12, (field.name, where)
                held[field.name] += pieces[field.name].numel() / cut.copies / len(homes[field.name])
        assert set(pieces) == {key for key, at in homes.items() if where["pipeline"] in at}
        with torch.no_grad():
            expected = replicas.models[where["worker"]](batch(9, 0)[:, :-1])
        assert (outputs - expected).abs().max() <= 1e-11
        lost[:, where["worker"]] += torch.tensor(own).view(STEPS, -1).mean(1)
    assert torch.allclose(lost / shard / tensor, torch.tensor(losses))  # that of the last stage, the mean over shards
    assert all(held[field.name] == n * shard * (field.stop - field.start) for field in replicas.layout.fields)


def in_case(name, method, schedule, options):
    return on_a_mesh(name, method, schedule, **options)


NIGHTLY = ("gossip_pga", "sparta", "ef21", "choco")  # over stages they take the way of psgd or of mem_sgd
CASES = {  # model, method, schedule, and what else
    **{schedule: ("llama", "diloco", schedule, {"parts": 4}) for schedule in SCHEDULES},
    **{method: ("llama", method, "1f1b", {}) for method in METHODS if method not in ("diloco", *NIGHTLY)},
    "tied": ("gpt", "diloco", "1f1b", {}),
    "tied, factors": ("llama tied", "power_sgd", "interleaved", {}),
    "tied, top-k": ("llama tied", "mem_sgd", "zero_bubble", {}),
    "tied, one rank has both": ("gpt", "diloco", "zbv", {}),
    "clip": ("gpt", "psgd", "1f1b", {"clip": 0.6}),
    "own clip": ("llama tied", "diloco", "interleaved", {"clip": 0.6}),
    "two minibatches, copies": ("gpt", "psgd", "1f1b", {"twice": True}),
    "one micro-batch, copies": ("gpt", "psgd", "1f1b", {"parts": 1}),
    "recomputed": ("gpt", "diloco", "zbv", {"again": "full"}),
    "packed documents": ("packed", "psgd", "1f1b", {}),
    "tensor": ("llama tied", "diloco", "1f1b", {"worker": 1, "tensor": 2, "clip": 0.6, "again": "selective"}),
    "tensor, halves": ("llama", "diloco", "zbv", {"worker": 1, "tensor": 2}),
    "shard": ("llama tied", "diloco", "zero_bubble", {"worker": 1, "shard": 2, "clip": 0.6}),
    **{
        f"stage 3, {schedule}": ("llama", "psgd", schedule, {"worker": 1, "shard": 2, "zero": 3, "parts": 4})
        for schedule in ("1f1b", "zbv")
    },
    "stage 3, tied": ("llama tied", "diloco", "1f1b", {"worker": 1, "shard": 2, "zero": 3, "clip": 0.6}),
    "stage 3, own pieces": ("gpt", "mem_sgd", "interleaved", {"worker": 1, "shard": 2, "zero": 3, "again": "full"}),
    "stage 3, factors": ("llama tied", "power_sgd", "zero_bubble", {"worker": 1, "shard": 2, "zero": 3}),
}


@pytest.fixture(scope="module")
def outcomes():
    """By rank, what all cases came to: starting processes costs more than a case."""
    return on_processes(4, lambda: by_case(CASES, lambda case: in_case(*CASES[case])))


@pytest.mark.parametrize("case", CASES)
def test_workers_in_stages_train_as_whole_models(outcomes, case):
    *named, options = CASES[case]
    compare([rank[case] for rank in outcomes], *named, **options)


EIGHT = {  # ranks
    "P2T2W2": ("llama tied", "diloco", "1f1b", {"tensor": 2, "clip": 0.6, "again": "selective"}),
    "P2T2W2, halves": ("llama", "mem_sgd", "zbv", {"tensor": 2}),
    "P2S2W2": ("gpt", "gossip_pga", "1f1b", {"shard": 2}),
    "P2S2W2, halves": ("llama", "diloco", "zero_bubble", {"shard": 2, "again": "full"}),
    "P2S2T2": ("llama tied", "psgd", "interleaved", {"worker": 1, "shard": 2, "tensor": 2, "clip": 0.6}),
    "P2S2W2, stage 3, gpipe": ("gpt", "streaming_diloco", "gpipe", {"shard": 2, "zero": 3}),
    "P2S2W2, stage 3": ("llama tied", "gossip_pga", "1f1b", {"shard": 2, "zero": 3, "clip": 0.6}),
    "P2S2W2, stage 3, own pieces": ("llama tied", "mem_sgd", "interleaved", {"shard": 2, "zero": 3, "parts": 4}),
    "P2S2W2, stage 3, halves": ("llama", "diloco", "zbv", {"shard": 2, "zero": 3, "parts": 4}),
    "P2S2T2, stage 3": ("llama tied", "psgd", "1f1b", {"worker": 1, "shard": 2, "tensor": 2, "zero": 3}),
    "P4W2": ("llama tied", "mem_sgd", "1f1b", {"pipeline": 4, "parts": 4, "clip": 0.6}),
}


@pytest.mark.slow
def test_every_method_trains_in_stages():
    ranks = on_processes(4, lambda: by_case(NIGHTLY, lambda method: in_case("llama", method, "1f1b", {})))
    for method in NIGHTLY:
        compare([rank[method] for rank in ranks], "llama", method, "1f1b")


@pytest.mark.slow
def test_eight_ranks_train_as_whole_models():
    ranks = on_processes(8, lambda: by_case(EIGHT, lambda case: in_case(*EIGHT[case])))
    for case, (*named, options) in EIGHT.items():
        compare([rank[case] for rank in ranks], *named, **options)


@pytest.mark.slow
def test_sixteen_ranks_train_as_whole_models():
    """Two of every axis."""
    named, options = ("llama tied", "diloco", "1f1b"), {"shard": 2, "tensor": 2, "clip": 0.6, "again": "full"}
    compare(on_processes(16, lambda: on_a_mesh(*named, **options)), *named, **options)


def test_bytes_of_the_pipeline_axis_are_the_formula(outcomes):
    """b t d numbers over each boundary and direction, V d for tied embeddings at each of two ranks, two for a clip.

    Between ranks that split the sequence each has its part of it.
    """
    for case, (name, _, schedule, options) in CASES.items():
        make, _, layers = MODELS[name]
        worker, shard, tensor = options.get("worker", 2), options.get("shard", 1), options.get("tensor", 1)
        ranks = SCHEDULES[schedule].ranks(2)
        crossed = sum(one != other for one, other in pairwise(ranks))
        homes = ranks_of(make(), layers, ranks)
        tied = [make().get_parameter(key).numel() for key, at in homes.items() if len(at) > 1]
        passed = 2 * crossed * BATCH * CONTEXT * 32
        shares = 1 if options.get("zero") == 3 else shard  # of stage 3 a rank has a part of each copy
        copied = 2 * sum(tied) * shares * (2 if options.get("twice") else 1)
        clips = 4 * shard * tensor if "clip" in options or case == "qsgd" else 0
        sent = sum(rank[case][4][0] for rank in outcomes)
        assert sent == 8 * STEPS * worker * (passed + copied + clips), case


def test_bytes_of_stage_3_under_a_pipeline_are_the_formula(outcomes):
    """(M + 2) Psi numbers a step for M micro-batches and a rank's own Psi, copies too; 2 Psi where they stay gathered.

    The clip's sum and the factors of PowerSGD come on top.
    """
    for case, (*_, schedule, options) in CASES.items():
        if options.get("zero") == 3 and "clip" not in options and "factors" not in case:
            often = 2 if SCHEDULES[schedule].splits else options.get("parts", 2) + 2
            for _, pieces, _, _, (_, sent), _ in (rank[case] for rank in outcomes):
                assert sent == 8 * STEPS * often * sum(p.numel() for p in pieces.values()) / 2, case


@contextmanager
def rendezvous(name, group):
    """Sends that wait until the other rank has asked for what they carry, as NCCL's may: gloo's never do."""
    store, asked, sent = dist.distributed_c10d._get_default_store(), Counter(), Counter()
    ranks, me = dist.get_process_group_ranks(group), dist.get_rank()
    isend, irecv, recv = dist.isend, dist.irecv, dist.recv

    def sends(x, *, group, group_dst):
        sent[group_dst] += 1
        store.wait([f"{name}: {me} to {ranks[group_dst]}, {sent[group_dst]}"], timedelta(seconds=PATIENCE / 10))
        return isend(x, group=group, group_dst=group_dst)

    def asks(how, x, *, group, group_src):
        asked[group_src] += 1
        store.set(f"{name}: {ranks[group_src]} to {me}, {asked[group_src]}", "")
        return how(x, group=group, group_src=group_src)

    with patch.multiple(dist, isend=sends, irecv=partial(asks, irecv), recv=partial(asks, recv)):
        yield


def test_an_evaluation_waits_for_nobody_for_ever_where_sends_wait_for_receivers():
    """Two stages a rank, on two ranks, send both ways; one after the other they would wait for each other."""

    def member(case):
        pipeline, schedule = case
        model, axis = llama(layers=2 * pipeline), Mesh(pipeline=pipeline, worker=4 // pipeline).axis("pipeline")
        piped = Pipeline(model, LLAMA_LAYERS, axis, schedule=schedule, micro_batches=4)
        with rendezvous(case, axis.group), torch.no_grad():
            assert (piped.forward(Tensor.clone, batch(9, 0)[:, :-1]) - whole[pipeline]).abs().max() <= 1e-11

    with torch.no_grad():
        whole = {pipeline: llama(layers=2 * pipeline)(batch(9, 0)[:, :-1]) for pipeline in (2, 4)}
    on_processes(4, lambda: by_case(product((2, 4), SCHEDULES), member))


def test_copies_stay_equal():
    """Tied embeddings lie at both ends; one selection for them and for one end's layers would part them."""

    def member():
        mesh = Mesh(pipeline=2)
        model = llama(tied=True)
        piped = Pipeline(model, LLAMA_LAYERS, mesh.axis("pipeline"), micro_batches=2)
        optimizer = DistributedOptimizer(model, METHODS["mem_sgd"](1), mesh=mesh, pieces="own")
        objective = Objective(inputs_targets, lambda logits, targets: cross_entropy(logits, targets, Axis("tensor")))
        for step in range(20):
            optimizer.zero_grad()
            piped.backward(objective, (batch(step, 0),), 1.0)
            optimizer.step()
        axis = mesh.axis("pipeline")
        axis.bytes = 0.0
        with Account() as account:
            piped.backward(objective, (batch(0, 0),), 1.0)
        assert account.sent(axis.group) == axis.bytes > 0, "the account of torch's operations has what the axis counts"
        return model.tokens.weight.detach()

    first, second = on_processes(2, member)
    assert torch.equal(first, second)
    assert not torch.equal(first, llama(tied=True).tokens.weight)


def test_copies_that_ends_would_deal_to_other_shard_ranks_are_refused_over_pieces():
    for shard, zero, tied in ((2, 1, True), (1, 0, True), (2, 0, True), (2, 1, False)):
        model, mesh = llama(tied=tied), PlayedMesh({"pipeline": 2, "shard": shard})
        piped = Pipeline(model, LLAMA_LAYERS, mesh.axis("pipeline"), micro_batches=2)
        shapes = Layout.of([(name, p.shape) for name, p in piped.parameters.items()])
        partition = build_row(shapes, piped.parameters, mesh, zero).partition
        assert scope_of(fitted(METHODS["diloco"](1), partition, "own")) == "coordinate"
        if tied and zero:
            with pytest.raises(ValueError, match="its ends would count other pieces of their copies as vectors"):
                fitted(METHODS["mem_sgd"](1), partition, "own")
        else:
            fitted(METHODS["mem_sgd"](1), partition, "own")


def refuse(make, layers, size, words, **options):
    with pytest.raises(ValueError, match=words) as refusal:
        Pipeline(make(), layers, Axis("pipeline", size), **options)
    return str(refusal.value).splitlines()


def test_what_does_not_fit_is_refused_all_at_once():
    faults = refuse(partial(llama, layers=3), LLAMA_LAYERS, 2, "as many layers as stages", schedule="zbv")
    assert len(faults) == 1
    faults = refuse(
        lambda: GPT(64, 1, 4, 32, 16, dropout=0.1), GPT_LAYERS, 4, "dropout must be 0", schedule="2f2b", micro_batches=0
    )
    assert len(faults) == 2 + 2 + 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"last": ("norm",)}, "and lack that of head.weight: put it first or last"),
        ({"first": ("tokens", "places")}, "must name modules of the model, got 'places'"),
        ({"name": "layers"}, "must name modules of the model, got 'layers'"),
    ],
)
def test_layers_that_are_not_those_of_the_model_are_refused(change, words):
    refuse(llama, replace(LLAMA_LAYERS, **change), 2, words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "1fib"}, "schedule must be one of gpipe, .* got '1fib'"),
        ({"micro_batches": 0}, "micro_batches must be at least 1, got 0"),
        ({"schedule": "interleaved", "micro_batches": 5}, "a multiple of the 2 rounds that interleaved makes on 2"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(options, words):
    refuse(llama, LLAMA_LAYERS, 2, words, **options)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_has_what_lies_there_alone(rank):
    """What is tied lies at both ends, what else its module has does not; what lies elsewhere cannot be used."""
    model = llama()
    model.head = torch.nn.Linear(32, 64).double()
    model.head.weight = model.tokens.weight
    whole = {name for name, _ in model.named_parameters()}
    axis = PlayedMesh({"pipeline": 2}, {"pipeline": rank}).axis("pipeline")
    piped = Pipeline(model, LLAMA_LAYERS, axis, micro_batches=2)
    mine = {name for name, p in model.named_parameters() if rank in p.homes}
    assert set(piped.parameters) == mine
    assert {"tokens.weight", *(["head.bias"] if rank else [])} <= mine < whole
    assert ("head.bias" in mine) == (rank == 1)
    with pytest.raises(ValueError, match=f"got {'blocks.0' if rank else 'norm'}, which lies at another"):
        (model.blocks[0] if rank else model.norm)(torch.zeros(1))


def test_a_model_in_stages_cannot_be_dealt_again():
    model = llama()
    piped = Pipeline(model, LLAMA_LAYERS, Axis("pipeline"), micro_batches=4)
    with pytest.raises(ValueError, match="batch must be a multiple of shard x micro_batches = 1 x 4, got 6"):
        piped.backward(Objective(inputs_targets, F.cross_entropy), (batch(0, 0)[:6],), 1.0)
    refuse(lambda: model, LLAMA_LAYERS, 2, "must be whole, got one that was dealt to stages before")


def test_few_micro_batches_are_warned_of():
    def member():
        axis = Mesh(pipeline=2).axis("pipeline")
        with pytest.warns(UserWarning, match="micro_batches=1 are fewer than pipeline=2 ranks"):
            piped = Pipeline(llama(), LLAMA_LAYERS, axis, micro_batches=1)
        objective = Objective(inputs_targets, lambda logits, targets: cross_entropy(logits, targets, Axis("tensor")))
        return piped.backward(objective, (batch(0, 0),), 1.0).item()

    assert sum(on_processes(2, member)) == pytest.approx(whole_loss(llama(), batch(0, 0)).item())
