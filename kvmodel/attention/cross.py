"""Cross attention (T5, Whisper, Llama-3.2-Vision): keys and values of the encoder's tokens, none per decoder token."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.layers import HeadedLayers
from kvmodel.formulas.kv_size import Precision, Storage


class CrossAttention(HeadedLayers):
    """Keys and values of `encoder_tokens` tokens, stored once per sequence."""

    kind: Literal["cross"] = "cross"

    encoder_tokens: int = Field(ge=0)
    """Tokens of the encoder (audio frames, image patches, source text) the sequence attends to."""

    def state_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        return self.layers * self.encoder_tokens * self.row_bytes(precision, tp)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        row = self.row_bytes(precision, tp)
        return (Storage("encoder", self.layers, row, self.encoder_tokens, positions=self.positions),)

    def bounded_flops_per_token(self) -> float:
        return 2.0 * self.layers * self.query_heads * (self.k_dim + self.v_dim) * self.encoder_tokens
