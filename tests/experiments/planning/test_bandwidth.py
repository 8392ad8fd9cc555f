"""`commeff bandwidth`: closed forms of the Gbit/s that methods need, two published tables, and refusals in a line."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.cli.bandwidth import bandwidth as command
from commeff.experiments.planning.bandwidth import LEVELS, planned
from commeff.experiments.planning.question import read_question
from commeff.experiments.planning.scale.job import Job, read_paces
from commeff.experiments.planning.sweeps import BANDWIDTHS, bandwidth_sweep
from commeff.experiments.studies.planner.bandwidth import FIRST, compare, pace, read
from tests.commeff.planner.ways import way

RUNNER = CliRunner()
JOB = ["parameters=1e9", "layers=10", "step_seconds=0.5"]
BITS = 16e9
PLUGIN = str(Path(__file__).parents[2] / "plugins" / "random_share.py")
SMALL = ["layers=8", "hidden=1024", "heads=8", "sequence=512", "vocab=32000", "gpus=16"]


def ask(*words: str, code: int = 0):
    """The command's answer."""
    result = RUNNER.invoke(app, ["bandwidth", *words])
    assert result.exit_code == code, result.output + result.stderr
    return result


def needed(*words: str, layerwise: bool = False) -> dict[float, float]:
    """Of a single method."""
    (found,) = read_paces([*JOB, *words], layerwise=layerwise).values()
    return found.needed()


@pytest.mark.parametrize(("period", "workers"), [(1, 2), (10, 2), (100, 3)])
def test_what_nothing_hides_needs_its_bits_over_the_time_that_is_left(period: int, workers: int):
    """A ring moves 2 (n-1)/n of the model, and 1/u - 1 of the computing time is there for it."""
    moved = 2 * (workers - 1) / workers * BITS / 1e9
    found = needed("method=diloco", f"period={period}", f"workers={workers}")
    assert found == pytest.approx({u: moved / (period * 0.5 * (1 / u - 1)) for u in LEVELS}, rel=1e-3)


def test_gradients_hide_layer_by_layer_behind_the_backward_pass():
    """Where the link never rests, all but the first layer's part of the backward pass hides; at 99 % the last layer is
    what nothing hides.
    """
    backward = 0.5 * 2 / 3
    found = needed("method=psgd")
    assert found[0.5] == pytest.approx(16 / (0.5 + backward * 9 / 10), rel=1e-3)
    assert found[0.99] == pytest.approx(1.6 / (0.5 * (1 / 0.99 - 1)), rel=1e-3)
    assert needed("method=diloco", "period=1", layerwise=True) == pytest.approx(found, rel=1e-3)


def test_numbers_of_32_bits_need_twice_as_much():
    half, whole = needed("method=local_sgd", "period=4"), needed("method=local_sgd", "period=4", "dtype=fp32")
    assert whole == pytest.approx({u: 2 * x for u, x in half.items()}, rel=1e-3)


def test_latency_can_put_a_share_out_of_reach():
    found = needed("method=local_sgd", "period=4", "latency=100 ms")
    assert found[0.5] < float("inf")
    assert found[0.99] == float("inf"), "2 x 0.1 s for 2 s of computing"
    words = [*JOB, "method=local_sgd", "period=4", "latency=100 ms"]
    assert "never" in ask(*words).stdout
    assert json.loads(ask(*words, "--json").stdout, parse_constant=pytest.fail)[-1]["gbit_per_s"] is None


@pytest.mark.parametrize("name", FIRST.items(), ids=lambda each: each[0])
def test_the_first_model_of_each_published_table_is_met_within_a_step_of_its_grid(name: tuple[str, str]):
    cells, _ = compare([row for row in read() if (row["paper"], row["model"]) == name])
    close = cells.steps.abs() <= 1
    assert close.mean() >= 0.95
    assert (cells.steps == 0).sum() > (cells.steps_if_above == 0).sum(), "the reading that these rows choose"


def test_a_deepseek_of_671_billion_parameters_is_met():
    """Nothing of ours was chosen by it."""
    rows = [row for row in read() if row["model"] == "DeepSeek-V3 671B" and row["period"] in ("", "10", "300")]
    assert (compare(rows)[0].steps.abs() <= 1).all()
    assert pace(rows[0]).computing == 20.0


def test_csv_has_two_columns_and_the_method_where_there_are_more():
    printed = ask(*JOB, "method=diloco", "method.period=100", "--csv", "-").stdout
    table = list(csv.DictReader(io.StringIO(printed)))
    assert list(table[0]) == ["utilisation", "gbit_per_s"]
    assert [float(row["utilisation"]) for row in table] == list(LEVELS)
    truth = needed("method=diloco", "period=100")
    assert [float(row["gbit_per_s"]) for row in table] == pytest.approx(list(truth.values()), rel=1e-3)
    both = list(csv.DictReader(io.StringIO(ask(*JOB, "method=psgd", "method=diloco", "--csv", "-").stdout)))
    assert [row["method"] for row in both] == ["psgd"] * 5 + ["diloco"] * 5


