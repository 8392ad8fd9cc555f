"""What a terminal shows of a choice: no markup of the documentation."""

from __future__ import annotations

import re

import pytest

from commeff.experiments.catalogue.describe import catalogue, docstrings, explanation
from commeff.experiments.config.schema import GROUPS, built_in, node

MARKUP = re.compile(r":math:|``[^`]|\\\\[A-Za-z]{2}")


@pytest.mark.parametrize("group", GROUPS)
def test_no_markup_of_mathematics_reaches_a_terminal(group: str) -> None:
    for name, line in catalogue(group, ()).items():
        text = explanation(node(group, name)["_target_"], name)
        assert text, name
        assert not MARKUP.findall(f"{line}\n{text}"), name


def test_there_is_such_markup() -> None:
    assert any(MARKUP.search(docstrings(node("topology", name)["_target_"])[0]) for name in built_in("topology"))
