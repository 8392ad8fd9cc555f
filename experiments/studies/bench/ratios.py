"""Measured ratios and their limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredRatio:
    """One measured ratio and the limit it has to keep.

    Attributes
    ----------
    subject, what : of whom, and which ratio.
    value : measured.
    at_least, at_most : the limits; None: for information.
    """

    subject: str
    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def good(self) -> bool:
        """Whether the ratio is within its limits."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""
