"""Lightning, accelerate and transformers with a method: psgd in them is what they do by themselves."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import owned

SCRIPT = Path(__file__).with_name("other_trainers.py")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("trainer", ["lightning", "accelerate", "transformers"])
def test_psgd_is_what_the_trainer_does_by_itself(trainer: str, tmp_path: Path) -> None:
    """With accumulation and a schedule; and a run of a method whose workers differ goes on from a checkpoint."""
    if find_spec(trainer) is None:  # importing takes seconds
        pytest.skip(f"needs {trainer}")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = owned.run(
        [*torchrun, str(SCRIPT), trainer, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    differences = [float(each) for line in re.findall(r"differences \[(.*)\]", done.stdout) for each in line.split(",")]
    assert len(differences) >= 2
    assert max(differences) <= 1e-10, differences
