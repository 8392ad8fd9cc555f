"""Linear layers of torchao's float8 in a loop of one's own: a model is converted first, then sharded or staged."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding.pipeline import Pipeline
from tests.commeff.sharding.test_own_loop import Split
from tests.laws.processes import on_processes

float8 = pytest.importorskip("torchao.float8", reason="torchao is not installed")
SGD = partial(torch.optim.SGD, lr=0.1)


def trained(zero=0, stages=0, shard=1):
    """The float8 layers of this rank, and the weights after three steps."""
    one = Split(zero, shard=shard, pipeline=max(stages, 1))
    config = float8.Float8LinearConfig(emulate=True)
    float8.convert_to_float8_training(one.model, config=config, module_filter_fn=lambda _, name: name != "head")
    if stages:
        one.pipeline = Pipeline(one.model, LLAMA_LAYERS, one.mesh.axis("pipeline"), micro_batches=3)
    optimizer = one.optimizer(SGD)
    narrow = sum(isinstance(module, float8.float8_linear.Float8Linear) for module in one.model.modules())
    return narrow, one.steps(optimizer, range(3))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_all_stages_of_zero_train_alike(zero):
    plain, sharded = (on_processes(2, partial(trained, stage, shard=2)) for stage in (0, zero))
    for (narrow, weights), (as_many, others) in zip(plain, sharded, strict=True):
        assert narrow == as_many > 0
        assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_stages_train_what_one_process_does():
    ((narrow, whole),) = on_processes(1, partial(trained, stages=1))
    ranks = on_processes(2, partial(trained, stages=2))
    assert sum(of_rank for of_rank, _ in ranks) == narrow > 0
    for name, weight in (pair for _, weights in ranks for pair in weights.items()):
        torch.testing.assert_close(weight, whole[name])
