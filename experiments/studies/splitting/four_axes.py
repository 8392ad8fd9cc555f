"""`python -m commeff.experiments.studies.splitting.four_axes [--out results/llm]`: one run on sixteen processes.

Two workers of two pipeline stages, two shard ranks and two tensor ranks each, on one machine; its record beside that of
two whole workers in one process, and its bytes by axis beside those that `commeff plan --run` predicts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commeff.experiments.config.compose import compose
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one
from commeff.training.recorder import Recorder

COMMAND = "python -m commeff.experiments.studies.splitting.four_axes"
RUN = (
    *("task=language", "task.dtype=float64", "task.probe=2048", "optimizer=adamw", "optimizer.lr=0.002"),
    *("method=diloco", "method.period=5", "steps=20", "evaluate_every=4"),
)
MESH = (
    *("mesh.worker=2", "mesh.pipeline=2", "mesh.shard=2", "mesh.tensor=2", "zero=1", "sequence=true"),
    *("schedule=1f1b", "micro_batches=2"),
)
SHOWN = ("minibatch_loss", "train_loss", "val_loss", "val_accuracy", "consensus_distance")
PAGE = """# A run on four axes

Written by `{command}` at commit {commit} on {cpu}: sixteen processes on one machine, over gloo.

```
commeff train {settings}
```

Two workers, each on 2 pipeline stages x 2 shard ranks (ZeRO 1) x 2 tensor ranks that share the sequence, 20 steps in
float64. `difference` is the largest over a row of the record from that of `workers=2` in one process, nothing split.

{four_axes_record}

Bytes of a worker over the run by axis, its 8 processes together, and what the first process holds between steps: as
`commeff plan --run` predicts them, and as the run has recorded them. `payload` is what DiLoCo sends the other worker.

{four_axes_volumes}
"""


def measured(settings: Sequence[str], store: Path) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    """The summary and the rows of a run, which is made unless it is there."""
    config = compose(settings)
    folder = store / run_id(config)
    summary = run_one(config, folder)
    return summary, Recorder(folder).rows()


def record(split: Sequence[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each evaluation: what was measured, and how far it is from the run of whole workers.

    >>> record([{"step": 4, "val_loss": 2.5}], [{"step": 4, "val_loss": 2.0}])
    [{'step': 4, 'val_loss': 2.5, 'difference': 0.5}]
    """
    lines = []
    for evaluation, reference in zip(split, whole, strict=True):
        names = [name for name in SHOWN if name in evaluation]
        far = max(abs(evaluation[name] - reference[name]) for name in names)
        lines.append({name: evaluation[name] for name in ("step", *names)} | {"difference": far})
    return lines


def volumes(predicted: Mapping[str, float], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A line for each axis.

    >>> volumes({"tensor_bytes": 10.0}, {"tensor_bytes": 11, "steps": 3})
    [{'bytes': 'tensor', 'predicted': 10.0, 'measured': 11.0, 'ratio': 1.1}]
    """
    return [
        {
            "bytes": name.removesuffix("_bytes"),
            "predicted": float(count),
            "measured": float(summary[name]),
            "ratio": summary[name] / count,
        }
        for name, count in predicted.items()
    ]


def write(out: Path, store: Path, data: Sequence[str]) -> None:
    """Write four_axes.md, and its two tables as CSV."""
    predicted = forecast(compose([*RUN, *MESH, *data]))
    (summary, split), (_, whole) = (measured([*RUN, *words, *data], store) for words in (MESH, ("workers=2",)))
    shown = dict.fromkeys(SHOWN, ".5g") | {"difference": ".1e"}
    counts = {"ratio": ".4f", "predicted": ",.0f", "measured": ",.0f"}
    sent = volumes({**predicted.sent, "held_bytes": predicted.states}, summary)
    tables = [
        Table.of(record(split, whole), name="four_axes_record", forms=shown),
        Table.of(sent, name="four_axes_volumes", forms=counts),
    ]
    words = {"command": COMMAND, "settings": " ".join([*RUN, *MESH])}
    Page("four_axes", PAGE, tables, words=words).write(out)


def main(command: str, about: str | None, store: str, write: Callable[[Path, Path, Sequence[str]], None]) -> None:
    """The command line of a page of trained runs."""
    parser = argparse.ArgumentParser(prog=command, description=about)
    parser.add_argument("--out", type=Path, default=Path("results/llm"), help="the folder of the page and the tables")
    parser.add_argument("--store", type=Path, default=Path(store), help="the folder of the runs")
    parser.add_argument("--data", type=Path, help="where tinyshakespeare is; unless given, COMMEFF_DATA")
    arguments = parser.parse_args()
    write(arguments.out, arguments.store, [f"data_dir={arguments.data}"] if arguments.data else [])


if __name__ == "__main__":
    main(COMMAND, __doc__, "runs/four_axes", write)
