"""What each method would gain over psgd: the best policy of each on one cluster, and how many steps it may need.

Seconds are exact from profile and cluster, as the planner prices them. How many steps a method needs is not: it is a
range of papers and of small runs, or nothing is known. What is compared with the range is the *break-even*

    r* = psgd's seconds of a step / the method's    (times the batch, where it differs),

up to which the method is the first to reach psgd's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from commeff.cluster.codecs import source
from commeff.experiments.planning.drop_in import changed_lines
from commeff.experiments.planning.evidence import Evidence, evidence
from commeff.experiments.planning.plan import GIB, exposed, policy_words
from commeff.experiments.planning.question import SEARCHED, Question
from commeff.experiments.planning.worker_words import method_words
from commeff.planner import Model, Plan, Policy, WorkerMethod, search
from commeff.planner.search.space import divisors

TOKENS_PER_PARAMETER = 20  # of a run, unless told
HEADS = ("step s", "exposed s", "memory GiB", "hours", "wins up to", "steps", "verdict", "lines")
MARKS = {"assumed": " (assumed)", "measured": " (measured)", "published": "", "given": ""}


@dataclass(frozen=True)
class Gain:
    """A method beside psgd.

    Attributes
    ----------
    of : what is known of its steps.
    plan : its best policy; None where none fits.
    psgd : psgd's.
    psgd_hours : to the loss, of psgd.
    silence : why nothing is known of its steps here, or why there is no policy; "" where something is known.
    coding : how the seconds of encoding and decoding are known: measured, estimated or assumed; "" where there are
        none.
    """

    of: Evidence
    plan: Plan | None
    psgd: Plan
    psgd_hours: float
    silence: str
    coding: str = ""

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.of.name

    @property
    def unit(self) -> str:
        """What the range and the break-even count."""
        return "tokens" if self.of.batch > 1 else "steps"

    @property
    def break_even(self) -> float:
        """The most steps, in units of psgd's, with which it is no slower; tokens, where the batch differs. 0 where no
        policy fits.
        """
        return self.of.batch * self.psgd.step_seconds / self.plan.step_seconds if self.plan else 0.0

    @property
    def verdict(self) -> str:
        """The verdict on the range: "wins" below the break-even on every reading, "loses" on none, else "depends"."""
        if self.plan is self.psgd:
            return "baseline"
        if self.silence or self.of.range is None:
            return "unknown" if self.plan else "does not fit"
        least, most = self.of.range
        return "wins" if most < self.break_even else "loses" if least >= self.break_even else "depends"

    @property
    def hours(self) -> tuple[float, float] | None:
        """Modelled hours to psgd's loss: the least and the most."""
        if self.silence or self.of.range is None or not self.plan:
            return None
        least, most = (self.psgd_hours * steps / self.break_even for steps in self.of.range)
        return least, most

    @property
    def steps(self) -> str:
        """The range in words, with what is assumed or measured marked."""
        if self.silence or self.of.range is None:
            return "unknown"
        ends = [f"{end:g}{MARKS[kind]}" for end, kind in zip(self.of.range, self.of.kinds, strict=True)]
        return ends[0] if self.of.range[0] == self.of.range[1] else " to ".join(ends)

    def row(self) -> dict[str, Any]:
        """All figures, for CSV and JSON."""
        known = self.of.range if not self.silence else None
        words = {
            "method": self.name,
            "words": " ".join(method_words(self.of.way)),
            "steps_least": known[0] if known else None,
            "steps_most": known[1] if known else None,
            "steps_kinds": " to ".join(dict.fromkeys(self.of.kinds)) if known else None,
            "break_even": self.break_even or None,
            "verdict": self.verdict,
            "hours_least": self.hours[0] if self.hours else None,
            "hours_most": self.hours[1] if self.hours else None,
        }
        if not self.plan:
            return {**words, "why": self.silence}
        prediction = self.plan.prediction
        return {
            **words,
            "step_seconds": prediction.step_seconds,
            "exposed_seconds": exposed(prediction),
            "memory_bytes": prediction.memory_bytes,
            "memory_added_bytes": prediction.memory_bytes - self.psgd.prediction.memory_bytes,
            "policy": policy_words(self.plan.policy),
            "coding": self.coding,
            "changes": "\n".join(self.changes),
            "sources": self.of.why,
            "why": self.silence,
        }

    @property
    def changes(self) -> list[str]:
        """The diff of a training script."""
        return changed_lines(self.of.way, self.plan.policy) if self.plan and self.verdict != "baseline" else []


def gains(question: Question, methods: Sequence[Evidence] = ()) -> list[Gain]:
    """psgd, then every method with its best policy, the fastest to the loss first.

    Parameters
    ----------
    question : model, cluster and batch.
    methods : in the place of those of convergence.yaml; the cheaper psgds stay.

    Raises
    ------
    ValueError
        If psgd has no policy there, or one GPU; if a given method takes no number of workers there.
    """
    cluster, model, batch = question.cluster, question.model, question.global_batch
    if cluster.gpus < 2:
        raise ValueError(f"gpus must be at least 2 for a gain, got {cluster.gpus}: one GPU sends nothing; give gpus=16")
    fixed = {key: question.policy[key] for key in SEARCHED if key in question.policy}

    def best(way: WorkerMethod, times: int = 1) -> Plan:
        return search(model, cluster, times * batch, top=1, ways=[way], framework=question.framework, **fixed)[0]

    psgd = best(WorkerMethod())
    hours = tokens_of(question) / (batch * model.sequence) * psgd.step_seconds / 3600
    rows = evidence(model)
    compared = [row for row in rows[1:] if row.baseline or not methods]
    results = []
    for row in (*compared, *methods):
        plan, silence = None, ""
        try:
            plan = best(row.way, row.batch)
            row = row.among(plan.policy.workers)
            silence = row.silence(model.parameters, row.batch * batch * model.sequence)
        except ValueError as error:
            if row in methods and (refusal := _refusal(question, row.way)):
                raise ValueError(refusal) from None
            silence = " ".join(str(error).split())
        results.append(Gain(row, plan, psgd, hours, silence, _coding(question, row.way, plan)))
    results.sort(key=lambda gain: (gain.hours or (math.inf,))[-1])
    return [Gain(rows[0], psgd, psgd, hours, ""), *results]


