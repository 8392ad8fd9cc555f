"""Fresh tensors after `keep_freed_memory` cost no page faults, once the allocator has filled its caches."""

from __future__ import annotations

import sys

import pytest

from tests import owned

PROGRAM = """
import resource, torch
from commeff.training.allocator import keep_freed_memory
kept = {keep} and keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
x = torch.ones(16, 10**6)
for _ in range(16):
    y = x.clone()
    del y
before = faults()
for _ in range(5):
    y = x.clone()
    del y
print(int(kept), faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_freed_memory_is_kept():
    def run(keep):
        program = [sys.executable, "-c", PROGRAM.format(keep=keep)]
        return map(int, owned.run(program, check=True).stdout.split())

    kept, faults = run(True)
    _, faults_without = run(False)
    if not kept:
        pytest.skip("this C library has no mallopt")
    assert faults < 100 < faults_without
