"""Verdicts: every claim on results that are made up, so that it must hold, must fail, or is inconclusive."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from commeff.experiments.reproduce.cases import Case
from commeff.experiments.reproduce.judging import OFF, compare, judge
from commeff.experiments.reproduce.page import headline
from commeff.experiments.reproduce.quantities import TableQuantity, floor, least, onset, quantity, rate, to
from commeff.experiments.reproduce.reading import TableError
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.table import PublishedTable, read_table
from commeff.experiments.reproduce.tuning import chosen
from commeff.experiments.reproduce.verdicts import FAILS, HOLDS, UNTOLD, Judgement
from tests.experiments.reproduce.reproduced import Code, write_table, yields

STEPS = np.arange(1, 41) * 5.0


def curve(factor: float, bottom: float = 0.0, start: float = 1.0) -> pd.DataFrame:
    gap = start * factor**STEPS + bottom
    return pd.DataFrame({"step": STEPS, "gap": gap, "wire_bytes": 100 * STEPS})


def results(folder: Path, claims: object, seen: dict[tuple[str, str], list[Observation]], **more: object) -> Results:
    """A table of variants at values of lr, each with observations of seeds 0, 1, ..."""
    rates: dict[str, list[float]] = {}
    for name, lr in seen:
        rates.setdefault(name, []).append(float(lr))
    grid = [{"name": name, "method": "psgd", "optimizer.lr": values} for name, values in rates.items()]
    scale = str(more.pop("scale", "full"))
    content = {"paper": "none", "base": {"task": "mine"}, "grid": grid, "claims": claims} | more
    table = read_table(Path(write_table(folder, content)), scale)
    cases = [
        CaseResult(
            case,
            {
                n: each.with_metrics(table.derived)
                for n, each in enumerate(seen[case.name, case.labels["optimizer.lr"]])
            },
            {key: case.labels[key] for key in table.swept},
        )
        for case in table.cases
    ]
    return chosen(Results(table, cases))


def ends(*values: float) -> list[Observation]:
    return [Observation({"gap": value}) for value in values]


def judged(folder: Path, claim: str, **variants: list[Observation]) -> Judgement:
    """Of a claim in which the name of a variant is its gap."""
    bound = "".join(f"    {name} = gap(r[{name!r}])\n" for name in variants)
    seen = {(name, "0.1"): each for name, each in variants.items()}
    (found,) = judge(results(folder, bound + yields([claim]), seen))
    assert found.verdict.reason
    return found.verdict


def verdict(folder: Path, claim: str, **variants: list[Observation]) -> str:
    return judged(folder, claim, **variants).state


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("low < high", HOLDS),
        ("high < low", FAILS),
        ("high > low", HOLDS),
        ("low > high", FAILS),
        ("low < low2", UNTOLD),
        ("low2 < low", UNTOLD),
        ("(low > low2) & (low > high)", FAILS),
        ("(low < low2) & (low < high)", UNTOLD),
        ("(low < high) & (low2 < high)", HOLDS),
        ("within(low, low2, 1)", HOLDS),
        ("within(low, high, 1)", FAILS),
        ("within(low, low2, 0.01)", UNTOLD),
        ("within(low, high, share=0.95)", HOLDS),
        ("within(low, high, share=0.5)", FAILS),
        ("order(low, high)", HOLDS),
        ("order(high, low)", FAILS),
        ("order(low, low2, high)", UNTOLD),
        ("low <= low", HOLDS),
        ("low < low", FAILS),
        ("1 > low - 9", HOLDS),
        ("high / low > 5", HOLDS),
        ("within(high - low, 9, 1)", HOLDS),
        ("within(high - low, 5, 1)", FAILS),
        ("within(low, 1, 0.1)", UNTOLD),
        ("within(low2, low2, 0)", HOLDS),
        ("within(apply(max, low, high), high, 0)", HOLDS),
        ("2 * r.low['lr'] < low", HOLDS),
        ("2**low < 3", HOLDS),
        ("-high < abs(low)", HOLDS),
        ("apply(math.log, high) < 3", HOLDS),
        ("equal(r.low, r.low, 'gap')", HOLDS),
        ("equal(r.low, r.low2, 'gap')", FAILS),
    ],
)
def test_claims_on_numbers(claim: str, expected: str, tmp_path: Path) -> None:
    low, low2, high = ends(1.0, 1.1, 0.9), ends(1.1, 0.95, 1.0), ends(10.0, 10.1, 10.0)
    assert verdict(tmp_path, claim, low=low, low2=low2, high=high) == expected


def two_degrees(t: float) -> float:
    """Twice the tail of Student's t with two degrees of freedom, which three seeds have, in closed form."""
    return 1 - abs(t) / math.sqrt(2 + t * t)


