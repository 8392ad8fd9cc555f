"""Adam's kin: without bias correction, with sensitivities, and with memories of 8 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from commeff import require
from commeff.optimizers.rule import Rule, advance, zeros

SIGNED = {"average": True, "square": False}  # whether the numbers of a memory have signs


def adam_options(lr: float, betas: Sequence[float], eps: float, weight_decay: float) -> dict[str, Any]:
    """The options of Adam's kin, if they are in range."""
    for beta in betas:
        require.within("[0, 1)", betas=beta)
    require.at_least(0, eps=eps, weight_decay=weight_decay)
    return {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}


class Adaptive(Rule):
    """A rule with two moving averages, the gradient's and its square's.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate.
    betas : (float, float)
        b1 of the gradient's average and b2 of its square's, in [0, 1).
    eps : float
        Is added to the root of the second.
    weight_decay : float
        Decoupled, as in AdamW: x shrinks by lr weight_decay x.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, adam_options(lr, betas, eps, weight_decay))

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"step": torch.tensor(0.0), "average": zeros(x), "square": zeros(x)}

    def moments(self, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """m / (1 - b1^t) and v / (1 - b2^t), after the step t that the memory takes now; fresh tensors."""
        t, (first, second) = advance(memory), options["betas"][:2]
        average, square = memory["average"], memory["square"]
        average.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        return average / (1 - first**t), square / (1 - second**t)


class UncorrectedAdam(Adaptive):
    """Adam without bias correction, as some lectures write it.

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  x = x - lr m / (sqrt(v) + eps),  m = v = 0 at first

    The first step is (1 - b1)/sqrt(1 - b2) times Adam's: 3.2 at (0.9, 0.999).

    Memory: m and v, each as large as the parameters.

    When: results of code without the correction are to be repeated; else optimizer=adam.

    Examples
    --------
    >>> x = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    >>> x.grad = torch.tensor([-5.0], dtype=torch.float64)
    >>> UncorrectedAdam([x], lr=1.0, eps=0.0).step()
    >>> round(x.item(), 4)
    3.1623
    """

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        self.moments(gradient, memory, options)
        x.mul_(1 - options["lr"] * options["weight_decay"])
        x.addcdiv_(memory["average"], memory["square"].sqrt().add_(options["eps"]), value=-options["lr"])


class AdamSAGE(Adaptive):
    """Adam whose coordinates learn faster the less their sensitivity has settled.

        I = |x g|;  s = b3 s + (1 - b3) I;  a = s / (1 - b3^t);  Adam's step times |I - a| / (a + eps^2)

    s = 0 at first, and a is corrected for that, as in the authors' AdamW; their Adamax takes s itself. So the first
    factor is 0, and gradients that do not change never move anything. A coordinate of 0 has no sensitivity and does not
    move either: parameters that begin at zero stay there.

    Memory: m, v and s, each as large as the parameters.

    When: fine-tuning, where parameters that seem superfluous are to be trained on.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate.
    betas : (float, float, float)
        b1, b2 and b3, in [0, 1).
    eps : float
        Is added to the root, and its square to s.
    weight_decay : float
        Decoupled: x shrinks by lr weight_decay x.

    References
    ----------
    Liang et al., No parameters left behind: sensitivity guided adaptive learning rate, arXiv 2202.02664; their code is
    cliang1453/SAGE, module/bert_optim.py, ``UnstructAwareAdamW``.

    Examples
    --------
    >>> x = torch.nn.Parameter(torch.tensor([2.0, 0.0], dtype=torch.float64))
    >>> optimizer = AdamSAGE([x], lr=0.5)
    >>> for gradient in (1.0, 1.0, 3.0):
    ...     x.grad = torch.full_like(x, gradient)
    ...     optimizer.step()
    ...     print(x.data.round(decimals=4).tolist())
    [2.0, 0.0]
    [2.0, 0.0]
    [1.7239, 0.0]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.75),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return super().remember(x) | {"sensitivity": zeros(x)}

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        average, square = self.moments(gradient, memory, options)
        t, third = memory["step"].item(), options["betas"][2]
        sensitivity = (x * gradient).abs_()
        settled = memory["sensitivity"].lerp_(sensitivity, 1 - third) / (1 - third**t)
        factor = (sensitivity - settled).abs_().div_(settled.add_(options["eps"] ** 2))
        x.mul_(1 - options["lr"] * options["weight_decay"])
        x.addcdiv_(average.mul_(factor), square.sqrt_().add_(options["eps"]), value=-options["lr"])


