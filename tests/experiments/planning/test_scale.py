"""`commeff scale`: laws of throughput, points that price profiles."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
import typer
from matplotlib.figure import Figure as Canvas
from typer.testing import CliRunner

from commeff import Layout
from commeff.cluster import GPU, Cluster, FatTree, Link
from commeff.cluster.billing import Billing
from commeff.experiments.cli.scale import scale
from commeff.experiments.config.plugins import adopt
from commeff.experiments.config.schema import built_in
from commeff.experiments.planning.question import read_question
from commeff.experiments.planning.scale.modelled import curves, point, profiled, read_methods
from commeff.experiments.planning.scale.page import Study, model_study, page, save
from commeff.experiments.planning.scale.picture import IDEAL, figure
from commeff.experiments.planning.scale.setting import ScalingSetting, read_setting
from commeff.experiments.planning.scale.workloads import WORKLOADS, Workload
from commeff.experiments.planning.worker_words import MethodWords
from commeff.planner import predict

CORE = GPU("a core", memory_bytes=2**30, memory_bandwidth=1e10, peak_flops={"fp32": 1e11})
FLAT = Cluster("flat", gpus=1, gpu=CORE, per_node=1, intra=Link(1e9, 1e-5), inter=Link(1e9, 1e-5))
NUMBERS = (2, 4, 8, 16, 64, 256, 1024)
RESNET, BERT = WORKLOADS.values()
METHODS = read_methods([])
PSGD, DSGD, AWC, LOCAL_SGD, MEM_SGD = METHODS
TINY = Workload("tiny", Layout.of([("matrix", (64, 64)), ("bias", (64,))]), 1, 1000.0, "samples", "a test")
PLUGIN = """
from commeff import Average, Every, Local, Strategy

def seldom(optimizer) -> Strategy:
    return Strategy(Local(optimizer), parameters=Every(3, Average()))