def test_ratios_are_paired_by_seed(tmp_path: Path) -> None:
    """The seeds are far apart, the ratio is nearly the same in each."""
    assert verdict(tmp_path, "a < b", a=ends(1.0, 5.0, 9.0), b=ends(1.1, 5.5, 9.91)) == HOLDS
    assert verdict(tmp_path, "a < b", a=ends(1.0, 5.0, 9.0), b=ends(5.5, 9.91, 1.1)) == UNTOLD


def test_p_is_that_of_student(tmp_path: Path) -> None:
    """Of ratios where all numbers are positive, of differences elsewhere, of the nearer bound of a margin."""
    logs = (0.5, 1.0, 1.5)  # 1 is 3.46 times 0.5 / sqrt(3), of three seeds 4.3 are needed
    ratios = judged(
        tmp_path, "a < b", a=ends(1, 5, 9), b=ends(*(a * math.exp(x) for a, x in zip((1, 5, 9), logs, strict=True)))
    )
    differences = judged(tmp_path, "a < b", a=ends(-1, 0, 9), b=ends(-0.5, 1, 10.5))
    margin = judged(tmp_path, "within(a, b, 2)", a=ends(-1, 0, 9), b=ends(-0.5, 1, 10.5))
    sharp = judged(tmp_path, "within(a, b, 3)", a=ends(-1, 0, 9), b=ends(-0.5, 1, 10.5))
    assert [one.p for one in (ratios, differences, margin)] == pytest.approx([two_degrees(math.sqrt(12))] * 3, rel=1e-9)
    assert sharp.p == pytest.approx(two_degrees(2 * math.sqrt(12)), rel=1e-9)
    assert [one.state for one in (ratios, differences, margin, sharp)] == [UNTOLD, UNTOLD, UNTOLD, HOLDS]


def test_p_is_corrected_for_the_claims_of_a_page(tmp_path: Path) -> None:
    """One claim of three seeds holds alone, not as one of three; theory is neither counted nor corrected."""
    seen = {("a", "0.1"): ends(1, 1.1, 1.05), ("b", "0.1"): ends(1.5, 1.9, 1.55)}
    (alone,) = judge(results(tmp_path, ["gap(r.a) < gap(r.b)"], seen))
    assert (alone.verdict.state, alone.verdict.p) == (HOLDS, pytest.approx(0.0123, rel=0.01))
    claims = [f"gap(r.a) < {much} * gap(r.b)" for much in ("1", "1.001", "1.002", "1.003", "1.004")]
    five = judge(results(tmp_path, claims, seen))
    assert [one.verdict.state for one in five] == [UNTOLD] * 5
    smallest = [one.verdict.p for one in five if one.verdict.p is not None]
    assert min(smallest) == pytest.approx(5 * 0.0122, rel=0.02)
    theory = [claims[0], *((each, "of='theory'") for each in claims[1:])]
    assert [one.verdict.state for one in judge(results(tmp_path, theory, seen))] == [HOLDS] * 5


def test_who_is_corrected_with_whom(tmp_path: Path) -> None:
    """Claims of ours as the paper's; theory not, whose own p decides; none that is not judged yet."""
    seen = {("a", "0.1"): ends(1, 1.1, 1.05), ("b", "0.1"): ends(1.5, 1.9, 1.55), ("c", "0.1"): ends(1.2, 0.9, 1.3)}
    five = [(f"gap(r.a) < 1.00{i} * gap(r.b)", "of='us'") for i in range(5)]
    assert [one.verdict.state for one in judge(results(tmp_path, five, seen))] == [UNTOLD] * 5
    (noisy,) = judge(results(tmp_path, [("gap(r.a) < gap(r.c)", "of='theory'")], seen))
    assert (noisy.verdict.state, noisy.verdict.p is None) == (UNTOLD, False)
    waiting = [("gap(r.a) < gap(r.b)", "scale='smoke'"), *five]
    found = judge(results(tmp_path, waiting, seen, scale="smoke"))
    assert [one.verdict.state for one in found] == [HOLDS, *[UNTOLD] * 5]
    assert [one.verdict.p is None for one in found] == [False, *[True] * 5]


