"""`commeff plan --calibrate`: a machine that is known is found again, from its steps alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commeff.experiments.planning.calibrate import Calibration, calibrated, errors, read_steps
from commeff.experiments.planning.question import read_question
from tests.experiments.planning.test_plan import found, plan

WORDS = ["model=gpt3-xl", "cluster=a100_10g", "gpus=16"]
ROWS = ["2,1,1", "2,2,4", "4,1,2", "4,2,8", "8,1,1", "8,2,16", "1,1,2", "1,4,4"]


def table(folder: Path, truth: Calibration, noise: float = 0.0) -> Path:
    """A table of steps on a machine of which the planner knows nothing."""
    random, lines = np.random.default_rng(0), ["tensor,pipeline,micro_batch,step_seconds"]
    for row in ROWS:
        words = [
            f"{key}={value}" for key, value in zip(("tensor", "pipeline", "micro_batch"), row.split(","), strict=True)
        ]
        question = truth.of(read_question([*WORDS, "global_batch=256", *words]))
        seconds = question.predict(question.one()).step_seconds * np.exp(noise * random.normal())
        lines.append(f"{row},{seconds}")
    path = folder / "measured.csv"
    path.write_text("\n".join(lines))
    return path


def test_the_factors_of_a_machine_are_found(tmp_path):
    truth = Calibration(efficiency=0.6, latency=3.0)
    steps = read_steps(table(tmp_path, truth), [*WORDS, "global_batch=256"])
    calibration, said = calibrated(steps)
    assert calibration == pytest.approx(truth, rel=0.01)
    assert "0.0 % off" in said
    noisy = read_steps(table(tmp_path, truth, noise=0.05), [*WORDS, "global_batch=256"])
    assert abs(errors(noisy, calibrated(noisy)[0])).mean() < 0.06


def test_a_plan_is_made_on_the_calibrated_machine(tmp_path):
    path = str(table(tmp_path, Calibration(efficiency=0.5)))
    words = [*WORDS, "global_batch=256", "tensor=8"]
    plain, own = found(*words), found(*words, "--calibrate", path)
    assert own["seconds"]["compute"] > 1.1 * plain["seconds"]["compute"]
    assert (
        "8 measured steps: efficiency x 0.5" in plan(*words[:-1], "--calibrate", path, "--search", "--top", "1").stdout
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("tensor,step_seconds\n1,2\n", "at least 4 measured steps, got 1"),
        (
            "tensor,step_seconds\n1,2\n2,0\n4,1\n8,1\n",
            "row 2: step_seconds must be a number of seconds above 0, got '0'",
        ),
        ("tensor,seconds\n1,2\n2,0\n4,1\n8,1\n", "step_seconds must be"),
        ("tensors,step_seconds\n1,2\n2,0.1\n4,1\n8,1\n", "did you mean tensor"),
        ("tensor,step_seconds\n1,2\n3,0.1\n4,1\n8,1\n", "row 2: .*tensor"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_one_line(content, said, tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=said) as refusal:
        read_steps(path, WORDS)
    assert "\n" not in str(refusal.value)
