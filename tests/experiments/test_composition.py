"""The table of what composes with which axis is what the parts say of themselves."""

from __future__ import annotations

import pytest

from commeff.experiments.config.composition import composition
from commeff.experiments.config.plugins import choices


def test_the_table_says_what_the_parts_say(tmp_path):
    rows = composition(None, ())
    everywhere, nowhere = (f"tensor {v}, shard {v}, pipeline {v}" for v in ("exact", "own"))
    assert rows["method=streaming_diloco"] == rows["method=power_sgd"] == rows["compressor=tern_grad"] == everywhere
    assert rows["compressor=top_k"] == nowhere
    assert rows["compressor=per_tensor"] == "tensor own, shard own, pipeline exact"
    assert rows["method=mem_sgd"] == "tensor as its compressor, shard as its compressor, pipeline as its compressor"
    assert rows["compressor=random_k"].startswith(f"{nowhere}; exact: RandomK(")
    assert "shared=True" in rows["compressor=random_k"]
    assert rows["optimizer=adamw"] == everywhere


def test_a_plug_in_is_in_it(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom commeff.core.local import Local, OptimizerFactory\n"
        "from commeff.core.strategy import Strategy\n\n"
        "def factored(optimizer: OptimizerFactory) -> Strategy:\n"
        "    return Strategy(Local(torch.optim.Adafactor))\n"
    )
    assert composition("method", choices(str(file)))["method=factored"] == "tensor no, shard no, pipeline exact"


def test_other_groups_are_not():
    with pytest.raises(ValueError, match="--long is of method, compressor, optimizer, got topology"):
        composition("topology", ())
