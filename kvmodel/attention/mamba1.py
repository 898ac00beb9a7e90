"""Mamba-1 (Mamba, Jamba): d_state numbers per inner channel, and a short convolution over the inner channels."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.state import StateLayers
from kvmodel.formulas.kv_size import heads_per_rank


class Mamba1(StateLayers):
    """State of inner × state elements and inner × (kernel - 1) past inputs."""

    kind: Literal["mamba1"] = "mamba1"

    inner: int = Field(ge=1)
    """Inner channels (expand × hidden size)."""

    state: int = Field(ge=1)
    """State elements per channel (d_state)."""

    conv_kernel: int = Field(ge=1)
    """Kernel of the short convolution (d_conv)."""

    def recurrent_elements(self, tp: Any = 1) -> Any:
        return heads_per_rank(self.inner, tp) * self.state

    def convolution_channels(self, tp: Any = 1) -> Any:
        return heads_per_rank(self.inner, tp)

    def convolution_columns(self) -> int:
        return self.conv_kernel - 1