"""


def plugin(folder: Path) -> MethodWords:
    (folder / "mine.py").write_text(PLUGIN)
    return MethodWords(("method=seldom",), tuple(adopt([str(folder / "mine.py")])[0]))


def test_a_file_does_not_hide_the_cluster_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v100_25g").write_text("no cluster")
    assert read_setting("v100_25g", 8, "node", None, 64).cluster == Cluster.named("v100_25g")


@pytest.mark.parametrize("name", [*built_in("method"), "a plug-in"])
def test_points_price_the_profile(name: str, tmp_path: Path) -> None:
    """Where nothing hides, a step waits for all that the profile says, each operation and its coding at its price."""
    method, n = MethodWords((f"method={name}",)) if name in built_in("method") else plugin(tmp_path), 8
    found, _ = profiled(method, TINY.layout, n)
    price = Billing(FLAT.with_gpus(n), n)
    sent = [each for step in range(found.period) for each in found.operations(found.first + step)]
    assert sent
    shown = point(ScalingSetting(FLAT, overlap=0.0), TINY.taking(1e-12), "weak", method, n)
    assert shown.step == pytest.approx(
        sum(price.seconds(each) + price.coding(each) for each in sent) / found.period, rel=1e-3
    )
    whole = point(ScalingSetting(FLAT), TINY, "weak", method, n)
    assert whole.compute <= whole.step <= whole.compute + 1.001 * shown.step


def test_what_is_awaited_later_hides_and_what_leaves_early_too() -> None:
    exposed = {
        words: point(ScalingSetting(FLAT), RESNET, "weak", MethodWords((f"method={words}",)), 8)
        for words in ("psgd", "dsgd", "dasgd", "local_sgd")
    }
    exposed["awc"] = point(ScalingSetting(FLAT), RESNET, "weak", AWC, 8)
    waits = {name: shown.step - shown.compute for name, shown in exposed.items()}
    assert waits["awc"] == pytest.approx(0)  # sent before the gradient is computed
    assert waits["psgd"] < waits["dsgd"]  # buckets hide behind backward, mixing after the step does not
    assert waits["dasgd"] < waits["local_sgd"]  # the same averages, a step late


def test_a_method_of_several_minibatches_a_step_computes_all_of_them() -> None:
    several = point(ScalingSetting(FLAT), TINY, "weak", MethodWords(("method=neolithic", "method.rounds=3")), 2)
    one = point(ScalingSetting(FLAT), TINY, "weak", PSGD, 2)
    assert (several.batch, several.compute) == pytest.approx((3 * one.batch, 3 * one.compute))


@pytest.mark.parametrize("scaling", ["weak", "strong"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_nobody_is_above_the_ideal_line_and_one_worker_is_on_it(scaling, method) -> None:
    exposed, hidden = ScalingSetting(FLAT, overlap=0.0), ScalingSetting(FLAT)
    assert point(exposed, RESNET, scaling, method, 1).efficiency == pytest.approx(1)
    assert all(point(exposed, RESNET, scaling, method, n).efficiency < 1 for n in NUMBERS)
    assert all(point(hidden, RESNET, scaling, method, n).efficiency < 1 + 1e-9 for n in NUMBERS)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_everybody_is_on_the_ideal_line_if_sending_takes_no_time(method) -> None:
    free = replace(
        FLAT, inter=Link(1e30, 0.0), intra=Link(1e30, 0.0), gpu=replace(CORE, memory_bandwidth=1e30)
    )  # nor coding
    for scaling in ("weak", "strong"):
        assert point(ScalingSetting(free), BERT, scaling, method, 64).efficiency == pytest.approx(1)


def test_weak_throughput_grows_with_workers_where_a_step_is_bounded() -> None:
    """The bytes of an all-reduce and of one peer are bounded, so twice the workers are worth more; those of n messages
    of top-k are not: their throughput has the limit batch / seconds to send and to decode one more of them.
    """
    for method in (PSGD, DSGD, LOCAL_SGD):
        speeds = [point(ScalingSetting(FLAT), BERT, "weak", method, n).samples_per_second for n in NUMBERS]
        assert speeds == sorted(speeds)
    gathered = [point(ScalingSetting(FLAT), BERT, "weak", MEM_SGD, n) for n in NUMBERS]
    sent = [profiled(MEM_SGD, BERT.layout, n)[0].operations(0)[0] for n in (512, 1024)]
    price = [Billing(FLAT.with_gpus(n), n) for n in (512, 1024)]
    longer = [own.seconds(each) + own.coding(each) for own, each in zip(price, sent, strict=True)]
    limit = BERT.batch * 512 / (longer[1] - longer[0])
    assert gathered[-1].samples_per_second == pytest.approx(limit, rel=0.1)


def test_partial_averaging_is_no_slower_than_an_all_reduce_and_its_step_does_not_depend_on_n() -> None:
    for workload in (RESNET, BERT):
        steps = {
            m: [point(ScalingSetting(FLAT, overlap=0.0), workload, "weak", m, n).step for n in NUMBERS] for m in METHODS
        }
        assert all(gossip <= ring for gossip, ring in zip(steps[DSGD], steps[PSGD], strict=True))
        assert steps[DSGD] == pytest.approx([steps[DSGD][0]] * len(NUMBERS))
        assert steps[PSGD][-1] > steps[PSGD][1]


def test_a_larger_ratio_of_communication_to_computing_costs_more_efficiency() -> None:
    efficiencies = [
        point(ScalingSetting(FLAT), BERT.taking(seconds), "weak", PSGD, 64).efficiency for seconds in (10, 1, 0.1)
    ]
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_communication_hides_behind_computing_up_to_the_share_given() -> None:
    without = point(ScalingSetting(FLAT, overlap=0.0), RESNET, "weak", PSGD, 64)
    some, most = (point(ScalingSetting(FLAT, overlap=share), RESNET, "weak", PSGD, 64) for share in (0.5, 1.0))
    assert without.step - some.step == pytest.approx(0.5 * without.compute)
    assert most.step == pytest.approx(max(without.compute, without.step - without.compute))


def test_gpus_behind_one_nic_lose_what_nodes_gain_by_gossip() -> None:
    cluster = Cluster.named("v100_25g")
    gain = {
        worker: point(ScalingSetting(cluster, worker, overlap=0.0), RESNET, "weak", DSGD, n).efficiency
        / point(ScalingSetting(cluster, worker, overlap=0.0), RESNET, "weak", PSGD, n).efficiency
        for worker, n in (("node", 8), ("gpu", 64))
    }
    assert gain["node"] > 1 > gain["gpu"]


def test_nics_of_a_node_are_not_taken_as_one_on_a_fat_tree() -> None:
    tree = replace(Cluster.named("a100_selene", gpus=64), network=FatTree((16,), (4,)))
    with pytest.raises(ValueError, match="--worker must be gpu"):
        ScalingSetting(tree)
    assert ScalingSetting(tree, "gpu").among(16).gpus == 16


def test_strong_scaling_ends_where_gpus_have_nothing_to_do() -> None:
    setting = ScalingSetting(Cluster.named("v100_25g"), global_batch=64)
    points = curves(setting, [RESNET], [PSGD], largest=64)
    assert {p.workers for p in points if p.scaling == "strong"} == {1, 2, 4, 8}
    assert {p.workers for p in points if p.scaling == "weak"} == {1, 2, 4, 8, 16, 32, 64}


def test_the_files_hold_every_point_and_every_method_has_its_dash(tmp_path: Path) -> None:
    setting = ScalingSetting(Cluster.named("v100_25g"))
    points = tuple(curves(setting, [RESNET, BERT], METHODS, largest=16))
    study = Study(setting, (RESNET, BERT), METHODS, points, "commeff scale")
    assert [path.suffix for path in save(study, tmp_path)] == [".csv", ".md", ".pdf", ".png"]
    assert len(pd.read_csv(tmp_path / "scale.csv")) == len(points)
    assert "What hides decides which is faster" in "\n".join(page(study))
    for panel in figure(points).panels:
        axes = Canvas().add_subplot()
        panel.draw(axes)
        lines = [line for line in axes.lines if line.get_color() != IDEAL.colour]
        assert len(lines) == len(METHODS)
        assert all(line.is_dashed() and line.get_marker() in ("", "None") for line in lines)


def test_two_numbers_of_workers_are_drawn() -> None:
    assert figure(curves(ScalingSetting(FLAT), [RESNET], [PSGD], largest=2)).panels


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(scale)
    return made


def test_the_command_gives_every_point(app) -> None:
    options = ["--workload", "bert_large", "--workers", "4", "--json"]
    result = CliRunner().invoke(
        app, ["method=psgd", "method=choco", "compressor=scaled_sign", "topology=ring", *options]
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert {(r["method"], r["workers"], r["scaling"]) for r in rows} == {
        (m, n, s) for m in ("psgd", "choco, scaled_sign, ring") for n in (1, 2, 4) for s in ("weak", "strong")
    }
    assert all(r["cluster"] == "v100_25g" for r in rows)


def test_a_plugin_is_drawn_like_any_other_method(app, tmp_path: Path) -> None:
    plugin(tmp_path)
    options = ["method=seldom", "--plugin", str(tmp_path / "mine.py"), "--workers", "2", "--json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert {row["method"] for row in json.loads(result.stdout)} == {"seldom"}


def test_a_measured_profile_is_a_cluster_to_model_on(tmp_path: Path) -> None:
    replace(FLAT, name="mine", inter=Link(5e8, 1e-4)).save(tmp_path / "mine.yaml")
    study = model_study(
        ["method=psgd", "bucket_mb=0", "collective=ring"], workloads=["resnet50"], workers=8, step_seconds=0.1,
        global_batch=64, overlap=0.0, cluster=str(tmp_path / "mine.yaml"),
    )  # fmt: skip
    last = study.points[3]
    assert (last.setting.cluster.name, last.workers) == ("mine", 8)
    assert last.step == pytest.approx(0.1 + 14 * 1e-4 + 14 / 8 * RESNET.bytes / 5e8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workload", "vgg"], "--workload must be one of resnet50 bert_large, got vgg"),
        (["method=psgd", "method=adam"], "no method 'adam'"),
        (["method=psgd", "steps=3"], "keys must describe a method here, got 'steps=3'"),
        (["--cluster", "v100_25"], "did you mean v100_25g?"),
        (["--cluster", "missing.yaml"], "missing.yaml: No such file"),
        (["--step-seconds", "1"], "choose one with --workload"),
        (["--workload", "resnet50", "--step-seconds", "-1"], "compute time"),
        (["--overlap", "1.5"], "--overlap must be 0 to 1, got 1.5"),
        (["--global-batch", "3"], "--global-batch must be at least 8, got 3"),
        (["method=mem_sgd", "compressor.ratio=0"], "ratio"),
        (["--workload", "bert_large", "--cluster", "ethernet_1g"], "--step-seconds must be given for bert_large"),
        (["model=llama2-7b", "--workload", "resnet50"], "must be left out with a model"),
        (["model=llama2-7b", "gpus=8"], "gpus=8 must be left out"),
        (["model=llama2-7b", "cluster=a100_10g"], "cluster=a100_10g must be left out: --cluster says where"),
        (["model=llama2-7b", "bandwidth=1 Gb/s"], "bandwidth=1 Gb/s must be left out"),
        (["model=llama2-7b", "--cluster", "a100_10g"], "does not fit"),
        (["model=llama2-7b", "tensor=3", "--cluster", "a100_10g"], "tensor x pipeline must divide the 8 GPUs"),
        (["model=llama2-7"], "did you mean llama2-7b"),
        (["--workers", "-4"], "--workers must be 1 to 100,000, got -4"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(app, options, words) -> None:
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_table_ends_with_the_most_workers(app) -> None:
    printed = CliRunner().invoke(app, ["--workload", "resnet50", "--workers", "4", "method=psgd"]).stdout
    assert [line.split()[2] for line in printed.splitlines() if line.startswith("resnet50")] == ["1", "4"]


def test_the_points_of_a_model_are_what_plan_says_of_the_same_policy() -> None:
    """Of a worker of a node, and of a GPU; the same batch of all, and the same of each."""
    words, methods = (
        ["model=tinyllama-1.1b", "zero=1", "recompute=full"],
        {
            "psgd": ["method=psgd"],
            "diloco, period 20": ["method=diloco", "method.period=20"],
        },
    )
    for worker, n, inside in (("node", 4, 8), ("gpu", 16, 1)):
        study = model_study(
            [*words, *chain(*methods.values())], cluster="a100_10g", workers=n, worker=worker, global_batch=256
        )
        points = {(each.scaling, each.method): each for each in study.points if each.workers == n}
        for scaling, batch in (("strong", 256), ("weak", 2 * n * inside)):
            for name, method in methods.items():
                workers = [] if name == "psgd" else [f"workers={n}"]
                gpus = ["cluster=a100_10g", f"gpus={n * inside}", f"global_batch={batch}"]
                own = read_question([*words, *method, *workers, *gpus])
                seconds = predict(own.model, own.one(), own.cluster, global_batch=batch).step_seconds
                shown = points[scaling, name]
                assert shown.step == seconds
                assert 0 < shown.compute < shown.step


@pytest.mark.parametrize("name", [*WORKLOADS])
def test_a_workload_computes_at_the_pace_of_the_clusters_gpu(name: str) -> None:
    published = WORKLOADS[name]
    gpus = [Cluster.named(cluster).gpu for cluster in ("v100_25g", "h100_400g")]
    slow, fast = (published.on(gpu).per_second for gpu in gpus)
    peaks = [gpu.peak_flops[published.precision] for gpu in gpus]
    assert slow == published.per_second
    assert fast / slow == pytest.approx(peaks[1] / peaks[0])
    (point,) = model_study(["method=psgd"], workloads=[name], workers=1, cluster="h100_400g").points[:1]
    assert point.compute == pytest.approx(published.batch / fast, rel=0.1)  # and an average in the node