def test_a_plug_in_a_compressor_and_a_graph_are_priced_by_what_they_send():
    words = ["workers=4", "method=random_share", "method.ratio=0.02", "method=random_share", "method.ratio=0.2"]
    small = ["parameters=1000000", "layers=4", "step_seconds=0.01"]
    told = json.loads(ask(*small, *words, "--plugin", PLUGIN, "--json").stdout)
    assert told[0]["gbit_per_s"] < told[5]["gbit_per_s"]
    ring, both = (needed("method=dsgd", f"topology={name}", "workers=8")[0.5] for name in ("ring", "complete"))
    assert ring < both
    assert needed("method=power_sgd", "method.rank=4")[0.5] < needed("method=psgd")[0.5] / 50, "layers have matrices"
    assert needed("method=mem_sgd", "compressor=top_k", "compressor.ratio=0.01")[0.5] < needed("method=psgd")[0.5] / 5


def test_a_model_on_a_cluster_is_priced_by_what_a_bandwidth_sweep_prices():
    question = read_question(SMALL)
    found = planned(question, question.one(), way("local_sgd period=8"))
    (sweep,) = (each for each in bandwidth_sweep(question, question.one(), [way(), way("local_sgd period=8")])[1:])
    assert [found.seconds(x) for x in BANDWIDTHS] == list(sweep.seconds)
    (same,) = read_paces([*SMALL, "method=local_sgd", "period=8"]).values()
    for level, gigabits in same.needed().items():
        assert found.utilisation(gigabits) == pytest.approx(level, rel=1e-3) or gigabits == 0


def test_figures_are_drawn(tmp_path: Path):
    figure, table = str(tmp_path / "a.svg"), str(tmp_path / "b" / "a.csv")
    ask(*JOB, "method=psgd", "method=diloco", "--figure", figure, "--csv", table)
    assert (tmp_path / "a.svg").stat().st_size > 2000
    assert (tmp_path / "b" / "a.csv").read_text().startswith("method,utilisation,gbit_per_s\n")


@pytest.mark.parametrize("example", re.findall(r"\* `commeff bandwidth (.*)`", str(command.__doc__)))
def test_the_examples_of_the_help_are_read(example: str):
    words = [word for word in shlex.split(example) if "=" in word]
    assert read_paces(words, layerwise="--layerwise" in example)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["parameters=1e9"], "got no layers step_seconds"),
        ([*JOB[:2], "step_seconds=0"], "step_seconds must be above 0"),
        ([*JOB, "workers=1"], "workers must be"),
        ([*JOB, "dtype=fp7"], "dtype must be one of"),
        (["parameters=1.5", *JOB[1:]], "parameters must be"),
        (["parameters=3", *JOB[1:]], "layers must be at most the 3 parameters"),
        ([*JOB, "latency=fast"], "is not a number of seconds"),
        ([*JOB, "method=dilco"], "did you mean diloco"),
        ([*JOB, "layrs=48"], "did you mean layers"),
        (
            [*JOB, "method=diloco", "method.exchange.delay=99"],
            "commeff: diloco, delay 99 with 2 workers: delay must be",
        ),
        ([*JOB, "cluster=a100_selene"], "cluster"),
        ([*JOB, "--csv", "nowhere/"], "--csv"),
        ([], "model must be named"),
        ([*SMALL, "--layerwise"], "with parameters="),
        ([*SMALL, "zero=1"], "zero=1 must be left out"),
        (["model=llama3-405b", "gpus=8", "recompute=full"], "add ranks"),
        ([*SMALL[:-1], "gpus=1", "method=diloco"], "data must be at least 2 for diloco, got 1"),
        ([*SMALL, "tokens=1e9"], "tokens=1e9 must be left out"),
        (["layers=10", "step_seconds=0.5"], "got no parameters"),
        ([*JOB, "period=3"], "period must go with a method"),
        (["parameters=1e30", *JOB[1:]], "parameters must be at most 1,000,000,000,000,000"),
        ([*JOB, "--csv", "-", "--json"], "must be left out with --json"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], said: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nowhere").mkdir()
    told = ask(*words, code=2).stderr.strip()
    assert said in told
    assert told.startswith("commeff: ")
    assert "\n" not in told


def test_a_job_is_what_its_words_say():
    assert Job(10, 2, 1.0).sent(["method=psgd"])[0].payload_bytes == 20
