"""Llama: RMS norms, rotary positions, grouped-query attention, a gated feed-forward (arXiv 2302.13971, 2307.09288)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require
from commeff.experiments.tasks.language.decoder import Beside, Decoder, TransformerBlock
from commeff.experiments.tasks.language.gpt import initialise


def turns(tokens: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    """The cosines and sines of rotary positions, (t, 1, w/2) each: pair i at position t turns by t base^(-2i/w).

    tokens : (b, t), of which only t counts.
    """
    half = head_width // 2
    rates = base ** (-torch.arange(half, device=tokens.device, dtype=torch.float32) / half)
    angles = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)[:, None, None] * rates
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (arXiv 2104.09864): number pair (i, i + w/2) of each position is turned by its angle.

    Parameters
    ----------
    x : (b, t, heads, w)
        Queries or keys; w is even.
    cosine, sine : (t, 1, w/2)
        Of the angles, as `turns` gives them.

    Examples
    --------
    The product of a query and a key depends on how far apart they are, not on where:

    >>> q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    >>> angles = turns(torch.zeros(1, 5), head_width=8, base=100.0)
    >>> turned = [rotate(v.expand(1, 5, 1, 8), *angles)[0, :, 0] for v in (q, k)]
    >>> bool(torch.isclose(turned[0][1] @ turned[1][3], turned[0][2] @ turned[1][4]))
    True
    """
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1)


def shares(queries: Tensor, mask: Tensor | None) -> bool:
    """Whether a kernel lets queries share keys. A GPU's only one is for 16 bits without a mask; otherwise torch keeps
    all scores, (b, heads, t, t).

    >>> shares(torch.ones(1, 4, 8, 2), mask=None)
    True
    """
    return not queries.is_cuda or (mask is None and queries.itemsize == 2)


class GroupedAttention(nn.Module):
    """Causal self-attention in which several query heads share a head of keys and values (arXiv 2305.13245)."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.values = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None, *angles: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width). How many heads there are is read from the widths of what comes out.

        mask : (b, 1, t, t), which positions read which; all before them, and themselves, if None.
        angles : of the rotary positions, as `rotate` takes them.
        """
        queries, keys, values = (
            linear(x).unflatten(-1, (-1, self.head_width)) for linear in (self.queries, self.keys, self.values)
        )
        queries, keys = rotate(queries, *angles), rotate(keys, *angles)
        queries, keys, values = (heads.transpose(1, 2) for heads in (queries, keys, values))
        if not shares(queries, mask):
            keys, values = (heads.repeat_interleave(queries.shape[1] // heads.shape[1], 1) for heads in (keys, values))
        mixed = F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=mask is None, enable_gqa=True)
        out: Tensor = self.project(mixed.transpose(1, 2).flatten(2))
        return out


class GatedFeedforward(nn.Module):
    """project(silu(gate(x)) * widen(x)), SwiGLU (arXiv 2002.05202)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.widen = nn.Linear(width, inner, bias=False)
        self.project = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, width) -> (b, t, width)."""
        out: Tensor = self.project(F.silu(self.gate(x)) * self.widen(x))
        return out


class Llama(Decoder):
    """Tokens (b, t) -> logits of the token after each of them (b, t, vocabulary).

    Parameters
    ----------
    vocabulary : int
        Number of different tokens.
    layers : int
        Number of blocks.
    width : int
        Of the residual stream.
    heads : int
        Of queries; they share the width evenly.
    kv_heads : int, optional
        Of keys, and as many of values; a divisor of `heads`, which is the default.
    inner : int, optional
        Width inside the feed-forward; 8/3 of the width, up to a multiple of 256, unless given.
    tied : bool
        The output layer is the token embedding itself.
    base : float
        Of the rotary positions.
    separator : int, optional
        The token that documents begin with: attention stays within a document. Rotary positions see distances alone.

    Examples
    --------
    >>> model = Llama(vocabulary=64, layers=4, width=32, heads=4, kv_heads=2, inner=64)
    >>> sum(p.numel() for p in model.parameters())
    41248
    >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self,
        vocabulary: int,
        layers: int,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        inner: int | None = None,
        tied: bool = False,
        base: float = 10000.0,
        separator: int | None = None,
    ) -> None:
        super().__init__()
        self.separator, self.base, self.head_width = separator, base, width // heads
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        inner = -(-8 * width // (3 * 256)) * 256 if inner is None else inner
        require.at_least(1, vocabulary=vocabulary, layers=layers, width=width, inner=inner)
        require.at_least(1, heads=heads, kv_heads=self.kv_heads)
        if width % heads or width // heads % 2:
            raise ValueError(
                f"width must be an even multiple of heads={heads}, got {width}: heads have one width, and rotary "
                f"positions turn pairs of numbers; take a multiple of {2 * heads}"
            )
        if heads % self.kv_heads:
            raise ValueError(
                f"kv_heads must divide heads={heads}, got {self.kv_heads}: as many query heads share each head of "
                "keys; take a divisor"
            )
        self.tokens = nn.Embedding(vocabulary, width)
        norm = partial(nn.RMSNorm, width, eps=1e-5)
        halves = (
            (GroupedAttention(width, heads, self.kv_heads), GatedFeedforward(width, inner)) for _ in range(layers)
        )
        self.blocks = nn.Sequential(*(TransformerBlock(norm, *pair) for pair in halves))
        self.norm = norm()
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        initialise(self, width, layers)

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens (b, t) -> what the first block gets (b, t, width)."""
        x: Tensor = self.tokens(tokens)
        return x

    def beside(self, tokens: Tensor) -> Beside:
        """The mask of the attention, and the angles of the positions."""
        return (*super().beside(tokens), *turns(tokens, self.head_width, self.base))