class Adam8bit(Adaptive):
    r"""Adam whose memory takes a byte a number: block-wise, dynamically quantised.

    Each block of `block` coordinates of a tensor is divided by its largest magnitude, and rounded to the nearest of 256
    values that lie densest near zero. The step is Adam's, with what is read from that memory, before it is rounded
    again. A square that is not zero never rounds to zero: a step would be divided by eps.

    Memory: two bytes a parameter and two numbers a block.

    When: the optimizer's memory is what does not fit.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate.
    betas : (float, float)
        b1 and b2, in [0, 1).
    eps : float
        Is added to the root.
    weight_decay : float
        Decoupled: x shrinks by lr weight_decay x.
    block : int
        Coordinates that share a scale.

    References
    ----------
    Dettmers, Lewis, Shleifer, Zettlemoyer, 8-bit optimizers via block-wise quantization, arXiv 2110.02861.

    Examples
    --------
    >>> x = torch.nn.Parameter(torch.zeros(1000))
    >>> optimizer = Adam8bit([x], lr=0.1)
    >>> x.grad = torch.linspace(-1, 1, 1000)
    >>> optimizer.step()
    >>> sum(value.nbytes for value in optimizer.state[x].values())      # 2 x 1000, 2 x 4 blocks x 4, the step's 4
    2036
    """

    elementwise = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        block: int = 256,
    ) -> None:
        require.at_least(1, block=block)
        super().__init__(params, lr, betas, eps, weight_decay)
        self.block = block

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        memory = {"step": torch.tensor(0.0)}
        for name, signed in SIGNED.items():
            codes, scales = _rounded(zeros(x), _table(signed), self.block)
            memory |= {name: codes, f"{name}_scales": scales}
        return memory

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        tables = {name: _table(signed) for name, signed in SIGNED.items()}
        full = {
            name: _read(memory[name], memory[f"{name}_scales"], table, self.block, x.dtype)
            for name, table in tables.items()
        }
        state = {"step": memory["step"], **full}
        average, square = self.moments(gradient, state, options)
        for name, table in tables.items():
            memory[name], memory[f"{name}_scales"] = _rounded(full[name], table, self.block)
        memory["square"].masked_fill_((memory["square"] == 0) & (full["square"] > 0), 1)
        x.mul_(1 - options["lr"] * options["weight_decay"])
        x.addcdiv_(average, square.sqrt_().add_(options["eps"]), value=-options["lr"])


@cache
def _table(signed: bool) -> Tensor:
    """The 256 values of a byte: decades 10^-6 ... 1, the i-th with twice as many values as the one below; 0 and 1.

    >>> _table(True)[127].item(), _table(False)[0].item(), len(_table(True)), len(_table(False))
    (0.0, 0.0, 256, 256)
    """
    values = [0.0, 1.0]
    for decade in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (decade + (not signed)) + 1, dtype=torch.float64)
        middles = ((edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - 6)).tolist()
        values += middles + [-value for value in middles if signed]
    return torch.tensor(sorted(values), dtype=torch.float64)


def _rounded(values: Tensor, table: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The code of each value, and the scale of each block."""
    count = math.ceil(values.numel() / block)
    padded = torch.nn.functional.pad(values.flatten(), (0, count * block - values.numel())).view(count, block)
    scales = padded.abs().amax(1) if count else padded.new_zeros(0)
    table = table.to(values)
    shares = padded / scales.masked_fill(scales == 0, 1)[:, None]
    codes = torch.bucketize(shares, (table[1:] + table[:-1]) / 2).to(torch.uint8)
    return codes.flatten()[: values.numel()].view(values.shape), scales


def _read(codes: Tensor, scales: Tensor, table: Tensor, block: int, dtype: torch.dtype) -> Tensor:
    """The values that codes and scales stand for."""
    values = table.to(codes.device, dtype)[codes.flatten().int()]
    return values.mul_(scales.to(dtype).repeat_interleave(block)[: codes.numel()]).view(codes.shape)
