"""The page of a table: claims and numbers with their verdicts, everything measured, settings, and what made it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from commeff.experiments.escape import markdown_code, markdown_prose, markdown_text
from commeff.experiments.report.draw.figures import save, write_csv
from commeff.experiments.report.write.page import write_text
from commeff.experiments.reproduce.cases import in_words, listing
from commeff.experiments.reproduce.constants import worked_out
from commeff.experiments.reproduce.figure import figure
from commeff.experiments.reproduce.judging import NOT_COMPARABLE, OFF, OK, PAPER, THEORY, US, Claim, Comparison
from commeff.experiments.reproduce.results import CaseResult, Results
from commeff.experiments.reproduce.table import TableCluster
from commeff.experiments.reproduce.verdicts import FAILS, HOLDS, UNTOLD, over_seeds
from commeff.experiments.run.reading import read_text

GROUPS = {PAPER: "Claims of the paper", THEORY: "Checked theory", US: "Claims of ours"}
VERBS = {HOLDS: "hold", FAILS: "fail"}  # of several
P_VALUES = """p is that of Student's t over seeds, paired and two-sided; orders of positive numbers are tested by
the logarithm of their ratio. Claims of the paper and of ours are corrected together for their number (Holm).
p < 0.05 decides; above it a claim is inconclusive."""


def write(results: Results, claims: Sequence[Claim], compared: Sequence[Comparison], command: str, out: Path) -> Path:
    """Write report.md, values.csv and the figure into a folder; the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    table = results.table
    if table.figure is not None:
        save(figure(results, table.figure), out)
    write_csv(_values(results), out / "values.csv", digits=8)
    page = [
        f"# {markdown_prose(table.title)}",
        "",
        headline(table.scale, claims, compared, bool(results.missing)),
        "",
        markdown_prose(table.paper),
        "",
        *(line for text in table.about.split("\n\n") if text for line in (markdown_prose(text), "")),
        *_claims(claims),
        *_numbers(compared, results),
        *(["![figure](figure.png)", ""] if table.figure else []),
        *_measured(results),
        *_tried(results),
        *_settings(table.settings, table.left_open),
        *_origin(results, command),
    ]
    return write_text(out / "report.md", page)


def replaced(page: Path, title: str, command: str) -> list[str]:
    """A line if a page is there that another table, or another command, has made."""
    try:
        lines = read_text(page).splitlines()
    except OSError:
        return []
    if not lines or {f"# {markdown_prose(title)}", f"- {markdown_code(command)}"} <= {*lines}:
        return []
    made = next((line[2:] for line in lines if line.startswith("- `commeff reproduce ")), "another command")
    return [f"{page} was of {lines[0].removeprefix('# ')!r}, made by {made}, and is replaced; --out keeps pages apart"]


def headline(scale: str, claims: Sequence[Claim], compared: Sequence[Comparison], incomplete: bool = False) -> str:
    """What came out: claims of the paper, of theory and of ours apart.

    Only a whole table at full scale, no run missing, in which all that the paper says holds, can be called reproduced.

    >>> headline("full", [], [])
    'Scale: full.'
    """
    sentences = [f"Scale: {scale}."]
    for of, words in GROUPS.items():
        states = [one.verdict.state for one in claims if one.of == of]
        counts = [
            f"{count} {VERBS.get(kind, kind) if count > 1 else kind}"
            for kind in (HOLDS, FAILS, UNTOLD)
            if (count := states.count(kind))
        ]
        sentences += [f"{words} ({len(states)}): {', '.join(counts)}."] if states else []
    pairs = [(sum(c.verdict == kind for c in compared), kind) for kind in (OK, OFF, UNTOLD, NOT_COMPARABLE)]
    numbers = [f"{count} {kind}" for count, kind in pairs if count]
    sentences += [f"Of {len(compared)} numbers {', '.join(numbers)}."] if compared else []
    published = any(one.of == PAPER for one in claims) or any(one.printed.scale == "full" for one in compared)
    good = all(one.verdict.state == HOLDS for one in claims) and all(c.verdict == OK for c in compared)
    if scale == "full" and good and not incomplete and published:
        sentences.append("**Reproduced.**")
    return " ".join(sentences)


