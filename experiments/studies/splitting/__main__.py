"""`python -m commeff.experiments.studies.splitting [--out results/llm]`: the tables, a few minutes on two cores."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from commeff.experiments.report.write.table import Table, markdown
from commeff.experiments.run.system import cpu_name, git_commit
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

{exactness}

## Bytes along the axes

What the first rank sends in a step. b t d = {block} numbers, L = 4, Psi = {psi:,} parameters, S = 2; the loss of the
split vocabulary is 3 b t numbers, the sum of norms' gradients under sequence parallelism (2 L + 1) d, that of the keys
and values of a head that two ranks have 2 d d/heads a layer, tied embeddings V d.

{axes}

## Memory between steps

AdamW in fp32 on two shard ranks, a Llama of 0.97M parameters: all live storages of a rank.

{memory}

## Activations

What autograd keeps of a Llama in fp32, in numbers, by what is recomputed. Formula: a token and layer (10 d + 4 f +
heads), without the attention's own (6 d + 4 f), or d; and (3 d + V) a token at the end.

{activations}
"""


def write(out: Path) -> None:
    """splitting.md, and each table as CSV."""
    by_size: dict[int, list[Composition]] = {}
    for place in (*FEW, *MANY):
        by_size.setdefault(place.ranks, []).append(place)
    exact = [row for size in sorted(by_size) for row in differences(by_size[size])]
    tables = {"exactness": exact, "axes": axis_rows(), "memory": memory_rows(), "activations": activation_rows()}
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        pd.DataFrame(rows).to_csv(out / f"splitting_{name}.csv", index=False, lineterminator="\n")
    psi = next(row["by formula"] for row in tables["axes"] if row["split"] == "shard 2, ZeRO 0") / 8
    page = PAGE.format(
        command=COMMAND,
        commit=git_commit(),
        cpu=cpu_name(),
        worst=max(row["difference"] for row in exact),
        block=8 * 8 * 32,
        psi=round(psi),
        **{name: "\n".join(markdown(Table.of(shown(rows)))) for name, rows in tables.items()},
    )
    (out / "splitting.md").write_text(page, encoding="utf-8")


def shown(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Numbers as the page has them.

    >>> shown([{"difference": 4.4408e-16, "ratio": 1.00049, "kept": 1200000.0}])
    [{'difference': '4.4e-16', 'ratio': '1.000', 'kept': '1,200,000'}]
    """
    how = {"difference": "{:.1e}", "ratio": "{:.3f}", "moved": "{:.3f}", "ranks": "{}", "ZeRO": "{}"}
    return [
        {
            name: value if isinstance(value, str) else how.get(name, "{:,.0f}").format(value)
            for name, value in row.items()
        }
        for row in rows
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/llm"), help="the folder of the page and the tables")
    write(parser.parse_args().out)
