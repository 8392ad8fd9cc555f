"""The language of claims: what it parses, what it refuses, and what numbers formulas have."""

from __future__ import annotations

import math
import random

import pytest

from commeff.experiments.published.reproduce.formulas import evaluate
from commeff.experiments.published.reproduce.grammar import check_claim
from commeff.experiments.published.reproduce.language import LanguageError, parse_claim, parse_formula, walk

NAMES = ["a", "b", "one peer"]
CLAIMS = [
    "below(a, others, sigmas=3)",
    "within(a, 'one peer', 1.5%)",
    "equal(a, b, bits)",
    "slope(log gap, log gamma) = 2 ± .2",
    "slope(log floor(gap), log(lr), a[n=4]) = 2 +- .2",
    "rate(a, down_to=1e-6) <= 1 - gamma * mu",
    "order(a, b, 'one peer')",
    "to(a, 1e-6, of=step) < 2 * to(b, 1e-6, of=step)",
    "order(onset(a, b, 1.25), onset('one peer', b[n=4], 2))",
    "slope(log onset(gap, b, 2), log n, a) <= 1",
]
REFUSED = [
    "",
    "a",
    "a <",
    "a.b(",
    "below(a)",
    "below(a, b, sigma=3)",
    "below(a, c)",
    "beloww(a, b)",
    "below(a, b) < 3",
    "rate(a, b, a) < 1",
    "a < b ± 1",
    "1 < 2",
    "a[lr] < b",
    "a b",
    "(a < b)",
    "__import__('os').system('true')",
    "__import__(a) < 1",
    "lambda: 1",
    "a < " + "(" * 60 + "1" + ")" * 60,
    "a < " + "-" * 60 + "1",
    "a < 1" + " + 1" * 200,
    "a; b",
    "equal(a, b, 3)",
    "onset(a, b) < 3",
    "onset(a, c, 2) < 3",
    "onset(c, a, 2) < 3",
    "onset(a, 2, b) < 3",
    "slope(log onset(gap, c, 2), log n, a) <= 1",
    "rate(c) < rate(a)",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_claim_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(LanguageError) as caught:
        check_claim(parse_claim(text), NAMES)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("text", CLAIMS)
def test_claims_of_the_docs_are_claims(text: str) -> None:
    check_claim(parse_claim(text), NAMES)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1 + 2 * 3 ^ 2", 19),
        ("2 ^ 3 ^ 2", 512),
        ("-2 ^ 2", -4),
        ("2 ^ -1", 0.5),
        ("10 - 4 - 3", 3),
        ("16 / 4 / 2", 2),
        ("50% * n", 2),
        ("max(1, n, 3) + cos(pi)", 3),
        ("1e-2 + .5", 0.51),
        ("sqrt(n) - log n", 2 - math.log(4)),
    ],
)
def test_arithmetic_is_the_usual_one(text: str, number: float) -> None:
    assert evaluate(parse_formula(text), {"n": 4.0}.__getitem__) == pytest.approx(number)


@pytest.mark.parametrize(
    "text", ["1 / 0", "9 ^ 9 ^ 9", "(0 - 8) ^ 0.5", "log(0)", "below(1, 2)", "exp(1e9)", "sqrt(1, 2)"]
)
def test_what_has_no_number_is_refused(text: str) -> None:
    with pytest.raises(LanguageError):
        evaluate(parse_formula(text), {}.__getitem__)


def test_a_claim_with_a_piece_taken_out_is_a_claim_or_refused() -> None:
    drawn, accepted, refused = random.Random(0), 0, 0
    for _ in range(2000):
        text = drawn.choice(CLAIMS)
        start = drawn.randrange(len(text))
        try:
            tree = parse_claim(text[:start] + text[start + drawn.randint(1, 6) :])
            check_claim(tree, NAMES)
            accepted += bool([*walk(tree)])
        except LanguageError:
            refused += 1
    assert accepted > 50
    assert refused > 500