def _table(align: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of cells that are written as they stand; "l" aligns a column to the left, "r" to the right."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join(':--' if letter == 'l' else '--:' for letter in align)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _text_table(align: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of plain text."""
    return _table(align, [*map(markdown_text, heads)], ([*map(markdown_text, row)] for row in rows))


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    for of, title in GROUPS.items():
        if group := [one for one in claims if one.of == of]:
            yield from (f"## {title}", "")
            yield from _table("lllrll", ["claim", "where", "verdict", "p", "judged by", "source"], map(_row, group))
    if any(one.verdict.p is not None for one in claims):
        yield from (P_VALUES.replace("\n", " "), "")
    unmet = [one for one in claims if one.verdict.state != HOLDS and one.because]
    for because in dict.fromkeys(claim.because for claim in unmet):
        texts = dict.fromkeys(claim.text for claim in unmet if claim.because == because)
        yield from (f"*{'; '.join(map(markdown_text, texts))}*: {markdown_prose(because)}", "")


def _row(one: Claim) -> list[str]:
    words = (one.text, listing(one.verdict.place, ", "), one.verdict.reason, one.source)
    text, place, reason, source = map(markdown_text, words)
    return [text, place, f"**{one.verdict.state}**", chance(one.verdict.p), reason, source]


def chance(p: float | None) -> str:
    """A p-value as a page prints it; nothing where chance has no part.

    >>> chance(0.0432), chance(2e-7), chance(None)
    ('0.043', '< 0.0001', '')
    """
    return "" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def _numbers(compared: Sequence[Comparison], results: Results) -> Iterator[str]:
    if not compared:
        return
    heads = ["variant", "of", "theirs", "ours", "difference", "verdict", "source"]
    yield from ("## Numbers", "", *_table("llrrrll", heads, (_compared(one, results) for one in compared)))
    if not all(run.comparable for case in results.cases for run in case.runs.values()):
        settings = {key: in_words(value) for key, value in results.table.comparable.items()}
        words = f"Printed numbers are of runs with {markdown_code(listing(settings, ', '))}, which ours are not"
        yield from (f"{words}: only claims and formulas get a verdict.", "")
    explained = dict.fromkeys(c.printed.because for c in compared if c.verdict in (OFF, UNTOLD) and c.printed.because)
    for because in explained:
        yield from (markdown_prose(because), "")


def _compared(one: Comparison, results: Results) -> list[str]:
    spread = "" if one.printed.spread is None else f" ± {one.printed.spread:g}"
    printed = "–" if math.isnan(one.published) else f"{one.published:.6g}{spread}"
    difference = f"{one.difference:+.2g}" if math.isfinite(one.difference) else "–"
    name = f"{results.table.called(one.printed.variant)} {listing(one.where)}".strip()
    variant, of, source = map(markdown_text, (name, one.printed.of.text, one.printed.source))
    return [variant, of, printed, over_seeds(one.measured, one.runs), difference, f"**{one.verdict}**", source]


def _measured(results: Results) -> Iterator[str]:
    """Every case, with the mean and interval over seeds of what the table shows."""
    table, keys = results.table, results.labels
    heads = ["variant", *keys, "seeds", *(shown.text for shown in table.show)]
    rows = []
    for result in results.cases:
        numbers = [over_seeds(shown.by_seed(results, result), len(result.runs)) for shown in table.show]
        labels = (result.labels.get(key, "") for key in keys)
        lost = sum(run.state == "diverged" for run in result.runs.values())
        seeds = f"{len(result.runs)}" + (f" ({lost} diverged)" if lost else "")
        rows.append([table.called(result.case.name), *labels, seeds, *numbers])
    yield from ("## Measured", "", *_text_table("l" + "r" * (len(heads) - 1), heads, rows))
    yield from ("± is half a 95 % interval over seeds; differences in claims are paired by seed.", "")
    if results.remarks:
        yield from (*(f"- {markdown_text(remark)}" for remark in results.remarks), "")


def _tried(results: Results) -> Iterator[str]:
    """The values of the tuned label that each variant tried, their results on validation data, and which counts."""
    table, tune = results.table, results.table.tune
    if tune is None or not results.choices:
        return
    where = f"runs that only choose, seed {_listed(tune.seeds)}"
    for key, value in tune.settings.items():
        values = dict.fromkeys(worked_out(table, case, key, value) for case in table.cases)
        where += f", {markdown_code(f'{key}: ' + ', '.join(values))}"
    best = f"{markdown_code(tune.over)} is that of the best {markdown_code(tune.by.text)}"
    yield from ("## Tuning", "", f"{best} in {where}.", "", "All variants tried as many values.", "")
    labels = [choice.best.labels for choice in results.choices]
    keys = [key for key in results.table.swept if key != tune.over and any(key in case for case in labels)]
    rows = []
    for choice in results.choices:
        triples = zip(choice.values, choice.tried, choice.means, strict=True)
        tried = ", ".join(f"{value}: {_mean(case, mean)}" for value, case, mean in triples)
        cells = (choice.best.labels.get(key, "") for key in keys)
        rows.append([results.table.called(choice.best.case.name), *cells, tried, choice.values[choice.pick]])
    heads = ["variant", *keys, f"{tune.over}: {tune.by.text}", "chosen"]
    yield from _text_table("l" + "r" * len(keys) + "lr", heads, rows)


def _mean(case: CaseResult, mean: float) -> str:
    if not math.isnan(mean):
        return f"{mean:.5g}"
    return "diverged" if any(run.state == "diverged" for run in case.runs.values()) else "–"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _settings(settings: Mapping[str, str], left_open: Mapping[str, str]) -> Iterator[str]:
    for title, words in (("## Settings", settings), ("## Left open by the paper, chosen here", left_open)):
        if words:
            yield from (title, "", *(f"- {markdown_prose(f'{key}: {value}')}" for key, value in words.items()), "")


def _origin(results: Results, command: str) -> Iterator[str]:
    table, machines = results.table, results.machines
    yield from ("## Made by", "", f"- {markdown_code(command)}", f"- scale {table.scale}, seeds {_listed(table.seeds)}")
    if table.cluster is not None:
        yield f"- {markdown_prose(_cluster(table.cluster))}"
    hardware = {f"{m['cpu']}, {m['cores']} cores, GPU {m['gpus']}, torch {m['torch']}" for m in machines}
    yield from (f"- {markdown_prose(line)}" for line in sorted(hardware))
    plugins = sorted({plugin for machine in machines for plugin in machine.get("plugins", "").split("; ") if plugin})
    if plugins:
        yield f"- plug-ins: {markdown_prose('; '.join(plugins))}"
    if machines:
        commits = ", ".join(sorted({machine["commit"] for machine in machines}))
        yield f"- commit {markdown_prose(commits)}" + (" (+: files differed from the commit)" if "+" in commits else "")


def _cluster(where: TableCluster) -> str:
    """The cluster of a table, in words."""
    place = where.place
    seconds = f"{place.step_seconds:g} s of computing a step" if place.step_seconds is not None else ""
    counted = f"computing at {place.efficiency:.0%} of {place.cluster.gpu.name}'s peak"
    model = f", messages of a model of {where.parameters:g} parameters" if where.parameters else ""
    return f"modelled seconds: on {place.name}, {seconds or counted}{model}; nothing of them is measured"


def _values(results: Results) -> pd.DataFrame:
    """Every number at the end and every quantity shown, with all digits: a row for each case and seed."""
    rows = []
    for result in results.cases:
        shown_by_seed = {shown.text: shown.by_seed(results, result) for shown in results.table.show}
        for seed, run in sorted(result.runs.items()):
            numbers = {text: values.get(seed, math.nan) for text, values in shown_by_seed.items()}
            rows.append({"variant": result.case.name, **result.labels, "seed": seed, "state": run.state} | numbers)
    return pd.DataFrame(rows)
