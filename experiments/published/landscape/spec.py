"""What landscape.yaml says: tasks, rates, the setting of each method, clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.config.schema import built_in
from commeff.experiments.grid.plan.spec import text

HERE = Path(__file__).parent
RATE = "optimizer.lr"
BASELINE = "psgd"


@dataclass(frozen=True)
class MethodSetting:
    """How a method is run where not as its YAML says.

    Attributes
    ----------
    words : its keys.
    times : multiplies the rates that it tries.
    why : the reason, for the page.
    """

    words: Mapping[str, Any] = field(default_factory=dict)
    times: float = 1.0
    why: str = ""

    @property
    def shown(self) -> str:
        """What differs from the defaults, in words.

        >>> MethodSetting({"topology": "ring", "topology.n": 4}, 0.1).shown
        'topology=ring topology.n=4, rates x 0.1'
        """
        words = " ".join(f"{key}={text(value)}" for key, value in self.words.items())
        return ", ".join(filter(None, [words, f"rates x {self.times:g}" if self.times != 1 else ""]))


@dataclass(frozen=True)
class LandscapeTask:
    """One task of the landscape.

    Attributes
    ----------
    name, title : of it.
    like : tasks of the catalogue for which it is the nearest that was measured.
    data : "iid" or "skewed", as workers' data are.
    reduced : how large its runs are, in words.
    base : settings of every run.
    rates : that each method tries, times its own factor.
    by, value : what the rate is chosen by, measured on validation data, and what the page reports, on test data.
    allowance : how much less than psgd still reaches the target: points of accuracy, or a share of the loss.
    step_seconds : of computing a worker's minibatch on the page's clusters.
    methods : the chosen ones; () for all.
    """

    name: str
    title: str
    like: tuple[str, ...]
    data: str
    reduced: str
    base: Mapping[str, Any]
    rates: tuple[float, ...]
    by: str
    value: str
    allowance: float
    step_seconds: float
    methods: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        """n."""
        return int(self.base["workers"])

    @property
    def steps(self) -> int:
        """Of a run."""
        return int(self.base["steps"])

    @property
    def competitors(self) -> tuple[str, ...]:
        """The methods that are run on it; psgd is the first."""
        names = self.methods or built_in("method")
        return (BASELINE, *(name for name in names if name != BASELINE))


@dataclass(frozen=True)
class Landscape:
    """All of landscape.yaml."""

    tuning_seed: int
    seeds: tuple[int, ...]
    tasks: Mapping[str, LandscapeTask]
    settings: Mapping[str, MethodSetting]
    clusters: tuple[str, ...]

    def setting(self, method: str) -> MethodSetting:
        """How a method is run."""
        return self.settings.get(method, MethodSetting())

    def words(self, task: LandscapeTask, method: str) -> dict[str, Any]:
        """The keys of a method's runs on a task but for rate and seed."""
        return {**task.base, "method": method, **self.setting(method).words}

    def rates(self, task: LandscapeTask, method: str) -> list[float]:
        """The rates that a method tries on a task.

        >>> field = landscape()
        >>> [len(field.rates(field.tasks["digits_iid"], name)) for name in ("psgd", "dmsgd")]
        [5, 5]
        """
        times = self.setting(method).times
        return [float(f"{rate * times:.6g}") for rate in task.rates]


@cache
def landscape(file: Path = HERE / "landscape.yaml") -> Landscape:
    """The landscape of a file."""
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    return Landscape(
        raw["tuning_seed"],
        tuple(raw["seeds"]),
        {name: LandscapeTask(name=name, **_tuples(task)) for name, task in raw["tasks"].items()},
        {name: MethodSetting(**setting) for name, setting in (raw.get("settings") or {}).items()},
        tuple(raw["clusters"]),
    )


def _tuples(task: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in task.items()}
