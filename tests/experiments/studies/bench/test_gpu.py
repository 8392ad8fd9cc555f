"""`commeff bench gpu`, in small on the CPU: every figure is measured, and without a GPU one line says so."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff.cluster.hardware import GPU
from commeff.experiments.studies.bench import gpu
from commeff.experiments.tasks.language.gpt import GPT

pytestmark = pytest.mark.slow  # of a study, which nobody installs


PEAK = 1e12


@pytest.fixture(autouse=True)
def _known_peak(monkeypatch):
    here = GPU("a core", memory_bytes=2**30, memory_bandwidth=1e10, peak_flops={"bf16": PEAK})
    monkeypatch.setattr(gpu, "gpu_called", {"cpu": here}.get)


def test_every_figure_is_measured(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    build = partial(GPT, layers=1, heads=2, width=16)
    figures = [*gpu.run("cpu", build, sequences=2, context=8, images=2, d=1000, length=2**16, rounds=1)]
    assert all(figure.value > 0 for figure in figures)
    assert {"model FLOP utilisation, bf16 compiled", "naive / engine=vmap", "share of copy speed"} <= {
        figure.what for figure in figures
    }


def test_utilisation_is_that_of_one_step(monkeypatch):
    monkeypatch.setattr(gpu, "time_interleaved", lambda contestants, *_, **__: {name: [3e-9] for name in contestants})
    figures = gpu.gpt("cpu", partial(GPT, layers=1, heads=2, width=16), sequences=2, context=8, rounds=1)
    weights = gpu.VOCABULARY * 16 + 12 * 16**2  # without positions, which are looked up
    expected = 2 * 8 * (6 * weights + 12 * 16 * 8) / 1e-9 / PEAK  # three steps in 3 ns
    found = [figure.value for figure in figures if figure.what.startswith("model FLOP")]
    assert found == pytest.approx([expected] * 6)


def test_without_a_gpu_there_is_one_line(monkeypatch):
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="needs a GPU"):
        next(gpu.run())
