"""The C library's allocator, for programs that make and drop large tensors at every step."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # the names M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's mallopt


def keep_freed_memory() -> bool:
    """Let the allocator keep what is freed, so that a new large tensor costs no page faults.

    Without it a fresh tensor above 32 MB is written several times more slowly than an old one, and equations written
    with temporaries pay for it at every step. The price: freed memory stays with the process, at its peak. Call once,
    at the start of a program.

    It takes some steps to have effect. torch asks for aligned blocks, of which glibc cuts the ends off, and keeps up to
    seven ends of each size in a cache of the thread. While an end lies there, the freed block before it is too small
    for the next tensor of the same size, which then gets new memory; once the cache is full, blocks are used again.

    Returns
    -------
    bool
        Whether the allocator does; False where it is not glibc's.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
