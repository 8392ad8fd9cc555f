"""What can be chosen, and what a choice means: docstrings and configurations for a reader at a terminal."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.syntax import Syntax

from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.registry import locate, split
from commeff.experiments.config.schema import GROUPS, OPTIONAL, built_in, node, takes
from commeff.experiments.config.signature import written_summary
from commeff.require import did_you_mean


def overview(plugins: Sequence[Choice]) -> dict[str, str]:
    """The choices of every group."""
    return {group: " ".join([*built_in(group), *(p.name for p in plugins if p.group == group)]) for group in GROUPS}


def catalogue(group: str, plugins: Sequence[Choice]) -> dict[str, str]:
    """One line on each choice of a group; a method's line ends with the parts that it takes."""
    if group == "model":
        raise ValueError("models belong to the tasks; `commeff show task=cifar10` says which that task has")
    if group == "cluster":
        from commeff.experiments.catalogue.clusters import lines

        return lines()
    if group not in GROUPS:
        known = (*GROUPS, "cluster")
        raise ValueError(f"no group {group!r}{did_you_mean(group, known)}; choose from {', '.join(known)}")
    nodes = {name: node(group, name) for name in built_in(group)} | {
        p.name: p.node for p in plugins if p.group == group
    }
    return {name: _summary(choice["_target_"]) + _describe_parameters(choice) for name, choice in nodes.items()}


def _describe_parameters(choice: dict[str, Any]) -> str:
    return f"  [{', '.join(takes(choice))}]" if takes(choice) else ""


def _summary(target: str) -> str:
    """The first line on a choice: of our own from the source, which is read sooner than torch is imported."""
    return ("" if ":" in target else written_summary(*split(target))) or summary(locate(target))


def summary(target: Any) -> str:
    """The first line of a docstring.

    >>> summary(yaml.safe_load)
    'Parse the first YAML document in a stream'
    """
    return (inspect.getdoc(target) or "").partition("\n")[0]


def shown(settings: Sequence[str], plugins: Sequence[Choice]) -> dict[str, Any]:
    """The configuration that settings lead to; of settings that name parts but no method, those parts alone.

    >>> [*shown(["compressor=top_k"], ())], "topology" in shown(["method=dsgd"], ())
    (['compressor'], True)
    """
    from commeff.experiments.config.compose import compose

    named = {word.partition("=")[0].split(".")[0] for word in settings}
    if not named or not named <= set(GROUPS) - {"method"}:
        return compose(settings, plugins, unfinished=True)
    every = next(name for name in built_in("method") if {*takes(node("method", name))} == {*OPTIONAL})
    config = compose([f"method={every}", *settings], plugins, unfinished=True)
    return {group: part for group, part in config.items() if group in named}


def explain(config: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Print the configuration, then what the parts do that the settings name; the method, if they name none."""
    console = Console()
    console.print(Syntax(yaml.safe_dump(dict(config), sort_keys=False), "yaml", background_color="default"))
    named = [group for group in GROUPS if group in config and any(word.startswith(f"{group}=") for word in settings)]
    explained = named or ["method"] * ("method" in config) or [*config]
    texts = [explanation(config[group]["_target_"]) for group in explained]
    text = "\n\n".join(texts if config.get("clip") is None else [*texts, clipping(config)])
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def clipping(config: Mapping[str, Any]) -> str:
    """Of which gradient `clip` bounds the norm, under the method of a configuration.

    >>> from commeff.experiments.config.compose import compose
    >>> clipping(compose(["method=local_sgd", "clip=0.5"]))
    "clip: a gradient of norm above 0.5 is scaled down to it: each worker's own gradient, before its step."
    """
    from commeff.core.properties import is_rowwise
    from commeff.experiments.config.build import strategy

    averaged, own = "what averaging makes of the gradients", "each worker's own gradient, before its step"
    try:
        of = own if is_rowwise(strategy(config).gradients) else averaged
    except (TypeError, ValueError):  # unfinished, or parts that do not fit
        of = f"{averaged}, where the method averages gradients, else {own}"
    return f"clip: a gradient of norm above {config['clip']} is scaled down to it: {of}."


def explanation(target: str) -> str:
    """The docstring of a part, and those of its bases that describe parameters which it shares; of torch's a line.

    >>> "h_i" in explanation("commeff.methods.choco"), "partition :" in explanation("commeff.experiments.tasks.CIFAR10")
    (True, True)
    >>> print(explanation("torch.optim.Adam"))
    Implements Adam algorithm.
    <BLANKLINE>
    It is torch's own: torch.optim.Adam in its documentation has the equation and every parameter.
    """
    value = locate(target)
    bases = inspect.getmro(value)[1:] if inspect.isclass(value) else ()
    shared = [base for base in bases if "Parameters\n" in (base.__doc__ or "")]
    own = [each for each in (value, *shared) if not each.__module__.startswith("torch")]
    texts = [inspect.cleandoc(each.__doc__ or "") for each in own]
    torchs = f"It is torch's own: {target} in its documentation has the equation and every parameter."
    return "\n\n".join(texts or [summary(value), torchs])
