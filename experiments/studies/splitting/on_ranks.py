"""`python -m commeff.experiments.studies.splitting.on_ranks [--out results/llm]`: split runs beside whole ones.

Runs of two workers of two tensor parallel ranks on 4 processes, and the same of whole workers in one process. Half an
hour on two cores; what is finished in the store is not run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.splitting.four_axes import main, measured

COMMAND = "python -m commeff.experiments.studies.splitting.on_ranks"
FIRST, STEPS = 20, 1000
BASE = {
    **{"task": "language", "model": "llama_300k", "workers": 2, "optimizer": "adamw", "optimizer.lr": 0.002},
    **{"schedule": "cosine", "schedule.T_max": STEPS, "clip": 1.0},
}
SPLIT = {"mesh.worker": 2, "mesh.tensor": 2}
SGD = {"optimizer": "nesterov", "optimizer.lr": 0.1}
RUNS: dict[str, Mapping[str, Any]] = {
    "psgd": {"method": "psgd"},
    "local SGD H=25": {"method": "local_sgd", "method.period": 25},
    "psgd then DiLoCo H=25": {
        **{"method": "diloco", "method.outer.momentum": 0.5, "method.begin": 100, "method.period": 25}
    },
    "top-k with SGD": {"method": "mem_sgd", "compressor": "top_k", "compressor.ratio": 0.01, **SGD, "pieces": "own"},
}
PAGE = """# Split runs beside whole ones

Written by `{command}` at commit {commit} on {cpu}: a Llama of 0.33 million parameters on tiny Shakespeare, two workers
of two tensor ranks each over gloo, beside two whole workers in one process, in float32.

`first {first} steps` is the largest difference of a minibatch's loss over those steps; both runs select the top-k
within the pieces that a rank holds. `{steps} steps` are validation losses at the end of longer runs, and `apart` how
far these are from each other. Rounding differs between the two, and grows. In the longer run of whole workers top-k
selects within the whole vector, which is another method, strictly.

{beside_whole}
"""


def run(settings: Mapping[str, Any], steps: int, every: int, store: Path) -> Sequence[Mapping[str, Any]]:
    """The evaluations of a run, which is made unless it is there."""
    words = {**settings, "steps": steps, "evaluate_every": every}
    return measured([f"{key}={value}" for key, value in words.items()], store)[1]


def row(name: str, settings: Mapping[str, Any], store: Path) -> dict[str, Any]:
    """A line of the table."""
    whole_settings, split = ({**BASE, **settings, **more} for more in ({}, SPLIT))
    on_four, in_one = (
        [record["minibatch_loss"] for record in run({**split, **more}, FIRST, 1, store)] for more in ({}, {"nproc": 1})
    )
    whole_settings.pop("pieces", None)
    ranks, whole = (run(words, STEPS, STEPS, store)[-1]["val_loss"] for words in (split, whole_settings))
    return {
        "run": name,
        f"first {FIRST} steps": max(abs(x - y) for x, y in zip(on_four, in_one, strict=True)),
        "on 4 processes": ranks,
        "whole": whole,
        "apart": abs(ranks / whole - 1),
    }


def write(out: Path, store: Path, data: Sequence[str]) -> None:
    """Write beside_whole.md and the table as CSV."""
    where = dict(word.split("=", 1) for word in data)
    rows = [row(name, {**settings, **where}, store) for name, settings in RUNS.items()]
    forms = {f"first {FIRST} steps": ".1e", "apart": ".1e", "on 4 processes": ".4f", "whole": ".4f"}
    words = {"command": COMMAND, "first": FIRST, "steps": STEPS}
    Page("beside_whole", PAGE, [Table.of(rows, name="beside_whole", forms=forms)], words=words).write(out)


if __name__ == "__main__":
    main(COMMAND, __doc__, "runs/on_ranks", write)
