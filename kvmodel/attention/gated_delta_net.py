"""Gated delta net (Qwen3-Next, Qwen3.5, Qwen3.6): a matrix per value head, one convolution over q, k and v."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.state import HeadStateLayers
from kvmodel.formulas.kv_size import heads_per_rank


class GatedDeltaNet(HeadStateLayers):
    """`heads` value heads with a state each; queries and keys share `key_heads` heads."""

    kind: Literal["gated_delta_net"] = "gated_delta_net"

    key_heads: int = Field(ge=1)
    """Heads of queries and keys (linear_num_key_heads)."""

    conv_kernel: int = Field(ge=1)
    """Kernel of the short convolution (linear_conv_kernel_dim)."""

    def convolution_channels(self, tp: Any = 1) -> Any:
        keys = heads_per_rank(self.key_heads, tp) * self.key_dim
        return 2 * keys + heads_per_rank(self.heads, tp) * self.value_dim

    def convolution_columns(self) -> int:
        return self.conv_kernel - 1
