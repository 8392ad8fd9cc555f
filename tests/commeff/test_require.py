"""The conditions of arguments: what passes, and what is refused in which words."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from commeff import require

NONE = (None, "1", True, math.nan)  # no numbers


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        (require.count, (1, 7), (0, 1.0, np.int64(3), *NONE)),
        (partial(require.count, 0, most=5), (0, 5), (-1, 6)),
        (partial(require.at_least, 2), (2, 2.5, np.float32(3), np.int64(2), torch.tensor(2)), (1.999, math.inf, *NONE)),
        (require.positive, (1e-300, 5, torch.tensor(0.5), np.array(0.5)), (0, -1.0, math.inf, *NONE)),
        (partial(require.within, "[0, 1)"), (0, 0.5), (-1e-9, 1, *NONE)),
        (partial(require.within, "(0, 1]"), (1e-9, 1), (0, 1.0001, *NONE)),
        (partial(require.within, "(0, inf]"), (1, math.inf), (0,)),
        (require.truth, (True, False), (0, 1, "true", None)),
        (partial(require.one_of, ("ring", "star")), ("ring",), ("rings", None, 1)),
    ],
)
def test_what_passes_and_what_does_not(
    condition: Callable[..., None], good: tuple[object, ...], bad: tuple[object, ...]
) -> None:
    for value in good:
        condition(x=value)
        condition(x=value, y=value)
    for value in bad:
        with pytest.raises(ValueError, match=r"^x must ") as refused:
            condition(x=value)
        assert str(refused.value).partition("; did you mean")[0].endswith(f"got {value!r}")


def test_the_first_that_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r"^y must be at least 1, got 0: why$"):
        require.at_least(1, "why", x=1, y=0)


def test_what_is_not_finite_is_said_to_be_so() -> None:
    with pytest.raises(ValueError, match=r"^x must be finite, got inf$"):
        require.positive(x=math.inf)


@pytest.mark.parametrize("value", ["0.5", None, True, [0.5], torch.tensor([0.5])])
def test_what_is_no_number_is_not_said_to_be_a_small_one(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^x must be a number of at least 0, got "):
        require.at_least(0, x=value)
    with pytest.raises(ValueError, match=r"^x must be a number above 0, got "):
        require.positive(x=value)
    with pytest.raises(ValueError, match=r"^x must be a number in \[0, 1\), got "):
        require.within("[0, 1)", x=value)
