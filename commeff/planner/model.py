"""The transformer to be trained: its shape, parameters and FLOPs, counted matrix by matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

from commeff import require

count = partial(require.count, most=10**8)  # beyond it 64-bit products of counts overflow


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer: a GPT block unless said otherwise.

    GPT: learned positions, layer norms, biases, a feed-forward of two matrices (h to 4 h and back). With `gated`,
    LLaMA: rotary positions, RMS norms, no biases, a feed-forward of three matrices.

    Parameters
    ----------
    layers, hidden, heads, sequence, vocab : l, h, a, s, V.
    head_dim : width of one head; hidden / heads unless given (GPT-3 XL has 24 heads of 128 over 2048).
    kv_heads : heads of keys and values (grouped-query attention); heads unless given.
    ffn_hidden : inner width of the feed-forward; 4 h unless given, and 8/3 h up to a multiple of 256 if gated
        (LLaMA).
    gated : a third matrix gates the feed-forward.
    tied_embeddings : input and output embeddings are one matrix.
    flash_attention : a fused kernel that never writes the s x s scores, and skips what a causal mask hides.

    Examples
    --------
    >>> Model(32, 4096, 32, 2048, 32000, gated=True, tied_embeddings=False).parameters  # LLaMA 7B
    6738415616
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocab: int
    head_dim: int | None = None
    kv_heads: int | None = None
    ffn_hidden: int | None = None
    gated: bool = False
    tied_embeddings: bool = True
    flash_attention: bool = False

    def __post_init__(self) -> None:
        count(layers=self.layers, hidden=self.hidden, heads=self.heads, sequence=self.sequence, vocab=self.vocab)
        widths = {"head_dim": self.head_dim, "kv_heads": self.kv_heads, "ffn_hidden": self.ffn_hidden}
        count(**{name: value for name, value in widths.items() if value is not None})
        require.truth(gated=self.gated, tied_embeddings=self.tied_embeddings, flash_attention=self.flash_attention)
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(
                f"hidden must be a multiple of heads={self.heads}, got {self.hidden}: all heads have one width; "
                "give head_dim, or other heads"
            )
        if self.heads % self.key_heads:
            raise ValueError(
                f"kv_heads must divide heads={self.heads}, got {self.kv_heads}: as many heads share each key; "
                "take a divisor of heads"
            )
        count(**{"heads x head_dim": self.query_width})

    @cached_property
    def head_width(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads if self.head_dim is None else self.head_dim

    @cached_property
    def key_heads(self) -> int:
        """Heads of keys (and as many of values)."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @cached_property
    def query_width(self) -> int:
        """Width of all queries; the hidden size unless head_dim says otherwise."""
        return self.heads * self.head_width

    @cached_property
    def key_width(self) -> int:
        """Width of all keys."""
        return self.key_heads * self.head_width

    @cached_property
    def ffn_width(self) -> int:
        """Inner width of the feed-forward.

        >>> [Model(32, h, 32, 2048, 32000, gated=True).ffn_width for h in (4096, 8192)]
        [11008, 22016]
        """
        if self.ffn_hidden is not None:
            return self.ffn_hidden
        return -(-8 * self.hidden // (3 * 256)) * 256 if self.gated else 4 * self.hidden

    @property
    def matrices(self) -> int:
        """The numbers in one layer: queries, keys, values, output, and those of the feed-forward."""
        return 7 if self.gated else 6

    @property
    def attention_weights(self) -> int:
        """Numbers in the matrices of one attention: queries, keys, values, output."""
        return 2 * self.hidden * (self.query_width + self.key_width)

    @property
    def ffn_weights(self) -> int:
        """Numbers in the matrices of one feed-forward."""
        return (3 if self.gated else 2) * self.hidden * self.ffn_width

    @property
    def layer_parameters(self) -> int:
        """Numbers in one layer: matrices, norms, biases. 12 h^2 + 13 h for a GPT block."""
        small = 2 * self.hidden  # the scales of two norms
        if not self.gated:  # their shifts, and the biases of the six matrices
            small += 4 * self.hidden + self.query_width + 2 * self.key_width + self.ffn_width
        return self.attention_weights + self.ffn_weights + small

    @property
    def embedding_parameters(self) -> int:
        """Numbers in one V x h matrix."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Numbers in the whole model.

        >>> Model(96, 12288, 96, 2048, 50257).parameters / 1e9
        174.604259328
        """
        positions = 0 if self.gated else self.sequence * self.hidden
        final_norm = self.hidden if self.gated else 2 * self.hidden
        copies = 1 if self.tied_embeddings else 2
        return self.layers * self.layer_parameters + copies * self.embedding_parameters + positions + final_norm

    @property
    def attention_flops(self) -> float:
        """FLOPs of scores and context, forward, one layer and sequence: 4 s^2 h, the masked half counted unless a flash
        kernel skips it.
        """
        return (2.0 if self.flash_attention else 4.0) * self.sequence**2 * self.query_width

    @property
    def layer_flops(self) -> float:
        """FLOPs forward, one layer, one sequence: 24 s h^2 + 4 s^2 h for a GPT block."""
        return 2.0 * self.sequence * (self.attention_weights + self.ffn_weights) + self.attention_flops

    @property
    def head_flops(self) -> float:
        """FLOPs forward, the logits of one sequence: 2 s h V."""
        return 2.0 * self.sequence * self.embedding_parameters

    @property
    def flops(self) -> float:
        """Model FLOPs of one sequence, forward and backward: 72 s l h^2 (1 + s/(6h) + V/(12 l h)) (Narayanan 2021).

        >>> l, h, s, V = 80, 12288, 2048, 51200
        >>> Model(l, h, 96, s, V).flops == round(72 * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h)))
        True
        """
        return 3.0 * (self.layers * self.layer_flops + self.head_flops)

    def recomputed_flops(self, recompute: str) -> float:
        """FLOPs of one sequence that are done twice: nothing, the attention core (selective) or all layers (full)."""
        per_layer = {"none": 0.0, "selective": self.attention_flops, "full": self.layer_flops}[recompute]
        return self.layers * per_layer
