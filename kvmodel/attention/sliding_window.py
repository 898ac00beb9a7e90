"""Sliding-window attention: keys and values of the last `window` tokens only."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.layers import HeadedLayers
from kvmodel.formulas.kv_size import Precision, Storage, bounded_tokens


class SlidingWindow(HeadedLayers):
    """Keys and values of the last tokens; older ones are dropped."""

    kind: Literal["sliding_window"] = "sliding_window"

    window: int = Field(ge=1)
    """Tokens a layer looks back on, the current one included."""

    def bounded_bytes(self, tokens: Any, precision: Precision, tp: Any = 1) -> Any:
        return (self.layers * self.row_bytes(precision, tp)) * bounded_tokens(tokens, self.window)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        return (Storage("window", self.layers, self.row_bytes(precision, tp), self.window, positions=self.positions),)

    def bounded_flops_per_token(self) -> float:
        return 2.0 * self.layers * self.query_heads * (self.k_dim + self.v_dim) * self.window
