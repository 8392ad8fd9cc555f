"""`python -m commeff.experiments.studies.planner tables`, `search`, `study` and `bandwidth` write results/planner;
`fit` prints constants.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from commeff.planner import MEASURED

app = typer.Typer(add_completion=False, help=__doc__)
RESULTS = Path("results/planner")
Out = Annotated[Path, typer.Option(help="The folder to write into.")]
Evaluations = Annotated[int, typer.Option(help="Choices of constants that one fit may try.")]


@app.command("fit")
def fit_command(evaluations: Evaluations = 400) -> None:
    """Fit the four constants on the three measured tables, and print them beside those that ship."""
    from commeff.experiments.studies.planner.fit import BOUNDS, TABLES, Measured, fit, mape

    measured = Measured()
    constants = fit(measured, evaluations=evaluations)
    for name, value in asdict(constants).items():
        fitted = "" if name in BOUNDS else "   not fitted"
        typer.echo(f"{name:20} {value:12.6g}   ships {getattr(MEASURED, name):12.6g}{fitted}")
    for table in TABLES:
        typer.echo(f"{table:24} MAPE {mape(measured.of_table(table, constants)):5.2f} %")


@app.command()
def tables(out: Out = RESULTS, evaluations: Evaluations = 120) -> None:
    """Every table of the lectures and every measured table beside the planner's figures, as CSV and one report.md."""
    from commeff.experiments.studies.planner.report import write

    write(out, evaluations)
    typer.echo(f"wrote {out}/report.md and its tables")


@app.command()
def search(
    out: Out = RESULTS, seeds: Annotated[int, typer.Option(help="Runs of every method on every space.")] = 20
) -> None:
    """The search methods at equal budgets, and the speed of brute force: search.csv, search.md. About ten minutes."""
    from commeff.experiments.studies.planner.searches import write

    write(out, seeds)
    typer.echo(f"wrote {out}/search.csv and search.md")


@app.command()
def study(
    out: Out = RESULTS,
    steps: Annotated[Path, typer.Option(help="Measured steps, a row for each variant.")] = Path(
        "results/converged/steps.csv"
    ),
) -> None:
    """Which worker-axis method is fastest to a token budget: study.csv, study.md, study.png. About five minutes."""
    from commeff.experiments.studies.planner.study import write

    write(out, steps)
    typer.echo(f"wrote {out}/study.md and its figure")


@app.command()
def bandwidth(out: Out = RESULTS) -> None:
    """The bandwidth that methods need beside two published tables: bandwidth.md, .csv, .png. About a minute."""
    from commeff.experiments.studies.planner.bandwidth import write

    write(out)
    typer.echo(f"wrote {out}/bandwidth.md and its figure")


if __name__ == "__main__":
    app()
