"""`commeff figure`: formulas, means over seeds, what is refused, what is drawn."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.report.data.formula import LONGEST, Formula
from commeff.experiments.report.data.points import FigureRun, points
from commeff.experiments.report.data.records import Record
from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.draw.axes import LogTicks
from commeff.experiments.report.draw.figures import canvas
from commeff.experiments.report.draw.lines import figure
from commeff.experiments.report.draw.points import drawing
from tests.experiments.report.report_stores import Forged, forge

HOSTILE = (
    "__import__('os').system('true')",
    "().__class__",
    "val_loss.__class__()",
    "lambda: val_loss",
    "[val_loss]",
    "val_loss if 1 else 2",
    "max(val_loss, 1)",
    "val_loss(step)",
    "last(method.period)",
    "until(step, val_loss)",
    "sqrt(val_loss, x=1)",
    "'val_loss'",
    "1 + 2",
    "val_loss +",
    "",
    "-" * 99_999 + "val_loss",
    "val_loss" + "+1" * LONGEST,
)


def invoke(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["figure", *words])
    return result.exit_code, result.stdout, result.stderr


def run(seed: int = 0, state: str = "done", *, loss: float = 1.0, **settings: Any) -> FigureRun:
    curve = pd.DataFrame({"step": [10, 20], "val_loss": [2 * loss, loss], "wire_bytes": [4e6, 8e6]})
    summary = {"val_loss": loss, "wire_bytes": 8e6} if state == "done" else {}
    config = {"method": {"_target_": "commeff.methods.local_sgd", "period": 2} | settings, "seed": seed}
    return FigureRun(Record(f"r{id(config)}", Path(), state, config, summary=summary, curve=curve))


def table(runs: list[FigureRun], x: str, y: str, per: list[str] | None = None, log: str | None = "") -> pd.DataFrame:
    return points(runs, Formula.read("--x", x), Formula.read("--y", y), per or [], log).data


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_formula_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    code, _, said = invoke(str(tmp_path), f"--y={text}")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("commeff: --y must be a name")


def test_a_formula_is_arithmetic() -> None:
    period, loss = 8.0, 0.3
    formula = "-2 * sqrt(method.period) ** 3 / (val_loss - 1e-1) + log2(method.period)"
    (found,) = table([run(loss=loss, period=8)], "method.period", formula)["y"]
    assert found == pytest.approx(-2 * period**1.5 / (loss - 0.1) + 3)
    assert math.isinf(Formula.read("--x", "x * 9 ** 9 ** 9 ** 9")(lambda name: 1.0, abs, abs)), "numbers, not digits"


def test_seeds_are_averaged_as_in_tables() -> None:
    losses = [0.5, 0.75, 1.5]
    (row,) = table([run(seed, loss=loss) for seed, loss in enumerate(losses)], "method.period", "val_loss").itertuples()
    expected = estimate(losses)
    assert expected is not None
    assert expected.half is not None
    assert (row.x, row.n, row.y) == (2, 3, pytest.approx(expected.mean))
    assert row.high - row.y == pytest.approx(expected.half) == row.y - row.low
    (row,) = table([run(i, loss=x) for i, x in enumerate(losses)], "method.period", "val_loss", log="y").itertuples()
    assert row.y == pytest.approx(math.prod(losses) ** (1 / 3))
    assert row.low > 0, "no interval goes below zero on a logarithmic axis"


def test_a_metric_at_the_horizontal_axis_makes_curves_and_its_end_makes_points() -> None:
    runs = [run(seed, loss=1 + seed) for seed in (0, 1)]
    assert table(runs, "wire_bytes", "val_loss")[["x", "y"]].to_numpy().tolist() == [[4e6, 3.0], [8e6, 1.5]]
    assert table(runs, "last(wire_bytes)", "val_loss")[["x", "y"]].to_numpy().tolist() == [[8e6, 1.5]]
    assert table([run()], "method.period", "until(step, val_loss, 1.25)")["y"].tolist() == [17.5]


def test_what_varies_is_at_an_axis_or_tells_lines_apart_or_is_refused_by_its_name() -> None:
    runs = [run(period=period, rank=rank) for period in (2, 4) for rank in (1, 8)]
    with pytest.raises(ValueError, match=r"method.rank must be at an axis.*got method.rank 1, 8: .*--per method.rank"):
        table(runs, "method.period", "val_loss")
    assert len(table(runs, "method.period", "val_loss", ["method.rank"])) == 4
    assert len(table(runs, "method.period * method.rank", "val_loss")) == 4
    follows = [run(period=period, rank=10 * period) for period in (2, 4)]
    assert len(table(follows, "method.period", "val_loss")) == 2, "what follows from what is shown is no mystery"


def test_a_point_is_of_all_its_seeds() -> None:
    runs = [run(0), run(1), run(0, "diverged", period=9), run(1, period=9), run(2, "running")]
    made = points(runs, Formula.read("", "method.period"), Formula.read("", "val_loss"))
    assert made.data[["x", "n"]].to_numpy().tolist() == [[2, 2]]
    without = "without method.period or val_loss, or at a point with such a run"
    assert {**made.left_out} == {"running": 1, "diverged": 1, without: 1}
    late = [run(0, loss=0.1), run(1, loss=3.0)]
    with pytest.raises(ValueError, match="there must be points to show, got none: 2 of them without"):
        table(late, "method.period", "until(step, val_loss, 1)")


def test_a_store_is_drawn_with_its_data_beside(tmp_path: Path) -> None:
    store = forge(
        tmp_path / "s", [Forged(m, seed, accuracy=0.8 + seed / 10) for m in ("psgd", "dsgd") for seed in (0, 1)]
    )
    for suffix, begins in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        out = tmp_path / "new" / f"figure{suffix}"
        code, said, beside = invoke(
            str(store), "--y", "val_accuracy", "--x", "step", "--per", "method", "--out", str(out)
        )
        assert (code, beside) == (0, "")
        assert str(out) in said
        assert out.read_bytes().startswith(begins)
    data = pd.read_csv(tmp_path / "new" / "figure.csv")
    assert [*data] == ["method", "step", "val_accuracy", "low", "high", "n"]
    assert data[data["step"] == 40]["val_accuracy"].tolist() == pytest.approx([0.85, 0.85])
    for wrong, says in (
        (["--per", "metod"], "--per must be a setting of some run, got 'metod'; did you mean method?"),
        (["--y", "val_acuracy"], "--y must be of metrics, settings and constants of parts, got 'val_acuracy'; did you"),
        (["--y", "method"], "--y must be a number, got method"),
        (["--x", "method", "--slope", "-1"], "--x must be a number on a logarithmic axis or with --slope"),
        (["--x", "method", "--only", "metod"], "--only must be KEY=VALUE"),
        (["--only", "metod=psgd"], "--only must be of a setting of some run, got 'metod'; did you mean method?"),
        (["--only", "method=sgd"], "--only must keep some run, got method=sgd; it is psgd, dsgd"),
        (["--out", "x.bmp"], "--out must end with"),
        (["--grid", "x"], "holds no grid 'x'"),
    ):
        code, _, said = invoke(str(store), *wrong)
        assert (code, said.count("\n"), says in said) == (2, 1, True), said


def test_constants_of_a_grid_file_need_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rings.yaml").write_text(
        "base: {task: quadratic, method: dsgd}\ngrid: [{topology: ring, workers: [5, 8, 16]}]\n"
    )
    code, said, _ = invoke("rings.yaml", "--x", "workers", "--y", "topology.gap", "--json")
    assert code == 0
    rows = json.loads(said)
    assert [row["y"] for row in rows] == pytest.approx([2 / 3 * (1 - math.cos(2 * math.pi / n)) for n in (5, 8, 16)])
    assert not (tmp_path / "runs").exists()
    code, _, said = invoke("rings.yaml", "--x", "workers", "--y", "topology.gapp")
    assert (code, "did you mean topology.gap?" in said) == (2, True)


def test_a_grid_file_is_run_where_a_metric_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text("base: {task: quadratic, steps: 4}\ngrid: [{method: psgd, workers: [2, 4]}]\n")
    words = ("two.yaml", "--x", "workers", "--y", "distance", "-j", "1")
    code, _, said = invoke(*words, "--per", "metod")
    assert (code, "did you mean method?" in said, (tmp_path / "runs").exists()) == (2, True, False)
    code, *_ = invoke(*words)
    assert code == 0
    assert len([*(tmp_path / "runs" / "two").glob("*/summary.json")]) == 2


def lecture(lines: int) -> list[str]:
    """The texts of a figure of so many lines."""
    runs = [run(rank=rank, period=period, loss=rank / period) for rank in range(1, lines + 1) for period in (2, 4, 8)]
    x, y = Formula.read("", "method.period"), Formula.read("", "val_loss")
    style = {"width": 8, "height": 4.8, "font_size": 16, "lines": 6}
    drawn = drawing(points(runs, x, y, ["method.rank"]), x, y, [-1], style=style)
    made = canvas(figure("", "", drawn, style=style))
    (guide,) = (line for line in made.axes[0].lines if line.get_zorder() == 2.5)
    (across, up) = np.log(np.array(guide.get_xydata())).T
    assert np.allclose(np.diff(up), -np.diff(across))
    return [text.get_text() for text in made.axes[0].texts]


def test_a_lecture_has_at_most_six_lines_named_at_their_ends() -> None:
    assert {*lecture(6)} == {*(f"rank {rank}" for rank in range(1, 7)), "slope −1"}
    with pytest.raises(ValueError, match="the style shows at most 6 lines, got 7; choose some with --only"):
        lecture(7)


@pytest.mark.parametrize("room", [3, 4, 6, 14])
def test_a_logarithmic_axis_has_at_least_three_ticks_and_no_more_than_fit(room: int) -> None:
    rng = np.random.default_rng(0)
    for low, span in zip(10 ** rng.uniform(-20, 20, 300), 10**10 ** rng.uniform(-1.3, 1.3, 300), strict=True):
        ticks = LogTicks(room).tick_values(low, low * span)
        assert 3 <= len(ticks) <= max(room, 6), (low, span, ticks)
        assert all(low * (1 - 1e-9) <= tick <= low * span * (1 + 1e-9) for tick in ticks)


def test_a_style_ships_by_its_name(tmp_path: Path) -> None:
    store = forge(tmp_path / "s", [Forged("psgd", 0)])
    out = tmp_path / "f.svg"
    assert invoke(str(store), "--style", "lecture", "--out", str(out))[0] == 0
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", out.read_text())}
    assert max(sizes) == 16 > mpl.rcParamsDefault["font.size"]
    code, _, said = invoke(str(store), "--style", "lectur", "--out", str(out))
    assert (code, "--style must be lecture, paper or a file" in said) == (2, True)