def _refusal(question: Question, way: WorkerMethod) -> str | None:
    """Why the method takes no number of workers that the cluster has, if it takes none."""
    from commeff.planner.worker_profile import WorkerProfile  # with torch

    precision, gpus = question.policy.get("precision", Policy().precision), question.cluster.gpus
    refusals = [WorkerProfile.of(way, question.model, precision, n).refusal for n in divisors(gpus) if n > 1]
    return refusals[0] if all(refusals) else None


def _coding(question: Question, way: WorkerMethod, plan: Plan | None) -> str:
    if plan is None or plan.policy.workers == 1:
        return ""
    from commeff.planner.worker_profile import WorkerProfile  # with torch

    codecs = WorkerProfile.of(way, question.model, plan.policy.precision, plan.policy.workers).codecs
    return ", ".join(dict.fromkeys(source(question.cluster.gpu, codec) for codec in codecs))


def tokens_of(question: Question) -> float:
    """The tokens of psgd's run: as given, or 20 a parameter."""
    return question.tokens or TOKENS_PER_PARAMETER * float(question.model.parameters)


def given_methods(ways: Sequence[WorkerMethod], steps: tuple[float, float] | None, model: Model) -> list[Evidence]:
    """The methods of a command line, each once, with what is known of them, or with the range that was given.

    Parameters
    ----------
    ways : the methods, called by their words.
    steps : the range that was given.
    model : that they train.
    """
    known = {row.name: row for row in evidence(model)}
    rows = {}
    for way in ways:
        if way.is_plain:
            raise ValueError("methods of a gain must be others than psgd, got psgd: it is what all are compared with")
        name = way.name
        row = known.get(name, Evidence(name, way))
        rows[name] = Evidence(name, way, steps, ("given", "given"), "as given") if steps else row
    return [*rows.values()]


def conclusion(rows: Sequence[Gain], where: str) -> tuple[str, Gain]:
    """What the rows say, in one sentence, and the row that it is of."""
    psgd, *others = rows
    wins, depends, loses, unknown = (
        [row for row in others if row.verdict == verdict] for verdict in ("wins", "depends", "loses", "unknown")
    )
    methods = [row for row in others if row.plan and not row.of.baseline]
    if methods and all(row in unknown for row in methods):
        best = max(methods, key=lambda gain: gain.break_even)
        cheaper = f"{wins[0].name} wins, but " if wins else ""
        words = f"{cheaper}no other method than psgd has a verdict: {best.name} would win with at most"
        return f"On {where}, {words} {floor(best.break_even)} times psgd's steps, but {best.silence}.", best
    if not wins + depends + loses:
        return f"On {where}, psgd stays: no method has a policy there.", psgd
    if wins:
        best = wins[0]  # the fewest hours at its most steps
        times = dict.fromkeys(floor(best.break_even / steps) for steps in reversed(best.of.range or ()))
        words = f"{best.name} reaches psgd's loss {' to '.join(times)} times as fast as psgd: it"
    elif depends:
        best = max(depends, key=lambda gain: gain.break_even / (gain.of.range or (1,))[0])
        words = f"nothing wins on every reading of its sources: {best.name}"
    else:
        best = max(loses, key=lambda gain: gain.break_even)
        rest = f"; nothing is known of {'; '.join(row.name for row in unknown)}" if unknown else ""
        words = f"psgd stays: even {best.name} would win only with at most"
        return f"On {where}, {words} {floor(best.break_even)} times its {best.unit}{rest}.", best
    return (
        f"On {where}, {words} wins if it needs at most {floor(best.break_even)} times psgd's {best.unit}, and its "
        f"sources say {best.steps}.",
        best,
    )


def floor(number: float) -> str:
    """Three digits, never more than the number.

    >>> floor(1.0999), floor(12.39), floor(123.9)
    ('1.09', '12.3', '123')
    """
    unit = 10.0 ** (math.floor(math.log10(number)) - 2) if number > 0 else 1.0
    return f"{math.floor(number / unit) * unit:.3g}"


def _digits(hours: float) -> str:
    """Three digits, and no powers of ten.

    >>> _digits(75.39), _digits(1041.2)
    ('75.4', '1,041')
    """
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def table_rows(rows: Sequence[Gain]) -> list[dict[str, str]]:
    """A line for each method, as one reads it."""
    lines = []
    for gain in rows:
        if gain.plan is None:
            lines.append({"method": gain.name} | dict.fromkeys(HEADS, "-") | {"verdict": gain.verdict})
            continue
        row, hours = gain.row(), gain.hours
        cells = (
            f"{row['step_seconds']:.3g}",
            f"{row['exposed_seconds']:.3g}",
            f"{row['memory_bytes'] / GIB:.1f}" if gain.plan is gain.psgd else f"{row['memory_added_bytes'] / GIB:+.1f}",
            "-" if hours is None else " to ".join(dict.fromkeys(map(_digits, hours))),
            "-" if gain.verdict == "baseline" else floor(gain.break_even),
            gain.steps,
            gain.verdict,
            str(sum(line.startswith("+") for line in gain.changes)),
        )
        lines.append({"method": gain.name, **dict(zip(HEADS, cells, strict=True))})
    return lines
