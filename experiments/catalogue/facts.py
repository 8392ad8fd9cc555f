"""What parts send, remember and refuse, as they say themselves: the numbers of `list --long` and of the catalogue.

A method is played by `commeff.profile` in an example's setting: top-k of 1 % and a ring where it takes such parts, and
no momentum.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from commeff.compressors import Compressor, Layout, WorkerRandom
from commeff.core.presence import absence_faults
from commeff.core.strategy import Strategy
from commeff.experiments.config.method_words import strategy
from commeff.experiments.config.plugins import Choice, nodes
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import takes
from commeff.profiling import Profile, profile
from commeff.topologies import Topology

WORKERS = 16
STEPS = 256  # of a topology that never repeats
EXAMPLE = {"compressor": ("compressor=top_k", "compressor.ratio=0.01"), "topology": ("topology=ring",)}
UNBIASED = ("compressor=qsgd", "compressor.levels=7")
# What refuses or ill suits biased messages.
OWN_MESSAGES: dict[str, tuple[str, ...]] = dict.fromkeys(("compressed_sgd", "diana", "marina"), UNBIASED)
OWN_MESSAGES |= dict.fromkeys(("deep_squeeze", "dcd_psgd", "ecd_psgd"), ("compressor=int8",))
OWN_MESSAGES |= dict.fromkeys(("one_bit_adam", "zero_one_adam"), ("compressor=assumed",))
OWN_GRAPH: dict[str, tuple[str, ...]] = {"d2": ("topology=lazy",), "noloco": ("topology=random_matching",)}
OWN_GRAPH |= {"hierarchical_dsgd": ("topology=ring", "topology.n=4")}
TRIED = {  # what a method may refuse, by example
    "graphs that change": ("topology", ("topology=one_peer_exponential",)),
    "directed graphs": ("topology", ("topology=exponential",)),
    "biased compressors": ("compressor", EXAMPLE["compressor"]),
    "compressors with no constants": ("compressor", ("compressor=threshold", "compressor.value=0.1")),
}


@dataclass(frozen=True)
class Facts:
    """The facts about a method in an example's setting.

    Attributes
    ----------
    setting : the words of the example, without the method's.
    built : the strategy.
    sent : its profile.
    """

    setting: tuple[str, ...]
    built: Strategy
    sent: Profile

    @property
    def state_bytes(self) -> int:
        """The bytes that a worker holds between steps beside parameters and gradient."""
        return sum(self.sent.memory_bytes.values())

    @property
    def returns(self) -> str:
        """The state of a worker that was absent from some steps."""
        if any(absence_faults(self.built)):
            return "nobody may be absent"
        return "gets the model" if self.built.agrees() else "goes on from its own"


def layout_of(parameters: int) -> Layout:
    """A square matrix, and a vector of what is left.

    >>> [field.shape for field in layout_of(1000).fields], [field.shape for field in layout_of(900).fields]
    ([(31, 31), (39,)], [(30, 30)])
    """
    side = isqrt(parameters)
    rest = parameters - side * side
    return Layout.of([("matrix", (side, side)), *([("vector", (rest,))] if rest else [])])


def setting(name: str, choice: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The parts that an example gives a method, by what they are."""
    chosen = dict(EXAMPLE)
    chosen["compressor"] = OWN_MESSAGES.get(name, chosen["compressor"])
    chosen["topology"] = OWN_GRAPH.get(name, chosen["topology"])
    return {part: chosen[part] for part in takes(choice)}


def facts(
    name: str,
    layout: Layout,
    workers: int = WORKERS,
    plugins: Sequence[Choice] = (),
    parts: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Facts:
    """What a method of the catalogue, or a plug-in, does with an example's parts, or with others.

    Raises
    ------
    ValueError
        If the method refuses them.
    """
    chosen = setting(name, nodes("method", plugins)[name]) | dict(parts)
    words = tuple(word for part in chosen.values() for word in part)
    built, config = strategy((f"method={name}", *words), workers, plugins)
    return Facts(words, built, profile(built, layout, workers, collective=config["collective"]))


def refuses(name: str, plugins: Sequence[Choice] = ()) -> list[str]:
    """The kinds of graphs and messages that a method refuses.

    >>> refuses("choco"), refuses("dcd_psgd")
    (['graphs that change'], ['graphs that change', 'biased compressors', 'compressors with no constants'])
    """
    kinds = []
    for kind, (part, words) in TRIED.items():
        if part in takes(nodes("method", plugins)[name]):
            try:
                facts(name, layout_of(100), plugins=plugins, parts={part: words})
            except ValueError:
                kinds.append(kind)
    return kinds


def reference(target: str) -> str:
    """The papers that a docstring names as its references, in one line.

    >>> reference("commeff.methods.psgd"), reference("commeff.methods.sgp")[:29]
    ('', 'Assran, Loizou, Ballas, Rabba')
    """
    _, _, section = (inspect.getdoc(locate(target)) or "").partition("\nReferences\n----------\n")
    return " ".join(section.partition("\n\n")[0].split())


def lost(compressor: Compressor) -> dict[str, Any]:
    """What a compressor makes of 1,000,000 float32 numbers in a matrix: bits a number, and its constants, if any."""
    layout = layout_of(10**6)
    bound = compressor.bind(layout)
    return {"bits": bits(compressor, layout), "omega": bound.omega(layout.d), "delta": bound.delta(layout.d)}


def bits(compressor: Compressor, layout: Layout) -> float:
    """The bits per coordinate of float32 vectors on the wire.

    >>> from commeff import compressors
    >>> bits(compressors.TopK(k=2), Layout.flat(64))  # 10 bytes: 2 of 32 bits, and places of 6
    1.25
    """
    message = compressor.bind(layout).compress(torch.empty(1, layout.d, device="meta"), WorkerRandom(0, [0]))
    return 8 * int(message.wire_bytes[0]) / layout.d


def contraction(topology: Topology) -> float:
    """The mean factor by which a step of gossip shrinks the workers' disagreement.

    >>> from commeff import topologies
    >>> round(contraction(topologies.ring(8)), 4), contraction(topologies.one_peer_exponential(8))
    (0.8047, 0.0)
    """
    rest = np.full((topology.n, topology.n), 1 / topology.n)
    if topology.period is None:  # drawn anew: the root of what a step does to the square, on average
        drawn = [topology.at(step).dense() for step in range(STEPS)]
        left, steps = np.mean([matrix.T @ matrix for matrix in drawn], axis=0) - rest, 2
    else:
        left, steps = np.eye(topology.n) - rest, topology.period
        for step in range(steps):
            left = topology.at(step).dense() @ left
    norm = float(np.linalg.norm(left, 2))
    return 0.0 if norm < 1e-12 else norm ** (1 / steps)
