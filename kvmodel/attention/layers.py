"""What every kind of layer answers: bytes that grow, bytes that level off, bytes of constant state,
attention FLOPs.

A group is a number of equal layers. All byte methods are for the whole group on one tensor-parallel rank; tp
= 1 is the logical size of one copy. `tokens` and `tp` may be arrays. A kind overrides only what is not zero
for it.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from kvmodel.formulas.kv_size import Precision, Storage, heads_per_rank, vector_bytes
from kvmodel.quantity import Record


class LayerGroup(Record):
    """Equal layers of one kind."""

    layers: int = Field(ge=1, le=10_000)
    """How many layers of the model are of this kind and shape."""

    positions: tuple[int, ...] = ()
    """Which layers they are, counted from 0; needed only to cut a model into pipeline stages."""

    @model_validator(mode="after")
    def _one_position_each(self) -> Self:
        if self.positions and len(set(self.positions)) != self.layers:
            raise ValueError(f"positions lists {len(set(self.positions))} layers but layers is {self.layers}")
        if min(self.positions, default=0) < 0:
            raise ValueError("positions must not be negative")
        return self

    def growing_bytes_per_token(self, precision: Precision, tp: Any = 1) -> Any:
        """Bytes each further token adds, without bound [B/token]."""
        return 0.0

    def bounded_bytes(self, tokens: Any, precision: Precision, tp: Any = 1) -> Any:
        """Bytes of windows or chunks at `tokens` tokens; levels off as tokens go to infinity [B]."""
        return 0.0

    def state_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        """Bytes held from the first token on, whatever the length [B]."""
        return 0.0

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        """What an allocator has to place on one rank; nothing for layers without a cache."""
        return ()

    def quadratic_flops(self) -> float:
        """a in a·n²: FLOPs of causal prefill of n tokens that grow with the square [FLOP/token²]."""
        return 0.0

    def bounded_flops_per_token(self) -> float:
        """FLOPs per token of attention over a full window, or of a state update [FLOP/token]."""
        return 0.0


class HeadedLayers(LayerGroup):
    """Layers with separate keys and values per KV head (MHA, GQA, MQA)."""

    kv_heads: int = Field(ge=1, le=100_000)
    """KV heads of a layer, before tensor parallelism."""

    k_dim: int = Field(ge=1, le=100_000)
    """Width of a key vector (head_dim)."""

    v_dim: int = Field(ge=1, le=100_000)
    """Width of a value vector; equal to k_dim in most models."""

    query_heads: int = Field(default=0, ge=0, le=100_000)
    """Query heads of a layer; used for attention FLOPs only."""

    def row_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        """Bytes of one token in one layer on one rank [B/token]."""
        head = vector_bytes(self.k_dim, precision.key) + vector_bytes(self.v_dim, precision.value)
        return heads_per_rank(self.kv_heads, tp) * head
