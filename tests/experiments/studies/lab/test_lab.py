"""The network lab: links keep their rate, a run in it is the run that it is elsewhere, and nothing of it stays."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from commeff.cluster import Cluster
from commeff.cluster.billing import Recorded
from commeff.communicator.ledger import Entry
from commeff.experiments.config.compose import compose
from commeff.experiments.grid.command import Request
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.report.data.grids import StoredCell as GridCell
from commeff.experiments.report.data.grids import StoredGrid
from commeff.experiments.report.draw.figures import svg, write
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from commeff.experiments.studies import commands
from commeff.experiments.studies.lab import bench
from commeff.experiments.studies.lab.bench import exchanges
from commeff.experiments.studies.lab.grid import check_same, nodes_of, run_in_lab, run_on
from commeff.experiments.studies.lab.network import NETWORKS, Node, lab
from commeff.experiments.studies.lab.outcome import NetworkRuns, Race, modelled_seconds, read_networks
from commeff.experiments.studies.lab.report import figure, page, report, speed_ups
from commeff.topologies import one_peer_exponential
from tests import owned
from tests.experiments.run.test_hostile_files import EVIL

pytestmark = pytest.mark.slow  # of a study, which nobody installs

WORDS = ["task=quadratic", "workers=2", "method=mem_sgd", "compressor.ratio=0.3", "evaluate_every=2", "nproc=2"]
GRID = """
base: {task: quadratic, workers: 2, nproc: 2, steps: 8, evaluate_every: 2}
grid:
  - {name: exact, method: psgd}
  - {name: sparse, method: mem_sgd, compressor.ratio: 0.3}
