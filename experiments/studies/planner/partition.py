"""The lectures' tensor-partition example: y = W_k ... W_2 W_1 x on n devices, every matrix cut by rows or by columns.

A vector is *whole* (every device has all of it) or *split* (every device has 1/n of it); x and y are whole. A matrix
cut by rows needs a whole input and gives a split output. One cut by columns needs a split input and gives n partial
sums. Backward, the roles change: a cut by rows gives partial sums of the gradient of its input. What runs between two
layouts, and the numbers that each device sends for a vector of width w, in units of (n-1)/n w:

    from           to      forward             backward
    split          row     all-gather 1        reduce-scatter 1
    split          column  nothing             nothing
    partial sums   row     all-reduce 2        all-reduce 2
    partial sums   column  reduce-scatter 1    all-gather 1
    whole (x)      row     nothing             all-reduce 2
    whole (x)      column  nothing             all-gather 1
    partial sums   y       all-reduce 2        nothing
    split          y       all-gather 1        nothing

What stands between two matrices and acts on every number (or every head) alone changes nothing: partial sums are added
up before it in every case. (The lecture writes W x. Where inputs are rows, as in Megatron-LM, its "column-parallel"
layer is the one cut by rows here.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

from commeff import require
from commeff.planner.model import count

Cut = Literal["row", "column"]
COLLECTIVES = {  # between two cuts, forward and backward; all parts of the table above that can occur
    ("row", "row"): ("all-gather", "reduce-scatter"),
    ("row", "column"): ("", ""),
    ("column", "row"): ("all-reduce", "all-reduce"),
    ("column", "column"): ("reduce-scatter", "all-gather"),
    ("x", "row"): ("", "all-reduce"),
    ("x", "column"): ("", "all-gather"),
    ("column", "y"): ("all-reduce", ""),
    ("row", "y"): ("all-gather", ""),
}
UNITS = {"": 0, "all-gather": 1, "reduce-scatter": 1, "all-reduce": 2}


@dataclass(frozen=True)
class PartitionPlan:
    """A choice for every matrix, and what it costs.

    Parameters
    ----------
    cuts : of W_1, W_2, ...
    forward, backward : the collectives, each with the vector it works on: x, 1 (which is W_1 x), 2, ..., y.
    numbers : that each device sends for one vector x, both ways.
    """

    cuts: tuple[Cut, ...]
    forward: tuple[str, ...]
    backward: tuple[str, ...]
    numbers: float


def plan(cuts: Sequence[Cut], widths: Sequence[int], devices: int) -> PartitionPlan:
    """What a choice of cuts communicates, for widths of x, W_1 x, ..., y.

    Parameters
    ----------
    cuts : of W_1, W_2, ...: row or column.
    widths : widths of x, W_1 x, ..., y.
    devices : number of devices.

    Examples
    --------
    >>> plan(("row", "column"), (4, 16, 4), devices=2)                # a feed-forward: Megatron-LM's choice
    PartitionPlan(cuts=('row', 'column'), forward=('all-reduce y',), backward=('all-reduce x',), numbers=8.0)
    """
    if len(widths) != len(cuts) + 1:
        raise ValueError(
            f"widths must be one more than the {len(cuts)} cuts, got {len(widths)}: every matrix leads from one vector "
            f"to the next; give {len(cuts) + 1}"
        )
    count(devices=devices)
    for cut in cuts:
        require.one_of(("row", "column"), cut=cut)
    names = ["x", *(str(i + 1) for i in range(len(cuts) - 1)), "y"]
    numbers = 0.0
    collectives: tuple[list[str], list[str]] = ([], [])
    for step, name, width in zip(pairwise(("x", *cuts, "y")), names, widths, strict=True):
        for collective, words in zip(COLLECTIVES[step], collectives, strict=True):
            numbers += UNITS[collective] * width * (devices - 1) / devices
            words.extend([f"{collective} {name}"] if collective else [])
    return PartitionPlan(tuple(cuts), tuple(collectives[0]), tuple(reversed(collectives[1])), numbers)


def plans(widths: Sequence[int], devices: int) -> list[PartitionPlan]:
    """All choices, cheapest first; arguments as of `plan`.

    Examples
    --------
    >>> for choice in plans((1, 1, 1, 1), devices=2):                  # the lecture's y = W3 W2 W1 x, two devices
    ...     print(choice.numbers, *choice.cuts)
    3.0 row row column
    3.0 row column column
    3.5 row row row
    3.5 row column row
    3.5 column row column
    3.5 column column column
    4.0 column row row
    4.0 column column row
    """
    every: list[tuple[Cut, ...]] = list(product(("row", "column"), repeat=len(widths) - 1))
    return sorted((plan(cuts, widths, devices) for cuts in every), key=lambda choice: choice.numbers)


def blocks(hidden: int) -> dict[str, tuple[int, ...]]:
    """Widths of chains in a transformer: the lecture's three equal matrices; the feed-forward h to 4 h to h; attention,
    in which heads act alone, as h to h (queries, keys and values make one head's output) to h.

    Examples
    --------
    >>> {name: plans(widths, 8)[0].cuts for name, widths in blocks(1024).items()}
    {'W3 W2 W1': ('row', 'row', 'column'), 'feed-forward': ('row', 'column'), 'attention': ('row', 'column')}
    """
    return {
        "W3 W2 W1": (hidden,) * 4,
        "feed-forward": (hidden, 4 * hidden, hidden),
        "attention": (hidden, hidden, hidden),
    }
