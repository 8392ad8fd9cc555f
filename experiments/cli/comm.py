"""`commeff bench comm`: links, collectives and compressors measured, and a hardware profile written."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from commeff.experiments.cli.common import Json, deaths, refusals, table, try_file

if TYPE_CHECKING:
    from commeff.experiments.measure.comm import Measurements

MOST = 256  # processes of `bench comm`


def comm(
    nproc: Annotated[
        int | None, typer.Option("--nproc", help="Processes to fork; 4 unless told. A torchrun job has its own.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Also write every number, hardware and commit here.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Write a hardware profile here, to be given as --cluster.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the links between processes, collectives over them, and compressors, on CPU tensors over gloo.

    Latency and bandwidth of each pair by ping-pong; algbw and busbw as nccl-tests define them; compressors on one
    thread beside a copy. In a running job: `torchrun ... -m commeff bench comm --profile cluster.yaml`.
    """
    with refusals(), deaths():
        if nproc is not None and not 2 <= nproc <= MOST:
            raise ValueError(f"--nproc must be at least 2 and at most {MOST}, got {nproc}: a link has two ends")
        try_file("--csv", csv)
        try_file("--profile", profile)

        from commeff.experiments.measure import comm as bench
        from commeff.experiments.measure.profile import write
        from commeff.experiments.run.system import cpu_name, git_commit

        measured = bench.run(nproc)
        if measured is None:
            return
        rows = bench.rows(measured)
        count = len(measured.between.hosts)
        machines = len(set(measured.between.hosts))
        command = "commeff bench comm" + (f" --nproc {nproc}" if nproc else "")
        where = f"made by `{command}` on {cpu_name()}, {count} processes, {machines} host(s)"
        if csv is not None:
            import pandas as pd

            origin = {"measured by": command, "hardware": cpu_name(), "commit": git_commit()}
            csv.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame([{**row, **origin} for row in rows]).to_csv(csv, index=False)
        if profile is not None:
            cluster = measured.cluster(profile.stem)
            notes = [
                f"Measured, {where}, at commit {git_commit()}; SI units; links while all processes exchange at once."
            ]
            if machines == 1:
                notes.append("One host: the link between nodes (inter) is that inside it and was not measured.")
            write(cluster, profile, notes)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    tables(measured)
    if profile is not None:
        size, seconds, modelled = bench.agreement(measured, cluster)
        typer.echo(
            f"ring all-reduce of {write_size(size)}: measured {1e3 * seconds:.4g} ms, modelled on the profile "
            f"{1e3 * modelled:.4g} ms ({modelled / seconds:.2f})"
        )


def tables(measured: Measurements) -> None:
    """The numbers as one reads them."""
    pairs = measured.between.pairs
    spread = {
        "latency (us)": [1e6 * pair.link.latency for pair in pairs],
        "bandwidth (GB/s)": [pair.link.bandwidth / 1e9 for pair in pairs],
    }
    table(
        ["link", *(f"{pair.first}-{pair.second}" for pair in pairs), "min", "median", "max"],
        [
            [name, *(f"{value:.3g}" for value in (*values, min(values), median(values), max(values)))]
            for name, values in spread.items()
        ],
    )
    table(
        ["operation", "size", "time (us)", "algbw (GB/s)", "busbw (GB/s)"],
        [
            [
                each.operation,
                write_size(each.size),
                *(f"{v:.3g}" for v in (1e6 * each.seconds, each.algbw / 1e9, each.busbw / 1e9)),
            ]
            for each in sorted(measured.between.timings, key=lambda timing: timing.operation)
        ],
    )
    table(
        ["compressor", "encode (GB/s)", "decode (GB/s)", "encode / copy", "decode / copy", "vector / message"],
        [
            [
                each.name,
                f"{each.encode / 1e9:.3g}",
                f"{each.decode / 1e9:.3g}",
                f"{each.encode_share:.3f}",
                f"{each.decode_share:.3f}",
                f"{each.expansion:.3g}",
            ]
            for each in measured.speeds
        ],
    )
    peaks = ", ".join(f"{name} {peak / 1e9:.3g} GFLOP/s" for name, peak in measured.gpu.peak_flops.items())
    typer.echo(f"copy {measured.copy / 1e9:.3g} GB/s of input; matrix products on one thread: {peaks}")


def write_size(size: int) -> str:
    """A size in binary units.

    >>> write_size(4), write_size(2048), write_size(2**26)
    ('4 B', '2 KiB', '64 MiB')
    """
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:g} {unit}"
    return f"{size} B"
