"""A model's own initial numbers, made tensor by tensor: each rank keeps its slices, and never has a whole model.

A model is built as ever, but what `torch.empty` would allocate stays on the meta device, and what is then done to it in
place is remembered: which operation, and where torch's generator stood. The numbers are made when names and cuts are
known, by doing it again, one tensor at a time. They are those of the whole model, bit by bit, for every mesh; each rank
pays for drawing all of them, and remembers its slices and the largest tensor.

    model, numbers = deferred(task.model)                   # shapes, no memory
    split(model, llama_plan(model), mesh.axis("tensor"))    # shapes of this rank's pieces
    fill(model, numbers)                                    # what the constructor would have put there
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from commeff.sharding.collectives import summed_gradient
from commeff.sharding.shard import Shard

Numbers = Callable[[str, Shard | None], Tensor | None]  # name of a tensor, which part of it -> what is in there

_ops = torch.ops.aten
SETS = (_ops.normal_.default, _ops.uniform_.default, _ops.fill_.Scalar, _ops.zero_.default)  # whatever was there
ASKS = (Tensor.is_meta.__get__, Tensor.device.__get__)  # type: ignore[attr-defined]
SAME = (_ops.detach.default, _ops.alias.default)  # other names for a tensor


class NotDeferred(Exception):
    """Something was done to a tensor without numbers that cannot be done again for it alone."""


@dataclass
class _Recipe:
    """The operations that make the numbers of a tensor, each with where the generator stood before it, if it draws."""

    shape: torch.Size
    dtype: torch.dtype
    steps: list[tuple[Callable[[Tensor], Any], Tensor | None]] = field(default_factory=list)
    casts: list[Mapping[str, Any]] = field(default_factory=list)

    def made(self, cut: Shard | None) -> Tensor:
        """The tensor, or a piece of it."""
        out = torch.empty(self.shape, dtype=self.dtype, device="cpu")
        with torch.random.fork_rng(devices=[]):
            for operate, state in self.steps:
                if state is not None:
                    torch.set_rng_state(state)
                operate(out)
        out = out if cut is None else cut.take(out)
        for options in self.casts:
            out = _ops._to_copy.default(out, **options)
        return out


class _Deferring(TorchDispatchMode):
    """Lets `torch.empty` give tensors without numbers, and remembers what becomes of them."""

    def __init__(self) -> None:
        super().__init__()
        # Storages stay, so that no other has its id.
        self._recipes: dict[int, tuple[torch.UntypedStorage, _Recipe]] = {}

    def recipe(self, x: Tensor) -> _Recipe | None:
        """The recipe of a tensor without numbers."""
        known = self._recipes.get(x.untyped_storage()._cdata)
        return None if known is None else known[1]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is _ops.empty.memory_format and kwargs.get("device") in (None, torch.device("cpu")):
            out = function(*args, **{**kwargs, "device": torch.device("meta"), "pin_memory": False})
            return self._known(out, _Recipe(out.shape, out.dtype))
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and self.recipe(x) is not None]
        if not tensors:
            return function(*args, **kwargs)
        x, recipe = tensors[0], self.recipe(tensors[0])
        assert recipe is not None
        if function in SAME:
            return function(*args, **kwargs)
        if function is _ops._to_copy.default:
            out = function(x, **{**kwargs, "device": torch.device("meta")})
            return self._known(out, _Recipe(recipe.shape, recipe.dtype, [*recipe.steps], [*recipe.casts, dict(kwargs)]))
        single = x is args[0] and not any(isinstance(arg, Tensor) for arg in (*args[1:], *kwargs.values()))
        if not single or not function._schema.is_mutable or x.shape != recipe.shape or recipe.casts:
            raise NotDeferred(str(function))
        draws = torch.Tag.nondeterministic_seeded in function.tags

        def operate(tensor: Tensor) -> Any:
            return function(tensor, *args[1:], **kwargs)

        step = operate, torch.get_rng_state() if draws else None
        if draws:  # what is drawn next must not notice
            operate(torch.empty(x.shape, dtype=x.dtype, device="cpu"))
        recipe.steps[:] = [step] if function in SETS else [*recipe.steps, step]
        return x

    def _known(self, x: Tensor, recipe: _Recipe) -> Tensor:
        self._recipes[x.untyped_storage()._cdata] = x.untyped_storage(), recipe
        return x


class _Asking(TorchFunctionMode):
    """Gives up where somebody asks a tensor whether it has numbers: without them he might do nothing."""

    def __init__(self, deferring: _Deferring) -> None:
        super().__init__()
        self._deferring = deferring

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in ASKS and self._deferring.recipe(args[0]) is not None:
            raise NotDeferred("the model inspects a tensor's data while its initialisation is deferred")
        return function(*args, **(kwargs or {}))


def deferred(build: Callable[[], nn.Module]) -> tuple[nn.Module, Numbers]:
    """A model without its numbers, and what makes those of each tensor, by its name.

    A model that does more to its tensors than operations of their own is built as ever, and its numbers are there.

    Parameters
    ----------
    build : callable
        Gives a fresh model, the same at every call.

    Examples
    --------
    >>> def build():
    ...     with torch.random.fork_rng():
    ...         torch.manual_seed(3)
    ...         return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).double()
    >>> model, numbers = deferred(build)
    >>> model[0].weight.device.type, torch.equal(numbers("0.weight", None), build()[0].weight)
    ('meta', True)
    """
    mode, state = _Deferring(), torch.get_rng_state()
    try:
        with mode, _Asking(mode):
            model = build()
    except Exception:  # of whatever kind: if it is one of the model's own, building it again says so
        torch.set_rng_state(state)
        return build(), lambda name, cut: None
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    recipes = {name: recipe for name, x in tensors if (recipe := mode.recipe(x)) is not None}
    return model, lambda name, cut: recipes[name].made(cut) if name in recipes else None


def fill(model: nn.Module, numbers: Numbers) -> None:
    """Give tensors of a model on the meta device what somebody makes for them, in place; tied ones stay tied.

    Parameters
    ----------
    model : nn.Module
        Whole, or what `split` and then a `Pipeline` have left of it.
    numbers : callable
        The name of a tensor, and which part of it this rank has -> its numbers; None leaves it as it is.
    """
    for module_name, module in model.named_modules():
        for key, buffer in list(module.named_buffers(recurse=False)):
            if (value := numbers(f"{module_name}.{key}".lstrip("."), None)) is not None:
                setattr(module, key, value.to(buffer.dtype))
    made: dict[nn.Parameter, nn.Parameter] = {}
    for name, parameter in list(model.named_parameters()):
        value = numbers(name, getattr(parameter, "cut", None))
        if value is None:
            continue
        made[parameter] = nn.Parameter(value)
        vars(made[parameter]).update(vars(parameter))  # its cut, and who else has it
        if (summed := getattr(parameter, "summed", None)) is not None:
            made[parameter].register_hook(partial(summed_gradient, summed))
        made[parameter].requires_grad_(parameter.requires_grad)
        parameter.now = made[parameter]  # type: ignore[attr-defined]
    for module in model.modules():
        for key, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            module.register_parameter(key, made.get(parameter, parameter))
