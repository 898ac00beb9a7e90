"""Multi-head latent attention (MLA): one compressed vector per token and layer, the same for keys and values.

Every tensor-parallel rank holds the whole latent: there is one head to divide.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.layers import LayerGroup
from kvmodel.formulas.kv_size import Precision, Storage, vector_bytes


class LatentAttention(LayerGroup):
    """A latent of kv_lora_rank elements and a rotary part, no separate value."""

    kind: Literal["latent"] = "latent"

    latent_dim: int = Field(ge=1)
    """Elements of the latent (kv_lora_rank)."""

    rope_dim: int = Field(ge=0)
    """Elements of the rotary key part (qk_rope_head_dim); 0 in models without it."""

    query_heads: int = Field(default=0, ge=0)
    """Query heads of a layer; used for attention FLOPs only."""

    k_dim: int = Field(default=0, ge=0)
    """Width of a key once expanded for prefill (nope + rope); used for attention FLOPs only."""

    v_dim: int = Field(default=0, ge=0)
    """Width of a value once expanded for prefill; used for attention FLOPs only."""

    selected_tokens: int = Field(default=0, ge=0)
    """Tokens an indexer selects for each query (index_topk); 0: attention is dense."""

    def row_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        """Bytes of one token in one layer [B/token].

        In fp8, sparse MLA keeps the rotary part in bf16 and one f32 scale per 128 elements: 656 B for 512 +
        64. A per-tensor fp8 cache ("fp8_per_tensor") has no such row.
        """
        if self.selected_tokens and precision.key == "fp8":
            return vector_bytes(self.latent_dim, "fp8_block128") + vector_bytes(self.rope_dim, "bf16") + 0 * tp
        return vector_bytes(self.latent_dim + self.rope_dim, precision.key) + 0 * tp

    def growing_bytes_per_token(self, precision: Precision, tp: Any = 1) -> Any:
        return self.layers * self.row_bytes(precision, tp)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        return (Storage("tokens", self.layers, self.row_bytes(precision, tp), latent=True, positions=self.positions),)

    def quadratic_flops(self) -> float:
        if self.selected_tokens:
            return 0.0
        return float(self.layers * self.query_heads * (self.k_dim + self.v_dim))

    def bounded_flops_per_token(self) -> float:
        width = 2 * self.latent_dim + self.rope_dim  # sparse kernels attend in the latent space
        return 2.0 * self.layers * self.query_heads * width * self.selected_tokens
