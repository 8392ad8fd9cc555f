"""Measured quantities: their names, the units in which they are shown, and how many digits mean something."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from commeff.experiments.report.data.statistics import Estimate

MINUS, TIMES, MISSING = "−", "×", "–"
AGREEMENT = 1e-10  # a consensus distance below this is rounding
ABSURD = 1e6  # what is shown with decimals does not get so large
LITTLE = 1e-6  # what is shown with decimals does not get so small
APART = 1000.0  # times the lower end of a ratio's interval: beyond, the upper end says nothing


@dataclass(frozen=True)
class Quantity:
    """A column of metrics.jsonl or summary.json as a reader meets it; shown values are multiplied by `scale`."""

    key: str
    heading: str
    words: str
    unit: str = ""
    scale: float = 1.0

    @property
    def axis(self) -> str:
        """What stands at an axis."""
        return f"{self.words} ({self.unit})" if self.unit else self.words


INNER = ("pipeline", "shard", "tensor")  # axes over which a worker may lie

QUANTITIES = {
    quantity.key: quantity
    for quantity in (
        Quantity("val_accuracy", "val. accuracy", "validation accuracy", "%", 100),
        Quantity("val_loss", "val. loss", "validation loss"),
        Quantity("test_accuracy", "test accuracy", "test accuracy", "%", 100),
        Quantity("test_loss", "test loss", "test loss"),
        Quantity(
            "local_val_accuracy", "local models' val. accuracy", "mean accuracy of the workers' own models", "%", 100
        ),
        Quantity("local_val_loss", "local models' val. loss", "mean loss of the workers' own models"),
        Quantity("train_loss", "train loss", "training loss"),
        Quantity("suboptimality", "f − min f", "suboptimality f(x) − min f"),
        Quantity("consensus_distance", "consensus distance", "consensus distance"),
        Quantity("payload_bytes", "payload", "payload per worker, counted", "MB", 1e-6),
        Quantity("wire_bytes", "wire", "sent on the wire per worker, counted", "MB", 1e-6),
        *(Quantity(f"{axis}_bytes", axis, f"sent inside a worker, {axis}", "MB", 1e-6) for axis in INNER),
        *(
            Quantity(f"{axis}_exposed_seconds", f"{axis} exposed", f"seconds that rank 0 waited, {axis}", "s")
            for axis in INNER
        ),
        Quantity("peak_memory_bytes", "memory", "most memory allocated on rank 0's GPU, measured", "GB", 1e-9),
        Quantity("mfu", "MFU", "model FLOP utilisation, measured", "%", 100),
        Quantity("seconds", "time", "seconds of training, measured", "s"),
        Quantity("simulated_seconds", "simulated time", "seconds of the run's clock, simulated", "s"),
        Quantity("modelled_seconds", "modelled time", "seconds of training, modelled", "s"),
        Quantity("step", "steps", "step"),
        Quantity("epoch", "epochs", "epoch"),
        Quantity("steps_to_target", "steps to target", "number of steps to the target"),
        Quantity("topology.gap", "gap", "spectral gap 1 − ρ"),
        Quantity("topology.rho", "ρ", "ρ"),
        Quantity("compressor.omega", "ω", "variance ω of the compressor"),
        Quantity("compressor.delta", "δ", "contraction δ of the compressor"),
        Quantity("compressor.bits", "bits", "bits a coordinate"),
        Quantity("optimizer.lr", "rate", "learning rate"),
        Quantity("task.zeta", "ζ", "heterogeneity ζ"),
    )
}


def quantity(key: str) -> Quantity:
    """The quantity of a column, a setting or a constant; one that has no entry is called by the end of its key.

    >>> quantity("wire_bytes").axis, quantity("method.rank_error").axis
    ('sent on the wire per worker, counted (MB)', 'rank error')
    """
    end = key.rpartition(".")[2]
    words = end.replace("_", " ")
    return QUANTITIES.get(key) or QUANTITIES.get(end) or Quantity(key, words, words)


def decimals(estimates: Iterable[Estimate | None], of: Quantity) -> int | None:
    """The decimals a column of means deserves: two digits of the typical interval, the same all the way down.

    None where some number would be left with fewer than two digits: each has three then.

    >>> decimals([Estimate(0.953, 0.011, 3), Estimate(0.94, 0.034, 3)], quantity("val_accuracy"))
    1
    >>> decimals([Estimate(0.1234, 0.0011, 3)], quantity("val_loss")), decimals([None], quantity("val_loss"))
    (4, 3)
    >>> decimals([Estimate(0.9, 0.011, 3), Estimate(2e-6, 1e-6, 3)], quantity("val_loss"))
    """
    linear = [estimate for estimate in estimates if estimate and not estimate.log]
    halves = sorted(estimate.half * of.scale for estimate in linear if estimate.half)
    fewest, usual, most = (1, 2, 2) if of.unit == "%" else (2, 3, 4)
    second = 1 - math.floor(math.log10(halves[len(halves) // 2])) if halves else usual
    places = min(max(second, fewest), most)
    least = min((max(abs(estimate.mean), estimate.half or 0.0) or math.inf for estimate in linear), default=math.inf)
    return places if of.unit == "%" or least * of.scale >= 10 ** (1 - places) else None


def fixed(value: float, places: int | None, signed: bool = False) -> str:
    """A number with a true minus sign; with three digits where `places` is None, and absurdly large as a power of ten.

    >>> fixed(-1.25, 1), fixed(0.04, 1, signed=True), fixed(3.0, 0, signed=True), fixed(-1e37, 2)
    ('−1.2', '0.0', '+3', '−1.0e+37')
    >>> fixed(-0.00123, None), fixed(3.2e-7, None, signed=True)
    ('−0.00123', '+3.20e−07')
    """
    if places is None:
        text = significant(abs(value))
    else:
        text = f"{abs(value):.{places}f}" if abs(value) < ABSURD else f"{abs(value):.1e}"
    sign = (MINUS if value < 0 else "+" if signed else "") if text.strip("0.") else ""  # 0.00 has none
    return sign + text


def significant(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, and no exponent where one can do without.

    >>> [significant(value) for value in (14.4301, 0.48481, 1234567.0, 0.0, 3e-7)]
    ['14.4', '0.485', '1,234,567', '0', '3.00e−07']
    """
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if abs(value) < 1e-4 or abs(value) >= 1e9:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}".replace("-", MINUS)


