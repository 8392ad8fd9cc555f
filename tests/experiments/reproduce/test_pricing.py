"""Modelled hours and bytes of each direction in tables of `commeff reproduce`, and numbers of other runs than ours."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from commeff.cluster import Cluster
from commeff.cluster.simulation import gossip
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.reproduce.cases import Case
from commeff.experiments.reproduce.judging import NOT_COMPARABLE, OK, compare, judge, rehearse
from commeff.experiments.reproduce.measures import measured
from commeff.experiments.reproduce.page import write
from commeff.experiments.reproduce.quantities import final, least
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.runs import TableRun
from commeff.experiments.reproduce.table import PublishedTable, read_table
from commeff.topologies import exponential
from tests.commeff.cluster.simulated import ring
from tests.experiments.reproduce.reproduced import Code, write_table
from tests.experiments.reproduce.test_reproduce import run_here

STEPS, COMPUTE, NUMBERS, WORKERS = 6, 0.25, 400, 4
BASE = {"task": "quadratic", "task.dimension": 20, "workers": WORKERS, "steps": STEPS, "evaluate_every": 3}
GRID = [
    {"name": "psgd", "method": "psgd", "collective": "ring"},
    {"name": "gossip", "method": "dsgd", "topology": "exponential"},
    {"name": "squeezed", "method": "double_squeeze", "compressor": "top_k", "compressor.k": 2},
    {"name": "threshold", "method": "mem_sgd", "compressor": "threshold", "compressor.value": 0.5},
]
PER_STEP = {  # of 20 numbers of 8 bytes; two numbers travel with two indices of 5 bits
    "psgd": "lambda c: 2 * (c['workers'] - 1) / c['workers'] * c.task.d * 8",
    "gossip": "lambda c: 2 * c.task.d * 8",
    "squeezed": "2 * 8 + 2",
}
CLUSTER = {"cluster": "ethernet_1g", "step_seconds": COMPUTE, "parameters": NUMBERS}


def table(folder: Path, **changes: object) -> PublishedTable:
    content = {
        "paper": "nobody",
        "base": BASE | {"optimizer.lr": 0.01, "bucket_mb": 0},
        "grid": GRID,
        "cluster": CLUSTER,
        "show": ["modelled_hours", Code("final('sent_bytes') / final('steps')")],
        "numbers": [
            Code(f"printed('{name}', final('{way}_bytes') / final('steps'), {value}, 'us', scale='smoke')")
            for name, value in PER_STEP.items()
            for way in ("sent", "received")
        ],
    }
    found = read_table(Path(write_table(folder, content | changes)))
    rehearse(found)  # as the command does: then it is known which numbers the table speaks of
    return found


def test_hours_are_of_the_cluster_and_bytes_have_directions(tmp_path: Path) -> None:
    plan = TableRun(table(tmp_path), tmp_path / "store", Limits(1))
    run_here(plan.reported().request)
    results = Results(plan.table, plan.reported().results().cases)
    assert [one.verdict for one in compare(results)] == [OK] * 6
    ends = {case.case.name: case.runs[0] for case in results.cases}
    assert "sent_bytes" not in ends["threshold"].finals
    cluster, size = Cluster.named("ethernet_1g", gpus=WORKERS), 8.0 * NUMBERS
    sending = {"psgd": ring(cluster, WORKERS, size), "gossip": gossip(cluster, exponential(WORKERS).at(0), size)}
    for name, seconds in sending.items():
        whole = STEPS * (COMPUTE + seconds)
        assert ends[name].final("modelled_seconds") == pytest.approx(whole)
        assert ends[name].final("modelled_hours") == pytest.approx(whole / 3600)
        assert [*ends[name].curve["modelled_seconds"]] == pytest.approx([0.5 * whole, whole])


def test_what_a_table_says_is_text_on_its_page(tmp_path: Path) -> None:
    evil = "`a|b` <script>alert(1)</script> ![x](http://y) [z](javascript:0) | c"
    numbers = [Code(f"printed('gossip', 'step_seconds', 1, {evil!r}, scale='smoke', because={evil!r})")]
    claims = f"""    seconds = final("step_seconds")
    yield claim(seconds(r.psgd) < 0 * seconds(r.gossip), {evil!r}, {evil!r}, {evil!r}, "smoke")
