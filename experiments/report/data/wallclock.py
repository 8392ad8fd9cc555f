"""Modelled wall-clock of the runs of a report on described clusters. Never measured.

A run's modelled seconds are those of its own method, compressor, topology, workers and steps: `commeff.profile` says
what it sends, `computing` how long a worker computes, and `commeff.cluster.modelled` how long sending takes and what of
it computing hides; encoding and decoding take what `commeff.cluster.codecs` says. Workers are equally fast, and nobody
else uses the network. Of a run over a mesh, `commeff.planner.predict` says what a step on its own mesh takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from commeff.cluster.billing import Billing
from commeff.cluster.modelled import Modelled, modelled, modelled_present
from commeff.cluster.places import EFFICIENCY, Place, read_places
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.experiments.config import build
from commeff.experiments.config.build import participation
from commeff.experiments.config.meshes import mesh_size
from commeff.experiments.config.schema import over_mesh
from commeff.experiments.config.settings import clocked, participates
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.computing import work
from commeff.experiments.report.data.cross_over import cross_over, in_words
from commeff.experiments.report.data.rows import TableRow, Target, shortfall
from commeff.experiments.report.data.statistics import Estimate, estimate, paired
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.run.store import FINISHED
from commeff.experiments.tasks.work import Work
from commeff.profiling import Attended, Profile, attended, profile

INFINITE = 1e30  # bytes/s, with which latency alone is left
PREDICTED = "of its mesh, by the planner"
COMPUTING = ("compute", "recompute", "optimizer")  # of a predicted step; the rest is exposed


@dataclass(frozen=True, eq=False)
class VariantSeconds:
    """A variant on a place.

    Attributes
    ----------
    reason : why there are no modelled seconds; "" if there are.
    config : of one of its runs.
    timelines : of its drawn runs and of those that ended, by the name of the run.
    steps_to_target, seconds_to_target : by seed, of the runs that reached the target.
    ended : how many runs ended, and so could have reached it.
    speed_up : over the baseline, in seconds to the target; None unless all seeds of both reached it.
    loses : at which bandwidths it is slower than the baseline, in words.
    note : what the profile says of its exactness.
    """

    reason: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    timelines: Mapping[str, Modelled] = field(default_factory=dict)
    steps_to_target: Mapping[int, int] = field(default_factory=dict)
    seconds_to_target: Mapping[int, float] = field(default_factory=dict)
    ended: int = 0
    speed_up: Estimate | None = None
    loses: str = ""
    note: str = ""

    @property
    def timeline(self) -> Modelled | None:
        """The timeline of its first run, for the parts of a step."""
        return next(iter(self.timelines.values()), None)

    @property
    def to_target(self) -> Estimate | None:
        """Mean and interval of the modelled seconds to the target; None unless all seeds reached it."""
        return None if self.short else estimate(self.seconds_to_target.values())

    @property
    def short(self) -> str:
        """How many of the seeds reached the target, where not all did; "" if all did."""
        return shortfall(len(self.seconds_to_target), self.ended)


@dataclass(frozen=True, eq=False)
class Wallclock:
    """All variants of a report on one place, by their numbers; `work` is what they compute, where it is one thing."""

    place: Place
    rows: Mapping[int, VariantSeconds]
    work: Work | None
    latency_share: float | None  # of the baseline's communication, what would be left on links without bounds

    def of(self, variant: Variant) -> VariantSeconds:
        """The row of a variant."""
        return self.rows[variant.number]


class Modeller:
    """Turns configurations into timelines; profiles are made once for each different configuration.

    Parameters
    ----------
    layout : of another model than the run's, whose messages are sent in place of its own; None: its own.
    """

    def __init__(self, layout: Layout | None = None) -> None:
        self._layout = layout
        self._profiles: dict[str, tuple[Strategy, Profile]] = {}
        self._attendances: dict[str, Attended] = {}

    def profile(self, config: Mapping[str, Any]) -> tuple[Strategy, Profile]:
        """The method of a run, and what it sends."""
        key = json.dumps({name: value for name, value in config.items() if name not in ("steps", "nproc")}, default=str)
        if key not in self._profiles:
            strategy, layout = build.strategy(config), self._layout or work(config).layout
            self._profiles[key] = strategy, profile(strategy, layout, config["workers"], **_settings(config))
        return self._profiles[key]

    def timeline(self, config: Mapping[str, Any], place: Place, steps: int) -> Modelled:
        """The timeline of some steps of a run on a place.

        Raises
        ------
        ValueError
            If the run's parts cannot be made, profiled or priced.
        """
        if clocked(config):
            raise ValueError("seconds are modelled of runs without speeds: these have a clock of their own")
        if over_mesh(config):
            return self._predicted(config, place, steps)
        strategy, sent = self.profile(config)
        given, gpu, cluster = place.step_seconds, place.cluster.gpu, place.holding(config["workers"])
        compute = strategy.accumulate * (work(config).seconds(gpu) / place.efficiency if given is None else given)
        if participates(config):
            return modelled_present(self._attended(config, steps), cluster, steps=steps, compute=compute)
        return modelled(sent, cluster, steps=steps, compute=compute)

    def _predicted(self, config: Mapping[str, Any], place: Place, steps: int) -> Modelled:
        """The timeline of a run over a mesh: each step takes what the planner says of the mean one."""
        if participates(config):
            raise ValueError("participation must be left out over a mesh for modelled seconds: they are of all workers")
        if self._layout is not None or place.step_seconds is not None or place.efficiency != EFFICIENCY:
            raise ValueError(
                "step_seconds, efficiency and parameters must be left out for seconds of a run over a mesh: "
                "the planner counts what each of its GPUs computes"
            )
        from commeff.experiments.config.policies import as_sent, planned  # with the planner
        from commeff.planner import predict

        model, policy, batch = planned(config)
        policy = as_sent(policy, config["micro_batches"])
        step = predict(model, policy, place.cluster.with_gpus(policy.gpus), global_batch=batch)
        seconds = step.breakdown["seconds"]
        exposed = {part: np.full(steps, each) for part, each in seconds.items() if each > 0 and part not in COMPUTING}
        computing = np.full((steps, 1), sum(seconds[part] for part in COMPUTING))
        ends = step.step_seconds * np.arange(1, steps + 1, dtype=np.float64)[:, None]
        return Modelled(exposed, exposed, computing, ends)

    def _attended(self, config: Mapping[str, Any], steps: int) -> Attended:
        """What the workers that are present send in a run."""
        key = json.dumps({**config, "steps": steps}, default=str)
        if key not in self._attendances:
            (strategy, sent), settings, n = self.profile(config), _settings(config), config["workers"]
            layout = self._layout or work(config).layout
            x = torch.empty(n, layout.d, dtype=settings["dtype"], device="meta")
            strategy.start(x, layout, Communicator(n))
            who = participation(config, strategy)
            assert who is not None
            self._attendances[key] = attended(strategy, layout, sent, who.present, steps, **settings)
        return self._attendances[key]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a profile depends on besides method, model and workers."""
    return {"seed": config.get("seed", 0), "collective": config.get("collective", "auto"), "dtype": work(config).dtype}


