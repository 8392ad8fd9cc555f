"""The order in which workers of a free run come to the ends of their steps: a file that all of them append to."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from commeff.core.events import Gathering, Instant, WaitsFor

HEAD = "who,seconds\n"
PAUSE = 0.0005  # seconds between two looks at the file
OVER = "over"  # what stands for a worker where those who wait for the exchange of this number wait no longer


class Order:
    """A CSV file who,seconds: a line for each end of a step, by worker, and `overK` where grace for exchange K ends.

    Every process appends its own lines and reads all, so that all see one order, which is the record of the run.

    Parameters
    ----------
    path : path
        The file, on this machine; it is made if it is not there.
    n : int
        The number of workers.
    waits_for : WaitsFor
        What the method waits for.
    """

    def __init__(self, path: str | Path, n: int, waits_for: WaitsFor) -> None:
        self.path, self.n, self.waits_for = Path(path), n, waits_for

    def append(self, who: int | str, seconds: float) -> None:
        """Write a line, after all that are there."""
        with open(self.path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{who},{seconds:.9f}\n" if os.fstat(file.fileno()).st_size else f"{HEAD}{who},{seconds:.9f}\n")
            file.flush()

    def events(self, follow: float = 0.0) -> Iterator[Instant]:
        """What has happened, in order: those who go on when a line is there.

        Parameters
        ----------
        follow : seconds to wait for another line, before it ends.
        """
        gathering, number = Gathering(self.n, self.waits_for), 0
        for who, seconds in self._lines(follow):
            counts = tuple(gathering.counts)
            if who.startswith(OVER):
                current = int(who.removeprefix(OVER)) == gathering.exchanges
                done = gathering.come([], over=True) if current else set()
            else:
                done = gathering.come([int(who)])
            if done:
                yield gathering.instant(number, seconds, done, counts)
                number += 1

    def _lines(self, follow: float) -> Iterator[tuple[str, float]]:
        patience, text, place = time.monotonic() + follow, "", 0
        while True:
            more = b""
            if self.path.exists():
                with open(self.path, "rb") as file:
                    file.seek(place)
                    more = file.read()
            place += len(more)
            *lines, text = (text + more.decode()).split("\n")
            for line in lines:
                if line + "\n" != HEAD:
                    who, seconds = line.split(",")
                    yield who, float(seconds)
            if more:
                patience = time.monotonic() + follow
            elif time.monotonic() >= patience:
                return
            else:
                time.sleep(PAUSE)


class Replay:
    """The clock of a free run that is over: `commeff.train` on it takes the same steps, bit for bit.

    Seconds are those that were measured. The last step may lack gradients.

    Parameters
    ----------
    order : Order
        What was written down.
    """

    def __init__(self, order: Order) -> None:
        events = groupby(order.events(), key=lambda event: sum(event.counts) // order.n)
        self._steps = [tuple(found) for _, found in events]

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self._steps)

    def events(self, step: int) -> Sequence[Instant]:
        """The events of a step."""
        return self._steps[step]
