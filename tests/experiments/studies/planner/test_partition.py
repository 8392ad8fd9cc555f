"""The tensor-partition example, counted and carried out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from commeff.experiments.studies.planner.partition import plan, plans


def carried_out(cuts, widths, devices, random):
    """Numbers that collectives move while `devices` compute y = W_k ... W_1 x, and the error of y."""
    x = random.normal(size=widths[0])
    held, layout, expected, moved = [x] * devices, "whole", x, 0.0
    for cut, into, out in zip(cuts, widths[:-1], widths[1:], strict=True):
        w = random.normal(size=(out, into))
        expected = w @ expected
        part = (devices - 1) / devices * into
        if cut == "row":
            if layout == "split":
                held, moved = [np.concatenate(held)] * devices, moved + part
            elif layout == "partial":
                held, moved = [np.sum(held, axis=0)] * devices, moved + 2 * part
            held, layout = [rows @ v for rows, v in zip(np.split(w, devices), held, strict=True)], "split"
        else:
            if layout == "partial":
                held, moved = np.split(np.sum(held, axis=0), devices), moved + part
            elif layout == "whole":
                held = np.split(held[0], devices)
            held = [columns @ v for columns, v in zip(np.split(w, devices, axis=1), held, strict=True)]
            layout = "partial"
    part = (devices - 1) / devices * widths[-1]
    y, moved = (np.concatenate(held), moved + part) if layout == "split" else (np.sum(held, axis=0), moved + 2 * part)
    return moved, np.abs(y - expected).max()


@pytest.mark.parametrize("cuts", list(product(("row", "column"), repeat=3)))
def test_every_choice_computes_y_with_the_collectives_that_it_names(cuts):
    widths, devices = (8, 16, 4, 12), 4
    found = plan(cuts, widths, devices)
    moved, error = carried_out(cuts, widths, devices, np.random.default_rng(0))
    units = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}
    size = {"x": 8, "1": 16, "2": 4, "y": 12}
    named = [word.split() for word in found.forward]
    assert error < 1e-10
    assert moved == pytest.approx(sum(units[what] * size[of] * 3 / 4 for what, of in named))
    both = named + [word.split() for word in found.backward]
    assert found.numbers == pytest.approx(sum(units[what] * size[of] * 3 / 4 for what, of in both))


def test_the_backward_pass_of_cuts_is_the_forward_pass_of_the_reversed_chain():
    """The gradient goes through W_k^T ... W_1^T, whose cuts are the other way around."""
    other = {"row": "column", "column": "row"}
    units = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}
    for cuts in product(("row", "column"), repeat=4):
        back = plan(cuts, (1,) * 5, 2).backward
        transposed = plan([other[cut] for cut in reversed(cuts)], (1,) * 5, 2).forward
        assert sum(units[w.split()[0]] for w in back) == sum(units[w.split()[0]] for w in transposed)


def test_the_best_feed_forward_is_megatrons_one_all_reduce_each_way():
    best, second, *_ = plans((1024, 4096, 1024), 8)
    assert best.cuts == ("row", "column")
    assert (best.forward, best.backward) == (("all-reduce y",), ("all-reduce x",))
    assert second.numbers > 2 * best.numbers


def test_widths_that_do_not_match_the_matrices_are_refused():
    with pytest.raises(ValueError, match="give 3"):
        plan(("row", "column"), (4, 4), 2)
    with pytest.raises(ValueError, match="devices must be a whole number of at least 1, got 0"):
        plan(("row",), (4, 4), 0)
    with pytest.raises(ValueError, match="got 'col'; did you mean column"):
        plan(("col",), (4, 4), 2)
