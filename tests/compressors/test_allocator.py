"""Fresh tensors after `keep_freed_memory` cost no page faults, once the allocator has filled its caches."""

from __future__ import annotations

import sys

import pytest

from tests import owned

PROGRAM = """
import resource, torch
from commeff.compressors.scratch import keep_freed_memory
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def clones(number):
    before = faults()
    for _ in range(number):
        y = x.clone()
        del y
    return faults() - before
x = torch.ones(16, 10**6)
without = clones(1)
kept = keep_freed_memory()
clones(16)
print(int(kept), clones(5), without)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_freed_memory_is_kept():
    kept, faults, faults_without = map(int, owned.run([sys.executable, "-c", PROGRAM], check=True).stdout.split())
    if not kept:
        pytest.skip("this C library has no mallopt")
    assert faults < 100 < faults_without
