"""The settings of a run that belong to no part, each with its default, its type and its bounds; what else they cannot
be: who takes part, who lies, how fast workers compute, also by CSV files; and the parts of a run that names none.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from commeff.experiments.config.meshes import mesh_size
from commeff.experiments.config.registry import foreign
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.config.signature import signature
from commeff.files import regular
from commeff.require import did_you_mean

DEFAULTS = {  # parts; compressor and topology stand by for methods that take them
    "task": "digits",
    "method": "psgd",
    "compressor": "top_k",
    "topology": "ring",
    "optimizer": "sgd",
    "schedule": "constant",
}
LABEL_FLIP = "label_flip"  # the attack on data; others are on gradients
LEAST, MOST = 1e-9, 1e6  # seconds of a step; times that a straggler takes have the same bounds
CLOCK = ("step_time", "spread", "straggler", "links")  # they mean something with speeds alone
LONGEST = 100_000  # lines of a CSV file
KINDS = ("constant", "staggered", "drawn")  # of speeds, beside files
TRACES: Mapping[str, Mapping[str, Callable[[str], Any]]] = {  # columns of CSV files
    "availability": {"worker": int, "start": int, "stop": int},  # the worker is there in steps start <= k < stop
    "speeds": {"worker": int, "seconds": float},  # in their order
}


class Setting(NamedTuple):
    """The values that a key may have.

    Attributes
    ----------
    default, hint : its value, and the type of all values.
    least, most : bounds of numbers, where they are not those of 64 bits.
    """

    default: Any
    hint: Any
    least: float = 0
    most: float | None = None


_DEGREE = Setting(1, int, 1, 4096)  # beyond that no machine of today goes; other bounds alike
RUN: dict[str, Setting] = {
    "workers": Setting(16, int, 1, 100_000),  # n, dealt to nproc processes
    "nproc": Setting(1, int, 1, 4096),  # processes on this machine; results are equal up to rounding
    # The mesh of processes, if any degree is more than 1; nproc is their product then.
    "mesh.worker": _DEGREE,  # workers, which are `workers` then
    "mesh.pipeline": _DEGREE,  # stages that a worker's layers are dealt to
    "mesh.shard": _DEGREE,  # ranks that share a worker's batch, and with zero what else it has
    "mesh.tensor": _DEGREE,  # ranks that a worker's matrices are split over
    # Of a pipeline; schedule=1f1b is short for it.
    "mesh.schedule": Setting("1f1b", Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zbv"]),
    "micro_batches": Setting(1, int, 1),  # of a rank's batch; they pass through a pipeline one after the other
    # Activations computed anew in backward: selective is of attention.
    "recompute": Setting("none", Literal["none", "selective", "full", "offloaded", "partitioned"]),
    # What ranks of the shard axis share: 1 states of the method, 2 gradients too, 3 parameters too.
    "zero": Setting(0, Literal[0, 1, 2, 3]),
    # Of forward and backward: fp32 is as the task has it, bf16_mixed autocast; rows keep 32 bits. With bf16_reduce_fp32
    # shard ranks sum gradients in 32 bits.
    "precision": Setting("fp32", Literal["fp32", "bf16", "fp16", "bf16_reduce_fp32", "bf16_mixed"]),
    "sequence": Setting(False, bool),  # tensor ranks share the sequence between the layers that are split
    # own: what is not exact on pieces (commeff list --long) may act within the one that a process holds.
    "pieces": Setting(None, Literal["own"] | None),
    # How averages travel; auto: all_reduce what sums.
    "collective": Setting("auto", Literal["auto", "all_reduce", "ring", "tree", "all_gather", "server"]),
    "bucket_mb": Setting(25, float),  # of gradients that are sent together while others are computed; 0: in one piece
    "steps": Setting(400, int, 1),  # model updates
    "seed": Setting(0, int),  # of the data partition, the batches and the compressors
    "data_dir": Setting(None, str | None),  # where tasks look for files; null: the environment variable COMMEFF_DATA
    "device": Setting("cpu", Literal["cpu", "cuda"]),  # processes of one machine take a GPU each, and talk by NCCL
    "engine": Setting("loop", Literal["loop", "vmap"]),  # of the hosted workers' gradients; loop is the definition
    # Whether torch.compile makes the messages, which stay the same; auto: in runs that are long enough to pay for it.
    # all: messages, and forward and backward of models, whole or split, which round in another way.
    "compile": Setting("auto", Literal["auto", "on", "off", "all"]),
    "threads": Setting(1, int, 1, 1024),  # of arithmetic in a process; another number may change the last digits
    # Minibatches whose mean gradient a step takes; null: rounds of neolithic, 1 of others.
    "accumulate": Setting(None, int | None, 1),
    "l2": Setting(0.0, float),  # L2 regularisation added to the gradient before it is compressed
    # Largest norm of a gradient: of the average where it is averaged, else of each worker's own.
    "clip": Setting(None, float | None),
    # What optimizer.weight_decay moves; matrices: neither biases nor norms.
    "decay": Setting("all", Literal["all", "matrices"]),
    "participation": Setting(1.0, float),  # share of the workers in a round, which is a period; drawn by seed
    "dropout": Setting(0.0, float),  # probability with which a worker fails during a step, and is not heard in it
    # A CSV file worker,start,stop: the steps in which workers are there; those not named always are.
    "availability": Setting(None, str | list | None),
    # Of workers on a simulated clock: constant, staggered, drawn, or a CSV file worker,seconds.
    "speeds": Setting(None, str | list | None),
    "step_time": Setting(1.0, float),  # simulated seconds that a worker computes for a step, in the mean
    "spread": Setting(0.2, float),  # standard deviation of a drawn step's time over the mean
    "straggler": Setting(1.0, float),  # how many times as long the last worker takes
    "links": Setting(None, str | None),  # a cluster whose links messages take their simulated time on; null: none
    # What attackers put in the place of their gradients; or label_flip, of their data.
    "attack": Setting(None, Literal["sign_flip", "noise", "a_little", "inner_product", "label_flip"] | None),
    "attackers": Setting(0, int),  # the workers who lie, from the first
    "evaluate_every": Setting(0, int),  # steps between evaluations; 0: twenty evaluations in a run
    "resume_from": Setting(None, str | None),  # the folder of a run from whose last checkpoint this begins, on any mesh
    "checkpoint_every": Setting(100, int),  # steps between checkpoints; 0: only when interrupted and at the end
    "profile": Setting(0, int, 0, 1000),  # steps after the tenth whose operators are traced, into RUN/trace.json
    "log": Setting(
        None, str | list | None
    ),  # also to tensorboard, wandb, mlflow, or a list of them; see docs/python.md
}


def defaults() -> dict[str, Any]:
    """The keys of a run as a tree, with the names of its parts.

    >>> defaults()["mesh"]["tensor"], defaults()["method"]
    (1, 'psgd')
    """
    tree: dict[str, Any] = dict(DEFAULTS)
    for key, setting in RUN.items():
        part, _, name = key.rpartition(".")
        (tree.setdefault(part, {}) if part else tree)[name] = setting.default
    return tree


def data_skew(config: Mapping[str, Any]) -> str:
    """How far the workers' data differ, in words; "" where they are dealt at random, or the task does not say.

    >>> task = {"_target_": "commeff.experiments.tasks.Digits", "partition": "dirichlet", "alpha": 0.3, "shards": 2}
    >>> data_skew({"task": task}), data_skew({"task": {**task, "partition": "shards"}})
    ('dirichlet, alpha 0.3, the default', 'shards, 2 a worker')
    """
    task = config.get("task", {})
    partition = task.get("partition")
    if partition in (None, "iid"):
        return ""
    key, words = {"dirichlet": ("alpha", "alpha {}"), "shards": ("shards", "{} a worker")}.get(partition, ("", ""))
    parts = [str(partition), *([words.format(task[key])] if key in task else [])]
    known = {} if foreign(str(task["_target_"])) else signature(str(task["_target_"]))
    default = "partition" in known and all(task.get(k) == known[k].default for k in ("partition", key) if k in known)
    return ", ".join([*parts, *["the default"] * default])


def participates(config: Mapping[str, Any]) -> bool:
    """Whether there may be steps in which some workers are absent; old configurations have none.

    >>> participates({}), participates({"participation": 0.5}), participates({"availability": [[0, 1, 2]]})
    (False, True, True)
    """
    return bool(config.get("participation", 1) < 1 or config.get("dropout", 0) or config.get("availability"))


def participation_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for each fault in the keys of participation."""
    faults = []
    if not 0 < config["participation"] <= 1:
        faults.append(f"participation must lie in (0, 1], got {config['participation']}")
    if not 0 <= config["dropout"] < 1:
        faults.append(f"dropout must lie in [0, 1), got {config['dropout']}")
    trace, n = config["availability"], config["workers"]
    if isinstance(trace, list):
        must = f"availability must name workers from 0 to {n - 1} and steps 0 <= start < stop"
        faults += [f"{must}, got {line}: correct the trace" for line in trace if not _is_stay(line, n)][:3]
        if not trace:
            faults.append("availability must have a line for each stay, got none: omit it if all workers are there")
    return faults


