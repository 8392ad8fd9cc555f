"""Initial parameters of pieces are those of the whole model, and a 70-billion model takes no memory."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

from commeff import Communicator, DistributedOptimizer, Layout, methods
from commeff.cluster import Cluster
from commeff.experiments.tasks.language import Llama, llama_plan, preset
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.experiments.tasks.models import seeded
from commeff.planner import Model, Policy, predict
from commeff.profiling.live import measure_memory
from commeff.sharding import Mesh, cross_entropy, split
from commeff.sharding.deferred import deferred, fill
from commeff.sharding.layers import keep, ranks_of
from commeff.sharding.pipeline import Pipeline
from commeff.sharding.zero import BucketedRow
from tests.laws.processes import on_processes


def llama() -> Llama:
    return Llama(48, layers=2, width=24, heads=4, kv_heads=2, inner=40, tied=True).double()


def test_tied_tensors_stay_tied_and_only_what_a_rank_holds_is_made():
    model, numbers = deferred(lambda: seeded(llama, 3))
    model.tokens.weight.requires_grad_(False)
    held = ranks_of(model, LLAMA_LAYERS, [0, 1])
    keep(model, LLAMA_LAYERS, [0, 1], 0)
    fill(model, numbers)
    assert model.head.weight is model.tokens.weight
    made = dict(model.named_parameters())
    assert made.keys() == {name for name, ranks in held.items() if 0 in ranks}
    assert "blocks.1.feedforward.gate.weight" not in made
    whole = dict(seeded(llama, 3).named_parameters())
    assert all(torch.equal(parameter, whole[name]) for name, parameter in made.items())
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["tokens.weight"]


def test_a_model_that_was_never_whole_trains_as_the_whole_one():
    tokens = torch.randint(48, (4, 9), generator=torch.Generator().manual_seed(0))

    def on_ranks():
        mesh = Mesh(tensor=4)  # two key heads: gradients of copies are summed
        model, numbers = deferred(lambda: seeded(llama, 3))
        cuts = split(model, llama_plan(model), mesh.axis("tensor"))
        fill(model, numbers)
        optimizer = DistributedOptimizer(model, methods.psgd(partial(torch.optim.SGD, lr=0.1)), mesh=mesh)
        for _ in range(2):
            optimizer.zero_grad()
            cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], mesh.axis("tensor")).backward()
            optimizer.step()
        return cuts, {name: parameter.detach() for name, parameter in model.named_parameters()}

    whole = seeded(llama, 3)
    begin, optimizer = nn.utils.parameters_to_vector(whole.parameters()), torch.optim.SGD(whole.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(whole(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    assert (nn.utils.parameters_to_vector(whole.parameters()) - begin).abs().max() > 0.01
    for cuts, pieces in on_processes(4, on_ranks):
        for name, piece in pieces.items():
            assert (piece - cuts[name].take(whole.get_parameter(name).detach())).abs().max() <= 1e-12, name


def rank_of_70b(stage):
    """Parameters and AdamW's numbers of one of 1,024 ranks, TP16 PP8 ZeRO-1 over 8, all on the meta device."""
    dist.init_process_group("fake", store=FakeStore(), rank=128 * stage + 37, world_size=1024)
    try:
        mesh = Mesh(pipeline=8, shard=8, tensor=16)
        with torch.device("meta"):
            model = preset("llama2_70b")()
        cuts = split(model, llama_plan(model), mesh.axis("tensor"))
        held = Pipeline(model, LLAMA_LAYERS, mesh.axis("pipeline"), micro_batches=8).parameters
        layout = Layout.of([(name, tuple(parameter.shape)) for name, parameter in held.items()])
        own = BucketedRow(held, layout, mesh.axis("shard"), zero=1).parameters
    finally:
        dist.destroy_process_group()
    strategy, communicator = methods.psgd(partial(torch.optim.AdamW, lr=1e-4)), Communicator(workers=1)
    strategy.start(own, Layout.flat(own.shape[1]), communicator)
    strategy.step(own, torch.empty_like(own), communicator)
    assert {parameter.device.type for parameter in model.parameters()} == {own.device.type} == {"meta"}
    return layout, sum(measure_memory(strategy, (own,)).values()), cuts


def test_llama_2_70b_on_1024_ranks_is_what_the_planner_says_and_takes_no_memory():
    model = Model(80, 8192, 64, 4096, 32000, kv_heads=8, ffn_hidden=28672, gated=True, tied_embeddings=False)
    policy = Policy(tensor=16, pipeline=8, data=8, zero=1, precision="fp32", recompute="full")
    said = predict(model, policy, Cluster.named("h100_400g", gpus=1024), global_batch=1024).breakdown["bytes"]
    for stage in (0, 7):  # the fullest ones; those between have no embedding
        layout, states, cuts = rank_of_70b(stage)
        assert 4 * layout.d == pytest.approx(said["weights"], rel=0.01)
        assert states == pytest.approx(said["optimizer"], rel=0.01)
        keys = [field for field in layout.fields if field.name.endswith(("keys.weight", "values.weight"))]
        assert [field.shape for field in keys] == [(128, 8192)] * 20  # a head each, which two ranks have
        assert all(cuts[field.name].copies == 2 for field in keys)
