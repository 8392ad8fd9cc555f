"""The landscape: rates by validation, fronts by their definition, prices by the report's model, advice by evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from typer.testing import CliRunner

from commeff.experiments.cli.advise import advise as command
from commeff.experiments.config.clusters import read_place
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import built_in
from commeff.experiments.published.landscape.advice import advise, described
from commeff.experiments.published.landscape.evidence import TABLES, collect, load, save
from commeff.experiments.published.landscape.fronts import front
from commeff.experiments.published.landscape.page import task_map, write
from commeff.experiments.published.landscape.price import method_price, minibatch_seconds, model_layout
from commeff.experiments.published.landscape.question import nearest, read_advice
from commeff.experiments.published.landscape.runs import TaskRuns
from commeff.experiments.published.landscape.spec import Landscape, LandscapeTask, MethodSetting, landscape
from commeff.experiments.report.data.statistics import paired
from commeff.experiments.report.data.wallclock import Modeller
from commeff.experiments.run.naming import run_id

STEPS = 20
DIGITS = {"task": "digits", "task.partition": "iid", "workers": 4, "steps": STEPS, "evaluate_every": 10}
TASK = LandscapeTask(
    "tiny", "digits on four", ("digits", "cifar10"), "iid", "a test", DIGITS, (0.1, 0.2, 0.4), "val_accuracy",
    "test_accuracy", 0.02, 0.001, ("psgd", "dsgd", "choco", "local_sgd", "d2"),
)  # fmt: skip
FIELD = Landscape(9, (0, 1), {"tiny": TASK}, {"d2": MethodSetting({"topology": "torus"})}, ("ethernet_1g", "v100_25g"))
LEVELS = {"psgd": 0.9, "dsgd": 0.8, "choco": 0.7, "local_sgd": 0.85}


def forge(store: Path, config: Mapping[str, Any], level: float, state: str = "done") -> None:
    """A run that comes to a level in two even steps, and to the same on test data."""
    folder = store / run_id(dict(config))
    folder.mkdir(parents=True)
    rows = [
        {"step": s, "val_accuracy": level * s / STEPS, "payload_bytes": 8 * s, "wire_bytes": 9 * s} for s in (10, 20)
    ]
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config)))
    (folder / "env.json").write_text(json.dumps({"commit": "abc", "cpu": "abacus", "torch": "2"}))
    (folder / "status.json").write_text(json.dumps({"state": state, "step": STEPS, "steps": STEPS, "time": 1e9}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if state == "done":
        (folder / "summary.json").write_text(json.dumps({"state": state, **rows[-1], "test_accuracy": level}))
    else:
        (folder / "error.txt").write_text("Traceback:\nValueError: no such thing\n")


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> TaskRuns:
    """psgd is best at 0.2, dsgd at two rates alike, choco at the largest; local_sgd failed; d2 cannot be built."""
    runs = TaskRuns(FIELD, TASK, tmp_path_factory.mktemp("store"))
    best = {"psgd": (0.5, 0.6, 0.5), "dsgd": (0.6, 0.6, 0.5), "choco": (0.5, 0.6, 0.7), "local_sgd": (0.5, 0.6, 0.5)}
    for method, levels in best.items():
        for rate, level in zip(TASK.rates, levels, strict=True):
            forge(runs.store, runs.config(method, rate, FIELD.tuning_seed), level)
        for seed in FIELD.seeds:
            config = runs.config(method, {"choco": 0.4, "dsgd": 0.1}.get(method, 0.2), seed)
            state = "failed" if (method, seed) == ("local_sgd", 1) else "done"
            forge(runs.store, config, LEVELS[method] + 0.01 * seed, state)
    return runs


@pytest.fixture(scope="module")
def tables(tried: TaskRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    save(collect([tried]), folder)
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny landscape in place of the shipped one."""
    for module in ("evidence", "advice", "page"):
        monkeypatch.setattr(f"commeff.experiments.published.landscape.{module}.landscape", lambda: FIELD)


