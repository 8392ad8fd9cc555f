"""The network lab: links keep their rate, a run in it is the run that it is elsewhere, and nothing of it stays."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commeff.communicator.ledger import Entry
from experiments.cli import lab as commands
from experiments.config import compose
from experiments.grid.cells import Cell
from experiments.grid.command import Request
from experiments.lab.bench import exchanges
from experiments.lab.cell import run_in_lab
from experiments.lab.grid import check_same, nodes_of, visit
from experiments.lab.network import NETWORKS, Node, Shape, lab
from experiments.lab.outcome import modelled_seconds, visited
from experiments.lab.report import report
from experiments.runner import run_one
from experiments.store import RunFolder, run_id

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


def test_a_link_carries_what_its_rate_says(pair: list[Node]) -> None:
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

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Process(target=receive), context.Process(target=send)
    receiver.start()
    assert line.poll(10)
    line.recv()
    sender.start()
    assert line.poll(10)
    assert 0.8 < line.recv() / inter.seconds(size) < 3  # a link without a bucket carries it in milliseconds
    for process in (receiver, sender):
        process.join()


def test_exchanges_take_about_what_the_model_says(pair: list[Node]) -> None:
    found = exchanges(NETWORKS["100mbit"], pair, rounds=2, numbers=500_000)
    ratios = {reading.what: reading.ratio for reading in found if reading.against == "modelled"}
    assert {"all_reduce", "one-peer"} <= ratios.keys()
    assert all(0.7 < ratios[what] < 4 for what in ("all_reduce", "one-peer"))  # 150 ms; without buckets 2


def begun(nodes: list[Node], cell: Cell) -> tuple[BaseProcess, Connection]:
    """A cell under way on the nodes, and the line to it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=run_in_lab, args=(nodes, cell, (), theirs))
    process.start()
    return process, ours


def test_a_run_in_the_lab_is_the_run_that_it_is_in_one_process(pair: list[Node], tmp_path: Path) -> None:
    config = compose([*WORDS, "steps=6"])
    alone = run_one({**config, "nproc": 1}, tmp_path / "alone")
    cell = Cell(1, {}, None, {}, config, tmp_path / "lab" / run_id(config))
    process, line = begun(pair, cell)
    process.join(60)
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
    deadline = time.monotonic() + 30
    while not (cell.folder / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    line.send("stop")
    process.join(30)
    assert process.exitcode == 0
    assert RunFolder(cell.folder).state == "killed"
    assert (cell.folder / "checkpoints" / "latest.pt").exists()


def test_a_grid_runs_in_the_lab_and_is_reported(tmp_path: Path, pair: list[Node]) -> None:
    file, root = tmp_path / "small.yaml", tmp_path / "lab"
    file.write_text(GRID)
    outcome = visit(Request(file), NETWORKS["1gbit"], root)
    assert outcome.counts == {"done": 2}
    (there,) = visited(root)
    assert there.cluster.name == "1gbit"
    assert [(race.method, race.steps) for race in there.races] == [("exact", 2), ("sparse", 2)]
    assert all(race.modelled > 0 and race.exposed <= race.measured for race in there.races)
    report(root, tmp_path / "out", "commeff lab report")
    table = (tmp_path / "out" / "report.md").read_text()
    assert "| exact | 1 | 2 |" in table
    assert (tmp_path / "out" / "speed_ups.pdf").exists()
    with pytest.raises(ValueError, match="another network"):
        check_same(root / "1gbit" / "cluster.yaml", NETWORKS["100mbit"], 2)


def test_modelled_seconds_are_computing_and_what_the_ledger_costs() -> None:
    shape = Shape("slow", 8e6 / (1448 / 1514), slow=4e6 / (1448 / 1514))  # a slowest link of 0.5 MB/s
    rows = [Entry(step, "gradients", "all_reduce", 1e6, 1e6, 1, 1) for step in (1, 3)]
    cluster = shape.cluster(2, latency=0.25)
    once = 2 * 0.25 + (1e6 - 2**18) / 0.5e6  # two rounds of a ring of two
    assert modelled_seconds(rows, {"workers": 2}, cluster, 4, compute=0.125) == pytest.approx(4 * 0.125 + 2 * once)


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
            inside = os.fork()
            if not inside:
                nodes[1].enter()
                time.sleep(60)
            theirs.send([inside, *(os.stat(node.namespace).st_ino for node in nodes)])
            time.sleep(60)

    runner = multiprocessing.get_context("fork").Process(target=hold)
    runner.start()
    assert ours.poll(10)
    member, *inodes = ours.recv()
    assert all(holders(inode) for inode in inodes)
    runner.kill()
    runner.join()
    deadline = time.monotonic() + 5
    while any(holders(inode) for inode in inodes) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [holders(inode) for inode in inodes] == [[], []]
    assert not Path("/proc", str(member), "ns", "net").exists()


def test_what_a_lab_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(GRID)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    found = CliRunner().invoke(commands.app, ["run", str(tmp_path / "small.yaml"), "--store", str(tmp_path / "lab")])
    assert found.exit_code == 2
    assert "there is no ip and no tc on this machine" in found.stderr
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = CliRunner().invoke(commands.app, ["bench"])
    assert found.exit_code == 2
    assert found.stderr.startswith("commeff: a network lab cannot be made here:")
    assert "needs root" in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize(("nproc", "asked"), [("", "nproc=1;"), ("nproc: 1,", "nproc=1;"), ("nproc: two,", "two;")])
def test_a_grid_without_several_processes_is_refused(tmp_path: Path, nproc: str, asked: str) -> None:
    (tmp_path / "grid.yaml").write_text(f"base: {{{nproc} task: quadratic}}\ngrid: [{{method: psgd}}]\n")
    with pytest.raises(ValueError, match=asked):
        nodes_of(Request(tmp_path / "grid.yaml"))


def test_too_few_nodes_and_rates_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="lab of 1 nodes"), lab(NETWORKS["1gbit"], 1):
        pass
    with pytest.raises(ValueError, match="100 kbit/s"):
        Shape("none", 0.0)


def test_a_folder_without_networks_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(commands.app, ["report", str(tmp_path)])
    assert found.exit_code == 2
    assert "holds no network that was visited" in found.stderr
