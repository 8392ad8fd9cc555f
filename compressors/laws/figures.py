"""Laws on what a compressor claims about its error: omega, delta, no bias, every dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import LAYOUT, LONG, draws, noise, require, vectors
from commeff.compressors.layout import Layout


def check_constants(compressor: Compressor) -> None:
    """omega >= 0 and 0 < delta <= 1 where known; the scope is one of the three."""
    for layout in (LAYOUT, LONG):
        bound = compressor.bind(layout)
        omega, delta = bound.omega(layout.d), bound.delta(layout.d)
        require(omega is None or omega >= 0, f"{compressor}: omega is {omega}, below 0: it bounds a mean square")
        require(
            delta is None or 0 < delta <= 1,
            f"{compressor}: delta is {delta}, outside (0, 1]: return None where there is none",
        )
    require(
        bound.scope in ("coordinate", "tensor", "whole"),
        f"{compressor}: {bound.scope!r} is no scope: choose 'coordinate', 'tensor' or 'whole'",
    )


def check_error(compressor: Compressor) -> None:
    """E|C(v) - v|^2 <= omega |v|^2 and <= (1 - delta)|v|^2, within five standard errors of a mean over many workers; at
    two widths, since a constant may fit one of them alone.
    """
    _check_error(compressor, LAYOUT, vectors(LAYOUT.d))
    longer = vectors(LONG.d)
    _check_error(compressor, LONG, {name: longer[name] for name in ("normal", "constant", "one-hot")}, rare=15)


def _check_error(compressor: Compressor, layout: Layout, inputs: dict[str, Tensor], rare: int = 0) -> None:
    """rare: how often a message of a random compressor may be another without having been seen among all draws."""
    bound = compressor.bind(layout)
    omega, delta, absolute = bound.omega(layout.d), bound.delta(layout.d), bound.absolute(layout.d)
    unseen = 0.0
    for name, vector in inputs.items():
        norm = max(float(vector.norm()), torch.finfo(torch.float64).tiny)
        limits = {
            "omega": omega,
            "1 - delta": None if delta is None else 1 - delta,
            "absolute / |v|^2": None if absolute is None else absolute / norm / norm,
        }
        decoded = draws(bound, vector)
        require(decoded.isfinite().all(), f"{compressor}: the decoded {name} vector is not finite")
        errors = ((decoded - vector) / norm).square().sum(1)
        mean, spread = float(errors.mean()), float(errors.std()) / len(errors) ** 0.5
        unseen = rare / len(errors) if (decoded != decoded[:1]).any() else unseen
        advice = {
            "omega": f"omega must be at least {mean:.4g}, or None if C is biased",
            "1 - delta": f"delta can be {1 - mean:.4g} at most" if mean < 1 else "delta must be None",
            "absolute / |v|^2": f"absolute must be at least {mean * norm * norm:.4g}, or None",
        }
        for constant, limit in limits.items():
            require(
                limit is None or mean <= limit + 5 * spread + unseen + 1e-12,
                f"{compressor}: E|C(v) - v|^2 / |v|^2 = {mean:.6g} +- {spread:.2g} for the {name} vector in "
                f"{layout.d} dimensions, above {constant} = {limit or 0:.6g}: {advice[constant]}",
            )


def check_unbiased(compressor: Compressor) -> None:
    """E C(v) = v for each coordinate where omega is known, within six standard errors."""
    bound = compressor.bind(LAYOUT)
    if bound.omega(LAYOUT.d) is None:
        return
    vector = noise(1).sign() * (0.3 + noise(2).abs())
    decoded = draws(bound, vector)
    error = (decoded.mean(0) - vector[0]).abs()
    allowed = 6 * decoded.std(0) / len(decoded) ** 0.5 + 1e-6 * vector.abs().max()
    worst = int((error - allowed).argmax())
    require(
        error[worst] <= allowed[worst],
        f"{compressor}: coordinate {worst} = {float(vector[0, worst]):.4f} has a mean off by {float(error[worst]):.2g} "
        f"(allowed {float(allowed[worst]):.2g}): biased, yet omega is {bound.omega(LAYOUT.d):.6g}, not None: return "
        "None from omega, or rescale so that E C(v) = v",
    )


def check_dtypes(compressor: Compressor) -> None:
    """Vectors of every floating-point type are decoded in that type, about as well as in float64."""
    bound = compressor.bind(LAYOUT)
    omega, delta = bound.omega(LAYOUT.d), bound.delta(LAYOUT.d)
    limits = [limit for limit in (omega, None if delta is None else 1 - delta) if limit is not None]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        vector = noise(10).to(dtype)
        decoded = draws(bound, vector)
        require(
            decoded.dtype == dtype,
            f"{compressor}: {dtype} vectors are decoded as {decoded.dtype}: end `decode` with .to(self.dtype)",
        )
        exact = vector.double()
        error = float((decoded.double() - exact).square().sum(1).mean() / exact.square().sum())
        for limit in limits:
            allowed = (limit**0.5 * 1.1 + 2 * torch.finfo(dtype).eps) ** 2
            require(
                error <= allowed,
                f"{compressor}: the relative squared error of {dtype} vectors is {error:.3g}, above {allowed:.3g}: "
                "compute scales in `wide(dtype)`",
            )
