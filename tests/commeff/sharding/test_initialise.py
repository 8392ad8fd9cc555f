"""Initial parameters by name: every part of a tensor is that of the whole, and a 70-billion model takes no memory."""

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
from commeff.experiments.tasks.language import GPT, Llama, gpt_plan, llama_plan, preset, spread
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.planner import Model, Policy, predict
from commeff.profiling.live import measure_memory
from commeff.sharding import Axis, Mesh, cross_entropy, drawn, initialise, materialise, split
from commeff.sharding.layers import ranks_of
from commeff.sharding.pipeline import Pipeline
from commeff.sharding.shard import Shard
from commeff.sharding.zero import SharedRow, even
from tests.commeff.sharding.whole import shards_of
from tests.laws.processes import on_processes

SHAPES = {
    "llama": (lambda: Llama(48, layers=2, width=24, heads=4, kv_heads=2, inner=40, tied=True), llama_plan),
    "gpt": (lambda: GPT(48, layers=1, heads=4, width=24, context=8, bias=True), gpt_plan),
}


def on_meta(name, dtype=torch.float32):
    with torch.device("meta"):
        return SHAPES[name][0]().to(dtype)


def filled(name, dtype=torch.float32, seed=3):
    model = on_meta(name, dtype)
    materialise(model, seed, spread(model))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("size", [2, 4])
def test_every_piece_is_that_of_the_whole_bit_by_bit(name, dtype, size, monkeypatch):
    monkeypatch.setattr(initialise, "BATCH", 50)  # so that a piece is made a few rows at a time
    whole = filled(name, dtype)
    named, of, repeated = dict(whole.named_parameters()), spread(whole), 0
    for rank in range(size):
        for tensor, cut in shards_of(whole, SHAPES[name][1](whole), Axis("tensor", size, rank)).items():
            if tensor in named:
                expected = cut.take(named[tensor].detach())
                piece = drawn(3, tensor, expected.shape, *of(tensor), cut=cut, dtype=dtype)
                assert torch.equal(piece, expected), tensor
                repeated += 1 < cut.copies < size
    assert repeated == (16 if name == "llama" and size == 4 else 0)  # keys and values


def test_shards_of_a_row_are_its_columns(monkeypatch):
    monkeypatch.setattr(initialise, "BATCH", 64)
    cut = Shard.along(1, (7, 20), ((3, 5), (9, 16)))
    for shape, part in (((7, 20), None), ((7, 9), cut), ((63,), None), ((7, 3, 3), None)):
        whole = drawn(0, "w", shape, 1.0, 0.5, cut=part).flatten()
        for shard in (Axis("shard", 4, rank) for rank in range(4)):
            start, stop = even(whole.numel(), shard)
            assert torch.equal(drawn(0, "w", shape, 1.0, 0.5, cut=part, span=(start, stop)), whole[start:stop])


def test_numbers_spread_as_they_should_and_depend_on_seed_and_name():
    numbers = drawn(0, "w", (400, 500), 0.5, 0.02, dtype=torch.float64)
    assert numbers.mean().item() == pytest.approx(0.5, abs=2e-4)
    assert numbers.std().item() == pytest.approx(0.02, rel=0.01)
    rows = (numbers[0] - 0.5) / 0.02
    for other in (numbers[1], drawn(1, "w", (1, 500), 0.5, 0.02)[0], drawn(0, "v", (1, 500), 0.5, 0.02)[0]):
        assert (rows @ (other.double() - 0.5) / 0.02 / 500).abs() < 0.2
    model = filled("gpt")
    ours, theirs = dict(model.named_parameters()), dict(SHAPES["gpt"][0]().named_parameters())
    for name, parameter in theirs.items():
        assert ours[name].std().item() == pytest.approx(parameter.std().item(), rel=0.25, abs=1e-12), name
        assert parameter.ndim > 1 or torch.equal(ours[name], parameter)
    assert torch.equal(filled("gpt", seed=3).tokens.weight, ours["tokens.weight"])
    assert not torch.equal(filled("gpt", seed=4).tokens.weight, ours["tokens.weight"])


def test_tied_tensors_stay_tied_and_only_what_is_asked_for_is_made():
    model = on_meta("llama")
    model.norm.weight.requires_grad_(False)
    held = ranks_of(model, LLAMA_LAYERS, [0, 1])
    materialise(model, 3, spread(model), {name for name, ranks in held.items() if 0 in ranks})
    assert model.head.weight is model.tokens.weight
    made = {name for name, parameter in model.named_parameters() if not parameter.is_meta}
    assert made == {name for name, ranks in held.items() if 0 in ranks}
    assert "blocks.1.feedforward.gate.weight" not in made
    whole = dict(filled("llama").named_parameters())
    assert all(torch.equal(model.get_parameter(name), whole[name]) for name in made)
    materialise(model, 3, spread(model))
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["norm.weight"]
    model.register_buffer("places", torch.empty(2, device="meta"))
    with pytest.raises(ValueError, match="buffers must have numbers, got places on the meta device"):
        materialise(model, 3, spread(model))
    with pytest.raises(ValueError, match=r"cut along one of its first two dimensions, got S\(2\)\[0:2\] of"):
        drawn(0, "w", (2, 2, 2), 0.0, 1.0, cut=Shard.along(2, (2, 2, 4), ((0, 2),)))


def test_a_model_that_was_never_whole_trains_as_the_whole_one():
    tokens = torch.randint(48, (4, 9), generator=torch.Generator().manual_seed(0))

    def on_ranks():
        mesh, model = Mesh(tensor=4), on_meta("llama", torch.float64)  # two key heads: gradients of copies are summed
        cuts = split(model, llama_plan(model), mesh.axis("tensor"))
        materialise(model, 3, spread(model))
        optimizer = DistributedOptimizer(model, methods.psgd(partial(torch.optim.SGD, lr=0.1)), mesh=mesh)
        for _ in range(2):
            optimizer.zero_grad()
            cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], mesh.axis("tensor")).backward()
            optimizer.step()
        return cuts, {name: parameter.detach() for name, parameter in model.named_parameters()}

    whole = filled("llama", torch.float64)
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
        own = SharedRow(held, layout, mesh.axis("shard")).parameters
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
