"""Every law of `compressors.laws` on every configuration that a compressor class offers."""

from __future__ import annotations

import pytest

from commeff import compressors  # noqa: F401
from commeff.compressors.laws import INFORMATION, LAWS, concrete

OURS = [kind for kind in concrete() if kind.__module__.startswith("commeff.compressors.")]
CASES = [sample for kind in OURS for sample in kind.samples()]


@pytest.mark.parametrize("law", [*LAWS, *INFORMATION], ids=lambda law: law.__name__.removeprefix("check_"))
@pytest.mark.parametrize("compressor", CASES, ids=repr)
def test_law(compressor, law):
    law(compressor)