def half_width(value: Estimate, of: Quantity, places: int | None) -> str:
    """Half the width of an interval, "" if there is none; one that holds more than there are values says so.

    Only what is 0 is shown as 0.

    >>> accuracy, loss = quantity("val_accuracy"), quantity("val_loss")
    >>> [half_width(Estimate(0.5, half, 2), accuracy, 1) for half in (None, 0.012, 1.27)]
    ['', '1.2', 'over 100']
    >>> half_width(Estimate(0.5, 1e37, 2), loss, 3)
    '1.0e+37'
    >>> half_width(Estimate(0.5, 0.0, 2), loss, 3), half_width(Estimate(0.5, 2e-5, 2), loss, 3)
    ('0', '2e−05')
    """
    if value.half is None or value.log:
        return ""
    half = value.half * of.scale
    if half == 0:
        return "0"
    if of.unit == "%" and half > 100:
        return "over 100"
    text = fixed(half, places)
    return text if text.strip("0.") else significant(half, 1)


def between(value: Estimate, scale: float = 1.0) -> str:
    """The interval of a ratio in brackets, "" if there is none; one that spans decades says only that.

    >>> between(Estimate(2.0, math.log(2), 3, log=True)), between(Estimate(2.0, None, 1, log=True))
    (' (1 to 4)', '')
    >>> between(Estimate(2.0, 40.0, 3, log=True))
    ' (not determined: over 1000× wide)'
    """
    if value.half is None:
        return ""
    low, high = (scale * end for end in value.ends)
    if high > APART * low:
        return f" (not determined: over {APART:g}{TIMES} wide)"
    return f" ({low:.3g} to {high:.3g})".replace("-", MINUS)


def span(counts: Iterable[int]) -> str:
    """The least and the most of some counts.

    >>> span([3, 3]), span([3, 1, 2])
    ('3', '1 to 3')
    """
    different = sorted({*counts})
    return f"{different[0]}" + (f" to {different[-1]}" if len(different) > 1 else "")


def spread(mean: float, half: float | None) -> tuple[str, str]:
    """A mean and the half width of its interval, both down to the second digit of the half width.

    >>> spread(83.333, 19.4), spread(0.0891, 0.00291), spread(38.3, None), spread(40.0, 0.0)
    (('83', '19'), ('0.0891', '0.0029'), ('38.3', ''), ('40.0', '0'))
    >>> spread(2.0, 1e37), spread(3e-9, 1e-9)
    (('2.00', '1.00e+37'), ('3.00e−09', '1.00e−09'))
    """
    if not half:
        return significant(mean), "" if half is None else "0"
    if max(abs(mean), half) >= ABSURD or half < LITTLE:
        return significant(mean), significant(half)
    places = min(max(0, 1 - math.floor(math.log10(half))), 6)
    return f"{mean:,.{places}f}".replace("-", MINUS), f"{half:,.{places}f}"
