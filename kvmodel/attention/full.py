"""Full attention: every token stays, one key and one value vector per KV head (MHA, GQA, MQA)."""

from __future__ import annotations

from typing import Any, Literal

from kvmodel.attention.layers import HeadedLayers
from kvmodel.formulas.kv_size import Precision, Storage


class FullAttention(HeadedLayers):
    """Keys and values of every token."""

    kind: Literal["full"] = "full"

    def growing_bytes_per_token(self, precision: Precision, tp: Any = 1) -> Any:
        return self.layers * self.row_bytes(precision, tp)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        return (Storage("tokens", self.layers, self.row_bytes(precision, tp), positions=self.positions),)

    def quadratic_flops(self) -> float:
        return float(self.layers * self.query_heads * (self.k_dim + self.v_dim))
