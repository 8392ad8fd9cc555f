"""`commeff bench comm`: the line through ping-pongs, what nccl-tests would print, compressors, profiles read back."""

from __future__ import annotations

import json
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import typer
from typer.testing import CliRunner

from commeff import compressors
from commeff.cluster import GPU, Cluster, Link
from commeff.communicator.wire.records import share_json
from commeff.compressors.base import Together
from commeff.compressors.laws import concrete
from commeff.experiments.cli import tools
from commeff.experiments.cli.tools import comm as command
from commeff.experiments.measure import comm, links
from commeff.experiments.measure.codecs import CODECS
from commeff.experiments.measure.collectives import BETWEEN, EXCHANGE, INSIDE, Timing, factor, operations
from commeff.experiments.measure.comm import Effort
from commeff.experiments.measure.forks import on_forks, on_job
from commeff.experiments.measure.profile import describe, write
from commeff.experiments.studies.bench import mix
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from tests.commeff.cluster.simulated import ring
from tests.owned import PATIENCE, process

SIZES = (4, 2**12, 2**20)
SMALL = Effort(sizes=SIZES, rounds=2, length=2**12, width=64)
CPU = GPU("a core", memory_bytes=2**30, memory_bandwidth=1e10, peak_flops={"fp32": 1e11})


@pytest.fixture(scope="module")
def measured():
    return comm.run(nproc=2, effort=SMALL)


def test_the_line_is_found_even_if_one_time_was_disturbed():
    truth = Link(bandwidth=2e9, latency=3e-4)
    times = [truth.seconds(size) for size in links.SIZES]
    times[4] *= 6
    found = links.fit(links.SIZES, times)
    assert (found.bandwidth, found.latency) == pytest.approx((truth.bandwidth, truth.latency), rel=0.05)


def test_a_ping_pong_is_two_messages_of_the_pair_alone():
    def measure(communicator):
        buffer = torch.full((8,), float(dist.get_rank()))
        links.ping_pong(communicator.transport, (0, 1), buffer)()
        sent = communicator.transport.sent["bench"]
        return [*map(sum, zip(*_everywhere((sent, float(buffer[0]))), strict=True))]

    sent, values = on_forks(3, 3, measure)
    assert sent == 2 * 8 * 4  # there and back, and nothing from the third
    assert values == 0 + 0 + 2  # 1 has what 0 sent


def _everywhere(value):
    return share_json(value)


def test_busbw_of_everything_that_meets_the_bandwidth_of_its_links_is_that_bandwidth():
    """A ring of n links of bandwidth B takes 2 (n-1)/n S/B; so busbw is B, whatever n and S."""
    flat = Cluster("flat", gpus=16, gpu=CPU, per_node=1, intra=Link(1e9, 0.0), inter=Link(1e9, 0.0))
    for n in (2, 5, 16):
        assert Timing("ring", n, 10**7, ring(flat, n, 10**7)).busbw == pytest.approx(1e9)
        assert factor("all_gather", n) == pytest.approx(factor("all_reduce", n) / 2)


def test_every_collective_is_timed_on_every_size(measured):
    timings = measured.between.timings
    kinds = {"all_reduce", "ring", "tree", "server", "all_gather", EXCHANGE}
    assert {(each.operation, each.size) for each in timings} == {(kind, size) for kind in kinds for size in SIZES}
    assert all(each.seconds > 0 and each.n == 2 for each in timings)


def test_operations_send_the_bytes_that_busbw_counts():
    size = 2**12

    def measure(communicator):
        found = {}
        for name, run in operations(communicator, size, [0] * 4).items():
            before = communicator.transport.sent.total()
            run()
            found[name] = sum(_everywhere(communicator.transport.sent.total() - before)) / 4
        return found

    sent = on_forks(4, 4, measure)
    for name in ("ring", "tree", "server", EXCHANGE):
        assert sent[name] == pytest.approx(factor(name, 4) * size), name
    assert sent["all_gather"] == size / 4  # handed over once; the group takes it to three others


def test_hosts_of_equal_size_get_exchanges_inside_and_between():
    names = on_forks(4, 4, lambda communicator: [*operations(communicator, 4, [0, 0, 1, 1])])
    assert {INSIDE, BETWEEN} <= {*names}


def test_all_compressors_are_measured(measured):
    """A class that nobody measures is missing here: wrappers and what they make count as measured inside.

    What stands in for a compressor over a model in pieces does the same work, and is not measured, and what only says
    something of another; a chunk's transform is measured in a vector's.
    """
    inside = set()
    waiting = [*CODECS.values()]
    while waiting:
        one = waiting.pop()
        inside.add(type(one))
        waiting += [value for value in vars(one).values() if isinstance(value, compressors.Compressor)]
    known = {kind for kind in concrete() if kind.__module__.startswith("commeff.compressors.")}
    made = {compressors.contractive(compressors.QSGD(4)).for_dimension(1000).__class__}
    assert known - inside == {*made, *Together.__subclasses__(), compressors.Assumed}
    assert [speed.name for speed in measured.speeds] == [*CODECS]
    assert all(speed.encode > 0 and speed.decode > 0 for speed in measured.speeds)


