"""`commeff scale`: laws of throughput, what methods send against their ledgers, marks on what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
import typer
from matplotlib.figure import Figure as Canvas
from torch import nn
from typer.testing import CliRunner

from commeff import Communicator
from commeff.cluster import GPU, Cluster, FatTree, Link
from commeff.compressors import Layout
from commeff.experiments.cli.scale import scale
from commeff.experiments.measure.bench.processes import Subject
from commeff.experiments.measure.scale import measured
from commeff.experiments.measure.scale.command import asked, study
from commeff.experiments.measure.scale.measured import strategies
from commeff.experiments.measure.scale.modelled import Setting, curves, point
from commeff.experiments.measure.scale.page import Study, page, save
from commeff.experiments.measure.scale.picture import IDEAL, LOOKS, figure
from commeff.experiments.measure.scale.sending import METHODS, Choices, sending
from commeff.experiments.measure.scale.workloads import WORKLOADS

CORE = GPU("a core", memory_bytes=2**30, memory_bandwidth=1e10, peak_flops={"fp32": 1e11})
FLAT = Cluster("flat", gpus=1, gpu=CORE, per_node=1, intra=Link(1e9, 1e-5), inter=Link(1e9, 1e-5))
NUMBERS = (2, 4, 8, 16, 64, 256, 1024)
RESNET, BERT = WORKLOADS.values()
SMALL = Subject("small", lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)), (4, 8))


@pytest.fixture(scope="module")
def few():
    return measured.curves((1, 2), METHODS, Choices(period=2), subjects=[SMALL], rounds=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 8])
def test_what_is_modelled_to_be_sent_is_what_the_method_bills(method: str, n: int) -> None:
    """Bytes, messages, rounds and steps, over two periods."""
    d, choices = 1000, Choices(period=3, ratio=0.05)
    strategy, communicator = strategies(choices, n)[method], Communicator(workers=n)
    x = torch.zeros(n, d)
    strategy.start(x, Layout.flat(d), communicator)
    said = sending(method, n, d, choices)
    for communicator.step in range(2 * said.steps):
        x = strategy.step(x, torch.randn(n, d), communicator)
    billed = [row[2:] for row in communicator.ledger.rows if row.messages]
    assert billed == [row[2:] for row in said.rows] * 2
    if n > 1:
        steps = [row.step for row in communicator.ledger.rows if row.messages]
        assert steps == [row.step + period * said.steps for period in range(2) for row in said.rows]


@pytest.mark.parametrize("scaling", ["weak", "strong"])
@pytest.mark.parametrize("method", METHODS)
def test_nobody_is_above_the_ideal_line_and_one_worker_is_on_it(scaling, method) -> None:
    setting = Setting(FLAT)
    assert point(setting, RESNET, scaling, method, 1).efficiency == pytest.approx(1)
    assert all(point(setting, RESNET, scaling, method, n).efficiency < 1 for n in NUMBERS)


@pytest.mark.parametrize("method", METHODS)
def test_everybody_is_on_the_ideal_line_if_sending_takes_no_time(method) -> None:
    free = replace(FLAT, inter=Link(1e30, 0.0), intra=Link(1e30, 0.0))
    for scaling in ("weak", "strong"):
        assert point(Setting(free), BERT, scaling, method, 64).efficiency == pytest.approx(1)


def test_weak_throughput_grows_with_workers_where_a_step_is_bounded() -> None:
    """The bytes of a ring and of one peer are bounded, so twice the workers are worth more; those of n messages of
    top-k are not: their throughput has the limit batch x bandwidth / message.
    """
    for method in ("psgd", "dsgd", "local_sgd"):
        speeds = [point(Setting(FLAT), BERT, "weak", method, n).samples_per_second for n in NUMBERS]
        assert speeds == sorted(speeds)
    gathered = [point(Setting(FLAT), BERT, "weak", "mem_sgd", n) for n in NUMBERS]
    limit = BERT.batch * FLAT.inter.bandwidth / sending("mem_sgd", 2, BERT.parameters, Choices()).rows[0].payload_bytes
    assert gathered[-1].samples_per_second == pytest.approx(limit, rel=0.1)


def test_partial_averaging_is_no_slower_than_a_ring_and_its_step_does_not_depend_on_n() -> None:
    for workload in (RESNET, BERT):
        steps = {m: [point(Setting(FLAT), workload, "weak", m, n).step for n in NUMBERS] for m in ("psgd", "dsgd")}
        assert all(gossip <= ring for gossip, ring in zip(steps["dsgd"], steps["psgd"], strict=True))
        assert steps["dsgd"] == pytest.approx([steps["dsgd"][0]] * len(NUMBERS))
        assert steps["psgd"][-1] > steps["psgd"][1]


def test_a_larger_ratio_of_communication_to_computing_costs_more_efficiency() -> None:
    efficiencies = [
        point(Setting(FLAT), BERT.taking(seconds), "weak", "psgd", 64).efficiency for seconds in (10, 1, 0.1)
    ]
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_communication_hides_behind_computing_up_to_the_share_given() -> None:
    without = point(Setting(FLAT), RESNET, "weak", "psgd", 64)
    some, most = (point(Setting(FLAT, overlap=share), RESNET, "weak", "psgd", 64) for share in (0.5, 1.0))
    assert without.step - some.step == pytest.approx(0.5 * without.compute)
    assert most.step == pytest.approx(max(without.compute, without.step - without.compute))


def test_gpus_behind_one_nic_lose_what_nodes_gain_by_gossip() -> None:
    cluster = Cluster.named("v100_25g")
    gain = {
        worker: point(Setting(cluster, worker), RESNET, "weak", "dsgd", n).efficiency
        / point(Setting(cluster, worker), RESNET, "weak", "psgd", n).efficiency
        for worker, n in (("node", 8), ("gpu", 64))
    }
    assert gain["node"] > 1 > gain["gpu"]


def test_nics_of_a_node_are_not_taken_as_one_on_a_fat_tree() -> None:
    tree = replace(Cluster.named("a100_selene", gpus=64), network=FatTree((16,), (4,)))
    with pytest.raises(ValueError, match="--worker gpu"):
        Setting(tree)
    assert Setting(tree, "gpu").among(16).gpus == 16


def test_strong_scaling_ends_where_gpus_have_nothing_to_do() -> None:
    setting = Setting(Cluster.named("v100_25g"), global_batch=64)
    points = curves(setting, [RESNET], ["psgd"], largest=64)
    assert {p.workers for p in points if p.scaling == "strong"} == {1, 2, 4, 8}
    assert {p.workers for p in points if p.scaling == "weak"} == {1, 2, 4, 8, 16, 32, 64}


def test_measured_points_are_marked_and_share_one_lonely_process(few) -> None:
    assert {p.source for p in few} == {"measured"}
    assert len({p.alone for p in few}) == 1
    assert {(p.scaling, p.workers, p.batch) for p in few} == {
        ("weak", 1, 4), ("weak", 2, 4), ("strong", 1, 4), ("strong", 2, 2),
    }  # fmt: skip
    assert all(p.efficiency == pytest.approx(1) for p in few if p.workers == 1)
    assert not any(p.oversubscribed for p in few if p.workers == 1)


def test_more_processes_than_cores_are_marked(monkeypatch) -> None:
    monkeypatch.setattr(measured, "cores", lambda: 1)
    points = measured.curves((2,), ["dsgd"], Choices(period=1), subjects=[SMALL], rounds=1)
    assert all(p.oversubscribed and p.row()["oversubscribed"] for p in points)


def test_measured_and_modelled_share_no_panel_no_line_style_and_no_unmarked_row(few, tmp_path: Path) -> None:
    setting = Setting(Cluster.named("v100_25g"))
    points = (*few, *curves(setting, [RESNET, BERT], METHODS, largest=16))
    drawn = figure(points, setting.choices)
    for panel in drawn.panels:
        axes = Canvas().add_subplot()
        panel.draw(axes)
        solid = {line.get_linestyle() == "-" for line in axes.lines if line.get_color() != IDEAL.colour}
        assert solid == {panel.name.startswith("measured")}, panel.name
    looks = {source: [look(method) for method in METHODS] for source, look in LOOKS.items()}
    assert all(look.dash == "-" and look.marker for look in looks["measured"])
    assert all(look.dash != "-" and not look.marker for look in looks["modelled"])
    found = Study(setting, (RESNET, BERT), METHODS, points, "commeff scale")
    assert [path.suffix for path in save(found, tmp_path)] == [".csv", ".md", ".pdf", ".png"]
    table = pd.read_csv(tmp_path / "scale.csv")
    assert len(table) == len(points)
    assert set(table["source"]) == {"measured", "modelled"}
    text = "\n".join(page(found))
    assert text.index("## Modelled") < text.index("samples/s (modelled)") < text.index("## Measured")
    assert text.index("## Measured") < text.index("samples/s (measured)")


NOTHING_MEASURED = ["--processes", "0"]


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(scale)
    return made


def test_the_command_gives_every_point(app) -> None:
    options = ["--workload", "bert_large", "--methods", "psgd,dsgd", "--workers", "4", "--json", *NOTHING_MEASURED]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert {(r["method"], r["workers"], r["scaling"]) for r in rows} == {
        (m, n, s) for m in ("psgd", "dsgd") for n in (1, 2, 4) for s in ("weak", "strong")
    }
    assert all(r["source"] == "modelled" and r["place"] == "v100_25g" for r in rows)


def test_a_measured_profile_is_a_cluster_to_model_on(tmp_path: Path) -> None:
    replace(FLAT, name="mine", inter=Link(5e8, 1e-4)).save(tmp_path / "mine.yaml")
    options = partial(
        asked, workloads=["resnet50"], methods="psgd", workers=8, worker="node", step_seconds=0.1, global_batch=64,
        overlap=0.0, period=8, ratio=0.01, processes="0",
    )  # fmt: skip
    last = study(options(cluster=str(tmp_path / "mine.yaml"))).points[3]
    assert (last.place, last.workers) == ("mine", 8)
    assert last.step == pytest.approx(0.1 + 14 * 1e-4 + 14 / 8 * RESNET.bytes / 5e8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workload", "vgg"], "there is no workload 'vgg'"),
        (["--methods", "psgd,adam"], "there is no method 'adam'"),
        (["--cluster", "v100_25"], "did you mean v100_25g?"),
        (["--cluster", "missing.yaml"], "missing.yaml: No such file"),
        (["--step-seconds", "1"], "choose one with --workload"),
        (["--workload", "resnet50", "--step-seconds", "-1"], "compute time"),
        (["--overlap", "1.5"], "an overlap of 1.5"),
        (["--global-batch", "3"], "a global batch of 3"),
        (["--period", "0"], "a period of 0"),
        (["--ratio", "0"], "ratio must lie in (0, 1]"),
        (["--workers", "-4"], "-4 workers"),
        (["--workers", "0", "--processes", "0"], "nothing to do"),
        (["--processes", "two"], "--processes two"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(app, options, words) -> None:
    result = CliRunner().invoke(app, options if "--processes" in options else [*options, *NOTHING_MEASURED])
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
