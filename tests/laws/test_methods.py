"""Every function of the catalogue under every law of `commeff.laws`, picked up without being listed."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from commeff import Strategy, laws, methods

CATALOGUE = [
    f for _, f in inspect.getmembers(methods, inspect.isfunction) if get_type_hints(f).get("return") is Strategy
]
CASES = [case for method in CATALOGUE for case in laws.cases(method)]


def test_the_catalogue_is_found():
    assert len(CATALOGUE) >= 16
    assert all(not method.__name__.startswith("_") for method in CATALOGUE)


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_law(case, law):
    law(case)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_gpu_takes_the_same_way(case):
    here, there = laws.run(case.build(laws.WORKERS))[0], laws.run(case.build(laws.WORKERS), device="cuda")[0]
    assert (here - there.cpu()).abs().max() <= 1e-10
