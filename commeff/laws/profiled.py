"""The profile law: what is found by playing a method without numbers is what its runs send and remember."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from commeff.communicator import Communicator
from commeff.communicator.ledger import Entry
from commeff.laws.engines import rehearse
from commeff.laws.problem import LAYOUT, LONG, WORKERS, MethodCase, elsewhere, run, slope, start
from commeff.profiling import Profile, profile
from commeff.profiling.live import depends_on_data, measure_memory, most


def is_profiled(case: MethodCase) -> None:
    """The ledger of a run is what `commeff.profile` says, row by row (at most that, where values decide), and so is
    the memory of a process that hosts one worker.
    """
    expected = profile(case.build(WORKERS), LAYOUT, WORKERS, seed=3, dtype=start().dtype)
    strategy = case.build(WORKERS)
    _, communicator = run(strategy, steps=LONG)
    strategy.drain()  # rounds that begin when others have arrived
    billed = defaultdict[int, list[Entry]](list)
    for row in communicator.ledger.rows:
        billed[row.step].append(row)
    for step in range(LONG):
        rows, played = billed[step], [operation[:7] for operation in expected.operations(step)]
        bytes_billed, bytes_played = (sum(row[3] for row in of) for of in (rows, played))
        good = [tuple(row) for row in rows] == played if expected.exact else bytes_billed <= bytes_played
        note = f" ({expected.note})" if expected.note else ""
        remedy = (
            "where x.is_meta, take the branch that sends most"
            if depends_on_data(strategy)
            else "what it sends must follow from shapes and the clock (a transform whose steps are not all alike gives "
            "its period in `timetable`), or set Traits(data_dependent=True), and where x.is_meta take the branch that "
            "sends most"
        )
        assert good, (
            f"{case.name}: in step {step} a run sends {_in_words(rows)} and its profile says {_in_words(played)}{note}"
            f": {remedy}"
        )
    if expected.exact:
        _remembers_what_is_said(case, expected)


def _in_words(operations: Sequence[tuple[Any, ...]]) -> str:
    """Bytes, kind and path of each."""
    return " and ".join(f"{size:g} bytes by {kind} at {path}" for _, path, kind, size, *_ in operations) or "nothing"


def has_an_exact_profile(case: MethodCase) -> None:
    """A profile of the method needs no note: it says what a run sends, and after how many steps it sends that again."""
    if note := profile(case.build(WORKERS), LAYOUT, WORKERS).note:
        raise AssertionError(f"{case.name}: {note}")


def _remembers_what_is_said(case: MethodCase, expected: Profile) -> None:
    def live(communicator: Communicator) -> dict[str, int]:
        x = start()[list(communicator.workers)]
        strategy = case.build(WORKERS)
        strategy.start(x, LAYOUT, communicator)
        sizes: dict[str, int] = {}
        for communicator.step in range(LONG):
            gradient = slope(x, communicator.step, communicator.workers)
            strategy.post(x, communicator)
            x = strategy.step(x, gradient, communicator, elsewhere(communicator.step, communicator.workers))
            sizes = most(sizes, measure_memory(strategy, (x, gradient)))
        strategy.drain()
        return sizes

    processes = rehearse(WORKERS, WORKERS, live)
    assert processes[-1] == expected.memory_bytes, (
        f"{case.name}: a process that hosts one worker holds {processes[-1]} bytes and the profile says "
        f"{expected.memory_bytes}: allocate every memory in start, or in the first steps"
    )
    server = sum(processes[0].values()) - sum(processes[-1].values())
    assert max(0, server) == expected.server_bytes, (
        f"{case.name}: the server's process holds {server} bytes more than others and the profile says "
        f"{expected.server_bytes}: keep what the server remembers in tensors of communicator.servers rows"
    )
