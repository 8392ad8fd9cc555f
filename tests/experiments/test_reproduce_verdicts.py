"""Verdicts at their edges: runs that diverged or never got there, seeds that lack a number, margins met exactly."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from commeff.experiments.published.reproduce.judging import judge
from commeff.experiments.published.reproduce.numbers import NOT_COMPARABLE, OFF, OK, compare
from commeff.experiments.published.reproduce.quantities import Observation, floor, to
from commeff.experiments.published.reproduce.verdicts import FAILS, HOLDS, UNTOLD
from tests.experiments.test_reproduce_judging import curve, ends, results, verdict

LOST = Observation({}, state="diverged")
QUICK, SLOW = Observation({}, curve(0.8)), Observation({}, curve(0.99))


def accuracy(*values: float) -> list[Observation]:
    return [Observation({"test_accuracy": value}) for value in values]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("above(lost, good)", FAILS),
        ("above(good, lost)", HOLDS),
        ("above(good, others, sigmas=3)", HOLDS),
        ("below(lost, good)", HOLDS),
        ("lost >= 0.9", FAILS),
        ("good >= min(lost, good)", HOLDS),
    ],
)
def test_a_diverged_run_has_the_worst_accuracy(claim: str, expected: str, tmp_path: Path) -> None:
    seen = {("good", "0.1"): accuracy(0.7, 0.71, 0.7), ("lost", "0.1"): [LOST] * 3}
    (found,) = judge(results(tmp_path, [{"claim": claim, "of": "test_accuracy"}], seen))
    assert found.verdict == expected, found.reason


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("within(good, lost, 10%)", FAILS),
        ("within(lost, good, 10%)", FAILS),
        ("within(lost, good, 1e9)", FAILS),
        ("good = lost", FAILS),
        ("lost = good", FAILS),
        ("lost = 1", FAILS),
        ("within(lost, lost, 10%)", UNTOLD),
        ("0 - lost < 3", UNTOLD),
        ("1 / lost < 3", UNTOLD),
        ("good / lost < 3", UNTOLD),
        ("lost / 2 > good", HOLDS),
        ("good < lost - 5", HOLDS),
        ("max(good, lost) > 100", HOLDS),
        ("min(good, lost) < 100", HOLDS),
        ("below(good, min(lost, lost))", HOLDS),
        ("abs(lost) > 3", HOLDS),
        ("ceil(lost) > 3", UNTOLD),
        ("within(to(quick, 1e-3), to(slow, 1e-3), 10%)", FAILS),
        ("to(quick, 1e-3) < to(slow, 1e-3) / 4", HOLDS),
        ("to(slow, 1e-3) / to(quick, 1e-3) > 5", HOLDS),
        ("to(quick, 1e-3) / to(slow, 1e-3) < 5", UNTOLD),
    ],
)
def test_nothing_is_near_what_diverged_or_never_got_there(claim: str, expected: str, tmp_path: Path) -> None:
    quick, slow = [QUICK] * 3, [SLOW] * 3
    assert verdict(tmp_path, claim, good=ends(1.0, 1.1, 1.0), lost=[LOST] * 3, quick=quick, slow=slow) == expected


def test_a_margin_is_of_the_seeds_that_both_have(tmp_path: Path) -> None:
    """The fourth seed of b diverged; a has not run it."""
    assert verdict(tmp_path, "within(a, b, 10%)", a=ends(1, 1, 1), b=[*ends(2, 2, 2), LOST]) == FAILS
    assert verdict(tmp_path, "within(a, b, 60%)", a=ends(1, 1, 1), b=[*ends(2, 2, 2), LOST]) == HOLDS
    assert verdict(tmp_path, "a = b", a=ends(1, 1, 1), b=[*ends(2, 2, 2), LOST]) == FAILS


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("below(low, low, sigmas=3)", FAILS),
        ("below(low2, low, sigmas=3)", UNTOLD),
        ("below(low, high, sigmas=3)", HOLDS),
        ("within(one, two, 1)", HOLDS),
        ("within(one, two, 0.999)", FAILS),
        ("low <= high", HOLDS),
        ("high <= low", FAILS),
        ("high >= low", HOLDS),
        ("low >= high", FAILS),
        ("order(one, high, two)", FAILS),
        ("below(two, others)", FAILS),
        ("within(one, others, 3)", FAILS),
        ("one = 1.0001", FAILS),
        ("one = 1.0000000001", HOLDS),
        ("minus = -1.001 ± 0.01", HOLDS),
        ("within(minus, least, 10%)", HOLDS),
        ("below(one, near, sigmas=500)", UNTOLD),
        ("below(one, near, sigmas=300)", HOLDS),
        ("fine < turned", UNTOLD),
        ("equal(fine, other, gap)", FAILS),
    ],
)
def test_edges(claim: str, expected: str, tmp_path: Path) -> None:
    """`near` is 1 above `one` with a standard error of 0.0029; of `turned` the fourth seed alone is below `fine`."""
    assert expected == verdict(
        tmp_path,
        claim,
        one=ends(1, 1, 1),
        two=ends(2, 2, 2),
        high=ends(10.0, 10.1, 10.0),
        low=ends(1.0, 1.1, 0.9),
        low2=ends(1.05, 1.1, 0.95),
        minus=ends(-1, -1, -1),
        least=ends(-1.05, -1.05, -1.05),
        near=ends(2, 2.005, 1.995),
        fine=ends(1, 1, 1, 1),
        other=ends(1, 1, 1, 2),
        turned=ends(1.1, 1.1, 1.1, -5),
    )


@pytest.mark.parametrize(
    ("claim", "expected"),
    [("a <= 1/3", HOLDS), ("a = 1/3", HOLDS), ("a < 1/3", FAILS), ("below(b, c)", FAILS), ("below(c, b)", FAILS)],
)
def test_rounding_decides_nothing(claim: str, expected: str, tmp_path: Path) -> None:
    third, sum_ = math.nextafter(1 / 3, 1), 0.1 + 0.2
    assert verdict(tmp_path, claim, a=ends(*[third] * 3), b=ends(*[0.3] * 3), c=ends(*[sum_] * 3)) == expected


def test_one_that_has_no_number_hides_no_failure(tmp_path: Path) -> None:
    seen = {"a": ends(2, 2, 2), "b": [Observation({})] * 3, "c": ends(1, 1, 1)}
    for claim in ("below(a, others)", "order(b, a, c)", "above(c, others)"):
        assert verdict(tmp_path, claim, **seen) == FAILS, claim
    assert verdict(tmp_path, "above(a, others)", **seen) == UNTOLD


def test_a_zero_costs_one_claim_and_not_the_page(tmp_path: Path) -> None:
    claims = ["a / b < 2", "log(b) < 2", "10 ^ a > 2", "a < 2"]
    seen = {("a", "0.1"): ends(1, 1, 1000), ("b", "0.1"): ends(1, 1, 0)}
    found = judge(results(tmp_path, claims, seen))
    assert [one.verdict for one in found] == [UNTOLD, UNTOLD, UNTOLD, UNTOLD]
    assert [one.verdict for one in judge(results(tmp_path, [*claims[:3], "a < 2000"], seen))][-1] == HOLDS
    with_metric = results(tmp_path, [{"claim": "a < 2", "of": "z"}], seen, metrics={"z": "log(gap - 1)"})
    assert [one.verdict for one in judge(with_metric)] == [UNTOLD]


def test_a_slope_says_which_points_it_lacks(tmp_path: Path) -> None:
    line = {("a", lr): ends(*(c * float(lr) for c in (1, 2, 3, 4))) for lr in ("0.1", "0.2", "0.4")}
    claim = "slope(log gap, log lr, a) = 1 ± 0.01"

    def judged(**points: list[Observation]) -> tuple[str, str]:
        (found,) = judge(results(tmp_path, [claim], line | {("a", lr[1:]): seen for lr, seen in points.items()}))
        return found.verdict, found.reason

    assert judged()[0] == HOLDS
    state, reason = judged(**{"_0.4": [LOST] * 4})
    assert (state, "without seeds 0, 1, 2, 3, where a optimizer.lr=0.4 has no number" in reason) == (UNTOLD, True)
    state, reason = judged(**{"_0.4": [LOST, *line["a", "0.4"][1:]]})
    assert (state, reason.endswith("without seed 0, where a optimizer.lr=0.4 has no number")) == (HOLDS, True)
    assert judged(**{"_0.4": line["a", "0.4"][:3]})[1].endswith(
        "without seed 3, where a optimizer.lr=0.4 has no number"
    )
    assert judged(**{"_0.4": ends(9, 9, 9, 9)})[0] == FAILS


def test_a_slope_is_of_one_variant_and_of_the_cases_that_it_names(tmp_path: Path) -> None:
    seen = {("a", lr): ends(*[float(lr)] * 3) for lr in ("0.1", "0.2", "0.4")}
    seen |= {("b", lr): ends(*[float(lr) ** 3] * 3) for lr in ("0.1", "0.2", "0.4")}
    claims = ["slope(log gap, log lr, b) = 3 ± 0.01", "slope(log gap, log lr, b[lr=0.1]) = 3 ± 0.01"]
    assert [one.verdict for one in judge(results(tmp_path, claims, seen))] == [HOLDS, UNTOLD]
    (found,) = judge(results(tmp_path, ["slope(log gap, log lr) = 1 ± 0.01"], seen))
    assert (found.verdict, "of which variant is the slope" in found.reason) == (UNTOLD, True)


def test_what_was_not_run_is_told_of(tmp_path: Path) -> None:
    """A claim, and a printed number, of what a scale leaves out."""
    seen = {("a", "0.1"): ends(1, 1, 1)}
    claims = ["a < 2", {"claim": "a > 2", "where": {"optimizer.lr": 0.2}}, {"claim": "b > 2", "each": "lr"}]
    grid = [{"name": name, "method": "psgd", "optimizer.lr": [0.1, 0.2]} for name in "ab"]
    keep = {"full": {"keep": {"name": "a", "optimizer.lr": 0.1}}}
    numbers = [{"variant": "a", "value": 1, "where": {"optimizer.lr": lr}} for lr in (0.1, 0.2)]
    more = {"scales": keep, "numbers": numbers, "tolerance": {"kind": "absolute", "by": 0.1}, "grid": grid}
    found = results(tmp_path, claims, seen, **more)
    assert [one.verdict for one in judge(found)] == [HOLDS, UNTOLD, UNTOLD]
    assert all("not run at this scale" in one.reason for one in judge(found)[1:])
    compared = compare(found)
    assert [(one.verdict, dict(one.where)) for one in compared] == [(OK, {}), (NOT_COMPARABLE, {"optimizer.lr": "0.2"})]


@pytest.mark.parametrize(
    ("ours", "theirs", "by", "expected"),
    [
        (ends(1, 1, 1), 1, 0.1, OK),
        (ends(1, 1, 1), 1.05, 0.1, OK),
        (ends(1, 1, 1), 0.95, 0.1, OK),
        (ends(1, 1, 1), 0.8, 0.1, OFF),
        (ends(1, 1, 1), 1.2, 0.1, OFF),
        (ends(8, 8, 8), 10, 0.22, OK),
        (ends(10, 10, 10), 8, 0.22, OFF),
        ([*ends(1, 1), LOST], 1, 0.1, OFF),
        ([*ends(1, 1), Observation({})], 1, 0.1, NOT_COMPARABLE),
        (ends(1, 1), 1, 0.1, UNTOLD),
        (ends(-50, 1, 52), 1, 0.1, UNTOLD),
    ],
)
def test_a_printed_number_needs_every_seed_and_a_narrow_interval(
    ours: list[Observation], theirs: float, by: float, expected: str, tmp_path: Path
) -> None:
    tolerance = {"kind": "relative", "by": by}
    numbers = [{"variant": "a", "value": theirs}]
    found = results(tmp_path, ["a < 99"], {("a", "0.1"): ours}, numbers=numbers, tolerance=tolerance)
    assert [one.verdict for one in compare(found)] == [expected]


@pytest.mark.parametrize(("theirs", "expected"), [(1.0, OK), (1.2, OFF)])
def test_one_seed_is_enough_where_none_changes_anything(theirs: float, expected: str, tmp_path: Path) -> None:
    more = {"numbers": [{"variant": "a", "value": theirs}], "tolerance": {"kind": "absolute", "by": 0.1}}
    found = results(tmp_path, ["a < 99"], {("a", "0.1"): ends(1)}, measure="consensus", **more)
    assert [one.verdict for one in compare(found)] == [expected]


def test_an_accuracy_gets_there_from_below_and_a_lost_floor_is_none() -> None:
    rising = pd.DataFrame({"step": [1.0, 2.0, 3.0], "test_accuracy": [0.1, 0.5, 0.9], "wire_bytes": [1.0, 2.0, 3.0]})
    assert to(Observation({}, rising), "test_accuracy", 0.5) == 2.0
    assert floor(Observation({}, curve(0.9), state="diverged"), "gap") == math.inf
    assert floor(Observation({}, rising, state="diverged"), "test_accuracy") == -math.inf
