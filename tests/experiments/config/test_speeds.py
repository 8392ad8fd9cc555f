"""Runs on a simulated clock, from the command line's words to the record and the report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from commeff import Layout, methods, profile, topologies
from commeff.cluster import Cluster
from commeff.core.events import WaitsFor
from commeff.core.properties import own_pace
from commeff.experiments.config.build import build
from commeff.experiments.config.clock import lone_exchange
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.draw.figures import write
from commeff.experiments.report.draw.plots import convergence
from commeff.experiments.report.draw.scaling import stragglers
from commeff.experiments.report.write.table_details import target_table
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one

SGD = partial(torch.optim.SGD, lr=0.1)
SMALL = ("task=digits", "workers=4", "steps=8", "evaluate_every=4", "optimizer.lr=0.1")


def run(folder: Path, *words: str) -> dict[str, Any]:
    return run_one(compose([*SMALL, *words]), folder)


def last_row(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return row


def test_who_waits_pays_for_the_straggler_and_who_does_not_does_not(tmp_path: Path) -> None:
    """One in four is three times as slow: 8 steps of a second are 24 seconds, or 32 gradients at 10 in 3 seconds."""
    words = ("speeds=constant", "straggler=3")
    waits, free = run(tmp_path / "psgd", "method=psgd", *words), run(tmp_path / "async", "method=async_sgd", *words)
    assert (waits["events"], waits["simulated_seconds"]) == (8, 24.0)
    assert (free["events"], free["simulated_seconds"]) == (10, 10.0)
    assert waits["samples"] == 8 * 4 * 32 <= free["samples"]
    assert last_row(tmp_path / "async")["simulated_seconds"] == 10.0
    local = run(tmp_path / "local", "method=local_sgd", "method.period=4", *words)
    assert local["simulated_seconds"] == 24.0
    assert "simulated_seconds" not in run(tmp_path / "plain", "method=psgd")


@pytest.mark.parametrize("method", ["async_sgd", "ad_psgd", "quorum_local_sgd method.period=2 method.quorum=0.5"])
def test_a_run_that_is_stopped_goes_on_to_the_same_end_on_processes_too(tmp_path: Path, method: str) -> None:
    words = [f"method={method.split()[0]}", *method.split()[1:], "speeds=drawn", "spread=0.5", "checkpoint_every=1"]
    whole = run(tmp_path / "whole", *words)

    def power_fails(step: int, row: dict[str, float]) -> None:
        if step == 5:
            raise OSError("the power is gone")

    with pytest.raises(Exception, match="the power is gone"):
        run_one(compose([*SMALL, *words]), tmp_path / "stopped", power_fails)
    for other in (run(tmp_path / "stopped", *words), run(tmp_path / "several", *words, "nproc=2")):
        for name in ("events", "simulated_seconds", "samples"):
            assert other[name] == whole[name]
        for name in ("val_loss", "minibatch_loss", "payload_bytes"):
            assert other[name] == pytest.approx(whole[name], rel=1e-5)


def test_a_run_goes_on_from_one_of_its_own_speeds_alone(tmp_path: Path) -> None:
    """By another clock its workers would come to exchanges when nobody else does."""
    words = ("method=quorum_local_sgd", "method.period=3", "speeds=constant")
    whole, half = run(tmp_path / "whole", *words, "straggler=3"), tmp_path / "half"
    run(half, *words, "straggler=3", "steps=4")
    assert run(tmp_path / "same", *words, "straggler=3", f"resume_from={half}")["events"] == whole["events"]
    for others in ("straggler=2", "workers=3"):
        with pytest.raises(ConfigError, match="speeds must be those of the run that this one goes on from"):
            run(tmp_path / others, *words, "straggler=3", others, f"resume_from={half}")


def test_a_file_says_how_long_steps_take(tmp_path: Path) -> None:
    trace = tmp_path / "steps.csv"
    trace.write_text("worker,seconds\n1,0.5\n1,2\n3,4.0\n")
    config = compose([*SMALL, "method=psgd", f"speeds={trace}"])
    assert config["speeds"] == [[1, 0.5], [1, 2.0], [3, 4.0]]
    assert run_one(config, tmp_path / "run")["simulated_seconds"] == 32.0
    trace.unlink()
    assert run_one(config, tmp_path / "again")["simulated_seconds"] == 32.0  # the configuration has taken it in


def test_links_of_a_cluster_take_their_time(tmp_path: Path) -> None:
    for method, sendings in (("psgd", 1), ("async_sgd", 2), ("ad_psgd", 1)):
        words = (f"method={method}", "speeds=constant", "step_time=0.01")
        free, slow, slower = (
            run(tmp_path / f"{method}-{links}", *words, f"links={links}")["simulated_seconds"]
            for links in ("null", "h100_10g", "ethernet_1g")
        )
        assert free == pytest.approx(0.08)
        assert free < slow < slower
        size = 4 * 2410  # the parameters of the logistic model, or more of another
        assert slower - free >= 8 * sendings * size / 125e6


@pytest.mark.parametrize(("method", "messages"), [("async_sgd", 2), ("ad_psgd", 1), ("stale_dsgd", 2)])
def test_an_exchange_takes_as_long_as_its_own_bytes(method: str, messages: int) -> None:
    """Up and down, one of a pair, or two neighbours' rows: on a link that nobody else uses."""
    cluster = Cluster.named("ethernet_1g", gpus=4)
    strategy = methods.async_sgd(SGD) if method == "async_sgd" else getattr(methods, method)(SGD, topologies.ring(4))
    short, long = (
        lone_exchange(profile(strategy, Layout.flat(d), 4), cluster, own_pace(strategy).waits_for)
        for d in (10**6, 3 * 10**6)
    )
    assert long - short == pytest.approx(messages * 4 * 2e6 / cluster.inter.rate)
    assert lone_exchange(profile(methods.async_sgd(SGD), Layout.flat(9), 1), cluster, WaitsFor()) == 0.0


