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
    experts, active_experts : feed-forwards of a layer, and how many of them a router picks for each token
        (arXiv 2006.16668). One is a dense model, which has no router.
    expert_hidden : inner width of an expert; that of the dense feed-forward unless given.
    shared_experts : further experts of that width, which every token passes (arXiv 2401.06066).
    expert_every : k, of which layers have experts: every k-th; the others are dense.
    capacity : tokens that an expert computes, over an even share of them, 1: the load of the fullest where none is
        dropped, the capacity factor where experts are padded to it (1.25 in arXiv 2101.03961).

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
    experts: int = 1
    active_experts: int = 1
    expert_hidden: int | None = None
    shared_experts: int = 0
    expert_every: int = 1
    capacity: float = 1.0

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
        self._check_experts()

    def _check_experts(self) -> None:
        count(experts=self.experts, active_experts=self.active_experts, expert_every=self.expert_every)
        count(expert_hidden=self.expert_width)
        if self.shared_experts:
            count(shared_experts=self.shared_experts)
        if type(self.capacity) not in (int, float) or not 1 <= self.capacity < float("inf"):
            raise ValueError(f"capacity must be a number of at least 1, an even share, got {self.capacity!r}")
        if self.active_experts > self.experts:
            raise ValueError(f"active_experts must be at most experts={self.experts}, got {self.active_experts}")
        if self.experts == 1 and (self.expert_hidden, self.shared_experts, self.expert_every) != (None, 0, 1):
            raise ValueError("experts must be above 1 with expert_hidden, shared_experts and expert_every, got 1")
        if self.layers % self.expert_every:
            raise ValueError(f"expert_every must divide layers={self.layers}, got {self.expert_every}")

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

    @cached_property
    def expert_width(self) -> int:
        """Inner width of one expert."""
        return self.ffn_width if self.expert_hidden is None else self.expert_hidden

    @property
    def units(self) -> int:
        """Pieces of `expert_every` layers, into which a pipeline may be cut."""
        return self.layers // self.expert_every

    @property
    def inner_widths(self) -> dict[str, int]:
        """Inner widths of the feed-forwards that the model has, by the field that sets them."""
        widths = {"ffn_hidden": self.ffn_width, "expert_hidden": self.expert_width}
        only = ("ffn_hidden",) if self.experts == 1 else ("expert_hidden",) if self.expert_every == 1 else (*widths,)
        return {name: widths[name] for name in only}

    @property
    def matrices(self) -> int:
        """The numbers in one layer: queries, keys, values, output, and those of the feed-forward."""
        return 7 if self.gated else 6

    @property
    def attention_weights(self) -> int:
        """Numbers in the matrices of one attention: queries, keys, values, output."""
        return 2 * self.hidden * (self.query_width + self.key_width)

    @property
    def ffn_weights(self) -> float:
        """Numbers in the matrices of the feed-forwards of one layer that a token passes; of a mean layer with
        experts.
        """
        matrices, experts = 3 if self.gated else 2, self.active_experts + self.shared_experts
        dense = matrices * self.hidden * self.ffn_width
        if self.experts == 1:
            return dense
        return dense + (experts * matrices * self.hidden * self.expert_width - dense) / self.expert_every

    def _ffn_parameters(self, width: int) -> int:
        """Numbers in a feed-forward: its matrices, and their biases."""
        return (3 if self.gated else 2) * self.hidden * width + (0 if self.gated else self.hidden + width)

    @property
    def _repeated(self) -> int:
        """Numbers in `expert_every` layers, the last of which has experts."""
        small = 2 * self.hidden  # the scales of two norms
        if not self.gated:  # their shifts, and the biases of four matrices
            small += 3 * self.hidden + self.query_width + 2 * self.key_width
        last = self._ffn_parameters(self.ffn_width)
        if self.experts > 1:
            router, shared = self.experts * self.hidden, self.shared_experts * self.expert_width
            last = self.experts * self._ffn_parameters(self.expert_width) + router
            last += self._ffn_parameters(shared) if shared else 0
        dense = (self.expert_every - 1) * self._ffn_parameters(self.ffn_width)
        return self.expert_every * (self.attention_weights + small) + dense + last

    @property
    def layer_parameters(self) -> float:
        """Numbers in one layer: matrices, norms, biases. 12 h^2 + 13 h for a GPT block. Where only some layers have
        experts, the mean of them.
        """
        return self._repeated if self.expert_every == 1 else self._repeated / self.expert_every

    @property
    def expert_parameters(self) -> float:
        """Numbers of `layer_parameters` in experts among which a router picks."""
        return (self.experts > 1) * self.experts * self._ffn_parameters(self.expert_width) / self.expert_every

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
        layers = self.units * self._repeated
        return layers + copies * self.embedding_parameters + positions + final_norm

    @property
    def active_parameters(self) -> int:
        """Numbers that one token meets: all but the experts that it is not sent to.

        >>> Model(32, 4096, 32, 4096, 32000, None, 8, 14336, True, False, experts=8, active_experts=2).active_parameters
        12879925248
        """
        idle = (self.experts - self.active_experts) * self._ffn_parameters(self.expert_width)
        return self.parameters - self.units * idle

    @property
    def attention_flops(self) -> float:
        """FLOPs of scores and context, forward, one layer and sequence: 4 s^2 h, the masked half counted unless a flash
        kernel skips it.
        """
        return (2.0 if self.flash_attention else 4.0) * self.sequence**2 * self.query_width

    @property
    def layer_flops(self) -> float:
        """FLOPs forward, one layer, one sequence: 24 s h^2 + 4 s^2 h for a GPT block. Of experts the active ones alone,
        without their router.
        """
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