target: {val_loss: 1000000000}
baseline: {method: psgd}
"""


@pytest.fixture
def pair() -> Iterator[list[Node]]:
    """Two nodes on 100 Mbit/s."""
    with ExitStack() as held:
        try:
            nodes = held.enter_context(lab(NETWORKS["100mbit"], 2))
        except ValueError as error:
            pytest.skip(str(error))
        yield nodes


def test_a_link_carries_no_more_than_its_rate_says(pair: list[Node]) -> None:
    size, inter = 3_000_000, NETWORKS["100mbit"].cluster(2).inter
    line, theirs = multiprocessing.Pipe()

    def receive() -> None:
        pair[1].enter()
        with socket.create_server((pair[1].address, 5000)) as server:
            theirs.send("ready")
            connection, _ = server.accept()
            begun, left = time.perf_counter(), size
            while left:
                left -= len(connection.recv(min(left, 2**16)))
            theirs.send(time.perf_counter() - begun)

    def send() -> None:
        pair[0].enter()
        with socket.create_connection((pair[1].address, 5000)) as connection:
            connection.sendall(bytes(size))

    receiver, sender = owned.process(receive), owned.process(send)
    receiver.start()
    assert line.poll(owned.PATIENCE)
    line.recv()
    sender.start()
    assert line.poll(owned.PATIENCE)
    assert line.recv() / inter.seconds(size) > 0.8  # a link without a bucket carries it in milliseconds
    for process in (receiver, sender):
        process.join()


def test_exchanges_take_no_less_than_the_model_says(pair: list[Node]) -> None:
    found = exchanges(NETWORKS["100mbit"], pair, rounds=2, numbers=500_000)
    ratios = {reading.what: reading.ratio for reading in found if reading.against == "modelled"}
    assert {"all_reduce", "one-peer"} <= ratios.keys()
    assert all(ratios[what] > 0.7 for what in ("all_reduce", "one-peer"))  # 150 ms; without buckets 2


def begun(nodes: list[Node], cell: Cell) -> tuple[BaseProcess, Connection]:
    """A cell under way on the nodes, and the line to it."""
    ours, theirs = multiprocessing.Pipe()
    process = owned.process(run_in_lab, (nodes, cell, (), theirs))
    process.start()
    return process, ours


def test_a_run_in_the_lab_is_the_run_that_it_is_in_one_process(pair: list[Node], tmp_path: Path) -> None:
    config = compose([*WORDS, "steps=6"])
    alone = run_one({**config, "nproc": 1}, tmp_path / "alone")
    cell = Cell(1, {}, None, {}, config, tmp_path / "lab" / run_id(config))
    process, line = begun(pair, cell)
    process.join(owned.PATIENCE)
    line.close()
    assert process.exitcode == 0
    environment = RunFolder(cell.folder).read("env.json")
    assert (environment["launcher"], environment["world_size"]) == ("lab", 2)
    assert environment["variables"]["GLOO_SOCKET_IFNAME"] == "lab0"
    there = RunFolder(cell.folder).read("summary.json")
    assert there["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-6)
    assert there["wire_bytes"] == alone["wire_bytes"]


def test_a_cell_that_should_stop_leaves_a_checkpoint(pair: list[Node], tmp_path: Path) -> None:
    config = compose([*WORDS, "steps=1000000"])
    cell = Cell(1, {}, None, {}, config, tmp_path / run_id(config))
    process, line = begun(pair, cell)
    owned.until((cell.folder / "metrics.jsonl").exists, "a row")
    line.send("stop")
    process.join(owned.PATIENCE)
    assert process.exitcode == 0
    assert RunFolder(cell.folder).state == "killed"
    assert (cell.folder / "checkpoints" / "latest.pt").exists()


def test_a_grid_runs_in_the_lab_and_is_reported(tmp_path: Path, pair: list[Node]) -> None:
    file, root = tmp_path / "small.yaml", tmp_path / "lab"
    file.write_text(GRID)
    outcome = run_on(Request(file), NETWORKS["1gbit"], root)
    assert outcome.counts == {"done": 2}
    (there,) = read_networks(root)
    assert there.cluster.name == "1gbit"
    assert [(race.method, race.steps) for race in there.races] == [("exact", 2), ("sparse", 2)]
    assert all(race.modelled > 0 and race.exposed <= race.measured for race in there.races)
    report(root, tmp_path / "out", "commeff lab report")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| exact | 1 | 2 |" in text
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.md", "speed_ups.csv", "speed_ups.pdf", "speed_ups.png"
    }  # fmt: skip
    table = pd.read_csv(tmp_path / "out" / "speed_ups.csv")
    assert {"measured_seconds", "modelled_seconds", "measured_speed_up", "modelled_speed_up"} <= {*table}
    assert table[["written by", "hardware", "commit"]].notna().all(axis=None)
    with pytest.raises(ValueError, match="got another one"):
        check_same(root / "1gbit" / "cluster.yaml", NETWORKS["100mbit"], 2)


def test_modelled_seconds_are_computing_and_what_is_sent_costs() -> None:
    rows = [Entry(step, "gradients", "all_reduce", 1e6, 1e6, 1, 1) for step in (1, 3)]
    cluster = NETWORKS["slow_link"].cluster(2, latency=0.25)
    bytes_alone = (1e6 - 2**18) / (50e6 / 8 * 1448 / 1514)  # over the slow link; two rounds of a ring of two
    found, floor = modelled_seconds(Recorded(rows, workers=2), cluster, 4, compute=0.125)
    assert found == pytest.approx(4 * 0.125 + 2 * (2 * 0.25 + bytes_alone))
    assert floor == pytest.approx(2 * bytes_alone)


def test_only_a_network_of_the_lab_has_links_to_be_modelled() -> None:
    with pytest.raises(ValueError, match=r"must be one of the lab's, .* got 'mine'"):
        modelled_seconds(Recorded([], workers=2), replace(NETWORKS["1gbit"].cluster(2), name="mine"), 4, compute=0.1)


def test_gossip_pays_for_the_slow_link_of_one_node_in_every_step_that_uses_it() -> None:
    """Everybody is behind the slow node within log2 n steps: the network is worth what its slowest link is."""
    rows = [Entry(step, "", "mix", 1e7, 1e7, 1, 1) for step in range(24)]
    sent = Recorded(rows, 8, one_peer_exponential(8))
    slow, fast = (
        modelled_seconds(sent, NETWORKS[name].cluster(8, latency=0.0), 24, compute=0.0)
        for name in ("slow_link", "200mbit")
    )
    assert slow == pytest.approx((4 * fast[0], 4 * fast[0]))


def raced_in(method: str, seed: int, measured: float, commit: str = "abc") -> Race:
    return Race("200mbit", method, seed, 8, measured, 0.0, 4.0, floor=2.0, commit=commit, hardware="a core")


def seen(*races: Race) -> NetworkRuns:
    cells = tuple(GridCell(race.method, race.seed, {}, (f"method={race.method}",), race.method) for race in races)
    grid = StoredGrid("small", "Small", None, cells, target={"val_loss": 1.0}, baseline={"method": "psgd"})
    return NetworkRuns(NETWORKS["200mbit"].cluster(2), grid, races, ())


def test_seconds_in_which_the_links_cannot_carry_what_was_sent_are_no_measurement(tmp_path: Path) -> None:
    visits = [seen(raced_in("psgd", 0, 6.0), raced_in("dsgd", 0, 3.0), raced_in("local", 0, 1.0))]
    table = speed_ups(visits).set_index("method")
    assert table["possible"].to_dict() == {"psgd": True, "dsgd": True, "local": False}
    assert table.loc["dsgd", "measured_speed_up"] == 2
    assert table.loc["local", ["measured_speed_up", "error"]].isna().all()
    text = "\n".join(page(visits, speed_ups(visits), "commeff lab report"))
    assert "| local | 1 | 8 | 1.00 (!) | 0.00 | 4.00 |  |  | 1.00 |" in text
    assert "less than the links alone need for what was sent: local 2.00 s" in text
    assert "Every other method pays here." in text
    drawn = figure(visits, speed_ups(visits))
    assert "## 200 Mb/s" in text
    assert ">200 Mb/s<" in svg(drawn, drawn.panels[0])
    write(drawn, tmp_path)


def test_a_report_begins_with_where_the_model_overstates() -> None:
    races = [raced_in("psgd", 0, 6.0), raced_in("dsgd", 0, 3.0), raced_in("local", 0, 5.0)]
    races = [replace(race, modelled=seconds) for race, seconds in zip(races, (6.0, 1.5, 6.0), strict=True)]
    words = page([seen(*races)], speed_ups([seen(*races)]), "commeff lab report")[2]
    assert words.endswith("The worst case of each network: 200 Mb/s: 4.00 times as fast for 2.00 (dsgd).")
    honest = [replace(race, modelled=race.measured) for race in races]
    assert page([seen(*honest)], speed_ups([seen(*honest)]), "commeff lab report")[2].startswith("Seconds until")


def test_what_is_hostile_is_text_in_the_report_of_a_lab(tmp_path: Path) -> None:
    races = [raced_in("psgd", 0, 6.0, EVIL), raced_in(EVIL, 0, 3.0), raced_in("local", 0, 1.0)]
    visits = [replace(seen(*(replace(race, hardware=EVIL) for race in races)), missed=(EVIL,))]
    visits = [replace(visit, grid=replace(visit.grid, title=EVIL, target={EVIL: 1.0})) for visit in visits]
    text = "\n".join(page(visits, speed_ups(visits), f"commeff lab report {EVIL}"))
    plain = re.sub(r"(`+) commeff.*? \1", "", text).replace("`tc tbf`", "")
    assert len(plain) < len(text)
    assert plain.count("alert(1)") > 5
    assert not re.search(r"<(script|img)|(?<!\\)\]\(|(?<!\\)`|https?://|[\x00-\x08\x0b-\x1f\u202e]", plain)


def test_a_table_without_a_single_speed_up_is_still_drawn(tmp_path: Path) -> None:
    visits = [seen(raced_in("psgd", 0, 1.0), raced_in("dsgd", 0, 3.0), raced_in("local", 1, 1.0))]
    assert speed_ups(visits)["measured_speed_up"].isna().all()
    assert "No speed-ups here" in "\n".join(page(visits, speed_ups(visits), "commeff lab report"))
    write(figure(visits, speed_ups(visits)), tmp_path)


def test_a_method_that_missed_the_target_with_a_seed_has_no_speed_up() -> None:
    races = [raced_in(method, seed, 6.0) for method in ("psgd", "dsgd", "local") for seed in (0, 1)]
    visit = seen(*races)
    visit = replace(visit, races=tuple(race for race in races if (race.method, race.seed) != ("local", 1)))
    table = speed_ups([visit]).set_index("method")
    assert table["measured_speed_up"].notna().to_dict() == {"psgd": True, "dsgd": True, "local": False}
    assert table["modelled_speed_up"].notna().to_dict() == {"psgd": True, "dsgd": True, "local": False}


def test_results_name_the_commit_and_hardware_of_the_runs_and_not_of_the_report() -> None:
    visits = [seen(raced_in("psgd", 0, 6.0, "abc"), raced_in("psgd", 1, 6.0, "def+"), raced_in("dsgd", 0, 3.0))]
    table = speed_ups(visits).set_index("method")
    assert table["commit"].to_dict() == {"psgd": "abc, def+", "dsgd": "abc"}
    assert set(table["hardware"]) == {"a core"}
    assert page(visits, speed_ups(visits), "commeff lab report")[-1].startswith("Run at abc, def+. Written by")


def holders(inode: int) -> list[str]:
    """Who is in the namespace, or keeps it."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        for entry in (Path("/proc", pid, "ns", "net"), *_files(Path("/proc", pid, "fd"))):
            try:
                found += [str(entry)] * (entry.stat().st_ino == inode and "net:" in os.readlink(entry))
            except OSError:
                continue
    return found


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def test_nothing_stays_of_a_lab() -> None:
    before = set(os.listdir("/sys/class/net"))
    try:
        with lab(NETWORKS["1gbit"], 2) as nodes:
            inodes = [os.stat(node.namespace).st_ino for node in nodes]
            assert all(holders(inode) for inode in inodes)
            assert set(os.listdir("/sys/class/net")) == before
    except ValueError as error:
        pytest.skip(str(error))
    assert [holders(inode) for inode in inodes] == [[], []]


