"""`commeff reproduce`: bad tables in one line each, every shipped table at smoke scale, an interrupted one goes on."""

from __future__ import annotations

import os
import re
import signal
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.grid import command as grids
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.reproduce.command import Arguments
from commeff.experiments.reproduce.constants import resolved
from commeff.experiments.reproduce.judging import judge
from commeff.experiments.reproduce.reading import TableError
from commeff.experiments.reproduce.results import CaseResult, Results
from commeff.experiments.reproduce.runs import TableRun
from commeff.experiments.reproduce.table import built_in_tables, read_table
from commeff.experiments.reproduce.tuning import chosen
from commeff.experiments.run.runner import run_one
from commeff.experiments.tasks import libsvm
from tests import forks, owned
from tests.experiments.reproduce.reproduced import Code, write_table
from tests.experiments.tasks.image_files import cifar10

DATA = Path(os.environ.get("COMMEFF_DATA") or Path(__file__).parents[4] / "shared" / "data")
WITHOUT_DATA = {"bias_floors", "local_steps", "momentum_bias", "speed_up", "equitopo", "gossip_time"}
SLOW = {  # of smoke
    *("choco", "cifar10_controls", "cifar10_precision", "cifar10_top_k", "diloco_momentum", "diloco_trend", "equitopo"),
    *("equitopo_tracking", "five_tasks", "gossip_fashion", "language_gossip", "top_k_fashion"),
}
NEEDS_NONE = {"synthetic", "drawn"}  # of what task.data may be
FOLDERS = {"language": "tinyshakespeare", "fashion_mnist": "FashionMNIST"}  # of tasks that cannot do without
OWN = {
    "paper": "nobody",
    "base": {"task": "quadratic", "workers": 4, "steps": 40, "optimizer.lr": 0.1, "checkpoint_every": 5},
    "show": ["val_loss"],
    "grid": [{"name": "a", "method": "psgd"}, {"name": "b", "method": "dsgd"}],
    "claims": ["loss(r.a) < loss(r.b)", ("equal(r.a, r.a)", "scale='smoke'")],
    "figure": {"x": "step", "y": "val_loss"},
}


TUNE = {"over": "optimizer.lr", "by": "val_loss"}
TUNED: dict[str, object] = {
    "grid": [{"name": name, "optimizer.lr": [0.1, 0.2]} for name in "ab"],
    "claims": ["loss(r.a) < 1"],
}


def commeff(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *words])
    return result.exit_code, result.output


