"""What the planner says that a method sends and remembers is what `commeff.profile` says, for every method."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from commeff import compressors, methods, profile, topologies
from commeff.cluster import Cluster, simulation
from commeff.cluster.billing import message_bytes
from commeff.compressors import Layout
from commeff.core import Strategy
from commeff.planner import Model, Policies, Policy, WorkerMethod, predict
from commeff.planner.model_part import ModelPart
from commeff.planner.worker_profile import WorkerProfile
from commeff.planner.worker_traffic import alike
from tests.commeff.planner.ways import method, way

MODEL = Model(layers=12, hidden=96, heads=6, sequence=32, vocab=1009, kv_heads=3)
LARGE = Model(layers=24, hidden=2048, heads=16, sequence=1024, vocab=51200)
EIGHT = Cluster.named("a100_selene", gpus=8)
SGD = partial(torch.optim.SGD, lr=0.1)


def low_rank(n: int) -> Strategy:
    return methods.power_sgd(SGD, rank=8)


def by_tensor(n: int) -> Strategy:
    return methods.mem_sgd(SGD, compressors.PerTensor(compressors.TopK(ratio=0.03)))


LONG = {"muloco", "scaffnew", "zero_one_adam"}  # periods
CASES = [
    *(way(name) for name in methods.__all__),
    way("local_sgd period=5"),
    way("diloco period=16"),
    way("dsgd degree=1"),
    way("compressed_sgd compressor=scaled_sign"),
    way("compressed_sgd compressor=random_k compressor.ratio=0.1 compressor.shared=true"),
    WorkerMethod(low_rank),
    WorkerMethod(by_tensor),
]


def truth(method: WorkerMethod, workers: int, layout: Layout, dtype: torch.dtype) -> tuple[list[float], float]:
    """Bytes of the messages of a period, and of memory, of a strategy that is played for this one part."""
    found = profile(method.strategy(workers), layout, workers, dtype=dtype)
    steps = range(found.first, found.first + found.period)
    sent = [message_bytes(op) for step in steps for op in found.operations(step) if op.rounds]
    return sent, float(sum(found.memory_bytes.values()) + found.server_bytes)


def test_every_method_is_here():
    assert {case.name.split(",")[0] for case in CASES} >= set(methods.__all__)


@pytest.mark.parametrize(
    "method",
    [pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case.name in LONG)) for case in CASES],
)
def test_bytes_and_memory_of_sampled_policies_are_those_of_their_profile(method):
    places = [(1, 1, 8), (3, 2, 4), (6, 4, 8), (3, 4, 8), (1, 2, 4)]
    sampled = [Policy(tensor=t, pipeline=p, data=n, workers=n, precision="fp32", **method.fields) for t, p, n in places]
    policies = Policies.of(sampled)
    layers, embeddings = MODEL.layers / policies.pipeline, np.ones(len(policies))
    seen = 0
    for group in alike(policies, MODEL, layers, embeddings):
        for column, i in enumerate(group.members):
            part = ModelPart(int(policies.tensor[i]), int(layers[i]), 1)
            sent, memory = truth(method, int(policies.workers[i]), part.layout(MODEL), torch.float32)
            assert group.bytes[:-1, column].tolist() == pytest.approx(sent, rel=1e-13)
            assert group.bytes[-1, column] == pytest.approx(memory, rel=1e-13)
            seen += 1
    assert seen == len(sampled)


def test_gradients_travel_as_they_are_summed_and_parameters_as_the_weights():
    part = ModelPart(1, 2, 0)
    d = part.layout(MODEL).d
    for precision, gradients, weights in (("bf16", 4, 2), ("fp16", 2, 2), ("fp32", 4, 4)):
        for name, width in (("psgd", gradients), ("dsgd", weights), ("local_sgd", weights)):
            of = WorkerProfile.of(way(name), MODEL, precision, 4)
            assert set(of.sheet(part).bytes) == {width * d, 0.0}
        of = WorkerProfile.of(way("diloco"), MODEL, precision, 4)
        assert of.sheet(part).bytes == (weights * d, 8.0 * d)


@pytest.mark.parametrize(
    ("method", "found"),
    [
        (way(), "line"),
        (way("sgp"), "line"),
        (way("diloco period=3"), "line"),
        (way("mem_sgd compressor=top_k"), "numbers"),
        (way("compressed_sgd compressor=scaled_sign"), "numbers"),
        (WorkerMethod(low_rank), "shapes"),
        (WorkerMethod(by_tensor), "shapes"),
    ],
)
def test_what_bytes_depend_on_is_found_out(method, found):
    assert WorkerProfile.of(method, MODEL, "bf16", 4).depends == found


def test_whole_vectors_cannot_leave_while_gradients_are_computed():
    found = {name: WorkerProfile.of(way(name), MODEL, "bf16", 4).hides for name in ("psgd", "mem_sgd")}
    assert found == {"psgd": True, "mem_sgd": False}


def test_psgd_costs_the_same_however_its_ranks_are_called():
    one, many = (predict(MODEL, Policy(data=8, workers=n, overlap="none"), EIGHT, global_batch=32) for n in (1, 8))
    assert many.step_seconds == pytest.approx(one.step_seconds, rel=1e-4)
    assert many.memory_bytes == one.memory_bytes


def test_the_topology_of_the_user_decides_which_links_gossip_uses():
    """On two nodes, a ring crosses twice and the exponential graph with half of all messages."""
    cluster = replace(Cluster.named("a100_selene", gpus=16), nics=1)
    found = {}

    for name in ("ring", "exponential"):
        policy = Policy(
            data=16, workers=16, method=method(f"dsgd topology={name}"), overlap="none", zero=1, precision="fp32"
        )
        p = predict(MODEL, policy, cluster, global_batch=32)
        size = 4 * ModelPart(1, MODEL.layers, 1).layout(MODEL).d
        found[name] = simulation.gossip(cluster, getattr(topologies, name)(16).at(0), size)
        assert p.breakdown["seconds"]["workers"] == pytest.approx(found[name])
    assert found["exponential"] > 5 * found["ring"]


def test_ranks_of_a_worker_gossip_at_once_and_share_their_links():
    """Eight ranks of a node send an eighth of a model each over its one NIC; over eight NICs they take an eighth."""
    cluster = Cluster.named("a100_selene", gpus=16)
    policy = Policy(data=16, workers=2, method=method("dsgd topology=ring"), overlap="none", zero=1)
    one, eight = (
        predict(LARGE, policy, replace(cluster, nics=nics), global_batch=32).breakdown["seconds"]["workers"]
        for nics in (1, 8)
    )
    size = 2 * ModelPart(1, LARGE.layers, 1).layout(LARGE).d
    assert one == pytest.approx(size / cluster.inter.rate, rel=0.01)
    assert eight == pytest.approx(one / 8, rel=0.01)


def test_early_and_delayed_messages_hide_behind_all_computing():
    def early(n: int) -> Strategy:
        return methods.dsgd(SGD, topologies.ring(n), order="awc")

    def late(n: int) -> Strategy:
        return methods.dasgd(SGD, period=2, delay=1)

    def seconds(method: object, overlap: str) -> float:
        policy = Policy(data=8, workers=8, method=method, overlap=overlap, zero=1)
        return predict(MODEL, policy, EIGHT, global_batch=32).breakdown["seconds"]["workers"]

    for each in (early, late):
        assert seconds(each, "full") == 0 < seconds(each, "partial") < seconds(each, "none")
    assert seconds(method("dsgd"), "full") == seconds(method("dsgd"), "none") > 0


def test_a_strategy_of_your_own_is_planned_like_any_other():
    def mine(n: int) -> Strategy:
        return methods.local_sgd(SGD, period=4)

    own, named = (
        predict(MODEL, Policy(data=8, workers=8, **fields), EIGHT, global_batch=32)
        for fields in ({"method": mine}, {"method": method("local_sgd period=4")})
    )
    assert own == named
