"""The table of what composes with which axis is what the parts say of themselves."""

from __future__ import annotations

import pytest

from commeff.experiments.catalogue.composition import composition
from commeff.experiments.catalogue.facts import facts, layout_of
from commeff.experiments.config.plugins import choices
from commeff.experiments.config.schema import GROUPS, built_in

MINE = """
import torch
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy

def factored(optimizer: OptimizerFactory) -> Strategy:
    \"\"\"Adafactor within each tensor.\"\"\"
    return Strategy(Local(torch.optim.Adafactor))
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    file = tmp_path_factory.mktemp("plugin") / "mine.py"
    file.write_text(MINE)
    return composition(None, choices(str(file)))


def test_the_table_says_what_the_parts_say(everything):
    rows = {name: row.get("split", "") for name, row in everything.items()}
    everywhere, nowhere = (f"tensor {v}, shard {v}, pipeline {v}" for v in ("exact", "own"))
    assert rows["method=streaming_diloco"] == rows["method=power_sgd"] == rows["compressor=tern_grad"] == everywhere
    assert rows["compressor=top_k"] == nowhere
    assert rows["compressor=per_tensor"] == "tensor own, shard own, pipeline exact"
    assert rows["method=mem_sgd"] == "tensor as its compressor, shard as its compressor, pipeline as its compressor"
    assert rows["compressor=random_k"].startswith(f"{nowhere}; exact: RandomK(")
    assert "shared=True" in rows["compressor=random_k"]
    assert rows["optimizer=adamw"] == everywhere
    assert rows["method=marina"] == rows["method=lasg"] == everywhere.replace("exact", "no")
    assert rows["method=lag"] == everywhere


def test_a_plug_in_is_in_it(everything):
    row = everything.pop("method=factored")
    assert row[""] == "Adafactor within each tensor."
    assert row["split"] == "tensor no, shard no, pipeline exact"
    assert row["sends"].startswith("0 B, 0 B on the wire")


def test_every_choice_of_every_group_has_a_line(everything):
    assert {f"{group}={name}" for group in GROUPS for name in built_in(group)} == {*everything}
    assert all(row[""] for row in everything.values())


def test_every_method_says_what_it_sends_remembers_and_where_it_is_from(everything):
    rows = {name.partition("=")[2]: row for name, row in everything.items() if name.startswith("method=")}
    assert not [name for name, row in rows.items() if {"sends", "state", "absent", "split"} - {*row}]
    assert rows["ef21"]["sends"] == "65 kB, 975 kB on the wire (top_k, 0.01)"
    assert [rows[name]["state"] for name in ("psgd", "mem_sgd", "ef21_sgdm")] == ["0 models", "1 models", "3 models"]
    assert rows["choco"]["refuses"] == "graphs that change"
    assert "refuses" not in rows["dsgd"]
    assert "1902.00340" in rows["choco"]["paper"]
    assert {name for name, row in rows.items() if "paper" not in row} <= {"psgd"}


def test_other_parts_say_what_they_cost(everything):
    assert everything["compressor=scaled_sign"]["sends"].startswith("1 bits a number")
    assert everything["topology=one_peer_exponential"]["graph"].startswith("directed, repeats after 4 steps")
    assert "times 0 a step" in everything["topology=one_peer_exponential"]["graph"]
    assert [everything[f"optimizer={name}"]["state"] for name in ("sgd", "adam")] == ["0 models", "2 models"]


def test_the_size_of_the_model_is_given():
    small, large = (facts("psgd", layout_of(d)).sent for d in (10**4, 10**9))
    assert (small.payload_bytes, large.payload_bytes) == (4 * 10**4, 4 * 10**9)


def test_an_unknown_group_is_refused():
    with pytest.raises(ValueError, match="no group 'topologies'; did you mean topology"):
        composition("topologies", ())
