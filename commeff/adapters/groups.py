"""Parameter groups of a model as a torch optimizer has them, and as a layout and a local step do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from commeff.compressors import Layout
from commeff.core import saving
from commeff.core.properties import optimizers_in
from commeff.core.strategy import LocalStep

Groups = Callable[[str, nn.Parameter], int] | Sequence[Mapping[str, Any]]


class Grouping:
    """The parameters of each group, and the options that the user gave it.

    Parameters
    ----------
    named : dict of str to nn.Parameter
        The parameters that are trained.
    groups : sequence of dict, or callable, optional
        As torch's optimizers take them: dicts with "params" and options; or the number of a parameter's group, from its
        name and itself. All parameters are in one group unless given.

    Raises
    ------
    ValueError
        A parameter is in no group, or in several, or what a group holds is not trained.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], groups: Groups | None = None) -> None:
        if callable(groups):
            numbers = {name: groups(name, parameter) for name, parameter in named.items()}
            if (indices := set(numbers.values())) != {*range(len(indices))}:
                raise ValueError(
                    f"groups must number the parameter groups 0, 1, ..., got {sorted(indices, key=str)}: options are "
                    "given in that order"
                )
            self._options: list[dict[str, Any]] = [{} for _ in indices]
        elif groups is None:
            numbers, self._options = dict.fromkeys(named, 0), [{}]
        else:
            groups = list(groups)
            numbers, self._options = _numbers(named, groups), [_without_parameters(group) for group in groups]
        self._named, self._numbers = named, numbers

    def of(self, layout: Layout) -> Layout:
        """A layout of these parameters, or of pieces of them, with their groups."""
        return replace(layout, fields=tuple(field._replace(group=self._numbers[field.name]) for field in layout.fields))

    def begin(self, local: LocalStep) -> list[dict[str, Any]]:
        """Give a local step the options of each group; returns the groups as a torch optimizer has them."""
        current = local.options
        like = next(iter(current.values()))
        for overrides in self._options:
            if unknown := [name for name in overrides if name not in like]:
                raise ValueError(
                    f"options of a parameter group must be those of the method's optimizer, got {', '.join(unknown)}: "
                    f"it has {', '.join(like)}"
                )
        options = {g: current.get(g, like) | overrides for g, overrides in enumerate(self._options)}
        if options != {g: current.get(g, like) for g in options}:
            local.options = options
        members = {g: [self._named[name] for name, number in self._numbers.items() if number == g] for g in options}
        return [{"params": members[g], **chosen} for g, chosen in options.items()]


def _without_parameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def options_of(groups: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The options of a torch optimizer's groups, as a local step has them."""
    return {g: _without_parameters(group) for g, group in enumerate(groups)}


def states_of(local: LocalStep, named: Mapping[str, nn.Parameter], layout: Layout) -> defaultdict[Tensor, Any]:
    """What the torch optimizer in a local step remembers of parameters that lie whole in this worker's layout."""
    optimizer = next(optimizers_in(local), None)
    whole = {field.name for field in layout.fields if field.stop - field.start == named[field.name].numel()}
    states: defaultdict[Tensor, Any] = defaultdict(dict)
    for key, rows in saving.save(optimizer, layout).items() if optimizer else ():
        kind, _, place = key.partition("/")
        memory, _, name = place.rpartition("/")
        if kind == "state" and name in whole:
            value, parameter = rows[0], named[name]
            alike = value.ndim and value.numel() == parameter.numel()
            states[parameter][memory] = value.view_as(parameter) if alike else value
    return states


def _members(group: Any) -> list[Tensor]:
    """The parameters of a group, which may come with their names; this rank's pieces of what was split since."""
    entries = [group] if isinstance(group, Tensor) else list(group)
    parameters = [_now(entry[1] if isinstance(entry, tuple) else entry) for entry in entries]
    return [parameter for parameter in parameters if parameter is not None]


def _now(parameter: Tensor) -> Tensor | None:
    """What `split`, `Pipeline` and `fully` have put in a tensor's place; None: it lies at another stage."""
    while (now := getattr(parameter, "now", parameter)) is not parameter and now is not None:
        parameter = now
    return now


def _numbers(named: Mapping[str, nn.Parameter], groups: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    if odd := [group for group in groups if not isinstance(group, Mapping) or "params" not in group]:
        raise ValueError(
            f'groups must be dicts with "params" and options, got a {type(odd[0]).__name__} without: write '
            '[{"params": list_of_parameters, "weight_decay": 0.0}, ...]'
        )
    members = [_members(group["params"]) for group in groups]
    trained = {id(parameter) for parameter in named.values()}
    if strangers := sum(id(p) not in trained for parameters in members for p in parameters):
        raise ValueError(
            f"groups must hold parameters of the model that are trained, got {strangers} others: take them from "
            "model.named_parameters(), and leave out those that do not require gradients"
        )
    places: dict[int, list[int]] = {}
    for g, parameters in enumerate(members):
        for parameter in parameters:
            places.setdefault(id(parameter), []).append(g)
    numbers = {}
    for name, parameter in named.items():
        indices = places.get(id(parameter), [])
        if len(indices) != 1:
            raise ValueError(
                f"groups must hold every parameter once, got {name} in {len(indices)}: what is trained needs options; "
                "put it into one group"
            )
        numbers[name] = indices[0]
    return numbers
