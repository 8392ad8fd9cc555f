"""Runs a function on n forked processes joined by a gloo group, with torch imported once."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from commeff.experiments.run.crew import Fork, crew
from commeff.experiments.studies.splitting.account import live_bytes
from commeff.sharding import collectives, mesh
from tests.owned import PATIENCE, PAUSE

group_of = collectives.group_of
GRACE = 60.0  # seconds that the others have to check what they see, once one has failed
Case = TypeVar("Case")


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """The state after it was saved and read as data, nothing of it being executed."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def on_processes(n: int, function: Callable[[], Any]) -> list[Any]:
    """[function() at rank 0, ..., at rank n - 1]; an error at any rank is raised here with its traceback."""

    def member(fork: Fork) -> Any:
        torch.set_num_threads(1)
        gc.freeze()  # what was there before needs not be looked through by every rank again
        with fork.group(PATIENCE):
            return function()

    with crew(n, member) as forks:
        return forks.results(grace=GRACE)


def census() -> int:
    """`live_bytes`, when gloo's threads have let go of what they sent: the same five times in a row."""
    found = [live_bytes()]
    while len(found) < 5 or len(set(found[-5:])) > 1:
        time.sleep(PAUSE)
        found.append(live_bytes())
    return found[-1]


def by_case(cases: Iterable[Case], function: Callable[[Case], Any]) -> dict[Case, Any]:
    """{case: function(case)}, at every rank. Meshes of one shape share their groups, and other groups end with a case.

    Each group has a thread of gloo's that wakes up a hundred times a second. Parts of an axis stay: torch would name
    the next group of the same ranks as the one that has ended, whose addresses its ranks may then find.
    """
    found, groups = {}, dist.distributed_c10d._world.pg_map
    kept = set(groups)

    @cache
    def part(*ranks: int) -> dist.ProcessGroup:
        made = group_of(*ranks)
        kept.add(made)
        return made

    @cache
    def devices(*shape: Any, **names: Any) -> DeviceMesh:
        made = init_device_mesh(*shape, **names)
        kept.update(made.get_all_groups())
        return made

    with patch.object(mesh, "init_device_mesh", devices), patch.object(collectives, "group_of", part):
        for case in cases:
            found[case] = function(case)
            dist.barrier()
            for group in set(groups) - kept:
                dist.destroy_process_group(group)
    return found
