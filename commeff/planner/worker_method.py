"""What the worker axis does: a method of `commeff.methods` by its name, or any strategy of your own.

Nothing here says what a method sends: its strategy is built and played (`commeff.profile`), see `worker_profile`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import commeff
from commeff import require
from commeff.planner.model import count

if TYPE_CHECKING:  # the parts of a strategy come with torch, which only policies of more than psgd need
    from commeff.compressors import Compressor
    from commeff.core import Strategy
    from commeff.topologies import Topology

StrategyFactory = Callable[[int], "Strategy"]  # from the number of workers
TopologyFactory = Callable[[int], "Topology"]

PLAIN = "psgd"
COMPRESSORS: dict[str, tuple[str, dict[str, Any]]] = {  # the names and defaults of `commeff train`
    "dense": ("Dense", {}),
    "count_sketch": ("CountSketch", {"width": 1024}),
    "dct_top_k": ("DCTTopK", {"k": 8}),
    "drive": ("Drive", {}),
    "eden": ("Eden", {"bits": 2}),
    "fp8": ("Fp8", {}),
    "int4": ("Int4", {}),
    "int8": ("Int8", {}),
    "natural": ("Natural", {}),
    "nf4": ("NF4", {}),
    "one_bit": ("OneBit", {}),
    "qsgd": ("QSGD", {"levels": 4}),
    "random_k": ("RandomK", {"ratio": 0.05}),
    "scaled_sign": ("ScaledSign", {}),
    "tern_grad": ("TernGrad", {}),
    "top_k": ("TopK", {"ratio": 0.05}),
}


@dataclass(frozen=True)
class WorkerMethod:
    """A description that is hashable, and from which the strategy of any number of workers can be built.

    Parameters
    ----------
    method : a name of `commeff.methods`, or a function from the number of workers to a strategy.
    period : steps between averages, for methods that have one.
    compressor : for methods that take one: a compressor, or its name as in `commeff train`, with the defaults there.
    topology : for methods that take one: a name of `commeff.topologies` that needs the number of workers alone, or a
        function from it to a topology; None: one in which everybody has `degree` neighbours.
    degree : of that topology: 1 is `one_peer_exponential`, 2 `ring`, more `random_regular`.
    collective : of a `Communicator`: how averages travel.
    steps : steps to the same loss, in units of those of `psgd`: what a search weighs seconds with.

    Examples
    --------
    >>> WorkerMethod("choco", compressor="top_k", topology="ring").strategy(8).__class__.__name__
    'Strategy'
    >>> WorkerMethod("dsgd", period=4)
    Traceback (most recent call last):
    ValueError: period must be 1 with method=dsgd, got 4: it talks in every step; take local_sgd or its kin
    """

    method: str | StrategyFactory = PLAIN
    period: int = 1
    compressor: Compressor | str | None = None
    topology: str | TopologyFactory | None = None
    degree: int = 1
    collective: str = "auto"
    steps: float = 1.0

    def __post_init__(self) -> None:
        count(period=self.period, degree=self.degree)
        if not 0 < self.steps < float("inf"):
            raise ValueError(f"steps must be a number above 0, got {self.steps!r} for method={self.name}")
        if self.is_plain and (self.period, self.degree, self.compressor, self.topology) == (1, 1, None, None):
            return
        if isinstance(self.method, str):
            require.one_of(sorted(commeff.methods.__all__), method=self.method)
        elif not callable(self.method):
            raise ValueError(
                f"method must be a name or a function from workers to a strategy, got {self.method!r}; "
                "write lambda workers: strategy"
            )
        self._refuse_parts()

    def _refuse_parts(self) -> None:
        takes = _parameters(self.method)
        if self.period > 1 and "period" not in takes:
            raise ValueError(
                f"period must be 1 with method={self.name}, got {self.period}: it talks in every step; "
                "take local_sgd or its kin"
            )
        if "topology" not in takes and (self.topology is not None or self.degree > 1):
            raise ValueError(
                f"degree and topology must be left out with method={self.name}, got degree={self.degree} "
                f"topology={self.topology}: it has no neighbours; take dsgd or its kin"
            )
        if self.topology is not None and self.degree > 1:
            raise ValueError(f"degree must be 1 beside a topology, got {self.degree}: the topology has its own")
        if isinstance(self.topology, str):
            require.one_of(_plain_topologies(), topology=self.topology)
        if self.compressor is not None and "compressor" not in takes:
            kin = " ".join(name for name in sorted(commeff.methods.__all__) if "compressor" in _parameters(name))
            raise ValueError(
                f"compressor must be left out with method={self.name}, got {self.compressor}: it has none; "
                f"those with one are {kin}"
            )
        if self.compressor is None and "compressor" in takes:
            raise ValueError(
                f"compressor must be given with method={self.name}, got none: it sends compressed vectors; "
                "give such as compressor=top_k"
            )
        if isinstance(self.compressor, str):
            check_compressor(self.compressor)

    @property
    def name(self) -> str:
        """What people call it: the method's name, or what a function of your own prints as."""
        return self.method if isinstance(self.method, str) else getattr(self.method, "__name__", str(self.method))

    @property
    def is_plain(self) -> bool:
        """Whether it is `psgd`, in which one worker is as good as many."""
        return self.method == PLAIN

    @property
    def fields(self) -> dict[str, Any]:
        """Those of a `Policy`: all but the steps."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "steps"}

    def strategy(self, workers: int) -> Strategy:
        """The strategy of so many workers, not started. Raises ValueError if there is none."""
        if not isinstance(self.method, str):
            return self.method(workers)
        from torch.optim import SGD  # remembers nothing: the planner counts Adam's states for every policy alike

        settings: dict[str, Any] = {"optimizer": partial(SGD, lr=0.1), "period": self.period}
        takes = _parameters(self.method)
        if "compressor" in takes:
            settings["compressor"] = named_compressor(self.compressor)
        if "topology" in takes:
            settings["topology"] = self._topology(workers)
        make: Callable[..., Strategy] = getattr(commeff.methods, self.method)
        return make(**{name: value for name, value in settings.items() if name in takes})

    def _topology(self, workers: int) -> Topology:
        topologies = commeff.topologies
        if isinstance(self.topology, str):
            named: TopologyFactory = getattr(topologies, self.topology)
            return named(workers)
        if self.topology is not None:
            return self.topology(workers)
        if self.degree >= workers - 1 and workers > 1:
            return topologies.complete(workers)
        if self.degree > 2:
            return topologies.random_regular(workers, self.degree, seed=0)
        return topologies.ring(workers) if self.degree == 2 else topologies.one_peer_exponential(workers)


def check_compressor(name: str) -> None:
    """Refuse a name that `commeff train` does not know, and the words of older versions.

    >>> check_compressor("topk:0.01")
    Traceback (most recent call last):
    ValueError: compressor must be named as in `commeff train`, got 'topk:0.01'; write compressor=top_k
    compressor.ratio=0.01 (in Python TopK(ratio=0.01)), and method=power_sgd method.rank=R for a low rank
    """
    if ":" in name:
        raise ValueError(
            f"compressor must be named as in `commeff train`, got {name!r}; write compressor=top_k "
            "compressor.ratio=0.01 (in Python TopK(ratio=0.01)), and method=power_sgd method.rank=R for a low rank"
        )
    require.one_of(sorted(COMPRESSORS), compressor=name)


def named_compressor(compressor: Compressor | str | None) -> Compressor | None:
    """A compressor by its name, with the defaults of `commeff train`."""
    if not isinstance(compressor, str):
        return compressor
    kind, settings = COMPRESSORS[compressor]
    made: Compressor = getattr(commeff.compressors, kind)(**settings)
    return made


def _parameters(method: str | StrategyFactory) -> Mapping[str, Parameter]:
    """What a named method takes; a strategy of your own has all its parts already."""
    return _signature(method) if isinstance(method, str) else {}


@cache
def _signature(method: str) -> Mapping[str, Parameter]:
    return signature(getattr(commeff.methods, method)).parameters


@cache
def _plain_topologies() -> tuple[str, ...]:
    """Names of topologies that need the number of workers alone."""
    names = []
    for name in commeff.topologies.__all__:
        make = getattr(commeff.topologies, name)
        if not isinstance(make, type) and [*signature(make).parameters] == ["n"]:
            names.append(name)
    return tuple(sorted(names))
