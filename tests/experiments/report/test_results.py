"""results/README.md beside the pages that it speaks of."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[3] / "results"
README = (RESULTS / "README.md").read_text(encoding="utf-8")
PAGES = sorted(page for page in RESULTS.glob("*/*/report.md") if re.search(r"^Scale: ", page.read_text(), re.MULTILINE))
NETWORKS = ("cifar10", "converged", "lecture")
STATES = {"hold": r"holds?", "inconclusive": "inconclusive", "fail": r"fails?"}


def counted(page: Path, group: str) -> Counter[str]:
    """How many claims of a group hold, are inconclusive and fail, as the page's headline has it."""
    found = re.search(rf"{group} \(\d+\): ([^.]*)\.", page.read_text(encoding="utf-8"))
    words = found[1] if found else ""
    return Counter({state: sum(map(int, re.findall(rf"(\d+) {name}\b", words))) for state, name in STATES.items()})


def test_pages_that_no_sum_counts_are_named() -> None:
    """Those whose headline is from before claims were told apart."""
    old = [page.parent.name for page in PAGES if re.search(r"Of \d+ claims", page.read_text(encoding="utf-8"))]
    named = re.search(r"^Pages from before p-values.*: (.*)\.$", README, re.MULTILINE)
    assert (re.findall(r"`(\w+)`", named[1]) if named else []) == old


def total(group: str, networks: bool) -> str:
    """The sum over pages, in the words of the README."""
    pages = [page for page in PAGES if (page.parent.parent.name in NETWORKS) == networks]
    counts = sum((counted(page, group) for page in pages), Counter[str]())
    return ", ".join(f"{counts[state]} {state}" for state in STATES)


def test_checked_theory_is_counted_as_the_pages_have_it() -> None:
    counts = sum((counted(page, "Checked theory") for page in PAGES), Counter[str]())
    assert f"Checked theory: {counts['hold']} of {counts.total()} bounds" in README


@pytest.mark.parametrize(
    ("words", "group", "networks"),
    [
        ("Claims of papers on training networks and on training time", "Claims of the paper", True),
        ("Claims of papers on problems without a network", "Claims of the paper", False),
    ],
)
def test_claims_are_counted_as_the_pages_have_them(words: str, group: str, networks: bool) -> None:
    assert f"{words}: {total(group, networks)}." in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_page_of_a_table_is_listed_once_a_group(page: Path) -> None:
    link = f"]({page.relative_to(RESULTS)})"
    assert README.count(link) == 1, f"{link} must be in results/README.md once"
