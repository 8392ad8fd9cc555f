"""The settings with which `commeff check` tries a plug-in: the words of its user, or, beside those that the laws give
it, each setting and each part changed once. A case is what a run with these words would be made of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

from commeff.compressors.laws import other_values
from commeff.experiments.config import build
from commeff.experiments.config.compose import SHORTHANDS, compose
from commeff.experiments.config.method_words import strategy
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import PART, TARGET, WIRES, takes
from commeff.experiments.config.signature import parameters
from commeff.experiments.tasks.laws import WORKERS, TaskCase
from commeff.laws.problem import MethodCase, require_start
from commeff.topologies.laws import SIZES, TopologyCase

OTHERS = {"optimizer": ("adam",), "topology": ("complete", "one_peer_exponential"), "compressor": ("natural",)}
USED_BY = {"compressor": ["method=mem_sgd"], "topology": ["method=dsgd"]}  # a method that takes one
SUITED = ("compressor=natural", "topology=lazy")  # to methods that refuse the first choices


def words_of(choice: Choice, words: Sequence[str], groups: Collection[str]) -> list[str]:
    """The words that set something of a choice: the words of its group, and to a method all that are of no other group.

    Parameters
    ----------
    choice : what is checked.
    words : of the command line.
    groups : of all that is checked.

    Raises
    ------
    ValueError : for a word that names another choice in its place.
    """
    parts = {word: SHORTHANDS.get(key := word.partition("=")[0], key).split(".")[0] for word in words}
    for word in words:
        if word.partition("=")[0] == choice.group and word != f"{choice.group}={choice.name}":
            raise ValueError(f"{word!r} names another {choice.group}: what is checked is {choice.name}")
    others = {*groups} - {"method"} if choice.group == "method" else {*parts.values()} - {choice.group}
    return [word for word, part in parts.items() if part not in others]


def varied_cases(choice: Choice, plugins: Sequence[Choice]) -> Iterator[Any]:
    """A method or a topology with one setting, or one part, other than its default; none where that is refused."""
    if choice.group not in ("method", "topology"):
        return  # compressors have samples, and a task may read data
    suited = [word for word in SUITED if word.partition("=")[0] in takes(choice.node)]
    for change in _changes(choice):
        for words in ([change], [*suited, change]):
            try:
                cases = worded_cases(choice, words, plugins)
            except ValueError:
                continue
            yield from cases
            break


def _changes(choice: Choice) -> Iterator[str]:
    hints = parameters(locate(choice.node[TARGET]))
    for name, value in choice.node.items():
        if isinstance(value, dict) and PART in value:
            yield from (f"{choice.group}.{name}={other}" for other in OTHERS[value[PART].partition("=")[0]])
        elif value == WIRES.get(name):
            yield from (f"{name}={other}" for other in OTHERS.get(name, ()) if name != "compressor")  # the laws try two
        elif name in hints:
            values = other_values(hints[name].annotation, value)
            yield from (f"{choice.group}.{name}={other}" for other in values)


def worded_cases(choice: Choice, words: Sequence[str], plugins: Sequence[Choice]) -> list[Any]:
    """The cases of a choice with these words of the command line; ValueError where they do not fit."""
    group, name = choice.group, choice.name
    tokens = [*USED_BY.get(group, ()), f"{group}={name}", *words]
    label = f"{name}({', '.join(words)})"

    def config(workers: int) -> dict[str, Any]:
        return compose([*tokens, f"workers={workers}"], plugins, settled=False)

    if group == "method":
        single = [word for word in tokens if not word.startswith("topology")]  # one worker is no torus
        case = MethodCase(label, lambda n: strategy([*(tokens if n > 1 else single), "bucket_mb=0"], n, plugins)[0])
        require_start(case)
        return [case]
    if group == "topology":
        refused, accepted = None, []
        for n in SIZES:
            try:
                build.topology(config(n))
            except ValueError as error:
                refused = error
            else:
                accepted.append(TopologyCase(f"{label[:-1]}, n={n})", partial(build.topology, config(n)), n))
        if refused and not accepted:
            raise refused
        return accepted
    if group == "task":
        return [TaskCase(label, partial(build.part, config(WORKERS) | {"seed": 3}, "task"))]
    return [build.part(config(WORKERS), "compressor")]
