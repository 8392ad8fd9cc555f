"""`commeff list --long`: each choice in a line, then what it sends, remembers, refuses and costs, as parts say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from commeff import methods
from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.experiments.catalogue.borrowed import BORROWED
from commeff.experiments.catalogue.describe import catalogue
from commeff.experiments.catalogue.facts import WORKERS, contraction, facts, layout_of, lost, reference, refuses
from commeff.experiments.config import build
from commeff.experiments.config.method_words import strategy
from commeff.experiments.config.plugins import Choice, nodes
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import GROUPS
from commeff.laws.problem import WORKERS as FEW
from commeff.laws.problem import cases
from commeff.sharding.parts import Part
from commeff.sharding.pieces import exact

SGD = partial(torch.optim.SGD, lr=0.1)
CUTS = {"tensor": True, "shard": True, "pipeline": False}  # whether ranks along the axis cut tensors
SPLIT = (
    "split: over tensor, shard and pipeline ranks. exact: does over a split model what it does over a whole one; own: "
    "with pieces=own, each piece counts as a vector of its own; no: refused"
)
NOTE = (
    "sends: mean payload of a step and worker, and what the collective moves for it, with {workers} workers and "
    "{parameters:,} float32 parameters, with the parts in brackets; state: what a worker holds between steps beside "
    "parameters and gradient; absent: what a worker has that returns (participation=, dropout=, availability=).\n"
    + SPLIT
)

Row = dict[str, str]


def composition(
    group: str | None, plugins: Sequence[Choice], parameters: int = 10**6, workers: int = WORKERS
) -> dict[str, Row]:
    """{"method=choco": {"": a line, "sends": ..., "state": ..., ...}} of a group, or of all.

    Parameters
    ----------
    group : None for all.
    plugins : choices beside the built-in ones.
    parameters, workers : of the example that methods are priced in.
    """
    layout = layout_of(parameters)
    kinds: dict[str, Callable[[str, Mapping[str, Any]], Row]] = {
        "method": lambda name, choice: _method(name, choice, layout, workers, plugins),
        "compressor": lambda name, choice: _compressor(name, choice, plugins),
        "topology": lambda name, choice: _topology(name, choice, workers, plugins),
        "optimizer": lambda name, choice: _optimizer(name, choice, layout, plugins),
    }
    rows = {}
    for kind in GROUPS if group is None else (group,):
        for name, words in catalogue(kind, plugins).items():
            choice = nodes(kind, plugins)[name]
            row = kinds[kind](name, choice) if kind in kinds else {}
            paper = _paper(kind, name, choice)
            rows[f"{kind}={name}"] = {"": words} | row | ({"paper": paper} if paper else {})
    return rows


def _paper(kind: str, name: str, choice: Mapping[str, Any]) -> str:
    if kind == "optimizer" and name in BORROWED:
        return BORROWED[name].paper
    return reference(choice["_target_"]) if kind in ("method", "compressor", "topology", "optimizer") else ""


def _method(name: str, choice: Mapping[str, Any], layout: Layout, workers: int, plugins: Sequence[Choice]) -> Row:
    verdicts = [_verdicts(case.build(FEW)) for case in cases(locate(choice["_target_"]))]
    best = verdicts[0] if all(v == verdicts[0] for v in verdicts) else dict.fromkeys(CUTS, "as its compressor")
    try:
        effects = facts(name, layout, workers, plugins)
    except ValueError as refusal:
        return {"sends": f"not known: {str(refusal).splitlines()[-1].strip()}", "split": _split(best)}
    parts = ", ".join(word.partition("=")[2] for word in effects.setting)
    sent = f"{_bytes(effects.sent.payload_bytes)}, {_bytes(effects.sent.wire_bytes)} on the wire"
    row = {
        "sends": f"{sent} ({parts})" if parts else sent,
        "state": f"{effects.state_bytes / (4 * layout.d):.3g} models",
        "absent": effects.returns,
    }
    if effects.sent.note:
        row["sends"] += f"; {effects.sent.note}"
    refused = refuses(name, plugins)
    return row | ({"refuses": ", ".join(refused)} if refused else {}) | {"split": _split(best)}


def _compressor(name: str, choice: Mapping[str, Any], plugins: Sequence[Choice]) -> Row:
    target: Any = locate(choice["_target_"])
    samples = target.samples()
    verdicts = {str(sample): _verdicts(methods.compressed_sgd(SGD, sample)) for sample in samples}
    first, *others = verdicts.values()
    same = all(verdict == first for verdict in others)
    some = [words for words, verdict in verdicts.items() if set(verdict.values()) == {"exact"}]
    split = _split(first) if same else f"{_split(dict.fromkeys(CUTS, 'own'))}; exact: {', '.join(some)}"
    return _message(name, plugins) | {"split": split}


def _message(name: str, plugins: Sequence[Choice]) -> Row:
    try:
        _, config = strategy(("method=compressed_sgd", f"compressor={name}"), WORKERS, plugins)
        compressor = build.part(config, "compressor")
        constants = lost(compressor)
    except ValueError as refusal:
        return {"sends": f"not known: {str(refusal).splitlines()[-1].strip()}"}
    kind = "biased" if constants["omega"] is None else f"unbiased, omega {constants['omega']:.3g}"
    kind += "" if constants["delta"] is None else f", delta {constants['delta']:.3g}"
    summable = "added in flight" if compressor.summable else "gathered by all"
    return {"sends": f"{constants['bits']:.3g} bits a number of 1,000,000, {summable}", "error": kind}


def _topology(name: str, choice: Mapping[str, Any], workers: int, plugins: Sequence[Choice]) -> Row:
    if "???" in choice.values():
        return {"graph": "of a file"}
    try:
        graph = build.topology(strategy(("method=dsgd", f"topology={name}"), workers, plugins)[1])
    except ValueError as refusal:
        return {"graph": f"not known: {str(refusal).splitlines()[-1].strip()}"}
    first = graph.at(0)
    repeats = {None: "never repeats", 1: "fixed"}.get(graph.period, f"repeats after {graph.period} steps")
    kind = f"{'symmetric' if first.symmetric else 'directed'}, {repeats}, {first.degree} messages at most in step 0"
    return {"graph": f"{kind}; disagreement of {workers} workers times {contraction(graph):.3g} a step"}


def _optimizer(name: str, choice: Mapping[str, Any], layout: Layout, plugins: Sequence[Choice]) -> Row:
    try:
        effects = facts("psgd", layout, WORKERS, plugins, {"optimizer": (f"optimizer={name}",)})
        state = f"{effects.state_bytes / (4 * layout.d):.3g} models"
    except ValueError as refusal:
        state = f"not known: {str(refusal).splitlines()[-1].strip()}"
    return {"state": state, "split": _split(_verdicts(methods.psgd(partial(locate(choice["_target_"]), lr=0.1))))}


def _bytes(count: float) -> str:
    """Bytes as a reader has them.

    >>> _bytes(250), _bytes(65000.0), _bytes(7.5e6)
    ('250 B', '65 kB', '7.5 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.4g} B"


def _split(verdicts: Mapping[str, str]) -> str:
    return ", ".join(f"{axis} {verdict}" for axis, verdict in verdicts.items())


def _verdicts(strategy: Strategy) -> dict[str, str]:
    return {axis: _verdict(strategy, [Part("", [], Layout.flat(1), cut)]) for axis, cut in CUTS.items()}


def _verdict(strategy: Strategy, parts: Sequence[Part]) -> str:
    if strategy.compares or not exact(strategy.local, parts):
        return "no"
    return "exact" if exact(strategy.gradients, parts) and exact(strategy.parameters, parts) else "own"