def written(folder: Path, **changes: object) -> str:
    return write_table(folder, OWN | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"claims": ["loss(r.a) < loss(r.c)"]}, "mine.py line 15: no variant 'c'; there are a, b"),
        ({"claims": ["loss(r.a) <"]}, "mine.py line 15: SyntaxError: "),
        ({"claims": ["los(r.a) < 1"]}, "mine.py line 15: NameError: name 'los' is not defined"),
        ({"claims": ["1 < 2"]}, "mine.py line 15: a claim compares measured values, such as a < b"),
        ({"claims": ["loss(r.a) < loss"]}, "mine.py line 15: a claim compares numbers and quantities of variants"),
        ({"claims": ["0 < loss(r.a) < loss(r.b)"]}, "mine.py line 15: a comparison of measured values may not be told"),
        ({"claims": ["min(loss(r.a), loss(r.b)) < 1"]}, "apply(min, a, b) for min(a, b)"),
        ({"claims": [("loss(r.a) < 1", "scale='tiny'")]}, "scale must be one of smoke, reduced, full, got 'tiny'"),
        ({"claims": "    yield loss(r.a) < 1\n"}, "mine.py: claims must yield claim(...)"),
        ({"claims": Code("['a < b']")}, "mine.py line 12: claims must be a function, `def claims(r):`, got"),
        (
            {"grid": [{"name": "a", "optimizer.lr": [1, 2]}], "claims": ["loss(r.a) < 1"]},
            "a is 2 cases, which differ in optimizer.lr: go through r.each('optimizer.lr'), or write a(lr='1')",
        ),
        (
            {"numbers": [Code("printed('a', loss, lambda c: c['depth'], 'us')")]},
            "mine.py line 20: a has no label or setting 'depth'",
        ),
        ({"paper": None}, "mine.py: it names no `paper`"),
        ({"gird": []}, "mine.py line 8: a table has no use for 'gird'; did you mean grid?; a helper begins with _"),
        ({"seeds": [0, 1]}, "at least 3 seeds"),
        ({"seeds": "all"}, "seeds must be a list"),
        ({"measure": "trainings"}, "measure must be one of"),
        ({"tolerance": {"kind": "close"}}, "tolerance.kind must be one of"),
        ({"numbers": [Code("printed('c', loss, 1, 'us')")]}, "numbers: entry 1: no variant 'c'"),
        ({"numbers": [Code("printed('a', loss, math.sqrt(-1), 'us')")]}, "mine.py line 20: ValueError: "),
        ({"numbers": [{"variant": "a"}]}, "numbers must be a list of printed(...)"),
        (
            {"base": {"task": "quadratic", "optimizer.lr": Code("lambda c: c['y']")}},
            "mine.py line 9: a has no label or setting 'y'",
        ),
        (
            {"base": {"task": "quadratic", "optimizer.lr": Code("lambda c: 2 * c['optimizer.lr']")}},
            "optimizer.lr refers to itself",
        ),
        ({"base": {"task": "quadratic", "optimizer.lr": Code("lambda c: c.task.Q")}}, "task has no constant 'Q'"),
        ({"base": {"task": "quadratic", "optimizer.lr": Code("lambda c: [1]")}}, "optimizer.lr must be a number"),
        ({"base": {"task": "quadratic", "stepz": 3}}, "unknown key 'stepz'; did you mean steps?"),
        ({"scales": {"small": {}}}, "scales has no use for 'small'"),
        ({"figure": {"x": "step", "y": "val_loss", "only": ["psgd"]}}, "figure.only: no variant 'psgd'"),
        ({"figure": {"x": "step", "y": "val_loss", "title": "t"}}, "figure has no use for 'title'"),
        ({"figure": {"x": "step", "y": "val_loss", "only": "a"}}, "figure.only one of variants"),
        ({"tune": {"over": "optimizer.lr", "by": "test_accuracy"}}, "tune must be as"),
        (TUNED | {"tune": TUNE | {"by": Code("floor('test_loss')")}}, "tune.by must not be of test data"),
        (TUNED | {"tune": TUNE | {"by": Code("floor('val_accuracy')")}}, "tune.by must be val_accuracy, or steps"),
        ({"measure": "modelled"}, "there is no cluster"),
        ({"cluster": "ethernet_2g"}, "cluster: "),
        ({"cluster": {"cluster": "ethernet_1g", "seconds": 1}}, "cluster: clusters has no use for 'seconds'"),
        ({"cluster": {"cluster": "ethernet_1g", "parameters": 1e6}}, "step_seconds must be given with parameters"),
        (
            {"cluster": {"cluster": "ethernet_1g", "step_seconds": 1, "parameters": 0}},
            "cluster: parameters must be at least 1, got 0",
        ),
        (TUNED | {"tune": {"over": "optimizer.lrs", "by": "val_loss"}}, "tune.over names 'optimizer.lrs', of which"),
        (
            TUNED | {"tune": TUNE | {"seeds": [100, 2]}},
            "tune.seeds must be others than the table's seeds, got 2",
        ),
        (TUNED | {"tune": TUNE | {"seeds": 100}}, "tune.seeds must be a list of different whole numbers"),
        (TUNED | {"tune": TUNE | {"seed": [100]}}, "tune has no use for 'seed'; did you mean seeds?"),
        (TUNED | {"tune": TUNE, "seeds": [0, 1, 100]}, "tune.seeds must be others than the table's seeds, got 100"),
        (TUNED | {"tune": TUNE, "seeds": [0, 1, 100]}, "give others, such as [101]"),
        ({"parameters": [3]}, "parameters must be names of labels, got 3"),
        (TUNED | {"tune": TUNE | {"seeds": [100], "settings": {"seed": 5}}}, "tune.settings must leave seed out"),
        (TUNED | {"tune": TUNE | {"seeds": [100], "settings": {"stepz": 5}}}, "did you mean steps?"),
        (TUNED | {"tune": TUNE | {"seeds": [100], "settings": 5}}, "tune.settings must hold settings"),
        (
            TUNED | {"tune": TUNE | {"seeds": [100], "settings": {"steps": Code("lambda c: c['x']")}}},
            "a has no label or setting 'x'",
        ),
        (TUNED | {"tune": TUNE | {"by": "val_accuracy"}}, "no run of quadratic measures 'val_accuracy'"),
        (TUNED | {"tune": TUNE | {"by": Code('to("val_los", 1)')}}, "measures 'val_los'; did you mean val_loss?"),
        (TUNED | {"tune": TUNE, "measure": "consensus"}, "tune must be left out where measure is consensus"),
        ({"scales": {"full": {"keep": ["a"]}}}, "keep must hold labels and the values that stay"),
        ({"scales": {"full": {"keep": {"wokers": 4}}}}, "keep: 'wokers' is no label of the grid"),
        ({"grid": []}, "grid must be a list of settings"),
        ({"grid": [{"name": "a", "method": []}]}, "grid: entry 1: method has no values"),
        ({"claims": ["loss(r.at(metod='psgd').a) < 1"]}, "'metod' is no label of the grid; did you mean method?"),
        ({"claims": ["loss([*r.each('metod')][0].a) < 1"]}, "line 15: 'metod' is no label of the grid"),
        ({"claims": ["loss(r.a(method='dsgd')) < 1"]}, "no case of a has method=dsgd; there are method: psgd"),
        ({"claims": ["within(loss(r.a), loss(r.b), -3)"]}, "how far apart is near must be at least 0"),
        ({"claims": ["within(loss(r.a), loss(r.b))"]}, "within takes how far apart is near"),
        ({"claims": ["final('val_lss')(r.a) < 1"]}, "line 15: no run of quadratic measures 'val_lss'; did you mean"),
        ({"claims": ["to('val_loss', 1, of='stp')(r.a) < 3"]}, "no run of quadratic measures 'stp'; did you mean step"),
        ({"claims": ["to('val_loss')(r.a) < 3"]}, "line 15: TypeError: to() missing 1 required positional argument"),
        (
            {"numbers": [Code("printed('a', loss, 1, 'us', {'method': 'dsgd'})")]},
            "numbers: entry 1: no case of a has",
        ),
        ({"show": [3, None]}, "a quantity is a metric, floor(...) or another of one"),
        ({"show": 3}, "show must be a list"),
        ({"figure": {"x": "step", "y": "val_lss"}}, "no run of quadratic measures 'val_lss'"),
        ({"figure": {"x": "step", "y": "val_loss", "lines": ["metod"]}}, "figure: 'metod' is no label"),
        ({"cost": {"ful": "an hour"}}, "cost has no use for 'ful'; did you mean full?"),
        ({"scales": {"full": {"seeds": [[0], 1, 2]}}}, "the seeds of scale full must be among"),
        ({"parameters": Code("exit('enough')")}, "mine.py line 20: SystemExit: enough"),
        (
            {
                "grid": [{"name": "a", "optimizer.lr": [1, 2]}, {"name": "b", "optimizer.lr": [1]}],
                "tune": {"over": "optimizer.lr", "by": "val_loss"},
            },
            "give each method as many",
        ),
    ],
)
def test_a_bad_table_is_refused(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    code, told = commeff(written(tmp_path, **changes), "--store", str(tmp_path / "store"), "--dry-run")
    assert (code, said in told) == (2, True), told
    assert all(line.startswith("commeff: ") for line in told.splitlines())


def test_an_error_of_a_table_that_results_bring_out_is_one_line_and_keeps_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    later = "    yield claim(loss(r.a) < 1, 'x')\n    if loss(r.a).numbers:\n        exit(1 / 0)\n"
    code, told = commeff(written(tmp_path, claims=later), "--store", str(tmp_path / "store"))
    assert (code, told.splitlines()[-1]) == (2, "commeff: mine.py line 17: ZeroDivisionError: division by zero")
    assert len([*(tmp_path / "store").glob("*-*/summary.json")]) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no table 'nowhere'"),
        (["nowhere.py"], "cannot be read"),
        ([], "TABLE must be given"),
        (["bias_floors", "--scale", "huge"], "--scale must be one of"),
        (["bias_floors", "--scale", "reduced"], "there is no scale reduced"),
        (["bias_floors", "steps=3"], "'steps=3': a table's settings are its own"),
        (["bias_floors", "-j", "0"], "-j must be at least 1"),
        (["bias_floors", "devise=cuda"], "did you mean device?"),
    ],
)
def test_bad_words_are_refused(words: list[str], said: str) -> None:
    code, told = commeff(*words)
    assert (code, said in told) == (2, True), told


