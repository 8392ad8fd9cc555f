"""Initial parameters without a whole model: each number is a hash of (seed, name of the tensor, place in it).

So a rank makes its part of a tensor, be it of a tensor axis, a stage or a shard, and nothing else, and all parts
together are the whole, bit by bit, whatever the mesh.

    with torch.device("meta"):
        model = Llama(...)                                  # shapes, no memory
    split(model, llama_plan(model), mesh.axis("tensor"))    # shapes of this rank's pieces
    materialise(model, seed, spread)                        # their numbers
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from math import prod

import torch
from torch import Tensor, nn

from commeff.compressors import WorkerRandom
from commeff.sharding.shard import Shard

Numbers = Callable[[str, Shard | None], Tensor | None]  # name of a tensor, which part of it -> what is in there
Spread = Callable[[str], tuple[float, float]]  # name of a tensor -> mean and standard deviation of its numbers
Run = tuple[int, int]

BATCH = 1 << 20  # numbers that are made at a time


def drawn(
    seed: int,
    name: str,
    shape: Sequence[int],
    mean: float,
    deviation: float,
    *,
    cut: Shard | None = None,
    span: Run | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Gaussian numbers of a tensor, or of a part of it, that are the same in every part that has them.

    Parameters
    ----------
    seed : int
        Of the run.
    name : str
        Of the tensor in the whole model.
    shape : sequence of int
        Of the piece, which is the whole tensor where nothing is cut.
    mean, deviation : float
        Of the numbers; without a deviation they are all the mean.
    cut : Shard, optional
        Which part of the whole tensor the piece is.
    span : (start, stop), optional
        Only these of the piece's numbers, one after the other: a shard of a row.
    dtype, device
        Of the result. The numbers are made in float64 and rounded.

    Examples
    --------
    >>> whole = drawn(0, "head", (4, 6), mean=0.0, deviation=0.02)
    >>> columns = Shard.along(1, (4, 6), ((2, 3), (5, 6)))
    >>> bool((drawn(0, "head", (4, 2), 0.0, 0.02, cut=columns) == columns.take(whole)).all())
    True
    >>> bool((drawn(0, "head", (4, 6), 0.0, 0.02, span=(5, 9)) == whole.flatten()[5:9]).all())
    True
    """
    start, stop = span or (0, prod(shape))
    out = torch.empty(stop - start, dtype=dtype, device=device)
    if not deviation:
        out.fill_(mean)
    elif not out.is_meta and len(out):
        rows, columns = _places(tuple(shape), cut)
        width = sum(b - a for a, b in columns)
        at = start
        for first, last in _batches(start // width, -(-stop // width), max(1, BATCH // width)):
            numbers = _rows(seed, name, rows[first:last], columns).flatten()
            begin, end = max(start, first * width), min(stop, last * width)
            piece = numbers[begin - first * width : end - first * width]
            out[at - start : at - start + len(piece)] = piece.mul_(deviation).add_(mean)
            at += len(piece)
    return out if span else out.view(tuple(shape))


def materialise(
    model: nn.Module,
    seed: int,
    spread: Spread,
    names: Container[str] | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Give parameters of a model on the meta device their memory and their numbers, in place; tied ones stay tied.

    Parameters
    ----------
    model : nn.Module
        Whole, or what `split` has left of it.
    seed : int
        Of the run.
    spread : callable
        Name of a tensor -> mean and standard deviation.
    names : container of str, optional
        The tensors to make: those of a rank's stages, by `ranks_of`, before a `Pipeline` drops the others. All unless
        given.
    device
        Where the parameters will be.
    """
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise ValueError(
                f"buffers must have numbers, got {name} on the meta device: nobody says which; make it apart"
            )
    named = dict(model.named_parameters())

    def numbers(name: str, cut: Shard | None) -> Tensor:
        shape, dtype = named[name].shape, named[name].dtype
        return drawn(seed, name, shape, *spread(name), cut=cut, dtype=dtype, device=device)

    fill(model, numbers, names)


def fill(model: nn.Module, numbers: Numbers, names: Container[str] | None = None) -> None:
    """Give tensors of a model on the meta device what somebody makes for them, in place; tied ones stay tied.

    Parameters
    ----------
    model : nn.Module
        Whole, or what `split` has left of it.
    numbers : callable
        The name of a tensor, and which part of it this rank has -> its numbers; None leaves it as it is.
    names : container of str, optional
        The parameters to make; all unless given. Buffers are always made.
    """
    for module_name, module in model.named_modules():
        for key, buffer in list(module.named_buffers(recurse=False)):
            if (value := numbers(f"{module_name}.{key}".lstrip("."), None)) is not None:
                setattr(module, key, value.to(buffer.dtype))
    made: dict[nn.Parameter, nn.Parameter] = {}
    chosen = [(name, p) for name, p in model.named_parameters() if names is None or name in names]
    for name, parameter in chosen:
        value = numbers(name, getattr(parameter, "cut", None))
        if value is None:
            continue
        made[parameter] = nn.Parameter(value)
        vars(made[parameter]).update(vars(parameter))  # its cut, and who else has it
        if (summed := getattr(parameter, "summed", None)) is not None:
            made[parameter].register_hook(summed.reduce)
        made[parameter].requires_grad_(parameter.requires_grad)
        parameter.now = made[parameter]  # type: ignore[attr-defined]
    for module in model.modules():
        for key, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            module.register_parameter(key, made.get(parameter, parameter))


def _places(shape: tuple[int, ...], cut: Shard | None) -> tuple[Tensor, tuple[Run, ...]]:
    """A tensor as a matrix, each row a stream of random numbers: which rows and runs of columns are here."""
    lines, width = (1, shape[0]) if len(shape) == 1 else (shape[0], prod(shape[1:]))
    if cut is None:
        return torch.arange(lines), ((0, width),)
    if any(dim > 1 for dim in cut.cut):
        raise ValueError(f"a tensor must be cut along one of its first two dimensions, got {cut}")
    if len(shape) == 1:
        return torch.arange(1), cut.runs[0]
    deep = prod(shape[2:])
    rows = torch.cat([torch.arange(a, b) for a, b in cut.runs[0]])
    return rows, tuple((a * deep, b * deep) for a, b in cut.runs[1])


def _rows(seed: int, name: str, rows: Tensor, columns: Sequence[Run]) -> Tensor:
    stream = WorkerRandom(seed, rows, path=("initialise", name))
    return torch.cat([stream.shifted(a).normal(b - a, dtype=torch.float64) for a, b in columns], 1)


def _batches(first: int, last: int, size: int) -> Iterator[Run]:
    return ((start, min(start + size, last)) for start in range(first, last, size))
