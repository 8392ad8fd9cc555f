"""How much an author has to know: the public names of what a plug-in derives from, and the arguments of a method."""

from __future__ import annotations

import inspect

import pytest

from commeff import Encoder, LocalStep, Transform, methods
from commeff.core import GradientComparison
from commeff.core.state import Stateful

SAVING = {"exchange", "address"}
FILLED = {"optimizer", "topology", "compressor"}  # from the keys of those names


def names(kind: type) -> set[str]:
    """The public attributes, methods and annotations of a class and its bases, and whether it is called."""
    found = {name for base in kind.__mro__ if base is not object for name in (*vars(base), *base.__annotations__)}
    return {name for name in found if not name.startswith("_")} | ({"__call__"} & found)


@pytest.mark.parametrize(
    ("kind", "most"), [(Stateful, 5), (Transform, 8), (Encoder, 7), (LocalStep, 9), (GradientComparison, 8)]
)
def test_an_interface_stays_small(kind: type, most: int) -> None:
    found = names(kind) - SAVING
    assert len(found) <= most, f"{kind.__name__} has {sorted(found)}: what only some ask goes into Traits or a protocol"
    assert {"rows", "shared", "parts", "traits", "timetable"} <= found


def test_an_encoder_and_a_transform_share_all_but_what_they_are_called_by() -> None:
    assert names(Transform) ^ names(Encoder) == {"stages", "__call__", "encode"}


@pytest.mark.parametrize("name", methods.__all__)
def test_a_method_has_at_most_six_arguments_of_its_own(name: str) -> None:
    own = inspect.signature(getattr(methods, name)).parameters.keys() - FILLED
    assert len(own) <= 6, sorted(own)
