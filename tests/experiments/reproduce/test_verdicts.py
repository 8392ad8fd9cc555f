"""Verdicts at their edges: runs that diverged or never got there, seeds that lack a number, margins met exactly."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from commeff.experiments.reproduce.judging import NOT_COMPARABLE, OFF, OK, compare, judge
from commeff.experiments.reproduce.quantities import floor, to
from commeff.experiments.reproduce.results import Observation
from commeff.experiments.reproduce.verdicts import FAILS, HOLDS, UNTOLD
from tests.experiments.reproduce.reproduced import Code, yields
from tests.experiments.reproduce.test_judging import curve, ends, judged, of_run, results, verdict

SENT = "to('gap', 1e-3)"
LOST = Observation({}, state="diverged")
QUICK, SLOW = Observation({"gap": 0.0}, curve(0.8)), Observation({"gap": 0.0}, curve(0.99))


def accuracy(*values: float) -> list[Observation]:
    return [Observation({"test_accuracy": value}) for value in values]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("lost > good", FAILS),
        ("good > lost", HOLDS),
        ("lost < good", HOLDS),
        ("lost >= 0.9", FAILS),
        ("good >= apply(min, lost, good)", HOLDS),
    ],
)
def test_a_diverged_run_has_the_worst_accuracy(claim: str, expected: str, tmp_path: Path) -> None:
    seen = {("good", "0.1"): accuracy(0.7, 0.71, 0.7), ("lost", "0.1"): [LOST] * 3}
    bound = "".join(f"    {name} = final('test_accuracy')(r.{name})\n" for name in ("good", "lost"))
    (found,) = judge(results(tmp_path, bound + yields([claim]), seen))
    assert found.verdict.state == expected, found.verdict.reason


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("within(good, lost, share=0.1)", FAILS),
        ("within(lost, good, share=0.1)", FAILS),
        ("within(lost, good, 1e9)", FAILS),
        ("within(lost, 1, 0)", FAILS),
        ("within(lost, lost, share=0.1)", UNTOLD),
        ("0 - lost < 3", UNTOLD),
        ("1 / lost < 3", UNTOLD),
        ("good / lost < 3", UNTOLD),
        ("lost / 2 > good", HOLDS),
        ("good < lost - 5", HOLDS),
        ("apply(max, good, lost) > 100", HOLDS),
        ("apply(min, good, lost) < 100", HOLDS),
        ("good < apply(min, lost, lost)", HOLDS),
        ("abs(lost) > 3", HOLDS),
        ("apply(math.ceil, lost) > 3", UNTOLD),
        (f"within({SENT}(r.quick), {SENT}(r.slow), share=0.1)", FAILS),
        (f"{SENT}(r.quick) < {SENT}(r.slow) / 4", HOLDS),
        (f"{SENT}(r.slow) / {SENT}(r.quick) > 5", HOLDS),
        (f"{SENT}(r.quick) / {SENT}(r.slow) < 5", UNTOLD),
    ],
)
def test_nothing_is_near_what_diverged_or_never_got_there(claim: str, expected: str, tmp_path: Path) -> None:
    quick, slow = [QUICK] * 3, [SLOW] * 3
    assert verdict(tmp_path, claim, good=ends(1.0, 1.1, 1.0), lost=[LOST] * 3, quick=quick, slow=slow) == expected


def test_a_margin_is_of_the_seeds_that_both_have(tmp_path: Path) -> None:
    """The fourth seed of b diverged; a has not run it."""
    assert verdict(tmp_path, "within(a, b, share=0.1)", a=ends(1, 1, 1), b=[*ends(2, 2, 2), LOST]) == FAILS
    assert verdict(tmp_path, "within(a, b, share=0.6)", a=ends(1, 1, 1), b=[*ends(2, 2, 2), LOST]) == HOLDS
    assert verdict(tmp_path, "within(a, b, 0)", a=ends(1, 1, 1), b=[*ends(2, 2, 2), LOST]) == FAILS


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("low < low", FAILS),
        ("order(low, low)", FAILS),
        ("(two < one) & (high < low2)", FAILS),
        ("(two < one) & (low2 < low)", FAILS),
        ("1e-300 * high < 1e200 * high", HOLDS),
        ("1e200 * high < 1e-300 * high", FAILS),
        ("one + 1e-4 * low < 1.0001", UNTOLD),
        ("low2 < low", UNTOLD),
        ("low < high", HOLDS),
        ("within(one, two, 1)", HOLDS),
        ("within(one, two, 0.999)", FAILS),
        ("low <= high", HOLDS),
        ("high <= low", FAILS),
        ("high >= low", HOLDS),
        ("low >= high", FAILS),
        ("order(one, high, two)", FAILS),
        ("(two < one) & (two < high)", FAILS),
        ("within(one, high, 3) & within(one, two, 3)", FAILS),
        ("within(one, 1.0001, 1e-9)", FAILS),
        ("within(one, 1.0000000001, 1e-9)", HOLDS),
        ("within(minus, -1.001, 0.01)", HOLDS),
        ("within(minus, least, share=0.1)", HOLDS),
        ("one + 0.95 < near", HOLDS),
        ("one + 1 < near", UNTOLD),
        ("fine < turned", UNTOLD),
        ("equal(r.fine, r.other, 'gap')", FAILS),
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
    [("a <= 1/3", HOLDS), ("within(a, 1/3, 0)", HOLDS), ("a < 1/3", FAILS), ("b < c", FAILS), ("c < b", FAILS)],
)
def test_rounding_decides_nothing(claim: str, expected: str, tmp_path: Path) -> None:
    third, sum_ = math.nextafter(1 / 3, 1), 0.1 + 0.2
    assert verdict(tmp_path, claim, a=ends(*[third] * 3), b=ends(*[0.3] * 3), c=ends(*[sum_] * 3)) == expected


def test_one_that_has_no_number_hides_no_failure(tmp_path: Path) -> None:
    seen = {"a": ends(2, 2, 2), "b": [Observation({})] * 3, "c": ends(1, 1, 1)}
    for claim in ("(a < b) & (a < c)", "(a < c) & (a < b)", "order(b, a, c)", "(c > a) & (c > b)"):
        assert verdict(tmp_path, claim, **seen) == FAILS, claim
    assert verdict(tmp_path, "(a > b) & (a > c)", **seen) == UNTOLD


def test_an_absent_number_ends_its_claim_and_not_the_generator(tmp_path: Path) -> None:
    seen = {"a": ends(2, 2, 2), "b": [Observation({})] * 3}
    claims = ("a < b", "b**2 / 3 - a < 5", "apply(max, a, b) > 1", "within(a, b, 1)", "order(b, a)", "-abs(b) < a")
    for claim in claims:
        assert judged(tmp_path, claim, **seen).reason == "b has no gap", claim
    both = {(name, "0.1"): each for name, each in seen.items()}
    found = judge(results(tmp_path, ["gap(r.b) < 1", "gap(r.a) < 3"], both))
    assert [one.verdict.state for one in found] == [UNTOLD, HOLDS]


def test_a_zero_costs_one_claim_and_not_the_page(tmp_path: Path) -> None:
    claims = "    a, b = gap(r.a), gap(r.b)\n"
    claims += yields(["a / b < 2", "apply(math.log, b) < 2", "10.0**a > 2", "a < 1e9"])
    seen = {("a", "0.1"): ends(1, 1, 1000), ("b", "0.1"): ends(1, 1, 0)}
    found = judge(results(tmp_path, claims, seen))
    assert [one.verdict.state for one in found] == [UNTOLD, UNTOLD, UNTOLD, HOLDS]
    metrics = {"z": Code("lambda m: math.log(m['gap'] - 1)")}
    with_metric = results(tmp_path, ["final('z')(r.a) < 2"], seen, metrics=metrics)
    assert [one.verdict.state for one in judge(with_metric)] == [UNTOLD]


def test_a_slope_says_which_points_it_lacks(tmp_path: Path) -> None:
    line = {("a", lr): ends(*(c * float(lr) for c in (1, 2, 3, 4))) for lr in ("0.1", "0.2", "0.4")}
    claim = "within(slope(gap, 'lr')(r.a), 1, 0.01)"

    def of(**points: list[Observation]) -> tuple[str, str]:
        (found,) = judge(results(tmp_path, [claim], line | {("a", lr[1:]): seen for lr, seen in points.items()}))
        return found.verdict.state, found.verdict.reason

    assert of()[0] == HOLDS
    state, reason = of(**{"_0.4": [LOST] * 4})
    assert (state, "without seeds 0, 1, 2, 3, where a optimizer.lr=0.4 has no number" in reason) == (UNTOLD, True)
    state, reason = of(**{"_0.4": [LOST, *line["a", "0.4"][1:]]})
    assert (state, reason.endswith("without seed 0, where a optimizer.lr=0.4 has no number")) == (HOLDS, True)
    assert of(**{"_0.4": line["a", "0.4"][:3]})[1].endswith("without seed 3, where a optimizer.lr=0.4 has no number")
    assert of(**{"_0.4": ends(9, 9, 9, 9)})[0] == FAILS


def test_a_slope_is_of_the_cases_that_it_names(tmp_path: Path) -> None:
    seen = {("a", lr): ends(*[float(lr)] * 3) for lr in ("0.1", "0.2", "0.4")}
    seen |= {("b", lr): ends(*[float(lr) ** 3] * 3) for lr in ("0.1", "0.2", "0.4")}
    claims = [f"within(slope(gap, 'lr')(r.{name}), 3, 0.01)" for name in ("b", "b(lr=0.1)")]
    assert [one.verdict.state for one in judge(results(tmp_path, claims, seen))] == [HOLDS, UNTOLD]


def test_what_was_not_run_is_told_of(tmp_path: Path) -> None:
    """A claim, and a printed number, of what a scale leaves out."""
    seen = {("a", "0.1"): ends(1, 1, 1)}
    claims = """    yield claim(gap(r.a) < 2, "one")
    bound = math.sqrt(r.at(lr=0.2).a["lr"]) * r.b.topology.gap
    yield claim(gap(r.at(lr=0.2).a) > bound, "two")
    for at in r.each("lr", of="b"):
        yield claim(gap(at.b) > 2, "three")
