"""Local steps: any torch optimizer on all hosted rows at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from commeff.compressors import Layout
from commeff.compressors.layout import Field
from commeff.core.addresses import Address, Swap
from commeff.core.components import LocalStep
from commeff.core.factories import ELEMENTWISE, OptimizerFactory, Scheduled, equal_rates, grouping, sample_of, unfused
from commeff.core.state import Timetable, Traits
from commeff.optimizers.curvature import Curvature
from commeff.optimizers.rule import Rule
from commeff.optimizers.schedule_free import ScheduleFree
from commeff.optimizers.sophia import Sophia

__all__ = ["Local", "OptimizerFactory"]


JOINED = 1 << 22  # columns


def _column_runs(fields: Sequence[Field], most: float) -> list[Field]:
    """Neighbouring tensors of one parameter group, joined to at most so many columns: temporaries are as long."""
    runs: list[Field] = []
    for field in fields:
        joins = runs and runs[-1].group == field.group and field.stop - runs[-1].start <= most
        first = runs.pop().start if joins else field.start
        runs.append(field._replace(start=first, shape=(field.stop - first,)))
    return runs


class Local(LocalStep):
    """x -> x - lr * direction(gradient), by any torch optimizer.

    Elementwise optimizers run as one object over the (w, d) tensor (parameter groups as column groups); others (Muon,
    Adafactor) as one object a row over the layout's tensors; so does a run once a worker has been idle, since an idle
    row neither moves nor ages. Learning rates are moved by `scheduled` or through `options`: a step whose optimizer's
    was moved otherwise is refused. Memory: the optimizer's state, one row a worker.

    Parameters
    ----------
    optimizer : callable
        A factory from a parameter list to a `torch.optim.Optimizer`, such as `functools.partial(torch.optim.SGD,
        lr=0.1)`.

    Attributes
    ----------
    lr, last_lr : float
        The learning rates of the step to come and of the last step taken.
    kind : str
        The optimizer's name.
    curvature : Curvature or None
        What the optimizer asks of the loss beside gradients (Sophia).
    evaluates_elsewhere : bool
        Whether the result is another point than the rows, where gradients are taken (schedule-free).
    has_one_rate : bool
        Whether memories are in units of it, so that parameter groups must not differ.
    holds_rate : bool
        Whether schedules stay where they are after the call to come, which is not the last of its step.
    """

    rows = ("state",)
    shared = ("settings", "last_lr")

    def __init__(self, optimizer: OptimizerFactory) -> None:
        self._optimizer = optimizer
        if isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer must be a factory, got a {type(optimizer).__name__} object, which belongs to one model: "
                "give a factory, such as functools.partial(torch.optim.SGD, lr=0.1)"
            )
        sample = sample_of(optimizer)
        if isinstance(sample, torch.optim.SparseAdam):
            raise ValueError(
                "optimizer must take dense gradients, got SparseAdam: what workers average has no gaps; choose Adam"
            )
        if isinstance(sample, torch.optim.LBFGS):
            raise ValueError(
                "optimizer must take one gradient a step, got LBFGS: it evaluates the loss by itself; choose another"
            )
        self.kind = type(sample).__name__
        self._elementwise = sample.elementwise if isinstance(sample, Rule) else type(sample) in ELEMENTWISE
        self.evaluates_elsewhere = isinstance(sample, ScheduleFree)
        self.curvature: Curvature | None = None
        if isinstance(sample, Sophia):
            self.curvature = Curvature(sample.kind, sample.param_groups[0]["interval"])
        self.has_one_rate = self.holds_rate = False
        self._fused = bool(sample.defaults.get("fused"))
        exact = self._elementwise and self.curvature is None
        self.traits = Traits("coordinate" if self._elementwise else "tensor", exact_on_pieces=exact)

    def timetable(self) -> Timetable:
        return Timetable(self.curvature.interval if self.curvature else 1)

    def learn(self, estimate: Tensor, active: Tensor | None = None) -> None:
        """Take an estimate of what `curvature` asks for, (w, d); who is not active does not."""
        if self.curvature is None:
            raise ValueError(f"a {self.kind} must ask for curvature to learn of it, got an estimate unasked")
        self._part_idle_from_active(active)
        for i, optimizer, parameter, rows, options in self._entries(estimate):
            if isinstance(optimizer, Sophia) and (self._stacked or active is None or active[i]):
                memory = optimizer.state[parameter]
                if not memory:
                    memory.update(optimizer.remember(rows))
                optimizer.learn(rows, memory, options)

    def evaluated(self, x: Tensor) -> Tensor:
        """The rows to evaluate, where workers hold x: x itself, or new memory."""
        if not self.evaluates_elsewhere:
            return x
        out = x.clone(memory_format=torch.contiguous_format)
        for _, optimizer, parameter, rows, options in self._entries(out):
            memory = optimizer.state.get(parameter)
            if memory and isinstance(optimizer, ScheduleFree):
                rows.copy_(optimizer.averaged(rows, memory, options))
        return out

    def _entries(self, x: Tensor) -> Iterator[tuple[int, Optimizer, torch.nn.Parameter, Tensor, dict[str, Any]]]:
        """Each optimizer's number, with itself, and each of its parameters with that one's part of x and options."""
        hosts = [x] if self._stacked else x.unbind()
        for i, (host, parameters, optimizer) in enumerate(zip(hosts, self._parameters, self._optimizers, strict=True)):
            options = dict(zip(self._groups, optimizer.param_groups, strict=True))
            for parameter, run in zip(parameters, self._runs, strict=True):
                yield i, optimizer, parameter, self._view(host, run), options[run.group]

    @property
    def lr(self) -> float:  # type: ignore[override]
        return self.rates[0]

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of all parameter groups."""
        return tuple(float(group["lr"]) for group in self._clock.param_groups)

    @property
    def options(self) -> dict[int, dict[str, Any]]:
        return dict(zip(self._groups, _options(self._clock), strict=True))

    @options.setter
    def options(self, options: dict[int, dict[str, Any]]) -> None:
        before = self.options
        if not options.keys() >= before.keys():  # a pipeline stage lacks the groups of the other stages
            raise ValueError(
                f"parameter groups must be {sorted(before)}, got options of {sorted(options)}: the method's driver "
                "groups its tensors; give it the groups, and leave decaying_matrices away"
            )
        if self._schedule is not None and any(options[g]["lr"] != before[g]["lr"] for g in self._groups):
            raise ValueError(
                f"learning rates must be moved by the schedule that the method has, got {options} where it is at "
                f"{self.rates}: two would move one rate; leave commeff.scheduled away, or the other scheduler"
            )
        if self.has_one_rate:
            equal_rates(options)
        self._follow([options[g] for g in self._groups])

    def start(self, x: Tensor, layout: Layout) -> None:
        self._workers = x.shape[0]
        fields, grouped = list(layout.fields), grouping(self._optimizer)
        if grouped is not None and grouped.group_of is not None:
            shapes = {tensor.name: tensor.shape for tensor in layout.tensors}  # whole, where a shard is a flat piece
            fields = [field._replace(group=grouped.group_of(shapes[field.name])) for field in fields]
        self._runs = _column_runs(fields, math.inf if self._fused else JOINED) if self._elementwise else fields
        self._groups = [*range(len(grouped.options))] if grouped else sorted({run.group for run in self._runs})
        self._factory = unfused(self._optimizer) if x.is_meta else self._optimizer
        self._clock, self._schedule = self._start_clock()
        self.last_lr = self.lr
        # Fused kernels walk over memory as if it had no gaps, which the columns of one group among others have.
        stacked = self._elementwise and not (self._fused and len(self._runs) > 1)
        self._build([x] if stacked else x.unbind())

    def _start_clock(self) -> tuple[Optimizer, LRScheduler | None]:
        """An optimizer of no coordinates whose options the schedule moves and all others follow, whoever is idle."""
        empty = [torch.zeros((0,) * max(1, len(run.shape))) for run in self._runs]
        clock = self._factory(self._grouped([torch.nn.Parameter(tensor) for tensor in empty]))
        return clock, self._factory.schedule(clock) if isinstance(self._factory, Scheduled) else None

    def _build(self, hosts: Sequence[Tensor]) -> None:
        """One optimizer for each host: the (w, d) matrix of all rows, or one row."""
        self._stacked = hosts[0].ndim == 2
        self._parameters = [[torch.nn.Parameter(self._view(host, run)) for run in self._runs] for host in hosts]
        self._optimizers = [self._factory(self._grouped(parameters)) for parameters in self._parameters]
        self._follow(_options(self._clock))
        # Multi-tensor and fused code writes into the gradients that it is given.
        groups = self._optimizers[0].param_groups
        self._writes = any(group.get("foreach") or group.get("fused") for group in groups)
        self._let_go()

    def _let_go(self) -> None:
        """Hold on to no rows and gradients of the driver's between two steps."""
        for parameters in self._parameters:
            for parameter in parameters:
                parameter.data, parameter.grad = parameter.data.new_empty(0), None

    def _follow(self, options: list[dict[str, Any]]) -> None:
        for optimizer in (self._clock, *self._optimizers):
            for group, chosen in zip(optimizer.param_groups, options, strict=True):
                group.update(chosen)

    def _view(self, host: Tensor, run: Field) -> Tensor:
        whole = run.stop - run.start == host.shape[-1]
        columns = host if whole else host[..., run.start : run.stop]
        return columns if self._stacked else columns.reshape(run.shape)

    def _grouped(self, parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
        pairs = list(zip(parameters, self._runs, strict=True))
        return [{"params": [p for p, run in pairs if run.group == g]} for g in self._groups]

    def _refuse_moved_rates(self) -> None:
        """Memories are in units of `lr` and checkpoints hold it, so nobody else may move it."""
        for optimizer in self._optimizers:
            rates = tuple(float(group["lr"]) for group in optimizer.param_groups)
            if rates != self.rates:
                raise ValueError(
                    f"learning rates must be moved by commeff.scheduled or options, got {rates} in the optimizer where "
                    f"the local step's are {self.rates}: memories in units of the rate would be wrong, and a "
                    "checkpoint would not know; give optimizer=scheduled(factory, schedule)"
                )

    def _part_idle_from_active(self, active: Tensor | None) -> None:
        """From now on one object a row, if somebody is idle."""
        if self._stacked and active is not None and not bool(active.all()):
            state, like = self.state, self._parameters[0][0]
            self._build(like.new_empty(self._workers, self._runs[-1].stop).unbind())
            self.state = state

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        self._refuse_moved_rates()
        self._part_idle_from_active(active)
        if self._writes or gradient.is_cuda:
            gradient = gradient.clone(memory_format=torch.contiguous_format)
        hosts = [(x, gradient)] if self._stacked else zip(x.unbind(), gradient.unbind(), strict=True)
        for i, (host, slope) in enumerate(hosts):
            if not (self._stacked or active is None or active[i]):
                continue
            for parameter, run in zip(self._parameters[i], self._runs, strict=True):
                parameter.data = self._view(host, run)
                parameter.grad = self._view(slope, run)
            self._optimizers[i].step()
        self._let_go()
        self.last_lr = float(self._clock.param_groups[0]["lr"])
        if self._schedule is not None and not self.holds_rate:
            self._clock.step()
            self._schedule.step()
            self._follow(_options(self._clock))
        return x

    @property
    def state(self) -> dict[str, Tensor]:
        """ "run.name" -> (w, ...): the optimizer's state, row by row; "aged" -> (w,): who has one, having stepped."""
        aged = [bool(optimizer.state) for optimizer in self._optimizers]
        rows = {"aged": torch.tensor(aged).expand(self._workers).clone()}
        for p in range(len(self._runs)):
            states = [optimizer.state.get(self._parameters[i][p], {}) for i, optimizer in enumerate(self._optimizers)]
            for name, value in max(states, key=len).items():
                if value is None:
                    continue
                blank = torch.zeros_like(torch.as_tensor(value))
                values = [torch.as_tensor(of_row.get(name, blank)) for of_row in states]
                stacked = values[0] if values[0].ndim else values[0].expand(self._workers)
                rows[f"{p}.{name}"] = (stacked if self._stacked else torch.stack(values)).clone()
        return rows

    @state.setter
    def state(self, rows: dict[str, Tensor]) -> None:
        workers, like = len(rows["aged"]), self._parameters[0][0] if self._parameters else torch.empty(0)
        equal = all(bool((value == value[:1]).all()) for value in rows.values() if value.ndim == 1)
        if (self._stacked and not equal) or (not self._stacked and workers != self._workers):
            hosts = like.new_empty(workers, self._runs[-1].stop)
            self._build(hosts.unbind() if workers else [hosts])
        self._workers = workers
        for i, optimizer in enumerate(self._optimizers):
            optimizer.state.clear()
            for key in [key for key in rows if key != "aged" and rows["aged"][i : i + 1].any()]:
                p, name = key.split(".", 1)
                parameter = self._parameters[i][int(p)]
                values = rows[key] if self._stacked and rows[key].ndim > 1 else rows[key][i]
                counts = name == "step" and not self._fused  # torch counts steps on the CPU, fused kernels apart
                optimizer.state[parameter][name] = values.to("cpu" if counts else values.device, copy=True)

    def exchange(self, at: Address, swap: Swap) -> None:
        """As `Stateful.exchange`, with what the optimizer remembers tensor by tensor."""
        old, where = self.state, at.child("state")
        new = {"aged": swap.rows(where.child("aged"), old["aged"])}
        for p, run in enumerate(self._runs):
            values = {key.partition(".")[2]: value for key, value in old.items() if key.startswith(f"{p}.")}
            tensors = swap.tensors(where.part([(run.start, run.stop)]), values)
            for name, value in tensors.items():
                like = old.get(f"{p}.{name}", self._parameters[0][p])
                new[f"{p}.{name}"] = _shaped(value, run).to(like.device)
        if new.keys() != old.keys() or any(new[key] is not old[key] for key in new):
            self.state = new
        for name in self.shared:
            self._remember(name, swap.schedule(at.child(name), value := getattr(self, name)), value)

    @property
    def settings(self) -> dict[str, Any]:
        """Learning rates and other group options, and where the schedule stands."""
        return {"groups": _options(self._clock), "schedule": self._schedule.state_dict() if self._schedule else None}

    @settings.setter
    def settings(self, settings: dict[str, Any]) -> None:
        if self._schedule is not None:
            self._schedule.load_state_dict(settings["schedule"])
        self._follow(settings["groups"])


def _shaped(value: Tensor, run: Field) -> Tensor:
    """(w, columns) as the optimizer has it."""
    columns = value.ndim == 2 and value.shape[1] == run.stop - run.start
    return value.reshape(len(value), *run.shape) if columns and len(run.shape) != 1 else value


def _options(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