def places_of(
    analysis: Analysis,
    clusters: Sequence[str] = (),
    step_seconds: float | None = None,
    efficiency: float | None = None,
) -> list[Place]:
    """The clusters that were named, or else the grid's."""
    named = [{"cluster": name} for name in clusters] or analysis.grid.clusters
    general = {"step_seconds": step_seconds, "efficiency": efficiency}
    options = {key: value for key, value in general.items() if value is not None}
    if options and not named:
        raise ValueError(f"{' and '.join(options)} must be of a cluster; name one with --cluster")
    for entry, key in ((entry, key) for entry in named for key in options if key in entry):
        raise ValueError(
            f"{key} must be left out where the grid's clusters say theirs, got {options[key]} beside {entry[key]} of "
            f"{entry['cluster']}; name the clusters with --cluster"
        )
    return read_places([{**entry, **options} for entry in named])


def wallclock(analysis: Analysis, place: Place, modeller: Modeller) -> Wallclock:
    """Every variant of a report on one place."""
    rows = {row.variant.number: _modelled(row, place, modeller, analysis.targets) for row in analysis.rows}

    @cache
    def linked(number: int, bandwidth: float) -> Modelled:
        """A variant's steps to the target with links of another bandwidth."""
        config, steps = rows[number].config, max(rows[number].steps_to_target.values())
        return modeller.timeline(config, place.with_link(bandwidth, _gpus(config)), steps)

    compared = {row.variant.number: _compared(row, rows, linked) for row in analysis.rows}
    base = rows[analysis.baselines[0].number] if analysis.baselines else None
    jobs = [work(row.config) for row in rows.values() if row.timelines and not over_mesh(row.config)]
    same = jobs[0] if len({job.flops for job in jobs}) == 1 else None
    return Wallclock(place, compared, same, _latency_share(base, place, modeller))