"""
    grid = [{"name": name, "method": "psgd", "optimizer.lr": [0.1, 0.2]} for name in "ab"]
    keep = {"full": {"keep": {"name": "a", "optimizer.lr": 0.1}}}
    numbers = [Code(f"printed('a', gap, 1, 'us', {{'optimizer.lr': {lr}}})") for lr in (0.1, 0.2)]
    more = {"scales": keep, "numbers": numbers, "tolerance": {"kind": "absolute", "by": 0.1}, "grid": grid}
    found = results(tmp_path, claims, seen, **more)
    assert [one.verdict.state for one in judge(found)] == [HOLDS, UNTOLD, UNTOLD]
    assert all("not run at this scale" in one.verdict.reason for one in judge(found)[1:])
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
    numbers = [Code(f"printed('a', gap, {theirs}, 'us')")]
    found = results(tmp_path, ["gap(r.a) < 99"], {("a", "0.1"): ours}, numbers=numbers, tolerance=tolerance)
    assert [one.verdict for one in compare(found)] == [expected]


@pytest.mark.parametrize(("theirs", "expected"), [(1.0, OK), (1.2, OFF)])
def test_one_seed_is_enough_where_none_changes_anything(theirs: float, expected: str, tmp_path: Path) -> None:
    more = {"numbers": [Code(f"printed('a', 'gap', {theirs}, 'us')")], "tolerance": {"kind": "absolute", "by": 0.1}}
    found = results(tmp_path, None, {("a", "0.1"): ends(1)}, measure="consensus", **more)
    assert [one.verdict for one in compare(found)] == [expected]


def test_an_accuracy_gets_there_from_below_and_a_lost_floor_is_none() -> None:
    rising = pd.DataFrame({"step": [1.0, 2.0, 3.0], "test_accuracy": [0.1, 0.5, 0.9], "wire_bytes": [1.0, 2.0, 3.0]})
    assert of_run(to("test_accuracy", 0.5), Observation({}, rising)) == 2.0
    assert of_run(floor("gap"), Observation({}, curve(0.9), state="diverged")) == math.inf
    assert of_run(floor("test_accuracy"), Observation({}, rising, state="diverged")) == -math.inf
