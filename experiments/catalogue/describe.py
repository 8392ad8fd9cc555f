"""What can be chosen, and what a choice means: docstrings and configurations for a reader at a terminal."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console

from commeff.experiments.catalogue.borrowed import BORROWED
from commeff.experiments.config.plugins import Choice, nodes
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import GROUPS, OPTIONAL, built_in, node, plain, takes
from commeff.experiments.config.signature import written_docstrings
from commeff.experiments.escape import plain_math
from commeff.require import did_you_mean


def overview(plugins: Sequence[Choice]) -> dict[str, str]:
    """The choices of every group."""
    return {group: " ".join([*built_in(group), *(p.name for p in plugins if p.group == group)]) for group in GROUPS}


def catalogue(group: str, plugins: Sequence[Choice]) -> dict[str, str]:
    """One line on each choice of a group; a method's line ends with the parts that it takes."""
    if group == "model":
        raise ValueError("models belong to the tasks; `commeff show task=cifar10` says which that task has")
    if group == "cluster":
        from commeff.experiments.catalogue import clusters

        return clusters.lines()
    if group not in GROUPS:
        known = (*GROUPS, "cluster")
        raise ValueError(f"no group {group!r}{did_you_mean(group, known)}; choose from {', '.join(known)}")
    lines = {}
    for name, choice in nodes(group, plugins).items():
        target, parts = choice["_target_"], f"  [{', '.join(takes(choice))}]" if takes(choice) else ""
        if name in BORROWED and target.startswith("torch."):
            lines[name] = BORROWED[name].says + parts
        else:  # the first line, of our own from the source, which is read sooner than torch is imported
            lines[name] = plain_math(docstrings(target)[0].partition("\n")[0]) + parts
    return lines


def docstrings(target: str) -> list[str]:
    """The docstring of a part, and those of its bases; from the source, unless that does not have them."""
    if any((texts := written_docstrings(target))[:1]):
        return texts
    value = locate(target)
    return [inspect.getdoc(base) or "" for base in (inspect.getmro(value) if inspect.isclass(value) else [value])]


def shown(settings: Sequence[str], plugins: Sequence[Choice]) -> dict[str, Any]:
    """The configuration that settings lead to; of settings that name parts but no method, those parts alone.

    >>> [*shown(["compressor=top_k"], ())], "topology" in shown(["method=dsgd"], ())
    (['compressor'], True)
    """
    from commeff.experiments.config.compose import compose

    named = {word.partition("=")[0].split(".")[0] for word in settings}
    if not named or not named <= set(GROUPS) - {"method"}:
        return compose(settings, plugins, unfinished=True, settled=False)
    every = next(name for name in built_in("method") if {*takes(node("method", name))} == {*OPTIONAL})
    config = compose([f"method={every}", *settings], plugins, unfinished=True, settled=False)
    return {group: part for group, part in config.items() if group in named}


def explain(config: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Print the configuration, then what the parts do that the settings name; the method, if they name none."""
    console, words = Console(), yaml.safe_dump(dict(config), sort_keys=False)
    if console.is_terminal:
        from rich.syntax import Syntax  # which a file or a pipe need not wait for

        console.print(Syntax(words, "yaml", background_color="default"))
    else:
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    choices = dict(word.split("=", 1) for word in settings if "=" in word)
    named = [group for group in GROUPS if group in config and group in choices]
    explained = named or ["method"] * ("method" in config) or [*config]
    texts = [explanation(config[group]["_target_"], plain(choices.get(group, ""))) for group in explained]
    text = "\n\n".join(texts if config.get("clip") is None else [*texts, clipping(config)])
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def clipping(config: Mapping[str, Any]) -> str:
    """The gradient whose norm `clip` bounds, under the method of a configuration.

    >>> from commeff.experiments.config.compose import compose
    >>> clipping(compose(["method=local_sgd", "clip=0.5"]))
    "clip: a gradient of norm above 0.5 is scaled down to it: each worker's own gradient, before its step."
    """
    from commeff.core.properties import is_rowwise
    from commeff.experiments.config.build import strategy

    averaged, local = "what averaging makes of the gradients", "each worker's own gradient, before its step"
    try:
        of = local if is_rowwise(strategy(config).gradients) else averaged
    except (TypeError, ValueError):  # unfinished, or parts that do not fit
        of = f"{averaged}, where the method averages gradients, else {local}"
    return f"clip: a gradient of norm above {config['clip']} is scaled down to it: {of}."


def explanation(target: str, name: str = "") -> str:
    """The docstring of a part, and those of its bases that describe parameters which it shares; of torch's, under the
    name of the choice, the equation and the paper.

    >>> "h_i" in explanation("commeff.methods.choco"), "partition :" in explanation("commeff.experiments.tasks.CIFAR10")
    (True, True)
    >>> print(explanation("torch.optim.SGD", "momentum").partition("\\n\\nIt is")[0])
    SGD with momentum, a decaying sum of gradients.
    <BLANKLINE>
        m = b m + g;  x = x - gamma m
    """
    torchs = f"It is torch's own: {target} in its documentation has every parameter."
    if target.startswith("torch.") and name in BORROWED:
        borrowed = BORROWED[name]
        update = "\n".join(f"    {line}" for line in borrowed.update)
        return "\n\n".join([borrowed.says, update, torchs, f"References\n----------\n{borrowed.paper}"])
    texts = docstrings(target)
    if target.startswith("torch."):
        return plain_math("\n\n".join([texts[0].partition("\n")[0], torchs]))
    return plain_math("\n\n".join([texts[0], *(text for text in texts[1:] if "Parameters\n" in text)]))