def _gpus(config: Mapping[str, Any]) -> int:
    """A worker is on one, unless it lies on several.

    >>> _gpus({"workers": 2, "nproc": 4, "mesh": {"worker": 2, "tensor": 2}}), _gpus({"workers": 2, "nproc": 1})
    (4, 2)
    """
    return max(config["workers"], mesh_size(config) if over_mesh(config) else 1)


def _modelled(row: TableRow, place: Place, modeller: Modeller, targets: Mapping[str, Target]) -> VariantSeconds:
    variant, target = row.variant, targets.get(row.variant.task)
    described = [run for run in variant.runs if run.record.config and not run.record.curve.empty]
    ended = [run for run in described if run.record.state in FINISHED]
    runs = {run.cell.run: run for run in (*ended, *variant.drawn) if run.record.config}
    if not runs:
        return VariantSeconds("no run of it has measured anything yet")
    try:
        timelines = {
            name: modeller.timeline(run.record.parts, place, int(run.record.curve["step"].max()))
            for name, run in runs.items()
        }
        config = next(iter(runs.values())).record.parts
        note = PREDICTED if over_mesh(config) else modeller.profile(config)[1].note
    except Exception as error:  # a plug-in's own code runs here
        return VariantSeconds(" ".join(str(error).split()) or type(error).__name__)
    reached = [(run, run.record.reached(target.metric, target.level)) for run in ended if target]
    firsts = {run.seed: math.ceil(first["step"]) for run, first in reached if first is not None}
    seconds = {run.seed: timelines[run.cell.run].seconds(firsts[run.seed]) for run in ended if run.seed in firsts}
    return VariantSeconds("", config, timelines, firsts, seconds, row.reached.of if row.reached else 0, note=note)


def _compared(
    row: TableRow, rows: Mapping[int, VariantSeconds], linked: Callable[[int, float], Modelled]
) -> VariantSeconds:
    """A variant with its speed-up over the baseline, and where it loses."""
    variant = rows[row.variant.number]
    if row.baseline is None or row.baseline is row.variant:
        return variant
    numbers, baseline = (row.variant.number, row.baseline.number), rows[row.baseline.number]
    speed_up = paired(baseline.seconds_to_target, variant.seconds_to_target, log=True)
    two_kinds = over_mesh(baseline.config) != over_mesh(variant.config)  # of modelled seconds, which do not compare
    if baseline.short or variant.short or speed_up is None or two_kinds:
        return variant

    def slowness(bandwidth: float) -> float:
        """The geometric mean of the variant's seconds over the baseline's, less 1, with links of this bandwidth."""
        ours, theirs = (
            {seed: linked(number, bandwidth).seconds(step) for seed, step in rows[number].steps_to_target.items()}
            for number in numbers
        )
        ratio = paired(ours, theirs, log=True)
        return ratio.mean - 1.0 if ratio else 0.0

    return replace(variant, speed_up=speed_up, loses=in_words(cross_over(slowness)))


def _latency_share(base: VariantSeconds | None, place: Place, modeller: Modeller) -> float | None:
    if base is None or not base.timelines or over_mesh(base.config):
        return None
    n, (_, traffic) = base.config["workers"], modeller.profile(base.config)
    steps = range(traffic.first, traffic.first + traffic.period)
    sums = []
    for cluster in (place, place.with_link(INFINITE, n)):
        bill = Billing(cluster.holding(n), n)
        sums.append(sum(bill.seconds(operation) for step in steps for operation in traffic.operations(step)))
    return sums[1] / sums[0] if sums[0] > 0 else None
