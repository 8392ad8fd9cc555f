"""How the layers of a model are dealt to the stages of a pipeline, by the names of its modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from commeff.sharding.collectives import Axis


@dataclass(frozen=True)
class Layers:
    """A model as a row of layers, with what comes before and after them: model(x) = after(layers(before(x))).

    The layers keep the shape of what they get. Every parameter lies in one of them, or in a module named here.

    Attributes
    ----------
    name : str
        The module that holds the layers, one after the other: an `nn.Sequential` or an `nn.ModuleList`.
    before : callable
        Takes the model and its inputs to what the first layer gets; on the first stage.
    after : callable
        Takes the model and what the last layer gives to the model's outputs; on the last stage.
    first, last : sequence of str
        The modules that `before` and `after` use.
    beside : callable, optional
        Takes the model and its inputs to what every layer gets besides, such as a mask; on every stage.
    attention : str
        What attention is called within a layer.
    informed : bool
        Whether `after` gets the model's inputs, too, behind what the last layer gives: among them are targets, say.

    Examples
    --------
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)
    ...         self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> layers = Layers("blocks", lambda net, x: net.embed(x), lambda net, x: net.head(x), ("embed",), ("head",))
    >>> ranks_of(Net(), layers, ranks=[0, 1])["blocks.2.weight"]
    (1,)
    """

    name: str
    before: Callable[..., Tensor]
    after: Callable[..., Any]
    first: Sequence[str]
    last: Sequence[str]
    beside: Callable[..., Any] | None = None
    attention: str = "attention"
    informed: bool = False


def stages_of(model: nn.Module, layers: Layers, stages: int) -> dict[str, int]:
    """The stage of each layer, as many to each as can be, and of each module at the ends, by its name in the model."""
    names = [f"{layers.name}.{key}" for key, _ in model.get_submodule(layers.name).named_children()]
    ends = dict.fromkeys(layers.first, 0) | dict.fromkeys(layers.last, stages - 1)
    return {name: i * stages // len(names) for i, name in enumerate(names)} | ends


def ranks_of(model: nn.Module, layers: Layers, ranks: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The pipeline ranks that hold each tensor of a whole model, when `ranks[s]` is the rank of stage s.

    A tensor that several modules share may lie at several ranks.
    """
    held: dict[nn.Parameter, set[int]] = {}
    for name, stage in stages_of(model, layers, len(ranks)).items():
        for parameter in model.get_submodule(name).parameters():
            held.setdefault(parameter, set()).add(ranks[stage])
    return {name: tuple(sorted(held[parameter])) for name, parameter in model.named_parameters()}


def whole_shapes(model: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """The trainable tensors of a whole model, of which this rank may hold pieces: their names and whole shapes."""
    cuts = [(name, p, getattr(p, "cut", None)) for name, p in model.named_parameters() if p.requires_grad]
    return [(name, tuple(p.shape) if cut is None else cut.shape) for name, p, cut in cuts]


def homes_of(parameter: nn.Parameter, axis: Axis) -> tuple[int, ...]:
    """The pipeline ranks that hold a parameter of this rank: itself, unless its pipeline says more; none of one."""
    homes: tuple[int, ...] = getattr(parameter, "homes", (axis.rank,))
    return homes if axis.size > 1 else ()


class Stage(nn.Module):
    """The layers of one stage, and what comes before or after them at an end of the model.

    Attributes
    ----------
    gathered : bool
        Whether stage 3 of ZeRO must keep its parameters gathered until backward has ended.
    """

    def __init__(self, model: nn.Module, layers: Layers, number: int, stages: int, gathered: bool = False) -> None:
        super().__init__()
        self.gathered = gathered
        self.first, self.last = number == 0, number == stages - 1
        self._model, self._layers = (model,), layers  # a tuple: the model is no part of its stage
        names = [name for name, stage in stages_of(model, layers, stages).items() if stage == number]
        inside = [name for name in names if name.startswith(f"{layers.name}.")]
        self.layers = nn.ModuleList(map(model.get_submodule, inside))
        self.ends = nn.ModuleList(model.get_submodule(name) for name in names if name not in inside)

    def forward(self, *passed: Tensor, inputs: Sequence[Tensor], tried: bool = False) -> Any:
        """What the stage before gives, and the model's inputs -> what the next stage gets, or the model's outputs.

        The first stage may be `tried`: it gives what its first layer gets.
        """
        (model,), layers = self._model, self._layers
        if tried:
            return layers.before(model, *inputs)
        beside = () if layers.beside is None else (layers.beside(model, *inputs),)
        x = layers.before(model, *inputs) if self.first else passed[0]
        for layer in self.layers:
            x = layer(x, *beside)
        return layers.after(model, x, *(inputs if layers.informed else ())) if self.last else x


def stages_here(model: nn.Module) -> Mapping[int, Stage]:
    """This rank's stages of a model that has been dealt to stages, by their numbers; of another, none."""
    return getattr(model, "stages_here", {})


class Elsewhere(nn.Module):
    """Stands for a module that lies at another stage."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def forward(self, *_: Any) -> Any:
        """Nothing here can compute with it."""
        raise ValueError(
            f"a stage must use the modules that lie there, got {self._name}, which lies at another: name it in `first` "
            "if `before` uses it, in `last` if `after` does; what both use must be two modules, which may share tensors"
        )


def keep(
    model: nn.Module, layers: Layers, ranks: Sequence[int], rank: int, gathered: bool = False
) -> Mapping[int, Stage]:
    """Leave a rank its stages of a model, in place, and give them by their numbers. Tensors keep their names.

    A module at either end stays where one of its tensors is used by another, with this one alone: what is tied has one
    name everywhere.
    """
    held, every = set[nn.Parameter](), list(model.parameters())
    numbers = [number for number, at in enumerate(ranks) if at == rank]
    stages = {number: Stage(model, layers, number, len(ranks), gathered) for number in numbers}
    for stage in stages.values():
        held.update(stage.parameters())
    for name, number in stages_of(model, layers, len(ranks)).items():
        if ranks[number] == rank:
            continue
        if not held.intersection(model.get_submodule(name).parameters()):
            model.set_submodule(name, Elsewhere(name))
            continue
        for module in model.get_submodule(name).modules():
            for key, parameter in list(module.named_parameters(recurse=False)):
                if parameter not in held:
                    module.register_parameter(key, None)
    for parameter in every:
        if parameter not in held:
            parameter.now = None  # type: ignore[attr-defined]
    model.stages_here = stages  # type: ignore[assignment]
    return stages
