"""`commeff doctor`: what it finds on processes of this machine, what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from commeff import methods
from commeff.cluster import Cluster
from commeff.cluster.cluster import names
from commeff.experiments.cli.tools import doctor as command
from commeff.experiments.measure import doctor
from commeff.experiments.measure.collectives import ALL_GATHER, BETWEEN, EXCHANGE, INSIDE, Timing
from commeff.experiments.measure.comm import ALGORITHMS, Between, Effort, agreement
from commeff.experiments.measure.doctor import SPLITS, Agreement, Findings
from commeff.testing import late

SMALL = Effort(sizes=(4, 2**12, 2**20), rounds=2, length=2**12, width=64)
SOME = ["psgd", "diloco", "dsgd"]


@pytest.fixture(scope="module")
def found() -> Findings:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(methods, "__all__", SOME)
        findings = doctor.run(2, effort=SMALL)
    assert findings is not None
    return findings


def test_processes_agree_with_the_host(found: Findings) -> None:
    assert all(verdict.holds for verdict in found.verdicts), found.verdicts
    names = [verdict.name for verdict in found.verdicts]
    assert {name.partition("(")[0] for name in names} - {*SPLITS} == {*SOME}
    assert {*SPLITS} - {*names} == {"all three, zero=3"}, "which eight processes have"
    assert len(found.places) == 2
    assert found.between is not None


def test_the_worst_of_all_processes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "agreements", lambda world: [Agreement("mine", float(world.workers[0]), 0.5)])
    monkeypatch.setattr(doctor, "split_agreements", lambda world: [])
    found = doctor.run(2, effort=SMALL)
    assert found is not None
    assert [verdict.difference for verdict in found.verdicts] == [1.0]


def test_one_process_has_methods_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "__all__", SOME)
    alone = doctor.run(1, effort=SMALL)
    assert alone is not None
    assert alone.cluster("mine") is None
    assert all(verdict.holds and verdict.name not in SPLITS for verdict in alone.verdicts)
    text = "\n".join(alone.lines(None))
    assert "busbw" not in text
    assert "splits      not compared" in text


def test_what_differs_or_fails_is_told_of_and_nothing_else_stops() -> None:
    def fails() -> float:
        raise RuntimeError("NCCL error\nunhandled")

    failed = doctor.tried("pipeline", 1.0, fails)
    assert (failed.holds, failed.fault) == (False, "RuntimeError: NCCL error unhandled")
    assert not doctor.tried("dsgd()", 1.0, lambda: float("nan")).holds
    assert failed.difference is None, "JSON has no infinity"
    assert doctor.tried("dsgd()", 1.0, lambda: 1.0).holds


def test_the_command_prints_one_text_and_writes_a_cluster(
    monkeypatch: pytest.MonkeyPatch, found: Findings, tmp_path: Path
) -> None:
    assert found.between is not None
    timings = [replace(timing, seconds=1e-4 + 1e-9 * timing.size) for timing in found.between.timings]  # a link's line
    found = replace(found, between=replace(found.between, timings=timings))
    app = typer.Typer()
    app.command()(command)
    monkeypatch.setattr(doctor, "run", lambda nproc, kind: found)
    profile = tmp_path / "mine.yaml"
    good = CliRunner().invoke(app, ["--profile", str(profile)])
    assert good.exit_code == 0, good.output
    assert "agree with float64 on the host" in good.stdout
    assert Cluster.load(profile) == found.cluster("mine")
    against = CliRunner().invoke(app, ["--cluster", str(profile)]).stdout.splitlines()
    (exchange,) = (line for line in against if line.startswith("exchange, 1 MiB"))
    assert float(exchange.split()[-1]) == pytest.approx(1, abs=0.01), "which the profile was made of"
    bad = replace(found, verdicts=[*found.verdicts, Agreement("d2()", 0.5, 1e-10)])
    monkeypatch.setattr(doctor, "run", lambda nproc, kind: bad)
    broken = CliRunner().invoke(app, [])
    assert broken.exit_code == 1
    assert "d2(): 5.0e-01 apart, of 1e-10 that may be" in broken.stdout
    assert json.loads(CliRunner().invoke(app, ["--json"]).stdout)["verdicts"][-1]["name"] == "d2()"


@pytest.mark.parametrize("hosts", [(0,), (0, 0, 1)])
def test_what_no_cluster_file_describes_is_told_of_all_the_same(
    monkeypatch: pytest.MonkeyPatch, found: Findings, tmp_path: Path, hosts: tuple[int, ...]
) -> None:
    """One process, and hosts that are not alike: `--profile` is refused when all else has been said."""
    assert found.between is not None
    between = None if len(hosts) == 1 else replace(found.between, hosts=hosts)
    odd = replace(found, between=between, places=[{**found.places[0], "host": f"host {host}"} for host in hosts])
    monkeypatch.setattr(doctor, "run", lambda nproc, kind: odd)
    app, profile = typer.Typer(), tmp_path / "new" / "mine.yaml"
    app.command()(command)
    plain = CliRunner().invoke(app, [])
    assert (plain.exit_code, "pairs over" in plain.stdout) == (0, between is not None)
    refused = CliRunner().invoke(app, ["--profile", str(profile)])
    assert (refused.exit_code, refused.stdout) == (2, plain.stdout)
    assert refused.stderr.startswith("commeff: --profile needs at least 2 processes, equally many on each host")
    assert len(refused.stderr.splitlines()) == 1
    assert not profile.parent.exists()


@pytest.mark.parametrize("operation", [INSIDE, BETWEEN, EXCHANGE, ALL_GATHER, "server", *ALGORITHMS])
def test_every_operation_is_modelled_on_nodes_that_are_larger_than_the_job(operation: str) -> None:
    between = Between((0, 0, 1, 1), (), (Timing(operation, 4, 2**20, 1.0),))
    for name in names():
        cluster = Cluster.named(name, gpus=64)
        seconds = [seconds for _, seconds in agreement(between, cluster)]
        assert len(seconds) == (operation != INSIDE or cluster.per_node > 1), name
        assert all(seconds)


def test_no_two_processes_are_given_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="nproc must be at most 1, got 2"):
        doctor.run(2, "cuda", SMALL)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--nproc", "0"], "commeff: --nproc must be at least 1 and at most 256, got 0"),
        (["--device", "cuda"], "commeff: device must be cpu, got cuda: torch"),
        (["--device", "gpu"], "commeff: device must be one of cpu, cuda, got 'gpu'"),
        (["--cluster", "h100"], "commeff: there is no cluster 'h100'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(words: list[str], refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    app = typer.Typer()
    app.command()(command)
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert refused.stderr.startswith(refusal), refused.stderr


@pytest.mark.slow
def test_processes_agree_with_the_host_by_a_group_that_is_as_hard_to_use_as_nccls() -> None:
    with late():
        found = doctor.run(2, effort=SMALL)
    assert found is not None
    assert found.backend == "cpu:nccl_like"
    assert len(found.verdicts) > 100
    assert all(verdict.holds for verdict in found.verdicts), found.verdicts
