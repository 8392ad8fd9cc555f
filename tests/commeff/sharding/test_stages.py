"""Workers in stages: what their ranks keep between steps, and what has left before backward ends."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from commeff import Communicator, DistributedOptimizer, methods
from commeff.core import overlap
from commeff.experiments.tasks.language import Llama
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Mesh, Objective
from commeff.sharding.fit import sharing_faults
from commeff.sharding.fully import fully
from commeff.sharding.pipeline import Pipeline
from commeff.sharding.played import PlayedMesh
from commeff.training.sharding import on_mesh
from commeff.training.task import objective
from commeff.transforms import bucketed
from tests.commeff.sharding import test_trainer
from tests.commeff.sharding.test_zero import PSI_PARTS, SGD, batch
from tests.laws.processes import census, on_processes


class Tied(test_trainer.Tokens):
    """The same for a tied Llama."""

    def model(self):
        torch.manual_seed(1)
        return Llama(64, layers=4, width=32, heads=4, kv_heads=2, inner=64, tied=True).double()


TASKS = {"untied": test_trainer.Tokens, "tied": Tied}


def kept(zero, schedule):
    """Bytes that live after a step of AdamW, and parameters that this rank's stages have."""
    before, mesh = census(), Mesh(pipeline=2, shard=2)
    model = Llama(700, layers=4, width=192, heads=4, inner=512, tied=True)
    piped = Pipeline(model, LLAMA_LAYERS, mesh.axis("pipeline"), schedule=schedule, micro_batches=2)
    psi = sum(p.numel() for p in piped.parameters.values())
    adam = methods.psgd(partial(torch.optim.AdamW, lr=0.01))
    optimizer = DistributedOptimizer(model, adam, mesh=mesh, zero=zero, bucket_mb=1.0)
    optimizer.zero_grad()
    loss = Objective(
        lambda tokens: ((tokens[:, :-1],), tokens[:, 1:]),
        lambda out, targets: F.cross_entropy(out.flatten(0, 1), targets.flatten()),
    )
    piped.backward(loss, (batch(0, 0)[:2],), 1.0)
    optimizer.step()
    return census() - before, psi


def sending(name, zero, degrees, schedule, precision):
    """Of each span of gradients that arrived: its first tensor, how many blocks were out before and after it, and
    whether backward was computing.
    """
    mesh, task, strategy = Mesh(**degrees), TASKS[name](), methods.psgd(SGD)
    worker = on_mesh(task, mesh, zero=zero, schedule=schedule, micro_batches=3, precision=precision)
    strategy = bucketed(strategy, 0.01, worker.parameters, worker.layout)
    communicator = Communicator(group=mesh.group("worker"))
    strategy.start(worker.parameters, worker.layout, communicator)
    found, blocks = [], strategy.gradients

    def ready(start, stop):
        before, during = len(blocks._flows), torch._C._current_graph_task_id() >= 0
        overlap.ready(strategy, worker.gradients, start, stop, communicator)
        found.append((worker.layout.slice(start, stop).fields[0].name, before, len(blocks._flows), during))

    strategy.post(worker.parameters, communicator)
    gradient, _ = worker.compute(
        objective(task, None), [task.batch(0, worker.workers)], 0, 0.0, overlap.awaited(strategy), ready
    )
    worker.load(strategy.step(worker.parameters, gradient, communicator))
    return found, len(blocks._spans)


STATES = ((3, "1f1b"), (3, "zero_bubble"))
SENDING = (
    ("untied", 3, "1f1b", "fp32"),
    ("tied", 3, "interleaved", "fp32"),
    ("tied", 0, "1f1b", "fp32"),
    ("untied", 0, "1f1b", "bf16"),
)


@pytest.fixture(scope="module")
def outcomes():
    """By rank, everything that is measured: starting processes costs more than a measurement."""

    def member():
        sent = {
            case: sending(case[0], case[1], {"pipeline": 2, "shard" if case[1] else "worker": 2}, *case[2:])
            for case in SENDING
        }
        return {case: kept(*case) for case in STATES}, sent

    return on_processes(4, member)


@pytest.mark.parametrize(("zero", "schedule"), STATES)
def test_what_a_stage_keeps_between_steps_is_the_formula_of_zero(outcomes, zero, schedule):
    everywhere, shared = PSI_PARTS[zero]
    for kept_here, _ in outcomes:
        live, psi = kept_here[zero, schedule]
        assert psi > 1e6
        assert live == pytest.approx((everywhere + shared / 2) * psi, rel=0.02)


@pytest.mark.parametrize("case", SENDING, ids=str)
def test_blocks_of_a_stage_leave_while_others_are_computed(outcomes, case):
    """Results are equal when nothing overlaps, so no other law sees it. What is tied is summed after backward."""
    for _, sent in outcomes:
        found, blocks = sent[case]
        late = 1 if case[0] == "tied" else 0
        assert blocks > 5
        assert found[-1][2] == blocks - late, "more than the last block is left at the end of backward"
        layers = [one for one in found if one[0].endswith("attention_norm.weight")]
        assert all(during for *_, during in layers), "gradients come when backward is over"
        before = layers[-1][1]
        assert case[0] == "untied" or before >= blocks / 2 - 2, "the first layer has waited for the second"


def test_stages_of_one_rank_that_share_a_tensor_cannot_be_sharded():
    for schedule, tied, refused in (("zbv", True, True), ("zbv", False, False), ("interleaved", True, False)):
        model, mesh = Llama(64, 4, 32, 4, tied=tied), PlayedMesh({"pipeline": 2, "shard": 2})
        Pipeline(model, LLAMA_LAYERS, mesh.axis("pipeline"), schedule=schedule, micro_batches=2)
        if refused:
            (fault,) = sharing_faults(model)
            with pytest.raises(ValueError, match="zero must be at most 2 where a tensor lies in two stages") as told:
                fully(model, mesh)
            assert str(told.value) == fault
        else:
            assert not list(sharing_faults(model))
