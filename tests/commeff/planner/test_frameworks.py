"""A framework is fields of a policy under one name; a search for it finds what it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster, Link
from commeff.experiments.planning import emit
from commeff.experiments.planning.models import named
from commeff.experiments.planning.plan import policy_words
from commeff.experiments.planning.question import read_question
from commeff.planner import FRAMEWORKS, Policies, Policy, estimate, predict, search
from commeff.planner.policies import OVERLAPS
from commeff.planner.search import Space
from tests.commeff.planner.test_monotone import drawn

WORDS = ["model=llama3-8b", "cluster=h100_400g", "gpus=64", "global_batch=128"]
EMIT = {"fsdp": "torchtitan", "megatron": "megatron"}


def seconds(*words: str) -> float:
    question = read_question([*WORDS, *words])
    return question.predict(question.one()).step_seconds


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "fp8"])
def test_every_stage_of_every_framework_is_a_policy(framework, precision):
    for zero in range(4):
        fields = FRAMEWORKS[framework].fields(precision, zero)
        assert Policy(data=8, precision=precision, **fields).zero == zero


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("megatron", ["zero=1", "tensor=2", "pipeline=4"]),
        ("fsdp", ["zero=3", "tensor=2", "pipeline=4", "sequence_parallel=true"]),
        ("fsdp", ["zero=2", "overlap=full"]),
        ("deepspeed", ["zero=1", "tensor=2", "pipeline=4"]),
        ("deepspeed", ["zero=3", "bucket=50000000"]),
    ],
)
def test_a_framework_is_the_fields_that_are_printed(framework, words):
    question = read_question([*WORDS, *words, f"framework={framework}"])
    policy = question.one()
    plain = read_question([*WORDS, *policy_words(policy).split()])
    assert plain.one() == policy
    assert plain.predict(plain.one()) == question.predict(policy)
    assert all(word in policy_words(policy) for word in words)


def test_messages_of_tensor_and_of_data_parallel_ranks_hide_apart():
    for seed in range(4):
        some = drawn(seed)
        steps = {}
        for place, overlap in enumerate(OVERLAPS):
            steps[overlap] = some.cost(some.space.cluster, overlap=np.full(len(some.rows), place)).step_seconds
        close = 1 + 1e-12
        for more, fewer in (("none", "tensor"), ("none", "data"), ("tensor", "partial"), ("data", "partial")):
            assert (steps[fewer] <= steps[more] * close).all()
        assert (steps["full"] <= steps["partial"] * close).all()
        alone = (some.policies.tensor == 1) & (some.policies.context == 1)
        assert alone.any()
        assert (steps["tensor"] == steps["none"])[alone].all()
        assert (steps["data"] == steps["partial"])[alone].all()
        single = (some.policies.data == 1) & (some.policies.context == 1)
        assert (steps["data"] == steps["none"])[single].all()
        assert (steps["partial"] < steps["none"]).any()


def test_no_framework_is_faster_than_ideal():
    fields, constants = FRAMEWORKS["ideal"].always, FRAMEWORKS["ideal"].constants
    for seed in range(4):
        some = drawn(seed)
        full = np.full(len(some.rows), OVERLAPS.index(fields["overlap"]))
        bound = some.cost(some.space.cluster, constants, overlap=full, bucket=0 * full)
        cost = some.cost(some.space.cluster)
        assert (bound.step_seconds < cost.step_seconds).all()
        assert (bound.memory_bytes < cost.memory_bytes).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_search_finds_the_fastest_policy_that_the_framework_runs(framework):
    model, cluster = named("gpt3-xl"), Cluster.named("a100_selene", gpus=16)
    constants = FRAMEWORKS[framework].constants
    plans = search(model, cluster, 64, framework=framework, top=5)
    question = read_question(["model=gpt3-xl", "gpus=16", "global_batch=64"])
    for plan in plans:
        assert plan.prediction == predict(model, plan.policy, cluster, global_batch=64, constants=constants)
        fields = FRAMEWORKS[framework].fields("bf16", plan.policy.zero)
        assert {name: getattr(plan.policy, name) for name in fields} == fields
        if framework in EMIT and plan.policy.stages is None:
            emit.FRAMEWORKS[EMIT[framework]](question, plan.policy)
    space = Space(model, cluster, 64, framework=framework)
    rows = np.random.default_rng(0).integers(0, space.sizes, (5000, len(space.sizes)))
    rows = rows[space.possible(rows)]
    assert len(rows) > 20
    costs = estimate(model, space.policies(rows), cluster, 64, constants)
    fits = costs.memory_bytes <= cluster.gpu.memory_bytes
    assert (costs.step_seconds[fits] >= plans[0].step_seconds * (1 - 1e-12)).all()


def test_half_gradients_are_half_the_bytes():
    """Of an all-reduce, where latencies cost nothing; at the step there is an fp32 copy of them."""
    cluster = Cluster.named("a100_selene", gpus=64)
    cluster = replace(cluster, intra=Link(1e11, 0), inter=Link(1e10, 0))
    model = named("gpt3-xl")
    policy = Policy(data=64, overlap="none", bucket=0)
    wide, half = (
        estimate(model, Policies.of([replace(policy, half_gradients=half)]), cluster, 64) for half in (False, True)
    )
    assert half.seconds["data"] == pytest.approx(wide.seconds["data"] / 2, rel=1e-12)
    assert half.bytes["gradients"] == wide.bytes["gradients"] / 2
    assert half.bytes["optimizer"] == wide.bytes["optimizer"] * 16 / 12


def test_a_stage_that_is_tried_is_run_as_the_framework_runs_it():
    question = read_question([*WORDS, "framework=deepspeed", "zero=1"])
    three = question.replaced(question.one(), zero=3)
    assert (three.unit, three.overlap, three.half_gradients) == (0, "data", True)
    assert question.replaced(three, zero=1) == question.one()
    given = read_question([*WORDS, "framework=deepspeed", "zero=1", "overlap=partial"])
    assert given.replaced(given.one(), zero=3).overlap == "partial"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["framework=megatro"], "did you mean megatron"),
        (["framework=megatron", "pipeline=4", "schedule=zero_bubble"], "schedule must be 1f1b or interleaved"),
        (["framework=fsdp", "zero=1"], "zero must be 2 or 3 with framework=fsdp"),
        (["framework=fsdp", "tensor=2"], "sequence_parallel must be true with framework=fsdp and tensor=2"),
        (["framework=deepspeed", "zero=2", "pipeline=2"], "zero must be 0 or 1 with framework=deepspeed"),
        (["framework=deepspeed", "data=64", "workers=2"], "workers must be 1 and precision 16 bits"),
        (["framework=fsdp", "zero=7"], "zero must be 0"),
        (["half_gradients=true", "precision=fp32"], "precision 16 bits with half_gradients"),
        (["bucket=-1"], "bucket must be a whole number of at least 0, got -1"),
    ],
)
def test_what_a_framework_does_not_run_is_refused_in_one_line(words, said):
    with pytest.raises(ValueError, match=said) as refusal:
        seconds(*words)
    assert "\n" not in str(refusal.value)
