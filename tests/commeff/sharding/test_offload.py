"""What lies on the host changes no number: shards of FSDP2, the inputs of layers, a method's anchors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

from commeff import Communicator, methods
from commeff.sharding import Mesh
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from tests.commeff.sharding.test_foreign import Sharded2, compare, trained
from tests.commeff.sharding.test_trainer import SGD, STEPS, Tokens
from tests.laws.processes import on_processes

FOREIGN = ("diloco", "psgd")
HERE = {"none": False, "offloaded": True}  # what is computed anew, and whether anchors are on the host


class Offloaded2(Sharded2):
    """Shards and their gradients on the host; parameters are brought to where they compute when they are gathered."""

    shard = staticmethod(partial(fully_shard, offload_policy=CPUOffloadPolicy(pin_memory=False)))


def kept_elsewhere(recompute, host):
    """This rank's row at the end."""
    mesh, task = Mesh(worker=2, shard=2), Tokens()
    worker = on_mesh(task, mesh, zero=3, recompute=recompute)
    communicator = Communicator(group=mesh.group("worker"))
    first = worker.parameters.clone()
    train(task, methods.diloco(SGD, period=2, host=host), communicator, RunSettings(steps=STEPS), worker=worker)
    assert (worker.parameters - first).abs().max() > 0.02
    return worker.parameters.clone()


@pytest.fixture(scope="module")
def outcomes():
    """By rank, the pieces of each method with FSDP2's shards on the host, and rows with and without offloading."""

    def member():
        foreign = {method: trained(Offloaded2(), method) for method in FOREIGN}
        return foreign, [kept_elsewhere(*each) for each in HERE.items()]

    return on_processes(4, member)


@pytest.mark.parametrize("method", FOREIGN)
def test_shards_on_the_host_train_as_whole_models(outcomes, method):
    compare([foreign[method] for foreign, _ in outcomes], method)


def test_inputs_of_layers_and_anchors_on_the_host_are_the_same_bit_by_bit(outcomes):
    for _, (kept, offloaded) in outcomes:
        assert torch.equal(kept, offloaded)
