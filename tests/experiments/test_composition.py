"""The table of what composes with which axis is what the parts say of themselves."""

from __future__ import annotations

import pytest

from commeff.experiments.config.composition import composition
from commeff.experiments.config.plugins import choices
from commeff.experiments.config.schema import GROUPS, built_in


def test_the_table_says_what_the_parts_say(tmp_path):
    rows = {name: words.partition("  Split: ")[2] for name, words in composition(None, ()).items()}
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
        '    """Adafactor within each tensor."""\n'
        "    return Strategy(Local(torch.optim.Adafactor))\n"
    )
    words = composition("method", choices(str(file)))["method=factored"]
    assert words == "Adafactor within each tensor.  Split: tensor no, shard no, pipeline exact"


def test_every_choice_of_every_group_has_a_line():
    rows = composition(None, ())
    assert {f"{group}={name}" for group in GROUPS for name in built_in(group)} == {*rows} - {"Split"}
    assert all(words.partition("  Split")[0] for words in rows.values())
    assert not any("Split" in words for words in composition("topology", ()).values())


def test_an_unknown_group_is_refused():
    with pytest.raises(ValueError, match="no group 'topologies'; did you mean topology"):
        composition("topologies", ())