def test_every_method_tries_as_many_rates_and_every_setting_is_of_a_method() -> None:
    field = landscape()
    assert set(field.settings) <= {*built_in("method")}
    assert all(setting.why for setting in field.settings.values())
    for task in field.tasks.values():
        assert {len(set(field.rates(task, name))) for name in task.competitors} == {len(task.rates)}
        assert task.competitors[0] == "psgd"
        assert field.tuning_seed not in field.seeds
    assert {*field.tasks["digits_iid"].competitors} == {*built_in("method")}


@pytest.mark.parametrize("method", landscape().settings)
def test_the_settings_of_methods_compose(method: str) -> None:
    field = landscape()
    words = field.words(field.tasks["digits_iid"], method)
    assert compose([f"{key}={value}" for key, value in words.items()], settled=False)["workers"] == 16


def test_rates_are_chosen_on_validation_and_what_is_missing_has_a_reason(tried: TaskRuns, tables: Path) -> None:
    assert {name: tried.chosen(name) for name in tried.methods} == {
        "psgd": 0.2,
        "dsgd": 0.1,
        "choco": 0.4,
        "local_sgd": 0.2,
    }
    found = load(tables, FIELD)["tiny"]
    assert {name: each.edge for name, each in found.methods.items()} == {
        "psgd": "",
        "dsgd": "smallest",
        "choco": "largest",
    }
    assert found.methods["psgd"].values == {0: 0.9, 1: 0.91}
    assert found.target == pytest.approx(0.905 - 0.02)
    assert found.methods["psgd"].to_target == {0: STEPS, 1: STEPS}
    assert found.methods["dsgd"].to_target == {}
    assert (found.methods["psgd"].payload_bytes, found.methods["psgd"].wire_bytes) == (8, 9)
    assert found.missing["local_sgd"] == "seed 1 failed"
    assert "eigenvalues" in found.missing["d2"]
    assert (found.commit, found.parameters) == ("abc", 4810)


def test_a_method_whose_runs_are_not_finished_has_none_chosen(tried: TaskRuns, tmp_path: Path) -> None:
    empty = TaskRuns(FIELD, TASK, tmp_path)
    assert empty.chosen("psgd") is None
    _, _, missing = collect([empty])
    assert {row["method"]: row["reason"] for row in missing} == dict.fromkeys(TASK.competitors, "not run yet")


@pytest.mark.parametrize("metric", ["test_accuracy", "test_loss"])
def test_a_front_holds_whom_nobody_beats_in_both(metric: str) -> None:
    rng = np.random.default_rng(0)
    sign = 1.0 if metric == "test_accuracy" else -1.0
    for _ in range(20):
        costs = {f"m{i}": float(rng.integers(1, 6)) for i in range(12)}
        values = {name: {seed: float(v) for seed, v in enumerate(rng.random(3))} for name in costs}
        means = {name: sign * float(np.mean([*values[name].values()])) for name in costs}
        free = {a for a in costs if not any(costs[b] <= costs[a] and means[b] >= means[a] and b != a for b in costs)}
        points = front(costs, values, metric)
        assert {point.method for point in points} == free
        for one, other in pairwise(points):
            difference = paired(values[other.method], values[one.method])
            assert difference
            assert other.gain
            assert other.gain.mean == pytest.approx(sign * difference.mean)
            assert other.gain.mean > 0


@pytest.mark.parametrize("method", ["psgd", "choco", "local_sgd"])
def test_prices_are_those_of_the_report(method: str, tables: Path) -> None:
    found, place = load(tables, FIELD)["tiny"], read_place({"cluster": "v100_25g", "efficiency": 0.3})
    compute, _ = minibatch_seconds(FIELD, found, place, counted=True)
    ours = method_price(FIELD, found, method, place, compute, TASK.workers, model_layout(found))
    config = compose([f"{key}={value}" for key, value in FIELD.words(TASK, method).items()])
    theirs = Modeller().timeline(config, place, STEPS)
    np.testing.assert_allclose(ours.finish, theirs.by_step, rtol=1e-12)
    assert ours.at(7) == pytest.approx(theirs.seconds(7))


