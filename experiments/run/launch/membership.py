"""Which member of which run this process is, read from its environment: env:// first, SLURM otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commeff.experiments.config.meshes import mesh_size

PORTS = range(15_000, 30_000)  # below those that Linux gives to outgoing connections
HOSTS = r"(?:[^,\[\]]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"  # of one name, as SLURM shortens them
NO_STEP = 2**32 - 16  # SLURM numbers batch scripts and interactive shells from here: those are no launches


@dataclass(frozen=True)
class Membership:
    """One of `size` processes of a run, and where they meet.

    Attributes
    ----------
    rank, size, local_rank : of this process, in the run and on its host.
    address, port : of the store at which the processes meet.
    launcher : "torchrun", "srun" or "env".
    restarts : how often the launcher has restarted them; torchrun counts on each host for itself.
    serves : whether rank 0 opens the store; else the launcher has done so.
    job : distinguishes this launch from others that meet at the same place.
    """

    rank: int
    size: int
    local_rank: int
    address: str
    port: int
    launcher: str
    restarts: int = 0
    serves: bool = True
    job: str = ""


def membership(environment: Mapping[str, str]) -> Membership | None:
    """The member that this process is; None where no launcher has started several processes.

    >>> slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "node[07-08]"}
    >>> member = membership(slurm | {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "1"})
    >>> member.rank, member.size, member.local_rank, member.address, member.launcher
    (3, 4, 1, 'node07', 'srun')
    >>> membership(slurm) is None  # the shell of sbatch or salloc
    True
    """
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if name in environment and other not in environment:
            raise ValueError(f"{name} is set but {other} is not; start with torchrun or srun, or unset {name}")
    member = _from_env(environment) if "RANK" in environment else _from_slurm(environment)
    if member is not None and not 0 <= member.rank < member.size:
        raise ValueError(f"rank must be from 0 to {member.size - 1}, got {member.rank}")
    return member


def _from_env(environment: Mapping[str, str]) -> Membership | None:
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if size < 1:
        raise ValueError(f"WORLD_SIZE must be at least 1, got {size}; start with torchrun or srun")
    if size < 2:
        return None
    return Membership(
        rank,
        size,
        _number(environment, "LOCAL_RANK", rank),
        _text(environment, "MASTER_ADDR"),
        _port(environment),
        launcher="torchrun" if "TORCHELASTIC_RUN_ID" in environment else "env",
        restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        serves=environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        job=environment.get("TORCHELASTIC_RUN_ID", ""),
    )


def _from_slurm(environment: Mapping[str, str]) -> Membership | None:
    step = environment.get("SLURM_STEP_ID", "")
    if "SLURM_PROCID" not in environment or not step.isdecimal() or int(step) >= NO_STEP:
        return None
    size = _number(environment, "SLURM_STEP_NUM_TASKS", _number(environment, "SLURM_NTASKS", 1))
    if size < 2:
        return None
    nodes = environment.get("SLURM_STEP_NODELIST") or _text(environment, "SLURM_JOB_NODELIST")
    job = _number(environment, "SLURM_JOB_ID")
    return Membership(
        _number(environment, "SLURM_PROCID"),
        size,
        _number(environment, "SLURM_LOCALID"),
        environment.get("MASTER_ADDR") or first_host(nodes),
        _port(environment, PORTS[(16 * job + int(step)) % len(PORTS)]),
        launcher="srun",
        restarts=_number(environment, "SLURM_RESTART_COUNT", 0),
        job=f"{job}.{step}",
    )


def first_host(nodelist: str) -> str:
    """The first host of a SLURM list.

    >>> first_host("node[003-005,9],login"), first_host("r[1-2]n[08,10].cluster")
    ('node003', 'r1n08.cluster')
    """
    match = re.fullmatch(f"({HOSTS})(?:,{HOSTS})*", nodelist)
    if match is None:
        raise ValueError(f"SLURM's list of hosts {nodelist!r} cannot be read; set MASTER_ADDR to the first host")
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", match[1])


def with_processes(config: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The configuration of a run on the `size` processes that a launcher has started.

    >>> with_processes({"nproc": 1, "workers": 8}, 4)
    {'nproc': 4, 'workers': 8}
    """
    nproc, workers, ranks = config["nproc"], config["workers"], mesh_size(config)
    if ranks not in (1, size):
        raise ValueError(
            f"the mesh must have as many ranks as there are processes, {size}, got {ranks}: change a degree, or start "
            f"{ranks} processes"
        )
    if nproc not in (1, size):
        raise ValueError(f"nproc must be {size}, got {nproc}: the launcher has started {size} processes; omit nproc=")
    if workers < size and ranks == 1:
        raise ValueError(
            f"workers must be at least {size}, got {workers}: each of {size} processes hosts one; "
            f"start at most {workers} processes, or raise workers="
        )
    return {**config, "nproc": size}


def _text(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise ValueError(
            f"{name} is not set, so the processes cannot find each other; start them with torchrun or srun"
        )
    return environment[name]


def _port(environment: Mapping[str, str], default: int | None = None) -> int:
    port = _number(environment, "MASTER_PORT", default)
    if not 0 < port < 2**16:
        raise ValueError(f"MASTER_PORT must be from 1 to 65535, got {port}")
    return port


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not environment.get(name):
        return default
    text = _text(environment, name)
    if not text.isdecimal():
        raise ValueError(f"{name} must be a whole number, got {text!r}")
    return int(text)
