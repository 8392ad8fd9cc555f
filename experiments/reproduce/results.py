"""What runs and measurements record, by name, and what every case of a table came to: its observations by seed.

The names are known before anything is imported that could record them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import built_in
from commeff.experiments.report.data.quantities import INNER
from commeff.experiments.reproduce.cases import Case, listing
from commeff.experiments.reproduce.reading import TableError
from commeff.require import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from commeff.experiments.reproduce.table import PublishedTable
    from commeff.experiments.reproduce.tuning import TunedChoice

Metric = Callable[[Mapping[str, Any]], Any]
SECONDS = ("modelled_seconds", "modelled_hours")  # on the table's cluster
BYTES = ("sent_bytes", "received_bytes")  # by a worker
FINALS = (  # of every run, or of some, beside what its task measures
    *("step", "steps", "workers", "lr", "start_loss", "parameter_norm", "gradient_norm"),
    *("exposed_seconds", "simulated_seconds", "events", "held_bytes", "peak_memory_bytes", "mfu", *SECONDS, *BYTES),
    *(f"{axis}_{what}" for axis in INNER for what in ("bytes", "exposed_seconds")),
)
TESTED = ("test_loss", "test_accuracy")  # of tasks that hold samples back
TRAINING = "training"
MEASURED: Mapping[str, tuple[str, ...]] = {
    "consensus": ("rho", "gap", "degree", "rate", "exact_after"),
    "compression": ("error", "heavy_error", "bias", "mean", "up", "bits", "bound", "omega", "delta"),
    "gossip": ("rate", "drift", "worst", "per_digit", "bytes_per_digit"),
    "low_rank": ("error", "best", "bound", "heavy_error", "heavy_best", "heavy_bound"),
    "modelled": (*SECONDS, "step_seconds", "communication_ms", "exposed_ms"),
}
COSTS = ("seconds", "exposed_seconds", "peak_memory_bytes", "mfu", "payload_bytes", "wire_bytes")  # may differ


def tasks_of(table: PublishedTable) -> list[str]:
    """The tasks of the cases, as the file names them."""
    return sorted({str(case.settings.get("task", "digits")) for case in (*table.full_cases, *table.cases)})


def recorded(table: PublishedTable) -> tuple[list[str], bool]:
    """The names of numbers that cases have, and whether these are all: a task that is not ours may record any."""
    if table.measure in MEASURED:
        return [*MEASURED[table.measure]], True
    from commeff.experiments.grid.plan.expand import OTHERS, measured_by_name

    tasks = tasks_of(table)
    every = {*tasks} <= {*built_in("task")}
    metrics = dict.fromkeys(name for task in (tasks if every else built_in("task")) for name in measured_by_name(task))
    tested = () if {*tasks} <= OTHERS.keys() else TESTED
    return [*metrics, *tested, *(f"local_{name}" for name in metrics), *FINALS], every


def check_metric(table: PublishedTable, name: str) -> None:
    """Refuse a metric that no case has; a task that is not ours may record anything but what looks like a slip."""
    if name in table.metrics:
        return
    names, every = table.recorded
    known = [*names, *table.derived]
    near = did_you_mean(name, sorted(known))
    if name not in known and (every or near):
        who = f"no run of {' or '.join(tasks_of(table))} measures" if table.measure == TRAINING else "nothing here has"
        raise TableError(f"{who} {name!r}{near or '; there are ' + ', '.join(known)}")
    table.metrics.add(name)


def check_derived(table: PublishedTable) -> None:
    """Refuse metrics that are functions of what no case has, or that have the name of another."""

    class Numbers(dict[str, float]):
        """The metrics of a run before there is one."""

        def __missing__(self, name: str) -> float:
            check_metric(table, name)
            return math.nan

    for name, function in table.derived.items():
        if name in table.recorded[0]:
            raise TableError(f"metrics: {name} has the name of a metric that is recorded; call it otherwise")
        with suppress(ArithmeticError, ValueError):
            function(Numbers())


def derive(function: Metric, numbers: Mapping[str, float]) -> float:
    """A metric that is a function of recorded ones: NaN where one is missing, or where these have no such number.

    >>> derive(lambda m: m["a"] / m["b"], {"a": 1.0, "b": 4.0}), derive(lambda m: 1 / m["a"], {"a": 0.0})
    (0.25, nan)
    """
    try:
        value = function(numbers)
    except (KeyError, ArithmeticError, ValueError):
        return math.nan
    return math.nan if isinstance(value, complex) else float(value)


@dataclass(frozen=True, eq=False)
class Observation:
    """A case with one seed: numbers at the end, and the curve over steps, which may be empty.

    `comparable`: whether the run has what the table's printed numbers are of; `machine`: what its page says of it.
    """

    finals: Mapping[str, float]
    curve: pd.DataFrame = field(default_factory=lambda: _frame(), repr=False)
    state: str = "done"
    comparable: bool = True
    machine: Mapping[str, str] = field(default_factory=dict)

    def final(self, metric: str) -> float:
        """The number at the end."""
        return self.finals.get(metric, math.nan)

    def column(self, metric: str) -> pd.DataFrame:
        """The evaluations of a metric, with their steps."""
        return self.curve.reindex(columns=["step", metric]).dropna()

    def same(self, other: Observation, metric: str | None) -> bool:
        """Whether all recorded numbers, or one metric at the end, are those of another."""
        if metric is not None:
            return metric in self.finals and self.finals[metric] == other.finals.get(metric)
        columns = [name for name in self.curve if name not in COSTS and name in other.curve]
        one, two = (run.curve[columns].reset_index(drop=True) for run in (self, other))
        return not one.empty and one.equals(two)

    def with_metrics(self, metrics: Mapping[str, Metric]) -> Observation:
        """With metrics that are functions of recorded ones, at the end and along the curve.

        >>> import pandas as pd
        >>> both = Observation({"a": 3.0, "b": 4.0}, pd.DataFrame({"step": [1], "a": [6.0], "b": [8.0]}))
        >>> found = both.with_metrics({"c": lambda m: (m["a"] ** 2 + m["b"] ** 2) ** 0.5})
        >>> found.final("c"), list(found.curve["c"])
        (5.0, [10.0])
        """
        finals, curve = dict(self.finals), self.curve.copy() if metrics else self.curve
        for name, function in metrics.items():
            finals[name] = derive(function, finals)
            if len(curve):
                curve[name] = [derive(function, row) for row in curve.to_dict("records")]
        return replace(self, finals=finals, curve=curve)


def _frame() -> pd.DataFrame:
    import pandas as pd  # slow, and not needed before anything has run

    return pd.DataFrame()


@dataclass(frozen=True, eq=False)
class CaseResult:
    """A case and what its run of each seed measured; a seed without one has not been run, or its run failed."""

    case: Case
    runs: Mapping[int, Observation]
    labels: Mapping[str, str] = field(default_factory=dict)  # those that differ among cases, functions worked out
    settings: Mapping[str, str] = field(default_factory=dict)  # of its runs, likewise

    @property
    def words(self) -> str:
        """The case in words."""
        return f"{self.case.name} {listing(self.labels)}".strip()

    def label(self, key: str) -> str | None:
        """A label of the case, functions worked out."""
        return self.case.name if key == "name" else self.labels.get(self.case.key(key))


@dataclass(frozen=True, eq=False)
class Results:
    """All cases of a table, those that were not chosen left out.

    Attributes
    ----------
    table, cases : whose results.
    choices : of the tuned label.
    missing : a line for each run that is not finished.
    """

    table: PublishedTable
    cases: Sequence[CaseResult]
    choices: Sequence[TunedChoice] = ()
    missing: Sequence[str] = ()

    @property
    def machines(self) -> list[Mapping[str, str]]:
        """The machine of each run, those that were tried included."""
        every = [*self.cases, *(case for choice in self.choices for case in choice.tried)]
        return [run.machine for case in every for run in case.runs.values() if run.machine]

    @property
    def labels(self) -> list[str]:
        """The labels that differ among cases, and that some case here has."""
        return [key for key in self.table.swept if any(key in result.labels for result in self.cases)]

    @property
    def remarks(self) -> list[str]:
        """A line for each choice that may not be the best, and for each run that is missing."""
        return [*(line for choice in self.choices for line in choice.warnings), *self.missing]

    def named(self, name: str, where: Mapping[str, str]) -> list[CaseResult]:
        """The cases of a variant that have these labels, as far as the variant has them at all."""
        return [result for result in self.cases if result.case.name == name and result.case.has(where)]

    def one(self, name: str, where: Mapping[str, str]) -> CaseResult | None:
        """The only such case; None if this scale has none."""
        cases = self.named(name, where)
        if len(cases) > 1:
            keys = [k for k in self.table.swept if len({f.case.label(k) for f in cases}) > 1]
            first = f"{keys[0].rpartition('.')[2]}={cases[0].case.label(keys[0])!r}"
            raise TableError(
                f"{name} is {len(cases)} cases, which differ in {', '.join(keys)}: go through r.each({keys[0]!r}), or "
                f"write {name}({first})"
            )
        return cases[0] if cases else None

    def like(self, result: CaseResult, name: str) -> CaseResult | None:
        """The case of a variant whose labels are those of `result`, as far as its own cases differ in them."""
        cases = [result.case for result in self.named(name, {})]
        keys = [key for key in self.table.swept if len({case.label(key) for case in cases}) > 1]
        return self.one(name, {key: value for key in keys if (value := result.case.label(key)) is not None})


@dataclass(frozen=True)
class Reproduced:
    """What came out: the page, a line for each verdict, the exit code, and what else went wrong.

    There is no page before there are `results`, which are None where not all runs are there; the lines say why.
    """

    page: Path | None = None
    lines: Sequence[str] = ()
    exit_code: int = 0
    faults: Sequence[str] = ()
    results: Results | None = None
