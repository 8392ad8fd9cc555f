"""What a table cannot mean is refused in one line each, before anything runs and with no store left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commeff.experiments.grid import command as grids
from commeff.experiments.reproduce.judging import rehearse
from commeff.experiments.reproduce.reading import TableError, execute
from commeff.experiments.reproduce.results import MEASURED, recorded
from commeff.experiments.reproduce.table import built_in_tables, read_table
from tests.experiments.cli.test_cold_start import HEAVY, RUN
from tests.experiments.reproduce.reproduced import Code
from tests.experiments.reproduce.test_reproduce import OWN, TUNE, commeff, run_here, written
from tests.owned import run

SWEPT = [{"name": name, "method": "psgd", "optimizer.lr": [0.1, 0.2]} for name in "ab"]
TIMES: dict[str, object] = {
    "parameters": ["times"],
    "grid": [{"name": name, "method": "psgd", "times": [1, 4]} for name in "ab"],
}
GRID = {"name": "a", "method": "psgd", "optimizer.lr": [0.1, 0.2]}
BOUND = Code("lambda c: 1 / (c['times'] - 4)")  # a name of no key, so a helper

NEVER_JUDGED = [
    ({"claims": ["loss(r.a) < 1 / 0"]}, "mine.py line 15: ZeroDivisionError: division by zero"),
    ({"claims": ["to('val_loss', loss(r.b))(r.a) < 5"]}, "mine.py line 15: TypeError: unsupported format string"),
    ({"claims": ["onset('val_loss', 'b', 0.5)(r.a) < 9"]}, "line 15: the factor of onset must be more than 1, got 0.5"),
    ({"show": [Code("onset('val_loss', 'b', 0.5)")]}, "the factor of onset must be more than 1, got 0.5"),
    ({"u": Code("lambda c: c['nosuch']"), "claims": ["loss(r.a) < u(r.a)"]}, "line 8: a has no label or setting"),
    ({"u": Code("lambda c: c['nosuch'] + 1"), "show": [Code("u")]}, "line 8: a has no label or setting 'nosuch'"),
    (
        {"u": Code("lambda c: c['nosuch'] + 1"), "figure": {"x": "step", "y": Code("u")}},
        "a has no label or setting 'nosuch'",
    ),
    (
        {"u": Code("lambda c: c['nosuch'] + 1"), "figure": {"x": Code("u"), "y": "val_loss"}},
        "a has no label or setting 'nosuch'",
    ),
    (TIMES | {"bound": BOUND, "claims": ["loss(r.a(times=4)) < bound(r.a(times=4))"]}, "ZeroDivisionError: "),
    ({"metrics": {"z": Code("lambda m: m['val_loss'].nosuch")}}, "line 20: AttributeError: 'float' object has no"),
]
NAMES = [
    ({"claims": ["final('qqqq')(r.a) < 1"]}, "mine.py line 15: no run of quadratic measures 'qqqq'; there are"),
    ({"show": ["qqqq"]}, "mine.py line 10: no run of quadratic measures 'qqqq'"),
    ({"show": ["val_accuracy"]}, "no run of quadratic measures 'val_accuracy'"),
    ({"show": ["test_loss"]}, "no run of quadratic measures 'test_loss'"),
    ({"figure": {"x": "qqqq", "y": "val_loss"}}, "no run of quadratic measures 'qqqq'"),
    ({"metrics": {"z": Code("lambda m: m['qqqq'] + 1")}}, "mine.py line 20: no run of quadratic measures 'qqqq'"),
    ({"show": [Code("lambda c: 1"), Code("lambda c: 2")]}, "mine.py: show has two columns <lambda>: each needs a name"),
    ({"show": [Code("onset('val_loss', 'nosuch', 2)")]}, "onset(val_loss, nosuch, 2): no variant 'nosuch'"),
    ({"claims": ["equal(r.a, r.a, 'qqqq')"]}, "line 15: no run of quadratic measures 'qqqq'"),
    ({"claims": ["slope(floor('qqqq'), 'workers')(r.a) < 2"]}, "no run of quadratic measures 'qqqq'"),
    ({"claims": ["slope(loss, 'wokers')(r.a) < 2"]}, "a has no label or setting 'wokers'; did you mean workers?"),
    ({"claims": ["to('val_loss', 1, of='qqqq')(r.a) < 1"]}, "no run of quadratic measures 'qqqq'"),
    ({"measure": "consensus", "show": ["rho"], "figure": None}, "line 15: nothing here has 'val_loss'; there are"),
    ({"metrics": {"val_loss": Code("lambda m: 1")}}, "metrics: val_loss has the name of a metric that is recorded"),
    ({"metrics": {"z": 1}}, "metrics must be functions of recorded metrics by name"),
    ({"parameters": ["tims"]}, "parameters: no entry of the grid has 'tims'"),
    ({"base": {"task": "quadratic", "stesp": 5}}, "base: unknown key 'stesp'; did you mean steps?"),
    ({"grid": [GRID | {"optimizer.lrr": 1}]}, "grid: unknown key 'optimizer.lrr'; did you mean optimizer.lr?"),
    ({"comparable": {"task.varient": "full"}}, "comparable: unknown key 'task.varient'"),
]
SCALES = [
    ({"grid": SWEPT, "scales": {"full": {"keep": {"optimizer.lr": [0.1, 0.33]}}}}, "no case has optimizer.lr=0.33"),
    ({"scales": {"full": {"keep": {"name": ["a", "cc"]}}}}, "scales.full: keep: no case has name=cc; there are a, b"),
    (
        {"grid": SWEPT, "scales": {"full": {"optimizer.lr": 0.1}}},
        "scales.full makes two cases a method=psgd optimizer.lr=0.1: it sets",
    ),
    (
        {"grid": [GRID | {"optimizer.lr": [0.1, 0.1]}], "claims": ["loss(r.a(lr=0.1)) < 1"]},
        "grid has a method=psgd optimizer.lr=0.1 twice; keep one",
    ),
    ({"grid": [GRID, GRID], "claims": ["loss(r.a(lr=0.1)) < 1"]}, "optimizer.lr=0.2 twice; keep one"),
    ({"scales": {1: {}}}, "scales has no use for '1'"),
]
NUMBERS = [
    ({"claims": ["order(loss(r.a))"]}, "order takes two values or more, got 1"),
    ({"claims": ["within(loss(r.a), 2, -1)"]}, "how far apart is near must be at least 0 and finite, got -1"),
    ({"claims": ["within(loss(r.a), 2, 1e400)"]}, "how far apart is near must be at least 0 and finite, got inf"),
    ({"claims": ["within(loss(r.a), 2, by=1, share=0.1)"]}, "within takes how far apart is near"),
    ({"tolerance": {"kind": "relative", "by": 5}}, "tolerance.by must be between 0 and 1, a share of theirs,"),
    ({"tolerance": {"kind": "absolute", "by": float("1e400")}}, "name 'inf' is not defined"),
    ({"tolerance": {"kind": "absolute", "by": -1}}, "tolerance.by must be at least 0 and finite"),
    ({"tolerance": {"kind": "absolute", "by": "5%"}}, "tolerance.by must be at least 0 and finite"),
    ({"numbers": [Code("printed('a', loss, 0, 'us')")]}, "numbers: a share of a printed 0 is 0"),
    ({"numbers": [Code("printed('a', loss, 1, 'us', spread=math.inf)")]}, "spread must be a number"),
    ({"numbers": [Code("printed('a', loss, math.nan, 'us')")]}, "a printed number must be finite, got nan"),
    (
        {"numbers": [Code("printed('a', loss, 1, 'us', form='smoke')")]},
        "TypeError: PrintedNumber.__init__() got an unexpected",
    ),
]


@pytest.mark.parametrize(("changes", "said"), [*NEVER_JUDGED, *NAMES, *SCALES, *NUMBERS])
def test_what_a_table_cannot_mean_is_refused(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    code, told = commeff(written(tmp_path, **changes), "--store", str(tmp_path / "store"))
    assert (code, said in told) == (2, True), told
    assert all(line.startswith("commeff: ") for line in told.splitlines())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": ["apply(math.log, loss(r.a) - loss(r.b)) < 3", "apply(math.sqrt, 1 - loss(r.a)) < 1 / loss(r.b)"]},
        {"metrics": {"z": Code("lambda m: math.log(m['val_loss'] - m['train_loss'])")}, "show": ["z"]},
        {"metrics": {"z": Code("lambda m: 1 / round(m['val_loss'])")}, "show": ["z"]},
        {"u": Code("lambda c: 2"), "figure": {"x": "workers", "y": Code("u")}, "show": [Code("floor('val_loss') / 2")]},
        {"grid": SWEPT, "claims": "    for at in r.each('lr'):\n        yield claim(loss(at.a) < 1, 'small')\n"},
        {"comparable": {"task": "imagenet", "model": "resnet20", "task.zeta": 3, "steps": 5}},
        {"tolerance": {"kind": "relative", "by": 1}, "numbers": [Code("printed('a', loss, 1, 'us')")]},
        {"HALF": 0.5, "_half": 0.5, "claims": ["loss(r.a) < HALF * _half"]},
    ],
)
def test_what_some_numbers_suit_is_not_refused(changes: dict[str, object], tmp_path: Path) -> None:
    code, told = commeff(written(tmp_path, **changes), "--store", str(tmp_path / "store"), "--dry-run")
    assert code == 0, told
    assert not (tmp_path / "store").exists()


def test_a_bad_claim_is_said_once(tmp_path: Path) -> None:
    told = commeff(written(tmp_path, claims=["loss(r.a) < loss(r.c)"]))[1]
    assert told.count("\n") == 1, told


def test_smoke_reads_what_other_scales_and_tuning_say(tmp_path: Path) -> None:
    tune = TUNE | {"seeds": [100], "settings": {"stpes": 3}}
    for changes, said in (
        ({"scales": {"full": {"stpes": 5}}}, "scales.full: unknown key 'stpes'; did you mean steps?"),
        ({"scales": {"reduced": {"task.dimensoin": 5}}}, "scales.reduced: unknown key 'task.dimensoin'"),
        ({"scales": {"full": {"keep": {"wokers": 4}}}}, "scales.full: keep: 'wokers' is no label of the grid"),
        ({"scales": {"full": {"seeds": [7, 8, 9]}}}, "the seeds of scale full must be among"),
        ({"grid": SWEPT, "tune": tune}, "tune.settings: unknown key 'stpes'; did you mean steps?"),
    ):
        code, told = commeff(written(tmp_path, **changes), "--scale", "smoke", "--dry-run")
        assert (code, said in told) == (2, True), told


def test_names_are_refused_before_anything_slow_is_imported(tmp_path: Path) -> None:
    wrong = [f"reproduce {written(tmp_path, show=['qqqq'])}"]
    ended = run([sys.executable, "-c", RUN, json.dumps(wrong), json.dumps(HEAVY)], cwd=tmp_path, check=True)
    ((code, said, imported),) = json.loads(ended.stdout)
    assert (code, imported, "'qqqq'" in said) == (2, [], True)


def test_a_task_that_is_not_ours_may_record_anything_but_what_looks_like_a_slip(tmp_path: Path) -> None:
    base = OWN["base"] | {"task": "mine"}  # type: ignore[operator]
    rehearse(read_table(Path(written(tmp_path, base=base, show=["qqqq"]))))
    with pytest.raises(TableError, match="did you mean wire_bytes"):
        rehearse(read_table(Path(written(tmp_path, base=base, show=["wire_byte"]))))


@pytest.mark.parametrize("name", sorted(built_in_tables()))
def test_shipped_tables_are_read_at_every_scale(name: str) -> None:
    path = built_in_tables()[name]
    for scale in ("smoke", *([] if "reduced" not in execute(path)["scales"] else ["reduced"]), "full"):
        table = read_table(path, scale)
        for quantity in (*table.show, *table.drawn, *(printed.of for printed in table.numbers)):
            table.check_quantity(quantity)


@pytest.mark.parametrize("task", ["quadratic", "digits", "risk"])
def test_all_that_runs_record_is_known(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    data = {"task.data": "synthetic"} if task == "risk" else {}
    base = {"task": task, "workers": 2, "steps": 2, "checkpoint_every": 0, "method": "psgd"} | data
    file = written(tmp_path, base=base, grid=[{"name": "a"}], claims=["loss(r.a) < 1"], seeds=[0, 1, 2])
    assert commeff(file, "--scale", "smoke", "--store", str(tmp_path / "store"))[0] == 0
    known = {*recorded(read_table(Path(file)))[0], "state"}
    (summary,) = (tmp_path / "store").glob("*-*/summary.json")
    assert json.loads(summary.read_text()).keys() <= known
    assert json.loads((summary.parent / "metrics.jsonl").read_text().splitlines()[0]).keys() <= known


def test_all_that_measurements_record_is_known() -> None:
    from commeff.experiments.config.compose import compose
    from commeff.experiments.reproduce.measures import KINDS

    matrix = ["method=power_sgd", "task.dimension=8", "task.columns=2", "workers=1", "steps=1"]
    words = {"compression": ["method=mem_sgd"], "low_rank": matrix}
    assert {*KINDS} == {*MEASURED} - {"modelled"}
    for kind, measure in KINDS.items():
        own = words.get(kind, ["method=dsgd", "workers=4", "steps=4"])
        assert measure(compose(["task=quadratic", *own])).keys() <= {*MEASURED[kind]}


def test_printed_numbers_of_a_task_or_a_model_are_comparable_by_name(tmp_path: Path) -> None:
    from commeff.experiments.config.compose import compose

    for comparable, words, same in (
        ({"task": "digits"}, ["task=digits"], True),
        ({"task": "imagenet"}, ["task=digits"], False),
        ({"task": "quadratic"}, ["task=digits"], False),
        ({"model": "mlp"}, ["task=digits", "model=mlp"], True),
        ({"model": "resnet20"}, ["task=digits", "model=mlp"], False),
        ({"nosuch": "null"}, ["task=digits"], False),
    ):
        table = read_table(Path(written(tmp_path)))
        object.__setattr__(table, "comparable", comparable)
        assert table.is_theirs(compose(words)) == same, comparable


def test_a_store_or_page_that_cannot_be_is_named_by_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for option in ("--store", "--out"):
        code, told = commeff(written(tmp_path), option, str(tmp_path / "file"), "--dry-run")
        assert (code, told.startswith(f"commeff: {option} must be a folder")) == (2, True), told


def test_the_page_of_another_table_is_not_replaced_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    store = str(tmp_path / "store")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    one, two = (written(tmp_path / folder, claims=["loss(r.a) < 100"]) for folder in ("one", "two"))
    assert "is replaced" not in commeff(one, "--store", store)[1]
    assert "is replaced" not in commeff(one, "--store", store)[1]
    assert (
        f"was of 'mine', made by `commeff reproduce {one} --scale full`, and is replaced"
        in commeff(two, "--store", store)[1]
    )


def test_a_title_is_one_line_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    words = {
        "title": "mine\n\n# Reproduced",
        "paper": "nobody\n## Claims",
        "left_open": {"x": "y\n# z"},
        "claims": "    yield claim(loss(r.a) < 9, 'a is\\n  small')\n",
    }
    assert commeff(written(tmp_path, **words), "--store", str(tmp_path / "store"), "--scale", "smoke")[0] == 0
    page = (tmp_path / "store" / "pages" / "smoke" / "report.md").read_text()
    heads = [line for line in page.splitlines() if line.startswith("#")]
    assert heads[0] == "# mine # Reproduced"
    assert heads.count("## Claims of the paper") == 1
    assert not {"# z", "## Claims"} & {*heads}
    assert "| a is small |" in page
