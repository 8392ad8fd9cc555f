"""`python -m commeff.experiments.studies.splitting [--out results/llm]`: the tables, a few minutes on two cores."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.splitting.exactness import FEW, MANY, Composition, differences
from commeff.experiments.studies.splitting.volumes import activation_rows, axis_rows, memory_rows

COMMAND = "python -m commeff.experiments.studies.splitting"
PAGE = """# What splitting a model changes

Written by `{command}` at commit {commit} on {cpu}. Processes talk over gloo; everything is measured or counted, nothing
simulated or modelled.

## Exactness

Four steps of SGD with momentum in float64 on a Llama of 41,248 parameters (4 layers, 4 heads, 2 KV heads), by workers
that lie on several ranks, against whole models stacked in one process. `difference` is the largest over all
coordinates, ranks and workers; parameters moved by as much as `moved`. The worst of all is {worst:.1e}.

{splitting_exactness}

## Bytes along the axes

What the first rank sends in a step. b t d = {block} numbers, L = 4, Psi = {psi:,} parameters, S = 2; the loss of the
split vocabulary is 3 b t numbers, the sum of norms' gradients under sequence parallelism (2 L + 1) d, that of the keys
and values of a head that two ranks have 2 d d/heads a layer, tied embeddings V d.

{splitting_axes}

## Memory between steps

AdamW in fp32 on two shard ranks, a Llama of 0.97M parameters: all live storages of a rank.

{splitting_memory}

## Activations

What autograd keeps of a Llama in fp32, in numbers, by what is recomputed. Formula: a token and layer (10 d + 4 f +
heads), without the attention's own (6 d + 4 f), or d; and (3 d + V) a token at the end.

{splitting_activations}
"""


SHORT = {"difference": ".1e", "ratio": ".3f", "moved": ".3f"}  # other numbers are counts


def write(out: Path) -> None:
    """Write splitting.md, and each table as CSV."""
    by_size: dict[int, list[Composition]] = {}
    for place in (*FEW, *MANY):
        by_size.setdefault(place.ranks, []).append(place)
    exact = [row for size in sorted(by_size) for row in differences(by_size[size])]
    axes = axis_rows()
    rows = {"exactness": exact, "axes": axes, "memory": memory_rows(), "activations": activation_rows()}
    words = {
        "command": COMMAND,
        "worst": max(row["difference"] for row in exact),
        "block": 8 * 8 * 32,
        "psi": round(next(row["by formula"] for row in axes if row["split"] == "shard 2, ZeRO 0") / 8),
    }
    Page("splitting", PAGE, [table(f"splitting_{name}", of) for name, of in rows.items()], words=words).write(out)


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table, its numbers as the page has them.

    >>> [item.text for item in table("memory", [{"ratio": 1.00049, "live": 1200000.0, "split": "tensor 2"}]).rows[0]]
    ['1.000', '1,200,000', 'tensor 2']
    """
    return Table.of(rows, name=name, forms={heading: SHORT.get(heading, ",.0f") for heading in rows[0]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/llm"), help="the folder of the page and the tables")
    write(parser.parse_args().out)
