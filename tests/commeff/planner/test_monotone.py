"""What holds for any model, cluster and policy: drawn at random, some hundreds here and ten thousand a night."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from commeff.cluster import Cluster, FatTree, Rails, names
from commeff.experiments.planning.explain import faster
from commeff.planner import FRAMEWORKS, MEASURED, Constants, Model, Policies, StepEstimate, estimate, predict, search
from commeff.planner.policies import OVERLAPS
from commeff.planner.search import Space
from tests.commeff.planner.ways import way

WAYS = (
    way(),
    way("dsgd degree=1"),
    way("dsgd topology=ring method.order=awc"),
    way("diloco period=20"),
    way("mem_sgd compressor=scaled_sign"),
)
BETTER = {
    "gemm_efficiency": 1.0,
    "operand_ratio": 12.0,
    "gemm_ramp": 8.0,
    "memory_efficiency": 1.0,
    "kernel_seconds": 1e-5,
    "hidden_share": 0.95,
}
ANY = (None, *FRAMEWORKS)
LAUNCHING = replace(MEASURED, kernel_seconds=1e-2)  # a CPU that GPUs wait for
SEEDS = [pytest.param((0, 1, 2, 3, 5, 9, 10), 300), pytest.param(range(5, 130), 10_000, marks=pytest.mark.slow)]


class Drawn(NamedTuple):
    """Possible policies of a model on a cluster."""

    space: Space
    rows: np.ndarray
    policies: Policies

    def cost(self, cluster: Cluster, constants: Constants = MEASURED, **changes: np.ndarray) -> StepEstimate:
        policies = replace(self.policies, **changes)
        return estimate(self.space.model, policies, cluster, self.space.global_batch, constants)


def drawn(seed: int, most_nodes: int = 32, ways=WAYS, frameworks=(None,)) -> Drawn:
    random = np.random.default_rng(seed)
    cluster = a_cluster(random, most_nodes)
    overlap, precision = (str(random.choice(kinds)) for kinds in (OVERLAPS, [*cluster.gpu.peak_flops]))
    host = 10 ** np.random.default_rng((seed, 1)).uniform(7, 11)  # by itself, so that other draws are as without it
    cluster = replace(cluster, gpu=replace(cluster.gpu, host_bandwidth=host))
    batch = cluster.gpus * int(random.choice([4, 8, 24, 64]))
    framework = frameworks[seed % len(frameworks)]
    space = Space(a_model(random), cluster, batch, ways, precision, overlap, framework)
    rows = random.integers(0, space.sizes, (15_000, len(space.sizes)))
    rows = rows[space.possible(rows)][:150]
    switches, policies = random.random((2, len(rows))) < 0.5, space.policies(rows)
    depths = np.random.default_rng((seed, 2)).choice([0, 1, 3], len(rows))
    return Drawn(
        space,
        rows,
        replace(
            policies,
            partition_checkpoints=switches[0],
            offload_checkpoints=switches[1],
            prefetch=np.where(policies.zero == 3, depths, 1),
        ),
    )


def a_model(random: np.random.Generator) -> Model:
    heads, layers, sequence, vocab = (
        int(random.choice(of))
        for of in ([8, 12, 16, 32, 64], [6, 12, 24, 32, 80], [512, 1000, 4096, 65_536], [1000, 50257, 256_000])
    )
    gated, tied, flash = (bool(random.integers(2)) for _ in range(3))
    keys = int(random.choice([1, 4, heads]))
    model = Model(layers, heads * 128, heads, sequence, vocab, None, keys, None, gated, tied, flash)
    own = random.spawn(1)[0]  # so that dense draws are what they would be without
    return replace(model, **some_experts(own)) if own.random() < 0.5 else model


def some_experts(random: np.random.Generator) -> dict[str, int | float]:
    """Few wide experts or many narrow ones, in every layer or in every second."""
    drawn = {"experts": [4, 8, 64], "active_experts": [1, 2, 4], "expert_hidden": [512, 4096], "shared_experts": [0, 2]}
    drawn |= {"expert_every": [1, 2], "capacity": [1, 1.25, 4]}
    return {name: random.choice(values).item() for name, values in drawn.items()}


def a_cluster(random: np.random.Generator, most_nodes: int) -> Cluster:
    """A shipped one whose links, memory and peak nobody sells."""
    cluster = Cluster.named(str(random.choice(names())))
    cluster = cluster.with_gpus(cluster.per_node * int(random.choice([n for n in (1, 2, 4, 8, 32) if n <= most_nodes])))
    gpu, speed = cluster.gpu, 10 ** random.uniform(-1, 1)
    rate = gpu.memory_bandwidth * 10 ** random.uniform(-0.7, 0.7)
    gpu = replace(gpu, memory_bandwidth=rate, peak_flops={name: speed * peak for name, peak in gpu.peak_flops.items()})
    links = {
        name: replace(
            getattr(cluster, name), bandwidth=10 ** random.uniform(8, 12), latency=10 ** random.uniform(-7, -3)
        )
        for name in ("intra", "inter")
    }
    return replace(cluster, gpu=gpu, **links)


@pytest.mark.parametrize("seed", range(6))
def test_fewer_links_between_switches_never_make_a_step_faster(seed):
    """And as many as there are below cost nothing, bit for bit."""
    some = drawn(seed)
    network, before = some.space.cluster.network, some.cost(some.space.cluster).step_seconds
    rails = isinstance(network, Rails)
    for links in (32, 16, 5, 1):
        tree = FatTree((32,), (links,))
        wired = Rails(tree) if rails else tree
        after = some.cost(replace(some.space.cluster, network=wired)).step_seconds
        assert (after == before).all() if links == 32 else (after >= before).all()
        if rails:
            cut = some.cost(replace(some.space.cluster, network=replace(wired, pxn=False))).step_seconds
            assert (cut >= after).all()
        before = after


@pytest.mark.parametrize(("seeds", "least"), SEEDS)
def test_nothing_better_makes_a_step_slower_and_no_part_is_negative_or_no_number(seeds, least):
    count, spread, by_heads, waiting = 0, 0, 0, 0
    for seed in seeds:
        some = drawn(seed, frameworks=ANY)
        cluster, factor = some.space.cluster, (1.05, 1.5, 4)[seed % 3]
        for constants in (MEASURED, LAUNCHING):
            cost = some.cost(cluster, constants)
            for part, each in {**cost.seconds, **cost.bytes}.items():
                assert (np.isfinite(each) & (each >= 0)).all(), (seed, part)
            machines = [(name, better, constants) for name, better in faster(cluster, factor)]
            machines += [(name, cluster, replace(constants, **{name: value})) for name, value in BETTER.items()]
            for name, better, reached in machines:
                new = some.cost(better, reached)
                slower = np.flatnonzero(new.step_seconds > cost.step_seconds * (1 + 1e-9))
                assert not slower.size, f"{seed}: {factor} x {name} slows {some.space.policy(some.rows[slower[0]])}"
                assert (new.memory_bytes == cost.memory_bytes).all()
        count, spread = count + len(some.rows), spread + int((some.policies.expert > 1).sum())
        by_heads += int((some.policies.context_by > 0).sum())
        waiting += int((some.policies.prefetch == 0).sum())
    assert count >= least, "the draws hold too few possible policies"
    assert spread >= least / 10, "the draws spread too few experts"
    assert by_heads >= least / 20, "the draws split the heads of too few sequences"
    assert waiting >= least / 20, "the draws prefetch too often"


@pytest.mark.parametrize(("seeds", "least"), [((1, 2, 9), 8), pytest.param(range(60), 250, marks=pytest.mark.slow)])
def test_recomputing_on_some_stages_lies_between_none_and_all_and_nothing_better_slows_it(seeds, least):
    count = 0
    for seed in seeds:
        some = drawn(seed, most_nodes=4, frameworks=ANY)
        space, random = some.space, np.random.default_rng(seed)
        model, batch = space.model, space.global_batch
        for policy in [space.policy(row) for row in some.rows if space.policy(row).pipeline > 1][:5]:
            pieces, passes = policy.pipeline * policy.chunks, batch // (policy.data * policy.micro_batch)
            if pieces * passes > 2000:
                continue  # the event loop takes its time
            moved, often = bool(random.integers(2)), int(random.integers(1, 3))
            every = replace(policy, recompute="full", recompute_every=often, offload_checkpoints=moved)
            every = replace(every, stages=(model.layers // pieces,) * pieces)
            few = replace(every, recompute_stages=int(random.integers(1, policy.pipeline)))
            none = replace(every, recompute="none", recompute_every=1)
            low, price, high = (predict(model, one, space.cluster, global_batch=batch) for one in (none, few, every))
            assert low.step_seconds * (1 - 1e-9) <= price.step_seconds <= high.step_seconds * (1 + 1e-9), few
            assert high.memory_bytes * (1 - 1e-9) <= price.memory_bytes <= low.memory_bytes * (1 + 1e-9), few
            assert low.hfu * low.step_seconds <= price.hfu * price.step_seconds <= high.hfu * high.step_seconds
            assert sum(price.breakdown["seconds"].values()) == pytest.approx(price.step_seconds, rel=1e-12)
            assert min(price.breakdown["seconds"].values()) >= 0
            for name, better in faster(space.cluster, (1.05, 1.5, 4)[seed % 3]):
                new = predict(model, few, better, global_batch=batch)
                assert new.step_seconds <= price.step_seconds * (1 + 1e-9), (name, few)
            count += 1
    assert count >= least, "the draws hold too few pipelines"


@pytest.mark.parametrize(("seeds", "least"), SEEDS)
def test_each_zero_stage_holds_less_and_sends_more_than_the_one_before(seeds, least):
    """But the all-reduce of stage 0, whose gradients come back as wide as they went; and stage 3, which holds whole
    layers beside its shards."""
    for seed in seeds:
        some = drawn(seed)
        policies, never = some.policies, np.zeros(len(some.rows), dtype=int)
        costs = [some.cost(some.space.cluster, zero=never + stage, overlap=never) for stage in range(4)]
        held, sent = [cost.memory_bytes for cost in costs], [cost.seconds["data"] for cost in costs]
        shards = some.cost(some.space.cluster, zero=never, expert=never + 1).bytes["weights"] / policies.shard
        assert (held[1] <= held[0]).all(), seed
        assert (held[2] <= held[1]).all(), seed
        assert (held[3] <= (held[2] + shards * (policies.shard > 1)) * (1 + 1e-9)).all(), seed
        assert (sent[1] <= sent[2] * (1 + 1e-9)).all(), seed
        assert (sent[2] <= sent[3] * (1 + 1e-9)).all(), seed


@pytest.mark.parametrize(("seeds", "least"), SEEDS)
def test_units_that_are_fetched_ahead_save_time_and_take_memory(seeds, least):
    for seed in seeds:
        some = drawn(seed)
        costs = [some.cost(some.space.cluster, zero=0 * some.policies.zero + 3, prefetch=np.array(d)) for d in range(4)]
        for shallow, deep in pairwise(costs):
            assert (deep.memory_bytes >= shallow.memory_bytes).all(), seed
            assert (deep.step_seconds <= shallow.step_seconds * (1 + 1e-12)).all(), seed


@pytest.mark.parametrize("seeds", [(0, 1, 2, 5), pytest.param(range(3, 100), marks=pytest.mark.slow)])
def test_a_search_says_what_predict_says_and_neither_random_policies_nor_slower_machines_beat_it(seeds):
    for seed in seeds:
        some = drawn(seed, most_nodes=2, ways=(way(),), frameworks=ANY)
        model, cluster, batch = (getattr(some.space, name) for name in ("model", "cluster", "global_batch"))
        costs, found = estimate(model, some.space.policies(some.rows), cluster, batch), best(some.space, cluster)
        fits = costs.memory_bytes <= cluster.gpu.memory_bytes
        assert (costs.step_seconds[fits] >= found * (1 - 1e-9)).all(), seed
        for i in range(min(3, len(some.rows))):
            alone = predict(model, some.space.policy(some.rows[i]), cluster, global_batch=batch)
            assert alone.fits == fits[i]
            assert sum(alone.breakdown["seconds"].values()) == pytest.approx(costs.step_seconds[i], rel=1e-12)
            assert sum(alone.breakdown["bytes"].values()) == pytest.approx(costs.memory_bytes[i], rel=1e-12)
        name, better = [*faster(cluster, 2.0)][seed % 7]
        assert best(some.space, better) <= found * (1 + 1e-9), (seed, name)


def best(space: Space, cluster: Cluster) -> float:
    """Seconds of the best plan of psgd; infinite where nothing fits."""
    settings = {"precision": space.precision, "overlap": space.overlap, "framework": space.framework}
    settings["constants"] = MEASURED
    try:
        plan = search(space.model, cluster, space.global_batch, top=1, **settings)[0]
    except ValueError:
        return np.inf
    assert plan.prediction == predict(space.model, plan.policy, cluster, global_batch=space.global_batch)
    assert plan.prediction.fits
    return plan.step_seconds
