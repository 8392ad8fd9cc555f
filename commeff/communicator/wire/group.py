"""Process groups: the store at which the processes of a run meet, joining the group, and leaving it."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from commeff.communicator.wire.records import broadcast_state, gather_states, share_json

LOOPBACK = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1"}  # addresses that nobody else reaches
PER_PROCESS = 7  # open files that another process of the machine takes, at most: gloo's, ours, and the parent's pipes
Store = dist.Store
T = TypeVar("T")


def store_in_file(path: Path, size: int) -> Store:
    """Where `size` processes of one machine meet: a file which none of them has made before."""
    return dist.FileStore(str(path), size)


def store_at(address: str, port: int, *, serve: bool, timeout: float) -> Store:
    """Where processes of many machines meet: a TCP store, which the one that is told to serve opens.

    torch's store listens on every interface; where the address says that all are on this machine, on that alone.
    """
    make = partial(
        dist.TCPStore,
        address,
        port,
        is_master=serve,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        multi_tenant=True,
    )
    if serve and address in LOOPBACK:
        return make(master_listen_fd=socket.create_server((LOOPBACK[address], port)).detach())
    return make()


def within(store: Store, name: str) -> Store:
    """A part of a store: what is said there stays apart from the rest.

    A store that outlives a crash still holds the addresses of the dead; who meets anew does so in a new part.
    """
    return dist.PrefixStore(name, store)


def backend(device: torch.device | str) -> str:
    """The backends that carry tensors: gloo, and nccl beside it for those on a GPU.

    >>> backend("cpu"), backend("cuda:1")
    ('gloo', 'cpu:gloo,cuda:nccl')
    """
    return "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo"


@contextmanager
def enough_files(processes: int) -> Iterator[None]:
    """Say in one line that processes of so many need more open files than they may have."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch's errors have no number
        if getattr(error, "errno", None) != errno.EMFILE and "Too many open files" not in str(error):
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        needed = -(-(limit + PER_PROCESS * processes + 32) // 64) * 64
        raise RuntimeError(
            f"the limit of open files must be about {needed} for {processes} processes, got {limit}: they hold "
            f"connections to each other; `ulimit -n {needed}` raises it"
        ) from None


@contextmanager
def joined(rank: int, size: int, store: Store, timeout: float, device: torch.device | str = "cpu") -> Iterator[None]:
    """Member `rank` of a group of `size` processes that have met at `store`, with its tensors on `device`.

    timeout : seconds after which whoever waits for another gives up. After an error the group is left as it is:
    taking it down while others are stuck in it would hang.
    """
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    with enough_files(size):
        dist.init_process_group(
            backend(place),
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
            device_id=place if place.type == "cuda" else None,
        )
    yield
    dist.barrier()  # nobody closes a connection that another still reads
    dist.destroy_process_group()


def timeout_of(group: Any = None) -> Any:
    """The `timedelta` after which whoever waits for another in the group gives up; None where nobody does.

    torch gives a group of some of the processes half an hour (NCCL ten minutes) unless it is told that of all.
    """
    group = group or dist.group.WORLD
    options = group._get_backend(group._device_types[0]).options
    return options and options._timeout


class Processes:
    """The processes of a torch.distributed group, which tell each other facts, or this process alone.

    Attributes
    ----------
    rank, size : int
        Which of them this one is, and how many there are.
    """

    def __init__(self, group: Any = None, alone: bool = True) -> None:
        self._group, self.size = group, 1 if alone else dist.get_world_size(group)
        self.rank = 0 if alone else dist.get_rank(group)

    @classmethod
    def beside(cls) -> Processes:
        """All processes, in a group of their own, so that they can talk while a run goes on; all of them call it."""
        if not dist.is_initialized():
            return cls()
        return cls(dist.new_group(backend="gloo", timeout=timeout_of()), alone=False)

    def share(self, value: Any) -> list[Any]:
        """The JSON values of all processes, in rank order."""
        return [value] if self.size == 1 else share_json(value, self._group)

    def gather(self, state: Any) -> list[Any] | None:
        """Everybody's state in rank order at rank 0, None elsewhere: numbers, text, tensors and containers of them."""
        return [state] if self.size == 1 else gather_states(state, self._group)


def is_first() -> bool:
    """Whether this is rank 0 of the group."""
    return dist.get_rank() == 0


def from_first(make: Callable[[], T]) -> T:
    """What `make` gives at rank 0, a state, at every process of the group; the others do not call it."""
    value: T = broadcast_state(make() if dist.get_rank() == 0 else None)
    return value


def recorded(work: Callable[[], T]) -> T:
    """Do the work; torchrun's error file, if there is one, then says why it failed."""
    done: Callable[[], T] = record(work)  # type: ignore[assignment]
    return done()