def test_gpus_are_named_by_list_and_refused_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, told = commeff(written(tmp_path), "device=cuda", "--store", str(tmp_path / "store"))
    assert (code, told) == (2, "commeff: device=cuda: there is no NVIDIA GPU here; go where one is, or leave it out\n")
    where = {path.stem: read_table(path).cost for path in built_in_tables().values()}
    for line in filter(None, commeff("--list")[1].splitlines()[1:]):
        name = line.split()[0]
        assert ("  GPU  " in line) == ("GPU" in where.get(name, ""))


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for words in ([], ["--dry-run"]):
        code, told = commeff(written(tmp_path), "--store", "/proc/store", "--out", str(tmp_path / "page"), *words)
        assert (code, told.count("\n")) == (2, 1)
        assert told.startswith("commeff: --store /proc/store cannot be written (")


def test_every_claim_and_number_of_a_shipped_table_has_a_source() -> None:
    code, told = commeff("--list")
    assert code == 0
    for name, path in built_in_tables().items():
        table = read_table(path)
        assert name in told
        assert table.cost, name
        if name in WITHOUT_DATA:
            found = judge(chosen(Results(table, [CaseResult(case, {}, {}) for case in table.cases])))
            assert all(one.source for one in found), name
        assert all(number.source for number in table.numbers), name


