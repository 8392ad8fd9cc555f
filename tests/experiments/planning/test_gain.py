"""`commeff gain`: its seconds are the planner's, its verdicts follow from ranges, its diffs build what was priced."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from commeff import compressors, methods, profile, topologies
from commeff.compressors import Layout
from commeff.core import Strategy
from commeff.experiments.cli import app
from commeff.experiments.cli.gain import gain as command
from commeff.experiments.planning.drop_in import expression
from commeff.experiments.planning.evidence import Evidence, evidence
from commeff.experiments.planning.gain import Gain, conclusion, gains
from commeff.experiments.planning.models import models, named, sized
from commeff.experiments.planning.question import read_question
from commeff.experiments.planning.scale.page import model_study
from commeff.experiments.planning.worker_words import MethodWords, method_words
from commeff.experiments.studies.planner.study import measured_steps
from commeff.planner import predict

RUNNER = CliRunner()
SMALL = ["layers=8", "hidden=512", "heads=8", "sequence=512", "vocab=16000", "gpus=16", "cluster=a100_10g"]
KNOWN = evidence(named("llama2-7b"))
EXAMPLES = re.findall(r"\* `commeff gain (.*)`", str(command.__doc__))


def gain(*words: str, code: int = 0):
    """The command's answer."""
    result = RUNNER.invoke(app, ["gain", *words])
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture(scope="module")
def small() -> list[Gain]:
    return gains(read_question(SMALL))


def test_every_row_is_what_plan_says_of_its_policy(small: list[Gain]) -> None:
    assert {each.name for each in small} == {each.name for each in KNOWN}
    for each in small:
        words = [*SMALL, f"global_batch={64 * each.of.batch}", *each.row()["policy"].split(), "--json"]
        answer = json.loads(RUNNER.invoke(app, ["plan", *words]).stdout)
        assert (answer["step_seconds"], answer["memory_bytes"]) == (
            each.row()["step_seconds"],
            each.row()["memory_bytes"],
        )
        most = each.of.way.most_workers
        assert most is None or each.plan.policy.workers <= most


def test_every_row_is_what_scale_says_of_its_policy(small: list[Gain]) -> None:
    """Of those whose worker is a GPU or a node."""
    compared = []
    for each in small:
        policy, inside = each.plan.policy, {1: "gpu", 8: "node"}
        each_worker = policy.gpus // policy.workers if policy.workers > 1 else 8
        if each.of.batch > 1 or each_worker not in inside or 8 % (policy.tensor * policy.pipeline):
            continue
        chosen = ("data", "workers", "method", "compressor", "topology")
        words = [word for word in each.row()["policy"].split() if word.partition("=")[0].split(".")[0] not in chosen]
        study = model_study(
            [*SMALL[:-2], *words, *method_words(each.of.way)],
            cluster="a100_10g",
            workers=16 // each_worker,
            worker=inside[each_worker],
            global_batch=64,
        )
        (shown,) = (p for p in study.points if p.scaling == "strong" and p.gpus == 16)
        row = each.row()
        assert (shown.step, shown.step - shown.compute) == pytest.approx(
            (row["step_seconds"], row["exposed_seconds"]), rel=1e-12
        )
        compared.append(each.name)
    assert len(compared) >= 3
    assert "psgd" in compared


def test_what_is_coded_says_how_its_seconds_are_known(small: list[Gain]) -> None:
    known = {each.name: each.coding for each in small}
    assert known["mem_sgd, top_k, ratio 0.05"] == known["compressed_sgd, qsgd, 4 bits"] == "estimated"
    assert known["power_sgd, rank 32"] == "assumed"
    assert known["psgd"] == known["diloco, period 30"] == known["dsgd, one_peer_exponential"] == ""


def test_at_its_break_even_a_method_needs_the_time_of_psgd(small: list[Gain]) -> None:
    for each in small[1:]:
        at = Evidence(each.name, each.of.way, (each.break_even, each.break_even), batch=each.of.batch)
        hours = Gain(at, each.plan, each.psgd, each.psgd_hours, "").hours
        assert hours == pytest.approx((each.psgd_hours, each.psgd_hours), rel=1e-12)


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [(0.5, 0.99, "wins"), (0.99, 1.0, "depends"), (0.9, 1.1, "depends"), (1.0, 2.0, "loses")],
)
def test_a_verdict_is_the_range_against_the_break_even(
    small: list[Gain], least: float, most: float, verdict: str
) -> None:
    one = next(each for each in small if each.name == "diloco, period 30")
    of = Evidence("", one.of.way, (least * one.break_even, most * one.break_even))
    assert Gain(of, one.plan, one.psgd, 1.0, "").verdict == verdict
    assert Gain(of, one.plan, one.psgd, 1.0, "nobody knows").verdict == "unknown"