def attack_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for what the keys of an attack cannot be.

    >>> attack_faults({"attack": "noise", "attackers": 0, "workers": 4})
    ['attackers must be from 1 to 3 of 4 workers with attack=noise, got 0']
    """
    attack, attackers, n = config["attack"], config["attackers"], config["workers"]
    if attack is None:
        return [f"attack must be given with attackers={attackers}, got none: say what they do"] if attackers else []
    if 0 < attackers < n:
        return []
    return [f"attackers must be from 1 to {n - 1} of {n} workers with attack={attack}, got {attackers}"]


def _is_stay(line: Any, n: int) -> bool:
    whole = isinstance(line, list) and len(line) == 3 and all(type(number) is int for number in line)
    return whole and 0 <= line[0] < n and 0 <= line[1] < line[2]


def clocked(config: Mapping[str, Any]) -> bool:
    """Whether a run has a simulated clock; old configurations have none.

    >>> clocked({}), clocked({"speeds": "drawn"})
    (False, True)
    """
    return config.get("speeds") is not None


def speed_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for what the keys of the clock cannot be, and for what does not go with one."""
    speeds, n = config["speeds"], config["workers"]
    if speeds is None:
        moved = [key for key in CLOCK if config[key] != RUN[key].default]
        return [f"speeds must be given with {key}={config[key]}, got none: say speeds=constant" for key in moved]
    faults = []
    if isinstance(speeds, list) and not all(_is_speed(line, n) for line in speeds):
        line = next(line for line in speeds if not _is_speed(line, n))
        faults.append(
            f"speeds must name workers from 0 to {n - 1} and seconds from {LEAST:g} to {MOST:,.0f}, got {line}: "
            "correct the file"
        )
    for key in ("step_time", "straggler"):
        if not LEAST <= config[key] <= MOST:
            faults.append(
                f"{key} must lie from {LEAST:g} to {MOST:,.0f}, got {config[key]}: the clock counts nanoseconds"
            )
    if config["spread"] != RUN["spread"].default and speeds != "drawn":
        faults.append(f"spread must go with speeds=drawn, got spread={config['spread']} with speeds={speeds}")
    if config["links"] is not None:
        from commeff.cluster.cluster import names  # with numpy

        if config["links"] not in names():
            meant = did_you_mean(config["links"], names())
            faults.append(f"no cluster {config['links']!r} for links{meant}; choose from {', '.join(names())}")
    if mesh_size(config) > 1:
        faults.append("mesh must have degrees of 1 with speeds, got a mesh of more: the clock is of whole workers")
    for key in ("participation", "dropout", "availability"):
        if config[key] != RUN[key].default:
            faults.append(
                f"{key} must be {RUN[key].default} with speeds, got {config[key]}: the clock is of all workers"
            )
    return faults