def run_here(request: grids.Request) -> grids.Outcome:
    """As `grids.run`, in this process, which has imported torch already; a mistake shows when its cell runs."""
    cells, chosen = grids.prepare(request, rehearsed=False)
    grids.describe(request, cells)
    for cell in chosen:
        run_one(cell.config, cell.folder)
    return grids.collect(request)


read_once = cache(libsvm.read)


def data_of(name: str, folder: Path) -> str:
    """The setting by which a table finds its data at smoke scale; where we lack them, the test is skipped."""
    table = read_table(built_in_tables()[name], "smoke")
    named = {case.settings.get("task.data") for case in table.cases}
    data = {each for each in named if isinstance(each, str)} - NEEDS_NONE
    data |= {case.labels["data"] for case in table.cases if "data" in case.labels} - NEEDS_NONE
    folders = {"libsvm"} if data else set()
    folders |= {FOLDERS[task] for case in table.cases if (task := case.settings.get("task")) in FOLDERS}
    for needed in folders:
        if not (DATA / needed).is_dir():
            pytest.skip(f"no {needed} in {DATA}: set COMMEFF_DATA to the data folder")
    images = any(case.settings.get("task") == "cifar10" for case in table.cases)
    place = cifar10(folder / "images") if images else DATA
    for other in DATA.iterdir() if images and folders else ():
        (Path(place) / other.name).symlink_to(other)
    return f"data_dir={place}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in sorted(built_in_tables())]
)
def test_smoke(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    monkeypatch.setattr(libsvm, "read", read_once)
    words = [name, "--scale", "smoke", "--store", str(tmp_path), "--out", str(tmp_path / "page")]
    code, told = commeff(*words, data_of(name, tmp_path))
    assert code == 0, told
    page = (tmp_path / "page" / "report.md").read_text()
    assert "Scale: smoke." in page
    assert "eproduced" not in page.replace("commeff reproduce", "")
    assert not re.search(r"\bnan\b", page)


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_table_whose_smoke_is_slow_expands_to_cells(name: str, tmp_path: Path) -> None:
    table = Arguments(name, "smoke", settings=[data_of(name, tmp_path)]).content
    (stage,) = TableRun(table, tmp_path, Limits(jobs=1)).stages()
    cells, _ = grids.prepare(stage.request, rehearsed=False)
    assert len({cell.folder for cell in cells}) == len(table.cases) * len(table.seeds)


def test_an_interrupted_table_goes_on_to_the_page_of_an_undisturbed_one(tmp_path: Path) -> None:
    file, store = written(tmp_path), tmp_path / "store"
    process = forks.command(["reproduce", file, "-j", "1", "--store", str(store)])
    owned.until(lambda: bool([*store.glob("*-*/metrics.jsonl")]), "a cell")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=owned.PATIENCE) == 130
    assert not [*store.glob("pages/full/report.md")]
    quiet, told = commeff(file, "-j", "1", "--store", str(tmp_path / "quiet"))
    assert quiet == 0, told
    code, told = commeff(file, "-j", "1", "--store", str(store))
    assert code == 0, told
    for name in ("report.md", "values.csv", "figure.png"):
        ours, theirs = ((place / "pages" / "full" / name).read_bytes() for place in (store, tmp_path / "quiet"))
        assert ours == theirs, name


