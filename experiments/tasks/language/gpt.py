"""GPT: the pre-norm decoder of GPT-2, small without biases, or as published."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require
from commeff.experiments.tasks.language.decoder import Decoder, TransformerBlock

SPREAD = 0.02 * 768**0.5  # of initial weights, times sqrt(width): GPT-2's 0.02 at GPT-2's width


class Attention(nn.Module):
    """Causal self-attention with several heads: position t reads positions 0 ... t."""

    def __init__(self, width: int, heads: int, head_width: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.head_width, self.dropout = head_width, dropout
        self.inputs = nn.Linear(width, 3 * heads * head_width, bias=bias)  # queries, keys and values
        self.project = nn.Linear(heads * head_width, width, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(b, t, width) -> (b, t, width). How many heads there are is read from the width of what comes out.

        mask : (b, 1, t, t), which positions read which; all before them, and themselves, if None.
        """
        split = self.inputs(x).unflatten(-1, (3, -1, self.head_width))  # (b, t, 3, heads, head_width)
        queries, keys, values = split.transpose(1, 3).unbind(2)
        dropped = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(queries, keys, values, mask, dropped, is_causal=mask is None)
        out: Tensor = self.project(mixed.transpose(1, 2).flatten(2))
        return out


class Feedforward(nn.Module):
    """Two linear layers with a GELU between them, four times as wide inside."""

    def __init__(self, width: int, bias: bool, tanh: bool) -> None:
        super().__init__()
        self.approximate = "tanh" if tanh else "none"
        self.widen = nn.Linear(width, 4 * width, bias=bias)
        self.project = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        out: Tensor = self.project(F.gelu(self.widen(x), approximate=self.approximate))
        return out


class GPT(Decoder):
    """Tokens (b, t), t <= context -> logits of the token after each of them (b, t, vocabulary).

    Positions are learned, and the output layer is the token embedding itself. Weights start as in GPT-2, Gaussian with
    standard deviation 0.02, and smaller by sqrt(2 layers) in the layers that write into the residual stream; a width
    other than GPT-2's 768 makes them larger by sqrt(768 / width). With a bare 0.02 a narrow GPT starts with all scores
    near zero and learns late: at width 64 its loss after an epoch of tinyshakespeare was 2.35 instead of 2.08.

    Parameters
    ----------
    vocabulary : int
        Number of different tokens.
    layers : int
        Number of blocks.
    heads : int
        Of each attention.
    width : int
        Of the residual stream.
    context : int
        Most tokens the model can look at.
    dropout : float
        Probability, on the embeddings, in the attention and on what each half of a block adds.
    bias : bool
        In all linear layers and norms but the output layer, as GPT-2 and GPT-3 have it.
    head_width : int, optional
        Of one head; the heads share the width evenly unless given.
    separator : int, optional
        The token that documents begin with: attention stays within a document, whose positions count from there.
    tanh : bool
        GELU by its approximation with tanh, as GPT-2 has it.

    Examples
    --------
    There are (vocabulary + context) width + layers (12 width^2 + 2 width) + width parameters without biases:

    >>> sum(p.numel() for p in GPT(vocabulary=256, layers=2, heads=4, width=64, context=64).parameters())
    119104
    """

    def __init__(
        self,
        vocabulary: int,
        layers: int,
        heads: int,
        width: int,
        context: int,
        dropout: float = 0.0,
        bias: bool = False,
        head_width: int | None = None,
        separator: int | None = None,
        tanh: bool = False,
    ) -> None:
        super().__init__()
        require.at_least(1, vocabulary=vocabulary, layers=layers, heads=heads, width=width, context=context)
        if head_width is None and width % heads:
            raise ValueError(f"{heads} heads cannot share width {width} evenly: choose a multiple of {heads}")
        head_width = width // heads if head_width is None else head_width
        require.at_least(1, head_width=head_width)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.heads, self.context, self.separator, self.tanh = heads, context, separator, tanh
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        norm = partial(nn.LayerNorm, width, bias=bias)
        halves = (
            (Attention(width, heads, head_width, dropout, bias), Feedforward(width, bias, tanh)) for _ in range(layers)
        )
        self.blocks = nn.Sequential(*(TransformerBlock(norm, *pair, dropout) for pair in halves))
        self.norm = norm()
        self.head = nn.Linear(width, vocabulary, bias=False, device="meta")  # meta: it draws no random numbers
        self.head.weight = self.tokens.weight
        initialise(self, width, layers)

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens (b, t) -> what the first block gets (b, t, width)."""
        if tokens.shape[-1] > self.context:
            raise ValueError(
                f"a window must have at most context = {self.context} tokens, got {tokens.shape[-1]}: there are no "
                "positions for more; shorten it, or take a model of a larger context"
            )
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        if self.separator is not None:
            places = places - places.where(tokens == self.separator, 0).cummax(-1).values
        x: Tensor = self.drop(self.tokens(tokens) + self.positions(places))
        return x


def initialise(model: nn.Module, width: int, layers: int) -> None:
    """GPT-2's Gaussian weights, smaller where a layer writes into the residual stream; biases begin at 0."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
            continue
        into_stream = name.endswith("project.weight")
        nn.init.normal_(parameter, std=SPREAD / width**0.5 / ((2 * layers) ** 0.5 if into_stream else 1))
