"""Workers on a mesh against whole ones where rounding shows: AdamW, float32, 16 bits; minibatches that add up."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from commeff import Communicator, Strategy, methods, topologies
from commeff.core import Local
from commeff.sharding import Mesh
from commeff.sharding.precision import PRECISIONS
from commeff.training.checkpoint import Checkpoints
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from commeff.transforms import Average
from tests.commeff.sharding.test_trainer import SGD, STEPS, Tokens
from tests.laws.processes import by_case, on_processes
from tests.states import parameters

ADAM = partial(torch.optim.AdamW, lr=0.003)
METHODS = {
    "psgd": lambda: methods.psgd(SGD),
    "dsgd": lambda: methods.dsgd(SGD, topologies.ring(2)),
    "gossip_pga": lambda: methods.gossip_pga(SGD, topologies.ring(2), period=3),
    "diloco": lambda: methods.diloco(SGD, period=2),
    "power_sgd": lambda: methods.power_sgd(SGD, rank=2),
    "adam": lambda: methods.diloco(ADAM, period=2),
    "accumulated": lambda: Strategy(Local(SGD), Average(), accumulate=3),
}


class Narrow(Tokens):
    """The same in 32 bits."""

    def model(self):
        return super().model().float()


MESHES = {
    "T2": ({"tensor": 2}, {"sequence": True}),
    "P2": ({"pipeline": 2}, {"micro_batches": 2}),
    "S2": ({"shard": 2}, {"zero": 3}),
}
TASKS = {"fp64": (Tokens, "fp32"), "fp32": (Narrow, "fp32"), "bf16": (Narrow, "bf16"), "fp16": (Narrow, "fp16")}
CASES = [  # what, on what, by which method
    ("fp64", "P2", "adam"),
    ("fp64", "T2", "accumulated"),
    ("fp32", "T2", "power_sgd"),
    ("bf16", "T2", "psgd"),
    ("bf16", "P2", "psgd"),
    ("fp16", "T2", "diloco"),
]
NIGHTLY = [
    *(("fp64", mesh, method) for mesh in MESHES for method in ("adam", "accumulated")),
    *(("fp32", mesh, method) for mesh in MESHES for method in METHODS if method not in ("adam", "accumulated")),
    *((bits, mesh, method) for bits in ("bf16", "fp16") for mesh in MESHES for method in ("psgd", "diloco")),
]


def bound(bits, method, largest):
    """How far apart parameters may be, the largest of which is given; in 16 bits a quarter of its rounding."""
    if bits == "fp64":
        return 1e-10 if method == "adam" else 1e-12
    return 2e-6 if bits == "fp32" else largest * torch.finfo(PRECISIONS[bits].dtype).eps / 4


def on_ranks(bits, where, method):
    """This rank's worker, and what it updates, with its place in the whole."""
    (make, precision), (degrees, given) = TASKS[bits], MESHES[where]
    mesh = Mesh(worker=2, **degrees)
    worker = on_mesh(make(), mesh, precision=precision, **given)
    communicator = Communicator(group=mesh.group("worker"))
    train(make(), METHODS[method](), communicator, RunSettings(steps=STEPS), worker=worker)
    boxes = worker.where.boxes(worker.where.spans)
    row = worker.parameters[0]
    return mesh.coordinates["worker"], [
        (box.tensor, box.offsets, row[box.start : box.stop].view(box.sizes)) for box in boxes
    ]


@cache
def whole(bits, method):
    """Both workers' tensors, by name."""
    make, precision = TASKS[bits]
    with TemporaryDirectory() as folder:
        settings, checkpoints = RunSettings(steps=STEPS, precision=precision), Checkpoints(Path(folder))
        train(make(), METHODS[method](), Communicator(workers=2), settings, checkpoints=checkpoints)
        rows = parameters(checkpoints.load())
    first = make().model()
    shapes = {name: p.shape for name, p in first.named_parameters()}
    start = torch.cat([p.detach().flatten() for p in first.parameters()])
    assert (rows - start).abs().max() > 0.005, "nothing moved: the comparison says nothing"
    pieces = rows.split([shape.numel() for shape in shapes.values()], 1)
    return {name: piece.view(2, *shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def agree(ranks, case):
    bits, _, method = case
    expected, covered = whole(bits, method), 0
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    for worker, boxes in ranks:
        for name, offsets, piece in boxes:
            there = tuple(slice(a, a + n) for a, n in zip(offsets, piece.shape, strict=True))
            assert (piece - expected[name][(worker, *there)]).abs().max() <= bound(bits, method, largest), (case, name)
            covered += piece.numel()
    assert covered >= sum(tensor.numel() for tensor in expected.values())


@pytest.fixture(scope="module")
def outcomes():
    return on_processes(4, lambda: by_case(CASES, lambda case: on_ranks(*case)))


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_pieces_round_as_wholes_do(outcomes, case):
    agree([rank[case] for rank in outcomes], case)


@pytest.mark.slow
def test_every_piece_rounds_as_wholes_do():
    ranks = on_processes(4, lambda: by_case(NIGHTLY, lambda case: on_ranks(*case)))
    for case in NIGHTLY:
        agree([rank[case] for rank in ranks], case)
