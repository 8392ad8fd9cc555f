"""What tables measure without training: against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.reproduce.measures import compression, gossip, low_rank
from commeff.topologies import ring

GOSSIP = "method=dsgd task=quadratic workers=8 topology=ring"
CHOCO = "method=choco task=quadratic task.dimension=20 workers=8 topology=ring compressor=top_k compressor.ratio=0.1"
MATRIX = "method=power_sgd task=quadratic task.dimension=96 task.columns=8 workers=1"


def test_plain_gossip_shrinks_a_disagreement_by_the_square_of_rho() -> None:
    found = gossip(compose(f"{GOSSIP} steps=100".split()))
    assert found["rate"] == pytest.approx(ring(8).at(0).rho ** 2, rel=1e-3)
    assert found["per_digit"] == pytest.approx(-math.log(10) / math.log(found["rate"]))
    assert found["bytes_per_digit"] == pytest.approx(20 * 8 * found["per_digit"])
    assert found["worst"] < found["rate"]  # a random start is no eigenvector
    assert found["drift"] < 1e-14


def test_compressed_gossip_keeps_the_mean_and_diverges_where_its_step_is_too_large() -> None:
    slow, quick, lost = (gossip(compose(f"{CHOCO} steps=400 method.gamma={gamma}".split())) for gamma in (0.02, 0.1, 1))
    assert 1 > slow["rate"] > quick["rate"]
    assert slow["worst"] > quick["worst"]
    assert slow["drift"] < 1e-13
    assert (lost["rate"] > 1, lost["per_digit"]) == (True, math.inf)


def test_five_levels_round_six_tenths_to_a_half_or_three_quarters() -> None:
    words = "method=compressed_sgd task=quadratic task.dimension=2000 compressor=qsgd compressor.levels=4"
    found = compression(compose([*words.split(), "compressor.norm=max"]))
    assert found["mean"] == pytest.approx(0.6, abs=2e-3)
    assert found["up"] == pytest.approx(0.4, abs=0.01)
    assert compression(compose(words.split()))["up"] < 0.1  # in multiples of a quarter of the norm


def test_power_sgd_comes_to_the_best_approximation_of_its_rank() -> None:
    first, last = (low_rank(compose(f"{MATRIX} method.rank=4 steps={steps}".split())) for steps in (1, 15))
    tail = 1 / np.arange(1, 9) ** 2
    assert first["heavy_best"] == pytest.approx(tail[4:].sum() / tail.sum())
    assert first["heavy_bound"] == pytest.approx(3 * tail[2:].sum() / tail.sum())
    assert first["best"] < last["error"] < first["error"]
    assert first["heavy_error"] > 1.5 * first["heavy_best"]
    assert last["heavy_error"] == pytest.approx(first["heavy_best"], rel=1e-3)
    assert all(seen["heavy_error"] > (1 - 1e-10) * seen["heavy_best"] for seen in (first, last)), "Eckart, Young 1936"


def test_low_rank_needs_a_matrix_and_power_sgd() -> None:
    for words in ("method=power_sgd task=quadratic workers=1", "method=psgd task=quadratic task.columns=4 workers=1"):
        with pytest.raises(ValueError, match="one matrix, such as quadratic"):
            low_rank(compose(words.split()))