def test_failures_of_several_are_counted_however_they_are_bracketed(tmp_path: Path) -> None:
    parts = [f"(gap(r.b) < 1.00{i} * gap(r.a))" for i in range(4)]
    seen = {("a", "0.1"): ends(1, 1.1, 1.05), ("b", "0.1"): ends(1.5, 1.9, 1.55)}
    flat, nested = (
        judge(results(tmp_path, [words], seen))[0].verdict.p
        for words in (" & ".join(parts), f"({parts[0]} & {parts[1]}) & ({parts[2]} & {parts[3]})")
    )
    assert flat == pytest.approx(nested, rel=1e-12)
    assert flat == pytest.approx(4 * 0.0123, rel=0.03)


def test_what_chance_has_no_part_in_has_no_p(tmp_path: Path) -> None:
    for claim in ("low < high", "within(low, high, 9)", "equal(r.low, r.low, 'gap')", "(low < high) & (low < 5)"):
        assert judged(tmp_path, claim, low=ends(1, 1, 1), high=ends(10, 10, 10)).p is None


def test_a_claim_is_somebodys(tmp_path: Path) -> None:
    seen = {("a", "0.1"): ends(1, 1, 1)}
    found = judge(
        results(tmp_path, ["gap(r.a) < 2", ("gap(r.a) < 3", "of='theory'"), ("gap(r.a) > 4", "of='us'")], seen)
    )
    words = "Claims of the paper (1): 1 holds. Checked theory (1): 1 holds. Claims of ours (1): 1 fails."
    assert headline("full", found, []) == f"Scale: full. {words}"
    assert "eproduced" not in headline("full", found[1:2], []), "a bound that holds is no result of the paper"
    with pytest.raises(TableError, match="of must be one of paper, theory, us, got 'papr'; did you mean paper"):
        judge(results(tmp_path, [("gap(r.a) < 2", "of='papr'")], seen))


def test_seeds_without_a_number_are_named(tmp_path: Path) -> None:
    """A claim on the others says which seed it left out."""
    low, high = [*ends(1.0, 1.1, 0.9), Observation({"gap": math.nan})], ends(2.0, 2.2, 2.1, 2.0)
    for claim in ("low < high", "within(low, low, 1)", "order(low, high)", "(low + 1) * high < 99"):
        assert judged(tmp_path, claim, low=low, high=high).reason.endswith("; without seed 3, where low has no number")
    one = judged(tmp_path, "low < high", low=low[:3], high=high)
    assert one.reason.endswith("; without seed 3, where one of the two has no number")
    assert one.reason.startswith("1 ± 0.25 < 2.1 ± 0.25: ratio 0.475, "), "of the seeds that both have"
    assert "without" not in judged(tmp_path, "low < high", low=low[:3], high=high[:3]).reason


def test_two_seeds_tell_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, "a < b", a=ends(1.0, 1.0), b=ends(9.0, 9.0)) == UNTOLD
    assert verdict(tmp_path, "a < 2", a=ends(1.0, 1.0)) == UNTOLD


def test_what_no_seed_changes_needs_one(tmp_path: Path) -> None:
    seen = {("a", "0.1"): [Observation({"rho": 1.0})], ("b", "0.1"): [Observation({"rho": 2.0})]}
    rho = "final('rho')"
    for claim in (f"{rho}(r.a) < {rho}(r.b)", f"2 > {rho}(r.a)", f"{rho}(r.a) / {rho}(r.b) < 0.6"):
        (found,) = judge(results(tmp_path, [claim], seen, measure="consensus"))
        assert found.verdict.state == HOLDS