def test_steps_that_were_measured_are_those_of_the_curves() -> None:
    measured = measured_steps(Path(__file__).parents[3] / "results" / "converged" / "steps.csv")
    held = [each for each in KNOWN if "measured" in each.kinds]
    assert len(held) >= 3
    for each in held:
        assert each.range[1] == round(measured[each.measured], 2), each.name


def test_every_end_of_a_range_says_whence_it_is() -> None:
    for each in KNOWN:
        assert each.range[0] <= each.range[1]
        assert {*each.kinds} <= {"published", "measured", "assumed"}
        assert each.why


def test_nothing_is_said_beyond_the_sources() -> None:
    rows = gains(read_question(["model=megatron-39.1b", "gpus=64", "cluster=h100_10g", "global_batch=64"]))
    verdicts = {each.name: each.verdict for each in rows}
    assert verdicts["diloco, period 30"] == verdicts["power_sgd, rank 32"] == "unknown"
    assert "its sources end at 10 billion parameters" in {each.silence for each in rows}
    assert conclusion(rows, "it")[0].startswith("On it, no other method than psgd has a verdict: ")
    larger = next(each for each in rows if each.of.batch > 1)
    won = [replace(larger, silence="", of=replace(larger.of, range=(0.0, 0.0))), *rows[1:]]
    assert conclusion([rows[0], *won], "it")[0].startswith(f"On it, {larger.name} wins, but no other method than psgd")
    assert all(each.break_even > 0 for each in rows if each.plan)


def test_on_a_fast_link_psgd_stays_and_on_a_slow_one_it_does_not(small: list[Gain]) -> None:
    fast = gains(read_question([*SMALL[:-1], "cluster=h100_400g", "layers=24", "hidden=2048"]))
    rest = [each for each in fast if each.verdict in ("baseline", "loses", "unknown")]
    assert "psgd stays" in conclusion(rest, "it")[0]
    slow = {each.name: each.break_even for each in small}
    for each in fast[1:]:
        if "psgd" not in each.name:
            assert each.break_even < slow[each.name]
    assert "psgd stays" not in conclusion(small, "it")[0]
    assert next(each for each in small if "diloco" in each.name).verdict == "wins"


def test_a_range_holds_what_the_law_of_the_sweep_says(small: list[Gain]) -> None:
    lawful = [each for each in small if callable(each.of.way.steps)]
    assert len(lawful) == 1
    for each in lawful:
        assert each.of.range[1] >= round(each.of.way.steps_of(each.plan.policy.workers), 2)
        assert each.plan.steps == each.of.way.steps_of(each.plan.policy.workers)


def judged(small: list[Gain], name: str, span: tuple[float, float] | None, batch: int = 1) -> Gain:
    """A row whose range is in units of its break-even; without one, of which nothing is known."""
    one = next(each for each in small if each.name == "diloco, period 30")
    of = Evidence(name, one.of.way, kinds=("given", "given"), batch=batch)
    least, most = span or (0.0, 0.0)
    limit = Gain(of, one.plan, one.psgd, 1.0, "").break_even
    return Gain(replace(of, range=(least * limit, most * limit)), one.plan, one.psgd, 1.0, "" if span else "none")


def test_a_conclusion_is_of_one_row_and_counts_what_that_row_counts(small: list[Gain]) -> None:
    first, of_name = judged(small, "diloco, period 5", (1.1, 1.2)), judged(small, "diloco, period 30", (0.5, 0.7))
    sentence, best = conclusion([small[0], first, of_name], "it")
    assert best is of_name
    assert sentence.startswith("On it, diloco, period 30 reaches psgd's loss 1.42 to 2 times as fast")
    more = judged(small, "psgd, batch x4", (0.9, 1.2), batch=4)
    assert "times psgd's tokens" in conclusion([small[0], more], "it")[0]
    nothing = judged(small, "mem_sgd", None)
    sentence, best = conclusion([small[0], nothing, first], "it")
    assert best is first
    assert sentence.endswith("times its steps; nothing is known of mem_sgd.")
    assert conclusion([small[0], replace(nothing, plan=None)], "it") == (
        "On it, psgd stays: no method has a policy there.",
        small[0],
    )


