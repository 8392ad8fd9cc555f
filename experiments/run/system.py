"""The machine: what it is, as a number that was measured on it needs, and which of its processors computes."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import ConfigError

if TYPE_CHECKING:
    import torch

PACKAGES = ("commeff", "torch", "numpy", "networkx", "hydra-core")
TIMEOUT = 300.0  # seconds after which a process that waits for another gives up
VISIBLE = "CUDA_VISIBLE_DEVICES"
TUNING = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_GLOO_", "OMP_NUM_THREADS", VISIBLE)  # beginnings


def sys_info() -> dict[str, str]:
    """Host, processor, cores, memory, accelerators, versions and git commit."""
    import torch

    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cores": str(cores()),
        "threads": str(torch.get_num_threads()),
        "gpus": ", ".join(gpu_names()) or "none",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "commit": git_commit(),
    }


def whereabouts() -> dict[str, Any]:
    """One process of a run: where it is, and the variables that change how it computes and communicates."""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(TUNING)}
    return {"host": socket.gethostname(), "pid": os.getpid(), "cores": cores(), "variables": variables}


def launch_info(
    launcher: str, backend: str, members: Sequence[Mapping[str, Any]], restarts: int, timeout: float
) -> dict[str, Any]:
    """How the processes of a run were started, and which is where.

    The variables are rank 0's; a member with others has them beside it.

    >>> here = {"host": "a", "pid": 7, "cores": 2, "variables": {"OMP_NUM_THREADS": "1"}}
    >>> launch_info("torchrun", "gloo", [here], restarts=1, timeout=300.0)["members"]
    [{'rank': 0, 'host': 'a', 'pid': 7, 'cores': 2}]
    """
    common = members[0]["variables"]
    places = []
    for rank, facts in enumerate(members):
        variables = {"variables": facts["variables"]} if facts["variables"] != common else {}
        places.append({"rank": rank, **{key: facts[key] for key in ("host", "pid", "cores")}, **variables})
    return {
        "launcher": launcher,
        "world_size": len(members),
        "backend": backend,
        "restarts": restarts,
        "timeout": timeout,
        "members": places,
        "variables": common,
    }


def timeout_seconds(environment: Mapping[str, str]) -> float:
    """Seconds after which a process that waits for another gives up: COMMEFF_TIMEOUT, or five minutes.

    An environment variable and not a key: it belongs to the network and the file system, and launchers pass it on to
    every process.

    >>> timeout_seconds({}), timeout_seconds({"COMMEFF_TIMEOUT": "20"})
    (300.0, 20.0)
    """
    text = environment.get("COMMEFF_TIMEOUT", str(TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds < 1e6:
        raise ValueError(f"COMMEFF_TIMEOUT must be seconds in [1, 1000000), got {text!r}")
    return seconds


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def cpu_name() -> str:
    """The processor's model name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """The names of NVIDIA's GPUs, from nvidia-smi: a process that counts them with torch cannot fork to use them."""
    return (_output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The names by which CUDA knows the GPUs that this process may use: indices, or the UUIDs that SLURM gives.

    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2,GPU-8f"}), visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    (['2', 'GPU-8f'], [])
    """
    if VISIBLE in environment:
        return [name.strip() for name in environment[VISIBLE].split(",") if name.strip()]
    return [str(index) for index in range(len(gpu_names()))]


def own_device(kind: str, local_rank: int = 0) -> torch.device:
    """The device of that kind for the local_rank-th process of a machine: its GPUs are dealt in turn.

    >>> own_device("cpu", local_rank=3)
    device(type='cpu')
    """
    import torch

    if kind == "cpu":
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if not gpus:
        raise ConfigError(
            [f"device must be cpu, got {kind}: torch {torch.__version__} sees no GPU here; choose device=cpu"]
        )
    return torch.device("cuda", local_rank % gpus)


def check_device(kind: str, nproc: int) -> None:
    """Refuse a device that is not there, or too few of them for the processes of this machine."""
    import torch

    own_device(kind)
    gpus = torch.cuda.device_count()
    if kind == "cuda" and nproc > gpus:
        raise ConfigError(
            [f"nproc must be at most {gpus}, got {nproc}: each process takes one of the {gpus} GPUs; give nproc={gpus}"]
        )


@cache
def git_commit() -> str:
    """The commit of our source tree, with "+" if files differ from it; "unknown" where we are installed.

    It is that of the first call, since a command may write several of the tree's files.
    """
    return revision(Path(__file__)) or "unknown"


def revision(file: Path) -> str:
    """The commit of the repository that a file belongs to, with "+" if anything there differs from it; "" if to none.

    What merely lies in the folder of a repository, as an environment in a project's folder does, is not of it.
    """
    if git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return ""
    commit = git(file.parent, "rev-parse", "--short=10", "HEAD")
    changes = git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if changes else "") if commit else ""


def git(folder: Path, *arguments: str) -> str | None:
    """Git's answer in a folder; None if it refuses, or is not there."""
    return _output("git", "-C", str(folder), *arguments)


def _output(*words: str) -> str | None:
    """What a command prints; None if it fails, or is not there."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
