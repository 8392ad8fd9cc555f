"""How a process joins the others of a run on one machine, and leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist


@contextmanager
def joined(rank: int, size: int, meeting: Path, timeout: float) -> Iterator[None]:
    """Member `rank` of a gloo group of `size` processes that meet at a file which none of them has made before.

    timeout : seconds after which whoever waits for another process gives up.
    """
    store = dist.FileStore(str(meeting), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    yield
    dist.barrier()  # nobody closes a connection that another still reads
    dist.destroy_process_group()