def test_a_profile_is_read_back_as_it_was_measured(measured, tmp_path: Path):
    cluster = measured.cluster("here")
    write(cluster, tmp_path / "here.yaml", ["measured"])
    assert Cluster.load(tmp_path / "here.yaml") == cluster
    assert (cluster.gpus, cluster.per_node, cluster.inter) == (2, 2, cluster.intra)
    assert ring(cluster, 2, 2**20) == pytest.approx(cluster.intra.seconds(2**20, 2))


def test_a_profile_of_several_hosts_has_the_nic_that_their_processes_shared():
    truth = {INSIDE: Link(4e9, 1e-5), BETWEEN: Link(1e9, 1e-4), EXCHANGE: Link(1e9, 1e-4)}
    timings = [Timing(name, 8, size, link.seconds(size)) for name, link in truth.items() for size in links.SIZES]
    cluster = describe("two", [0] * 4 + [1] * 4, timings, CPU)
    assert (cluster.per_node, cluster.nics, cluster.nodes) == (4, 1, 2)
    assert cluster.intra.bandwidth == pytest.approx(4e9, rel=1e-3)
    assert cluster.inter.bandwidth == pytest.approx(4 * 1e9, rel=1e-3)
    assert cluster.inter.efficiency == 1
    silent = [links.Pair(0, 1, Link(5e9, 1e-5)), links.Pair(0, 4, Link(8e9, 1e-4)), links.Pair(1, 5, Link(8e9, 1e-4))]
    lossy = describe("two", [0] * 4 + [1] * 4, timings, CPU, silent)
    assert (lossy.intra.bandwidth, lossy.inter.bandwidth) == (5e9, 8e9)
    assert lossy.intra.rate == pytest.approx(cluster.intra.rate)
    assert lossy.inter.efficiency == pytest.approx(0.5, rel=1e-3)
    with pytest.raises(ValueError, match="equally many processes"):
        describe("odd", [0, 0, 1], timings, CPU)


def test_the_command_prints_writes_and_refuses(monkeypatch, measured, tmp_path: Path):
    app = typer.Typer()
    app.command()(command)
    monkeypatch.setattr(comm, "run", lambda nproc: measured)
    out, table = tmp_path / "profile.yaml", tmp_path / "figures.csv"
    result = CliRunner().invoke(app, ["--csv", str(table), "--profile", str(out)])
    assert result.exit_code == 0, result.output
    assert "modelled on the profile" in result.stdout
    assert "busbw" in result.stdout
    assert "was not measured" in out.read_text()
    assert Cluster.load(out).per_node == 2
    assert "by `commeff bench comm` on" in out.read_text()
    rows = json.loads(CliRunner().invoke(app, ["--json", "--nproc", "2", "--csv", str(table)]).stdout)
    assert {row.split(",")[-3] for row in table.read_text().splitlines()[1:]} == {"commeff bench comm --nproc 2"}
    assert len(table.read_text().splitlines()) == len(rows) + 1
    assert {row["part"] for row in rows} == {"link", "collective", "compressor", "machine"}
    monkeypatch.undo()
    refused = CliRunner().invoke(app, ["--nproc", "1"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("commeff: --nproc must be at least 2 and at most 256, got 1")


def test_a_bench_whose_file_cannot_be_written_or_whose_process_dies_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def dies() -> list[MeasuredRatio]:
        raise RuntimeError("process 1 died with exit code -9")

    (tmp_path / "file").touch()
    monkeypatch.setattr(mix, "run", list)
    refused = CliRunner().invoke(tools.bench, ["mix", "--csv", str(tmp_path / "file" / "mix.csv")])
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    monkeypatch.setattr(mix, "run", dies)
    died = CliRunner().invoke(tools.bench, ["mix"])
    assert (died.exit_code, died.stderr) == (1, "commeff: process 1 died with exit code -9\n")


def member(environment: dict[str, str], line: Connection) -> None:
    os.environ.update(environment)
    line.send(on_job(lambda communicator: communicator.n, None))


def test_a_job_of_several_processes_is_measured_as_it_was_started() -> None:
    """As a launcher starts them: rank 0 has the answer, the others nothing."""
    port = str(20_000 + os.getpid() % 9000)
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    answers, members = [], []
    try:
        for rank in range(2):
            ours, theirs = multiprocessing.Pipe(duplex=False)
            members.append(process(member, (job | {"RANK": str(rank)}, theirs)))
            members[-1].start()
            answers.append(ours)
        assert all(ours.poll(PATIENCE) for ours in answers)
        assert [ours.recv() for ours in answers] == [2, None]
    finally:
        for each in members:
            each.kill()
            each.join()


def test_a_job_keeps_its_own_number_of_processes(monkeypatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="must be 2, as the launcher has started, got 4"):
        on_job(lambda communicator: communicator.n, 4)
