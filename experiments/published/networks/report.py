"""Published figures of networks beside ours, as CSV and Markdown.

`python -m commeff.experiments.published.networks.report [--out FOLDER]`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from commeff.experiments.published.networks import contention, gossip
from commeff.experiments.report.write.table import Table, markdown
from commeff.experiments.run.system import git_commit

COMMAND = "python -m commeff.experiments.published.networks.report"
NOMINAL = 25e9 / 8  # bytes/s of the servers' network


def gossip_rows(constants: gossip.FittedConstants) -> list[dict[str, Any]]:
    """The ten fitted figures and the predicted hours."""
    rows = [compare(row, gossip.modelled(row, constants), "fitted") for row in gossip.PRINTED]
    for recipe in gossip.PRETRAININGS:
        status = f"predicted: {recipe.name}"
        rows += [compare(row, gossip.bert(row, constants, recipe), status) for row in gossip.BERT]
    return rows


def compare(row: gossip.PrintedFigure, ours: float, status: str) -> dict[str, Any]:
    """One line of the table."""
    return {
        "task": row.task,
        "method": row.method,
        "servers": row.servers,
        "GPUs": row.servers * gossip.PER_SERVER,
        "unit": row.unit,
        "theirs": row.value,
        "ours": round(ours, 2),
        "error (%)": round(100 * (ours / row.value - 1), 1),
        "status": status,
    }


def contention_rows() -> list[dict[str, Any]]:
    """SimGrid's figures and ours."""
    return [
        {
            "hosts": figure.hosts,
            "case": figure.case,
            "network": figure.network,
            "SimGrid (ms)": figure.simulated,
            "ours (ms)": round(figure.ours, 2),
            "error (%)": round(100 * (figure.ours / figure.simulated - 1), 2),
        }
        for figure in contention.FIGURES
    ]


def gossip_page(rows: Sequence[Mapping[str, Any]], constants: gossip.FittedConstants) -> list[str]:
    """The table with its constants, its assumptions and other batches."""
    fitted = [row for row in rows if row["status"] == "fitted"]
    near = sum(abs(row["error (%)"]) <= 15 for row in fitted)
    worst = max(fitted, key=lambda row: abs(row["error (%)"]))
    trend = ", ".join(f"{row['error (%)']:+.1f}" for row in fitted if row["method"] == "psgd" and row["unit"] == "h")
    return [
        "# Gossip against all-reduce on servers of 8 V100: printed and modelled",
        "",
        "Two constants are fitted to the first ten figures, by least squares of log(ours / theirs):",
        "",
        f"- {1e3 * constants.image:.2f} ms of computing for an image on a GPU: {1 / constants.image:.0f} images/s, "
        f"{gossip.share_of_peak(constants):.0%} of the float32 peak, input and all else included",
        f"- {constants.bandwidth / 1e9:.3f} GB/s between two servers, {constants.bandwidth / NOMINAL:.0%} of 25 Gb/s",
        "",
        f"{near} of {len(fitted)} are within 15 %. Farthest off: {worst['task']}, {worst['method']}, "
        f"{worst['servers']} servers, {worst['error (%)']:+.1f} %.",
        "",
        *markdown(Table.of(rows)),
        "",
        "Assumed:",
        "",
        *(f"- {line}" for line in gossip.ASSUMPTIONS),
        "",
        f"The errors of P-SGD's hours on 4, 8, 16, 32 servers have a trend: {trend} %. The bandwidth term of",
        "a ring hardly grows with the number of servers; what is printed does. So the gain of gossip is overstated on",
        "few servers and understated on many.",
        "",
        "With another batch on each GPU and both constants fitted anew (no table prints the batch: of these, 32 is the",
        "only one under which all ten are within 15 %):",
        "",
        *markdown(Table.of([other_batch(batch) for batch in (16, 32, 64, 128)])),
        "",
        *bert_notes(constants),
    ]


def other_batch(batch: int) -> dict[str, Any]:
    """The fit with another batch on each GPU."""
    constants = gossip.fit(batch)
    errors = {row: gossip.modelled(row, constants, batch) / row.value - 1 for row in gossip.PRINTED}
    worst = max(errors, key=lambda row: abs(errors[row]))
    return {
        "batch per GPU": batch,
        "ms an image": round(1e3 * constants.image, 2),
        "GB/s": round(constants.bandwidth / 1e9, 3),
        "within 15 %": sum(abs(error) <= 0.15 for error in errors.values()),
        "farthest": f"{worst.task}, {worst.method}, {worst.servers} servers: {100 * errors[worst]:+.1f} %",
    }


def bert_notes(constants: gossip.FittedConstants) -> list[str]:
    """The assumptions of the BERT rows, and why one of them cannot be met."""
    reduce, one_peer = gossip.BERT
    cluster = gossip.servers(reduce.servers, constants.bandwidth)
    limit = gossip.communication("psgd", cluster, 1e9) / gossip.communication("one_peer", cluster, 1e9)
    recipe = gossip.PRETRAININGS[0]
    return [
        "BERT-Large is a prediction: nothing is fitted to it. Steps, batch and precision are not printed. Assumed:",
        "",
        f"- {recipe.sequences / 1e6:.0f} million sequences of {recipe.tokens:.0f} tokens in the mean, as Devlin et al.",
        f"- {recipe.batch} on each GPU",
        "- 6 FLOPs for each parameter and token, at that share of the 16-bit peak which ImageNet has of the 32-bit one",
        "- gradients of 32 bits, or of 16",
        "",
        f"The printed hours have the ratio {reduce.value / one_peer.value:.2f}. Without any computing the model's is",
        f"2 (n-1)/n = {limit:.2f} on {cluster.gpus} servers, so no number of steps and no compute time gives both. The",
        "second row, which the lecture calls D-SGD, is probably Gossip-AGA.",
    ]


def contention_page(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """SimGrid's table with what is assumed about the tree."""
    worst = max(abs(row["error (%)"]) for row in rows)
    return [
        "# Contention: SimGrid 3.32 and the bytes on the busiest link",
        "",
        f"All {len(rows)} figures agree within {worst:.2f} %; SimGrid's are printed with three or four digits.",
        "",
        *markdown(Table.of(rows)),
        "",
        *str(contention.__doc__).strip().splitlines()[2:],
    ]


def write(out: Path) -> list[Path]:
    """Both tables as CSV and Markdown; every file says which command and commit made it."""
    constants = gossip.fit()
    pages = {"gossip": gossip_rows(constants), "simgrid": contention_rows()}
    text = {"gossip": gossip_page(pages["gossip"], constants), "simgrid": contention_page(pages["simgrid"])}
    origin = {"made by": COMMAND, "commit": git_commit()}
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, rows in pages.items():
        pd.DataFrame([{**row, **origin} for row in rows]).to_csv(out / f"{name}.csv", index=False)
        foot = f"Made by `{COMMAND}` at commit {origin['commit']}; modelled, no hardware involved."
        (out / f"{name}.md").write_text("\n".join([*text[name], "", foot, ""]))
        written += [out / f"{name}.csv", out / f"{name}.md"]
    return written


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/cluster"), help="the folder to write into")
    for path in write(parser.parse_args().out):
        print(path)


if __name__ == "__main__":
    main()
