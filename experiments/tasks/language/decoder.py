"""What the language models have in common: blocks between an embedding and logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

Beside = tuple[Tensor | None, ...]  # what the attention of every block gets besides; first a mask


class TransformerBlock(nn.Module):
    """x + drop(attention(norm(x))), then x + drop(feedforward(norm(x))), where drop is dropout."""

    def __init__(
        self, norm: Callable[[], nn.Module], attention: nn.Module, feedforward: nn.Module, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(), attention
        self.feedforward_norm, self.feedforward = norm(), feedforward
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, beside: Beside) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        x = x + self.drop(self.attention(self.attention_norm(x), *beside))
        out: Tensor = x + self.drop(self.feedforward(self.feedforward_norm(x)))
        return out


class Decoder(nn.Module, ABC):
    """Tokens (b, t) -> logits (b, t, vocabulary): an embedding, blocks one after the other, a norm and a linear layer.

    A subclass makes the modules `tokens`, `blocks`, `norm` and `head`, and says how tokens are embedded. It knows
    nothing of parallelism: `commeff.sharding` splits it by the names of its modules.

    Attributes
    ----------
    separator : int or None
        The token that documents begin with: attention stays within a document.
    """

    separator: int | None
    blocks: nn.Sequential
    norm: nn.Module
    head: nn.Linear

    def forward(self, tokens: Tensor, *targets: Tensor) -> Tensor:
        """Logits (b, t, vocabulary); those at position t depend on tokens 0 ... t alone.

        With targets (b, t), what a `commeff.sharding.LossLinear` as the head makes of both.
        """
        beside, x = self.beside(tokens), self.embed(tokens)
        for block in self.blocks:
            x = block(x, beside)
        return self.unembed(x, *targets)

    def beside(self, tokens: Tensor) -> Beside:
        """The positions that each one reads, if documents are separate."""
        return (None if self.separator is None else within(tokens, self.separator),)

    @abstractmethod
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens (b, t) -> what the first block gets (b, t, width)."""

    def unembed(self, x: Tensor, *targets: Tensor) -> Tensor:
        """What the last block gives (b, t, width) -> logits (b, t, vocabulary), or as `forward` with targets."""
        logits: Tensor = self.head(self.norm(x), *targets)
        return logits


def within(tokens: Tensor, separator: int) -> Tensor:
    """(b, t) -> (b, 1, t, t): position i reads position j if j <= i and no document begins between them.

    >>> import torch
    >>> within(torch.tensor([[5, 9, 6]]), separator=9)[0, 0].int()
    tensor([[1, 0, 0],
            [0, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    """
    document = (tokens == separator).cumsum(-1)
    return (document[:, None, :, None] == document[:, None, None, :]).tril()