def test_a_run_that_diverged_or_never_got_there_is_beyond_all_that_did(tmp_path: Path) -> None:
    lost = [Observation({"gap": 0.1}, state="diverged")] * 3
    assert verdict(tmp_path, "a < b", a=ends(1, 1, 1), b=lost) == HOLDS
    assert verdict(tmp_path, "b < a", a=ends(1, 1, 1), b=lost) == FAILS
    assert verdict(tmp_path, "a < b", a=lost, b=lost) == UNTOLD
    assert verdict(tmp_path, "a < b", a=ends(1, 1, 1), b=[*ends(1, 1), lost[0]]) == UNTOLD
    quick, slow = ([Observation({"gap": 0.0}, curve(factor))] * 3 for factor in (0.8, 0.99))
    sent, steps = "to('gap', 1e-3)", "to('gap', 1e-3, of='step')"
    assert verdict(tmp_path, f"{sent}(r.a) < {sent}(r.b)", a=quick, b=slow) == HOLDS
    assert verdict(tmp_path, f"{steps}(r.a) < 40", a=quick) == HOLDS
    assert verdict(tmp_path, f"{sent}(r.a) < 40", a=quick) == FAILS


def of_run(of: TableQuantity, *seen: Observation) -> float:
    """A quantity of the first run; the second is that of the variant beside."""
    cases = [CaseResult(Case(name, {}, {}), {0: each}) for name, each in zip("ab", seen, strict=False)]
    table = cast(PublishedTable, SimpleNamespace(swept=[]))
    return of.number(Results(table, cases), cases[0], 0)


def test_quantities_of_a_curve() -> None:
    seen = Observation({}, curve(0.9, bottom=1e-4))
    assert of_run(floor("gap"), seen) == pytest.approx(1e-4, rel=1e-3)
    assert of_run(rate("gap"), Observation({}, curve(0.9))) == pytest.approx(0.9)
    noise = curve(0.9, bottom=1e-14)
    assert of_run(rate("gap", down_to=1e-6), Observation({}, noise)) == pytest.approx(0.9, abs=1e-4)
    assert of_run(rate("gap"), Observation({}, curve(0.7, bottom=1e-14))) == pytest.approx(0.7, abs=0.01)
    assert of_run(to("gap", 0.1), seen) == 100 * 25
    assert of_run(to("gap", 1e-9), seen) == math.inf
    lost = replace(seen, state="diverged")
    assert [of_run(of, lost) for of in (to("gap", 0.1), least("gap"), rate("gap"))] == [math.inf] * 3
    assert math.isnan(of_run(floor("nothing"), seen))


def late(until: float) -> pd.DataFrame:
    """Four times as large as 0.9^k, and half as much more from a step on."""
    return pd.DataFrame({"step": STEPS, "gap": np.where(until > STEPS, 4.0, 1.5) * 0.9**STEPS, "wire_bytes": STEPS})


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("onset('gap', 'best', 2)(r.slow) <= 50", HOLDS),
        ("onset('gap', 'best', 2)(r.slow) < 50", FAILS),
        ("within(onset('gap', 'best', 5)(r.slow), 5, 0)", HOLDS),
        ("onset('gap', 'best', 1.2)(r.slow) > 1e9", HOLDS),
        ("order(onset('gap', 'best', 2)(r.quick), onset('gap', 'best', 2)(r.slow))", HOLDS),
        ("onset('gap', 'best', 2)(r.slow) < onset('gap', 'best', 2)(r.quick)", FAILS),
        ("onset('gap', 'best', 1.2)(r.slow) < onset('gap', 'best', 1.2)(r.quick)", UNTOLD),
        ("onset('gap', 'best', 2)(r.best) < 50", UNTOLD),
    ],
)
def test_an_onset_is_the_step_from_which_a_curve_stays_near_another(claim: str, expected: str, tmp_path: Path) -> None:
    def runs(*starts: float) -> list[Observation]:
        return [Observation({"gap": 0.0}, late(start)) for start in starts]

    best = [Observation({"gap": 0.0}, curve(0.9))] * 3
    assert verdict(tmp_path, claim, slow=runs(50, 50, 50), quick=runs(20, 25, 30), best=best) == expected


