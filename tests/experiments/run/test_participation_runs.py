"""Runs in which not everybody takes part, from the command line's words to the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from commeff.cluster.places import read_places
from commeff.experiments.config.build import build, participation
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.report.data.wallclock import Modeller
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one
from commeff.experiments.tasks import Digits

SMALL = ("task=digits", "workers=4", "steps=12", "evaluate_every=6", "optimizer.lr=0.1")


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", ["method=psgd", "method=local_sgd method.period=3", "method=dsgd topology=ring"])
def test_a_share_of_the_workers_draws_sends_and_resumes(tmp_path: Path, method: str) -> None:
    """Half of them: half of the samples; and a run that is stopped goes on to the same end, on processes too."""
    words = [*SMALL, *method.split(), "participation=0.5", "checkpoint_every=1"]
    whole = run_one(compose(words), tmp_path / "whole")
    everybody = run_one(compose([word for word in words if "participation" not in word]), tmp_path / "everybody")
    assert whole["samples"] * 2 == everybody["samples"]
    assert whole["payload_bytes"] < everybody["payload_bytes"] or "psgd" in method
    assert whole["val_loss"] != everybody["val_loss"]
    first, of_all = rows(tmp_path / "whole")[0], rows(tmp_path / "everybody")[0]
    assert first["minibatch_loss"] == pytest.approx(of_all["minibatch_loss"], rel=0.2), "the mean over who is there"
    if "psgd" in method:
        assert all(row["consensus_distance"] <= 1e-6 for row in rows(tmp_path / "whole")), "absent ones count as there"

    def power_fails(step: int, row: dict[str, float]) -> None:
        if step == 7:
            raise OSError("the power is gone")

    with pytest.raises(Exception, match="the power is gone"):
        run_one(compose(words), tmp_path / "stopped", power_fails)
    assert run_one(compose(words), tmp_path / "stopped")["val_loss"] == whole["val_loss"]
    several = run_one(compose([*words, "nproc=2"]), tmp_path / "several")
    for name in ("val_loss", "minibatch_loss", "consensus_distance", "payload_bytes", "samples"):
        assert several[name] == pytest.approx(whole[name], rel=1e-4, abs=1e-7), name


def test_who_returns_to_one_model_is_billed_for_it(tmp_path: Path) -> None:
    """psgd: a worker that comes back gets the parameters; four bytes each, and nothing else travels for it."""
    trace = tmp_path / "trace.csv"
    trace.write_text("worker,start,stop\n1,0,4\n1,6,12\n")
    words = [*SMALL, "method=psgd", f"availability={trace}"]
    config = compose(words)
    assert config["availability"] == [[1, 0, 4], [1, 6, 12]]
    run = run_one(config, tmp_path / "run")
    plain = run_one(compose([*SMALL, "method=psgd"]), tmp_path / "plain")
    size = plain["payload_bytes"] / 12
    assert run["payload_bytes"] == pytest.approx(10 * size + 2 * size * 3 / 4 + size / 4)
    assert rows(tmp_path / "run")[-1]["consensus_distance"] == 0


def test_a_return_after_steps_without_anybody_is_a_return_to_the_last_model(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("worker,start,stop\n0,0,4\n0,7,12\n1,0,3\n1,7,12\n2,0,4\n2,7,12\n3,0,4\n3,7,12\n")
    words = [*SMALL, "method=psgd", f"availability={trace}"]
    run = run_one(compose(words), tmp_path / "run")
    size = run_one(compose([*SMALL, "method=psgd"]), tmp_path / "plain")["payload_bytes"] / 12
    assert run["consensus_distance"] == 0
    assert run["payload_bytes"] == pytest.approx(8 * size + size * 3 / 4 + size / 4)


def test_measuring_moves_nobody(tmp_path: Path) -> None:
    words = [*SMALL, "method=local_sgd", "method.period=4", "dropout=0.3"]
    ends = [run_one(compose([*words, f"evaluate_every={k}"]), tmp_path / str(k))["val_loss"] for k in (1, 12)]
    assert ends[0] == ends[1]


def test_a_round_is_a_period_where_workers_agree_at_its_end() -> None:
    for method, steps in (
        ("method=local_sgd method.period=3", 3),
        ("method=psgd", 1),
        ("method=dsgd topology=one_peer_exponential", 1),
    ):
        config = compose([*SMALL, *method.split(), "participation=0.5"])
        found = participation(config, build(config).strategy)
        assert found is not None
        assert found.period == steps, method


def test_names_follow_from_the_trace_and_not_from_its_path(tmp_path: Path) -> None:
    for name, text in (
        ("a", "worker,start,stop\n0,1,2\n"),
        ("b", "worker,start,stop\n0,1,2\n"),
        ("c", "worker,start,stop\n0,1,3\n"),
    ):
        (tmp_path / name).write_text(text)
    names = [run_id(compose([*SMALL, f"availability={tmp_path / name}"])) for name in "abc"]
    assert names[0] == names[1] != names[2]
    assert run_id(compose([*SMALL, "participation=1.0", "dropout=0"])) == run_id(compose([*SMALL]))
    assert run_id(compose([*SMALL, "participation=0.5"])) != run_id(compose([*SMALL]))


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["participation=0"], r"participation must lie in \(0, 1\], got 0"),
        (["dropout=1"], r"dropout must lie in \[0, 1\), got 1"),
        (["availability=nowhere.csv"], "availability must be a CSV file, got nowhere.csv"),
        (["method=choco", "topology=ring", "compressor=top_k", "participation=0.5"], "every worker must take part"),
        (["method=streaming_diloco", "method.exchange.delay=1", "dropout=0.1"], "every worker must take part"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(words: list[str], refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        build(compose([*SMALL, *words]))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "must begin with the line worker,start,stop"),
        ("worker,start,stop\n1,2\n", "numbers for worker, start, stop in each line, got another in line 2"),
        ("worker,start,stop\n", "availability must have a line for each stay, got none"),
        ("worker,start,stop\n1,a,2\n", "numbers for worker, start, stop in each line"),
        ("worker,start,stop\n9,1,2\n", r"workers from 0 to 3 and steps 0 <= start < stop, got \[9, 1, 2\]"),
        ("worker,start,stop\n1,2,2\n", "start < stop"),
    ],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str, refusal: str) -> None:
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(ConfigError, match=refusal):
        compose([*SMALL, f"availability={tmp_path / 'trace.csv'}"])


@pytest.mark.parametrize(
    "words",
    [
        "method=psgd optimizer=adam participation=0.5",
        "method=psgd dropout=0.5",
        "method=dsgd topology=one_peer_exponential dropout=0.3",
        "method=diloco method.period=3 participation=0.5 dropout=0.2",
        "method=double_squeeze compressor=top_k participation=0.25 bucket_mb=0.01",
    ],
)
def test_a_forecast_is_the_ledger_of_the_run(tmp_path: Path, words: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("worker,start,stop\n1,0,4\n1,6,12\n")
    config = compose([*SMALL, *words.split(), f"availability={trace}"])
    found, run = forecast(config), run_one(config, tmp_path / "run")
    assert not found.note
    assert {name: run[name] for name in found.sent} == pytest.approx(found.sent)


def test_a_report_models_the_seconds_of_those_who_are_there() -> None:
    """Fewer send less on a graph; where they agree, those who return cost more than those who are absent spare."""
    (place,) = read_places([{"cluster": "ethernet_1g", "step_seconds": 0.001}])
    for method, less in (("method=dsgd topology=ring", True), ("method=psgd", False)):
        words = ["task=digits", "workers=8", "steps=20", *method.split()]
        plain, some = (Modeller().timeline(compose([*words, *more]), place, 20) for more in ([], ["participation=0.5"]))
        assert plain.compute == some.compute
        assert (some.total < plain.total) is less, method
    with pytest.raises(ValueError, match="seconds are modelled of runs without speeds"):
        Modeller().timeline(compose([*words, "speeds=constant"]), place, 20)


def test_of_a_long_run_a_part_is_played() -> None:
    """256 workers, of whom 64 are drawn for each period of 4 steps: the same bytes, and more for who returns."""
    words = ["task=quadratic", "workers=256", "participation=0.25", "method=local_sgd", "method.period=4"]
    long, short = (forecast(compose([*words, f"steps={steps}"])) for steps in (640, 64))
    assert (long.note, short.note) == ("64 of 640 steps were played, of which the last 32 come again", "")
    assert long.sent["wire_bytes"] == pytest.approx(10 * short.sent["wire_bytes"], rel=0.1)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["attack=noise"], "attackers must be from 1 to 3 of 4 workers with attack=noise, got 0"),
        (["attackers=2"], "attack must be given with attackers=2"),
        (["attack=bribe", "attackers=1"], "attack must be"),
        (["method=robust_sgd", "method.rule=krum", "method.f=2"], "f must be at most 0 for a Krum of 4 vectors"),
    ],
)
def test_attacks_that_cannot_be_are_refused(words: list[str], refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        build(compose([*SMALL, *words]))


@pytest.mark.parametrize("task", [Digits(4, weighted=True), Digits(4, model="linear", partition="iid")])
def test_liars_learn_from_flipped_labels_and_nothing_else_changes(task: Digits) -> None:
    lying, workers = task.with_liars(2), [3, 1, 0, 2]
    for true, found in zip(task.batch(5, workers), lying.batch(5, workers), strict=True):
        labels = not true.is_floating_point()
        for place, worker in enumerate(workers):
            assert torch.equal(found[place], 9 - true[place] if labels and worker < 2 else true[place])
    assert lying.evaluate(task.model()) == task.evaluate(task.model())
    assert torch.equal(task.batch(5, workers)[1], task.with_liars(0).batch(5, workers)[1]), "the first is as it was"


def test_a_run_with_flipped_labels_is_the_same_on_processes(tmp_path: Path) -> None:
    words = [*SMALL, "method=local_sgd", "attack=label_flip", "attackers=1"]
    ends = [run_one(compose([*words, *more]), tmp_path / str(len(more))) for more in ([], ["nproc=2"])]
    assert ends[0]["val_loss"] == pytest.approx(ends[1]["val_loss"], rel=1e-4)
    honest = run_one(compose([word for word in words if "attack" not in word]), tmp_path / "honest")
    assert honest["val_loss"] != pytest.approx(ends[0]["val_loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("task", "refusal"),
    [
        ("task=quadratic", "attack=label_flip needs a task of labelled classes, got Quadratic"),
        ("slope", "attack=label_flip needs classes, got Slope, which has none"),
    ],
)
def test_labels_of_no_classes_are_not_flipped(task: str, refusal: str) -> None:
    class Slope(Digits):
        def flipped(self, targets: torch.Tensor) -> Any:
            return None

    config = compose(["task=digits" if task == "slope" else task, "workers=4", "attack=label_flip", "attackers=1"])
    with pytest.raises(ConfigError, match=refusal):
        build(config, Slope(4) if task == "slope" else None)


def test_a_run_under_attack_learns_with_a_robust_rule_and_not_with_a_mean(tmp_path: Path) -> None:
    words = ["task=digits", "workers=5", "steps=40", "evaluate_every=40", "optimizer.lr=0.3", "attackers=1"]
    accuracy = {
        method: run_one(compose([*words, "attack=noise", f"method={method}"]), tmp_path / method)["val_accuracy"]
        for method in ("psgd", "robust_sgd")
    }
    assert accuracy["robust_sgd"] > accuracy["psgd"] + 0.2
    assert run_id(compose([*words, "attack=noise"])) != run_id(compose([*words, "attack=sign_flip"]))
