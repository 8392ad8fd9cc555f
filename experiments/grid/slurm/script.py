"""The scripts of a job array: what SLURM runs for the cells of a grid, and how they are submitted.

A task runs `commeff grid cells.jsonl` on its share of the cells, which skips those that are finished. Before its time
is over SLURM signals the script (`--signal=B:TERM`), and only the script: it tells the run to stop, waits for the
checkpoint, and puts the task back into the queue. SLURM sends the same signal to a task that somebody cancels: what
tells them apart is that SLURM calls the task still RUNNING. A requeued task has the same number, so the same cells.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.slurm.site import ASKS, WARNING, Site

LARGEST = 1000  # tasks in an array, unless a cluster's MaxArraySize says otherwise


@dataclass(frozen=True)
class ArrayShape:
    """Cells with as many processes, on the same device: they share an array, whose tasks all ask for the same."""

    processes: int
    device: str
    cells: int
    tasks: int
    nodes: int
    cores: int  # of a process of srun's where there are several nodes, else of the task
    jobs: int  # processes at a time

    @property
    def name(self) -> str:
        """The name of its script."""
        return f"array_{'cuda_' * (self.device == 'cuda')}nproc{self.processes}.sh"


def shapes(cells: Sequence[Cell], site: Site) -> list[ArrayShape]:
    """The arrays that the cells need, those of fewest processes first."""
    groups = []
    for processes, device in sorted({(cell.processes, cell.config["device"]) for cell in cells}):
        members = [cell for cell in cells if (cell.processes, cell.config["device"]) == (processes, device)]
        threads = max(int(cell.config["threads"]) for cell in members)
        tasks = ceil(len(members) / (site.cells_per_task or ceil(len(members) / LARGEST)))
        nodes = ceil(processes / (site.processes_per_node or processes))
        cores = threads if nodes > 1 else max(site.cpus_per_task or 0, processes * threads)
        jobs = processes if nodes > 1 else max(processes, cores // threads)
        groups.append(ArrayShape(processes, device, len(members), tasks, nodes, cores, jobs))
    return groups


def array(shape: ArrayShape, site: Site, title: str, folder: Path, command: str, options: Sequence[str]) -> str:
    """The script of an array; one of runs on CPUs asks for no GPU."""
    site = site if shape.device == "cuda" else _without_gpus(site)
    limit = f"%{site.array_limit}" if site.array_limit else ""
    tasks = shape.processes if shape.nodes > 1 else 1
    asks: dict[str, object] = {"array": f"0-{shape.tasks - 1}{limit}", "nodes": shape.nodes, "ntasks": tasks}
    asks |= {"cpus-per-task": shape.cores, "open-mode": "append", "signal": f"B:TERM@{WARNING}"}
    if shape.nodes > 1:
        asks["ntasks-per-node"] = site.processes_per_node  # at most: SLURM deals them unevenly otherwise
    share = f"--only nproc={shape.processes} --only device={shape.device} -j {shape.jobs}"
    share += f' --shard "$((SLURM_ARRAY_TASK_ID + 1))/{shape.tasks}"'
    more = "".join(f" {option}" for option in (*["--launcher srun"] * (shape.nodes > 1), "--no-report", *options))
    cells, processes = _count(shape.cells, "cell"), _count(shape.processes, "process", "es")
    what = f"{cells} of {' '.join(title.split())!r}, each of {processes}"
    return _filled(
        ARRAY,
        HEAD="\n".join(_head(f"{folder.name} nproc={shape.processes}", asks, site, folder / "logs" / "%A_%a.out")),
        WHAT=f"{what}, in {_count(shape.tasks, 'task')}.",
        HOW=_how(shape),
        SITE="\n".join(_before(site)),
        RUN=f"{command} grid {shlex.quote(str(folder / 'cells.jsonl'))} {share}{more}",
        REQUEUES=str(site.requeues),
    )


def collect(site: Site, folder: Path, command: str, options: Sequence[str]) -> str:
    """The script that counts and reports, once all tasks have ended."""
    asks = {"nodes": 1, "ntasks": 1, "cpus-per-task": 1}
    words = " ".join([command, "grid", shlex.quote(str(folder / "cells.jsonl")), "--collect", *options])
    head = "\n".join(_head(f"{folder.name} collect", asks, _without_gpus(site), folder / "logs" / "collect_%j.out"))
    return _filled(COLLECT, HEAD=head, SITE="\n".join(_before(site)), RUN=words)


def submit(names: Sequence[str], folder: Path) -> str:
    """The script that hands the others to SLURM."""
    return _filled(SUBMIT, FOLDER=shlex.quote(str(folder)), NAMES=" ".join(names))


def _head(name: str, asks: Mapping[str, object], site: Site, output: Path) -> Iterator[str]:
    """#SBATCH lines; in the path of the file that a task writes to a percent sign stands for itself."""
    yield f"#SBATCH --job-name={_quoted(name)}"
    yield f"#SBATCH --output={_quoted(str(output.parent).replace('%', '%%') + '/' + output.name)}"
    for option, value in asks.items():
        yield f"#SBATCH --{option}={value}"
    for key, option in ASKS.items():
        value = getattr(site, key)
        if value is not None:
            yield f"#SBATCH --{option}={_quoted(value)}"
    for words in site.options:
        yield f"#SBATCH {words}"


