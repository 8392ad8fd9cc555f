"""`commeff plan --calibrate`: a machine that is known is found again, from its steps alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commeff.cluster import FatTree, Rails
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


def test_every_latency_is_scaled_by_one_factor_and_every_rate_of_kernels_by_the_other():
    plain = read_question(WORDS)
    plain = replace(plain, cluster=replace(plain.cluster, network=Rails(FatTree((2,), (1,), hop=1e-6))))
    own = Calibration(efficiency=0.5, latency=3.0).of(plain)
    assert own.cluster.network == Rails(FatTree((2,), (1,), hop=3e-6))
    for link in ("intra", "inter"):
        assert getattr(own.cluster, link).latency == 3 * getattr(plain.cluster, link).latency
        assert getattr(own.cluster, link).bandwidth == getattr(plain.cluster, link).bandwidth
    assert own.constants.kernel_seconds == 3 * plain.constants.kernel_seconds
    for share in ("gemm_efficiency", "memory_efficiency"):
        assert getattr(own.constants, share) == getattr(plain.constants, share) / 2


def test_a_step_that_was_measured_again_is_one_step_of_their_mean(tmp_path):
    path, words = table(tmp_path, Calibration()), [*WORDS, "global_batch=256"]
    once = read_steps(path, words)
    path.write_text("\ufeff" + path.read_text() + f"\n{ROWS[3]},{4 * once[3].seconds}", encoding="utf-8")
    again = read_steps(path, words)
    assert [step.policy for step in again] == [step.policy for step in once]
    ratios = [b.seconds / a.seconds for a, b in zip(once, again, strict=True)]
    assert ratios == pytest.approx([1, 1, 1, 2, 1, 1, 1, 1])


def test_a_factor_that_a_fit_would_have_beyond_its_bound_is_said(tmp_path):
    within, beyond = (
        calibrated(read_steps(table(tmp_path, Calibration(efficiency=share)), [*WORDS, "global_batch=256"]))[1]
        for share in (0.5, 0.05)
    )
    assert "at its bound" in beyond
    assert "at its bound" not in within


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("tensor,step_seconds\n1,2\n", "at least 4 different measured steps, got 1"),
        (
            "tensor,step_seconds\n1,2\n2,0\n4,1\n8,1\n",
            "row 2: step_seconds must be a number of seconds above 0, got '0'",
        ),
        ("", "must have a column step_seconds"),
        ("tensor,seconds\n1,2\n2,0\n4,1\n8,1\n", "must have a column step_seconds and each column once, got tensor"),
        ("tensor,tensor,step_seconds\n1,1,2\n2,2,1\n4,4,1\n8,8,1\n", "each column once, got tensor, tensor"),
        ("tensor,step_seconds\n1,2\n2\n4,1\n8,1\n", "row 2: step_seconds must be .* got ''"),
        ("tensor,step_seconds\n1,2\n2,1,3\n4,1\n8,1\n", "row 2: must have a cell for each column, got more"),
        ("tensor,step_seconds\n" + "1,2\n2,1\n" * 4, "at least 4 different measured steps, got 2"),
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
