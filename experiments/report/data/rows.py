"""What tables say of one variant: final numbers, differences, the way to the target; and which may be called good."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from commeff.experiments.report.data.quantities import INNER, quantity
from commeff.experiments.report.data.statistics import Estimate, best, estimate, higher_is_better, paired
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.run.store import FINISHED

FINALS = (
    "val_accuracy",
    "val_loss",
    "test_accuracy",
    "test_loss",
    "local_val_accuracy",
    "local_val_loss",
    "train_loss",
    "payload_bytes",
    "wire_bytes",
    "seconds",
    "simulated_seconds",
    "consensus_distance",
)
LOSSES = tuple(name for name in FINALS if name.endswith("loss"))
INSIDE = tuple(f"{axis}_{what}" for axis in INNER for what in ("bytes", "exposed_seconds"))
WAYS = ("step", "epoch", "wire_bytes", "seconds", "simulated_seconds")  # what it may take to get to the target
DENSE = {"method": "psgd"}
NAMED = 6  # variants that one panel can name
CHOICES = ("method", "compressor", "topology", "optimizer", "schedule")  # what a method is, with all below them
WIDTHS = {"float64": 64, "float32": 32}  # bits of a number that psgd sends


@dataclass(frozen=True)
class Target:
    """A level of a metric, and where it comes from."""

    metric: str
    level: float
    origin: str

    @property
    def shown(self) -> str:
        """The level as a reader meets it."""
        of = quantity(self.metric)
        return f"{self.level * of.scale:.4g}" + (" %" if of.unit == "%" else "")

    @property
    def words(self) -> str:
        """The metric and its level."""
        return f"{quantity(self.metric).words} {self.shown}"


@dataclass(frozen=True)
class Reached:
    """How many seeds of those that ended or failed got to the target, and at what cost; no `costs` unless all did."""

    n: int
    of: int
    costs: Mapping[str, Estimate]

    @property
    def short(self) -> str:
        """The words that stand in place of the cost."""
        return shortfall(self.n, self.of)


def shortfall(n: int, of: int) -> str:
    """How many of the seeds got to the target, where not all did: a mean over those that did would flatter.

    >>> shortfall(10, 10), shortfall(3, 10), shortfall(0, 10)
    ('', '3 of 10 reached', 'not reached')
    """
    return "" if n == of else f"{n} of {of} reached" if n else "not reached"


@dataclass(frozen=True, eq=False)
class TableRow:
    """What the main table says of one variant."""

    variant: Variant
    finals: Mapping[str, Estimate]
    difference: Estimate | None  # from the baseline, seed by seed
    from_best: Estimate | None
    baseline: Variant | None  # of several baselines (one a setting of the data, say) the one most like it
    saving: float | None  # the baseline's bytes on the wire over ours
    reached: Reached | None


def table_row(
    variant: Variant, metric: str, bases: Sequence[Variant], champion: Variant | None, goal: Target | None
) -> TableRow:
    """What is said of a variant beside the baseline on its task that shares most labels with it."""
    fitting = [base for base in bases if base.task == variant.task]
    base = max(fitting, key=lambda base: len(base.labels.items() & variant.labels.items()), default=None)
    names = dict.fromkeys((*FINALS, *INSIDE, metric))
    finals = {name: final for name in names if (final := variant.final(name)) is not None}
    base_bytes = base.final("wire_bytes") if base else None
    wire_bytes = finals.get("wire_bytes")
    return TableRow(
        variant,
        finals,
        _paired(variant, base, metric),
        _paired(variant, champion, metric),
        base,
        base_bytes.mean / wire_bytes.mean if base_bytes and wire_bytes and wire_bytes.mean > 0 else None,
        _reached(variant, goal) if goal else None,
    )


def _paired(variant: Variant, other: Variant | None, metric: str) -> Estimate | None:
    if other is None or other is variant:
        return None
    return paired(variant.finals(metric), other.finals(metric), log=metric in variant.logs)


def _reached(variant: Variant, goal: Target) -> Reached:
    ended = [run for run in variant.runs if run.record.state in (*FINISHED, "failed")]
    firsts = [run.record.reached(goal.metric, goal.level) for run in ended]
    table = pd.DataFrame([first for first in firsts if first is not None])
    ways = [way for way in WAYS if way in table and len(table) == len(ended)]
    values = {way: value for way in ways if (value := estimate(table[way])) and value.n == len(ended)}
    return Reached(len(table), len(ended), values)


def half_dense(rows: tuple[TableRow, ...]) -> dict[str, float | None]:
    """What dense psgd would send with 16-bit numbers, by the columns of the main table: counted, not run, so without
    any claim on accuracy. {} where it did not run, or sent more with some settings.
    """
    dense = [row for row in rows if row.variant.has(DENSE) and {"payload_bytes", "wire_bytes"} <= row.finals.keys()]
    sent = {(row.finals["payload_bytes"].mean, row.finals["wire_bytes"].mean) for row in dense}
    bits = WIDTHS.get(dense[0].variant.runs[0].setting("task.dtype") or "float32") if len(sent) == 1 else None
    if bits is None:
        return {}
    ((payload, wire),) = sent
    saving = dense[0].saving and dense[0].saving * bits / 16
    return {"payload_bytes": payload * 16 / bits, "wire_bytes": wire * 16 / bits, "saving": saving}


def nameable(variants: Iterable[Variant]) -> list[Variant]:
    """Those that may be called good: without doubts; all seeds done, if that holds for any."""
    good = [variant for variant in variants if not variant.chosen.doubts]
    return [variant for variant in good if variant.chosen.complete] or good


def leader(variants: Iterable[Variant], name: str) -> Variant | None:
    """The variant with the best mean of a quantity, among those that may be called good; the first of equals."""
    means = {variant: final.mean for variant in variants if (final := variant.final(name))}
    good = nameable(means)
    return good[best([means[variant] for variant in good], name)] if good else None


def prominent(variants: Sequence[Variant], bases: Sequence[Variant], metric: str) -> tuple[int, ...]:
    """Kinds of the variants that a figure names: all, or of more than `NAMED` the baseline and the best of others.

    Each method comes once before any comes twice. Of its variants those run as the baseline was (its workers, its
    straggler) come before others, those in doubt last. They are chosen on the first task, and are the same on all.
    """
    first = [variant for variant in variants if variant.task == variants[0].task]
    base = next((base for base in bases if base in first), None)
    sign = -1.0 if higher_is_better(metric) else 1.0

    def rank(variant: Variant) -> tuple[bool, int, float]:
        differing = variant.labels.items() ^ base.labels.items() if base else set()
        changes = {key for key, _ in differing if key.split(".")[0] not in CHOICES}
        final = variant.final(metric)
        return bool(variant.chosen.doubts), len(changes), sign * final.mean if final else math.inf

    ordered = sorted(first, key=lambda variant: (variant is not base, *rank(variant)))
    methods = [variant.runs[0].setting("method") for variant in ordered]
    once = [variant for i, variant in enumerate(ordered) if methods[i] not in methods[:i]]
    chosen = [*once, *(variant for variant in ordered if variant not in once)][:NAMED]
    return tuple(variant.kind for variant in sorted(chosen, key=lambda variant: (variant is not base, variant.number)))


def differs_from_best(row: TableRow) -> bool | None:
    """Does a row differ from the best by more than its paired interval? None where seeds are too few to say."""
    return None if row.from_best is None or row.from_best.half is None else row.from_best.tells
