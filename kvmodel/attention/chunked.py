"""Chunked local attention (Llama 4): a token sees only its own chunk."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.layers import HeadedLayers
from kvmodel.formulas.kv_size import Precision, Storage, bounded_tokens


class ChunkedLocal(HeadedLayers):
    """Keys and values of the current chunk, counted at its largest: it is full before the next one starts."""

    kind: Literal["chunked"] = "chunked"

    chunk: int = Field(ge=1)
    """Tokens of a chunk."""

    def bounded_bytes(self, tokens: Any, precision: Precision, tp: Any = 1) -> Any:
        return (self.layers * self.row_bytes(precision, tp)) * bounded_tokens(tokens, self.chunk)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        return (Storage("chunk", self.layers, self.row_bytes(precision, tp), self.chunk, positions=self.positions),)

    def bounded_flops_per_token(self) -> float:
        return float(self.layers * self.query_heads * (self.k_dim + self.v_dim) * self.chunk)
