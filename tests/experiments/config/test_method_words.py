"""A method alone, from the words of `commeff train`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from commeff import Communicator
from commeff.compressors import Layout
from commeff.experiments.config.method_words import strategy
from commeff.experiments.config.plugins import adopt
from commeff.experiments.config.schema import ConfigError, built_in
from commeff.optimizers.curvature import Flat

PLUGIN = """
from functools import partial
from commeff import Average, Local, Strategy

def mine(optimizer) -> Strategy:
    return Strategy(Local(optimizer), gradients=Average())
"""


@pytest.mark.parametrize("method", built_in("method"))
def test_every_method_takes_a_step_of_what_its_words_describe(method: str) -> None:
    found, config = strategy([f"method={method}"], workers=8)
    x, communicator = torch.zeros(8, 12), Communicator(8, collective=config["collective"])
    found.start(x, Layout.of([("weight", (3, 4))]), communicator)
    assert found.step(x, torch.ones(8, 12), communicator, Flat()).shape == x.shape


def test_a_plugin_is_a_method_like_others(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    choices, _ = adopt([str(tmp_path / "mine.py")])
    found, config = strategy(["method=mine", "collective=ring"], workers=2, plugins=choices)
    assert type(found.gradients).__name__ == "Buckets"
    assert config["collective"] == "ring"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["method=psgd", "steps=3"], "keys must describe a method here, got 'steps=3'"),
        (["method=psgd", "model=cnn"], "keys must describe a method here, got 'model=cnn'"),
        (["method=psgd", "task.batch=3"], "keys must describe a method here, got 'task.batch=3'"),
        (["method=psgd", "compressor=top_k"], "method psgd takes no compressor"),
        (["method=chocolate"], "no method 'chocolate'"),
        (["method=dsgd", "topology=hypercube"], "dsgd, hypercube with 6 workers: hypercube: n must be"),
        (["method=mem_sgd", "compressor.ratio=3"], "ratio"),
    ],
)
def test_words_that_fit_no_method_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        strategy(words, workers=6)
