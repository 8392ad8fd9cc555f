"""Every law of `compressors.laws` on every configuration that a compressor class offers."""

from __future__ import annotations

import pytest

import compressors  # noqa: F401
from compressors.laws import LAWS, concrete

CASES = [sample for kind in concrete() if kind.__module__.startswith("compressors.") for sample in kind.samples()]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__.removeprefix("check_"))
@pytest.mark.parametrize("compressor", CASES, ids=repr)
def test_law(compressor, law):
    law(compressor)
