"""`commeff bench shard`: contestants compute the same, memory is counted, and every stage has its limits."""

from __future__ import annotations

import pytest
import torch

from commeff.experiments.studies.bench.shard import (
    MOST_MEMORY,
    MOST_SECONDS,
    STAGES,
    contestants,
    most_memory,
    run,
)
from commeff.sharding import Mesh
from tests.experiments.studies.bench.test_tensor import SMALL
from tests.laws.processes import on_processes

pytestmark = pytest.mark.slow  # of a study, which nobody installs


def test_contestants_have_the_same_losses():
    def member():
        return {name: [float(step()) for _ in range(3)] for name, step in contestants(SMALL, Mesh(shard=2)).items()}

    for losses in on_processes(2, member):
        assert len(losses) == 1 + len(STAGES)
        assert all(of == pytest.approx(losses["FSDP2"], abs=1e-5) for of in losses.values())


def test_the_memory_of_a_step_is_that_above_what_it_finds():
    kept = [torch.zeros(1000)]

    def step():
        new = torch.ones(1000)  # beside the one that it replaces
        torch.ones(5000)
        kept[0] = new
        return new

    assert 4 * 6000 <= most_memory(step) <= 4 * 6000 + 100


def test_every_stage_has_both_limits():
    figures = run(SMALL, SMALL, rounds=1)
    assert [figure.at_most for figure in figures] == [MOST_SECONDS] * 4 + [None] + [MOST_MEMORY] * 8
    assert all(figure.value > 0 for figure in figures)
