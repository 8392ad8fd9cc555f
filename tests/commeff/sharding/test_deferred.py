"""A rank makes only its slices of a model, and they are those of the whole model, bit by bit."""

from __future__ import annotations

from math import prod

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from commeff.experiments.tasks.language import GPT, Llama, llama_plan
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.experiments.tasks.models import seeded
from commeff.sharding import AXES, Axis, Mesh, split
from commeff.sharding.deferred import deferred, fill
from commeff.sharding.foreign import local
from commeff.sharding.layers import keep, ranks_of
from commeff.training.sharding import on_mesh
from tests.commeff.sharding.test_trainer import Tokens
from tests.commeff.sharding.whole import shards_of
from tests.laws.processes import on_processes


def llama():
    return Llama(48, layers=8, width=32, heads=4, kv_heads=4, inner=64, tied=True)


class Odd(nn.Module):
    """Does more to its tensors than one of them at a time."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Embedding(5, 2, padding_idx=0)
        nn.init.orthogonal_(self.first.weight)


class Asking(nn.Module):
    """Leaves a tensor alone that has no numbers, as torch's initialisers do from 2.12 on."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        if not self.first.weight.is_meta:
            nn.init.trunc_normal_(self.first.weight)


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("empty", torch.empty(3))
        self.register_buffer("known", torch.arange(3.0))
        nn.init.ones_(self.empty)
        self.scale = nn.Parameter(torch.ones(2))
        self.layer = nn.Linear(3, 2)
        with torch.no_grad():
            self.layer.weight.mul_(2).add_(1)


MODELS = {  # and whether it is deferred
    "llama": (llama, True),
    "gpt": (lambda: GPT(48, layers=1, heads=4, width=24, context=8, bias=True), True),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), True),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2), True),
    "buffers": (Buffered, True),
    "odd": (Odd, False),
    "asking": (Asking, False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_deferred_numbers_are_those_of_the_model_and_draw_as_many(name, dtype):
    build, is_deferred = MODELS[name]
    torch.manual_seed(5)
    whole, after = build().to(dtype), torch.get_rng_state()
    torch.manual_seed(5)
    model, numbers = deferred(lambda: build().to(dtype))
    assert torch.equal(torch.get_rng_state(), after)
    assert any(parameter.is_meta for parameter in model.parameters()) == is_deferred
    fill(model, numbers)
    assert torch.equal(torch.get_rng_state(), after)
    state = model.state_dict()
    for key, value in whole.state_dict().items():
        assert torch.equal(state[key], value), key
        assert state[key].dtype == value.dtype


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside have had at a time; meta tensors and DTensors have none of their own."""

    def __init__(self):
        super().__init__()
        self._live, self.bytes = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and not (x.is_meta or isinstance(x, DTensor)):
                storage = x.untyped_storage()
                self._live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._live = {key: pair for key, pair in self._live.items() if not pair[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self._live.values()))
        return out


WAYS = {"tensor": (4, 1), "pipeline": (1, 4), "both": (2, 2)}


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_has_its_slices_and_one_tensor_at_a_time(way):
    tensor, pipeline = WAYS[way]
    whole = seeded(llama, 3)
    rank, sizes = pipeline - 1, [parameter.nbytes for parameter in whole.parameters()]
    with Peak() as peak:
        model, numbers = deferred(lambda: seeded(llama, 3))
        split(model, llama_plan(model), Axis("tensor", tensor, tensor - 1))
        held = {n for n, ranks in ranks_of(model, LLAMA_LAYERS, range(pipeline)).items() if rank in ranks}
        keep(model, LLAMA_LAYERS, range(pipeline), rank)
        fill(model, numbers)
    cuts = shards_of(whole, llama_plan(whole), Axis("tensor", tensor, tensor - 1))
    named, own = dict(model.named_parameters()), 0
    for name, parameter in whole.named_parameters():
        assert (name in named) == (name in held)
        if name in held:
            own += named[name].nbytes
            assert torch.equal(named[name], cuts[name].take(parameter)), name
    states = 5056 * 4  # of the generator, of one tensor at a time
    assert own <= peak.bytes <= own + 2 * max(sizes) + states + 5056 * len(sizes)
    assert own < 0.45 * sum(sizes)


class Frozen(Tokens):
    """The same, of which one layer is not trained."""

    def model(self):
        model = super().model()
        model.blocks[0].requires_grad_(False)
        return model


def test_a_layer_that_is_not_trained_is_filled_where_ranks_share_parameters():
    tokens = torch.arange(16).view(2, 8)

    def member():
        with torch.no_grad():
            return on_mesh(Frozen(), Mesh(shard=2), zero=3).models[0](tokens)

    with torch.no_grad():
        expected = Frozen().model()(tokens)
    for found in on_processes(2, member):
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


class Watched(Tokens):
    """Knows how much memory the tensors of its model had while it was built."""

    def model(self):
        with Peak() as peak:
            model = super().model()
        self.peak = peak.bytes
        return model


@pytest.mark.parametrize(
    "given",
    [
        *({axis: 2} for axis in ("tensor", "pipeline", "shard")),
        {"shard": 11, "zero": 3},  # which do not share all tensors evenly
        {"shard": 2, "tensor": 2, "pipeline": 2, "zero": 3, "recompute": "full", "micro_batches": 2},
    ],
    ids=str,
)
def test_the_trainer_never_has_a_whole_model_of_a_worker_in_pieces(given):
    degrees = {name: given[name] for name in AXES if name in given}
    dist.init_process_group("fake", rank=0, world_size=prod(degrees.values()), store=FakeStore())
    whole = {name: value.detach() for name, value in Tokens().model().named_parameters()}
    largest = max(value.nbytes for value in whole.values())
    try:
        task = Watched()
        with Peak() as peak:
            worker = on_mesh(task, Mesh(**degrees), **{name: given[name] for name in given if name not in AXES})
    finally:
        dist.destroy_process_group()
    assert task.peak == 0
    held = sum(local(parameter).nbytes for parameter in worker.computation.parameters.values())
    if "zero" in given:  # shards and their row, a tensor and its cast, and where the generator stood before each
        assert peak.bytes <= 2 * held + 2 * largest + 5056 * (len(whole) + 1)
    for name, parameter in worker.computation.parameters.items():
        cut = getattr(parameter, "cut", None)
        mine = whole[name] if cut is None else cut.take(whole[name])
        if "zero" in given:
            mine = mine.chunk(degrees["shard"])[0]
        assert torch.equal(local(parameter), mine), name
