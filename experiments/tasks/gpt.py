"""A small GPT: the pre-norm decoder of GPT-2, without biases."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.experiments.tasks.checks import at_least

SPREAD = 0.02 * 768**0.5  # of initial weights, times sqrt(width): GPT-2's 0.02 at GPT-2's width


class Attention(nn.Module):
    """Causal self-attention with several heads: position t reads positions 0 ... t."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.inputs = nn.Linear(width, 3 * width, bias=False)  # queries, keys and values
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        split = self.inputs(x).unflatten(-1, (3, self.heads, -1))  # (b, t, 3, heads, width / heads)
        queries, keys, values = split.transpose(1, 3).unbind(2)
        dropped = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropped, is_causal=True)
        out: Tensor = self.project(mixed.transpose(1, 2).flatten(2))
        return out


class Feedforward(nn.Module):
    """Two linear layers with a GELU between them, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.project = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        out: Tensor = self.project(F.gelu(self.widen(x)))
        return out


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + feedforward(norm(x))."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads, dropout)
        self.feedforward_norm = nn.LayerNorm(width, bias=False)
        self.feedforward = Feedforward(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        x = x + self.drop(self.attention(self.attention_norm(x)))
        out: Tensor = x + self.drop(self.feedforward(self.feedforward_norm(x)))
        return out


class GPT(nn.Module):
    """Tokens (b, t), t <= context -> logits of the token after each of them (b, t, vocabulary).

    Positions are learned, and the output layer is the token embedding itself. Weights start as in GPT-2, Gaussian with
    standard deviation 0.02, and smaller by sqrt(2 layers) in the layers that write into the residual stream; a width
    other than GPT-2's 768 makes them larger by sqrt(768 / width). With a bare 0.02 a narrow GPT starts with all scores
    near zero and learns late: at width 64 its loss after an epoch of tinyshakespeare was 2.35 instead of 2.08.

    Parameters
    ----------
    vocabulary : number of different tokens.
    layers : number of blocks.
    heads : of each attention; they share the width evenly.
    width : of the residual stream.
    context : most tokens the model can look at.
    dropout : probability, on the embeddings, in the attention and on what each half of a block adds.

    There are (vocabulary + context) width + layers (12 width^2 + 2 width) + width parameters:

    >>> sum(p.numel() for p in GPT(vocabulary=256, layers=2, heads=4, width=64, context=64).parameters())
    119104
    """

    def __init__(
        self, vocabulary: int, layers: int, heads: int, width: int, context: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        at_least(1, vocabulary=vocabulary, layers=layers, heads=heads, width=width, context=context)
        if width % heads:
            raise ValueError(f"{heads} heads cannot share width {width} evenly: choose a multiple of {heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        spread = SPREAD / width**0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                into_stream = name.endswith("project.weight")
                nn.init.normal_(parameter, std=spread / (2 * layers) ** 0.5 if into_stream else spread)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (b, t, vocabulary); those at position t depend on tokens 0 ... t alone."""
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        x = self.blocks(self.drop(self.tokens(tokens) + self.positions(places)))
        return F.linear(self.norm(x), self.tokens.weight)