def _is_speed(line: Any, n: int) -> bool:
    whole = isinstance(line, list) and len(line) == 2 and type(line[0]) is int
    return whole and 0 <= line[0] < n and type(line[1]) in (int, float) and LEAST <= line[1] <= MOST


def read_trace(key: str, path: str) -> str | list[list[Any]]:
    """The rows of a CSV file of availability or speeds, numbers under the heads of `TRACES`; a kind of speeds as it is.

    Raises
    ------
    ConfigError
        The file is none, or a line of it is no such row.
    """
    if key == "speeds" and path in KINDS:
        return path
    columns = TRACES[key]
    try:
        with open(Path(path).expanduser(), newline="", encoding="utf-8", opener=regular) as file:
            lines = [[cell.strip() for cell in line] for line in islice(csv.reader(file), LONGEST + 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        must = "a CSV file" if key == "availability" else f"{', '.join(KINDS)} or a CSV file"
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{key} must be {must}, got {path}: {reason}"]) from None
    if lines[:1] != [[*columns]]:
        raise ConfigError([f"{key} must begin with the line {','.join(columns)}, got another in {path}"])
    if len(lines) > LONGEST + 1:
        raise ConfigError([f"{key} must have at most {LONGEST:,} lines, got more in {path}"])
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            rows += [[read(cell) for read, cell in zip(columns.values(), line, strict=True)]] if line else []
        except ValueError:
            must = f"{key} must have numbers for {', '.join(columns)} in each line"
            raise ConfigError([f"{must}, got another in line {number} of {path}"]) from None
    if key == "speeds" and not rows:
        raise ConfigError([f"speeds must have at least one line of a worker, got none in {path}"])
    return rows
