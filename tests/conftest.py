"""One thread per process, and no process that outlives its test.

Test processes run side by side, and results do not depend on the machine's cores.
"""

import gc
import os
from collections.abc import Iterator

import pytest

from tests.owned import lifeline


def pytest_configure() -> None:
    """Let nobody wait for a disk: what tests write needs not outlast a power cut."""
    os.fsync = lambda descriptor: None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prepare to run tests: where xdist deals them to others, these would wait while torch is imported for nothing."""
    if session.config.getoption("dist", "no") == "no":
        import torch

        from tests.forks import fork_servers

        torch.set_num_threads(1)
        # A CUDA build without a GPU would pretend to have one for fake tensors, with a thread that no fork survives.
        torch._C._ensureCUDADeviceGuardSet = lambda: None
        fork_servers()


def pytest_collection_finish() -> None:
    """Collect what tests make, and not half a million objects of the suite in every fork again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_processes() -> Iterator[None]:
    """Kill what a test has left behind."""
    with lifeline():
        yield