def test_functions_know_the_parts_of_their_case(tmp_path: Path) -> None:
    base = {"task": "quadratic", "task.condition": 4, "workers": 8, "method": "dsgd", "topology": "ring"}
    settings = {
        "optimizer.lr": Code("lambda c: c['times'] * c.topology.gap / c.task.L_max / 2"),
        "steps": Code("lambda c: 10 * c['workers']"),
        "method.order": Code("lambda c: c['how']"),
    }
    grid = [{"name": "a", "times": [2], "how": ["awc"]}]
    more = {"grid": grid, "parameters": ["times", "how"], "claims": ["loss(r.a) < 1"]}
    table = read_table(Path(written(tmp_path, base=base | settings, **more)))
    found = resolved(table, table.cases[0])
    gap = 1 - (1 / 3 + 2 / 3 * 0.5**0.5)
    assert float(found["optimizer.lr"]) == pytest.approx(gap, rel=1e-5)
    assert (found["steps"], found["method.order"], found["task"]) == ("80", "awc", "quadratic")
    wrong = read_table(Path(written(tmp_path, base=base | {"optimizer.lr": Code("lambda c: c.topology")})))
    with pytest.raises(TableError, match="must be a number"):
        resolved(wrong, wrong.cases[0])


def test_measurements_are_kept(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        measure="consensus",
        base={"task": "quadratic", "method": "dsgd"},
        grid=[{"name": "ring", "topology": "ring", "workers": [4, 8]}],
        show=["rho"],
        claims="""    for at in r.each("workers"):
        rho = 1 / 3 + 2 / 3 * math.cos(2 * math.pi / at.ring["workers"])
        yield claim(within(final("rho")(at.ring), rho, 1e-9), "as its formula says", scale="smoke")
""",
        numbers=[Code("printed('ring', 'degree', 3, 'us', {'workers': 8}, scale='smoke')")],
        figure={"x": "workers", "y": "rho"},
    )
    code, told = commeff(file, "--store", str(tmp_path / "store"))
    assert (code, "2 hold" in told, "off: ring at workers=8: theirs 3, ours 2" in told) == (3, True, True), told
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "store" / "measured").iterdir()}
    assert len(kept) == 2
    assert commeff(file, "--store", str(tmp_path / "store"))[0] == 3
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
