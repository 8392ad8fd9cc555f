"""`profile=`: a trace of as many steps as were asked for, of a run that is the same and has the same name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one

WORDS = ["task=quadratic", "workers=2", "steps=14"]


def test_the_steps_after_the_tenth_are_traced_and_the_run_is_the_same(tmp_path: Path) -> None:
    plain, asked = compose(WORDS), compose([*WORDS, "profile=3"])
    assert run_id(plain) == run_id(asked)
    ends = [run_one(config, tmp_path / name) for name, config in (("plain", plain), ("traced", asked))]
    assert len({end["val_loss"] for end in ends}) == 1
    assert not (tmp_path / "plain" / "trace.json").exists()
    events = json.loads((tmp_path / "traced" / "trace.json").read_text())["traceEvents"]
    steps = {event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#10", "ProfilerStep#11", "ProfilerStep#12"}


@pytest.mark.parametrize(("steps", "there"), [(9, False), (12, True)])
def test_a_run_that_ends_before_has_what_there_was(tmp_path: Path, steps: int, there: bool) -> None:
    run_one(compose([*WORDS[:2], f"steps={steps}", "profile=5"]), tmp_path / "run")
    assert (tmp_path / "run" / "trace.json").exists() is there
