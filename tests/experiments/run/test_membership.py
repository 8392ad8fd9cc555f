"""Which member of which run a process is, as its environment says; half an environment is refused."""

from __future__ import annotations

import pytest

from commeff.experiments.run.launch.membership import Membership, first_host, membership
from commeff.experiments.run.system import timeout_seconds

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
SRUN = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_STEP_ID": "0"}
SRUN |= {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "gpu[09-10]"}


def test_torchrun_says_who_a_process_is() -> None:
    assert membership(TORCHRUN | SRUN) == Membership(1, 2, 1, "h", 29500, "torchrun", restarts=2, serves=False, job="x")
    bare = {name: TORCHRUN[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    assert membership(bare) == Membership(1, 2, 1, "h", 29500, "env")


def test_srun_says_who_a_process_is() -> None:
    found = membership(SRUN)
    assert found == Membership(2, 4, 0, "gpu09", found.port if found else 0, "srun", job="4711.0")
    ports = {member.port for step in range(8) if (member := membership(SRUN | {"SLURM_STEP_ID": str(step)}))}
    assert len(ports) == 8
    assert all(1024 < port < 32768 for port in ports)
    assert membership(SRUN | {"SLURM_RESTART_COUNT": ""}) == found
    part_of_the_job = membership(SRUN | {"SLURM_STEP_NODELIST": "gpu10", "SLURM_STEP_NUM_TASKS": "3"})
    assert part_of_the_job is not None
    assert (part_of_the_job.address, part_of_the_job.size) == ("gpu10", 3)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"},
        SRUN | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
        {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"},  # the shell of sbatch
        SRUN | {"SLURM_STEP_ID": str(2**32 - 6)},  # the shell of salloc
    ],
)
def test_a_process_alone_is_no_member(environment: dict[str, str]) -> None:
    assert membership(environment) is None


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "0"}, "WORLD_SIZE is not"),
        ({"WORLD_SIZE": "4"}, "RANK is not"),
        (TORCHRUN | {"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE must be at least 1, got 0"),
        (TORCHRUN | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        (TORCHRUN | {"MASTER_PORT": "x"}, "MASTER_PORT must be a whole number"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "MASTER_PORT must be from 1 to 65535, got 70000"),
        (SRUN | {"MASTER_PORT": "0"}, "MASTER_PORT must be from 1 to 65535, got 0"),
        (TORCHRUN | {"RANK": "2"}, "rank must be from 0 to 1, got 2"),
        ({name: value for name, value in SRUN.items() if name != "SLURM_JOB_NODELIST"}, "SLURM_JOB_NODELIST is not"),
    ],
)
def test_half_an_environment_is_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        membership(environment)


def test_host_lists_are_read_as_slurm_writes_them() -> None:
    assert first_host("a") == "a"
    assert first_host("a1,b[1-2],c") == "a1"
    assert first_host("n[098-101]") == "n098"
    assert first_host("r[0-1]c[5,7-8]-ib") == "r0c5-ib"
    for broken in ("[", "node[1-", "node[x]", "a,,b", "a,", ""):
        with pytest.raises(ValueError, match="cannot be read"):
            first_host(broken)


@pytest.mark.parametrize("text", ["0", "soon", "nan", "-3", "inf"])
def test_the_timeout_is_a_number_of_seconds(text: str) -> None:
    with pytest.raises(ValueError, match="COMMEFF_TIMEOUT must be seconds in"):
        timeout_seconds({"COMMEFF_TIMEOUT": text})
