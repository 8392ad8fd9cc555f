"""What `commeff plan --search` says of its plans: why each is where it is, what would help the first, and workers that
make no difference in one row.
"""

from __future__ import annotations

import re

import pytest

from commeff.experiments.planning.plan import MEANING, reason, shares
from commeff.experiments.planning.question import read_question
from commeff.experiments.planning.robust import ranked
from commeff.planner import search
from tests.experiments.planning.test_plan import found, plan

EIGHT_B = ["model=llama3-8b", "cluster=h100_400g", "gpus=64"]
SMALL = ["model=llama2-7b", "gpus=16"]


@pytest.mark.parametrize("words", [EIGHT_B, ["model=gpt3-13b", "cluster=a100_25g", "gpus=64", "global_batch=128"]])
def test_the_shares_of_a_reason_are_those_of_the_prediction(words):
    question = read_question(words)
    plans = [one.plan for one in ranked(question, search(question.model, question.cluster, question.global_batch))]
    first = plans[0]
    seconds = first.prediction.breakdown["seconds"]
    assert sum(shares(first).values()) == pytest.approx(1)
    assert sorted(shares(first).values()) == pytest.approx(sorted(x / first.step_seconds for x in seconds.values()))
    for each in plans[1:]:
        more = shares(each, first)
        assert more.keys() <= MEANING.keys()
        assert sum(more.values()) == pytest.approx(each.step_seconds / first.step_seconds - 1, abs=1e-12)
        gathers = each.prediction.breakdown["seconds"]["data"] if each.policy.zero == 3 else 0.0
        before = seconds["data"] if first.policy.zero == 3 else 0.0
        assert more.get("gathers", 0.0) == pytest.approx((gathers - before) / first.step_seconds, abs=1e-12)
    for each in plans:
        told, room = reason(question, each, first).split("; ")
        printed = [float(number) for number in re.findall(r"(\S+) % ", told)]
        whole = 100 if each is first else 100 * (each.step_seconds / first.step_seconds - 1)
        assert sum(printed) == pytest.approx(whole, abs=0.05 * len(MEANING))
        assert ("+" in told or "-" in told) == (each is not first)
        spare = 100 * (question.cluster.gpu.memory_bytes / each.prediction.memory_bytes - 1)
        assert float(room.split()[2]) == pytest.approx(spare, abs=0.5)


def test_a_plan_that_costs_the_same_in_every_part_is_as_the_first():
    question = read_question(SMALL)
    best = search(question.model, question.cluster, question.global_batch, top=1)[0]
    worker = best._replace(policy=question.replaced(best.policy, micro_batch=3))
    assert reason(question, worker, best).startswith("as the first; room")


def test_the_first_plans_of_8b_on_64_gpus_are_those_of_an_expert_and_say_why():
    for each in found(*EIGHT_B, "--search", "--top", "10"):
        policy = read_question([*EIGHT_B, *each["policy"].split()]).one()
        assert policy.tensor <= 2
        assert policy.pipeline <= 2
        assert policy.zero > 0
        assert policy.recompute != "full"
        assert "compute" in each["reason"] or "+" in each["reason"]


@pytest.mark.parametrize("framework", [[], ["framework=megatron"], ["framework=fsdp"]])
def test_what_helps_the_first_plan_is_what_helps_its_policy(framework):
    first, second = found(*SMALL, *framework, "--search", "--top", "2", "--explain")
    alone = found(*SMALL, *framework, *first["policy"].split(), "--explain")
    assert first["explain"] == alone["explain"]
    assert "explain" not in second
    told = plan(*SMALL, *framework, "--search", "--explain").stdout.partition("of the first:")[2]
    printed = plan(*SMALL, *framework, *first["policy"].split(), "--explain").stdout
    assert told.strip()
    assert printed.endswith(told.lstrip("\n"))


def test_rows_of_several_workers_lose_no_plan():
    words = [*EIGHT_B, "--search", "--top", "100"]
    plans, told = found(*words), plan(*words).stdout
    rows = [line.split("  ")[0] for line in told.splitlines() if line.startswith("tensor=")]
    policies = []
    for row in rows:
        several = re.search(r" workers=([\d,]+)", row)
        for workers in several[1].split(",") if several else ():
            policies.append(row.replace(several[0], f" workers={workers}" * (workers != "1")))
        policies += [row] * (several is None)
    assert sorted(policies) == sorted(each["policy"] for each in plans)
    assert len(rows) < len(plans) == 100
    by_policy = {each["policy"]: each for each in plans}
    for row in rows:
        several = re.search(r" workers=([\d,]+)", row)
        values = several[1].split(",") if several else ["1"]
        same = [by_policy[row.replace(several[0], f" workers={w}" * (w != "1")) if several else row] for w in values]
        assert all(each["tied"] for each in same) or len(same) == 1
    few = plan(*EIGHT_B, "--search", "--top", "3").stdout
    assert [line.split("  ")[0] for line in few.splitlines() if line.startswith("tensor=")] == rows[:3]