def test_old_runs_keep_their_names() -> None:
    config = compose([*SMALL, "method=psgd"])
    old = {k: v for k, v in config.items() if k not in ("speeds", "step_time", "spread", "straggler", "links")}
    assert run_id(config) == run_id(old)
    assert run_id(compose([*SMALL, "method=psgd", "speeds=constant"])) != run_id(old)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["straggler=3"], "speeds must be given with straggler=3"),
        (["links=ethernet_1g"], "speeds must be given with links=ethernet_1g"),
        (["speeds=slow.csv"], "speeds must be constant, staggered, drawn or a CSV file, got slow.csv: No such file"),
        (["speeds=constant", "step_time=0"], "step_time must lie from 1e-09 to 1,000,000, got 0"),
        (["speeds=constant", "step_time=1e-12"], "step_time must lie from 1e-09 to 1,000,000, got 1e-12"),
        (["speeds=constant", "straggler=0"], "straggler must lie from 1e-09"),
        (["speeds=constant", "spread=0.3"], "spread must go with speeds=drawn"),
        (["speeds=constant", "links=ethernet_2g"], "no cluster 'ethernet_2g' for links"),
        (["speeds=constant", "participation=0.5"], "participation must be 1.0 with speeds, got 0.5"),
        (["speeds=constant", "mesh.worker=4", "mesh.shard=2"], "mesh must have degrees of 1 with speeds"),
        (["speeds=[[9, 1.0]]"], "speeds must name workers from 0 to 3"),
    ],
)
def test_what_no_clock_can_be_is_refused(words: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compose([*SMALL, "method=psgd", *words])
    assert any(fault in line for line in refused.value.faults), refused.value.faults


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["method=async_sgd"], "speeds is not given: all workers finish together, and the method is its synchronous"),
        (["method=async_sgd", "speeds=constant"], ""),
        (["method=psgd"], ""),
        (
            ["method=streaming_diloco", "method.period=4", "steps=2"],
            "steps=2 is too few for a period of 4 steps: 2 of 4",
        ),
        (["method=streaming_diloco", "method.period=4", "steps=4"], ""),
        (["method=local_sgd", "method.period=9"], "steps=8 is too few for a period of 9 steps: 1 of 1"),
        (["method=local_sgd", "method.period=9", "bucket_mb=0.001"], "periodic exchanges never come"),
        (["method=local_sgd", "method.period=8"], ""),
    ],
)
def test_what_has_no_effect_is_said_in_a_line(words: list[str], said: str, caplog: pytest.LogCaptureFixture) -> None:
    build(compose([*SMALL, *words]))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_liars_need_everybody_s_gradients() -> None:
    words = [*SMALL, "speeds=constant", "attack=a_little", "attackers=1"]
    build(compose([*words, "method=psgd"]))
    with pytest.raises(ConfigError, match="attack must be left out for an asynchronous method"):
        build(compose([*words, "method=async_sgd"]))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,b\n0,1\n", "speeds must begin with the line worker,seconds"),
        ("worker,seconds\n0,fast\n", "speeds must have numbers for worker, seconds in each line"),
        ("worker,seconds\n", "speeds must have at least one line"),
        ("worker,seconds\n0,nan\n", "speeds must name workers"),
        ("worker,seconds\n0,-1\n", "speeds must name workers"),
        ("worker,seconds\n0,1e-12\n", "speeds must name workers"),
    ],
)
def test_a_file_that_says_no_speeds_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(text)
    with pytest.raises(ConfigError) as refused:
        compose([*SMALL, "method=psgd", f"speeds={tmp_path / 'steps.csv'}"])
    assert len(refused.value.faults) == 1
    assert fault in refused.value.faults[0]


