"""Compiled pieces of models train as plain ones do, and the bytes of each axis are the same."""

from __future__ import annotations

from functools import partial
from math import prod
from unittest.mock import patch

import pytest
import torch

from commeff import Communicator
from commeff.sharding import Mesh
from commeff.sharding.pieces import fitted
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from tests.commeff.sharding.test_trainer import METHODS, Tokens
from tests.laws.processes import by_case, on_processes

CASES = {
    "tensor": ({"tensor": 2}, {}),
    "tensor, anew": ({"tensor": 2}, {"recompute": "selective"}),
    "sequence, anew": ({"tensor": 2}, {"sequence": True, "recompute": "full"}),
    "pipeline": ({"pipeline": 2}, {"micro_batches": 2}),
    "pipeline, anew": ({"pipeline": 2}, {"micro_batches": 2, "recompute": "full", "schedule": "gpipe"}),
    "workers": ({"worker": 2, "tensor": 2}, {}),
    "both": ({"pipeline": 2, "tensor": 2}, {"micro_batches": 2, "sequence": True}),
    "shards of pieces": ({"shard": 2, "tensor": 2}, {"zero": 1}),
    "stage 3 of pieces": ({"shard": 2, "tensor": 2}, {"zero": 3, "sequence": True}),
    "stage 3 of stages": ({"shard": 2, "pipeline": 2}, {"zero": 3, "micro_batches": 3}),
}


def run(case, backend=None):
    """The losses and the bytes of each axis after three steps of this rank's piece; without a backend it is plain."""
    degrees, given = CASES[case]
    mesh, task = Mesh(**degrees), Tokens()
    task.workers = mesh.degrees["worker"]
    worker = on_mesh(task, mesh, **given)
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]
    graphs.clear()
    settings = RunSettings(3, evaluate_every=2, compiled=backend is not None)
    with patch.object(torch, "compile", partial(torch.compile, backend=backend)):
        strategy = fitted(METHODS["psgd"](), worker.partition, "own")
        summary = train(task, strategy, Communicator(group=mesh.group("worker")), settings, worker=worker)
    sent = {name: count for name, (count, _) in worker.inside.items()}
    assert min(sent.values()) > 0
    assert (graphs["unique_graphs"] > 1) is (backend is not None), "one for training, and one for evaluation"
    return {name: value for name, value in summary.items() if "loss" in name}, sent


def compared(cases, backend="aot_eager"):
    """What plain and compiled pieces have come to, by case; every rank has as many bytes as without a compiler."""

    def both(case):
        (plain, sent), (compiled, compiled_sent) = run(case), run(case, backend)
        assert compiled_sent == sent
        return plain, compiled

    (ranks,) = {prod(CASES[case][0].values()) for case in cases}
    return on_processes(ranks, lambda: by_case(cases, both))


def test_compiled_pieces_are_the_plain_ones():
    for found in compared(["tensor"]):
        plain, compiled = found["tensor"]
        assert compiled == plain


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_splits_can_be_compiled(ranks):
    for found in compared([case for case, (degrees, _) in CASES.items() if prod(degrees.values()) == ranks]):
        for plain, compiled in found.values():
            assert compiled == plain


@pytest.mark.slow
def test_generated_code_rounds_in_another_way():
    for found in compared(["tensor", "pipeline"], "inductor"):
        for plain, compiled in found.values():
            assert compiled == pytest.approx(plain, rel=1e-6)