def test_nothing_stays_of_a_lab_whose_runner_is_killed(pair: list[Node]) -> None:
    ours, theirs = multiprocessing.Pipe()

    def hold() -> None:
        with lab(NETWORKS["1gbit"], 2) as nodes:
            inside = owned.fork()
            if not inside:
                nodes[1].enter()
                time.sleep(owned.PATIENCE)
            theirs.send([inside, *(os.stat(node.namespace).st_ino for node in nodes)])
            time.sleep(owned.PATIENCE)

    runner = owned.process(hold)
    runner.start()
    assert ours.poll(owned.PATIENCE)
    member, *inodes = ours.recv()
    assert all(holders(inode) for inode in inodes)
    runner.kill()
    runner.join()
    owned.until(lambda: not any(holders(inode) for inode in inodes), "the namespaces to go")
    assert not Path("/proc", str(member), "ns", "net").exists()


def test_what_a_lab_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(GRID)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    found = CliRunner().invoke(commands.lab, ["run", str(tmp_path / "small.yaml"), "--store", str(tmp_path / "lab")])
    assert found.exit_code == 2
    assert "there is no ip and no tc on this machine" in found.stderr
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = CliRunner().invoke(commands.lab, ["bench"])
    assert found.exit_code == 2
    assert found.stderr.startswith("commeff: a network lab cannot be made here:")
    assert "needs root" in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize(("nproc", "asked"), [("", "got 1:"), ("nproc: 1,", "got 1:"), ("nproc: two,", "got two:")])