"""
    own = {"settings": {evil: evil}, "left_open": {evil: evil}}
    words = {"title": evil, "paper": evil, "about": f"{evil}\n\n{evil}", **own}
    told = table(
        tmp_path, measure="modelled", grid=GRID[:2], numbers=numbers, claims=claims, show=["step_seconds"], **words
    )
    results = measured(TableRun(told, tmp_path / "store", Limits(1)))
    verdicts, compared = judge(results), compare(results)
    for run in (run for case in results.cases for run in case.runs.values()):
        object.__setattr__(run, "machine", dict.fromkeys(run.machine, evil))
    page = write(results, verdicts, compared, f"commeff reproduce `{evil}", tmp_path / "page").read_text()
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(page)
    inner = [each for token in tokens for each in (token, *(token.children or ()))]
    assert not {each.type for each in inner if each.type.startswith(("html", "link", "image"))}
    assert page.count("alert") > 10
    assert [each.content for each in inner if each.type == "code_inline"].count("a|b") > 5
    for rows in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows.splitlines()}) == 1


def test_what_nobody_trains_is_modelled(tmp_path: Path) -> None:
    entry = {"name": "psgd", "method": "psgd", "collective": "ring", "workers": [2, 4]}
    own = {"show": ["modelled_hours"], "claims": ["final('modelled_hours')(r.psgd(workers=2)) > 0"], "numbers": []}
    wanted = table(tmp_path, measure="modelled", grid=[entry], **own)
    results = measured(TableRun(wanted, tmp_path / "store", Limits(1)))
    assert results.machines
    for case in results.cases:
        n, run = int(case.labels["workers"]), case.runs[0]
        sending = ring(Cluster.named("ethernet_1g", gpus=n), n, 8.0 * NUMBERS)
        assert run.final("communication_ms") == pytest.approx(1e3 * sending)
        assert run.final("modelled_hours") == pytest.approx(STEPS * (COMPUTE + sending) / 3600)


def test_numbers_of_other_runs_than_ours_are_not_comparable(tmp_path: Path) -> None:
    for zeta, verdict in ((1.0, OK), (2.0, NOT_COMPARABLE)):
        (tmp_path / verdict).mkdir()
        sent, value = "final('sent_bytes') / final('steps')", PER_STEP["gossip"]
        formula = Code(f"printed('gossip', {sent}, {value}, 'us', scale='smoke')")
        printed = Code(f"printed('gossip', 'wire_bytes', {STEPS * 2 * 20 * 8}, 'us')")
        wanted = table(tmp_path / verdict, comparable={"task.zeta": zeta}, numbers=[formula, printed])
        plan = TableRun(wanted, tmp_path / "store", Limits(1))
        run_here(plan.reported().request)
        results = plan.reported().results()
        compared = compare(results)
        assert [one.verdict for one in compared] == [OK, verdict]
        page = write(results, [], compared, "", tmp_path / verdict).read_text()
        assert ("Printed numbers are of runs with `task.zeta=2.0`" in page) == (verdict == NOT_COMPARABLE)
        assert "on ethernet_1g, 0.25 s of computing a step, messages of a model of 400 parameters" in page


def test_numbers_of_an_earlier_scale_are_of_any_data(tmp_path: Path) -> None:
    plan = TableRun(table(tmp_path, comparable={"task.zeta": 2.0}), tmp_path / "store", Limits(1))
    run_here(plan.reported().request)
    assert {one.verdict for one in compare(Results(plan.table, plan.reported().results().cases))} == {OK}


def test_quantities_take_arithmetic(tmp_path: Path) -> None:
    run = Observation({"sent_bytes": 12.0, "epoch": 4.0, "none": 0.0}, pd.DataFrame({"step": [1.0], "loss": [2.0]}))
    one = CaseResult(Case("a", {}, {}), {0: run})
    results = Results(table(tmp_path), [one])
    sent = final("sent_bytes")
    assert (sent / final("epoch") + least("loss") * 0.5).by_seed(results, one) == {0: 4.0}
    assert (sent / final("none")).by_seed(results, one) == {}
    assert (2 * sent - 1).text == "2 * sent_bytes - 1"
    assert (sent / (sent * 2)).text == "sent_bytes / (sent_bytes * 2)"
    assert ((sent - 1) - (sent - 1)).text == "sent_bytes - 1 - (sent_bytes - 1)"
    assert ((sent + 1) ** 2).text == "(sent_bytes + 1) ** 2"
