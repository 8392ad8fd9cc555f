"""Laws of the search: brute force is the truth, budgets are kept, seeds decide, what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from commeff.cluster import Cluster, FatTree, Link, Rails
from commeff.experiments.planning.models import named
from commeff.planner import Model, Policy, WorkerMethod, estimate, predict, search
from commeff.planner.search import METHODS, Space
from commeff.planner.search.api import GUIDED
from commeff.planner.search.everything import scan
from commeff.planner.search.guided import EvenPolicies, Problem, drive
from tests.commeff.planner.ways import way
from tests.counting import calls

SMALL = Model(layers=6, hidden=1024, heads=8, sequence=512, vocab=64_000)
EIGHT = Cluster.named("a100_selene", gpus=8)
LARGE = Model(layers=96, hidden=12288, heads=96, sequence=2048, vocab=51200)
WAYS = (
    way(),
    way("local_sgd period=8", steps=1.1),
    way("dsgd degree=1", steps=1.2),
    way("mem_sgd compressor=top_k compressor.ratio=0.01", steps=3),
)


class Counted(Problem):
    """Counts what is priced; odd sums are not possible."""

    def __init__(self, sizes: tuple[int, ...] = (6, 5, 4, 3)) -> None:
        self.sizes, self.priced = sizes, 0
        self.seen: set[tuple[int, ...]] = set()

    def possible(self, rows):
        return rows.sum(axis=1) % 2 == 0

    def price(self, rows):
        assert self.possible(rows).all()
        self.priced += len(rows)
        self.seen |= {tuple(row) for row in rows}
        return ((rows - np.array(self.sizes) // 2) ** 2).sum(axis=1).astype(float)


def test_brute_force_finds_the_best_of_all_policies_priced_one_by_one():
    plans, best = search(SMALL, EIGHT, 32), np.inf
    for t, p, b, zero, recompute, split, (schedule, v) in product(
        (1, 2, 4, 8), (1, 2), (1, 4), range(4), ("none", "selective", "full"), (False, True),
        (("1f1b", 1), ("interleaved", 3), ("zero_bubble", 1)),
    ):  # fmt: skip
        if 8 % (t * p):
            continue
        policy = Policy(t, p, 8 // (t * p), 1, b, v, schedule, zero, recompute, split)
        try:
            found = predict(SMALL, policy, EIGHT, global_batch=32)
        except ValueError:
            continue
        best = min(best, found.step_seconds) if found.fits else best
    assert plans[0].step_seconds <= best * (1 + 1e-9)
    assert [plan.cost for plan in plans] == sorted(plan.cost for plan in plans)
    assert all(plan.prediction.fits for plan in plans)
    for plan in plans:
        assert predict(SMALL, plan.policy, EIGHT, global_batch=32) == plan.prediction


@pytest.mark.parametrize("method", METHODS)
def test_no_method_beats_brute_force(method):
    truth = search(SMALL, EIGHT, 32, ways=WAYS)[0]
    assert truth.cost <= search(SMALL, EIGHT, 32, 150, method, ways=WAYS)[0].cost * (1 + 1e-9)


@pytest.mark.parametrize(("layers", "vocab"), [(7, 64_000), (11, 8_000), (11, 256_000)])
def test_dynamic_and_integer_programming_equal_brute_force_where_stages_are_unequal(layers, vocab):
    model = Model(layers=layers, hidden=4096, heads=32, sequence=2048, vocab=vocab)  # prime: no even pipeline
    slow = Cluster("slow", 4, EIGHT.gpu, 1, Link(2e9, 1e-5), Link(2e9, 1e-5))
    plans = {method: search(model, slow, 16, method=method, top=1)[0] for method in ("exhaustive", "dp", "ilp")}
    assert plans["exhaustive"].policy.stages is not None
    assert plans["dp"].cost == pytest.approx(plans["exhaustive"].cost, rel=1e-9)
    assert plans["ilp"].cost == pytest.approx(plans["exhaustive"].cost, rel=1e-9)


@pytest.mark.parametrize("method", GUIDED)
@pytest.mark.parametrize("budget", [1, 7, 50])
def test_budgets_are_spent_to_the_last_evaluation_and_no_row_is_paid_for_twice(method, budget):
    problem, random = Counted(), np.random.default_rng(3)
    trace = drive(GUIDED[method](problem, random), problem, budget, random)
    assert problem.priced == budget == len(problem.seen) == len(trace.values)


@pytest.mark.parametrize("method", GUIDED)
def test_a_space_smaller_than_the_budget_is_priced_once_and_whole(method):
    problem, random = Counted((3, 2, 2)), np.random.default_rng(0)
    drive(GUIDED[method](problem, random), problem, 1000, random)
    assert problem.priced == len(problem.seen) == 6


@pytest.mark.parametrize("budget", [1, 5, 200])
def test_brute_force_stops_at_its_budget(budget):
    assert scan(Space(SMALL, EIGHT, 32), 3, budget).priced == budget


@pytest.mark.parametrize("method", GUIDED)
def test_the_same_seed_gives_the_same_plans_and_another_does_not(method):
    problem = EvenPolicies(Space(LARGE, Cluster.named("a100_selene", gpus=1024), 1536))

    def first(seed):
        random = np.random.default_rng(seed)
        return drive(GUIDED[method](problem, random), problem, 60, random).rows

    assert (first(0) == first(0)).all()
    assert (first(0) != first(1)).any()


@pytest.mark.parametrize("method", ["evolution", "bayes", "reinforce"])
def test_guided_searches_beat_random_search_on_average_at_equal_evaluations(method):
    problem = EvenPolicies(Space(LARGE, Cluster.named("a100_selene", gpus=1024), 1536))

    def reached(name):
        values = []
        for seed in range(4):
            random = np.random.default_rng(seed)
            values.append(drive(GUIDED[name](problem, random), problem, 1000, random).best[-1])
        return np.mean(values)

    assert reached(method) < reached("random")


def test_brute_force_prices_many_policies_at_once():
    space = Space(LARGE, Cluster.named("a100_selene", gpus=1024), 1536, WAYS)
    scan(space, 1, budget=1)  # torch imports a second's worth of modules with the first optimizer
    found, count = calls(lambda: scan(space, 1))
    assert found.priced > 400_000
    assert count < 10 * found.priced  # a hundred thousand policies a second


@pytest.mark.parametrize(
    "cluster", [EIGHT, replace(EIGHT.with_gpus(48), network=Rails(FatTree((2, 2), (1, 1)), False))]
)
def test_rows_mean_the_same_one_by_one_and_all_at_once(cluster):
    space = Space(SMALL, cluster, 96, WAYS)
    rows = np.vstack(list(space.blocks()))
    picked = rows[np.random.default_rng(0).choice(len(rows), 60, replace=False)]
    together = estimate(SMALL, space.policies(picked), cluster, 96)
    for i, row in enumerate(picked):
        alone = predict(SMALL, space.policy(row), cluster, global_batch=96)
        assert alone.step_seconds == pytest.approx(together.step_seconds[i], rel=1e-12)
        assert alone.memory_bytes == pytest.approx(together.memory_bytes[i], rel=1e-12)


def test_no_policy_is_listed_twice():
    space = Space(SMALL, EIGHT, 32, WAYS)
    policies = [space.policy(row) for rows in space.blocks() for row in rows]
    assert len(set(policies)) == len(policies) > 1000


def test_steps_are_part_of_what_is_made_small():
    slow = EIGHT.with_gpus(16).with_inter(bandwidth=1e8)
    local, dear = (way("local_sgd period=16", steps) for steps in (1.0, 1000.0))
    assert search(SMALL, slow, 64, ways=(way(), local))[0].policy.method == local.method
    assert search(SMALL, slow, 64, ways=(way(), dear))[0].policy.method == "psgd"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"method": "exhaustiv"}, "did you mean exhaustive"),
        ({"budget": 0}, "budget must be .* got 0"),
        ({"budget": 2.5}, "budget must be .* got 2.5"),
        ({"top": 0}, "top must be .* got 0"),
        ({"seed": -1, "method": "random"}, "seed must be .* got -1"),
        ({"global_batch": 0}, "global_batch must be .* got 0"),
        ({"ways": ()}, "at least one method"),
        ({"precision": "fp8"}, "has no fp8"),
        ({"overlap": "some"}, "overlap must be one of"),
        ({"model": LARGE}, "fits in the 80 GiB"),
        ({"model": LARGE, "method": "random", "budget": 20}, "fits in the 80 GiB"),
        ({"model": Model(7, 1001, 7, 512, 1000), "global_batch": 5}, "no policy lays global_batch=5"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(arguments, said):
    given = {"model": SMALL, "cluster": EIGHT, "global_batch": 32} | arguments
    with pytest.raises(ValueError, match=said) as refusal:
        search(**given)
    assert "\n" not in str(refusal.value)


def test_the_first_plans_of_8b_on_64_gpus_are_those_of_an_expert():
    """Sharded data parallelism without a pipeline, at most two tensor ranks, small micro-batches."""
    cluster = Cluster.named("h100_400g", gpus=64)
    for plan in search(named("llama3-8b"), cluster, 128, top=5):
        policy = plan.policy
        assert (policy.pipeline, policy.zero > 0, policy.tensor <= 2, policy.micro_batch <= 2) == (1, True, True, True)
        assert 0.4 < plan.prediction.mfu < 0.55


def test_only_long_sequences_are_split_over_ranks():
    cluster, long = Cluster.named("h100_400g", gpus=64), replace(named("llama3-8b"), sequence=1 << 20)
    assert {policy.context for policy in (plan.policy for plan in search(long, cluster, 64, top=5))} - {1}
    short = Space(named("llama3-8b"), cluster, 128)
    assert {value["context"] for value in short.values["tensor"]} == {1}
    parts = {value["context"] for value in Space(replace(long, sequence=65_536), cluster, 64).values["tensor"]}
    assert parts == {1, 2, 4, 8}


def test_a_way_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="psgd or a function"):
        WorkerMethod("mem_sgd")
    with pytest.raises(ValueError, match="steps must be a number above 0"):
        WorkerMethod(steps=0)
