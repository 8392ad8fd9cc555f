"""Headlines of a report name nothing that its seeds do not bear out: laws over forged stores."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.report.data import summary
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.rows import leader
from commeff.experiments.report.draw.plots import figures
from commeff.experiments.report.write.table_main import main_tables
from tests.experiments.report.report_stores import Forged, forge


def runs(**levels: tuple[float | str, ...]) -> list[Forged]:
    """By method, the accuracy of each seed, or the state in which it ended otherwise."""
    return [
        Forged(name, seed, state=level) if isinstance(level, str) else Forged(name, seed, accuracy=level)
        for name, own in levels.items()
        for seed, level in enumerate(own)
    ]


def headlines(store: Path, forged: list[Forged], metric: str = "val_accuracy") -> list[str]:
    return summary.findings(analyse(forge(store, forged), metric=metric))


def rewrite(store: Path, method: str, **end: Any) -> None:
    for path in store.glob(f"{method}-*/summary.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | end))


def praise(lines: list[str]) -> str:
    """What is called best, and what is called cheapest."""
    return " ".join(line for line in lines if line.startswith(("Best", "Fewest")))


GOOD = (0.9, 0.91, 0.92)


@pytest.mark.parametrize("bad", ["diverged", "failed", "oom", "timeout"])
@pytest.mark.parametrize("others", ["done", "bad"])
def test_lucky_seeds_of_a_variant_that_fails_on_others_are_no_headline(bad: str, others: str, tmp_path: Path) -> None:
    rest: dict[str, tuple[float | str, ...]] = {"psgd": GOOD, "dsgd": GOOD if others == "done" else (0.9, 0.91, bad)}
    lines = headlines(tmp_path, runs(**rest, choco=(0.99, bad, bad)))
    assert "choco" not in praise(lines)
    assert ("psgd" in praise(lines)) == (others == "done")
    (why,) = (line for line in lines if line.startswith("Named neither"))
    assert f"choco (2 {bad} of 3 seeds)" in why
    top = leader(analyse(tmp_path).variants, "val_accuracy")
    assert top is not None
    assert top.name != "choco", "nor is it bold"


def test_nothing_is_cheap_beside_a_baseline_that_blew_up(tmp_path: Path) -> None:
    lines = headlines(tmp_path, runs(psgd=(0.9, "diverged", "diverged"), dsgd=GOOD, choco=GOOD))
    assert "psgd" not in praise(lines)
    assert not [line for line in lines if line.startswith("Fewest")]


@pytest.mark.parametrize("who", ["psgd", "choco"])
def test_what_learned_nothing_is_neither_best_nor_cheapest_nor_what_others_are_held_against(
    who: str, tmp_path: Path
) -> None:
    """At chance, all are within one point of each other."""
    forged = runs(psgd=(0.1, 0.11, 0.1), dsgd=(0.1, 0.1, 0.11), choco=(0.1, 0.105, 0.1))
    forge(tmp_path, forged)
    rewrite(tmp_path, "*", start_loss=2.3, val_loss=2.2, train_loss=2.2)
    assert who in praise(summary.findings(analyse(tmp_path)))
    rewrite(tmp_path, who, val_loss=2.31, train_loss=0.1)  # it overfits, and has learned
    assert who in praise(summary.findings(analyse(tmp_path)))
    rewrite(tmp_path, who, val_loss=2.29, train_loss=2.29)
    lines = summary.findings(analyse(tmp_path))
    assert who not in praise(lines)
    assert f"{who} (learned nothing" in " ".join(lines)


@pytest.mark.parametrize("shift", [0.0, 1e-15], ids=["equal", "rounding"])
@pytest.mark.parametrize("seeds", [1, 3])
def test_ties_are_called_ties(shift: float, seeds: int, tmp_path: Path) -> None:
    lines = headlines(tmp_path, runs(psgd=GOOD[:seeds], dsgd=tuple(level + shift for level in GOOD[:seeds])))
    assert f"are not separated by {seeds} seed" in lines[0]
    assert f"{seeds} seed" in lines[1]
    assert "separate the two" in lines[1]


def test_equally_cheap_variants_are_named_together(tmp_path: Path) -> None:
    forge(tmp_path, runs(psgd=GOOD, dsgd=GOOD, choco=tuple(level - 0.001 for level in GOOD)))
    rewrite(tmp_path, "choco", wire_bytes=40_000)
    (line,) = (line for line in summary.findings(analyse(tmp_path)) if line.startswith("Fewest"))
    assert "psgd: dsgd and choco send 4.00× less on the wire, dsgd at a difference of 0.00" in line


def test_variants_without_a_seed_in_common_are_not_compared(tmp_path: Path) -> None:
    ours = [Forged("dsgd", seed, accuracy=level + 0.005) for seed, level in enumerate(GOOD, 3)]
    (best,) = headlines(tmp_path, runs(psgd=GOOD) + ours)
    assert best.endswith("dsgd has no seed in common with psgd: nothing is said of their difference.")


@pytest.mark.parametrize("unfinished", [False, True])
def test_no_variant_is_the_best_of_several_tasks(unfinished: bool, tmp_path: Path) -> None:
    """A task of which no variant has all its seeds has a best one too, beside another that is done."""
    late: tuple[float | str, ...] = (0.3, "queued") if unfinished else (0.3,)
    forge(tmp_path, runs(psgd=GOOD, dsgd=(0.8, 0.81, 0.82)) + runs(choco=(0.2, 0.4, *late), local=(0.2, 0.35, *late)))
    path = tmp_path / "grids" / "forged.json"
    plan = json.loads(path.read_text())
    for cell in plan["cells"]:
        cell["labels"]["task"] = "easy" if cell["labels"]["method"] in ("psgd", "dsgd") else "hard"
    path.write_text(json.dumps(plan))
    easy, hard, *_ = summary.findings(analyse(tmp_path))
    assert easy.startswith("Best mean validation accuracy of 2 variants on easy: psgd easy, 91.0")
    assert hard.startswith("Best mean validation accuracy of 2 variants on hard: choco hard, 30")
    assert hard.endswith("choco hard and local hard are not separated by 3 seeds.")


def test_a_seed_that_measured_nothing_does_not_count(tmp_path: Path) -> None:
    forge(tmp_path, runs(psgd=(0.9, 0.91), choco=(0.9, 0.99)))
    for value in (None, True, "0.99"):
        path = tmp_path / "choco-digits-0.1-1" / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"val_accuracy": value}))
        assert "are not separated by 1 seed." in summary.findings(analyse(tmp_path))[0]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_praised_has_been_earned(seed: int, tmp_path: Path) -> None:
    """Random stores: who is praised alone is better on all seeds than whoever could have been named in its place."""
    chance = random.Random(seed)

    def level() -> float | str:
        return "diverged" if chance.random() < 0.1 else chance.choice([0.1, 0.9, 0.91, 0.92])

    levels = {name: tuple(level() for _ in range(3)) for name in ("psgd", "dsgd", "choco")}
    forge(tmp_path, runs(**levels))
    lines = summary.findings(analyse(tmp_path))
    for line in (line for line in lines if line.startswith("Best")):
        name = line.split(": ")[1].split(",")[0]
        assert "diverged" not in levels[name]
        for other, theirs in levels.items():
            if other == name or "diverged" in theirs:
                continue
            apart = {round(float(a) - float(b), 9) for a, b in zip(levels[name], theirs, strict=True)}
            mentioned = other in line.split(": ", 1)[1].split(",", 1)[1]
            assert mentioned or min(apart) > 0, (levels, line)
            assert not mentioned or len(apart) > 1 or apart == {0.0}, (levels, line)


def test_of_two_one_that_always_explodes_is_listed_with_its_reason(tmp_path: Path) -> None:
    (line,) = headlines(tmp_path, runs(psgd=GOOD, choco=("diverged",) * 3))
    assert line == "Named neither best nor cheapest: choco (3 diverged of 3 seeds)."


def test_of_several_baselines_those_in_doubt_are_none(tmp_path: Path) -> None:
    """Rates of psgd: one that learns, one that explodes, one that learns nothing; gossip is held against the first."""
    good = [Forged("psgd", seed, "0.1", accuracy=level) for seed, level in enumerate(GOOD)]
    good += [Forged("dsgd", seed, "9.0", accuracy=level) for seed, level in enumerate(GOOD)]
    exploded = [Forged("psgd", seed, "9.0", state="diverged") for seed in range(3)]
    idle = [Forged("psgd", seed, "0.0", accuracy=0.1) for seed in range(3)]
    forge(tmp_path, good + exploded + idle, select={"over": [], "by": "val_accuracy"})
    for path in tmp_path.glob("psgd-digits-0.0-*/summary.json"):
        losses = dict.fromkeys(("start_loss", "val_loss", "train_loss"), 2.3)
        path.write_text(json.dumps(json.loads(path.read_text()) | losses))
    analysis = analyse(tmp_path)
    assert [base.labels["optimizer.lr"] for base in analysis.baselines] == ["0.1"]
    (learned_nothing,) = (row for row in analysis.rows if row.variant.labels["optimizer.lr"] == "0.0")
    assert learned_nothing.difference is not None
    assert analysis.half_dense, "all psgd sends the same"


def test_one_that_explodes_and_one_at_chance_are_in_no_headline_and_pale_in_the_table(tmp_path: Path) -> None:
    """Both are by far the cheapest; one of the seeds that explode came to its end, better than any other."""
    forged = runs(psgd=GOOD, dsgd=GOOD, choco=("diverged", 0.99, "diverged"), ef21=(0.1, 0.1, 0.1))
    forge(tmp_path, forged)
    rewrite(tmp_path, "*", start_loss=2.3, val_loss=0.3, train_loss=0.3)
    rewrite(tmp_path, "ef21", val_loss=2.31, train_loss=2.31, wire_bytes=40)
    analysis = analyse(tmp_path)
    lines = summary.findings(analysis)
    assert "choco" not in praise(lines)
    assert "ef21" not in praise(lines)
    (why,) = (line for line in lines if line.startswith("Named neither"))
    assert "choco (2 diverged of 3 seeds), ef21 (learned nothing" in why
    table = main_tables(analysis)[0]
    for row, items in zip(analysis.rows, table.rows, strict=False):
        doubtful = row.variant.name in ("choco", "ef21")
        assert not doubtful or all(item.quiet and not item.best for item in items)
        assert doubtful or not items[2].quiet
    (front,) = (figure for figure in figures(analysis) if figure.name == "pareto")
    assert {"ef21", "choco"} <= {*front.data["variant"]}, "they are shown for what they are"
