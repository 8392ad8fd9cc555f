"""The conditions of arguments: what does not hold is refused in one line, `rank must be at least 1, got 0`.

Values are given by name, `require.at_least(1, rank=rank)`, several at once if they have a condition in common; a reason
is given only where it says more than the name does. Nothing here knows torch, for commands that refuse before they
import it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from math import inf
from numbers import Real
from typing import Any, SupportsFloat, TypeVar

T = TypeVar("T")


def refusal(name: str, must: str, value: object, reason: str = "") -> ValueError:
    """The error of a value that does not fit.

    >>> print(refusal("rank", "be at least 1", 0))
    rank must be at least 1, got 0
    """
    return ValueError(f"{name} must {must}, got {value!r}" + (f": {reason}" if reason else ""))


def _number(value: object) -> bool:
    """Whether it is a number, or holds one, as a tensor without dimensions does."""
    one = isinstance(value, Real) or (isinstance(value, SupportsFloat) and getattr(value, "shape", None) == ())
    return one and not isinstance(value, bool)


def count(least: int = 1, *, most: int | None = None, **values: Any) -> None:
    """Refuse what is no whole number of at least `least` and at most `most`.

    >>> count(period=2.0)
    Traceback (most recent call last):
    ValueError: period must be a whole number of at least 1, got 2.0
    """
    for name, value in values.items():
        if type(value) is not int or value < least:
            raise refusal(name, f"be a whole number of at least {least}", value)
        if most is not None and value > most:
            raise refusal(name, f"be at most {most:,}", value)


def at_least(least: float, reason: str = "", /, **values: float) -> None:
    """Refuse what is below `least`, or not finite.

    >>> at_least(1, "a low-rank average needs a column", rank=0)
    Traceback (most recent call last):
    ValueError: rank must be at least 1, got 0: a low-rank average needs a column
    """
    for name, value in values.items():
        if not _number(value):
            raise refusal(name, f"be a number of at least {least}", value, reason)
        if not least <= value < inf:
            raise refusal(name, f"be at least {least}" if value != inf else "be finite", value, reason)


def positive(reason: str = "", /, **values: float) -> None:
    """Refuse what is not above 0, or not finite.

    >>> positive(alpha=0.0)
    Traceback (most recent call last):
    ValueError: alpha must be above 0, got 0.0
    """
    for name, value in values.items():
        if not _number(value):
            raise refusal(name, "be a number above 0", value, reason)
        if not 0 < value < inf:
            raise refusal(name, "be above 0" if value != inf else "be finite", value, reason)


def within(interval: str, reason: str = "", /, **values: float) -> None:
    """Refuse what does not lie in an interval, "[0, 1)" or another.

    >>> within("[0, 1)", momentum=1.0)
    Traceback (most recent call last):
    ValueError: momentum must lie in [0, 1), got 1.0
    """
    low, high = map(float, interval[1:-1].split(","))
    for name, value in values.items():
        if not _number(value):
            raise refusal(name, f"be a number in {interval}", value, reason)
        inside = low <= value <= high
        if not inside or (value == low and interval[0] == "(") or (value == high and interval[-1] == ")"):
            raise refusal(name, f"lie in {interval}", value, reason)


def truth(**values: object) -> None:
    """Refuse what is not True or False.

    >>> truth(gated=1)
    Traceback (most recent call last):
    ValueError: gated must be true or false, got 1
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise refusal(name, "be true or false", value)


def instance(kind: type, /, **values: object) -> None:
    """Refuse what is not of a class.

    >>> instance(dict, exchange=[1])
    Traceback (most recent call last):
    TypeError: exchange must be made by dict, got [1]
    """
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be made by {kind.__name__}, got {value!r}")


def one_of(choices: Iterable[str], /, **values: object) -> None:
    """Refuse a name that is not among the choices.

    >>> one_of(("naive", "gpipe", "1f1b"), schedule="1f1d")
    Traceback (most recent call last):
    ValueError: schedule must be one of naive, gpipe, 1f1b, got '1f1d'; did you mean 1f1b?
    """
    known = [*choices]
    for name, value in values.items():
        if value not in known:
            near = did_you_mean(str(value), known)
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}{near}")


def choose(options: Mapping[Any, T], /, **values: str) -> T:
    """The option of the one name that is given; another is refused.

    >>> choose({"float32": 4, "float64": 8}, dtype="float64")
    8
    """
    one_of(options, **values)
    (name,) = values.values()
    return options[name]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """'; did you mean ...?' or nothing. Inside a part that exists only its keys count, then any key of the same end.

    >>> keys = ["optimizer", "optimizer.lr", "task", "task.dtype", "steps"]
    >>> [did_you_mean(name, keys) for name in ("optimiser.lr", "lr", "step", "task.model")]
    ['; did you mean optimizer.lr?', '; did you mean optimizer.lr?', '; did you mean steps?', '']
    >>> [did_you_mean(name, keys) for name in ("learning_rate", "STEPS", "optimizer.LR")]
    ['; did you mean optimizer.lr?', '; did you mean steps?', '; did you mean optimizer.lr?']
    >>> keys = ["method.exchange.delay", "task.seed", "zero"]
    >>> [did_you_mean(name, keys) for name in ("method.exchange", "method.delay", "method.fused")]
    ['; did you mean method.exchange.delay?', '; did you mean method.exchange.delay?', '']
    """
    known = [*names]
    part, _, end = name.rpartition(".")
    ends = {n.rpartition(".")[2]: n for n in reversed(known)}
    family = {n.rpartition(".")[2]: n for n in known if n.rpartition(".")[0] == part}
    near = [family[n] for n in nearest(end, family)] + [n for n in known if n.startswith(f"{name}.")]
    if part and part not in known:
        near += difflib.get_close_matches(name, known, n=1)
    near += [ends[n] for n in ([end] * (end in ends) if part else nearest(end, ends))]
    return f"; did you mean {near[0]}?" if near else ""


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The name meant, if any: spelled alike, its beginning or a part of it, or its initials.

    >>> names = ["exponential", "one_peer_exponential", "scaled_sign", "lr", "weight_decay"]
    >>> [nearest(name, names) for name in ("exponental", "one_peer", "sign", "learning_rate", "wd", "ring", "")]
    [['exponential'], ['one_peer_exponential'], ['scaled_sign'], ['lr'], ['weight_decay'], [], []]
    """
    plain = {n.lower().replace("_", "").replace("-", ""): n for n in reversed([*names])}
    word = name.lower().replace("_", "").replace("-", "")
    alike = difflib.get_close_matches(word, plain, n=1, cutoff=0.65)
    if not alike:
        alike = [n for n in plain if min(len(word), len(n)) > 2 and (word in n or n in word)]
        alike = sorted(alike, key=lambda n: (not n.startswith(word), abs(len(n) - len(word))))
    if not alike and word:
        alike = [n for n, full in plain.items() if word == _initials(full) or n == _initials(name)]
    return [plain[n] for n in alike[:1]]


def _initials(name: str) -> str:
    words = name.lower().replace("-", "_").split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else ""
