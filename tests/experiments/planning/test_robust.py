"""The order of a search's plans: ties, room in memory, and what each loses where one part of the machine is worse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commeff.experiments.planning.explain import faster
from commeff.experiments.planning.question import read_question
from commeff.experiments.planning.robust import CANDIDATES, MORE, RankedPlan, ranked
from commeff.planner import Policy, search
from commeff.planner.constants import HELD_OUT, TIE
from commeff.planner.search import Plan


@pytest.fixture(scope="module", params=["model=llama2-7b cluster=a100_25g gpus=16", "model=gpt3-13b gpus=16"])
def question(request):
    return read_question(request.param.split())


def test_ties_come_first_then_room_then_the_least_loss(question):
    plans = search(question.model, question.cluster, question.global_batch, top=CANDIDATES)
    found = ranked(question, plans)
    assert {one.plan.policy for one in found} == {plan.policy for plan in plans}
    room = question.cluster.gpu.memory_bytes / MORE
    for one in found:
        assert one.tied == (one.plan.step_seconds <= TIE * plans[0].step_seconds)
        assert one.roomy == (one.plan.prediction.memory_bytes <= room)
        assert one.lost >= one.plan.step_seconds / plans[0].step_seconds - 1 - 1e-9
    keys = [(not one.roomy, one.lost) for one in found if one.tied]
    assert len(keys) > 1
    assert keys == sorted(keys)
    assert [one.tied for one in found] == sorted((one.tied for one in found), reverse=True)


def test_the_loss_is_that_on_the_machine_where_a_plan_looks_worst(question):
    plans = search(question.model, question.cluster, question.global_batch, top=8)
    half = question.model.layers // 2
    slow = Policy(8, 2, 1), Policy(8, 2, 1, stages=(half - 3, half + 3))
    plans += [Plan(policy, question.predict(policy)) for policy in slow]
    machines = [question, *(replace(question, cluster=worse) for _, worse in faster(question.cluster, 1 / HELD_OUT[1]))]
    launch = HELD_OUT[1] * question.constants.kernel_seconds
    machines.append(replace(question, constants=replace(question.constants, kernel_seconds=launch)))
    for one in ranked(question, plans):
        losses = []
        for machine in machines:
            best = min(machine.predict(plan.policy).step_seconds for plan in plans[:8])
            losses.append(machine.predict(one.plan.policy).step_seconds / best - 1)
        assert one.lost == pytest.approx(max(losses), abs=1e-9)


def among(policies: tuple[Policy, Policy], batch: int, ratio: float) -> list[RankedPlan]:
    """Both ranked, with a NIC with which the second takes `ratio` times as long as the first, which leans on it."""
    question = read_question(["model=llama2-7b", "cluster=a100_25g", "gpus=16", f"global_batch={batch}"])
    low, high = 1e8, 1e12
    for _ in range(60):
        middle = (low * high) ** 0.5
        there = replace(question, cluster=question.cluster.with_inter(bandwidth=middle))
        first, second = (there.predict(policy).step_seconds for policy in policies)
        low, high = (middle, high) if ratio * first > second else (low, middle)
    there = replace(question, cluster=question.cluster.with_inter(bandwidth=high))
    return ranked(there, [Plan(policy, there.predict(policy)) for policy in policies])


def test_of_two_ties_that_which_leans_on_a_link_comes_second():
    """Gradients that wait for a NIC against a pipeline's bubble, at a bandwidth where both take as long."""
    policies = Policy(8, 1, 2, zero=1, overlap="none"), Policy(8, 2, 1, zero=1)
    first, second = among(policies, 64, 1.0)
    assert first.tied
    assert second.tied
    assert first.plan.policy == policies[1]
    assert first.lost < 0.01 < second.lost


def test_what_is_no_tie_is_not_what_others_lose_to_where_it_would_be_the_fastest():
    policies = Policy(8, 1, 2, zero=1, overlap="none"), Policy(4, 4, 1, schedule="naive")
    first, second = among(policies, 2, TIE + 0.002)
    assert (first.plan.policy, first.tied, second.tied) == (policies[0], True, False)
    assert first.lost == 0
    assert among(policies, 2, TIE - 0.002)[-1].lost > 0.01  # as it is of a tie


def test_bounds_are_in_their_own_order_and_no_ties():
    question = read_question(["model=gpt3-xl", "gpus=4", "framework=ideal"])
    options = {"framework": "ideal", "constants": question.constants}
    plans = search(question.model, question.cluster, question.global_batch, top=30, **options)
    found = ranked(question, plans)
    assert [one.plan for one in found] == plans
    assert sum(one.tied for one in found) == sum(p.step_seconds == plans[0].step_seconds for p in plans)