def test_words_before_the_first_method_belong_to_all_and_a_method_is_compared_once() -> None:
    shared = gain(*SMALL, "method.period=30", "method=diloco", "method=diloco", "--json")
    own = gain(*SMALL, "method=diloco", "method.period=30", "--json")
    assert json.loads(shared.stdout)["rows"] == json.loads(own.stdout)["rows"]
    assert [row["steps_most"] for row in json.loads(own.stdout)["rows"] if row["method"] == "diloco, period 30"]


NAMES = {
    "methods": methods,
    "compressors": compressors,
    "topologies": topologies,
    "partial": partial,
    "torch": torch,
    "adamw": partial(torch.optim.SGD, lr=0.1),
}


@pytest.mark.parametrize("each", [e for e in KNOWN if isinstance(e.way.method, MethodWords)], ids=lambda e: e.name)
def test_the_changed_line_builds_the_strategy_that_was_priced(each: Evidence) -> None:
    built = eval(expression(each.way.method, "8"), NAMES)
    layout = Layout.of([("a", (96, 64)), ("b", (64,))])
    ours, theirs = (profile(each, layout, 8) for each in (built, each.way.strategy(8)))
    assert (ours.payload_bytes, ours.wire_bytes, ours.period) == (
        theirs.payload_bytes,
        theirs.wire_bytes,
        theirs.period,
    )


@pytest.mark.parametrize(
    "words", [("method=diloco", "method.outer.lr=0.5"), ("method=choco", "topology=ring"), ("method=muloco",)]
)
def test_other_methods_have_a_line_too(words: tuple[str, ...]) -> None:
    assert isinstance(eval(expression(MethodWords(words), "8"), NAMES), Strategy)


def test_the_files_hold_every_row(tmp_path: Path) -> None:
    words = [*SMALL, "method=diloco", "method.period=20", "--steps", "1,1.1", "--out", str(tmp_path / "out")]
    answer = json.loads(gain(*words, "--csv", str(tmp_path / "rows.csv"), "--json").stdout)
    assert answer["rows"][0]["method"] == "psgd"
    assert {row["method"] for row in answer["rows"][1:]} == {
        "diloco, period 20", "psgd, gradients in 16 bits", "psgd, batch x4"
    }  # fmt: skip
    page = (tmp_path / "out" / "gain.md").read_text()
    assert answer["conclusion"] in page
    assert "+optimizer = commeff.DistributedOptimizer" in page
    assert len((tmp_path / "rows.csv").read_text().splitlines()) >= 5
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"gain.csv", "gain.md", "gain.pdf", "gain.png"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["model=llama2-7b", "gpus=1"], "gpus must be at least 2 for a gain, got 1"),
        (["model=llama2-7b", "gpus=16", "tensor=2"], "gain sets tensor itself"),
        (["model=llama2-7b", "gpus=16", "--steps", "1,2"], "--steps must be of a named method"),
        (["model=llama2-7b", "gpus=16", "method=diloco", "--steps", "2,1"], "--steps must be LEAST,MOST"),
        (["model=llama2-7b", "gpus=16", "period=20"], "period must go with a method, such as method=local_sgd"),
        (["model=llama2-7b", "gpus=16", "method=psgd"], "must be others than psgd"),
        (["model=llama2-7b", "gpus=16", "method=dilco"], "did you mean diloco"),
        (["model=llama2-7b", "gpus=16", "method=diloco", "method.delay=1"], "did you mean method.exchange.delay"),
        ([*SMALL, "method=diloco", "method.exchange.delay=99"], "delay must be a whole number from 0 to 15, got 99"),
        ([*SMALL, "method=dsgd", "topology=torus", "topology.rows=3", "topology.cols=3"], "got one of 9"),
        (["model=llama2-7b", "parameters=7e9"], "parameters must be left out with a named model"),
        (["parameters=7"], "parameters must be 5e7 to 1e13"),
        (["model=llama3-405b", "gpus=8"], "fits in the 80 GiB"),
    ],
)
def test_bad_questions_are_refused_in_one_line(words: list[str], reason: str) -> None:
    refusal = gain(*words, code=2).stderr.strip()
    assert reason in refusal
    assert "\n" not in refusal


def test_a_gpt_of_so_many_parameters_has_about_as_many() -> None:
    for name in models():
        want = named(name).parameters
        if 1e9 < want < 1e13:
            assert sized(want).parameters == pytest.approx(want, rel=0.06)
    question = read_question(["parameters=1e9", "gpus=8"])
    predict(question.model, question.one(), question.cluster, global_batch=question.global_batch)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_help_work(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = gain(*shlex.split(example)).stdout
    assert "On " in answer
    assert "psgd" in answer