def test_a_grid_without_several_processes_is_refused(tmp_path: Path, nproc: str, asked: str) -> None:
    (tmp_path / "grid.yaml").write_text(f"base: {{{nproc} task: quadratic}}\ngrid: [{{method: psgd}}]\n")
    with pytest.raises(ValueError, match=asked):
        nodes_of(Request(tmp_path / "grid.yaml"))


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 and at most 200, got 1"), lab(NETWORKS["1gbit"], 1):
        pass


def test_a_process_that_dies_while_latency_is_measured_is_told_in_one_line(
    pair: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(nodes: list[Node]) -> float:
        raise RuntimeError("process 1 died with exit code -9")

    (tmp_path / "small.yaml").write_text(GRID)
    monkeypatch.setattr(bench, "latency", dies)
    found = CliRunner().invoke(commands.lab, ["run", str(tmp_path / "small.yaml"), "--store", str(tmp_path / "lab")])
    assert found.exit_code == 1
    assert found.stderr.splitlines()[-1] == "commeff: process 1 died with exit code -9"


def test_a_description_that_was_cut_off_is_not_taken_for_one(
    pair: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(cluster: Cluster, path: Path) -> None:
        path.write_text("name: 1gb")
        raise KeyboardInterrupt

    (tmp_path / "small.yaml").write_text(GRID)
    monkeypatch.setattr(bench, "latency", lambda nodes: 0.001)
    monkeypatch.setattr(Cluster, "save", half)
    with pytest.raises(KeyboardInterrupt):
        run_on(Request(tmp_path / "small.yaml"), NETWORKS["1gbit"], tmp_path / "lab")
    assert not (tmp_path / "lab" / "1gbit" / "cluster.yaml").exists()


def test_of_several_grids_one_is_chosen(tmp_path: Path) -> None:
    store = tmp_path / "1gbit"
    (store / "grids").mkdir(parents=True)
    NETWORKS["1gbit"].cluster(2).save(store / "cluster.yaml")
    for name in ("one", "two"):
        (store / "grids" / f"{name}.json").write_text(f'{{"name": "{name}", "cells": [], "target": {{"val_loss": 1}}}}')
    with pytest.raises(ValueError, match=r"--grid must name one of the 2 grids of .*; choose from one, two"):
        read_networks(tmp_path)
    assert [visit.grid.name for visit in read_networks(tmp_path, "two")] == ["two"]
    found = CliRunner().invoke(commands.lab, ["report", str(tmp_path), "--grid", "two"])
    assert "must have reached the target" in found.stderr


def test_a_folder_without_networks_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(commands.lab, ["report", str(tmp_path)])
    assert found.exit_code == 2
    assert "must hold a store of `commeff lab run` for each network, got none" in found.stderr
