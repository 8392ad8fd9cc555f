"""A run walks through the files of what it does: what is off, or nobody asked for, is not on its way."""

from __future__ import annotations

from pathlib import Path

from tests.walks import key

OFF = {
    "commeff/communicator/server.py",
    "commeff/communicator/wire/mailbox.py",
    "commeff/core/overflow.py",
    "commeff/training/mesh_checkpoints.py",
    "commeff/training/origin.py",
    "commeff/training/resharding.py",
    "commeff/transforms/clipping.py",
    "commeff/transforms/pieces.py",
    "experiments/config/loading.py",
    "experiments/config/sources.py",
    "experiments/run/crew.py",
    "experiments/run/local.py",
    "experiments/run/origins.py",
    "experiments/sinks/rows.py",
}


def test_a_plain_run_passes_by_what_it_does_not_use(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    assert all((root / file).is_file() for file in OFF)
    found = key(tmp_path)
    assert {"compressors/topk.py", "commeff/training/trainer.py"} <= {*found}
    assert not OFF & {*found}
