"""Layers that read the keys and values of an earlier layer (Gemma 3n): they compute attention and store nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kvmodel.attention.layers import HeadedLayers


class SharedLayers(HeadedLayers):
    """No cache of its own; the shape is that of the layer it reads from."""

    kind: Literal["shared"] = "shared"

    window: int = Field(default=0, ge=0)
    """Window of the layer read from; 0: it is full attention."""

    def quadratic_flops(self) -> float:
        return 0.0 if self.window else float(self.layers * self.query_heads * (self.k_dim + self.v_dim))

    def bounded_flops_per_token(self) -> float:
        return 2.0 * self.layers * self.query_heads * (self.k_dim + self.v_dim) * self.window