@pytest.mark.parametrize("key", ["speeds", "availability"])
def test_a_device_is_no_file_of_numbers(key: str) -> None:
    with pytest.raises(ConfigError, match="is no regular file"):
        compose([*SMALL, "method=psgd", f"{key}=/dev/zero"])


def test_a_forecast_refuses_a_clock() -> None:
    with pytest.raises(ConfigError, match="speeds must be omitted for a forecast"):
        forecast(compose([*SMALL, "method=psgd", "speeds=constant"]))


def test_a_report_has_a_bar_for_each_method_and_straggler(tmp_path: Path) -> None:
    """A store without a clock, or with one straggler, has no such figure; who never arrives has no bar."""
    cells = [("psgd", 1), ("psgd", 4), ("async_sgd", 1), ("async_sgd", 4)]
    for count, (method, straggler) in enumerate(cells):
        words = (f"method={method}", "speeds=constant", f"straggler={straggler}")
        run(tmp_path / run_id(compose([*SMALL, *words])), *words)
        figure = stragglers(analyse(tmp_path, metric="val_loss"))
        assert (figure is None) == (count == 0)
    assert figure is not None
    assert [name for name, _ in figure.legend] == ["all workers alike", "one 4 times as slow"]
    assert len(figure.data) == 4
    seconds = figure.data.set_index(["variant", "straggler"])["simulated_seconds"]
    waits = next(name for name in figure.data["variant"] if "async" not in name)
    assert seconds[waits, 4.0] == pytest.approx(4 * seconds[waits, 1.0])
    never = stragglers(analyse(tmp_path, metric="val_loss", target=-1.0))
    assert never is not None
    assert never.data["simulated_seconds"].isna().all()
    assert set(never.data["short"]) == {"not reached"}
    write(never, tmp_path)


def test_a_report_has_simulated_seconds_on_an_axis_of_their_own(tmp_path: Path) -> None:
    for seed in (0, 1):
        for method in ("psgd", "async_sgd"):
            words = (f"method={method}", f"seed={seed}", "speeds=drawn", "straggler=3")
            run(tmp_path / run_id(compose([*SMALL, *words])), *words)
    analysis = analyse(tmp_path, metric="val_loss", target=2.3)
    drawn = convergence(analysis)
    assert drawn is not None
    names = {part.name for part in drawn.panels}
    assert "simulated_seconds-val_loss" in names
    assert "seconds-val_loss" not in names, "of workers that take turns"
    table = target_table(analysis)
    assert table is not None
    under = {column.heading: column.under for column in table.columns}
    assert (under["simulated time"], under["time"]) == ("s, simulated", "s, measured")