def test_an_onset_needs_shared_steps_and_a_run_that_did_not_diverge() -> None:
    def within(factor: float, *seen: Observation) -> float:
        return of_run(onset("gap", "b", factor), *seen)

    best, near = Observation({}, curve(0.9)), Observation({}, late(20))
    assert within(2, near, best) == 20
    assert within(2, near, Observation({}, curve(0.9)[2:])) == 20
    assert math.isnan(within(2, near, Observation({}, curve(0.9)[:0])))
    assert math.isnan(within(2, near, Observation({}, curve(0.9), state="diverged")))
    assert within(2, Observation({}, late(20), state="diverged"), best) == math.inf
    rising = [Observation({}, c.assign(accuracy=1 - c["gap"])) for c in (late(20), curve(0.9))]
    assert of_run(onset("accuracy", "b", 1.02), *rising) == 35  # the first with 1 - 1.5 x 0.9^k >= (1 - 0.9^k) / 1.02


def test_what_is_shown_may_stand_beside_another_variant_or_be_a_function(tmp_path: Path) -> None:
    slow = {("slow", lr): [Observation({}, late(start))] * 3 for lr, start in (("0.1", 50), ("0.2", 60))}
    best = {("best", lr): [Observation({}, curve(0.9))] * 3 for lr in ("0.1", "0.2")}
    root = {"root": Code("lambda m: math.sqrt(m['gap'])")}
    found = results(tmp_path, ["gap(r.slow(lr=0.1)) > 1"], slow | best, metrics=root)
    twice, gap_of = quantity(lambda c: 2 * c["lr"]), quantity(lambda c: c.topology.gap)
    for case, at, lr in zip(found.named("slow", {}), (50, 60), (0.1, 0.2), strict=True):
        assert onset("gap", "best", 2).by_seed(found, case) == dict.fromkeys(range(3), at)
        assert onset("root", "best", 2).by_seed(found, case) == dict.fromkeys(range(3), 5)
        assert twice.by_seed(found, case)[0] == pytest.approx(2 * lr)
    assert onset("gap", "best", 2).by_seed(found, found.named("best", {})[0]) == {}
    claim = "within(slope(onset('gap', 'best', 2), 'lr', log='')(r.slow), 100, 1e-6)"
    assert [one.verdict.state for one in judge(results(tmp_path, [claim], slow | best))] == [HOLDS]
    digits = results(tmp_path, ["loss(r.a) < 1"], {("a", "0.1"): ends(1)}, base={"task": "digits"})
    assert gap_of.by_seed(digits, digits.cases[0]) == {}, "parallel SGD has no topology"


@pytest.mark.parametrize(("power", "expected"), [(2.0, HOLDS), (1.0, FAILS)])
def test_a_slope_is_that_of_all_cases_of_a_variant(power: float, expected: str, tmp_path: Path) -> None:
    seen = {("a", lr): ends(*(c * float(lr) ** power for c in (1, 2, 3))) for lr in ("0.1", "0.2", "0.4")}
    claims = ["within(slope(gap, 'lr')(r.a), 2, 0.1)", "within(slope('gap', lambda c: 3 * c['lr'])(r.a), 2, 0.1)"]
    assert [one.verdict.state for one in judge(results(tmp_path, claims, seen))] == [expected, expected]


def test_each_judges_one_by_one_and_an_unclear_variant_is_refused(tmp_path: Path) -> None:
    seen = {
        ("a", "0.1"): ends(1, 1, 1),
        ("a", "0.2"): ends(3, 3, 3),
        ("b", "0.1"): ends(2, 2, 2),
        ("b", "0.2"): ends(2, 2, 2),
        ("c", "0.4"): ends(2, 2, 2),
    }
    each = """    for at in r.each("lr", of="a"):
        yield claim(gap(at.a) < gap(at.b), "lower")
        yield claim(gap(at.a) > 0, "positive")
"""
    found = judge(results(tmp_path, each, seen))
    assert [(one.text, one.verdict.place, one.verdict.state) for one in found] == [
        ("lower", {"lr": "0.1"}, HOLDS),
        ("lower", {"lr": "0.2"}, FAILS),
        ("positive", {"lr": "0.1"}, HOLDS),
        ("positive", {"lr": "0.2"}, HOLDS),
    ]
    apart = judge(results(tmp_path, ["gap(r.a(lr=0.2)) > gap(r.at(lr=0.1).b)"], seen))
    assert [(one.verdict.place, one.verdict.state) for one in apart] == [({"lr": "0.1"}, HOLDS)]
    with pytest.raises(TableError, match=r"a is 2 cases, which differ in optimizer\.lr"):
        judge(results(tmp_path, ["gap(r.a) < gap(r.b)"], seen))


