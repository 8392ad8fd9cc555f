"""Modelled wall-clock in a report: closed forms, where methods lose, what is marked, what is refused."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from commeff.cluster import Cluster
from commeff.cluster.modelled import Modelled
from commeff.cluster.places import Place, read_place
from commeff.experiments.cli.report import report_command, show
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import adopt
from commeff.experiments.config.policies import RunMethod
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.data.manifest import DATA_SETS
from commeff.experiments.grid.plan.spec import read_grid
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.computing import work
from commeff.experiments.report.data.cross_over import HIGHEST, LOWEST, cross_over, in_words
from commeff.experiments.report.data.wallclock import COMPUTING, Modeller, places_of, wallclock
from commeff.experiments.report.draw.scaling import scaling
from commeff.experiments.report.draw.wallclock import speed_up
from commeff.experiments.report.write.table_main import main_tables
from commeff.experiments.report.write.writing import Report, write_report
from commeff.planner import Model, Policy, predict
from tests.experiments.report.report_stores import STEPS, Forged, forge

ETHERNET = "ethernet_1g"
PLUGIN = Path(__file__).parents[2] / "plugins" / "random_share.py"
SETTINGS = {
    "psgd": ("optimizer.lr=0.1",),
    "dsgd": ("optimizer.lr=0.1", "topology=ring"),
    "local_sgd": ("optimizer.lr=0.1", "method.period=8"),
    "mem_sgd": ("optimizer.lr=0.1", "compressor=top_k", "compressor.ratio=0.02"),
}
LEVELS = {"psgd": 0.9, "dsgd": 0.95, "local_sgd": 0.92, "mem_sgd": 0.91}


def runs(methods: Sequence[str] = tuple(SETTINGS), seeds: int = 2, workers: Sequence[int] = (4,)) -> list[Forged]:
    return [
        Forged(name, seed, accuracy=LEVELS[name], settings=SETTINGS[name], workers=n)
        for name in methods
        for n in workers
        for seed in range(seeds)
    ]


def bytes_of(config: dict[str, object]) -> int:
    return 4 * work(config).layout.d


# Closed forms of whole runs


def test_a_step_of_psgd_is_flops_over_peak_and_a_ring() -> None:
    place = read_place({"cluster": ETHERNET, "efficiency": 0.25})
    (run,) = runs(["psgd"], seeds=1)
    link, size, n = place.cluster.inter, bytes_of(run.config), run.workers
    line = Modeller().timeline(run.config, place, 50)
    batch = run.config["task"]["batch"]
    hidden = run.config["task"]["hidden"]
    flops = 2 * batch * (2 * 64 * hidden + 3 * hidden * 10)  # the first layer's input needs no gradient
    assert line.compute == pytest.approx(flops / (0.25 * 0.1e12))
    ring = link.seconds(2 * (n - 1) / n * size, 2 * (n - 1))
    tree = link.seconds(2 * size, 2 * math.ceil(math.log2(n)))
    assert line.exposed_by_kind["all_reduce"] == pytest.approx(min(ring, tree))
    assert line.step == pytest.approx(line.compute + line.exposed_by_kind["all_reduce"])


def test_gossip_takes_its_own_graph_and_local_steps_only_their_period() -> None:
    place = read_place({"cluster": ETHERNET, "step_seconds": 0.0})
    (ring,), (local,), (dense,) = (runs([name], seeds=1) for name in ("dsgd", "local_sgd", "psgd"))
    link, size = place.cluster.inter, bytes_of(ring.config)
    modeller = Modeller()
    assert modeller.timeline(ring.config, place, 9).step == pytest.approx(link.seconds(2 * size))
    every, once = (modeller.timeline(run.config, place, 8) for run in (dense, local))
    assert once.seconds(7) == 0
    assert once.seconds(8) == pytest.approx(every.seconds(1))


def test_given_seconds_of_a_minibatch_take_the_place_of_flops() -> None:
    (run,) = runs(["psgd"], seeds=1)
    place = read_place({"cluster": ETHERNET, "step_seconds": 0.125})
    assert Modeller().timeline(run.config, place, 3).compute == 0.125


def test_a_run_is_modelled_with_its_own_numbers_collective_buckets_and_minibatches() -> None:
    place, modeller = read_place({"cluster": ETHERNET, "step_seconds": 0.125}), Modeller()

    def line(*words: str) -> Modelled:
        return modeller.timeline(compose([*words, "workers=4", "steps=8"]), place, 8)

    single, double = (line("method=psgd", "collective=ring", f"task.dtype={kind}") for kind in ("float32", "float64"))
    latency = 6 * place.cluster.inter.latency
    assert double.communication[0] - latency == pytest.approx(2 * (single.communication[0] - latency))
    assert line("method=psgd", "collective=tree").communication[0] > 1.1 * single.communication[0]
    assert {*single.sent} == {"ring"}
    whole, cut = (line("method=psgd", f"bucket_mb={size}") for size in (0, 0.01))
    assert whole.hidden.sum() < 1e-9 < cut.hidden.sum()
    assert line("method=neolithic", "method.rounds=3").compute == 3 * 0.125


def test_latency_is_a_share_of_what_the_baseline_sends(tmp_path: Path) -> None:
    analysis, place = analyse(forge(tmp_path, runs(["psgd"]))), read_place({"cluster": ETHERNET, "step_seconds": 0.01})
    found = wallclock(analysis, place, Modeller())
    size, link = bytes_of(runs(["psgd"], 1)[0].config), place.cluster.inter
    seconds = min(link.seconds(1.5 * size, 6), link.seconds(2 * size, 4))
    assert found.latency_share == pytest.approx(4 * link.latency / seconds)  # of the tree, which has fewer rounds


def test_a_gpu_without_a_peak_for_the_numbers_is_said_so() -> None:
    (run,) = runs(["psgd"], seeds=1)
    place = read_place({"cluster": ETHERNET})
    gpu = replace(place.cluster.gpu, peak_flops={"bf16": 1e12})
    with pytest.raises(ValueError, match="no peak for float32; give step_seconds"):
        Modeller().timeline(run.config, replace(place, cluster=replace(place.cluster, gpu=gpu)), 3)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "numbers.txt"
    file.write_text(" ".join(map(str, range(4000))))
    return file


def over_mesh(text: Path, *words: str) -> dict[str, Any]:
    of = (f"task.data={text}", "model=llama_40k", "task.context=32", "task.batch=8", "steps=40")
    return compose(["task=language", *of, *words])


LLAMA = Model(2, 40, 4, 32, 256, kv_heads=2, ffn_hidden=96, gated=True, flash_attention=True)
LOCAL_SGD = RunMethod(
    '{"method": {"_target_": "commeff.methods.local_sgd", "optimizer": "${optimizer}", "period": 8}}', 2
)
MESHES = [
    (("mesh.shard=2", "mesh.tensor=2", "zero=1"), 8, Policy(tensor=2, data=2, zero=1, micro_batch=4, precision="fp32")),
    (
        ("mesh.pipeline=2", "micro_batches=4", "schedule=gpipe", "recompute=full"),
        8,
        Policy(pipeline=2, micro_batch=2, schedule="gpipe", recompute="full", precision="fp32"),
    ),
    (
        ("mesh.worker=2", "mesh.tensor=2", "method=local_sgd", "method.period=8", "precision=bf16"),
        16,
        Policy(tensor=2, data=2, workers=2, micro_batch=8, method=LOCAL_SGD),
    ),
]


@pytest.mark.parametrize(("words", "batch", "policy"), MESHES)
def test_a_run_over_a_mesh_takes_what_the_planner_predicts_of_it(
    words: tuple[str, ...], batch: int, policy: Policy, text: Path
) -> None:
    config, place = over_mesh(text, *words), read_place({"cluster": "v100_25g" if batch == 8 else "a100_4nic"})
    line = Modeller().timeline(config, place, 40)
    step = predict(LLAMA, policy, place.cluster.with_gpus(policy.gpus), global_batch=batch)
    assert line.step == line.seconds(40) / 40 == pytest.approx(step.step_seconds, rel=1e-12)
    assert line.seconds(8) == 8 * step.step_seconds
    parts = line.compute + sum(line.exposed_by_kind.values())
    assert parts == pytest.approx(line.step)
    assert {*line.exposed_by_kind} == {
        name for name, each in step.breakdown["seconds"].items() if each > 0 and name not in COMPUTING
    }
    assert sum(line.hidden_by_kind.values()) == 0


@pytest.mark.parametrize("words", [words for words, *_ in MESHES])
def test_no_link_of_twice_the_bandwidth_makes_a_run_over_a_mesh_slower(words: tuple[str, ...], text: Path) -> None:
    config, modeller, place = over_mesh(text, *words), Modeller(), read_place({"cluster": "a100_4nic"})
    seconds = [modeller.timeline(config, place.with_link(1e6 * 2**i, 4), 1).total for i in range(20)]
    assert all(slow >= fast for slow, fast in pairwise(seconds))
    assert seconds[0] > seconds[-1]


def test_a_mesh_that_is_not_over_processes_is_of_whole_models_as_before(text: Path) -> None:
    place = read_place({"cluster": ETHERNET})
    plain, of_one = (over_mesh(text, "workers=4", *more) for more in ((), ("mesh.worker=4", "nproc=1")))
    one, other = (Modeller().timeline(config, place, 40) for config in (plain, of_one))
    assert (one.finish == other.finish).all()
    job, size = work(plain), bytes_of(plain)
    tree = place.cluster.inter.seconds(2 * size, 4)
    ring = place.cluster.inter.seconds(1.5 * size, 6)
    assert one.step == pytest.approx(job.seconds(place.cluster.gpu) / place.efficiency + min(ring, tree))


def test_what_the_planner_does_not_know_of_a_mesh_is_said_in_a_line(text: Path) -> None:
    place = read_place({"cluster": "a100_4nic"})

    def refused(words: Sequence[str], says: str, **changes: Any) -> None:
        with pytest.raises(ValueError, match=says):
            Modeller().timeline(over_mesh(text, *words), replace(place, **changes), 10)

    half = ("mesh.tensor=2",)
    refused(half, "step_seconds, efficiency and parameters must be left out", step_seconds=0.1)
    refused(half, "step_seconds, efficiency and parameters must be left out", efficiency=0.3)
    refused(("mesh.worker=2", "participation=0.5"), "participation must be left out over a mesh")
    refused(("mesh.pipeline=2", "micro_batches=4", "schedule=zbv"), "mesh.schedule must be one of gpipe, 1f1b, inter")
    refused(("mesh.worker=2", "mesh.shard=2", "precision=bf16"), "precision must be bf16_reduce_fp32")
    refused(("mesh.pipeline=2", "micro_batches=2", "accumulate=2"), "accumulate must be 1 with stages, got 2")
    refused(("mesh.tensor=2", "task.dtype=float64"), "task.dtype must be float32, got float64")
    refused(("mesh.shard=2", "task.batch=7"), "task.batch must be a multiple of mesh.shard x micro_batches = 2, got 7")
    digits = compose(["task=digits", "method=diloco", "mesh.worker=2", "mesh.tensor=2"])
    with pytest.raises(ValueError, match="task must be language for seconds over a mesh, got Digits"):
        Modeller().timeline(digits, place, 10)


def test_a_report_names_what_the_planner_prices_and_compares_it_with_its_like_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, content = DATA_SETS["tinyshakespeare"], b"To be, or not to be. " * 400
    monkeypatch.setitem(
        DATA_SETS, "tinyshakespeare", replace(known, files={"input.txt": hashlib.md5(content).hexdigest()})
    )
    (tmp_path / known.folder).mkdir()
    (tmp_path / known.folder / "input.txt").write_bytes(content)
    monkeypatch.setenv("COMMEFF_DATA", str(tmp_path))
    small = ("task=language", "model=llama_40k", "task.context=32", "task.batch=8")
    meshes = ("mesh.worker=2",), ("mesh.worker=2", "mesh.shard=2", "zero=1"), ("mesh.worker=2", "mesh.pipeline=2")
    forged = [Forged("psgd", lr=str(i), workers=2, settings=(*small, *mesh)) for i, mesh in enumerate(((), *meshes))]
    base = {"method": "psgd", "optimizer.lr": "1"}
    store = forge(tmp_path / "store", forged, target={"val_accuracy": 0.85}, select=None, baseline=base)
    found = write_report(store, clusters=["v100_25g"])
    data = found.tables["modelled_v100_25g"].data
    remarks = [note == "of its mesh, by the planner" for note in data["note"]]
    assert remarks == [False, True, True, True]
    assert list(data["modelled_speed_up"].isna()) == [True, True, False, False]
    assert data["not_modelled"].isna().all()
    assert "Runs over a mesh instead take the steps that `commeff plan` predicts" in found.tables["modelled"].notes[0]


def test_a_run_in_16_bits_is_priced_at_their_peak() -> None:
    (run,) = runs(["psgd"], seeds=1)
    in_16 = {"task": run.config["task"], "precision": "bf16_mixed"}
    assert (work(in_16).precision, work(in_16).dtype) == ("bf16", torch.float32)
    assert work(run.config).precision == "fp32"


def test_workers_fill_whole_nodes() -> None:
    place = Place("v", Cluster.named("v100_25g"))
    assert [place.holding(n).gpus for n in (1, 5, 8, 9, 16, 17)] == [1, 5, 8, 16, 16, 24]
    assert place.with_link(1.0, 4).cluster.intra.bandwidth == 1.0
    assert place.with_link(1.0, 9).cluster.inter.bandwidth == 1.0


# Where a method loses


@pytest.mark.parametrize("seed", range(8))
def test_the_cross_over_is_that_of_a_brute_force_scan(seed: int) -> None:
    """Two straight lines in 1/B with a floor of computing, as steps have."""
    random = np.random.default_rng(seed)
    (a, b), (c, d) = 10 ** random.uniform(-4, -1, size=2), 10 ** random.uniform(3, 8, size=2)

    def slowness(bandwidth: float) -> float:
        return float((a + c / bandwidth) / (b + d / bandwidth) - 1)

    found = cross_over(slowness)
    scan = np.geomspace(LOWEST, HIGHEST, 20_001)
    loses = np.array([slowness(each) > 0 for each in scan])
    turns = scan[1:][loses[1:] != loses[:-1]]
    assert (found[:1] == [0.0], found[-1:] == [np.inf]) == (loses[0], loses[-1])
    assert [edge for edge in found if 0 < edge < np.inf] == pytest.approx(turns, rel=2e-3)
    assert (in_words(found) in ("always", "never")) == (len(turns) == 0)


def test_a_method_that_needs_more_steps_loses_above_a_bandwidth_that_closes_the_balance(tmp_path: Path) -> None:
    """At the cross-over both take as long; a little above the one loses, a little below the other."""
    slow = [Forged("local_sgd", s, accuracy=0.7, settings=SETTINGS["local_sgd"]) for s in (0, 1)]
    store = forge(tmp_path, [*runs(["psgd"]), *slow], target={"val_accuracy": 0.6})
    analysis, place, modeller = analyse(store), read_place({"cluster": ETHERNET, "step_seconds": 0.01}), Modeller()
    row = wallclock(analysis, place, modeller).of(analysis.variants[1])
    base = wallclock(analysis, place, modeller).of(analysis.variants[0])
    match = re.fullmatch(r"above ([\d.]+) (Mb|Gb)/s", row.loses)
    assert match, row.loses
    bandwidth = float(match[1]) * {"Mb": 1e6, "Gb": 1e9}[match[2]] / 8
    seconds = []
    for factor in (0.97, 1.03):
        there = place.with_link(factor * bandwidth, 4)
        seconds.append(
            [
                modeller.timeline(run.config, there, max(each.steps_to_target.values())).total
                for run, each in ((slow[0], row), (runs(["psgd"])[0], base))
            ]
        )
    (ours_below, theirs_below), (ours_above, theirs_above) = seconds
    assert ours_below < theirs_below
    assert ours_above > theirs_above


# A whole report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    missing = Forged("psgd", 0, lr="0.3", accuracy=0.8, settings=("optimizer.lr=0.3",))
    plugin = Forged("psgd", 0, lr="0.5", accuracy=0.9, settings=("optimizer.lr=0.5",))
    goal, base = {"val_accuracy": 0.85}, {"method": "psgd", "optimizer.lr": "0.1"}
    store = forge(
        tmp_path_factory.mktemp("clocks"), [*runs(), missing, plugin], target=goal, select=None, baseline=base
    )
    config = store / missing.name / "config.yaml"
    config.write_text(config.read_text().replace("commeff.methods.psgd", "gone.py:psgd"))
    config = store / plugin.name / "config.yaml"
    config.write_text(config.read_text().replace("commeff.methods.psgd", f"{PLUGIN}:random_share"))
    adopt([str(PLUGIN)])
    return write_report(store, clusters=[ETHERNET, "v100_25g"], step_seconds=0.001)


def test_a_run_that_diverged_has_not_reached_the_target(tmp_path: Path) -> None:
    lost = [replace(run, state="diverged") for run in runs(["psgd"]) if run.seed == 1]
    store = forge(tmp_path, [*(run for run in runs(["psgd"]) if run.seed == 0), *lost], target={"val_accuracy": 0.3})
    analysis, place = analyse(store), read_place({"cluster": ETHERNET, "step_seconds": 0.01})
    (row,) = wallclock(analysis, place, Modeller()).rows.values()
    assert (sorted(row.steps_to_target), row.ended) == ([0], 2)


@pytest.mark.parametrize("late", ["dsgd", "psgd"])
def test_a_seed_that_never_reaches_the_target_leaves_no_speed_up_and_no_mean(tmp_path: Path, late: str) -> None:
    """A mean over those that do would flatter: no table and no figure has one, and all say how many did."""
    forged = [replace(run, accuracy=0.5) if (run.method, run.seed) == (late, 1) else run for run in runs(seeds=3)]
    found = write_report(forge(tmp_path, forged, target={"val_accuracy": 0.85}), clusters=[ETHERNET], step_seconds=0.01)
    (clock,) = (wallclock(found.analysis, place, Modeller()) for place in places_of(found.analysis, [ETHERNET], 0.01))
    of = {variant.labels["method"]: clock.of(variant) for variant in found.analysis.variants}
    assert {name for name, row in of.items() if row.speed_up is None} == ({"psgd", "dsgd"} if late == "dsgd" else {*of})
    assert (of[late].to_target, of[late].short) == (None, "2 of 3 reached")
    ours = (row for row in found.analysis.rows if row.variant.labels["method"] == late)
    assert [dict(row.reached.costs) for row in ours if row.reached] == [{}]
    figure = speed_up(found.analysis, [clock])
    assert (figure is None) == (late == "psgd")
    assert figure is None or late not in set(figure.data["variant"])
    for name in ("main", "target", f"modelled_{ETHERNET}", *(["modelled"] if figure else [])):
        (line,) = (row for row in found.tables[name].rows if row[0].text == late)
        assert "2 of 3" in " ".join(item.text for item in line), name


def test_a_seed_that_failed_has_not_reached_the_target(tmp_path: Path) -> None:
    forged = [replace(run, state="failed") if (run.method, run.seed) == ("dsgd", 1) else run for run in runs(seeds=3)]
    found = write_report(forge(tmp_path, forged, target={"val_accuracy": 0.85}))
    (reached,) = (row.reached for row in found.analysis.rows if row.variant.labels["method"] == "dsgd")
    assert reached is not None
    assert (reached.n, reached.of, dict(reached.costs)) == (2, 3, {})


def test_every_variant_has_a_line_and_what_cannot_be_modelled_is_said(report: Report) -> None:
    table = report.tables[f"modelled_{ETHERNET}"]
    lines = {row[0].text: row for row in table.rows}
    assert len(lines) == len(report.analysis.rows) == 6
    remarks = {name: row[-1].text for name, row in lines.items()}
    (gone,) = (text for name, text in remarks.items() if "0.3" in name)
    assert gone.startswith("not modelled: 'gone.py:psgd' is unknown here: name its file")
    assert sum(text.startswith("not modelled") for text in remarks.values()) == 1


def test_a_plug_in_is_modelled_by_what_it_sends(report: Report) -> None:
    """random_share averages a twentieth of the parameters in every step: a ring or a tree of so many bytes. It encodes
    and decodes at the speed that was measured of random_k.
    """
    data = report.tables[f"modelled_{ETHERNET}"].data.set_index("variant")
    (own,) = (row for name, row in data.iterrows() if "0.5" in str(name))
    link, size = Cluster.named(ETHERNET).inter, 0.05 * bytes_of(runs(["psgd"])[0].config)
    codec = Cluster.named(ETHERNET).gpu.codecs["RandomK"]
    coding = size / 0.05 * (1 / codec.encode + 1 / codec.decode)
    seconds = min(link.seconds(1.5 * size, 6), link.seconds(2 * size, 4)) + coding
    assert own["modelled_exposed_seconds"] == pytest.approx(seconds, rel=1e-3)


def test_speed_ups_are_ratios_of_modelled_seconds_by_seed(report: Report) -> None:
    data = report.tables[f"modelled_{ETHERNET}"].data.set_index("variant")
    base = data[data["modelled_speed_up"].isna() & data["not_modelled"].isna()]
    assert len(base) == 1
    others = data.dropna(subset="modelled_speed_up")
    expected = float(base["modelled_seconds_to_target"].iloc[0]) / others["modelled_seconds_to_target"]
    assert others["modelled_speed_up"].to_numpy() == pytest.approx(expected.to_numpy())


def test_seconds_to_target_are_those_of_the_steps_it_took(report: Report) -> None:
    """Accuracy rises evenly, and the last step in which it gets to 0.85 counts whole."""
    data = report.tables[f"modelled_{ETHERNET}"].data.dropna(subset="modelled_seconds_to_target")
    assert len(data) == 5
    alike = data[~data["variant"].str.contains("local_sgd")]  # those whose steps are
    steps = alike["variant"].map(lambda name: math.ceil(STEPS[-1] * 0.85 / LEVELS[name.split()[0]]))
    expected = steps * alike["modelled_step_seconds"]
    assert alike["modelled_seconds_to_target"].to_numpy() == pytest.approx(expected.to_numpy())


def test_what_is_modelled_is_called_so_and_shares_nothing_with_what_is_measured(report: Report) -> None:
    for name, table in report.tables.items():
        modelled = [column for column in table.columns if "modelled" in f"{column.heading} {column.under}"]
        measured = [column for column in table.columns if "measured" in f"{column.heading} {column.under}"]
        assert not (modelled and measured), name
        assert name.startswith("modelled") == bool(modelled), name
        if modelled:
            assert table.notes[0].startswith("Modelled, not measured")
    main = report.main.data
    assert {f"modelled_seconds_to_target_{ETHERNET}", "seconds", "modelled_speed_up_v100_25g"} <= set(main)
    text = (report.folder / "report.md").read_text()
    assert "seconds of training, modelled" not in text.split("## Against modelled seconds")[0]
    assert {path.stem for path in (report.folder / "figures").glob("*.pdf")} >= {
        "speed_up",
        "modelled_convergence",
        "step_time",
    }
    assert len(pd.read_csv(report.folder / "figures" / "modelled.csv")) == 6


def test_the_speed_up_is_the_first_figure_of_the_page(report: Report) -> None:
    page = report.html.read_text()
    assert '<div class="legend"><button' in page[page.index("<figure") :].split("</figure>")[0], "which colour is where"
    first = re.search(r'<section id="(\w+)"', page)
    assert first is not None
    assert first[1] == "speed_up"
    assert page.index("<figure>") > page.index('id="speed_up"')
    markdown = (report.folder / "report.md").read_text()
    images = re.findall(r"!\[.*?\]\((.*?)\)", markdown)
    assert images[0] == "figures/speed_up.png"


def test_a_report_without_clusters_models_nothing(tmp_path: Path) -> None:
    analysis = analyse(forge(tmp_path, runs(["psgd"])))
    assert places_of(analysis) == []
    assert "odelled" not in "".join(main_tables(analysis)[0].data.columns)


def test_workers_are_drawn_against_their_ideal_measured_and_modelled_apart(tmp_path: Path) -> None:
    store = forge(tmp_path, runs(["psgd", "dsgd"], workers=(2, 4, 8)), target={"val_accuracy": 0.85}, select=None)
    analysis = analyse(store)
    (place,) = places_of(analysis, [ETHERNET], step_seconds=0.01)
    figure = scaling(analysis, [wallclock(analysis, place, Modeller())])
    assert figure is not None
    assert len(figure.panels) == 4
    data = figure.data
    assert set(data["place"]) == {"measured", ETHERNET}
    assert set(data["workers"]) == {2, 4, 8}
    throughput = data[(data["quantity"] == "throughput") & (data["place"] == ETHERNET)]
    for row in throughput.itertuples():
        (run,) = [each for each in runs(["psgd", "dsgd"], 1, [int(row.workers)]) if each.method in row.family]
        step = Modeller().timeline(run.config, place, STEPS[-1]).step
        assert row.value == pytest.approx(32 * row.workers / step)
    measured = data[(data["quantity"] == "throughput") & (data["place"] == "measured")]
    assert measured["value"].to_numpy() == pytest.approx((32 * measured["workers"] * 100).to_numpy())


# Grid files and the command


def test_a_grid_file_names_clusters_and_the_report_takes_them(tmp_path: Path) -> None:
    Cluster.named(ETHERNET).save(tmp_path / "mine.yaml")
    clusters = "clusters: [v100_25g, {cluster: ./mine.yaml, step_seconds: 0.25}]"
    (tmp_path / "g.yaml").write_text(f"grid: [{{method: psgd}}]\nstep_seconds: 0.5\n{clusters}\n")
    grid = read_grid(tmp_path / "g.yaml")
    (tmp_path / "mine.yaml").unlink()  # the store has what it said
    kept = analyse(forge(tmp_path / "kept", runs(["psgd"]), clusters=grid.clusters))
    assert [(place.name, place.step_seconds) for place in places_of(kept)] == [("v100_25g", 0.5), (ETHERNET, 0.25)]
    assert [place.cluster for place in places_of(kept)] == [Cluster.named("v100_25g"), Cluster.named(ETHERNET)]
    store = forge(
        tmp_path / "store", runs(["psgd", "dsgd"]), target={"val_accuracy": 0.85}, clusters=[{"cluster": ETHERNET}]
    )
    analysis = analyse(store)
    assert [place.name for place in places_of(analysis)] == [ETHERNET]
    assert [(place.name, place.step_seconds) for place in places_of(analysis, ["v100_25g"], 0.5)] == [("v100_25g", 0.5)]
    assert [place.step_seconds for place in places_of(analysis, step_seconds=0.5)] == [0.5]
    own = forge(tmp_path / "own", runs(["psgd"]), clusters=[{"cluster": ETHERNET, "step_seconds": 0.25}])
    with pytest.raises(ValueError, match=r"step_seconds must be left out .* got 0.5 beside 0.25 of ethernet_1g"):
        places_of(analyse(own), step_seconds=0.5)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("clusters: [v100_25]", "did you mean v100_25g"),
        ("clusters: v100_25g", "must be a list"),
        ("clusters: [{cluster: v100_25g, eficiency: 1}]", "did you mean efficiency"),
        ("clusters: [{cluster: v100_25g, efficiency: 2}]", "efficiency must lie in"),
        ("clusters: [v100_25g]\nstep_seconds: fast", "step_seconds must be"),
        ("clusters: [v100_25g, v100_25g]", "named once"),
        ("clusters: [nowhere.yaml]", "No such file"),
        ("step_seconds: 1", "give clusters too"),
    ],
)
def test_a_grid_file_with_no_such_cluster_is_refused(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "g.yaml").write_text(f"grid: [{{method: psgd}}]\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        read_grid(tmp_path / "g.yaml")


def run(*words: str) -> Result:
    app = typer.Typer()
    app.command()(report_command)
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cluster", "ethernet_1"), "did you mean ethernet_1"),
        (("--cluster", "nope"), "no cluster 'nope'|got 'nope'"),
        (("--cluster", ETHERNET, "--efficiency", "40"), "efficiency must lie in"),
        (("--cluster", ETHERNET, "--step-seconds", "-1"), "step_seconds must be"),
        (("--step-seconds", "1"), "name one with --cluster"),
    ],
)
def test_the_command_refuses_in_one_line_before_anything_is_written(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    store = forge(tmp_path / "store", [Forged("psgd")])
    refused = run(str(store), "--out", str(tmp_path / "out"), *words)
    assert refused.exit_code == 2
    assert re.fullmatch(rf"commeff: [^\n]*({reason})[^\n]*\n", refused.stderr), refused.stderr
    assert not (tmp_path / "out").exists()


def test_json_has_what_is_modelled_in_columns_of_its_own(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    show(report, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    of = {(row["method"], row["optimizer.lr"]): row for row in rows}
    assert of["dsgd", "0.1"][f"modelled_speed_up_{ETHERNET}"] > 0
    assert of["psgd", "0.1"][f"modelled_speed_up_{ETHERNET}"] is None
    assert of["dsgd", "0.1"]["seconds"] == pytest.approx(STEPS[-1] / 100)
