"""`commeff plan --explain`, `--compare`: what is printed is what the planner says of each change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from commeff.cluster import Crossbar, FatTree, Rails
from commeff.experiments.planning.explain import explain, neighbours
from commeff.experiments.planning.question import read_question
from commeff.planner import Policy
from tests.experiments.planning.test_plan import found, plan

WORDS = ["model=gpt3-13b", "gpus=32", "global_batch=64"]


TREE = FatTree((2,), (1,), hop=1e-4)


@pytest.mark.parametrize("network", [Crossbar(), TREE, Rails(TREE), Rails(TREE, pxn=False)])
@pytest.mark.parametrize("overlap", ["none", "partial", "full"])
@pytest.mark.parametrize(
    "policy",
    [
        Policy(4, 4, 2, zero=1),
        Policy(data=32, zero=3),
        Policy(8, 2, 2, recompute="full"),
        Policy(2, 4, 4, recompute="full", recompute_stages=2, offload_checkpoints=True),
    ],
)
def test_derivatives_add_up_to_one(policy, overlap, network):
    """A step twice as long on a machine twice as slow: Euler's theorem on homogeneous functions."""
    question, policy = read_question(WORDS), replace(policy, overlap=overlap)
    slow = replace(question.cluster.gpu, host_bandwidth=1e8)
    question = replace(question, cluster=replace(question.cluster, network=network, gpu=slow))
    rows = explain(question, policy, question.predict(policy))["machine"]
    assert sum(row["derivative"] for row in rows) == pytest.approx(1, abs=0.01)
    assert all(row["saved_by_twice"] >= 0 and row["derivative"] >= 0 for row in rows)
    assert next(row for row in rows if row["better"] == "GPU memory")["saved_by_twice"] == 0


def test_what_twice_a_link_is_said_to_save_is_what_the_planner_says_of_it():
    words = ["model=llama2-7b", "gpus=64", "zero=3", "recompute=full"]
    slow, fast = (found(*words, f"bandwidth={rate} Gb/s", "--explain") for rate in (10, 20))
    row = next(row for row in slow["explain"]["machine"] if row["better"] == "bandwidth of a NIC")
    assert row["saved_by_twice"] == pytest.approx(1 - fast["step_seconds"] / slow["step_seconds"])
    assert row["saved_by_twice"] > 0.2
    for other in slow["explain"]["policies"]:
        changed = found(*words, "bandwidth=10 Gb/s", *other["change"].split())
        assert changed["step_seconds"] == pytest.approx(other["step_seconds"])
        assert changed["fits"] == other["fits"]


@pytest.mark.parametrize("more", [["zero=3", "unit=4"], ["zero=3", "reshard=false"], ["recompute=none"]])
def test_the_words_of_a_change_give_its_policy_after_those_of_the_first(more):
    words = [*WORDS, "tensor=2", "pipeline=4", "schedule=interleaved", "chunks=2", "sequence_parallel=true"]
    words += ["recompute=full", "recompute_every=2"] * (more[0] != "recompute=none") + more
    question = read_question(words)
    changes = dict(neighbours(question, question.one()))
    assert {"sequence_parallel=false", "chunks=1 schedule=zero_bubble"} <= changes.keys()
    if more[0] == "zero=3":
        assert {"recompute=none recompute_every=1"} < changes.keys()
        assert any("unit" in change for change in changes)
        assert any("reshard" in change for change in changes)
    for change, prediction in changes.items():
        again = read_question([*words, *change.split()])
        assert again.predict(again.one()) == prediction


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["zero=3", "prefetch=2"], {"prefetch=1", "data=16 context=2", "data=16 context=2 context_by=all_to_all"}),
        (["zero=3", "context=4"], {"prefetch=0", "context_by=all_to_all", "data=4 context=8", "data=16 context=2"}),
        (["context=4", "context_by=all_to_all"], {"context_by=ring", "data=4 context=8", "data=16 context=2"}),
        (["framework=deepspeed"], {"data=16 context=2 context_by=all_to_all"}),
    ],
)
def test_ranks_of_a_sequence_may_split_it_the_other_way_and_units_come_sooner_or_later(words, some):
    question = read_question(["model=llama2-7b", "gpus=32", "global_batch=64", *words])
    changes = dict(neighbours(question, question.one()))
    assert some <= changes.keys()
    assert ("data=16 context=2" in changes) == ("framework=deepspeed" not in words)


def test_a_pipeline_that_does_not_fit_may_recompute_on_its_first_stages():
    words = ["model=llama2-13b", "sequence=8192", "gpus=8", "pipeline=8", "global_batch=64"]
    first = found(*words, "--explain")["explain"]["policies"][0]
    assert first["fits"]
    assert first["change"] == "recompute=full recompute_stages=1"
    changes = dict(neighbours(question := read_question([*words, *first["change"].split()]), question.one()))
    assert {"recompute_stages=2", "recompute_stages=4", "recompute=none recompute_stages=0"} < changes.keys()


def test_two_files_are_compared_part_by_part(tmp_path: Path):
    for name, content in {"a": "tensor: 8\nzero: 1", "b": "tensor: 4\npipeline: 2\nstages: [21, 19]"}.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    files = [str(tmp_path / f"{name}.yaml") for name in "ab"]
    both = json.loads(plan(*WORDS, "--compare", *files, "--json").stdout)
    alone = found(*WORDS, "tensor=4", "pipeline=2", "stages=21,19")
    assert both[files[1]]["seconds"] == alone["seconds"]
    told = plan(*WORDS, "--compare", *files).stdout
    assert f"{alone['step_seconds'] - both[files[0]]['step_seconds']:.4g}" in told
    assert "two files, got" in plan(*WORDS, "--compare", files[0], files[0], code=2).stderr
    same = tmp_path / "other" / "a.yaml"
    same.parent.mkdir()
    same.write_text("tensor: 4")
    assert str(same) in plan(*WORDS, "--compare", files[0], str(same)).stdout.partition("seconds ")[2]
    (tmp_path / "b.yaml").write_text("tensors: 4")
    assert "did you mean tensor" in plan(*WORDS, "--compare", *files, code=2).stderr
    (tmp_path / "b.yaml").write_text("- 4")
    assert "KEY: VALUE" in plan(*WORDS, "--compare", *files, code=2).stderr
    assert "single policy" in plan(*WORDS, "--compare", *files, "--explain", code=2).stderr
