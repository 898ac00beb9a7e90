"""Kimi delta attention (Kimi-Linear, Kimi-K3, GLM-5.3-Flash): a matrix per head, three convolutions (q, k, v)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.state import HeadStateLayers
from kvmodel.formulas.kv_size import heads_per_rank


class KimiDeltaAttention(HeadStateLayers):
    """`heads` heads with a state each, always in f32; engines do not widen its convolutions for drafts."""

    kind: Literal["kda"] = "kda"
    state_dtype: str = "f32"
    widens: bool = False

    conv_kernel: int = Field(ge=1)
    """Kernel of the short convolutions (short_conv_kernel_size)."""

    def convolution_channels(self, tp: Any = 1) -> Any:
        return heads_per_rank(self.heads, tp) * (2 * self.key_dim + self.value_dim)

    def convolution_columns(self) -> int:
        return self.conv_kernel - 1
