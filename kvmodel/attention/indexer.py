"""Index keys of sparse attention (DeepSeek-V3.2, GLM-5): one small vector per token by which tokens are
selected.

It is a cache of its own beside the attention it serves, and some models share one between several layers:
`layers` counts the layers that own one. Every tensor-parallel rank holds it whole.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.layers import LayerGroup
from kvmodel.formulas.kv_size import Precision, Storage, vector_bytes


class Indexer(LayerGroup):
    """Index keys of the layers that own an indexer."""

    kind: Literal["indexer"] = "indexer"

    dim: int = Field(ge=1)
    """Elements of an index key (index_head_dim)."""

    pool: int = Field(default=1, ge=1)
    """Tokens that share one index key (index_kpool)."""

    query_heads: int = Field(default=0, ge=0)
    """Index query heads; used for FLOPs only."""

    def row_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        """Bytes of one token in one layer [B/token]; in fp8 one f32 scale per 128 elements: 132 B for 128."""
        name = "fp8_block128" if precision.index == "fp8" else precision.index
        return vector_bytes(self.dim, name) / self.pool + 0 * tp

    def growing_bytes_per_token(self, precision: Precision, tp: Any = 1) -> Any:
        return self.layers * self.row_bytes(precision, tp)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        return (Storage("tokens", self.layers, self.row_bytes(precision, tp), latent=True, positions=self.positions),)

    def quadratic_flops(self) -> float:
        return float(self.layers * self.query_heads * self.dim) / self.pool