def test_equal_to_the_last_bit(tmp_path: Path) -> None:
    one, other = curve(0.9), curve(0.9)
    other["wire_bytes"] *= 2  # bytes are another matter
    same = [Observation({"gap": 0.0, "wire_bytes": 1.0}, one)] * 3

    def twice() -> list[Observation]:
        return [Observation({"gap": 0.0, "wire_bytes": 2.0}, other)] * 3

    assert verdict(tmp_path, "equal(r.a, r.b)", a=same, b=twice()) == HOLDS
    other.loc[7, "gap"] += 1e-16
    assert verdict(tmp_path, "equal(r.a, r.b)", a=same, b=twice()) == FAILS
    assert verdict(tmp_path, "equal(r.a, r.b, 'wire_bytes')", a=same, b=twice()) == FAILS


def test_a_claim_waits_for_its_scale(tmp_path: Path) -> None:
    seen = {("a", "0.1"): ends(1.0, 1.0, 1.0)}
    claims = ["gap(r.a) < 2", ("equal(r.a, r.a, 'gap')", "scale='smoke'")]
    found = judge(results(tmp_path, claims, seen, scale="smoke"))
    assert [one.verdict.state for one in found] == [UNTOLD, HOLDS]


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        ({"kind": "absolute", "by": 0.5}, ["ok", "off"]),
        ({"kind": "relative", "by": 0.6}, ["ok", "ok"]),
    ],
)
def test_numbers_beside_ours(tolerance: dict[str, object], expected: list[str], tmp_path: Path) -> None:
    seen = {("a", "0.1"): ends(1.0, 1.2, 1.1), ("b", "0.1"): ends(3, 3, 3)}
    numbers = [Code("printed('a', gap, 1.0, 'us')"), Code("printed('b', gap, lambda c: 20 * c['lr'], 'us')")]
    found = compare(results(tmp_path, ["gap(r.a) < gap(r.b)"], seen, numbers=numbers, tolerance=tolerance))
    assert [one.verdict for one in found] == expected
    assert [round(one.difference, 9) for one in found] == [0.1, 1.0]


def test_rates_are_chosen_on_validation_and_an_edge_is_warned_of(tmp_path: Path) -> None:
    def run(val: float, test: float) -> list[Observation]:
        return [Observation({"val_loss": val, "gap": test})] * 3

    seen = {("a", lr): run(val, test) for lr, val, test in (("0.1", 3, 0), ("0.2", 1, 5), ("0.4", 2, 0))}
    seen |= {("b", lr): run(val, 1) for lr, val in (("0.1", 3), ("0.2", 2), ("0.4", 1))}
    found = results(tmp_path, ["gap(r.a) > gap(r.b)"], seen, tune={"over": "optimizer.lr", "by": "val_loss"})
    assert [case.labels["optimizer.lr"] for case in found.cases] == ["0.2", "0.4"]
    assert [line.split(":")[0] for line in found.remarks] == ["b"]
    assert [one.verdict.state for one in judge(found)] == [HOLDS]


def test_only_a_whole_table_at_full_scale_is_called_reproduced(tmp_path: Path) -> None:
    seen = {("a", "0.1"): ends(1, 1, 1)}
    good, bad = (judge(results(tmp_path, [claim], seen)) for claim in ("gap(r.a) < 2", "gap(r.a) > 2"))
    assert "Reproduced" in headline("full", good, [])
    unclear = judge(results(tmp_path, ["gap(r.a) < 1"], {("a", "0.1"): ends(0.8, 0.9, 1.2)}))
    assert [one.verdict.state for one in unclear] == [UNTOLD]
    printed = {"tolerance": {"kind": "relative", "by": 0.1}, "numbers": [Code("printed('a', gap, 1.0, 'us')")]}
    (near,) = compare(results(tmp_path, ["gap(r.a) < 2"], seen, **printed))
    assert "Reproduced" in headline("full", [], [near])
    off = replace(near, verdict=OFF)
    others = (
        ("reduced", good, [], False),
        ("full", [*good, *bad], [], False),
        ("full", [*good, *unclear], [], False),
        ("full", good, [off], False),
        ("full", good, [], True),
    )
    assert all("eproduced" not in headline(*words) for words in others)
