"""Split models of which parameters are frozen, and ranks that would have nothing to train."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from commeff import Communicator, methods
from commeff.compressors import Layout
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Mesh
from commeff.sharding.fit import check_stages
from commeff.sharding.fully import FullyRow, fully
from commeff.training.checkpoint import Checkpoints
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from commeff.transforms import clipped
from tests.commeff.sharding.test_rounding import Narrow
from tests.laws.processes import by_case, on_processes
from tests.states import parameters

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
STEPS = 4
CASES = {
    "tensor": ({"shard": 2, "tensor": 2}, {"sequence": True}),
    "stages": ({"shard": 2, "pipeline": 2}, {"micro_batches": 3}),
}


class Frozen(Narrow):
    """A norm and a layer's keys stay as they are."""

    workers = 1

    def model(self):
        model = super().model()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("1.attention_norm" not in name and "0.attention.keys" not in name)
        return model


def method():
    return clipped(methods.psgd(SGD), 1.0)


def on_ranks(case):
    degrees, given = CASES[case]
    mesh, task = Mesh(**degrees), Frozen()
    worker = on_mesh(task, mesh, zero=3, precision="bf16", **given)
    train(task, method(), Communicator(workers=1), RunSettings(steps=STEPS), worker=worker)
    return worker.where.boxes(worker.where.spans), worker.parameters[0]


def test_what_is_frozen_computes_in_16_bits_too():
    with TemporaryDirectory() as folder:
        settings, checkpoints = RunSettings(steps=STEPS, precision="bf16"), Checkpoints(Path(folder))
        train(Frozen(), method(), Communicator(workers=1), settings, checkpoints=checkpoints)
        row = parameters(checkpoints.load())[0]
    named = [(name, p.detach()) for name, p in Frozen().model().named_parameters() if p.requires_grad]
    assert (row - torch.cat([p.flatten() for _, p in named])).abs().max() > 0.02, "nothing moved"
    pieces = zip(named, row.split([p.numel() for _, p in named]), strict=True)
    whole = {name: piece.view(p.shape) for (name, p), piece in pieces}
    for rank in on_processes(4, lambda: by_case(CASES, on_ranks)):
        for case, (boxes, own) in rank.items():
            for box in boxes:
                there = tuple(slice(a, a + n) for a, n in zip(box.offsets, box.sizes, strict=True))
                piece = own[box.start : box.stop].view(box.sizes)
                assert (piece - whole[box.tensor][there]).abs().max() <= torch.finfo(torch.bfloat16).eps / 4, case


def test_a_pipeline_rank_with_nothing_to_train_is_refused():
    model = Frozen().model()
    check_stages(model, LLAMA_LAYERS, 2, "1f1b", 2)
    for module in (model.tokens, model.blocks[0]):
        module.requires_grad_(False)
    with pytest.raises(ValueError, match="each of 2 pipeline ranks must have something to train, got none at 0, whose"):
        check_stages(model, LLAMA_LAYERS, 2, "1f1b", 2)


def test_a_shard_rank_without_a_row_is_refused():
    def member():
        mesh, model = Mesh(shard=2), torch.nn.Linear(3, 1)
        fully(model, mesh)
        named = dict(model.named_parameters())
        layout = Layout.of([(name, tuple(p.shape)) for name, p in named.items()])
        with pytest.raises(ValueError, match="shard = 2 ranks must each have rows of some tensor for zero=3, got none"):
            FullyRow(named, layout, mesh.axis("shard"))

    on_processes(2, member)


def test_shards_that_fsdp_pads_are_written_too():
    def member():
        mesh, model = Mesh(shard=2), torch.nn.Linear(4, 3)
        for parameter in model.parameters():
            parameter.detach().fill_(1.0)
        fully(model, mesh)
        named = dict(model.named_parameters())
        layout = Layout.of([(name, tuple(p.shape)) for name, p in named.items()])
        row = FullyRow(named, layout, mesh.axis("shard"))
        row.load(row.parameters + 1)
        assert torch.equal(model(torch.ones(1, 4)), torch.full((1, 3), 10.0))

    on_processes(2, member)
