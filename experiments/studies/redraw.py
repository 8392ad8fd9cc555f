"""`python -m commeff.experiments.studies.redraw FOLDER GRID`: the figures of a report drawn anew without its runs.

A report keeps every evaluation of the runs that it shows, `figures/convergence.csv`. They are written into a store as
the runs of the grid file, whose names tell that their settings are the same, and read like any store. A figure is drawn
again only if its numbers come out as its CSV file has them. CSV files and tables stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import yaml

from commeff.experiments.escape import markdown_text
from commeff.experiments.grid.command import Request, describe
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.expand import expand
from commeff.experiments.grid.plan.spec import STEPS_TO_TARGET, read_grid
from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.data.wallclock import Modeller, Wallclock, places_of, wallclock
from commeff.experiments.report.draw.figures import Figure, save
from commeff.experiments.report.draw.networks import networks
from commeff.experiments.report.draw.plots import looks
from commeff.experiments.report.draw.style import restyled
from commeff.experiments.report.draw.wallclock import speed_up
from commeff.experiments.report.write.html import figure_block, swatch
from commeff.experiments.report.write.writing import draw_all
from commeff.files import private_folder

DROPPED = "scaling"  # of which reports drew what ran with one number of workers
TINY = 1e-15  # seconds: a part of a step that was written and is rounding
SWATCH = r'<svg class="swatch".*?</svg>'


def redraw(folder: Path, file: Path, settings: Sequence[str] = (), metric: str | None = None) -> list[str]:
    """Draw what can be drawn of a report's figures; a line for each. Data lie in `COMMEFF_DATA`."""
    with private_folder() as temporary:
        store = Path(temporary, "runs")
        store.mkdir()
        cells = expand(read_grid(file, settings), store)[0]
        curves = dict(iter(pd.read_csv(folder / "figures" / "convergence.csv").groupby("run")))
        if missing := curves.keys() - {cell.folder.name for cell in cells}:
            raise SystemExit(f"{file} must plan the runs of {folder}; it has no {min(missing)}")
        describe(Request(file, settings, store=store), cells)
        for cell in cells:
            if cell.folder.name in curves:
                _write_run(cell, curves[cell.folder.name].drop(columns=["run", "seed", "variant"]))
        _write_others(folder, analyse(store, metric=metric), {cell.folder.name: cell for cell in cells})
        analysis = analyse(store, metric=metric)
        modeller = Modeller()
        clocks = [wallclock(analysis, place, modeller) for place in places_of(analysis)]
        drawn = draw_all(analysis, clocks, networks(analysis)[0])
        page, text = ((folder / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
        page = _recoloured(page, analysis)
        lines = []
        for path in sorted(folder.glob("figures/*.png")):
            figure, known = drawn.get(path.stem), pd.read_csv(path.with_suffix(".csv"))
            if figure is None and path.stem == DROPPED:
                page, text = _without(path.stem, page, text)
                for old in folder.glob(f"figures/{path.stem}.*"):
                    old.unlink()
                lines.append(f"{path}: gone")
            elif figure is None or (not _same(figure.data, known) and path.stem != "speed_up"):
                lines.append(f"{path}: left as it is, its numbers come out otherwise")
            else:
                if not _same(figure.data, known):
                    figure = _as_known(analysis, clocks, known)
                save(figure, folder / "figures")
                page, text = _with(figure, page, text)
                lines.append(f"{path}: drawn")
        (folder / "report.html").write_text(page, encoding="utf-8")
        (folder / "report.md").write_text(text, encoding="utf-8")
    return lines


def _write_run(cell: Cell, curve: pd.DataFrame) -> None:
    """The files of a run that is done, from its evaluations."""
    rows = [{key: value for key, value in row.items() if pd.notna(value)} for row in curve.to_dict("records")]
    end = {"state": "done", "step": rows[-1]["step"], "steps": rows[-1]["step"]}
    cell.folder.mkdir()
    (cell.folder / "config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(cell.config)), sort_keys=False))
    (cell.folder / "status.json").write_text(json.dumps(end))
    (cell.folder / "summary.json").write_text(json.dumps({**rows[-1], **end}))
    (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_others(folder: Path, analysis: Analysis, cells: dict[str, Cell]) -> None:
    """The runs at values that were not chosen, of which a final number is kept."""
    for path in folder.glob("figures/sweep_*.csv"):
        finals = pd.read_csv(path)
        key, _, by = finals.columns[:3]
        known = {(row[3], row[0], row[1]): row[2] for row in finals.itertuples(index=False)}
        goal = analysis.target
        for variant in analysis.variants:
            for run in (run for trial in variant.trials for run in trial.runs if run.record.state == "queued"):
                cell = cells[run.cell.run]
                value = known.get((variant.name, float(run.cell.labels[key]), run.seed))
                if value is not None and by == STEPS_TO_TARGET and goal:
                    _write_run(cell, pd.DataFrame([{"step": value, goal.metric: goal.level}]))
                elif value is not None:
                    _write_run(cell, pd.DataFrame([{"step": cell.config["steps"], by: value}]))


def _as_known(analysis: Analysis, clocks: Sequence[Wallclock], known: pd.DataFrame) -> Figure:
    """Speed-ups as the tables have them, where they were means over the seeds that reached the target, not all."""
    shown = restyled(analysis, {})
    names = {old.name: new.name for old, new in zip(analysis.variants, shown.variants, strict=True)}
    figure = speed_up(shown, clocks, known.replace(dict.fromkeys(("variant", "baseline"), names)))
    assert figure is not None
    return replace(figure, caption=f"{figure.caption} Means are over the seeds that reached it.")


def _same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two tables hold the same numbers up to rounding, and the same words."""
    other = other[other["seconds"] > TINY].reset_index(drop=True) if "part" in other else other
    try:
        pd.testing.assert_frame_equal(pd.read_csv(StringIO(one.to_csv(index=False))), other, rtol=1e-9, atol=1e-12)
    except AssertionError:
        return False
    return True


def _recoloured(page: str, analysis: Analysis) -> str:
    """The page with the samples of lines that its figures have now."""
    buttons = dict(re.findall(rf'<button type="button" data-variant="(\d+)"[^>]*>({SWATCH})', page))
    new = {variant.kind: swatch(looks(analysis)[variant.number]) for variant in analysis.variants}
    now = {old: new[int(kind)] for kind, old in buttons.items()}
    return re.sub(SWATCH, lambda match: now.get(match[0], match[0]), page)


def _with(figure: Figure, page: str, text: str) -> tuple[str, str]:
    """HTML and Markdown with a figure in the place of the one of its name."""

    def block(match: re.Match[str]) -> str:
        return (
            figure_block(figure, titled="</h3>" in match[0]) if f"figures/{figure.name}.pdf" in match[0] else match[0]
        )

    title, caption = markdown_text(figure.title), markdown_text(figure.caption)
    new = f"## {title}\n\n![{title}](figures/{figure.name}.png)\n\n{caption}\n"
    text = re.sub(rf"## [^\n]*\n\n!\[[^\n]*\]\(figures/{figure.name}\.png\)\n\n[^\n]*\n", lambda _: new, text)
    return re.sub(r"<figure>.*?</figure>", block, page, flags=re.DOTALL), text


def _without(name: str, page: str, text: str) -> tuple[str, str]:
    """HTML and Markdown without a figure that is not drawn any more, and the section that was its own."""
    page = re.sub(rf'<section id="{name}">.*?</section>\n?', "", page, flags=re.DOTALL)
    page = re.sub(rf'<a href="#{name}">.*?</a>\n?', "", page)
    return page, re.sub(rf"## [^\n]*\n\n!\[[^\n]*\]\(figures/{name}\.png\)\n\n[^\n]*\n\n?", "", text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m commeff.experiments.studies.redraw", description=__doc__)
    parser.add_argument("folder", type=Path, help="of a report: figures/, report.html, report.md")
    parser.add_argument("grid", type=Path, help="the file of its grid")
    parser.add_argument("settings", nargs="*", help="key=value, as `commeff grid` takes them: data_dir=...")
    parser.add_argument("--metric", help="that the report was written with")
    arguments = parser.parse_args()
    print(*redraw(arguments.folder, arguments.grid, arguments.settings, arguments.metric), sep="\n")
