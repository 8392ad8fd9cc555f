"""A line on every part, and with which axes of a mesh it composes, as parts themselves say: `commeff list --long`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from commeff import methods
from commeff.compressors import Compressor, Layout
from commeff.compressors.parts import Part
from commeff.core.strategy import Strategy
from commeff.experiments.config.describe import catalogue
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import GROUPS, node
from commeff.laws.problem import WORKERS, cases
from commeff.transforms.pieces import exact

SGD = partial(torch.optim.SGD, lr=0.1)
CUTS = {"tensor": True, "shard": True, "pipeline": False}  # whether ranks along the axis cut tensors
WORDS = (
    "over tensor, shard and pipeline ranks. exact: does over a split model what it does over a whole one; own: with "
    "pieces=own, each piece counts as a vector of its own; no: refused"
)


def composition(group: str | None, plugins: Sequence[Choice]) -> dict[str, str]:
    """A line on every choice of a group, or of all; of what acts on a model also how it does so over a split one."""
    kinds = {"method": _methods, "compressor": _compressors, "optimizer": _optimizers}
    rows = {}
    for kind in GROUPS if group is None else (group,):
        for name, words in catalogue(kind, plugins).items():
            rows[f"{kind}={name}"] = words
            if kind in kinds:
                own = next((p.node for p in plugins if p.group == kind and p.name == name), None) or node(kind, name)
                rows[f"{kind}={name}"] += f"  Split: {kinds[kind](locate(own['_target_']))}"
    return rows if group in {*GROUPS} - {*kinds} else {"Split": WORDS, **rows}


def _methods(target: Any) -> str:
    verdicts = [_verdicts(case.build(WORKERS)) for case in cases(target)]
    best = verdicts[0] if all(each == verdicts[0] for each in verdicts) else dict.fromkeys(CUTS, "as its compressor")
    return _row(best)


def _compressors(target: type[Compressor]) -> str:
    verdicts = {str(sample): _verdicts(methods.compressed_sgd(SGD, sample)) for sample in target.samples()}
    first, *others = verdicts.values()
    if all(each == first for each in others):
        return _row(first)
    some = [name for name, each in verdicts.items() if set(each.values()) == {"exact"}]
    return f"{_row(dict.fromkeys(CUTS, 'own'))}; exact: {', '.join(some)}"


def _optimizers(target: Any) -> str:
    return _row(_verdicts(methods.psgd(partial(target, lr=0.1))))


def _row(verdicts: Mapping[str, str]) -> str:
    return ", ".join(f"{axis} {verdict}" for axis, verdict in verdicts.items())


def _verdicts(strategy: Strategy) -> dict[str, str]:
    return {axis: _verdict(strategy, [Part("", [], Layout.flat(1), cut)]) for axis, cut in CUTS.items()}


def _verdict(strategy: Strategy, parts: Sequence[Part]) -> str:
    if not exact(strategy.local, parts):
        return "no"
    return "exact" if exact(strategy.gradients, parts) and exact(strategy.parameters, parts) else "own"
