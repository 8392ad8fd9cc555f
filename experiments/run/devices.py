"""Which processor a process computes on."""

from __future__ import annotations

import torch

from commeff.experiments.config.schema import ConfigError


def own_device(kind: str, local_rank: int = 0) -> torch.device:
    """The device of that kind for the local_rank-th process of a machine: its GPUs are dealt in turn.

    >>> own_device("cpu", local_rank=3)
    device(type='cpu')
    """
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
    own_device(kind)
    gpus = torch.cuda.device_count()
    if kind == "cuda" and nproc > gpus:
        raise ConfigError(
            [f"nproc must be at most {gpus}, got {nproc}: each process takes one of the {gpus} GPUs; give nproc={gpus}"]
        )
