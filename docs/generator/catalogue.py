"""The catalogue of methods, compressors, topologies and optimizers: their docstrings, and what they send, remember and
mix.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from commeff import compressors, methods, optimizers, topologies
from commeff.compressors import Compressor, Layout
from commeff.core.properties import scope_of
from commeff.experiments.catalogue.borrowed import BORROWED
from commeff.experiments.catalogue.facts import STEPS, WORKERS, contraction, facts, lost, reference
from commeff.experiments.config import build
from commeff.experiments.config.method_words import strategy
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import built_in, node
from commeff.profiling.live import depends_on_data
from commeff.topologies import Topology
from docs.generator.docstrings import markdown
from docs.generator.equations import latex
from docs.generator.pictures import graph

GROUPS = ("method", "compressor", "topology", "optimizer")
SIDE = 1000
LAYOUT = Layout.of([("matrix", (SIDE, SIDE))])
SIZES = (8, 16, 64)
FAMILIES = (
    "compressed",
    "one_bit",
    "decoupled",
    "differences",
    "lazy",
    "gossip",
    "squeezed",
    "momentum",
    "corrected",
    "periodic",
    "federated",
    "outer",
    "loco",
    "robust",
    "asynchronous",
)


def target(group: str, name: str) -> str:
    """The full name of a choice, where it is defined."""
    value = locate(node(group, name)["_target_"])
    return f"{value.__module__}.{value.__qualname__}"


def described() -> set[str]:
    """The full names of all that the catalogue describes."""
    return {target(group, name) for group in GROUPS for name in built_in(group) if name not in BORROWED}


def pages() -> dict[str, str]:
    """The pages of the catalogue, by their place in the site."""
    return {
        "catalogue/methods.md": _methods(),
        "catalogue/compressors.md": _compressors(),
        "catalogue/topologies.md": _topologies(),
        "catalogue/optimizers.md": _optimizers(),
    }


def _page(title: str, module: object, table: Iterable[Iterable[object]], note: str, entries: Iterable[str]) -> str:
    head, *rows = [[str(cell) for cell in row] for row in table]
    lines = [head, ["---"] * len(head), *rows]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([f"# {title}", markdown(inspect.getdoc(module) or ""), note, drawn, *entries]) + "\n"


def _optimizers() -> str:
    note = """## What they remember

*Memory*: what a worker holds beside parameters and gradients, in models, for a matrix of a million numbers. *Acts on*:
whether a number moves by its own past alone, so that all hosted workers take their steps at once, or by that of its
whole tensor, which a model that is split by tensor or shard does not have in one place. Any of these may be the
optimizer of any method; learning rates are keys (`optimizer.lr=0.1`), schedules a group (`schedule=cosine`)."""
    rows: list[list[object]] = [["optimizer", "whose", "acts on", "memory, models", "paper"]]
    entries = []
    for name in built_in("optimizer"):
        found = facts("psgd", LAYOUT, WORKERS, (), {"optimizer": (f"optimizer={name}",)})
        scope = {"coordinate": "coordinates"}.get(scope_of(found.built.local), "whole tensors")
        borrowed, memory = BORROWED.get(name), f"{found.state_bytes / (4 * LAYOUT.d):.3g}"
        link = f"[{name}](#{name})" if borrowed else f"[{name}][{target('optimizer', name)}]"
        paper = borrowed.paper if borrowed else reference(node("optimizer", name)["_target_"])
        rows.append([link, "torch's" if borrowed else "ours", scope, memory, markdown(paper).strip()])
        if borrowed:
            update = "\n\n".join(f"```math\n{latex(line)}\n```" for line in borrowed.update)
            says = f"{borrowed.says} `{node('optimizer', name)['_target_']}`\n\n{update}\n\n{markdown(borrowed.paper)}"
            entries.append(f"## {name}\n\n{says}\n\n`commeff train optimizer={name}`")
        else:
            entries.append(_entry("optimizer", name))
    return _page("Optimizers", optimizers, rows, note, entries)


def _entry(group: str, name: str, extra: str = "") -> str:
    return f"::: {target(group, name)}\n\n`commeff train {group}={name}`{extra}"


def _methods() -> str:
    note = f"""## What they send and remember

