"""A report's figures are drawn again from what it keeps, and only with the numbers that it has."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from commeff.experiments.report.write.writing import write_report
from commeff.experiments.studies.bench.synthetic_store import make_store
from commeff.experiments.studies.redraw import redraw

GRID = """
base: {task: digits, workers: 4, steps: 80}
seeds: [0, 1]
grid: [{method: [psgd, local_sgd, diloco], optimizer.lr: [0.05, 0.1, 0.2]}]
select: {over: optimizer.lr, by: val_accuracy}
"""


@pytest.mark.slow
def test_what_a_report_keeps_gives_its_figures(tmp_path: Path) -> None:
    file, store, out = tmp_path / "g.yaml", tmp_path / "store", tmp_path / "out"
    file.write_text(GRID)
    make_store(store, file, 18)
    write_report(store, out)
    figures = {path: path.read_bytes() for path in out.glob("figures/*.*")}
    texts = {name: (out / name).read_text() for name in ("report.html", "report.md")}
    changed, *_ = pngs = sorted(out.glob("figures/*.png"))
    for path in pngs:
        path.write_bytes(b"")
    assert redraw(out, file) == [f"{path}: drawn" for path in pngs]
    assert {path: path.read_bytes() for path in figures} == figures
    assert {name: (out / name).read_text() for name in texts} == texts
    data = pd.read_csv(changed.with_suffix(".csv"))
    data.iloc[0, 1] += 1e-3
    data.to_csv(changed.with_suffix(".csv"), index=False)
    assert redraw(out, file)[0].endswith("left as it is, its numbers come out otherwise")
    assert changed.read_bytes() == figures[changed]