def test_a_model_of_another_size_is_that_size_and_computes_in_proportion(tables: Path) -> None:
    found, place = load(tables, FIELD)["tiny"], read_place({"cluster": "v100_25g"})
    for parameters in (1, 100, 1e6, 3e9):
        assert model_layout(found, parameters).d == pytest.approx(parameters, rel=0.01)
    small, large = (minibatch_seconds(FIELD, found, place, size)[0] for size in (1e6, 1e9))
    assert large == pytest.approx(1000 * small)
    assert minibatch_seconds(FIELD, found, replace(place, step_seconds=0.5), 1e9)[0] == 0.5


@pytest.mark.usefixtures("tiny")
def test_advice_says_what_its_evidence_is_not(tables: Path) -> None:
    same = advise(read_advice(["task=digits", "cluster=ethernet_1g"], tables))
    assert len(same.notes) == 2
    assert [point.method for point in same.by_seconds][-1] == "psgd"
    assert {*same.left_out} == {"local_sgd", "d2"}
    assert same.words["psgd"] == ["method=psgd", "optimizer.lr=0.2"]
    words = ["task=cifar10", "cluster=v100_25g", "data=skewed", "workers=6", "parameters=1e6"]
    other = advise(read_advice(words, tables))
    text = " ".join(other.notes)
    for part in ("No run here is of cifar10", "have iid data", "had 4 workers", "has 4,810 parameters", "not measured"):
        assert part in text
    assert other.prices["psgd"].payload_bytes == pytest.approx(4e6, rel=0.01)
    assert described(other)["evidence"]["same_task"] is False
    assert json.loads(json.dumps(described(other))) == described(other)


def test_the_nearest_evidence_is_of_a_task_like_it_with_data_like_it(tables: Path) -> None:
    (iid,) = load(tables, FIELD).values()
    skewed = replace(iid, task=replace(TASK, data="skewed"))
    text = replace(iid, task=replace(TASK, like=("language",)))
    found = {"text": text, "iid": iid, "skewed": skewed}
    assert nearest(found, "cifar10", "skewed") is skewed
    assert nearest(found, "cifar10", "iid") is iid
    assert nearest(found, "language", "skewed") is text


@pytest.mark.usefixtures("tiny")
def test_seconds_to_the_target_are_those_of_the_steps_that_each_seed_took(tables: Path) -> None:
    found = advise(read_advice(["task=digits", "cluster=ethernet_1g"], tables))
    (only,) = found.fastest
    assert (only.method, only.speed_up) == ("psgd", None)
    assert only.seconds.mean == pytest.approx(found.prices["psgd"].at(STEPS))


@pytest.mark.usefixtures("tiny")
def test_a_method_that_was_corrected_since_is_left_out(tables: Path, tmp_path: Path) -> None:
    for name in ("tasks", "missing"):
        (tmp_path / f"{name}.csv").write_text((tables / f"{name}.csv").read_text())
    (tmp_path / "runs.csv").write_text((tables / "runs.csv").read_text().replace("tiny,dsgd,1,", "tiny,dsgd,0,"))
    found = advise(read_advice(["task=digits", "cluster=ethernet_1g"], tmp_path))
    assert "corrected" in found.left_out["dsgd"]
    assert "dsgd" not in found.prices


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "task must be one of"),
        ("task=digitz cluster=ethernet_1g", "did you mean digits"),
        ("task=language cluster=ethernet_1g", "there is no evidence to advise on; choose from cifar10, digits"),
        ("task=digits", "cluster must be given"),
        ("task=digits cluster=nowhere", "ethernet_1g"),
        ("task=digits cluster=ethernet_1g data=odd", "data must be one of iid, skewed"),
        ("task=digits cluster=ethernet_1g workers=1", "workers must be a whole number from 2"),
        ("task=digits cluster=ethernet_1g workers=2.5", "workers must be a whole number from 2"),
        ("task=digits cluster=ethernet_1g parameters=0", "parameters must be from 1"),
        ("task=digits cluster=ethernet_1g parameters=many", "parameters must be a number"),
        ("task=digits cluster=ethernet_1g step_seconds=1 efficiency=1", "must not both be given"),
        ("task=digits cluster=ethernet_1g method=psgd", "key must be one of"),
        ("task=digits task=digits", "task must be given once"),
        ("digits", "key=value"),
    ],
)
def test_what_cannot_be_advised_on_is_refused(words: str, says: str, tables: Path) -> None:
    with pytest.raises(ValueError, match=says):
        read_advice(words.split(), tables)