A step of each, mean over a period, with {WORKERS} workers, a model of {SIDE} x {SIDE} float32 numbers (4 MB) and SGD
without momentum, from `commeff.profile`. *Payload* is what a worker has to say, *wire* what the collective moves for
it; *memory* is what a worker holds between steps beside parameters and gradient. Compressors are top-k of 1 %, or QSGD
of 4 bits where they have to be unbiased; graphs are rings. *Who returns*: what a worker has that was absent from some
steps ([who takes part](../participation.md))."""
    rows: list[list[object]] = [["method", "with", "payload, kB", "wire, kB", "messages", "memory, MB", "who returns"]]
    for family, names in families().items():
        rows.append([f"*{family}*", "", "", "", "", "", ""])
        rows += [_sent(name) for name in names]
    return _page("Methods", methods, rows, note, [_entry("method", name) for name in _in_order()])


def families() -> dict[str, list[str]]:
    """The methods by the module that has them, each in the order of its module."""
    members: dict[str, list[str]] = {}
    for name in methods.__all__:
        members.setdefault(getattr(methods, name).__module__.rpartition(".")[2], []).append(name)
    return {
        family: sorted(members[family], key=lambda name: getattr(methods, name).__code__.co_firstlineno)
        for family in FAMILIES
    }


def _in_order() -> list[str]:
    return [name for names in families().values() for name in names]


def _sent(name: str) -> list[object]:
    method = facts(name, LAYOUT, WORKERS)
    shown = ", ".join(word.partition("=")[2] for word in method.setting)
    if "period" in node("method", name):
        shown = ", ".join(filter(None, [shown, f"period {node('method', name)['period']}"]))
    most = "up to " if depends_on_data(method.built) is not None else ""  # values decide: the profile is the most
    cycle = range(method.sent.first, method.sent.first + method.sent.period)
    messages = sum(each.messages for step in cycle for each in method.sent.operations(step)) / method.sent.period
    return [
        f"[{name}][{target('method', name)}]",
        shown,
        f"{most}{method.sent.payload_bytes / 1e3:,.1f}",
        f"{most}{method.sent.wire_bytes / 1e3:,.1f}",
        f"{most}{messages:.3g}",
        f"{method.state_bytes / 1e6:.3g}",
        method.returns,
    ]


def _compressors() -> str:
    note = f"""## What they take and lose

For a vector of {SIDE**2:,} float32 numbers. *Summable*: messages can be added on their way, so that an all-reduce does;
others are gathered by everybody. *Blocks*: whether a vector may be compressed in pieces with the same result."""
    rows: list[list[object]] = [["compressor", "as", "bits a number", "omega", "delta", "summable", "blocks"]]
    for name in built_in("compressor"):
        rows.append([f"[{name}][{target('compressor', name)}]", *_lost(name)])
    return _page(
        "Compressors", compressors, rows, note, [_entry("compressor", name) for name in built_in("compressor")]
    )


def _lost(name: str) -> list[object]:
    compressor = build.part(strategy(("method=compressed_sgd", f"compressor={name}"), WORKERS)[1], "compressor")
    loss = lost(compressor)
    return [
        _setting(compressor),
        f"{loss['bits']:.3g}",
        "biased" if loss["omega"] is None else f"{loss['omega']:.3g}",
        "none" if loss["delta"] is None else f"{loss['delta']:.3g}",
        "yes" if compressor.summable else "no",
        {"coordinate": "any", "tensor": "whole tensors", "whole": "one"}[compressor.scope],
    ]


def _setting(value: Compressor) -> str:
    """The fields of a compressor that say something, without its name."""
    values = {field.name: getattr(value, field.name) for field in fields(cast(Any, value))}
    shown = {name: field for name, field in values.items() if field not in (None, ())}
    parts = [type(field).__name__ if is_dataclass(field) else f"{name} {field}" for name, field in shown.items()]
    return ", ".join(parts)


def _topologies() -> str:
    note = f"""## How fast they agree

*Degree*: the most messages that a worker receives in a step. *Contraction*: by which factor a step shrinks the workers'
disagreement, the norm of (the product of a period's W) - J to the power 1/period; of graphs drawn anew at each step the
root of the mean effect on the square over {STEPS} steps. 0 is exact agreement, random graphs have seed 0. Pictures: who
receives from whom at the first step, n = {SIZES[1]}."""
    head: list[object] = ["topology", "degree", "period", *(f"contraction, n = {n}" for n in SIZES), "symmetric"]
    rows = [head]
    entries = []
    for name in built_in("topology"):
        if "???" in node("topology", name).values():  # of a file
            entries.append(_entry("topology", name, ""))
            continue
        graphs = {n: _topology(name, n) for n in SIZES}
        shown = graphs[SIZES[1]]
        first = shown.at(0)
        rows.append(
            [
                f"[{name}][{target('topology', name)}]",
                max(shown.at(step).degree for step in range(shown.period or STEPS)),
                shown.period or "never repeats",
                *(f"{contraction(each):.3f}" for each in graphs.values()),
                "yes" if first.symmetric else "no",
            ]
        )
        entries.append(_entry("topology", name, f"\n\n{graph(first)}"))
    return _page("Topologies", topologies, rows, note, entries)


def _topology(name: str, n: int) -> Topology:
    return build.topology(strategy(("method=dsgd", f"topology={name}"), n)[1])