def _without_gpus(site: Site) -> Site:
    others = [words for words in site.options if not re.match("--gpu|--gres=gpu|--[a-z]+-per-gpu", words)]
    return replace(site, gpus_per_node=None, options=tuple(others))


def _before(site: Site) -> Iterator[str]:
    """The lines of shell that a site needs before a run."""
    if site.modules:
        yield shlex.join(["module", "load", *site.modules])
    yield from (f"export {name}={shlex.quote(value)}" for name, value in site.environment.items())
    yield from site.setup
    yield f"cd {shlex.quote(str(Path.cwd()))}"


def _quoted(text: str) -> str:
    r"""Quote a text for sbatch, which reads it nearly as a shell does.

    >>> print(_quoted('my "runs"'))
    "my \"runs\""
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _how(shape: ArrayShape) -> str:
    if shape.processes == 1:
        return f"A task runs up to {_count(shape.jobs, 'cell')} at a time, on one node."
    if shape.nodes == 1:
        return f"A cell starts its {shape.processes} processes itself, all on the one node of its task."
    return f"srun starts the {shape.processes} processes of a cell on the {shape.nodes} nodes of its task."


def _count(number: int, one: str, many: str = "s") -> str:
    """
    >>> _count(1, "cell"), _count(2, "process", "es")
    ('1 cell', '2 processes')
    """
    return f"{number} {one}{'' if number == 1 else many}"


def _filled(template: str, **parts: str) -> str:
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


ARRAY = r"""#!/usr/bin/env bash
# Written by `commeff grid --launcher sbatch`: @WHAT@
# @HOW@
# It may be submitted again at any time: finished cells are skipped, the others go on from their checkpoints.
@HEAD@
#SBATCH --requeue
set -euo pipefail

asked=       # whether SLURM has asked this task to stop
heard=yes    # whether a signal, not the end of the run, ended the last wait
run=         # the process to tell
# shellcheck disable=SC2329  # the trap calls it
stop() {
  asked=yes
  heard=yes
  if [ -n "$run" ]; then kill -TERM "$run" 2>/dev/null || true; fi
}
trap stop TERM

set +u
@SITE@
set -u

code=130
if [ -z "$asked" ]; then
  @RUN@ &
  run=$!
  if [ -n "$asked" ]; then kill -TERM "$run" 2>/dev/null || true; fi
  while [ -n "$heard" ]; do
    heard=
    code=0
    wait "$run" || code=$?
  done
fi

# 130: stopped with a checkpoint; 143: stopped before it had begun.
if [ -n "$asked" ] && { [ "$code" -eq 130 ] || [ "$code" -eq 143 ]; }; then
  task="${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
  state=$(squeue --noheader --format=%T --jobs="$task") || state=unknown
  if [ "$state" != RUNNING ]; then
    echo "task $task has stopped; SLURM says $state, so it is not queued again"
  elif [ "${SLURM_RESTART_COUNT:-0}" -ge @REQUEUES@ ]; then
    echo "task $task has stopped and was queued again @REQUEUES@ times already; submit it anew to go on"
  else
    echo "task $task has stopped with a checkpoint and is queued again"
    scontrol requeue "$task"
  fi
fi
exit "$code"
"""

COLLECT = r"""#!/usr/bin/env bash
# Written by `commeff grid --launcher sbatch`: counts the cells and writes the report; runs nothing.
@HEAD@
set -euo pipefail

set +u
@SITE@
set -u

@RUN@
"""

SUBMIT = r"""#!/usr/bin/env bash
# Written by `commeff grid --launcher sbatch`: submits the arrays, and the job that reports when all have ended.
set -euo pipefail
folder=@FOLDER@

after=afterany
for name in @NAMES@; do
  job=$(sbatch --parsable "$folder/$name")
  job=${job%%;*}
  after="$after:$job"
  echo "$name: job $job"
done
job=$(sbatch --parsable --dependency="$after" "$folder/collect.sh")
echo "collect.sh: job ${job%%;*}, once they have ended"
"""