@pytest.mark.usefixtures("tiny")
def test_the_page_has_every_method_and_every_lack(tables: Path, tmp_path: Path) -> None:
    written = write(tables, tmp_path)
    assert [path.suffix for path in written] == [".md", ".csv", ".png", ".pdf"]
    text = written[0].read_text()
    for part in ("**psgd**", "0.4†", "commit abc", "a test", "local\\_sgd: seed 1 failed", "`tiny`, d2: "):
        assert part.replace("\\", "") in text.replace("\\", "").replace("Commit", "commit"), part
    each = task_map(FIELD, load(tables, FIELD)["tiny"])
    assert {cost for cost, _ in each.costs()} == {"bytes", *FIELD.clusters}


def app() -> typer.Typer:
    one = typer.Typer()
    one.command()(command)
    return one


def test_the_command_prints_fronts_and_what_the_shipped_evidence_is() -> None:
    shown = CliRunner().invoke(app(), ["task=digits", "cluster=ethernet_1g", "--json"])
    assert shown.exit_code == 0, shown.output
    answer = json.loads(shown.output)
    costs = [point["modelled_seconds_a_step"] for point in answer["by_seconds"]]
    means = [point["mean"] for point in answer["by_seconds"]]
    assert costs == sorted(costs)
    assert means == sorted(means)
    assert answer["evidence"]["methods"] >= 30
    assert CliRunner().invoke(app(), ["task=digits"]).exit_code == 2


def test_what_was_counted_is_what_profiles_say() -> None:
    field, place = landscape(), read_place({"cluster": "ethernet_1g"})
    exact = set()
    for evidence in load().values():
        for method, found in evidence.methods.items():
            price = method_price(field, evidence, method, place, 0.0, evidence.task.workers, model_layout(evidence))
            if not price.note:
                exact.add(method)
                assert price.wire_bytes == pytest.approx(found.wire_bytes, rel=1e-3, abs=1), (
                    evidence.task.name,
                    method,
                )
                assert price.payload_bytes == pytest.approx(found.payload_bytes, rel=1e-3, abs=1), (
                    evidence.task.name,
                    method,
                )
    assert len(exact) >= 30


def test_the_shipped_tables_and_the_page_are_of_the_same_runs() -> None:
    found = load(TABLES)
    page = Path(__file__).parents[2] / "results" / "landscape" / "landscape.md"
    text = page.read_text()
    for evidence in found.values():
        assert "psgd" in evidence.methods
        assert f"Commit {evidence.commit}" in text
        assert f"{len(evidence.methods)} methods" in text


@pytest.mark.slow
def test_a_new_method_is_run_and_what_is_finished_is_not_repeated(tmp_path: Path) -> None:
    def states(task: LandscapeTask) -> dict[str, tuple[str, int]]:
        runs = TaskRuns(FIELD, replace(task, base=DIGITS | {"steps": 2, "evaluate_every": 1}), tmp_path)
        runs.run(jobs=2)
        every = [(name, run) for name in runs.methods for run in (*runs.tried(name), *runs.finals(name))]
        return {
            f"{name} {run.rate} {run.seed}": (run.record.state, (run.record.folder / "summary.json").stat().st_mtime_ns)
            for name, run in every
        }

    before = states(replace(TASK, methods=("psgd", "d2")))
    after = states(replace(TASK, methods=("psgd", "d2", "local_sgd")))
    assert len(before) == len(TASK.rates) + len(FIELD.seeds)
    assert {name: after[name] for name in before} == before
    assert len(after) == 2 * len(before)
    assert {state for state, _ in after.values()} == {"done"}
