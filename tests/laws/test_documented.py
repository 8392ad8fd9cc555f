"""What can be chosen is documented: `commeff show` says what each parameter of a part does, and shows an example."""

from __future__ import annotations

import inspect
import re

import pytest

from commeff.experiments.catalogue.describe import explanation
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import built_in, node

TARGETS = {
    group: [node(group, name)["_target_"] for name in built_in(group)] for group in ("method", "compressor", "topology")
}
OPTIMIZERS = [node("optimizer", name)["_target_"] for name in built_in("optimizer")]
PARTS = [target for targets in TARGETS.values() for target in targets]
PARTS += [target for target in OPTIMIZERS if target.startswith("commeff.")]  # torch documents its own


def documented(text: str) -> set[str]:
    """The names in the Parameters sections of a docstring."""
    sections = re.findall(r"Parameters\n-+\n(.*?)(?=\n\n?[A-Z]\w+\n---|\n>>>|\Z)", text, re.DOTALL)
    heads = [line.partition(" : ")[0] for section in sections for line in section.splitlines()]
    return {name.strip() for head in heads if head and not head.startswith(" ") for name in head.split(",")}


@pytest.mark.parametrize("target", PARTS)
def test_every_parameter_is_explained(target: str) -> None:
    missing = set(inspect.signature(locate(target)).parameters) - documented(explanation(target))
    assert not missing, f"{target}: {', '.join(sorted(missing))} has no line under Parameters"


@pytest.mark.parametrize("target", PARTS)
def test_everything_shows_an_example(target: str) -> None:
    assert ">>> " in explanation(target)


@pytest.mark.parametrize("target", PARTS)
def test_everything_says_when_to_use_it(target: str) -> None:
    assert re.search(r"^When: \w", explanation(target), re.MULTILINE)


@pytest.mark.parametrize("target", TARGETS["method"])
def test_a_method_says_what_it_remembers_sends_and_where_it_is_from(target: str) -> None:
    text = explanation(target)
    assert re.search("Memory: |its memory", text)
    assert re.search("Sends(:| )|its .*messages", text)
    assert "References\n" in text or target == "commeff.methods.psgd"
    assert len(text.partition("\n")[0]) < 120


def test_names_are_read_from_the_section_alone() -> None:
    section = "Parameters\n----------\nk : int\n    Number.\na, b\n    Two.\n"
    assert documented(f"What.\n\n{section}\nExamples\n--------\n>>> c") == {"k", "a", "b"}
