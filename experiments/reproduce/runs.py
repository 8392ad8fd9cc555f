"""The runs of a table that trains: those that choose, then those that are judged. Each stage is a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commeff.experiments.grid import command as grids
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.reproduce.choosing import check_measured, choices_of, choose, warnings_of
from commeff.experiments.reproduce.observing import TableRun, TableStage
from commeff.experiments.reproduce.results import Results
from commeff.experiments.run.store import BAD


@dataclass(frozen=True)
class Trained:
    """What the runs came to: results, None where they are not all there; then lines that say why, and the exit code.

    `faults` : why finished runs could not be kept in the file of --records.
    """

    results: Results | None
    machines: Sequence[Mapping[str, str]] = ()
    lines: Sequence[str] = ()
    exit_code: int = 0
    faults: Sequence[str] = ()


def train(plan: TableRun) -> Trained:
    """Run what is not finished of both stages."""
    for stage in stages(plan):
        grids.check(stage.request)
    tune, choices, machines = plan.table.tune, None, list[dict[str, str]]()
    if tune is not None and plan.tuning is not None:
        outcome = grids.run(plan.tuning.request)
        if outcome.interrupted or outcome.left:
            return _stopped(plan, outcome)
        found = plan.tuning.results()
        if found.missing:
            why = "nothing is chosen before all runs that tune are done; the same command tries them again"
            return Trained(None, (), [*(f"tuning: {line}" for line in found.missing), why], 1)
        choices, machines = choices_of(plan.table, found.cases), found.machines
        check_measured(tune, choices)
    outcome = grids.run(plan.reported(choices).request)
    if outcome.interrupted or outcome.left:
        return _stopped(plan, outcome)
    found = plan.reported(choices).results()
    machines += [machine for machine in found.machines if machine not in machines]
    if tune is None or choices is None:
        results = choose(plan.table, found.cases, found.missing)
    else:
        results = Results(plan.table, found.cases, warnings_of(tune, choices), found.missing, choices)
    return Trained(results, machines, (), outcome.exit_code)


def stages(plan: TableRun) -> list[TableStage]:
    """Both stages; while nothing is chosen, of each group of cases any one stands for the best."""
    if plan.table.tune is None or plan.tuning is None:
        return [plan.reported()]
    known = plan.planned
    if all(cell.finished for cell in grids.prepare(plan.tuning.request, rehearsed=False)[1]):
        known = plan.tuning.results().cases
    return [plan.tuning, plan.reported(choices_of(plan.table, known))]


def _cells(plan: TableRun) -> list[Cell]:
    return [cell for stage in stages(plan) for cell in grids.prepare(stage.request, rehearsed=False)[1]]


def _stopped(plan: TableRun, outcome: grids.Outcome) -> Trained:
    """Before all is done: what is left, of both stages."""
    if outcome.interrupted:
        return Trained(None, (), ["interrupted; the same command goes on"], outcome.exit_code)
    failed = [f"{run} is {state}" for run, state in outcome.states.items() if state in BAD and run not in outcome.left]
    return Trained(None, (), [*failed, grids.standing(_cells(plan), plan.limits.jobs)], outcome.exit_code)
