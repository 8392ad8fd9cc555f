"""Every function of the catalogue under every law of `commeff.laws`, picked up without being listed."""

from __future__ import annotations

import inspect
from functools import partial
from typing import get_type_hints

import pytest
import torch

from commeff import Strategy, laws, methods
from commeff.core import scheduled

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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_rate_of_0_divides_nothing(case):
    """A warm-up begins with it, and a schedule may come back to it."""
    method, arguments = case.build.args
    schedule = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: (step % 3) / 2)
    rated = arguments | {"optimizer": scheduled(arguments["optimizer"], schedule)}
    assert laws.run(case.build.func(method, rated, laws.WORKERS))[0].isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_gpu_takes_the_same_way(case):
    here, there = laws.run(case.build(laws.WORKERS))[0], laws.run(case.build(laws.WORKERS), device="cuda")[0]
    assert (here - there.cpu()).abs().max() <= 1e-10
